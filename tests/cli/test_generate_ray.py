"""Many workers write what one process would have written, and the same command finds it done."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice

import pytest
from tests.store.postgres import fresh_database

from eclose.store.ledger.database import WriterLock
from eclose.store.records import jsonl
from eclose.world.make.instances import make_world_items
from eclose.world.roles.request_handlers import build_world_handlers
from eclose.world.server.app import ModelServerThread

pytestmark = pytest.mark.slow


def generate(*arguments, code=0):
    command = [sys.executable, "-m", "eclose.cli.main", "generate", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=400)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    jsonl.write_records(path, (item.instance for item in islice(make_world_items("short-easy", 1), 60)))
    return path


def test_workers_on_one_ledger_write_what_one_process_writes(tmp_path, questions):
    pytest.importorskip("ray")
    ledger = fresh_database()
    with ModelServerThread(build_world_handlers()) as server:
        asked = (questions, "--model", server.base_url, "--no-price", "--demonstrations", 0)
        generate(*asked, "--out", tmp_path / "one")
        on_ray = (*asked, "--out", tmp_path / "many", "--engine", "ray", "--workers", 2, "--ledger", ledger)
        generate(*on_ray)
        paid = server.bill(keys=False)["totals"]["paid"]
        assert "done before" in generate(*on_ray)
        # As if it had been killed between the result and its manifest.
        (tmp_path / "many" / "responses.jsonl.manifest.json").unlink()
        assert "60 received = 60 accepted" in generate(*on_ray)
        assert server.bill(keys=False)["totals"]["paid"] == paid == 2 * 60
    one, many = ((tmp_path / name / "responses.jsonl").read_bytes() for name in ("one", "many"))
    assert one == many
    copies = [(tmp_path / name / "instances.jsonl").read_bytes() for name in ("one", "many")]
    assert copies[0] == copies[1]
    assert len(many.splitlines()) == 60


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ((), "a file takes one writer"),
        (("--ledger", "postgresql://x/y", "--concurrency", 1), "some would be idle"),
        (("--ledger", "postgresql://x/y", "--replay"), "calls a served model"),
    ],
)
def test_what_workers_cannot_do_is_refused(tmp_path, questions, flags, problem):
    pytest.importorskip("ray")
    with ModelServerThread(build_world_handlers()) as server:
        asked = (questions, "--model", server.base_url, "--no-price", "--out", tmp_path / "r", "--engine", "ray")
        arguments = (*asked, *flags)
        assert problem in " ".join(generate(*arguments, code=2).split())


def test_workers_keep_one_budget_and_the_same_command_waits_for_its_turn(tmp_path, questions):
    pytest.importorskip("ray")
    (tmp_path / "p.json").write_text('{"world": {"input": 1, "output": 1}}')
    with ModelServerThread(build_world_handlers()) as server:
        asked = (questions, "--model", server.base_url, "--demonstrations", 0, "--max-new-tokens", 256)
        on_ray = (*asked, "--engine", "ray", "--ledger", fresh_database(), "--out", tmp_path / "r")
        held = WriterLock(tmp_path / "r" / "responses.jsonl", "the same command")
        refused = generate(*on_ray, "--no-price", code=2)
        assert "is writing to it. Wait until it ends" in " ".join(refused.split())
        assert server.bill(keys=False)["totals"]["paid"] == 0
        held.release()
        generate(*on_ray, "--prices", tmp_path / "p.json", "--budget", "0.01", code=75)
        totals = server.bill(keys=False)["totals"]
    assert 0 < totals["prompt_tokens"] + totals["completion_tokens"] <= 10_000
