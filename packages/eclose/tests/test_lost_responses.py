"""Responses that were lost when another tool's file was read count as responses without a judgment, in every output."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from eclose.api.gate import gate
from eclose.cli.main import app
from eclose.errors import UserError
from eclose.files import jsonl
from eclose.files.manifest import read_manifest
from eclose.judging.inputs import find_judge_inputs
from eclose.readers.judged_run import read_conversion_losses, read_judged_cases
from eclose.values.judgment import Judgment, StepJudgment
from eclose.values.response import Response
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.readers.spans.files import make_span, make_trace, wrap_spans, write_lines

RETRIEVER = {"openinference__span__kind": "RETRIEVER", "input__value": "Where?"}


def write_traces(path, *, answered=8):
    """Write traces that can be judged, one without documents, one without an answer, one that asks nothing, a copy."""
    traces = [make_trace(number, input__value=f"Where is house {number}?") for number in range(1, answered + 1)]
    nothing_retrieved = [make_span(90, 2, 1, "search", **RETRIEVER), *make_trace(90)[1:]]
    crashed = make_trace(91, output__value="")[::2]
    health_check = make_trace(92, input__value="")
    return write_lines(path, *(wrap_spans(*spans) for spans in [*traces, nothing_retrieved, crashed, health_check]))


def judge_all(run):
    """Write a judgment of each response, so that the run is complete without a server."""
    steps = (StepJudgment(True, True),)
    labels = {"aligned": True, "closed": True, "evidence_sufficient": True}
    responses = jsonl.read_records(run / "responses.jsonl", Response)
    jsonl.write_records(
        run / "judgments.jsonl",
        [Judgment(response.id, "judge", steps[: len(response.trace.steps)], **labels) for response in responses],
    )
    return run


LOSSES = [
    ("traces.json line 9, trace 0000000000000000000000000000005a", "no documents with text"),
    ("traces.json line 10, trace 0000000000000000000000000000005b", "no final answer"),
]


@pytest.fixture
def run(tmp_path):
    find_judge_inputs(write_traces(tmp_path / "traces.json"), tmp_path / "run")
    return judge_all(tmp_path / "run")


def test_each_is_named_with_its_trace_and_the_reason(run):
    lines = [json.loads(line) for line in (run / "responses.jsonl.rejected.jsonl").read_text().splitlines()]
    assert [(line["where"].split(", ")[0], line["reason"]) for line in lines] == [
        ("line 9", "no documents with text"),
        ("line 10", "no final answer"),
        ("line 11", "no question"),
    ]
    assert "responses.jsonl.rejected.jsonl" in read_manifest(run / "responses.jsonl.manifest.json").outputs
    # A request without a question is no response, so nothing of it is lost.
    assert read_conversion_losses(run) == LOSSES
    case_set = read_judged_cases(run)
    assert list(case_set.left_out) == LOSSES
    assert [notice.split(":")[0] for notice in case_set.notices if "not used" in notice] == [
        "responses.jsonl (judge responses)"
    ]


def test_the_gate_counts_them_against_every_limit(run):
    result = gate(run, max_lgg=0.5, max_unjudged=0.1)
    by_rate, by_share = result.checks
    assert "whatever the 2 responses without a label are" in by_rate.message
    assert str(by_share).startswith("failed: without any judgment at most 10.0 %: 2 of 10 responses, such as traces")
    passed = gate(run, max_unjudged=0.2)
    assert passed.passed
    assert "Of 8 judged responses (2 more were not judged)" in passed.comment()
    output = CliRunner().invoke(app, ["gate", str(run), "--max-unjudged", "0.2"]).output
    assert "passed, 8 of 10 responses judged" in output


def test_the_report_lists_them(run, tmp_path):
    result = CliRunner().invoke(app, ["diagnose", str(run), "--out", str(tmp_path / "report")])
    assert "1 response left out: no documents with text." in result.output
    # All eight that could be judged are reliable: with the two, at least 8 of 10.
    bounds = (
        "Among all 10 responses, whatever those left out are, TRR as judged is 80.0 to 100.0 % and LGG as judged is"
    )
    assert bounds in " ".join(result.output.split())
    for name in ("report.md", "tables.tex", "report.html"):
        text = (tmp_path / "report" / name).read_text().replace("\\,\\%", " %").replace("\u00a0", " ")
        assert "TRR as judged is 80.0 to 100.0 %" in text, name
    suites = ElementTree.parse(tmp_path / "report" / "junit.xml").getroot()
    assert (suites.get("tests"), suites.get("skipped")) == ("10", "2")
    assert [case.get("name") for case in suites.iterfind("testsuite[@name='without a judgment']/testcase")] == [
        where for where, _ in LOSSES
    ]
    for name in ("report.html", "report.md", "diagnosis.json"):
        text = (tmp_path / "report" / name).read_text()
        assert "no documents with text" in text, name
    assert "trace 0000000000000000000000000000005a" in (tmp_path / "report" / "report.html").read_text()


@pytest.mark.slow
def test_they_stay_with_responses_that_are_converted_first(tmp_path):
    """The guide converts traces, adds reference answers and judges: the count of lost traces was gone."""
    traces, out = write_traces(tmp_path / "traces.json"), tmp_path / "converted"
    arguments = ["data", "convert", str(traces), "--out", f"{out}/questions.jsonl"]
    result = CliRunner().invoke(app, [*arguments, "--responses", f"{out}/answers.jsonl"])
    assert f"rejected records, with reasons: {out}/answers.jsonl.rejected.jsonl" in " ".join(result.output.split())
    with ModelServerThread(build_world_handlers()) as server:
        judge = ["judge", f"{out}/answers.jsonl", "--instances", f"{out}/questions.jsonl", "--judge", server.base_url]
        result = CliRunner().invoke(app, [*judge, "--no-price", "--out", str(tmp_path / "run")])
    assert (tmp_path / "run" / "judgments.jsonl").is_file(), (result.output, result.exception)
    assert read_conversion_losses(tmp_path / "run") == LOSSES


@pytest.mark.slow
def test_a_conversion_of_another_file_says_nothing_about_these_responses(tmp_path):
    traces, out = write_traces(tmp_path / "traces.json"), tmp_path / "converted"
    arguments = ["data", "convert", str(traces), "--out", f"{out}/questions.jsonl"]
    CliRunner().invoke(app, [*arguments, "--responses", f"{out}/answers.jsonl"])
    lines = (out / "answers.jsonl").read_text().splitlines(keepends=True)
    (out / "answers.jsonl").write_text("".join(lines[:-1]))
    with ModelServerThread(build_world_handlers()) as server:
        judge = ["judge", f"{out}/answers.jsonl", "--instances", f"{out}/questions.jsonl", "--judge", server.base_url]
        CliRunner().invoke(app, [*judge, "--no-price", "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run" / "responses.jsonl.manifest.json").exists()
    assert read_conversion_losses(tmp_path / "run") == []


def test_a_run_of_an_earlier_version_has_their_number(run):
    path = run / "responses.jsonl.manifest.json"
    manifest = read_manifest(path)
    outputs = {name: digest for name, digest in manifest.outputs.items() if name == "responses.jsonl"}
    manifest.with_outputs(outputs).write(path)
    (run / "responses.jsonl.rejected.jsonl").unlink()
    assert read_conversion_losses(run) == [
        ("traces.json", "no documents with text"),
        ("traces.json", "no final answer"),
    ]


def test_a_list_of_another_program_is_not_replaced(tmp_path):
    traces, run = write_traces(tmp_path / "traces.json"), tmp_path / "run"
    run.mkdir()
    (run / "responses.jsonl.rejected.jsonl").write_text("mine")
    with pytest.raises(UserError, match=r"rejected\.jsonl: exists and is not known to belong to responses\.jsonl"):
        find_judge_inputs(traces, run)
