"""What is said in words, against counts made by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.report.making import make_diagnosis
from tests.test_diagnose import FAILS, case

from eclosure.core.judgment import Criterion
from eclosure.metrics.rates import Metric
from eclosure.report.notes import NOT_VALIDATED, Notes
from eclosure.report.plots import flow_rows, rate_plot
from eclosure.report.story import cautions, evidence_rates, evidence_sentences, flow, headline
from eclosure.report.tables import Cell, all_tables, metrics_table
from eclosure.stats.intervals import Estimate, Interval


@pytest.fixture
def mixed():
    """Two reliable; four in the gap, of three kinds; one unsound; one whose closure was not judged; one without A."""
    unknown = replace(case(number=7, closed=None).judgment, unjudged={Criterion.CLOSURE: "refusal"})
    return make_diagnosis([
        case(number=0), case(number=1),
        case(number=2, aligned=False), case(number=3, closed=False), case(number=4, closed=False, complete=False),
        case(number=5, closed=False, complete=None),
        case(number=6, steps=(FAILS,), closed=False),
        replace(case(number=7), judgment=unknown),
        case(number=8, aligned=None, closed=False, evidence_sufficient=False),
    ])  # fmt: skip


def test_the_headline_counts_what_was_planted(mixed):
    told = {one.kind: one for one in headline(mixed, Notes())}
    assert {kind: one.count for kind, one in told.items()} == {"reliable": 2, "gap": 5, "unsound": 1, "undecided": 1}
    assert {part.kind: part.count for part in told["gap"].parts} == {
        "path_deviation": 1, "incomplete_reasoning": 1, "answer_decoupling": 1, "closure_failure": 1, "undetermined": 1
    }  # fmt: skip
    # 2 of 8 judged; the ninth can be a hit or not: 2/9 to 3/9.
    assert told["reliable"].figure.startswith("25.0 %")
    assert told["reliable"].bounds == "8 of 9 judged: between 22.2 and 33.3 %, whatever the others are"
    assert told["unsound"].bounds == ""
    assert told["unsound"].figure.startswith("11.1 % [")


def test_every_response_is_kept_or_lost_at_one_stage(mixed, diagnosis):
    for found in (mixed, diagnosis):
        stages = flow(found)
        assert stages[0].total == found.overall.responses
        for stage, following in itertools.pairwise(stages):
            assert stage.kept.count == following.total
        for stage in stages:
            assert stage.kept.count + sum(part.count for part in stage.lost) == stage.total
        assert stages[-1].kept.count == found.overall.rates[Metric.TRACE_RELIABILITY_RATE].hits
    names = [{part.kind: part.count for part in stage.lost} for stage in flow(mixed)]
    assert names == [
        {"unsound": 1},
        {"path_deviation": 1, "undetermined": 1},
        {"incomplete_reasoning": 1, "answer_decoupling": 1, "closure_failure": 1, "undecided": 1},
    ]


def test_bars_of_the_flow_fill_what_they_come_from(diagnosis):
    rows = flow_rows(flow(diagnosis))
    assert rows[0].reach == 100
    for row in rows:
        assert row.kept.width + sum(part.width for part in row.lost) == pytest.approx(row.reach, abs=0.01)


def test_dots_lie_within_their_whiskers_and_the_plot(diagnosis):
    plot = rate_plot(diagnosis)
    assert len(plot.rows) == len(diagnosis.groups)
    for _, _, dots in plot.rows:
        for dot in dots:
            low, high = dot.whisker
            assert 0 <= low <= dot.value <= high <= 100


def test_evidence_is_told_first_and_apart(mixed):
    assert "For 1 of 1 question (1 response) the passages do not settle" in evidence_sentences(mixed)[0]
    assert [row[1] for row in evidence_rates(mixed)] == ["8 responses", "1 response"]
    (sentence,) = evidence_sentences(make_diagnosis([case(evidence_sufficient=None)]))
    assert "was not judged" in sentence
    assert evidence_rates(make_diagnosis([case()])) == ()


def test_a_judge_nobody_checked_is_called_that():
    assert Notes().trust.startswith(NOT_VALIDATED)
    assert Notes(validation="91 % agreement on 100 responses").trust == "91 % agreement on 100 responses"


def test_cautions_name_few_questions_what_is_left_out_and_contradictions(mixed):
    told = cautions(
        make_diagnosis([case(correct=False)]),
        Notes(left_out=[("r9", "it was not judged"), ("r8", "it was not judged")]),
    )
    assert "Fewer than 20 questions" in told[0]
    assert told[1] == "2 responses left out: it was not judged."
    assert "yet wrong" in told[2]


def test_corrected_rates_stand_beside_the_judges(mixed):
    notes = Notes(corrected={Metric.GAP_RATE: Estimate(0.5, Interval(0.25, 0.75))})
    assert headline(mixed, notes)[1].corrected == "50.0 % [25.0, 75.0]"
    rows = metrics_table(mixed, notes).rows
    assert rows[2][0].text == "corrected by people's labels"
    assert rows[2][8] == Cell("50.0", ("[25.0, 75.0]",))
    sound = {Metric.LOCAL_SOUNDNESS_RATE: Estimate(0.75, Interval(0.5, 0.875))}
    assert headline(mixed, Notes(corrected=sound))[2].corrected == "25.0 % [12.5, 50.0]"


def test_tables_hold_every_metric_and_every_count(mixed):
    tables = {table.key: table for table in all_tables(mixed, Notes())}
    assert tables["metrics"].heads == (
        "group", "responses", "Acc", "LSR", "A", "C", "GSR", "TRR", "LGG", "LggShare", "LggRisk"
    )  # fmt: skip
    assert all(len(row) == len(table.heads) for table in tables.values() for row in table.rows)
    joint = {tuple(cell.text for cell in row[:3]): int(row[3].text) for row in tables["joint"].rows}
    assert joint == {
        ("1", "1", "1"): 2, ("1", "1", "0"): 3, ("1", "1", "–"): 1, ("1", "0", "1"): 1, ("1", "–", "0"): 1,
        ("0", "1", "0"): 1,
    }  # fmt: skip
    assert [[cell.text for cell in row] for row in tables["unjudged"].rows] == [["C", "refusal", "1"]]
    bounds = next(row for row in tables["metrics"].rows if row[0].text.startswith("bounds"))
    assert bounds[7].text == "22.2 to 33.3"
