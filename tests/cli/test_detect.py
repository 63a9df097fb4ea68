"""``eclose detect`` as a command: what it prints, and with which code it ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.core.response import Response, ResponseSource, Trace
from eclose.store.records import jsonl
from eclose.world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose.world.make.instances import make_world_items
from eclose.world.roles.request_handlers import build_world_handlers
from eclose.world.server.app import ModelServerThread


@pytest.fixture
def responses():
    return [
        broken.response
        for item in islice(make_world_items("short-easy", 3), 2)
        for plan in (FailurePlan(), *FAILURE_PLANS[:3])
        if (broken := break_response(item, plan, "x")) is not None
    ]


@pytest.fixture
def run(tmp_path, responses):
    jsonl.write_records(
        tmp_path / "instances.jsonl", (item.instance for item in islice(make_world_items("short-easy", 3), 2))
    )
    jsonl.write_records(tmp_path / "responses.jsonl", responses)
    return tmp_path


def command(*arguments, code=0):
    result = CliRunner().invoke(app, ["detect", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.mark.parametrize("detector", ["ragas", "veriscore", "alignment"])
def test_scores_are_written_into_the_run(run, responses, detector):
    with ModelServerThread(build_world_handlers()) as server:
        output = command(run, "--detector", detector, "--model", server.base_url, "--no-price")
        again = command("run", run, "--detector", detector, "--model", server.base_url, "--no-price")
    assert f"scores-{detector}.jsonl: {len(responses)} received = {len(responses)} accepted" in output
    assert "Not scored" not in output
    assert "done before" in again
    assert len((run / f"scores-{detector}.jsonl").read_text().splitlines()) == len(responses)


def test_scores_of_a_second_model_go_where_out_says(run, responses):
    out = run / "scores-other.jsonl"
    with ModelServerThread(build_world_handlers()) as server:
        output = command(run, "--detector", "alignment", "--model", server.base_url, "--no-price", "-o", out)
    assert f"scores-other.jsonl: {len(responses)} received" in output
    assert not (run / "scores-alignment.jsonl").exists()


def test_a_dry_run_counts_the_calls_and_writes_nothing(run, responses):
    before = {path.name for path in run.iterdir()}
    with ModelServerThread(build_world_handlers()) as server:
        output = command(run, "--detector", "ragas", "--model", server.base_url, "--no-price", "--dry-run")
        assert server.bill(keys=False)["totals"]["paid"] == 0
    assert f"{2 * len(responses):,} calls" in output
    assert {path.name for path in run.iterdir()} == before


def test_responses_without_a_score_are_told_and_too_many_end_with_3(run, responses):
    odd = Response("odd", responses[0].instance_id, Trace.of("Furiously."), "x")
    jsonl.write_records(run / "responses.jsonl", [*responses, odd])
    with ModelServerThread(build_world_handlers()) as server:
        asked = (run, "--detector", "alignment", "--model", server.base_url, "--no-price")
        output = command(*asked)
        strict = command(*asked, "--max-unscored-share", 0.01, code=3)
    assert f"Not scored, of {len(responses) + 1} responses" in output
    row = next(line for line in output.splitlines() if line.startswith("no yes or no"))
    assert row.split()[4:] == ["1", f"{100 / (len(responses) + 1):.1f}", "%"]
    assert "--max-unscored-share" not in output
    assert "have no score, more than 1.0 % (--max-unscored-share)" in strict


def test_a_model_of_the_generators_family_is_told(run, responses):
    jsonl.write_records(
        run / "responses.jsonl", [replace(response, source=ResponseSource("world-1")) for response in responses]
    )
    with ModelServerThread(build_world_handlers()) as server:
        url = ("--base-url", server.base_url)
        output = command(run, "--detector", "alignment", "--model", "world", *url, "--no-price")
    assert "is of the model family of world-1, whose responses it scores" in output


def test_the_model_that_answers_is_not_taken_for_the_detector_s(run, monkeypatch):
    monkeypatch.setenv("ECLOSE_MODEL", "http://127.0.0.1:9/v1")
    assert "Missing option '--model'" in command(run, "--detector", "ragas", code=2)
