"""Many workers write what one process would have written, and the same command finds it done."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eclose.calls.ledger.database import WriterLock
from eclose.cli.main import app
from eclose.detectors.scores import DetectorScore
from eclose.errors import UserError
from eclose.files import jsonl
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.calls.cluster.cluster import cluster
from tests.calls.ledger.postgres import fresh_database
from tests.cli.test_construct import FILES
from tests.detectors.tiny_models import save
from tests.generating import recipe
from tests.test_guides import code_blocks

__all__ = ["cluster"]

pytestmark = [pytest.mark.database, pytest.mark.ray, pytest.mark.slow, pytest.mark.torch]
RECORDS = 12


def eclose(*arguments):
    """What a command prints, in this process: where it is connected to a Ray, workers run there."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def refusal(*arguments):
    """The sentence that a command ends with."""
    error = CliRunner().invoke(app, [str(argument) for argument in arguments]).exception
    assert isinstance(error, UserError), error
    assert error.exit_code == 2
    return str(error)


@pytest.fixture
def server():
    with ModelServerThread(build_world_handlers()) as server:
        yield server


def paid(server):
    return server.bill(keys=False)["totals"]["paid"]


@pytest.fixture
def items():
    return list(islice(make_world_items("short-easy", 1), RECORDS))


@pytest.fixture
def questions(tmp_path, items):
    path = tmp_path / "questions.jsonl"
    jsonl.write_records(path, (item.instance for item in items))
    return path


@pytest.fixture
def runs(tmp_path, items):
    """Two folders with the same questions and responses."""
    folders = [tmp_path / name for name in ("one", "many")]
    for folder in folders:
        folder.mkdir()
        jsonl.write_records(folder / "instances.jsonl", (item.instance for item in items))
        jsonl.write_records(folder / "responses.jsonl", (item.response for item in items))
    return folders


def on_ray(folder, **settings):
    return (*recipe(folder, engine="ray", workers=2, **settings), "--ledger", fresh_database())


def test_workers_generate_what_one_process_generates(cluster, tmp_path, questions, server):
    command = ("generate", questions, "--model", server.base_url, "--no-price", "--demonstrations", 0)
    solo, many = tmp_path / "one", tmp_path / "many"
    eclose(*command, "--out", solo)
    command = (*command, "--out", many, *on_ray(tmp_path))
    eclose(*command)
    assert "done before" in eclose(*command)
    # As if it had been killed between the result and its manifest.
    (many / "responses.jsonl.manifest.json").unlink()
    assert f"{RECORDS} received = {RECORDS} accepted" in eclose(*command)
    assert paid(server) == 2 * RECORDS
    for name in ("responses.jsonl", "instances.jsonl"):
        assert (solo / name).read_bytes() == (many / name).read_bytes()
    assert len((many / "responses.jsonl").read_bytes().splitlines()) == RECORDS


def test_workers_screen_what_one_process_screens(cluster, tmp_path, questions, server):
    command = ("screen", questions, "--judge", server.base_url, "--no-price")
    eclose(*command, "--out", tmp_path / "one")
    output = eclose(*command, "--out", tmp_path / "many", *on_ray(tmp_path))
    assert f"{RECORDS} questions eligible" in output
    assert paid(server) == 2 * RECORDS
    solo, many = ((tmp_path / name / "screening.jsonl").read_bytes() for name in ("one", "many"))
    assert solo == many


def test_workers_construct_what_one_process_constructs(cluster, tmp_path, server):
    instances = [item.instance for item in islice(make_world_items("short-easy", 4), 6)]
    jsonl.write_records(tmp_path / "sources.jsonl", instances)
    roles = ("--constructor", server.base_url, "--verifier", server.base_url, "--no-price")
    command = ("construct", tmp_path / "sources.jsonl", *roles)
    eclose(*command, "--out", tmp_path / "one")
    once = paid(server)
    output = eclose(*command, "--out", tmp_path / "many", *on_ray(tmp_path))
    assert paid(server) == 2 * once
    assert "all " not in output
    for name in FILES:
        solo, many = tmp_path / "one" / name, tmp_path / "many" / name
        assert solo.exists() == many.exists(), name
        assert not solo.exists() or solo.read_bytes() == many.read_bytes(), name


@pytest.mark.parametrize(
    ("command", "flags", "result", "word"),
    [
        ("judge", ("--judge",), "judgments.jsonl", "written"),
        ("detect", ("--detector", "alignment", "--model"), "scores-alignment.jsonl", "accepted"),
    ],
)
def test_workers_judge_and_score_what_one_process_does(cluster, runs, tmp_path, server, command, flags, result, word):
    options = (*flags, server.base_url, "--no-price")
    ray = on_ray(tmp_path)
    eclose(command, runs[0], *options)
    assert f"{RECORDS} received = {RECORDS} {word}" in eclose(command, runs[1], *options, *ray)
    once = paid(server)
    assert "done before" in eclose(command, runs[1], *options, *ray)
    assert paid(server) == once
    solo, many = ((folder / result).read_bytes() for folder in runs)
    assert solo == many


def test_python_judges_on_workers_as_the_command_does(cluster, runs, server, monkeypatch):
    """The lines of docs/python.md, with another server and another database."""
    (code,) = code_blocks("docs/python.md")
    code = code.replace("http://judge:8000/v1", server.base_url).replace(
        "postgresql://user@host/name", fresh_database()
    )
    eclose("judge", runs[0], "--judge", server.base_url, "--no-price")
    runs[1].rename(runs[1].with_name("run"))
    monkeypatch.chdir(runs[1].parent)
    exec(compile(code, "python.md", "exec"), {})
    assert Path("run", "judgments.jsonl").read_bytes() == (runs[0] / "judgments.jsonl").read_bytes()


@pytest.mark.study  # in short: workers that judge and score
def test_workers_load_the_weights_of_a_detector(cluster, runs, tmp_path):
    """Pairs of other responses share a batch in a worker, so scores may differ by rounding."""
    weights = save(tmp_path / "nli", "roberta", positions=480)
    options = ("--detector", "closure", "--model", weights)
    eclose("detect", runs[0], *options)
    assert f"{RECORDS} received = {RECORDS} accepted" in eclose("detect", runs[1], *options, *on_ray(tmp_path))
    solo, many = (list(jsonl.read_records(folder / "scores-closure.jsonl", DetectorScore)) for folder in runs)
    assert [(score.response_id, score.model) for score in many] == [(score.response_id, score.model) for score in solo]
    assert [score.score for score in many] == pytest.approx([score.score for score in solo], abs=1e-5)
    assert len({score.score for score in many}) > 1


def test_workers_keep_one_budget_and_the_same_command_waits_for_its_turn(tmp_path, questions, server):
    """As a user starts it, with a Ray of its own."""
    pytest.importorskip("ray", reason="needs the ray extra")
    (tmp_path / "p.json").write_text('{"world": {"input": 1, "output": 1}}')
    command = ("generate", questions, "--model", server.base_url, "--demonstrations", 0, "--max-new-tokens", 256)
    command = (*command, *on_ray(tmp_path, prices=tmp_path / "p.json"), "--out", tmp_path / "r")
    lock = WriterLock(tmp_path / "r" / "responses.jsonl", "the same command")
    assert "is writing to it. Wait until it ends" in refusal(*command, "--no-price")
    assert paid(server) == 0
    lock.release()
    command = (*command, "--budget", "0.003")
    words = [sys.executable, "-m", "eclose.cli.main", *map(str, command)]
    process = subprocess.run(words, check=False, capture_output=True, text=True, timeout=400)
    assert process.returncode == 75, process.stdout + process.stderr
    totals = server.bill(keys=False)["totals"]
    assert 0 < totals["prompt_tokens"] + totals["completion_tokens"] <= 3_000


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "a file takes one writer"),
        ({"ledger": "postgresql://x/y", "concurrency": 1}, "some would be idle"),
        ({"ledger": "postgresql://x/y", "replay": True}, "calls a served model"),
    ],
)
def test_what_workers_cannot_generate_is_refused(tmp_path, questions, server, settings, problem):
    command = ("generate", questions, "--model", server.base_url, "--no-price", "--out", tmp_path / "r")
    assert problem in refusal(*command, *recipe(tmp_path, engine="ray", **settings))


def test_what_workers_cannot_judge_or_score_is_refused(runs, tmp_path, server):
    ray = recipe(tmp_path, engine="ray", replay=True)
    detect = ("detect", runs[0], "--detector", "verifier", "--verifier", "folder", *ray)
    assert "runs in this process" in refusal(*detect)
    judge = ("judge", runs[0], "--judge", server.base_url, "--no-price", *ray)
    assert "leave replay out" in refusal(*judge)
