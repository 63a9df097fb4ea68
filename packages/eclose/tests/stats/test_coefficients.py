import warnings

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    cohen_kappa_score,
    f1_score,
    precision_score,
    recall_score,
)

from eclose.stats import coefficients as stat

SYMMETRIC = [
    stat.raw_agreement,
    stat.majority_prevalence,
    stat.specific_agreement(0),
    stat.specific_agreement(1),
    stat.pair_alpha,
    stat.cohen_kappa,
    stat.gwet_ac1,
    stat.failure_f1,
]
BINARY = [
    *SYMMETRIC,
    stat.failure_precision,
    stat.failure_recall,
    stat.balanced_accuracy,
    stat.failure_rate_difference,
]

seeds = pytest.mark.parametrize("seed", range(12))
ratings = st.integers(2, 4).flatmap(
    lambda judges: arrays(np.intp, st.tuples(st.integers(1, 12), st.just(judges)), elements=st.integers(-1, 2))
)
small_tables = arrays(float, (2, 2), elements=st.integers(0, 6).map(float))


def two_judges(seed, categories=2, cases=80):
    """Labels of a judge and of one who often copies the first, every label used."""
    rng = np.random.default_rng(seed)
    first = np.concatenate([np.arange(categories), rng.integers(categories, size=cases)])
    second = np.where(rng.random(len(first)) < 0.6, first, rng.integers(categories, size=len(first)))
    return first, second


def table_of(first, second, categories=2):
    return stat.judge_pair_tables(first, second, categories).sum(axis=0)


# A table worked out by hand: the first judge says 0, 0, 0, 1 x 7; they agree on one 0 and six 1s.
WORKED = [[1, 2], [1, 6]]


@pytest.mark.parametrize(
    "statistic,expected",
    [
        (stat.raw_agreement, 7 / 10),
        (stat.majority_prevalence, 15 / 20),
        # Label 0 was given 3 + 2 times and confirmed in 2 of those, label 1 7 + 8 times and 12 of those.
        (stat.specific_agreement(0), 2 / 5),
        (stat.specific_agreement(1), 12 / 15),
        # Coincidences [[2, 3], [3, 12]], n = 20: observed 6, expected 400 - 5² - 15² = 150; 1 - 19 · 6/150.
        (stat.pair_alpha, 36 / 150),
        # Chance: (3 · 2 + 7 · 8)/100 = 62/100; (70 - 62)/(100 - 62).
        (stat.cohen_kappa, 8 / 38),
        # Prevalence 1/4 and 3/4, so chance is 2 · 3/16 = 3/8; (7/10 - 3/8)/(5/8) = (28 - 15)/25.
        (stat.gwet_ac1, 13 / 25),
        (stat.failure_f1, 2 / (2 + 2 + 1)),
        (stat.failure_precision, 1 / 2),
        (stat.failure_recall, 1 / 3),
        # (1/3 + 6/7)/2 = (7 + 18)/42.
        (stat.balanced_accuracy, 25 / 42),
        (stat.failure_rate_difference, (2 - 3) / 10),
    ],
)
def test_a_table_worked_out_by_hand(statistic, expected):
    assert statistic(WORKED) == pytest.approx(expected, abs=1e-15)


def test_ac1_of_three_categories_by_hand():
    # Seven of ten agree. Both judges give 3, 4, 3, so chance is (0.3 · 0.7 + 0.4 · 0.6 + 0.3 · 0.7)/(3 - 1)
    # = 0.33, and AC1 = (0.70 - 0.33)/(1 - 0.33) = 37/67.
    assert stat.gwet_ac1([[2, 1, 0], [0, 3, 1], [1, 0, 2]]) == pytest.approx(37 / 67, abs=1e-15)


def test_alpha_of_three_judges_with_a_gap_by_hand():
    # Cases (0, 0, 1), (1, 1, missing), (0, missing, missing). The last has no pairs.
    # First case, three values, each pair weighs 1/2: o00 = 2/2 = 1, o01 = o10 = 2/2 = 1. Second: o11 = 2.
    ratings = np.array([[0, 0, 1], [1, 1, -1], [0, -1, -1]])
    tables = stat.coincidence_tables(ratings, 2)
    np.testing.assert_array_equal(tables, [[[1, 1], [1, 0]], [[0, 0], [0, 2]], [[0, 0], [0, 0]]])
    # n = 5, marginals 2 and 3: observed 2, expected 25 - 4 - 9 = 12; 1 - 4 · 2/12 = 1/3.
    assert stat.nominal_alpha(tables.sum(axis=0)) == pytest.approx(1 / 3, abs=1e-15)


@seeds
def test_two_judges_as_scikit_learn_sees_them(seed):
    first, second = two_judges(seed)
    table = table_of(first, second)
    for statistic, oracle in (
        (stat.raw_agreement, accuracy_score(first, second)),
        (stat.cohen_kappa, cohen_kappa_score(first, second)),
        (stat.failure_f1, f1_score(first, second, pos_label=0)),
        (stat.failure_precision, precision_score(first, second, pos_label=0)),
        (stat.failure_recall, recall_score(first, second, pos_label=0)),
        (stat.balanced_accuracy, balanced_accuracy_score(first, second)),
    ):
        assert statistic(table) == pytest.approx(oracle, abs=1e-9)


@seeds
def test_kappa_of_several_categories_is_scikit_learns(seed):
    first, second = two_judges(seed, categories=4)
    assert stat.cohen_kappa(table_of(first, second, 4)) == pytest.approx(cohen_kappa_score(first, second), abs=1e-9)


@seeds
@pytest.mark.parametrize("judges", [2, 3, 5])
def test_alpha_is_the_krippendorff_packages(seed, judges):
    rng = np.random.default_rng(seed)
    categories = int(rng.integers(2, 6))
    truth = rng.integers(categories, size=40)
    ratings = np.where(
        rng.random((40, judges)) < 0.5, truth[:, np.newaxis], rng.integers(categories, size=(40, judges))
    )
    ratings[rng.random(ratings.shape) < 0.25] = stat.MISSING_CODE
    oracle = krippendorff.alpha(
        np.where(ratings.T == stat.MISSING_CODE, np.nan, ratings.T), level_of_measurement="nominal"
    )
    alpha = stat.nominal_alpha(stat.coincidence_tables(ratings, categories).sum(axis=0))
    assert alpha == pytest.approx(oracle, abs=1e-9)


@seeds
def test_alpha_of_two_judges_needs_only_their_table(seed):
    first, second = two_judges(seed, categories=3)
    oracle = krippendorff.alpha(np.stack([first, second]).astype(float), level_of_measurement="nominal")
    assert stat.pair_alpha(table_of(first, second, 3)) == pytest.approx(oracle, abs=1e-9)


@seeds
def test_shares_counted_label_by_label(seed):
    first, second = two_judges(seed)
    table = table_of(first, second)
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    for category in (0, 1):
        # Each time a judge gives the label, ask whether the other confirms it.
        confirmed = [b == category for a, b in pairs if a == category] + [
            a == category for a, b in pairs if b == category
        ]
        assert stat.specific_agreement(category)(table) == pytest.approx(sum(confirmed) / len(confirmed), abs=1e-12)
    given_labels = [label for pair in pairs for label in pair]
    most = max(given_labels.count(0), given_labels.count(1)) / len(given_labels)
    assert stat.majority_prevalence(table) == pytest.approx(most, abs=1e-12)
    difference = sum(b == 0 for _, b in pairs) / len(pairs) - sum(a == 0 for a, _ in pairs) / len(pairs)
    assert stat.failure_rate_difference(table) == pytest.approx(difference, abs=1e-12)


@seeds
@pytest.mark.parametrize("categories", [2, 3, 5])
def test_ac1_counted_case_by_case(seed, categories):
    first, second = two_judges(seed, categories)
    cases = len(first)
    agreed = sum(a == b for a, b in zip(first, second, strict=True)) / cases
    chance = 0.0
    for category in range(categories):
        share = (sum(a == category for a in first) / cases + sum(b == category for b in second) / cases) / 2
        chance += share * (1 - share)
    chance /= categories - 1
    expected = (agreed - chance) / (1 - chance)
    assert stat.gwet_ac1(table_of(first, second, categories)) == pytest.approx(expected, abs=1e-12)


def test_a_case_either_judge_skipped_counts_nowhere():
    tables = stat.judge_pair_tables(np.array([0, -1, 1, -1]), np.array([1, 1, -1, -1]), 2)
    np.testing.assert_array_equal(tables[0], [[0, 1], [0, 0]])
    assert tables[1:].sum() == 0


@pytest.mark.parametrize("statistic", BINARY)
def test_nothing_judged_is_undefined(statistic):
    assert statistic(np.zeros((2, 2))) is None


@pytest.mark.parametrize(
    "statistic,table",
    [
        (stat.pair_alpha, [[0, 0], [0, 9]]),
        (stat.cohen_kappa, [[0, 0], [0, 9]]),
        (stat.failure_f1, [[0, 0], [0, 9]]),
        (stat.specific_agreement(0), [[0, 0], [0, 9]]),
        (stat.failure_precision, [[0, 3], [0, 9]]),
        (stat.failure_recall, [[0, 0], [3, 9]]),
        (stat.balanced_accuracy, [[0, 0], [3, 9]]),
    ],
)
def test_what_a_table_cannot_say_is_undefined_and_not_zero(statistic, table):
    assert statistic(table) is None


def test_ac1_stays_defined_when_all_labels_are_alike():
    assert stat.gwet_ac1([[0, 0], [0, 9]]) == 1.0


@pytest.mark.slow
@given(st.lists(small_tables, min_size=1, max_size=5))
def test_a_stack_of_tables_is_each_table_for_itself(tables):
    for statistic in BINARY:
        expected = [np.nan if (value := statistic(table)) is None else value for table in tables]
        np.testing.assert_array_equal(statistic.over(np.stack(tables)), expected)


@pytest.mark.slow
@given(ratings, st.randoms(use_true_random=False))
def test_relabelling_raters_categories_and_cases_leaves_alpha_unchanged(matrix, random):
    alpha = stat.nominal_alpha(stat.coincidence_tables(matrix, 3).sum(axis=0))
    cases, judges = (random.sample(range(size), size) for size in matrix.shape)
    categories = np.array([*random.sample(range(3), 3), stat.MISSING_CODE])
    shuffled = categories[matrix[np.ix_(cases, judges)]]
    assert stat.nominal_alpha(stat.coincidence_tables(shuffled, 3).sum(axis=0)) == pytest.approx(alpha, abs=1e-9)


@pytest.mark.slow
@given(ratings)
def test_a_rater_may_differ_from_case_to_case(matrix):
    """Alpha knows values, not who gave them: sorting each case's values changes nothing."""
    tables = stat.coincidence_tables(matrix, 3)
    np.testing.assert_array_equal(tables, stat.coincidence_tables(np.sort(matrix, axis=1), 3))
    np.testing.assert_array_equal(tables, np.swapaxes(tables, 1, 2))


@pytest.mark.slow
@given(small_tables)
def test_swapping_two_judges_leaves_agreement_unchanged_and_turns_the_difference(table):
    for statistic in SYMMETRIC:
        assert statistic(table.T) == statistic(table)
    assert stat.failure_precision(table.T) == stat.failure_recall(table)
    difference = stat.failure_rate_difference(table)
    assert stat.failure_rate_difference(table.T) == (None if difference is None else -difference)


@given(small_tables, st.integers(2, 4))
def test_duplicating_every_case_leaves_all_but_alpha_unchanged(table, times):
    # Alpha corrects for the number of values, (n - 1)/n, and so may move.
    for statistic in BINARY:
        if statistic is not stat.pair_alpha:
            assert statistic(table * times) == pytest.approx(statistic(table), abs=1e-12)


def test_a_statistic_keeps_the_name_and_words_of_its_formula():
    assert stat.gwet_ac1.__name__ == "gwet_ac1"
    assert stat.gwet_ac1.__doc__.startswith("Return Gwet's AC1")


def test_undefined_statistics_pass_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for statistic in BINARY:
            statistic.over(np.zeros((3, 2, 2)))
