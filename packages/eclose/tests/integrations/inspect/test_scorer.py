"""The scorer in a real evaluation: exact where its judge is, and without a label where it has none to give."""

from __future__ import annotations

import subprocess
import sys
from math import isnan
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: pip install 'eclose[inspect]'")

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset
from inspect_ai.log import read_eval_log
from inspect_ai.model import GenerateConfig

from eclose.integrations.inspect.samples import (
    SCORE_KEYS,
    build_score_value,
    get_verdict_labels,
    parse_score_labels,
    read_metadata_record,
)
from eclose.integrations.inspect.scorer import lgg_scorer
from eclose.integrations.inspect.tasks import build_inspect_sample, response_solver
from eclose.values.judgment import Judgment
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.integrations.inspect.running import (
    WARNINGS,
    WORLD,
    judge_at,
    planted,
    planted_answers,
    run,
    said,
    scripted,
    world,
)

pytestmark = [*WARNINGS, pytest.mark.slow]


def task_of(cases, judge=None, **settings):
    dataset = MemoryDataset([build_inspect_sample(instance) for instance, _ in cases])
    return Task(dataset=dataset, solver=response_solver(), scorer=lgg_scorer(judge, **settings))


def under_test(cases):
    """A scripted model that gives the planted responses."""
    answer = planted_answers(cases)
    return scripted(lambda text: said(answer(text)))


def test_an_exact_judge_gives_the_planted_labels(tmp_path, monkeypatch):
    cases = planted(10)
    with world(monkeypatch=monkeypatch) as server:
        judge = judge_at(server)
        log = run(task_of(cases, judge), tmp_path, judge, model=under_test(cases))
    assert log.status == "success"
    by_id = {instance.id: broken for instance, broken in cases}
    assert {sample.id for sample in log.samples} == by_id.keys()
    for sample in log.samples:
        score, broken = sample.scores["lgg"], by_id[sample.id]
        assert get_verdict_labels(parse_score_labels(score.value)) == get_verdict_labels(broken.verdict)
        judgment = read_metadata_record(Judgment, score.metadata, "judgment")
        assert judgment.verdict == broken.verdict
        assert [step.failure for step in judgment.steps] == [step.failure for step in broken.steps]
        assert (judgment.judge, score.answer) == (f"inspect/{WORLD}", broken.response.answer)
    assert len({broken.verdict for broken in by_id.values()}) >= 5
    results = {score.name: score for score in log.results.scores}
    for key in SCORE_KEYS:
        truth = [get_verdict_labels(broken.verdict)[key] for broken in by_id.values()]
        assert results[key].metrics["eclose/judged_rate"].value == sum(truth) / 10
        assert (results[key].scored_samples, results[key].unscored_samples) == (10, 0)
    assert log.eval.scorers[0].metadata["guidelines"].keys() >= {"judge_soundness", "judge_joint"}


def test_a_judge_that_spoils_its_replies_leaves_labels_open_and_makes_none_up(tmp_path, monkeypatch):
    cases = planted(8)
    spoiled = ServerBehaviour(faults={ServerFault.WRONG_SHAPE: 0.3, ServerFault.REFUSAL: 0.2}, max_faults_per_key=99)
    with world(behaviour=spoiled, monkeypatch=monkeypatch) as server:
        judge = judge_at(server)
        log = run(task_of(cases, judge, attempts=1), tmp_path, judge, model=under_test(cases))
    by_id = {instance.id: broken for instance, broken in cases}
    reasons, missing = set(), dict.fromkeys(SCORE_KEYS, 0)
    for sample in log.samples:
        score, truth = sample.scores["lgg"], build_score_value(by_id[sample.id].verdict)
        for key in ("L", "A", "C", "K", "Acc"):
            assert isnan(score.value[key]) or score.value[key] == truth[key]
        for key in SCORE_KEYS:
            missing[key] += isnan(score.value[key])
        unjudged = read_metadata_record(Judgment, score.metadata, "judgment").unjudged
        reasons |= {reason.partition(": ")[0] for reason in unjudged.values()}
        assert (score.reason == "grader_failed") == bool(unjudged)
    assert reasons == {"invalid", "refusal"}
    for score in log.results.scores:
        if score.name in SCORE_KEYS:
            assert (score.unscored_samples, score.scored_samples) == (missing[score.name], 8 - missing[score.name])
            assert score.metrics["eclose/judged_n"].value == score.scored_samples


def test_the_judge_may_be_bound_to_a_role_and_every_epoch_is_a_response(tmp_path, monkeypatch):
    cases = planted(2)
    with world(monkeypatch=monkeypatch) as server:
        roles = {"grader": judge_at(server)}
        log = run(
            task_of(cases, joint=True), tmp_path, *roles.values(), model=under_test(cases), epochs=2, model_roles=roles
        )
    judged = [read_metadata_record(Judgment, sample.scores["lgg"].metadata, "judgment") for sample in log.samples]
    assert len({judgment.response_id for judgment in judged}) == 4
    truth = {instance.id: broken.verdict for instance, broken in cases}
    assert all(judgment.verdict == truth[sample.id] for judgment, sample in zip(judged, log.samples, strict=True))
    (overall,) = (score for score in log.results.scores if score.name == "lgg")
    assert overall.metrics["responses"].value == 4


def test_nobody_judges_himself_by_default(tmp_path):
    cases = planted(1)
    log = run(task_of(cases), tmp_path, model=under_test(cases))
    assert log.status == "error"
    assert "no judge is named" in log.error.message


def test_a_judge_that_is_down_is_an_error_and_no_label(tmp_path, monkeypatch):
    cases = planted(1)
    down = ServerBehaviour(faults={ServerFault.UNAVAILABLE: 1.0}, max_faults_per_key=99)
    with world(behaviour=down, monkeypatch=monkeypatch) as server:
        judge = judge_at(server, config=GenerateConfig(max_retries=0))
        log = run(task_of(cases, judge), tmp_path, judge, model=under_test(cases))
    assert log.status == "error"
    assert "transient" in log.error.message
    assert not log.samples[0].scores


def test_a_refusal_is_no_response_and_nobody_is_asked_about_it(tmp_path, monkeypatch):
    cases = planted(1)
    with world(monkeypatch=monkeypatch) as server:
        judge = judge_at(server)
        refusing = scripted(lambda _: said("I won't.", "content_filter"))
        log = run(task_of(cases, judge), tmp_path, judge, model=refusing)
        assert server.bill()["totals"]["paid"] == 0
    score = log.samples[0].scores["lgg"]
    assert score.reason == "refusal"
    assert all(isnan(value) for value in score.value.values())
    assert {score.unscored_samples for score in log.results.scores if score.name in SCORE_KEYS} == {1}


def test_inspect_finds_the_scorer_by_its_name(tmp_path, monkeypatch):
    """``inspect score --scorer eclose/lgg`` on a log of another task, in a process of its own."""
    cases = planted(2)
    samples = [build_inspect_sample(instance) for instance, _ in cases]
    answers = {instance.question: broken.response.completion for instance, broken in cases}
    log = run(Task(dataset=samples), tmp_path, model=scripted(lambda text: said(answers[text])))
    with world(monkeypatch=monkeypatch):
        command = [str(Path(sys.executable).with_name("inspect")), "score", log.location]
        command += ["--scorer", "eclose/lgg", "-S", f"judge={WORLD}", "--action", "append", "--overwrite"]
        process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert process.returncode == 0, process.stderr + process.stdout
    truth = {instance.id: broken.verdict for instance, broken in cases}
    for sample in read_eval_log(log.location).samples:
        assert parse_score_labels(sample.scores["lgg"].value) == truth[sample.id]
