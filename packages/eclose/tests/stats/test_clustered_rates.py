"""The interval of a rate: exact where cases are single, wide where questions are few, and monotone."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import beta

from eclose.stats import clustered_rates
from eclose.stats.clustered_rates import QuestionHitCounts, beta_survival, clustered_rate
from eclose.stats.coefficients import MISSING_CODE

X = MISSING_CODE


def interval(failures, sizes):
    """The interval of the rate of successes, with so many failures in each question."""
    failures, sizes = np.array(failures, float), np.array(sizes, float)
    return QuestionHitCounts.of(sizes - failures, failures).interval()


def width(ends):
    return ends.high - ends.low


@pytest.mark.parametrize(
    "hits,n", [(0, 100), (1, 100), (2, 100), (30, 60), (59, 60), (40, 40), (0, 1), (1, 1), (880, 1_000)]
)
def test_single_cases_have_the_limits_of_clopper_and_pearson(hits, n):
    estimate = clustered_rate(np.repeat([1, 0], [hits, n - hits]), np.arange(n))
    low = beta.ppf(0.025, hits, n - hits + 1) if hits else 0
    high = beta.isf(0.025, hits + 1, n - hits) if hits < n else 1
    assert estimate.value == hits / n
    assert estimate.interval == pytest.approx((low, high), abs=1e-9)


def test_a_rate_of_nothing_is_undefined():
    assert clustered_rate(np.array([X, X]), np.array([0, 1])) == (None, None, 0)
    empty = QuestionHitCounts.of(np.zeros(3), np.zeros(3))
    assert (empty.value, empty.interval(), empty.repeated(2), empty.cases) == (None, None, None, 0)


def test_unknown_cases_and_questions_without_a_case_do_not_count():
    labelled = clustered_rate(np.array([1, 1, 0]), np.array([0, 0, 1]))
    assert clustered_rate(np.array([1, X, 1, X, 0]), np.array([0, 0, 0, 2, 1])) == labelled


def test_limits_are_those_of_korn_and_graubard_with_the_design_effect_at_the_limit():
    """The upper limit of failures straight from the formula; questions with more cases fail more often."""
    failures, sizes = np.array([0, 1, 9, 2, 0]), np.array([1, 2, 20, 4, 3])
    size = (sizes**2).sum() / sizes.sum()

    def excess(rate):
        single = failures.sum() * (1 - rate) ** 2 + (sizes - failures).sum() * rate**2
        effect = max(((failures - rate * sizes) ** 2).sum() / single, 1)
        return beta.sf(rate, (failures.sum() + size) / effect, (sizes - failures).sum() / effect) - 0.025

    limit = brentq(excess, 0.6, 1 - 1e-9)
    assert QuestionHitCounts.of(failures * 1.0, (sizes - failures) * 1.0).repeated(1).high == pytest.approx(limit)


def test_one_question_with_a_fifth_of_the_cases_counts_as_one_question():
    """300 responses to one question, all hits, and 4 to each of 300, of which 240 hit: the gate passed at 81 %."""
    ends = interval([0, *[4] * 60, *[0] * 240], [300, *[4] * 300])
    assert ends.low < 0.77
    assert ends.high > 0.88


def test_cases_beyond_the_levels_of_subsets_keep_the_interval_monotone(monkeypatch):
    monkeypatch.setattr(clustered_rates, "SUBSETS", 4)
    failures, sizes = np.array([0, 9, 1, 0, 4, 9, 2]), [9, 9, 9, 3, 4, 30, 2]
    before = interval(failures, sizes)
    for position in (0, 2, 3, 5):
        after = interval(failures + np.eye(7)[position], sizes)
        assert after.low <= before.low + 1e-11
        assert after.high <= before.high + 1e-11


@pytest.mark.parametrize("failures", [0, 1, 5, 25, 49, 50])
def test_a_single_question_tells_next_to_nothing(failures):
    """Fifty responses to one question are one question: the interval had no width at all."""
    ends = interval([failures], [50])
    assert width(ends) > 0.94
    assert ends.low <= 1 - failures / 50 <= ends.high


def test_questions_that_agree_throughout_count_once_each():
    assert interval([0] * 10, [8] * 10) == pytest.approx(interval([0] * 10, [1] * 10))
    shared, single = interval([8, 8, *[0] * 28], [8] * 30), interval([1, 1, *[0] * 28], [1] * 30)
    assert shared == pytest.approx(single, abs=0.01)


def test_scattered_failures_tell_that_cases_do_not_share_their_fate():
    # Twelve failures among 90 cases of 30 questions: one each in twelve questions, or three each in four.
    scattered, shared = interval([1] * 12 + [0] * 18, [3] * 30), interval([3] * 4 + [0] * 26, [3] * 30)
    independent = interval([1] * 12 + [0] * 78, [1] * 90)
    assert width(independent) < width(scattered) < 1.25 * width(independent)
    assert width(shared) > 1.5 * width(independent)


@pytest.mark.parametrize("n", [1, 2, 10, 100])
def test_more_failures_never_raise_an_end(n):
    """With 100 questions and a limit of 96.5 %, no failure failed and one failure passed."""
    ends = np.array([interval(np.arange(n) < failures, np.ones(n)) for failures in range(n + 1)])
    assert (np.diff(ends, axis=0) <= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3, 3, 3), (5, 5), (8,), (1, 4, 7), (2, 9), (1, 1, 1, 9)])
def test_one_more_failure_in_whichever_question_never_raises_an_end(sizes):
    ends = {failures: interval(failures, sizes) for failures in product(*(range(size + 1) for size in sizes))}
    for failures, before in ends.items():
        for position, size in enumerate(sizes):
            if failures[position] < size:
                more = (*failures[:position], failures[position] + 1, *failures[position + 1 :])
                assert ends[more].low <= before.low + 1e-11
                assert ends[more].high <= before.high + 1e-11


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_one_more_failure_never_raises_an_end_of_a_larger_sample(data):
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=40))
    failures = [data.draw(st.integers(0, size)) for size in sizes]
    more = [data.draw(st.integers(count, size)) for count, size in zip(failures, sizes, strict=True)]
    before, after = interval(failures, sizes), interval(more, sizes)
    assert after.low <= before.low + 1e-11
    assert after.high <= before.high + 1e-11


def test_without_the_parts_an_outlying_question_would_break_it():
    """Adding a failure to the only question without one lowers the spread more than it raises the mean."""
    before, after = interval([0] + [7] * 9, [8] * 10), interval([1] + [7] * 9, [8] * 10)
    assert after.low <= before.low


def test_hits_and_misses_change_places():
    ends, turned = interval([3, 0, 2, 8], [8] * 4), interval([5, 8, 6, 0], [8] * 4)
    assert (1 - turned.high, 1 - turned.low) == pytest.approx(ends)


def test_the_order_of_cases_does_not_matter():
    draw = np.random.default_rng(1)
    hit, question = draw.integers(-1, 2, 60), draw.integers(0, 15, 60)
    order = draw.permutation(60)
    assert clustered_rate(hit[order], question[order]) == clustered_rate(hit, question)


def test_a_higher_level_gives_a_wider_interval():
    counts = QuestionHitCounts.of(np.array([3.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0]))
    assert width(counts.interval(0.99)) > width(counts.interval()) > width(counts.interval(0.8))


def test_counts_add_up_and_take_single_cases():
    counts = QuestionHitCounts.of(np.array([3.0, 0.0, 3.0, 1.0]), np.array([1.0, 0.0, 1.0, 0.0]))
    assert (counts.questions, counts.hits, counts.cases) == (3, 7, 9)
    more = counts.with_single(misses=5)
    assert (more.questions, more.hits, more.cases) == (8, 7, 14)
    assert more.value < counts.value
    assert counts.with_single() == counts


def test_more_questions_of_the_same_kind_give_a_narrower_interval():
    counts = QuestionHitCounts.of(np.array([8.0] * 27 + [2.0] * 3), np.array([0.0] * 27 + [6.0] * 3))
    four = QuestionHitCounts(tuple((hits, misses, 4 * n) for hits, misses, n in counts.rows))
    assert counts.repeated(4) == pytest.approx(four.interval(), abs=2e-3)
    assert counts.repeated(1) == pytest.approx(counts.interval(), abs=2e-3)
    assert QuestionHitCounts(((1, 0, 5),)).repeated(2).high == 1


def test_probability_of_a_greater_value_is_scipys():
    parameters = [(1, 1), (1, 10), (1, 1e5), (1.4, 0.3), (2, 0.05), (3, 3), (97, 4), (4, 97), (950, 51), (5e4, 5e4)]
    a, b = np.array(parameters).T
    mean = a / (a + b)
    x = mean + np.array([[0.01], [0.3], [0.9]]) * (1 - mean)
    assert beta_survival(x, a, b) == pytest.approx(beta.sf(x, a, b), rel=1e-8, abs=1e-300)


def test_probability_that_does_not_converge_is_an_error_and_no_number():
    with pytest.raises(ArithmeticError, match="incomplete beta function"):
        beta_survival(0.5 + 1e-9, 1e9, 1e9)
