"""Columns of labels give the same diagnosis as the responses themselves, in any division into parts."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import fields
from itertools import product

import numpy as np
import pytest

from eclose.diagnosis.diagnose import diagnose_cases, diagnose_labels
from eclose.diagnosis.label_table import LABEL_CODES, LabelTable, combine_steps
from eclose.metrics.rates import (
    VERDICTS,
    Metric,
    compute_metric_rates,
    count_response_composition,
    make_indicator_bounds,
)
from eclose.metrics.repeats import count_label_flips
from eclose.metrics.summary import GroupRates, VerdictCounts
from eclose.readers.judged_run import EvidenceSufficiency
from eclose.stats.arrays import number_distinct_labels, sum_by_group
from eclose.stats.clustered_rates import QuestionHitCounts
from eclose.values.judgment import Judgment, LocalFailure, StepJudgment, missing_reason_kind
from eclose.values.model_family import same_model_family
from tests.diagnosis.judged_responses import random_cases, world_cases

RUNS = {
    "labels 1": lambda: random_cases(1, count=200, questions=24),
    "labels 2": lambda: random_cases(2, count=90, questions=80),
    "world short-easy": lambda: world_cases("short-easy"),
    "world 2wiki": lambda: world_cases("2wiki"),
}


@pytest.fixture(scope="module", params=RUNS)
def cases(request):
    return RUNS[request.param]()


def summarize(group, cases):
    """Summarize cases row by row, with an indicator for every response."""
    verdicts = [case.verdict for case in cases]
    question, questions = number_distinct_labels([(case.instance.benchmark, case.instance.id) for case in cases])
    by_question = []
    for table in make_indicator_bounds(verdicts, tuple(Metric)):
        hits, counted = (sum_by_group(question, part, len(questions)) for part in table)
        columns = zip(Metric, hits.T, counted.T, strict=True)
        by_question.append({metric: QuestionHitCounts.of(hit, total - hit) for metric, hit, total in columns})
    judged, least, greatest = by_question
    return GroupRates(
        group,
        responses=len(cases),
        questions=len(questions),
        rates=compute_metric_rates(verdicts),
        estimates={metric: counts.estimate() for metric, counts in judged.items()},
        composition=count_response_composition(verdicts),
        counts=judged,
        least=least,
        greatest=greatest,
    )


def by_group(cases, key):
    groups = {}
    for case in cases:
        groups.setdefault(key(case), []).append(case)
    return tuple(summarize(group, members) for group, members in sorted(groups.items()))


def benchmark_of(case):
    return case.instance.benchmark or "unknown"


def model_of(case):
    return case.response.source.model if case.response.source else "unknown"


def check_groups(diagnosis, cases):
    pairs = by_group(cases, lambda case: (benchmark_of(case), model_of(case)))
    assert diagnosis.groups == (summarize((), cases), *pairs)
    for table, key in ((diagnosis.by_model, model_of), (diagnosis.by_dataset, benchmark_of)):
        groups = by_group(cases, lambda case, key=key: (key(case),))
        assert table == (groups if 1 < len(groups) < len(pairs) else ())
    for kind in EvidenceSufficiency:
        members = [case for case in cases if case.evidence is kind]
        assert diagnosis.by_evidence.get(kind) == (summarize((), members) if members else None)


@pytest.mark.slow
def test_counts_give_the_diagnosis_of_all_responses(cases):
    diagnosis = diagnose_cases(cases)
    check_groups(diagnosis, cases)
    verdicts = [case.verdict for case in cases]
    judgments = [case.judgment for case in cases]
    assert diagnosis.judges == tuple(sorted({judgment.judge for judgment in judgments}))
    assert diagnosis.joint == Counter((each.locally_sound, each.aligned, each.closed) for each in verdicts)
    failures = [[step.failure for step in judgment.steps] for judgment in judgments]
    for table, codes in (
        (diagnosis.local_failures, Counter(code for steps in failures for code in steps)),
        (diagnosis.local_failure_responses, Counter(code for steps in failures for code in set(steps))),
    ):
        assert table == {code: codes[code] for code in LocalFailure if codes[code]}
    for table, name in ((diagnosis.matching, "matched"), (diagnosis.alias_matching, "matched_with_aliases")):
        pairs = Counter((case.verdict.correct, getattr(case, name)) for case in cases)
        counts = [pairs[True, True], pairs[True, False], pairs[False, True], pairs[False, False]]
        assert [getattr(table, each.name) for each in fields(table)] == [*counts, len(cases) - sum(counts)]
    assert diagnosis.inconsistent == sum(verdict.inconsistent for verdict in verdicts)
    sufficiency = Counter((verdict.correct, verdict.globally_sufficient) for verdict in verdicts)
    assert diagnosis.correct_but_insufficient == sufficiency[True, False]
    assert diagnosis.incorrect_but_sufficient == sufficiency[False, True]
    missing = Counter(
        (name, missing_reason_kind(why)) for judgment in judgments for name, why in judgment.unjudged.items()
    )
    assert {(name, why): n for name, reasons in diagnosis.unjudged.items() for why, n in reasons.items()} == missing
    assert diagnosis.flips == count_label_flips(judgments)
    assert list(diagnosis.flips) == list(count_label_flips(judgments))
    named = {(case.judgment.judge, case.response.source.model) for case in cases if case.response.source}
    assert diagnosis.same_family_pairs == tuple(sorted(pair for pair in named if same_model_family(*pair)))
    assert diagnosis.without_trace == sum(not case.response.trace.steps for case in cases)
    assert sum(diagnosis.readings.values()) == len(cases)


def contents(labels):
    """Return everything in a table, as values that can be compared."""
    return {
        field.name: value.tolist() if isinstance(value := getattr(labels, field.name), np.ndarray) else value
        for field in fields(labels)
    }


@pytest.mark.slow
def test_tables_of_parts_are_the_whole_one_after_the_other(cases):
    third = len(cases) // 3
    parts = [LabelTable.of(part) for part in (cases[:third], cases[third : 2 * third], cases[2 * third :])]
    whole, joined = contents(LabelTable.of(cases)), contents(LabelTable.concatenate(parts))
    # Positions are those of the cases in each part.
    assert joined.pop("positions") != whole.pop("positions")
    assert joined == whole
    assert diagnose_labels(LabelTable.concatenate(parts)) == diagnose_cases(cases)
    assert list(diagnose_cases(cases).joint) == list(
        dict.fromkeys((case.verdict.locally_sound, case.verdict.aligned, case.verdict.closed) for case in cases)
    )


def test_an_empty_part_changes_nothing(cases):
    labels, none = LabelTable.of(cases), LabelTable.of(())
    for parts in ((labels, none), (none, labels)):
        assert contents(LabelTable.concatenate(parts)) == contents(labels)


def test_labels_of_a_worker_survive_pickling(cases):
    labels = LabelTable.of(cases)
    assert contents(pickle.loads(pickle.dumps(labels))) == contents(labels)


@pytest.mark.slow
def test_a_response_takes_few_bytes_whatever_its_texts():
    cases = random_cases(3, count=200, questions=4)
    columns = (getattr(LabelTable.of(cases * 20), field.name) for field in fields(LabelTable))
    assert sum(column.nbytes for column in columns if isinstance(column, np.ndarray)) < 100 * 4_000


def test_a_verdict_is_that_of_its_judgment(cases):
    labels = LabelTable.of(cases)
    assert [VERDICTS[code] for code in labels.verdict] == [case.verdict for case in cases]
    assert [LABEL_CODES[case.matched] for case in cases] == labels.matched.tolist()
    assert [LABEL_CODES[case.matched_with_aliases] for case in cases] == labels.matched_with_aliases.tolist()


LABELS = (True, False, None)


@pytest.mark.parametrize("length", range(4))
def test_steps_are_combined_as_by_a_judgment(length):
    kinds = [StepJudgment(substantive, sound) for substantive, sound in product(LABELS, LABELS)]
    for steps in product(kinds, repeat=length):
        assert combine_steps(steps) is Judgment("r", "j", steps).locally_sound


@pytest.mark.parametrize("count", [1, 30, 200])
def test_systems_are_numbered_in_the_order_of_their_own_responses(count):
    cases = [case for case in random_cases(2, count=count) if model_of(case) in {"m", "unknown"}]
    systems = LabelTable.of(cases).systems()
    assert set(systems) == ({"m", "unknown"} if len({model_of(case) for case in cases}) == 2 else set())
    for name, side in systems.items():
        rows = [case.row for case in cases if model_of(case) == name]
        expected = VerdictCounts.of(rows)
        assert side.questions == list(dict.fromkeys((row.benchmark, row.instance_id) for row in rows))
        assert side.counts.question.tolist() == expected.question.tolist()
        assert side.counts.by_verdict() == expected.by_verdict()
