"""Workers that judge and score write what one process writes."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice

import pytest
from tests.store.postgres import fresh_database

from eclose.store.records import jsonl
from eclose.world.make.instances import make_world_items
from eclose.world.roles.request_handlers import build_world_handlers
from eclose.world.server.app import ModelServerThread

pytestmark = pytest.mark.slow
RESPONSES = 12


def eclose(*arguments, code=0):
    command = [sys.executable, "-m", "eclose.cli.main", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=400)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def runs(tmp_path):
    """Two folders with the same questions and responses."""
    items = list(islice(make_world_items("short-easy", 1), RESPONSES))
    folders = [tmp_path / name for name in ("one", "many")]
    for folder in folders:
        folder.mkdir()
        jsonl.write_records(folder / "instances.jsonl", (item.instance for item in items))
        jsonl.write_records(folder / "responses.jsonl", (item.response for item in items))
    return folders


@pytest.mark.parametrize(
    ("command", "flags", "result"),
    [
        ("judge", ("--judge",), "judgments.jsonl"),
        ("detect", ("--detector", "alignment", "--model"), "scores-alignment.jsonl"),
    ],
)
def test_workers_write_what_one_process_writes(runs, command, flags, result):
    pytest.importorskip("ray")
    with ModelServerThread(build_world_handlers()) as server:
        options = (*flags, server.base_url, "--no-price")
        on_ray = ("--engine", "ray", "--workers", 2, "--ledger", fresh_database())
        eclose(command, runs[0], *options)
        assert f"{RESPONSES} received = {RESPONSES} accepted" in eclose(command, runs[1], *options, *on_ray)
        paid = server.bill(keys=False)["totals"]["paid"]
        assert "done before" in eclose(command, runs[1], *options, *on_ray)
        assert server.bill(keys=False)["totals"]["paid"] == paid
    one, many = ((folder / result).read_bytes() for folder in runs)
    assert one == many


def test_what_workers_cannot_do_is_refused(runs):
    pytest.importorskip("ray")
    detect = ("detect", runs[0], "--detector", "closure", "--model", "weights", "--engine", "ray")
    assert "runs in this process" in eclose(*detect, code=2)
    with ModelServerThread(build_world_handlers()) as server:
        judge = ("judge", runs[0], "--judge", server.base_url, "--no-price", "--engine", "ray")
        assert "leave --replay out" in eclose(*judge, "--replay", code=2)
