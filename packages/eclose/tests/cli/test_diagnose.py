"""What a diagnosis of one run and of several says of its judge."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.files import jsonl
from eclose.report.wording import describe_missing_traces
from eclose.values.judgment import NO_REFERENCE_REASON, NO_TRACE_REASON, Criterion
from eclose.values.response import Trace
from eclose.values.verdict import SettledVerdict
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.report.test_gate_comment import written
from tests.report.test_overview import asked


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Two runs over the same questions by one judge, the first of them validated; and the second judged otherwise."""
    folder = tmp_path_factory.mktemp("runs")
    items = list(islice(make_world_items("short-easy", 3), 20))
    with ModelServerThread(build_world_handlers(judge_noise=0.1)) as server:
        for name, plans in {
            "one": (FailurePlan(), FAILURE_PLANS[0]),
            "two": (FAILURE_PLANS[1], FAILURE_PLANS[2]),
        }.items():
            _judge(folder / name, items, plans, server.base_url)
        _judge(folder / "free", items, (FAILURE_PLANS[3],), server.base_url, "--reference-free")
    command("judge", "validate", folder / "one", "--verdicts", folder / "one" / "people.jsonl")
    return folder


def _judge(run, items, plans, url, *more):
    responses = {
        broken.response.id: (item.instance, broken)
        for item in items
        for plan in plans
        if (broken := break_response(item, plan, f"{plan}")) is not None
    }
    run.mkdir()
    jsonl.write_records(run / "instances.jsonl", {instance.id: instance for instance, _ in responses.values()}.values())
    jsonl.write_records(run / "responses.jsonl", [broken.response for _, broken in responses.values()])
    people = [
        SettledVerdict(name, instance.id, broken.verdict, "world") for name, (instance, broken) in responses.items()
    ]
    jsonl.write_records(run / "people.jsonl", people)
    command("judge", run, "--judge", url, "--no-price", *more)


def told(folder):
    return json.loads((folder / "diagnosis.json").read_text())


@pytest.mark.slow
def test_a_run_finds_its_own_validation(judged, tmp_path):
    command("report", judged / "one", "-f", "json", "-o", tmp_path)
    diagnosis = told(tmp_path)
    count = diagnosis["responses"]
    assert diagnosis["validation"] == f"Validated against people on {count} of {count} responses."
    assert set(diagnosis["corrected"]) == {"Acc", "LSR", "A", "C", "K", "GSR", "TRR", "LGG"}


@pytest.mark.slow
def test_several_runs_are_not_validated_by_one_of_them_unless_somebody_says_so(judged, tmp_path):
    both = judged / "one", judged / "two"
    command("report", *both, "-f", "json", "-o", tmp_path)
    assert told(tmp_path)["validation"] is None
    options = "--validation", judged / "one" / "validation.json"
    command("report", *both, *options, "-f", "json", "-o", tmp_path)
    assert "the correction assumes that it errs as often here" in told(tmp_path)["validation"]


@pytest.mark.slow
@pytest.mark.parametrize("names", [("one", "free"), ("free", "one")])
def test_a_validation_holds_for_runs_judged_alike_only(judged, tmp_path, names):
    options = "--validation", judged / "one" / "validation.json"
    arguments = ["report", *(judged / name for name in names), *options, "-o", tmp_path]
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert "with other settings" in str(result.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_fewer_than_thirty_labels_give_no_green_box_and_no_corrected_rate(judged, tmp_path):
    run = judged / "one"
    rows = list(jsonl.read_records(run / "people.jsonl", SettledVerdict))[:6]
    jsonl.write_records(tmp_path / "six.jsonl", rows)
    few = tmp_path / "few.json"
    command("judge", "validate", run, "--verdicts", tmp_path / "six.jsonl", "--out", few)
    command("report", run, "--validation", few, "-f", "json", "-f", "html", "-o", tmp_path / "out")
    diagnosis = told(tmp_path / "out")
    assert diagnosis["corrected"] is None
    count = diagnosis["responses"]
    assert diagnosis["validation"].startswith(f"People labelled 6 of {count} responses: too few to validate the judge")
    page = (tmp_path / "out" / "report.html").read_text()
    assert 'class="trust fine"' not in page
    assert "This judge has not been validated" in page
    assert "corrected by people" not in page


def test_rates_without_references_are_not_asked_and_undecided_responses_are_noticed(tmp_path):
    missing = {Criterion.COMPLETENESS: NO_REFERENCE_REASON, Criterion.CORRECTNESS: NO_REFERENCE_REASON}
    cases = [asked(number=number) for number in range(30)]
    cases = [
        replace(case, judgment=replace(case.judgment, complete=None, correct=None, unjudged=missing)) for case in cases
    ]
    hollow = replace(cases[0].judgment, steps=(), unjudged={**missing, Criterion.LOCAL_SOUNDNESS: NO_TRACE_REASON})
    traceless = replace(cases[0].response, trace=Trace.of())
    cases[0] = replace(cases[0], response=traceless, judgment=hollow)
    folder = written(tmp_path / "run", cases)
    output = command("diagnose", folder)
    rows = [line.split()[0] for line in output.splitlines() if "not asked" in line]
    assert rows == ["Acc", "K", "LggRisk"]
    results = eclose.diagnose(folder)
    assert [notice for notice in results.notices if notice.startswith("1 of 30 responses")] == [
        *describe_missing_traces(1, 30),
        "1 of 30 responses lack labels and are neither reliable nor unreliable: their `reliable` is None (<NA> in "
        "to_pandas), which a filter for False omits.",
    ]
