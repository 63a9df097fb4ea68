"""Logs both ways: a log becomes a run's folder, a folder becomes logs, and every record is accounted for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: pip install 'eclose[inspect]'")

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset
from inspect_ai.log import ProvenanceData, list_eval_logs, read_eval_log, write_eval_log
from inspect_ai.scorer import Score
from tests.integrations.inspect.running import WARNINGS, judge_at, planted, planted_answers, run, said, scripted, world
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.core.instance import Instance
from eclose.core.judgment import Criterion, Judgment
from eclose.core.response import Response, ResponseSource
from eclose.errors import UserError
from eclose.integrations.inspect.convert_samples import parse_score_labels, read_recorded_response
from eclose.integrations.inspect.export_log import export_run_to_inspect
from eclose.integrations.inspect.import_log import import_inspect_log
from eclose.integrations.inspect.scorer import lgg_scorer
from eclose.integrations.inspect.tasks import build_inspect_sample, response_solver
from eclose.judged_cases import read_judged_cases
from eclose.store.records import jsonl
from eclose.store.records.outcome_counts import RecordCounts
from eclose.store.runs.folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.store.runs.manifest import Manifest, hash_files

pytestmark = WARNINGS

KINDS = {INSTANCES_FILE: Instance, RESPONSES_FILE: Response, JUDGMENTS_FILE: Judgment}


def content(folder):
    """All records of a run, whatever their order."""
    return {
        name: {jsonl.encode_json_line(value) for value in jsonl.read_records(folder / name, kind)}
        for name, kind in KINDS.items()
    }


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with two models, a question answered twice by one of them, an open label and an unjudged response."""
    run = tmp_path_factory.mktemp("run")
    cases = planted(6)
    responses, judgments = [], []
    for place, (_, made) in enumerate(cases):
        for method in (None, "SFT") if place < 4 else (None,):
            response = replace(
                made.response,
                id=f"{made.response.id}-{method}",
                source=ResponseSource("house/model", method, method and 3),
            )
            responses.append(response)
            judgments.append(replace(judgment_of(made), response_id=response.id))
    again = replace(responses[0], id="again", completion=None, cut_off=True)
    judgments[1] = replace(judgments[1], closed=None, unjudged={Criterion.CLOSURE: "refusal"})
    jsonl.write_records(run / INSTANCES_FILE, [instance for instance, _ in cases])
    jsonl.write_records(run / RESPONSES_FILE, [*responses, again])
    jsonl.write_records(run / JUDGMENTS_FILE, judgments)
    return run


def test_a_run_goes_to_inspect_and_comes_back_whole(folder, tmp_path):
    done = export_run_to_inspect(folder, tmp_path / "logs")
    assert [path.name for path in done.logs] == ["house_model.eval", "house_model_SFT_seed3.eval"]
    assert (done.instances, done.responses, done.judgments) == (
        RecordCounts(6, 6),
        RecordCounts(11, 11),
        RecordCounts(10, 10),
    )
    back = [import_inspect_log(path, tmp_path / path.stem) for path in done.logs]
    assert [written.counts.received for written in back[0]] == [7, 7, 7]
    assert back[0][0].counts == RecordCounts(7, 6, {"duplicate": 1})
    assert back[0][2].counts == RecordCounts(7, 6, {"not scored": 1})
    parts = [content(tmp_path / path.stem) for path in done.logs]
    for name, whole in content(folder).items():
        assert parts[0][name] | parts[1][name] == whole


def test_inspect_opens_what_we_write(folder, tmp_path):
    done = export_run_to_inspect(folder, tmp_path)
    assert len(list_eval_logs(str(tmp_path))) == 2
    log, other = map(read_eval_log, done.logs)
    assert log.eval.task_id != other.eval.task_id
    assert (log.status, log.eval.model, log.results.total_samples) == ("success", "eclose/house/model", 7)
    truth = [case.verdict for case in read_judged_cases(folder).cases if case.response.source.method is None]
    scored = [parse_score_labels(sample.scores["lgg"].value) for sample in log.samples if sample.scores]
    assert sorted(scored, key=repr) == sorted(truth, key=repr)
    rates = {score.name: score for score in log.results.scores}
    assert rates["TRR"].metrics["eclose/judged_rate"].value == sum(v.reliable for v in truth) / len(truth)
    assert (rates["TRR"].scored_samples, rates["lgg"].metrics["responses"].value) == (6, 6)
    assert {sample.epoch for sample in log.samples} == {1, 2}
    assert log.samples[0].messages[-1].text == log.samples[0].output.completion


def test_what_belongs_to_nothing_is_counted(folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name, kind in KINDS.items():
        found = list(jsonl.read_records(folder / name, kind))
        jsonl.write_records(run / name, found[1:] if name != RESPONSES_FILE else [*found, found[2]])
    done = export_run_to_inspect(run, tmp_path / "logs")
    # The first question is gone, and with it its three responses and the judgment that is left of them.
    assert done.instances == RecordCounts(5, 5)
    assert done.responses == RecordCounts(12, 8, {"no such question": 3, "duplicate": 1})
    assert done.judgments == RecordCounts(9, 8, {"no response": 1})


def test_judgments_of_other_responses_are_refused_or_marked(folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    inputs = hash_files([run / INSTANCES_FILE, run / RESPONSES_FILE])
    manifest = Manifest("judge", {}, inputs, hash_files([run / JUDGMENTS_FILE]), RecordCounts(10, 10))
    manifest.write(run / "judgments.jsonl.manifest.json")
    assert export_run_to_inspect(run, tmp_path / "fresh").stale == ()
    jsonl.write_records(
        run / RESPONSES_FILE,
        [replace(one, answer="WRONG") for one in jsonl.read_records(run / RESPONSES_FILE, Response)],
    )
    with pytest.raises(UserError, match=r"responses\.jsonl is not the file that judgments\.jsonl was made from"):
        export_run_to_inspect(run, tmp_path / "logs")
    done = export_run_to_inspect(run, tmp_path / "logs", allow_stale=True)
    assert list(done.stale) == read_eval_log(done.logs[0]).eval.metadata["stale"]
    assert "responses.jsonl is not the file" in done.stale[0]


def test_two_questions_with_one_id_are_not_exported(folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    questions = list(jsonl.read_records(run / INSTANCES_FILE, Instance))
    jsonl.write_records(run / INSTANCES_FILE, [*questions, questions[0]])
    assert export_run_to_inspect(run, tmp_path / "logs").instances == RecordCounts(7, 6, {"duplicate": 1})
    jsonl.write_records(run / INSTANCES_FILE, [*questions, replace(questions[0], question="Another?")])
    with pytest.raises(UserError, match="is another question's in line 1"):
        export_run_to_inspect(run, tmp_path / "more")


def test_nothing_is_overwritten_unasked(folder, tmp_path):
    export_run_to_inspect(folder, tmp_path)
    with pytest.raises(UserError, match="exists"):
        export_run_to_inspect(folder, tmp_path)
    export_run_to_inspect(folder, tmp_path, force=True)


def test_a_file_that_is_no_log_is_refused(tmp_path):
    for name in ("a.eval", "a.json"):
        (tmp_path / name).write_text('{"a": 1}')
        with pytest.raises(UserError, match="no log of Inspect"):
            import_inspect_log(tmp_path / name, tmp_path / "run")


@pytest.fixture
def edited(folder, tmp_path):
    """Changes a log and imports it."""

    def change(how, ending="eval"):
        log = read_eval_log(export_run_to_inspect(folder, tmp_path / "logs", force=True).logs[0])
        how(log)
        path = tmp_path / f"edited.{ending}"
        write_eval_log(log, path)
        return [written.counts for written in import_inspect_log(path, tmp_path / "back", force=True)]

    return change


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
    found = read.cases
    ((where, reason),) = read.left_out
    assert (where.endswith(f"sample {cases[3][0].id!r} epoch 1"), reason) == (True, "refusal")
    assert (read.checked, read.stale) == (True, ())
    assert read.rejected["responses.jsonl (data from-inspect)"] == {"refusal": 1}
    assert {case.instance.id: case.verdict for case in found} == {one.id: made.verdict for one, made in cases[:3]}
    assert {case.response.source for case in found} == {ResponseSource("mockllm/model")}
    again = CliRunner().invoke(app, ["data", "from-inspect", log.location, "--out", str(folder)])
    assert again.output.count("nothing to do") == 3
    back = CliRunner().invoke(app, ["data", "to-inspect", str(folder), "--out", str(tmp_path / "logs")])
    assert back.exit_code == 0, back.output
    assert "responses: 3 received = 3 accepted" in back.output
    assert (tmp_path / "logs" / "mockllm_model.eval").is_file()
    diagnosis = CliRunner().invoke(
        app, ["diagnose", str(folder), "--out", str(tmp_path / "report"), "--resamples", "100"]
    )
    assert diagnosis.exit_code == 0, diagnosis.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", [ResponseSource("world saboteur"), ResponseSource("openai/gpt-x", "SFT", 3), None], ids=str
)
def test_a_log_of_ours_is_scored_again_by_the_command_of_the_guide(tmp_path, monkeypatch, source):
    run, cases = tmp_path / "run", planted(3)
    run.mkdir()
    jsonl.write_records(run / INSTANCES_FILE, [instance for instance, _ in cases])
    jsonl.write_records(run / RESPONSES_FILE, [replace(made.response, source=source) for _, made in cases])
    (log,) = export_run_to_inspect(run, tmp_path / "logs").logs
    words = ["score", log, "--scorer", "eclose/lgg", "-S", "judge=openai-api/world/world", "--overwrite"]
    with world(monkeypatch=monkeypatch):
        done = subprocess.run(
            [sys.executable, "-m", "inspect_ai", *map(str, words), "--action", "overwrite", "--display", "plain"],
            env=dict(os.environ),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    import_inspect_log(log, tmp_path / "back")
    # The responses are the same, with the name they had, and each has its judgment.
    back = content(tmp_path / "back")
    assert back[RESPONSES_FILE] == {
        jsonl.encode_json_line(response) for response in jsonl.read_records(run / RESPONSES_FILE, Response)
    }
    judged = {case.response.id: case.verdict for case in read_judged_cases(tmp_path / "back").cases}
    assert judged == {made.response.id: made.verdict for _, made in cases}


def test_a_response_that_was_given_anew_is_not_taken_for_the_recorded_one(folder, tmp_path):
    log = read_eval_log(export_run_to_inspect(folder, tmp_path).logs[0])
    sample = log.samples[0]
    assert read_recorded_response(sample.metadata, sample.output) is not None
    assert read_recorded_response(sample.metadata, said("Step 1: something else\nFinal answer: no")) is None
    assert read_recorded_response({}, sample.output) is None
