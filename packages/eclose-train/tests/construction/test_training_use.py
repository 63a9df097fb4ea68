"""Families built here are trained on as they are, and the switch test runs on those that were held out."""

from __future__ import annotations

import asyncio
import json
from itertools import islice

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from typer.testing import CliRunner

from eclose.calls.client import CallSettings
from eclose.calls.resolve import find_model_ref
from eclose.cli.main import app
from eclose.files import jsonl
from eclose_train.construction.run import construct_families, resolve_construction_models
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.training.small import small_model, small_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.torch]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run over eight short sources, and a model."""
    folder = tmp_path_factory.mktemp("construct")
    jsonl.write_records(
        folder / "sources.jsonl", (item.instance for item in islice(make_world_items("short-easy", 6), 8))
    )
    with ModelServerThread(build_world_handlers()) as server:
        world = find_model_ref("world", base_url=server.base_url, environ={})
        models = asyncio.run(resolve_construction_models(world, world))
        asyncio.run(
            construct_families(folder / "sources.jsonl", models, folder / "run", calls=CallSettings(unpriced=True))
        )
    small_model().save_pretrained(folder / "model")
    small_tokenizer().save_pretrained(folder / "model")
    return folder


def invoke(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_what_was_built_trains_without_conversion_and_is_switched_on_what_was_held_out(run, tmp_path):
    families, held_out = run / "run" / "train.jsonl", run / "run" / "development.jsonl"
    count, apart = (len(path.read_text().splitlines()) for path in (families, held_out))
    assert count >= 4
    assert apart == 1
    quick = (
        "--families-per-update 2 --max-steps 3 --learning-rate 1e-2 --demonstrations 0 --lora-rank 2 --report-to none"
    )
    training_output = invoke(
        "train", families, "--model", run / "model", "--out", tmp_path / "adapter", "--use-cpu", *quick.split()
    )
    assert f"{count} received = {count} accepted + 0 rejected" in training_output
    switch_output = invoke(
        "switch", held_out, "--model", run / "model", "--adapter", tmp_path / "adapter" / "adapter", "--json"
    )
    assert json.loads(switch_output)
