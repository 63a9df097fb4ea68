"""The lead's report: what it counts, how it says what is undefined, and that it is quick."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eclose_annotate.annotations import Annotation, AnnotationSet
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.results.agreement_report import (
    UNDEFINED_NOTHING_TO_COMPARE,
    UNDEFINED_UNANIMOUS,
    agreement_to_json,
    build_agreement_report,
    why_alpha_undefined,
)
from tests.results.records import FILLER, L1, L2, SOUND, annotation, grouped, grouped_questions, screening


def made(rows=(), questions=(), **settings):
    return build_agreement_report(
        AnnotationSet(grouped(*rows), grouped_questions(questions)), **{"resamples": 100, **settings}
    )


def row(found, name):
    return next(row for row in found.responses.rows if row.judgment == name)


PAIRS = [
    annotation("r1", "A1", [SOUND, L1]), annotation("r1", "A2", [SOUND, L2], "0111"),
    annotation("r2", "A1", [FILLER]), annotation("r2", "A2", [SOUND]),
    annotation("r3", "A1"), Annotation("r4", "q4", AnnotationTaskKind.RESPONSE, 2),
]  # fmt: skip


def test_responses_that_two_have_finished_are_compared():
    responses = made(PAIRS).responses
    assert (responses.responses, responses.compared, responses.questions, responses.people) == (4, 2, 2, 2)
    counted = {row.judgment: row.n for row in responses.rows}
    assert (counted["Substantive status"], counted["Step soundness"], counted["Local-failure reason"]) == (3, 2, 1)
    assert responses.adjudication.to_adjudicate == 2


def test_an_adjudicator_is_none_of_the_two():
    last = annotation("r1", "A7", [SOUND, SOUND], adjudicates=True)
    assert made([*PAIRS, last]).responses.rows == made(PAIRS).responses.rows


def test_short_forms_have_no_rows_about_steps():
    rows = [annotation("r", who, kind=AnnotationTaskKind.SHORT) for who in ("A1", "A2")]
    assert made(rows).responses.rows[0].judgment == "Alignment A"


def test_unanimous_and_empty_are_said_and_never_a_number():
    report = made([annotation("r", "A1", labels="1-11"), annotation("r", "A2", labels="1-11")])
    assert why_alpha_undefined(row(report, "Alignment A")) == UNDEFINED_UNANIMOUS
    assert why_alpha_undefined(row(report, "Closure C")) == UNDEFINED_NOTHING_TO_COMPARE
    assert why_alpha_undefined(row(made(PAIRS), "Alignment A")) is None
    text = json.dumps(agreement_to_json(report), allow_nan=False)
    alpha = json.loads(text)["responses"]["agreement"][3]["alpha"]
    assert alpha == {"value": None, "interval": None, "undefined_resamples": 100, "undefined": UNDEFINED_UNANIMOUS}


def test_nothing_finished_is_a_report_of_nothing():
    report = made([Annotation("r", "q", AnnotationTaskKind.RESPONSE, 2)])
    assert (report.responses.compared, report.screening) == (0, None)
    assert all(why_alpha_undefined(row) == UNDEFINED_NOTHING_TO_COMPARE for row in report.responses.rows)
    assert build_agreement_report(AnnotationSet()).responses is None


def test_json_has_ac1_of_every_binary_row_and_adjudication():
    told_ = agreement_to_json(
        made(PAIRS, [screening("q1", "S1"), screening("q1", "S2", "N1"), screening("q2", "S1", benchmark=None)])
    )
    rows = {entry["judgment"]: entry for entry in told_["responses"]["agreement"]}
    assert rows["Local-failure reason"]["ac1"] is None
    assert rows["Alignment A"]["ac1"] is not None
    assert told_["responses"]["adjudication"]["waiting"] == 2
    assert told_["settings"] == {"seed": 42, "resamples": 100}
    assert (told_["screening"]["questions"], told_["screening"]["compared"]) == (2, 1)
    assert list(told_["screening"]["datasets"]) == ["B"]


def test_the_same_seed_gives_the_same_report():
    rng = np.random.default_rng(0)
    rows = [
        annotation(f"r{n}", who, labels="".join(map(str, rng.integers(0, 2, 4)))) for n in range(20) for who in "ab"
    ]
    assert made(rows) == made(rows)
    assert made(rows, seed=1) != made(rows)


@pytest.mark.slow
def test_the_paper_s_size_is_counted_whole():
    rng = np.random.default_rng(0)
    kinds = [SOUND] * 9 + [L1, L2, FILLER]
    rows = []
    for number in range(2_598):
        steps = [kinds[kind] for kind in rng.integers(len(kinds), size=5)]
        for who in ("A1", "A2"):
            labels = "".join("0" if chance < 0.05 else "1" for chance in rng.random(4))
            rows.append(annotation(f"r{number}", who, steps, labels, question=f"q{number // 3}"))
    report = made(rows)
    assert (report.responses.compared, report.responses.questions) == (2_598, 866)
    assert row(report, "Substantive status").n == 5 * 2_598
