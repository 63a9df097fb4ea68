"""A log becomes a run's folder, and every sample is accounted for."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: pip install 'eclose[inspect]'")

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset
from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, ProvenanceData, write_eval_log
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Score
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.diagnosis.diagnose import JudgedCase
from eclose.errors import UserError
from eclose.files.outcome_counts import RecordCounts
from eclose.integrations.inspect.read_log import import_inspect_log
from eclose.integrations.inspect.samples import INSTANCE, build_judged_score, record_to_json_dict, response_from_output
from eclose.integrations.inspect.scorer import lgg_scorer
from eclose.integrations.inspect.tasks import build_inspect_sample, response_solver
from eclose.readers.judged_run import read_judged_cases
from eclose.values.judgment import Judgment
from eclose.values.response import ResponseSource
from tests.integrations.inspect.running import WARNINGS, judge_at, planted, planted_answers, run, said, scripted, world

pytestmark = WARNINGS

MODEL = "mockllm/model"


def judgment_of(made, judge="house/judge"):
    verdict = made.verdict
    return Judgment(
        made.response.id,
        judge,
        made.steps,
        aligned=verdict.aligned,
        closed=verdict.closed,
        complete=verdict.complete,
        correct=verdict.correct,
        established="something\nwith “quotes”",
    )


def build_log(*, scored=True):
    """Return a log of six questions, the first of them answered twice; its second response has no score."""
    cases = planted(6)
    samples = []
    for epoch, (instance, broken) in [*((1, case) for case in cases), (2, cases[0])]:
        output = ModelOutput.from_content(MODEL, broken.response.completion)
        response = response_from_output(instance, output, MODEL, epoch)
        case = JudgedCase(instance, response, replace(judgment_of(broken), response_id=response.id))
        sample = EvalSample(
            id=instance.id, epoch=epoch, input=instance.question, target=list(instance.accepted_answers), output=output,
            scores={"lgg": build_judged_score(case)} if scored and epoch == 1 else None,
            metadata={INSTANCE: record_to_json_dict(instance)},
        )  # fmt: skip
        samples.append(sample)
    dataset = EvalDataset(sample_ids=[instance.id for instance, _ in cases])
    config = EvalConfig(epochs=2)
    spec = EvalSpec(created="2026-11-17T10:00:00+00:00", task="t", dataset=dataset, model=MODEL, config=config)
    return EvalLog(eval=spec, status="success", samples=samples)


def test_log_of_another_task_is_imported_with_its_judgments(tmp_path):
    write_eval_log(build_log(), tmp_path / "log.eval")
    files = import_inspect_log(tmp_path / "log.eval", tmp_path / "run")
    assert [written.counts for written in files] == [
        RecordCounts(7, 6, {"duplicate": 1}),
        RecordCounts(7, 7),
        RecordCounts(7, 6, {"not scored": 1}),
    ]
    verdicts = {case.instance.id: case.verdict for case in read_judged_cases(tmp_path / "run").cases}
    assert verdicts == {instance.id: broken.verdict for instance, broken in planted(6)}


def test_a_file_that_is_no_log_is_refused(tmp_path):
    for name in ("a.eval", "a.json"):
        (tmp_path / name).write_text('{"a": 1}')
        with pytest.raises(UserError, match="no log of Inspect"):
            import_inspect_log(tmp_path / name, tmp_path / "run")


@pytest.fixture
def edited(tmp_path):
    """Changes a log and imports it."""

    def change(how, ending="eval"):
        log = build_log()
        how(log)
        path = tmp_path / f"edited.{ending}"
        write_eval_log(log, path)
        return [written.counts for written in import_inspect_log(path, tmp_path / "back", force=True)]

    return change


@pytest.mark.slow
def test_a_json_log_says_the_same(edited):
    assert edited(lambda _: None, "json") == edited(lambda _: None)


def test_a_sample_that_was_invalidated_keeps_its_question_only(edited):
    def invalidate(log):
        log.samples[2].invalidation = ProvenanceData(author="me", reason="wrong")

    instances, responses, judgments = edited(invalidate)
    assert instances.accepted == 6
    assert (responses.rejected, judgments.rejected["invalidated"]) == ({"invalidated": 1}, 1)


def test_a_score_changed_by_hand_is_no_judgment(edited):
    def change(log):
        score = log.samples[2].scores["lgg"]
        score.value = score.value | {"A": 1 - score.value["A"]}

    _, responses, judgments = edited(change)
    assert (responses.accepted, judgments.quarantined) == (7, {"wrong record": 1})


def test_a_score_without_a_judgment_is_not_scored(edited):
    def change(log):
        log.samples[2].scores = {"lgg": Score(value=float("nan"), reason="refusal")}
        log.samples[3].scores = {"match": Score(value="C")}

    assert edited(change)[2].rejected == {"not scored": 3}


def test_a_sample_of_something_else_is_quarantined(edited):
    def change(log):
        log.samples[2].metadata = {"topic": "chess"}
        log.samples[3].metadata["instance"]["question"] = 7

    assert [counts.quarantined for counts in edited(change)] == [{"wrong record": 2}] * 3


def test_another_question_under_a_known_id_is_quarantined(edited):
    def change(log):
        (again,) = (sample for sample in log.samples if sample.epoch == 2)
        again.metadata["instance"]["question"] += " Really?"

    assert [counts.quarantined for counts in edited(change)] == [{"id used twice": 1}] * 3


def test_what_never_ran_is_counted(edited):
    def change(log):
        log.status = "error"
        del log.samples[4:]

    # Six questions with two epochs each were to be answered.
    assert [counts.rejected["not in the log"] for counts in edited(change)] == [8, 8, 8]


@pytest.mark.slow
def test_an_evaluation_becomes_a_run_that_can_be_diagnosed(tmp_path, monkeypatch):
    cases = planted(4)
    answer = planted_answers(cases)

    def speak(text):
        refused = cases[3][0].question in text
        return said("I won't.", "content_filter") if refused else said(answer(text))

    dataset = MemoryDataset([build_inspect_sample(instance) for instance, _ in cases])
    with world(monkeypatch=monkeypatch) as server:
        judge = judge_at(server)
        log = run(
            Task(dataset=dataset, solver=response_solver(), scorer=lgg_scorer(judge)),
            tmp_path,
            judge,
            model=scripted(speak),
        )
    folder = tmp_path / "run"
    result = CliRunner().invoke(app, ["data", "from-inspect", log.location, "--out", str(folder)])
    assert result.exit_code == 0, result.output
    assert "4 received = 4 accepted" in result.output
    assert result.output.count("4 received = 3 accepted + 1 rejected (refusal 1)") == 2
    read = read_judged_cases(folder)
    judged_cases = read.cases
    ((where, reason),) = read.left_out
    assert (where.endswith(f"sample {cases[3][0].id!r} epoch 1"), reason) == (True, "refusal")
    assert (read.checked, read.stale) == (True, ())
    assert read.rejected["responses.jsonl (data from-inspect)"] == {"refusal": 1}
    assert {case.instance.id: case.verdict for case in judged_cases} == {
        instance.id: broken.verdict for instance, broken in cases[:3]
    }
    assert {case.response.source for case in judged_cases} == {ResponseSource("mockllm/model")}
    again = CliRunner().invoke(app, ["data", "from-inspect", log.location, "--out", str(folder)])
    assert again.output.count("nothing to do") == 3
    diagnosis = CliRunner().invoke(app, ["diagnose", str(folder), "--out", str(tmp_path / "report")])
    assert diagnosis.exit_code == 0, diagnosis.output


@pytest.mark.slow
def test_log_is_scored_by_the_command_of_the_guide(tmp_path, monkeypatch):
    log = tmp_path / "log.eval"
    write_eval_log(build_log(scored=False), log)
    words = ["score", log, "--scorer", "eclose/lgg", "-S", "judge=openai-api/world/world", "--overwrite"]
    with world(monkeypatch=monkeypatch):
        process = subprocess.run(
            [sys.executable, "-m", "inspect_ai", *map(str, words), "--action", "overwrite", "--display", "plain"],
            env=dict(os.environ),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert process.returncode == 0, process.stdout + process.stderr
    import_inspect_log(log, tmp_path / "run")
    judged = {case.instance.id: case.verdict for case in read_judged_cases(tmp_path / "run").cases}
    assert judged == {instance.id: broken.verdict for instance, broken in planted(6)}
