from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eclose.metrics.rates import (
    MAIN_METRICS,
    Metric,
    compute_metric_rate,
    compute_metric_rates,
    count_response_composition,
    make_metric_indicators,
)
from eclose.stats.rates import Rate
from eclose.values.verdict import FailureClass, TraceGroup, Verdict

LABELS = (True, False, None)
EVERY_VERDICT = [
    Verdict(*labels, abstained=abstained) for abstained in (False, True) for labels in product(LABELS, repeat=5)
]
CONDITIONAL = (Metric.GAP_SHARE, Metric.GAP_RISK)

verdicts = st.lists(st.sampled_from(EVERY_VERDICT), max_size=12)


def labels_of(verdict):
    return (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)


def defined_by(metric, sound, aligned, closed, complete, correct, abstained=False):
    """In the denominator, and a hit: the paper's definitions over labels that are all known, none for abstentions."""
    sufficient = aligned and closed
    gap = sound and not sufficient and not abstained
    return {
        Metric.ACCURACY: (True, correct),
        Metric.LOCAL_SOUNDNESS_RATE: (True, sound),
        Metric.ALIGNMENT_RATE: (True, aligned),
        Metric.CLOSURE_RATE: (True, closed),
        Metric.COMPLETENESS_RATE: (True, complete),
        Metric.GLOBAL_SUFFICIENCY_RATE: (True, sufficient),
        Metric.TRACE_RELIABILITY_RATE: (True, sound and sufficient and not abstained),
        Metric.GAP_RATE: (True, gap),
        Metric.GAP_SHARE: (not sufficient, gap),
        Metric.GAP_RISK: (not correct, gap),
        Metric.GAP_AMONG_SOUND: (sound, gap),
    }[metric]


def completions(verdict):
    """Every way in which the unknown labels could turn out."""
    choices = ((label,) if label is not None else (True, False) for label in labels_of(verdict))
    return product(*choices, (verdict.abstained,))


def possible_values(metric, some):
    """Every value the metric can still take, one for each completion of all verdicts."""
    values = set()
    for completed in product(*(set(completions(verdict)) for verdict in some)):
        marks = [defined_by(metric, *labels) for labels in completed]
        hits = [hit for counted, hit in marks if counted]
        if hits:
            values.add(sum(hits) / len(hits))
    return values


@pytest.mark.parametrize("metric", Metric)
def test_a_known_verdict_counts_as_the_paper_defines(metric):
    for labels in product((True, False), repeat=5):
        counted, hit = defined_by(metric, *labels)
        assert compute_metric_rate(metric, [Verdict(*labels)]) == Rate(int(counted and hit), int(counted), 0)


@pytest.mark.parametrize("metric", Metric)
def test_a_verdict_is_judged_exactly_when_every_completion_says_the_same(metric):
    """A case is out only when it is out in every completion, and judged only when all completions agree."""
    for verdict in EVERY_VERDICT:
        marks = {defined_by(metric, *labels) for labels in completions(verdict)}
        counted = {inside for inside, _ in marks}
        if counted == {False}:
            expected = Rate(0, 0, 0)
        elif len(marks) == 1:
            expected = Rate(int(marks == {(True, True)}), 1, 0)
        else:
            outcomes = {hit for inside, hit in marks if inside}
            expected = Rate(0, 0, 1, never_hits=int(True not in outcomes), never_misses=int(False not in outcomes))
        assert compute_metric_rate(metric, [verdict]) == expected, verdict


@pytest.mark.parametrize("metric", Metric)
@given(some=st.lists(st.sampled_from(EVERY_VERDICT), max_size=4))
@settings(max_examples=60)
def test_bounds_are_the_least_and_greatest_of_all_completions(metric, some):
    assume(sum(labels_of(verdict).count(None) for verdict in some) <= 8)
    result, values = compute_metric_rate(metric, some), possible_values(metric, some)
    assert result.bounds == ((min(values), max(values)) if values else None)
    if values and result.unjudged == 0:
        assert result.bounds == (result.value, result.value)


@pytest.mark.parametrize("metric", CONDITIONAL)
def test_conditional_bounds_are_exact_for_every_pair(metric):
    """No sampling here: every two verdicts that differ in what these two metrics read."""
    labels = product(LABELS, repeat=3)
    relevant = [Verdict(sound, True, closed, None, correct) for sound, closed, correct in labels]
    for pair in product(relevant, repeat=2):
        values = possible_values(metric, pair)
        assert compute_metric_rate(metric, pair).bounds == ((min(values), max(values)) if values else None), pair


def test_conditional_rates_by_hand():
    gap = Verdict(locally_sound=True, aligned=True, closed=False, complete=True, correct=False)
    unsound = Verdict(locally_sound=False, aligned=False, closed=True, complete=False, correct=False)
    lucky = Verdict(locally_sound=True, aligned=True, closed=False, complete=False, correct=True)
    fine = Verdict(locally_sound=True, aligned=True, closed=True, complete=True, correct=True)
    unread = Verdict(aligned=False)
    some = [gap, unsound, lucky, fine, unread]
    # Insufficient: gap, unsound, lucky and unread, whose L is not known. In the gap: gap and lucky.
    assert compute_metric_rate(Metric.GAP_SHARE, some) == Rate(2, 3, 1)
    # Wrong: gap and unsound; unread may be wrong too.
    assert compute_metric_rate(Metric.GAP_RISK, some) == Rate(1, 2, 1)
    # In the gap and perhaps wrong: a hit if it counts, so the rate is 1/2 or 2/3.
    undecided = Verdict(locally_sound=True, aligned=False)
    assert compute_metric_rate(Metric.GAP_RISK, [gap, unsound, undecided]).bounds == (1 / 2, 2 / 3)
    assert compute_metric_rate(Metric.GAP_RISK, [fine]).value is None


@pytest.mark.slow
@given(verdicts, st.randoms(use_true_random=False))
def test_order_and_copies_do_not_matter(some, random):
    for metric, result in compute_metric_rates(some).items():
        assert compute_metric_rate(metric, random.sample(some, len(some))) == result
        copied = compute_metric_rate(metric, some * 3)
        assert (copied.value, copied.bounds) == (result.value, result.bounds)


@given(verdicts)
def test_indicators_add_up_to_the_rates(some):
    hits, counted = make_metric_indicators(some, tuple(Metric))
    for column, result in enumerate(compute_metric_rates(some).values()):
        assert (hits[:, column].sum(), counted[:, column].sum()) == (result.hits, result.n)
    assert np.all(hits <= counted)


def test_indicators_are_the_main_metrics_of_each_response_in_order():
    gap = Verdict(locally_sound=True, aligned=True, closed=False, complete=True, correct=False)
    hits, counted = make_metric_indicators([gap, Verdict(correct=True), gap])
    # Acc, LSR, GSR, TRR, LGG
    np.testing.assert_array_equal(hits, [[0, 1, 0, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 1]])
    np.testing.assert_array_equal(counted, [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]])


def test_indicators_of_nothing_keep_their_columns():
    assert make_metric_indicators([]).hits.shape == (0, len(MAIN_METRICS))


def test_rates_of_chosen_metrics():
    assert compute_metric_rates([Verdict(correct=True)], [Metric.ACCURACY]) == {Metric.ACCURACY: Rate(1, 1, 0)}
    assert list(compute_metric_rates([])) == list(Metric)


@given(verdicts, st.randoms(use_true_random=False))
def test_a_composition_has_the_order_of_the_definitions(some, random):
    counts = count_response_composition(random.sample(some, len(some)))
    assert list(counts.groups) == [group for group in (*TraceGroup, None) if group in counts.groups]
    for failures in (counts.failures, counts.gap_failures):
        assert list(failures) == [failure for failure in FailureClass if failure in failures]


@given(verdicts)
def test_every_response_is_in_one_group_and_every_insufficient_one_in_one_class(some):
    counts = count_response_composition(some)
    assert sum(counts.groups.values()) == len(some)
    answering = [verdict for verdict in some if not verdict.abstained]
    assert sum(counts.failures.values()) == sum(verdict.globally_sufficient is False for verdict in answering)
    assert sum(counts.gap_failures.values()) == counts.groups.get(TraceGroup.GAP, 0)
    assert all(counts.gap_failures[failure] <= counts.failures[failure] for failure in counts.gap_failures)


def test_a_composition_by_hand():
    counts = count_response_composition(
        [
            Verdict(True, True, False, True, False),
            Verdict(True, True, False, True, False),
            Verdict(True, False, None, None, None),
            Verdict(False, True, False, False, False),
            Verdict(True, True, True, True, False),
            Verdict(None, True, True, True, True),
        ]
    )
    assert counts.groups == {
        TraceGroup.GAP: 3,
        TraceGroup.LOCALLY_UNSOUND: 1,
        TraceGroup.RELIABLE: 1,
        None: 1,
    }
    assert counts.failures == {
        FailureClass.ANSWER_DECOUPLING: 2,
        FailureClass.PATH_DEVIATION: 1,
        FailureClass.INCOMPLETE_REASONING: 1,
    }
    assert counts.gap_failures == {FailureClass.ANSWER_DECOUPLING: 2, FailureClass.PATH_DEVIATION: 1}
    assert counts.inconsistent == 1
