"""The demonstration: every failure is in it, its truth is true, and its judge errs as often as is said."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter

import pytest

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import ReplySchema, Request
from eclose.demo import RECORD_TYPES, find_shipped_file
from eclose.judging.judge_response import judge_response
from eclose.prompts import disclosure
from eclose.prompts.judge_questions import build_judge_prompt
from eclose.values.judgment import LocalFailure
from eclose.values.verdict import FailureClass
from eclose_world.demo import (
    CUT_OFF_RATE,
    RETRIEVAL_FAILURE_RATE,
    SYSTEM_FAILURE_RATES,
    WorldJudge,
    make_demo_cases,
    write_demo_files,
)
from eclose_world.oracle import judge as oracle
from eclose_world.oracle.evidence import find_warranted_answers


@pytest.fixture(scope="module")
def rows():
    return list(make_demo_cases(240))


@pytest.fixture(scope="module")
def every(rows):
    return [case for row in rows for case in row]


def judged(one, model):
    return asyncio.run(judge_response(one.instance, one.response, model))


@pytest.mark.slow
def test_the_shipped_files_are_what_the_world_makes(tmp_path):
    write_demo_files(tmp_path)
    stale = [
        name
        for name in RECORD_TYPES
        if gzip.decompress(find_shipped_file(name).read_bytes()) != (tmp_path / name).read_bytes()
    ]
    assert not stale, f"{stale} differ from what the world makes now; renew them by: python -m eclose_world.demo"


@pytest.mark.slow
def test_every_system_answers_every_question_once(rows, every):
    assert all([case.response.source.model for case in row] == list(SYSTEM_FAILURE_RATES) for row in rows)
    assert len({case.response.id for case in every}) == 2 * 240
    assert len({row[0].instance.id for row in rows}) == 240
    assert Counter(row[0].instance.benchmark for row in rows) == {
        "world-2wiki": 80, "world-musique": 80, "world-hotpot": 80
    }  # fmt: skip


@pytest.mark.slow
def test_the_truth_is_what_the_oracle_reads(every):
    assert [
        case.response.id
        for case in every
        if oracle.judge_by_oracle(case.instance, case.response).verdict != case.truth.verdict
    ] == []


@pytest.mark.slow
def test_every_kind_of_failure_is_in_it(every):
    assert {case.truth.verdict.failure_class for case in every} >= {
        FailureClass.PATH_DEVIATION, FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING
    }  # fmt: skip
    # Wrong steps that do no harm, and such as the answer falls with.
    failures = {
        (step.failure, case.truth.verdict.correct)
        for case in every
        for step in oracle.judge_by_oracle(case.instance, case.response).steps
        if case.truth.verdict.closed and case.truth.verdict.aligned
    }
    assert {code for code, right in failures if code and right} == set(LocalFailure)
    assert {code for code, right in failures if code and not right} >= set(LocalFailure) - {LocalFailure.OTHER}
    both = [case for case in every if case.truth.verdict.locally_sound is False and case.truth.verdict.failure_class]
    assert both


@pytest.mark.slow
def test_the_candidate_looks_better_and_is_less_reliable(every):
    def rate(system, label):
        verdicts = [case.truth.verdict for case in every if case.response.source.model == system]
        return sum(getattr(verdict, label) is True for verdict in verdicts) / len(verdicts)

    assert rate("candidate", "correct") > rate("baseline", "correct")
    assert rate("candidate", "locally_sound") > rate("baseline", "locally_sound")
    assert rate("candidate", "reliable") < rate("baseline", "reliable")


@pytest.mark.slow
def test_retrieval_fails_now_and_then_and_the_passages_keep_their_places(rows):
    lacking = [
        row[0].instance
        for row in rows
        if len(find_warranted_answers(row[0].instance.question, row[0].instance.evidence)) != 1
    ]
    assert 0.3 * RETRIEVAL_FAILURE_RATE < len(lacking) / len(rows) < 2 * RETRIEVAL_FAILURE_RATE
    for instance in lacking:
        assert len(instance.passage_ids) == len(instance.evidence)
        assert set(instance.support_ids) < instance.passage_ids


@pytest.mark.slow
def test_a_response_that_breaks_off_has_no_answer_and_no_label_for_it(every):
    cut = [case for case in every if case.response.cut_off]
    assert 0 < len(cut) / len(every) < 4 * CUT_OFF_RATE
    assert all(case.response.answer is None and case.truth.verdict.correct is None for case in cut)


@pytest.mark.slow
def test_a_judge_that_does_not_err_says_what_is_true(every):
    exact = WorldJudge(error_rate=0.0)
    assert [case.response.id for case in every[::7] if judged(case, exact).verdict != case.truth.verdict] == []


@pytest.mark.slow
def test_a_judge_that_errs_does_so_as_often_as_is_said(every):
    model = WorldJudge(error_rate=0.2)
    some = every[::3]
    wrong = sum(judged(case, model).verdict.aligned is not case.truth.verdict.aligned for case in some)
    # 160 times one in five: three standard deviations are 9.5 points.
    assert abs(wrong / len(some) - 0.2) < 0.1


def test_what_the_judge_cannot_read_is_no_judgement(every):
    odd = disclosure.disclose_for_alignment(every[0].instance, every[0].response)
    question = build_judge_prompt(odd)
    schema = ReplySchema(question.name, question.schema)
    material = question.messages[-1]["content"].replace(every[0].instance.question, "Why, oh why?")
    request = Request((question.messages[0], {"role": "user", "content": material}), schema=schema)
    with pytest.raises(CallFailure) as failed:
        asyncio.run(WorldJudge().complete(request))
    assert failed.value.kind is CallFailureKind.INVALID


def test_the_judge_says_in_words_what_is_wrong(every):
    exact = WorldJudge(error_rate=0.0)

    def first(failure):
        return next(case for case in every if case.truth.verdict.failure_class is failure and case.truth.verdict.in_gap)

    assert judged(first(FailureClass.PATH_DEVIATION), exact).pursued
    decoupled = judged(first(FailureClass.ANSWER_DECOUPLING), exact)
    assert decoupled.established not in (None, first(FailureClass.ANSWER_DECOUPLING).response.answer)
    assert decoupled.pursued is None
