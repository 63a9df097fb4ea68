"""``eclose construct`` as a user meets it: one command, killed and gone on with, its table, warnings and forecast."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from itertools import islice

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.files import jsonl
from eclose.readers.load import scan_instances
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.faults import ServerBehaviour
from tests.cli.test_generate import local_server
from tests.generating import recipe

FILES = ("families.jsonl", "train.jsonl", "development.jsonl", "families.jsonl.rejected.jsonl")


@pytest.fixture
def sources(tmp_path):
    instances = [
        item.instance for name in ("short-easy", "short-hard") for item in islice(make_world_items(name, 11), 6)
    ]
    jsonl.write_records(tmp_path / "sources.jsonl", instances)
    return tmp_path / "sources.jsonl"


def command(sources, url, out, *more):
    words = [sources, "--constructor", url, "--verifier", url, "--no-price", "--out", out, *more]
    return [sys.executable, "-m", "eclose.cli.main", "construct", *map(str, words)]


def ran(*words, code=0):
    result = CliRunner().invoke(app, command(*words)[3:])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


@pytest.mark.slow
def test_one_command_and_what_it_says(sources, tmp_path):
    with ModelServerThread(build_world_handlers()) as server:
        output = ran(sources, server.base_url, tmp_path / "run")
        again = ran(sources, server.base_url, tmp_path / "run")
        guess = ran(sources, server.base_url, tmp_path / "other", "--dry-run")
        scaled = ran(sources, server.base_url, tmp_path / "other", "--dry-run", "--pilot", tmp_path / "run")
    assert "checks what a model of its own family writes" in output
    assert output.count("warning:") == 1
    assert "dataset           Sampled  Processed  Screened  y*  Evidence  Question  Packed" in output
    assert output.count("\nall ") == 1
    assert "done before, nothing to do" in again
    assert "a guess, until a pilot" in guess
    assert "by 12 sources of" in scaled
    manifest = json.loads((tmp_path / "run" / "families.jsonl.manifest.json").read_text())
    assert f"about {manifest['calls']['replies']:,} calls" in scaled
    assert f"for about {manifest['counts']['accepted']} families" in scaled
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
@pytest.mark.parametrize("moments", [(3.0,), pytest.param((2.5, 3.0, 3.5), marks=pytest.mark.study)], ids=len)
def test_killed_again_and_again_it_comes_to_the_same_bytes(sources, tmp_path, moments):
    with ModelServerThread(build_world_handlers()) as server:
        ran(sources, server.base_url, tmp_path / "unbroken")
    faults = ServerBehaviour(latency=0.02, faults={"rate_limit": 0.05, "server_error": 0.02})
    with ModelServerThread(build_world_handlers(), faults) as server:
        words = command(sources, server.base_url, tmp_path / "run")
        killed = 0
        for seconds in moments:
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        assert killed
        ran(sources, server.base_url, tmp_path / "run")
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes(), name


@pytest.mark.study  # in short: roles of the world that fail
@pytest.mark.slow
def test_a_real_model_that_cannot_do_it_breaks_nothing(tmp_path, qa):
    """The shortest question of HotpotQA before a model of 135M parameters: whatever it says is counted."""
    ordered = sorted(
        jsonl.unwrap_records(scan_instances(qa / "hotpotqa_train_50.json")), key=lambda one: (one.context_words, one.id)
    )
    jsonl.write_records(tmp_path / "one.jsonl", ordered[:1])
    more = ["--concurrency", 1, *recipe(tmp_path, max_tokens=32, replies=1, deadline=900)]
    with local_server() as url:
        ran(tmp_path / "one.jsonl", url, tmp_path / "run", *more)
    manifest = json.loads((tmp_path / "run" / "families.jsonl.manifest.json").read_text())
    assert manifest["counts"]["received"] == 1
    assert manifest["counts"]["accepted"] + sum(manifest["counts"]["rejected"].values()) == 1
    assert manifest["calls"]["replies"] >= 1
