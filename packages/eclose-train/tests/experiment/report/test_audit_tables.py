"""The paper's audit through the report: 360 responses under two kinds of labels."""

from __future__ import annotations

from functools import cache

import pytest

from eclose.errors import UserError
from eclose.values.verdict import Verdict
from eclose_train.experiment.plan import BootstrapDraws, BootstrapPlan
from eclose_train.experiment.report.people import AuditedResponse, AuditLabels, summarize_audit
from eclose_train.experiment.report.study_tables import build_audit_tables
from eclose_train.pooling import ExperimentUnit
from tests.paper.derivations.human_audit import AUTOMATED, HUMAN, METHODS, labelled
from tests.paper.printed import BACKBONES, DATASETS, cells

DRAWS = BootstrapDraws(resamples=200, seed=42)


def paper_responses():
    """The printed rates response by response; which question has which labels is arbitrary."""
    settings = [(backbone, dataset) for backbone in BACKBONES for dataset in DATASETS]
    return [
        AuditedResponse(ExperimentUnit(method, *_place(settings, number)), automated, human)
        for method in METHODS
        for number, (automated, human) in enumerate(
            zip(labelled(method, AUTOMATED), labelled(method, HUMAN), strict=True)
        )
    ]


def _place(settings, number):
    backbone, dataset = settings[number % 9]
    return backbone, 42, dataset, f"q{number}"


@cache
def results():
    return summarize_audit(AuditLabels(responses=paper_responses()), DRAWS)


@cache
def tables():
    return {table.key: table for table in build_audit_tables(results(), DRAWS)}


def printed(table):
    return [cell for cell in cells().values() if cell.table == f"appendix_human_audit_{table}"]


@pytest.mark.slow
def test_rates_have_the_printed_cells():
    rows = {(row[0].text, row[1].text): row for row in tables()["audit-results"].rows}
    listed = printed("results")
    assert listed
    heads = tables()["audit-results"].heads
    for cell in listed:
        row = rows[tuple(cell.row.split(" | "))]
        if cell.column == "LGG count":
            assert row[heads.index("LGG")].details[0] == f"({cell.printed})", cell
        else:
            table_cell = row[heads.index(cell.column)]
            assert cell.agrees(float(table_cell.text)), cell
    best = {(row[0].text, heads[at]) for row in rows.values() for at, cell in enumerate(row) if cell.rank == 1}
    assert ("E-Closure", "TRR") in best
    assert not any(cell.rank for (_, source), row in rows.items() if source == AUTOMATED for cell in row)


@pytest.mark.slow
def test_differences_have_the_printed_values_and_intervals_within_settings():
    rows = {row[0].text: row for row in tables()["audit-differences"].rows}
    points = [cell for cell in printed("differences") if not cell.column.endswith(("low", "high"))]
    assert len(points) == 10
    for cell in points:
        at = tables()["audit-differences"].heads.index(cell.column.replace("d", "Δ"))
        assert cell.agrees(float(rows[cell.row][at].text.replace("−", "-"))), cell
        assert rows[cell.row][at].details
    assert rows["All methods"][1].text == "360"
    assert f"({DRAWS})" in tables()["audit-differences"].note


@pytest.mark.slow
def test_failures_by_people_are_those_printed():
    names = {"Acc": "Correctness", "L": "Local soundness L", "G": "Global sufficiency G"}
    rows = {row[0].text: row for row in tables()["audit-agreement"].rows}
    for cell in printed("agreement"):
        if cell.row in names and cell.column == "n0":
            assert rows[names[cell.row]][2].text == cell.printed, cell


@pytest.mark.slow
def test_draws_stay_within_settings():
    """Where all questions of a setting are alike, resampling within settings changes nothing."""
    fixed = {setting: number % 2 for number, setting in enumerate({row.unit[1::2] for row in paper_responses()})}
    good, broken = labelled("RM", HUMAN)[0], labelled("RM", HUMAN)[-1]
    assert good.reliable
    assert not broken.reliable
    rows = [row._replace(automated=good if fixed[row.unit[1::2]] else broken, human=good) for row in paper_responses()]
    estimate = summarize_audit(AuditLabels(responses=rows), DRAWS).differences["RM"]["TRR"]
    assert estimate.interval.low == pytest.approx(estimate.value) == pytest.approx(estimate.interval.high)


def test_the_paper_resamples_questions_ten_thousand_times_with_seed_42():
    assert str(BootstrapPlan().audit) == "10,000 resamples, seed 42"


@pytest.mark.slow
def test_differences_rest_on_responses_that_both_labelled():
    rows = [
        row._replace(automated=Verdict()) if row.unit.method == "RM" and row.unit.question == "q0" else row
        for row in paper_responses()
    ]
    assert rows[2 * 90].human.reliable
    audit = summarize_audit(AuditLabels(responses=rows), DRAWS)
    rates = {source.value: audit.rates["RM"][source]["TRR"] for source in audit.rates["RM"]}
    assert (rates[AUTOMATED].n, rates[AUTOMATED].unjudged, rates[HUMAN].n) == (89, 1, 90)
    assert audit.compared["RM"]["TRR"] == 89
    expected = (rates[AUTOMATED].hits - (rates[HUMAN].hits - 1)) / 89
    assert audit.differences["RM"]["TRR"].value == pytest.approx(expected)


def test_two_responses_of_a_method_to_a_question_are_refused():
    row = paper_responses()[0]
    again = row._replace(unit=row.unit._replace(seed=43))
    with pytest.raises(UserError, match="one training seed"):
        summarize_audit(AuditLabels(responses=[row, again]), DRAWS)
