"""Traces of ``studies/campaigns/real_gaps``: consistent labels, joinable questions, two halves, no shortcuts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from eclose.errors import RecordError
from eclose.values.answers import match_any_answer
from eclose.values.instance import Instance, Passage
from eclose.values.verdict import FailureClass, TraceGroup
from studies.campaigns.real_gaps.checks import find_unsupported_terms, measure_shortcuts
from studies.campaigns.real_gaps.questions import read_questions
from studies.campaigns.real_gaps.records import FOLDER, Half, TraceKind, label_traces, read_real_gaps, read_traces
from tests.tables import each_row

TRACES = read_traces()
FAILING = (TraceKind.PATH, TraceKind.INCOMPLETE, TraceKind.DECOUPLING)
FAILURES = {
    TraceKind.PATH: FailureClass.PATH_DEVIATION,
    TraceKind.INCOMPLETE: FailureClass.INCOMPLETE_REASONING,
    TraceKind.DECOUPLING: FailureClass.ANSWER_DECOUPLING,
}


def test_there_are_enough_traces_of_each_kind_in_both_halves():
    counts = Counter(trace.kind for trace in TRACES)
    assert counts == {
        TraceKind.RELIABLE: 164,
        TraceKind.PATH: 63,
        TraceKind.INCOMPLETE: 55,
        TraceKind.DECOUPLING: 49,
    }
    halves = Counter((trace.kind, trace.half) for trace in TRACES)
    assert min(halves[TraceKind.RELIABLE, half] for half in Half) >= 75
    assert min(halves[kind, half] for kind in FAILING for half in Half) >= 20


def test_every_question_is_in_one_half_only_and_has_a_trace_of_a_kind_once():
    assert len({trace.id for trace in TRACES}) == len(TRACES)
    assert len({(trace.question_id, trace.kind) for trace in TRACES}) == len(TRACES)
    halves = {half: {trace.question_id for trace in TRACES if trace.half is half} for half in Half}
    assert not halves[Half.CHOOSE] & halves[Half.TEST]


def test_the_halves_do_not_move():
    # Written down when the set was made: a question that changes sides was looked at before the final test.
    sides = {trace.question_id: trace.half.value for trace in TRACES}
    assert sides["2hop__150763_14904"] == "choose"
    assert Counter(sides.values()) == {"choose": 85, "test": 81}


@each_row(TRACES)
def test_the_labels_of_a_trace_are_those_of_its_kind(trace):
    verdict = trace.verdict
    assert not verdict.inconsistent
    assert trace.reason.endswith(".")
    assert all(step.endswith((".", "?", '"')) and step == step.strip() for step in trace.steps)
    if trace.kind is TraceKind.RELIABLE:
        assert verdict.trace_group is TraceGroup.RELIABLE
        assert verdict.correct
    else:
        assert verdict.trace_group is TraceGroup.GAP
        assert verdict.failure_class is FAILURES[trace.kind]
        # A decoupled trace leads to the reference, so another answer is wrong; the two other kinds lead nowhere near.
        assert verdict.complete is (trace.kind is TraceKind.DECOUPLING)
        assert not (trace.kind is TraceKind.DECOUPLING and verdict.correct)


@pytest.mark.parametrize("kind", TraceKind)
def test_a_file_holds_its_own_kind_under_numbered_ids(kind):
    rows = [json.loads(line) for line in (FOLDER / f"{kind}.jsonl").read_text("utf-8").splitlines()]
    assert [row["id"] for row in rows] == [f"real-{kind}-{number:03d}" for number in range(1, len(rows) + 1)]
    assert {row["kind"] for row in rows} == {kind.value}


@pytest.mark.parametrize("half", [None, *Half])
def test_steps_conclusions_and_lengths_do_not_tell_gaps_from_reliable_traces(half):
    traces = [trace for trace in TRACES if half in (None, trace.half)]
    pooled = measure_shortcuts(traces, FAILING)
    assert {name: value for name, value in pooled.items() if not 0.45 <= value <= 0.55} == {}
    for kind in FAILING:
        values = measure_shortcuts(traces, [kind])
        assert {name: value for name, value in values.items() if not 0.4 <= value <= 0.6} == {}


def test_a_surface_feature_that_gives_the_kind_away_is_measured():
    longer = [
        replace(trace, steps=(*trace.steps, "So it is.")) if trace.kind is TraceKind.RELIABLE else trace
        for trace in TRACES
    ]
    values = measure_shortcuts(longer, FAILING)
    assert values["steps"] > 0.75
    assert values["conclusion word"] > 0.7


def test_names_and_numbers_that_no_passage_has_are_flagged():
    trace = replace(TRACES[0], steps=("Thus José was born in Arica in 1931.", "Ana lives in Lima."))
    instance = Instance("q", "Who is Ana?", (Passage("p", "Jose", "Born in Arica, 1930."),))
    assert find_unsupported_terms(trace, instance) == ["1931", "Lima"]


def test_a_trace_without_its_question_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("studies.campaigns.real_gaps.records.read_questions", lambda _: {})
    with pytest.raises(RecordError, match="trace real-reliable-001: asks '2hop__150763_14904'"):
        label_traces(None, tmp_path)


@pytest.mark.slow
def test_every_name_and_number_of_a_step_is_in_the_passages(shared_data):
    questions = read_questions(shared_data)
    flagged = {trace.id: find_unsupported_terms(trace, questions[trace.question_id]) for trace in TRACES}
    assert {name: terms for name, terms in flagged.items() if terms} == {}


@pytest.mark.slow
def test_an_answer_is_labelled_right_exactly_where_it_matches_the_reference(shared_data):
    cases = label_traces(None, shared_data)
    assert len(cases) == len(TRACES)
    for case in cases:
        matches = match_any_answer(case.response.answer, case.instance.accepted_answers)
        assert case.verdict.correct is matches, case.response.id


@pytest.mark.slow
@pytest.mark.parametrize("half", Half)
def test_a_half_is_read_with_its_questions_and_verdicts(half, shared_data, monkeypatch):
    instances, responses, verdicts = read_real_gaps(half, shared_data)
    expected = [trace.id for trace in TRACES if trace.half is half]
    assert [response.id for response in responses] == expected
    assert [verdict.response_id for verdict in verdicts] == expected
    assert [response.instance_id for response in responses] == [verdict.instance_id for verdict in verdicts]
    assert {instance.id for instance in instances} == {response.instance_id for response in responses}
    assert len({instance.id for instance in instances}) == len(instances)
    assert all(instance.evidence and instance.reference_answer for instance in instances)
    monkeypatch.setenv("ECLOSE_DATA", str(shared_data))
    assert read_real_gaps(half.value) == (instances, responses, verdicts)
