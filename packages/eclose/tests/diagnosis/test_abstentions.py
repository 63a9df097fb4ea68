"""Responses that say that they found no answer: an outcome of its own, right or wrong by the evidence."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

import eclose
from eclose.diagnosis.diagnose import diagnose_cases
from eclose.diagnosis.response_failure import describe_response_failure
from eclose.files.jsonl import encode_json_line, write_records
from eclose.judging.judge_response import judge_response
from eclose.judging.settings import JudgeSettings
from eclose.judging.validation_file import build_validation
from eclose.metrics.judge_against_people import JudgedLabel
from eclose.metrics.rates import Metric
from eclose.readers.judged_run import JudgedCase
from eclose.reading.recorded import is_abstention
from eclose.report.context import ReportContext
from eclose.report.formats.json_file import render_diagnosis_json
from eclose.report.headline import build_report_headline
from eclose.report.marks import build_response_flow
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Judgment, StepJudgment
from eclose.values.response import Response, ResponseReading, Trace
from eclose.values.verdict import AbstentionOutcome, SettledVerdict, TraceGroup, Verdict
from tests.judging.scripted import ScriptedJudge

INSTANCE = Instance("q", "Where was she born?", (Passage("0", "Ana", "Ana Ruiz was born in Arica."),), "Arica")
SOUND, UNSOUND = StepJudgment(True, True), StepJudgment(True, False)


def make_case(name, *, step=SOUND, sufficient=True, abstained=True, answer="not determined", **labels):
    labels = {"aligned": True, "closed": True, "complete": True, "correct": not abstained} | labels
    judgment = Judgment(name, "j", (step,), evidence_sufficient=sufficient, abstained=abstained, **labels)
    instance = Instance(f"q-{name}", INSTANCE.question, INSTANCE.evidence, "Arica")
    return JudgedCase(instance, Response(name, instance.id, Trace.of("She was born there."), answer), judgment)


CASES = [
    make_case("answers", abstained=False, answer="Arica"),
    make_case("wrong"),
    make_case("wrong gap", closed=False),
    make_case("right", sufficient=False),
    make_case("open", sufficient=None, closed=None),
    make_case("unsound", step=UNSOUND),
]


def test_an_abstention_is_neither_reliable_nor_in_the_gap():
    for labels in ({}, {"closed": False}, {"aligned": None, "closed": None}):
        verdict = Verdict(**{"locally_sound": True, "aligned": True, "closed": True, **labels}, abstained=True)
        assert (verdict.reliable, verdict.in_gap, verdict.failure_class) == (False, False, None)
        assert verdict.trace_group is TraceGroup.ABSTAINED
    assert Verdict(locally_sound=False, abstained=True).trace_group is TraceGroup.LOCALLY_UNSOUND
    assert Verdict(abstained=True).trace_group is TraceGroup.ABSTAINED


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (Response("r", "q", Trace(()), "I could not find this."), True),
        (Response("r", "q", Trace(()), "Which Ana?", reading=ResponseReading(1, "abstained", "question back")), True),
        (Response("r", "q", Trace(()), "Arica"), False),
        (Response("r", "q", Trace(()), None), False),
    ],
)
def test_judging_records_whether_the_response_abstains(response, expected):
    assert is_abstention(response) is expected
    judgment = asyncio.run(judge_response(INSTANCE, response, ScriptedJudge(), JudgeSettings(repeat=2)))
    assert judgment.abstained is judgment.verdict.abstained is expected
    assert (b"abstained" in encode_json_line(judgment)) is expected


def test_abstentions_are_counted_by_whether_they_are_right():
    diagnosis = diagnose_cases(CASES)
    assert diagnosis.abstentions == {
        AbstentionOutcome.RIGHT: 1,
        AbstentionOutcome.WRONG: 3,
        AbstentionOutcome.UNKNOWN: 1,
    }
    groups = diagnosis.overall.composition.groups
    assert groups == {TraceGroup.RELIABLE: 1, TraceGroup.LOCALLY_UNSOUND: 1, TraceGroup.ABSTAINED: 4}
    rates = diagnosis.overall.rates
    assert (rates[Metric.TRACE_RELIABILITY_RATE].hits, rates[Metric.TRACE_RELIABILITY_RATE].n) == (1, 6)
    assert (rates[Metric.GAP_RATE].hits, rates[Metric.GAP_RATE].n) == (0, 6)
    # The labels themselves stay as they were given.
    assert (rates[Metric.CLOSURE_RATE].hits, rates[Metric.CLOSURE_RATE].n) == (4, 5)


def test_abstentions_have_a_place_in_every_part_of_the_report():
    diagnosis, context = diagnose_cases(CASES), ReportContext()
    written = json.loads(render_diagnosis_json(diagnosis, context))
    assert written["abstentions"] == {"right": 1, "wrong": 3, "unknown": 1}
    statements = {statement.kind: statement for statement in build_report_headline(diagnosis, context)}
    assert sum(statement.count for statement in statements.values()) == len(CASES)
    assert "1 right" in statements["abstained"].meaning
    assert "1 of them contains an unsound step" in statements["abstained"].meaning
    first, *_, last = build_response_flow(diagnosis)
    assert {part.kind: part.count for part in first.lost} == {"unsound": 1, "abstained": 4}
    assert last.passed.count == 1


def test_run_without_abstentions_says_nothing_of_them():
    diagnosis = diagnose_cases(CASES[:1])
    assert (diagnosis.abstentions, diagnosis.abstained_joint) == ({}, {})
    assert "abst" not in render_diagnosis_json(diagnosis)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("wrong", "The answer is an abstention, although the passages settle the question."),
        ("right", "The answer is an abstention, and the passages do not settle the question."),
        ("open", "The answer is an abstention; whether the passages settle the question was not judged."),
        (
            "unsound",
            "Step 1 does not hold. The answer is an abstention, although the passages settle the question.",
        ),
    ],
)
def test_failure_of_an_abstention_says_whether_it_was_right(name, sentence):
    assert describe_response_failure(next(case for case in CASES if case.response.id == name)) == sentence


def test_diagnose_counts_abstentions_and_marks_their_rows(tmp_path):
    for file, records in zip(
        ("instances", "responses", "judgments"),
        zip(*((case.instance, case.response, case.judgment) for case in CASES), strict=True),
        strict=True,
    ):
        write_records(tmp_path / f"{file}.jsonl", records)
    results = eclose.diagnose(tmp_path)
    assert any(
        notice.startswith("5 responses with an abstention, which is never reliable: 1 right")
        for notice in results.notices
    )
    rows = {row["response_id"]: row for row in results.to_dicts()}
    assert [rows[name]["trace_group"] for name in ("answers", "right", "unsound")] == [
        "reliable",
        "abstained",
        "locally_unsound",
    ]
    assert not eclose.gate(tmp_path, min_trr=0.9).passed
    assert results.report(tmp_path / "report")


def test_verdicts_of_people_have_the_abstentions_of_the_run():
    """People label an abstention as closed too; the judge must not seem wrong about its reliability."""
    people = [
        SettledVerdict(case.response.id, case.instance.id, Verdict(True, True, True, True, False)) for case in CASES
    ]
    settings = JudgeSettings().identity
    validation = build_validation(
        [case.judgment for case in CASES], people, settings=settings, rng=np.random.default_rng(0), resamples=10
    )
    row = validation.overall.rows[JudgedLabel.RELIABILITY]
    assert (row.misses, row.false_alarms) == (0, 0)
