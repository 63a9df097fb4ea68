"""Pairs of responses, from columns and from the responses themselves."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from eclose.diagnosis.compare import count_transitions
from eclose.diagnosis.label_table import LabelTable, pair_labels
from eclose.diagnosis.run_counts import RunCounts
from eclose.errors import UserError
from eclose.report.comparison import compare_with_base_run
from eclose.values.response import ResponseSource
from tests.diagnosis.judged_responses import random_cases


def make_run(draw, cases, letter):
    """Give responses ids and sources that partly repeat those of the other run."""
    run = {}
    for case in draw.sample(cases, draw.randrange(len(cases) // 3, len(cases))):
        shared = draw.random() < 0.4
        id_ = f"r{draw.randrange(40)}" if shared else f"{letter}{case.response.id}"
        source = draw.choice([None, ResponseSource("m"), ResponseSource("m", "SFT", 1), ResponseSource("m", "SFT", 2)])
        response = replace(case.response, id=id_, source=source)
        run[id_] = replace(case, response=response, judgment=replace(case.judgment, response_id=id_))
    return list(run.values())


def pair_by_hand(base, run):
    """Pair responses to one question: the only ones, else those with one id, else the only ones of one source."""
    if len(base) == len(run) == 1:
        return [(base[0], run[0])]
    by_id = {row.response_id: row for row in base}
    pairs = [(by_id[row.response_id], row) for row in run if row.response_id in by_id]
    paired = {row.response_id for _, row in pairs}
    run_left, base_left = (
        [row for row in rows if row.response_id not in paired and row.source] for rows in (run, base)
    )
    single = [
        {row.source: row for row in rows if [r.source for r in rows].count(row.source) == 1}
        for rows in (base_left, run_left)
    ]
    return pairs + [(single[0][source], row) for source, row in single[1].items() if source in single[0]]


def by_question(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row.benchmark, row.instance_id), []).append(row)
    return groups


@pytest.mark.parametrize("seed", range(24))
def test_pairs_of_columns_are_those_of_responses(seed):
    draw = Random(seed)
    cases = random_cases(seed, count=draw.choice([6, 40, 150]), questions=draw.choice([3, 12, 60]))
    run, base = make_run(draw, cases, "a"), make_run(draw, cases, "b")
    rows, base_rows = ([case.row for case in side] for side in (run, base))
    questions = by_question(base_rows)
    expected = [
        pair for key, own in by_question(rows).items() if key in questions for pair in pair_by_hand(questions[key], own)
    ]
    row_indices, partners = pair_labels(LabelTable.of(run), LabelTable.of(base))
    assert [(base_rows[partner], rows[row]) for row, partner in zip(row_indices, partners, strict=True)] == expected
    sides, rng = (RunCounts.of(run), RunCounts.of(base)), np.random.default_rng(1)
    if not questions.keys() & by_question(rows).keys():
        with pytest.raises(UserError, match="share no question"):
            compare_with_base_run(*sides, "base", rng=rng, resamples=100)
        return
    compared = compare_with_base_run(*sides, "base", rng=rng, resamples=100).comparison
    assert [tuple(pair) for pair in compared.pairs] == expected
    verdicts = (labels.verdict for labels in (LabelTable.of(base), LabelTable.of(run)))
    old, new = (verdict[side] for verdict, side in zip(verdicts, (partners, row_indices), strict=True))
    assert count_transitions(old, new) == compared.transitions


def test_runs_without_a_response_have_no_pairs():
    row_indices, partners = pair_labels(LabelTable.of(()), LabelTable.of(()))
    assert (row_indices.tolist(), partners.tolist()) == ([], [])
