"""The verbs ``train``, ``select`` and ``switch_test`` write what their commands write."""

import json
from itertools import islice

import pytest
from typer.testing import CliRunner

from tests.generating import recipe

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

import eclose
import eclose_train
from eclose.cli.main import app
from eclose.files.families import write_families_parquet
from eclose.files.jsonl import read_records, write_records
from eclose_world.make.families import make_world_families
from tests.calls.local import tiny
from tests.tiny_models import model, tokenizer
from tests.training.small import short_families, small_model, small_tokenizer

pytestmark = pytest.mark.torch


def command(*words, codes=(0,)):
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code in codes, result.output
    return result.stdout


def test_train_writes_what_the_command_writes(tmp_path):
    small_model().save_pretrained(tmp_path / "model")
    small_tokenizer().save_pretrained(tmp_path / "model")
    families = tmp_path / "families.jsonl"
    write_records(families, short_families(2))
    settings = {
        "model": str(tmp_path / "model"),
        "method": "e_closure",
        "families_per_update": 2,
        "max_steps": 2,
        "demonstrations": 0,
        "lora_rank": 2,
        "report_to": "none",
        "use_cpu": True,
    }
    result = eclose_train.train(families, out=tmp_path / "python", **settings)
    flags = [
        word
        for name, value in settings.items()
        for word in ([f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}", value])
    ]
    output = command("train", families, "--out", tmp_path / "command", *flags)
    assert str(result.counts) in output
    names = ("adapter/adapter_model.safetensors", "adapter/adapter_config.json", "recipe.json")
    for name in names:
        python, from_command = ((tmp_path / folder / name).read_bytes() for folder in ("python", "command"))
        assert python == from_command, name


def write_checkpoints(folder, names, steps, *, families):
    """Write weights, held-out families, and runs with the same checkpoints; return the first two."""
    weights, held_out = folder / "tiny", folder / "development.jsonl"
    tiny.model().save_pretrained(weights)
    tiny.tokenizer().save_pretrained(weights)
    write_records(held_out, islice(make_world_families("2wiki", 5), families))
    recipe = {"model": str(weights), "revision": None, "demonstrations": 0, "order": "evidence_first", "seed": 42}
    for name in names:
        for step in steps:
            tiny.adapter(folder / name / f"checkpoint-{step}", seed=step)
            (folder / name / f"checkpoint-{step}" / "complete.json").write_text(json.dumps({"step": step}))
        (folder / name / "recipe.json").write_text(json.dumps(recipe))
    return weights, held_out


def test_select_writes_what_the_command_writes(tmp_path):
    _, families = write_checkpoints(tmp_path, ("python", "command"), (4, 8), families=2)
    selection = eclose_train.select(tmp_path / "python", families, max_new_tokens=6)
    command("select", tmp_path / "command", "--families", families, *recipe(tmp_path, max_new_tokens=6), codes=(3,))
    assert not selection.has_answers
    replies = [(tmp_path / name / "selection.replies.jsonl").read_bytes() for name in ("python", "command")]
    assert replies[0] == replies[1]


def write_one(folder):
    write_records(folder / "one.jsonl", short_families(1))
    return folder / "one.jsonl"


def test_switch_test_writes_what_the_command_writes(tmp_path):
    weights, families = tmp_path / "tiny", tmp_path / "families.jsonl"
    model().save_pretrained(weights)
    tokenizer().save_pretrained(weights)
    write_records(families, islice(make_world_families("2wiki", 5), 2))
    settings = eclose_train.SwitchSettings(model=str(weights), demonstrations=0)
    result = eclose_train.switch_test(families, settings=settings, out=tmp_path / "python.jsonl")
    output = command("switch", families, "--model", weights, "--demonstrations", 0, "--out", tmp_path / "command.jsonl")
    assert (tmp_path / "python.jsonl").read_bytes() == (tmp_path / "command.jsonl").read_bytes()
    assert str(result.counts) in output


QUICK = {
    "families_per_update": 2,
    "num_train_epochs": 1,
    "demonstrations": 0,
    "lora_rank": 2,
    "report_to": "none",
    "use_cpu": True,
}


@pytest.mark.slow
def test_tables_train_the_same_adapter_as_lines(tmp_path, model_folder, family_file):
    pytest.importorskip("pyarrow")
    held_out = tmp_path / "held-out.jsonl"
    write_records(held_out, short_families(8)[6:])
    (table,) = write_families_parquet(tmp_path, "table", read_records(family_file, eclose.Family))
    values = list(read_records(held_out, eclose.Family))
    settings = {"model": str(model_folder), **QUICK}
    lines = eclose_train.train(family_file, development=held_out, out=tmp_path / "lines", **settings)
    tables = eclose_train.train(str(table), development=values, out=tmp_path / "tables", **settings)
    assert lines.counts == tables.counts
    works, weights = [], []
    for folder in ("lines", "tables"):
        works.append(json.loads((tmp_path / folder / "recipe.json").read_text())["work"])
        weights.append((tmp_path / folder / "adapter" / "adapter_model.safetensors").read_bytes())
    assert works[0] == works[1]
    assert weights[0] == weights[1]
    # The same run in another form is done, or goes on; other families are refused and change nothing.
    assert eclose_train.train(table, development=held_out, out=tmp_path / "lines", **settings).again
    assert eclose_train.train(family_file, development=held_out, out=tmp_path / "tables", **settings).again
    with pytest.raises(eclose.UserError, match="holds other families than list"):
        eclose_train.train(values, development=held_out, out=tmp_path / "tables", **settings)
    assert eclose_train.train(table, development=held_out, out=tmp_path / "tables", **settings).again


def test_a_switch_test_is_the_same_work_in_every_form(tmp_path, model_folder):
    pytest.importorskip("pyarrow")
    families = short_families(3)
    write_records(tmp_path / "families.jsonl", families)
    (table,) = write_families_parquet(tmp_path, "validation", families)
    settings = eclose_train.SwitchSettings(model=str(model_folder), demonstrations=0)
    first = eclose_train.switch_test(tmp_path / "families.jsonl", settings=settings, out=tmp_path / "switches.jsonl")
    assert not first.again
    for form in (table, list(families)):
        again = eclose_train.switch_test(form, settings=settings, out=tmp_path / "switches.jsonl")
        assert again.again
        assert again.rows == first.rows
    assert eclose_train.switch_test(table, settings=settings).rows == first.rows
