"""The evaluator against people: the cells that the paper prints, datasets, and judges beside each other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from eclose.metrics.judge_against_people import ValidationCase
from eclose.values.verdict import Verdict
from eclose_train.experiment.plan import BootstrapDraws, BootstrapPlan
from eclose_train.experiment.report.build import build_experiment_report
from eclose_train.experiment.report.documents import render_experiment_json
from eclose_train.experiment.report.people import EvaluatorLabels, summarize_evaluator
from eclose_train.experiment.report.study_tables import build_evaluator_tables, build_experiment_tables
from tests.experiment.report.test_small_grid import FEW, make_results
from tests.paper.derivations.evaluator import confusion
from tests.paper.printed import DATASETS, RESPONSES, cells

DRAWS = BootstrapDraws(resamples=20, seed=1)
FIELDS = {
    "Correctness": "correct",
    "Local soundness L": "locally_sound",
    "Alignment A": "aligned",
    "Closure C": "closed",
    "Completeness K": "complete",
}
HEADS = {"n0": "n0", "Agreement": "Agreement", "F1": "F1_0", "BAcc": "BAcc", "kappa": "Kappa", "delta": "Δp0"}


def labels_of(criterion):
    """Labels of people and of the evaluator with the counts that the paper prints."""
    (shared, missed), (added, neither) = confusion(criterion).astype(int)
    pairs = [(False, False)] * shared + [(False, True)] * missed + [(True, False)] * added + [(True, True)] * neither
    assert len(pairs) == RESPONSES
    return pairs


@cache
def paper_cases(sufficiency=False):
    """Cases with the printed counts; the pairing of the labels of a response is arbitrary."""
    columns = {field: labels_of(name) for name, field in FIELDS.items()}
    if sufficiency:
        # G holds where A and C do.
        columns |= {"aligned": labels_of("Global sufficiency G"), "closed": [(True, True)] * RESPONSES}
    datasets = [name for name, size in DATASETS.items() for _ in range(3 * size)]
    return [
        ValidationCase(
            f"q{number // 3}",
            dataset,
            Verdict(**{field: pairs[number][1] for field, pairs in columns.items()}),
            Verdict(**{field: pairs[number][0] for field, pairs in columns.items()}),
        )
        for number, dataset in enumerate(datasets)
    ]


def tables_of(labels):
    return {table.key: table for table in build_evaluator_tables(summarize_evaluator(labels, DRAWS), DRAWS)}


def read_cells(table):
    return {(row[0].text, head): cell for row in table.rows for head, cell in zip(table.heads, row, strict=True)}


@pytest.mark.slow
def test_the_table_has_the_printed_cells_each_with_an_interval():
    table = read_cells(tables_of(EvaluatorLabels(name="high", cases=paper_cases()))["evaluator"])
    table |= {
        key: cell
        for key, cell in read_cells(
            tables_of(EvaluatorLabels(name="high", cases=paper_cases(sufficiency=True)))["evaluator"]
        ).items()
        if key[0] == "Global sufficiency G"
    }
    listed = [cell for cell in cells().values() if cell.table == "evaluator_validation" and cell.column in HEADS]
    assert len(listed) == 36
    for cell in listed:
        text, details = table[cell.row, HEADS[cell.column]][:2]
        assert text.replace("−", "-") == cell.printed, cell
        assert bool(details) == (cell.column != "n0")


def make_labels(**more):
    """Eight responses to four questions of two datasets; the evaluator misses one failure of closure."""
    good = Verdict(locally_sound=True, aligned=True, closed=True, complete=True, correct=True)
    broken = replace(good, closed=False, correct=False)
    cases = [
        ValidationCase(f"q{number // 2}", "wiki" if number < 4 else "hotpot", judge, human)
        for number, (judge, human) in enumerate(
            [(good, good), (good, broken), (broken, broken), (good, good), *[(good, good), (broken, broken)] * 2]
        )
    ]
    return EvaluatorLabels(name="high", cases=cases, **more)


def test_bias_is_the_rate_of_the_evaluator_minus_that_of_people():
    cells = read_cells(tables_of(make_labels())["evaluator-bias"])
    assert {name: cells[name, "ΔTRR"].text for name in ("wiki", "hotpot", "All (pooled)")} == {
        "wiki": "+25.00",
        "hotpot": "0.00",
        "All (pooled)": "+12.50",
    }
    assert cells["All (pooled)", "ΔLGG"].text == "−12.50"
    assert cells["wiki", "n"].text == "4"


def test_other_judges_stand_beside_the_evaluator_with_gains_over_them():
    good = Verdict(locally_sound=True, aligned=True, closed=True, complete=True, correct=True)
    blind = [replace(good, correct=False)] * 8
    tables = tables_of(make_labels(others={"low": blind}))
    cells = read_cells(tables["evaluator-judges"])
    assert [row[0].text for row in tables["evaluator-judges"].rows] == ["low", "high"]
    # The evaluator agrees on 7 of 8 for closure and correctness, the other on 5 and 3.
    assert cells["high", "Mean agreement"].text == "95.00"
    assert cells["low", "Mean agreement"].text == "80.00"
    assert (cells["low", "Inconsistent"].text, cells["high", "Inconsistent"].text) == ("8", "0")
    gains = read_cells(tables["evaluator-gains"])
    assert gains["low", "Mean agreement"].text == "+15.00"
    assert "evaluator-judges" not in tables_of(make_labels())


def test_a_validated_evaluator_is_named_as_such_beneath_every_table():
    plan = BootstrapPlan(main=DRAWS, ablations=DRAWS, switches=DRAWS, judge=DRAWS)
    report = build_experiment_report(make_results(evaluator=make_labels(not_in_runs=2)), plan)
    assert "Validated against people on 8 responses to 4 questions" in report.labels
    tables = {table.key: table for table in build_experiment_tables(report)}
    assert "2 further labels are on responses outside" in tables["evaluator"].note
    assert "Validated against people" in tables["overall"].note
    assert '"evaluator": {' in render_experiment_json(report)
    assert "not validated" in build_experiment_report(make_results(), FEW).labels
