"""``eclose detect`` as a command: what it prints, and with which code it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.detectors.scores import list_score_files
from eclose.errors import UserError
from eclose.files import jsonl
from eclose.values.instance import Instance
from eclose.values.response import Response, ResponseSource, Trace
from eclose.values.verdict import SettledVerdict
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.generating import recipe


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


@pytest.mark.slow
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
        arguments = (run, "--detector", "alignment", "--model", server.base_url, "--no-price")
        output = command(*arguments)
        strict = command(*arguments, "--max-unscored-share", 0.01, code=3)
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


def judge_by_world(run):
    questions = {instance.id: instance for instance in jsonl.read_records(run / "instances.jsonl", Instance)}
    answers = list(jsonl.read_records(run / "responses.jsonl", Response))
    judgments = [judge_by_oracle(questions[answer.instance_id], answer) for answer in answers]
    jsonl.write_records(run / "judgments.jsonl", judgments)
    return [SettledVerdict(j.response_id, a.instance_id, j.verdict) for j, a in zip(judgments, answers, strict=True)]


@pytest.mark.slow
def test_the_report_studies_every_file_of_scores_in_the_run(run, tmp_path):
    verdicts = judge_by_world(run)
    with ModelServerThread(build_world_handlers()) as server:
        for detector in ("ragas", "alignment"):
            command(run, "--detector", detector, "--model", server.base_url, "--no-price")
    output = command("evaluate", run, *recipe(tmp_path, resamples=20))
    assert f"{run / 'detectors' / 'detectors.md'}" in output
    data = json.loads((run / "detectors" / "detectors.json").read_text())
    assert [entry["detector"] for entry in data["detectors"]] == ["ragas", "alignment"]
    assert data["labels"].startswith("The groups rest on the labels of")
    # One file by name, people's verdicts, and a folder elsewhere.
    jsonl.write_records(run / "people.jsonl", verdicts)
    only = ("--scores", run / "scores-alignment.jsonl", "--verdicts", run / "people.jsonl", "--out", run / "else")
    command("evaluate", run, *recipe(tmp_path, resamples=20, retention=0.9), *only)
    data = json.loads((run / "else" / "detectors.json").read_text())
    assert [entry["detector"] for entry in data["detectors"]] == ["alignment"]
    assert data["labels"] == "The groups rest on the settled verdicts in people.jsonl."
    assert data["settings"]["retention"] == 0.9


def test_options_of_one_kind_of_evaluation_are_refused_for_the_other(run, tmp_path):
    for settings, message in (
        ({"other_benchmark": True}, "other_benchmark: belongs to a calibration"),
        ({"calibration": run / "c.json", "retention": 0.9}, "retention: the calibration has its own"),
    ):
        options = recipe(tmp_path, **settings)
        result = CliRunner().invoke(app, ["detect", "evaluate", str(run), *map(str, options)])
        assert isinstance(result.exception, UserError)
        assert message in str(result.exception)


def test_a_run_without_scores_is_told_how_to_get_them(run):
    judge_by_world(run)
    result = CliRunner().invoke(app, ["detect", "evaluate", str(run)])
    assert isinstance(result.exception, UserError)
    assert f"eclose detect {run} --detector NAME --model MODEL" in str(result.exception)


def test_rejected_records_beside_a_result_are_no_scores(run):
    for name in ("scores-ragas.jsonl", "scores-ragas.jsonl.rejected.jsonl", "scores-b.jsonl", "other.jsonl"):
        (run / name).write_text("")
    assert [path.name for path in list_score_files(run)] == ["scores-b.jsonl", "scores-ragas.jsonl"]
