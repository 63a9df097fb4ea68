import numpy as np

from eclose.stats.arrays import divide_or_nan, float_or_none, number_distinct_labels, sum_by_group


def test_ratio_divides_and_leaves_what_has_no_denominator_undefined():
    quotient = divide_or_nan(np.array([[1.0, 0.0], [3.0, 4.0]]), np.array([2.0, 0.0]))
    np.testing.assert_array_equal(quotient, [[0.5, np.nan], [1.5, np.nan]])


def test_scalar_turns_undefined_into_none():
    assert float_or_none(np.float64("nan")) is None
    assert float_or_none(np.float64(0.0)) == 0.0
    assert type(float_or_none(np.float64(0.5))) is float


def test_codes_number_labels_in_order_of_first_appearance():
    coded, labels = number_distinct_labels(["b", "a", "b", None, "a"])
    assert coded.tolist() == [0, 1, 0, 2, 1]
    assert labels == ["b", "a", None]


def test_codes_of_nothing():
    coded, labels = number_distinct_labels([])
    assert coded.dtype == np.intp
    assert (len(coded), labels) == (0, [])


def test_sum_by_adds_rows_within_groups():
    rng = np.random.default_rng(0)
    groups, values = rng.integers(4, size=30), rng.normal(size=(30, 2, 3))
    sums = sum_by_group(groups, values, 6)
    assert sums.shape == (6, 2, 3)
    for group in range(6):
        expected = sum((row for row, of in zip(values, groups, strict=True) if of == group), np.zeros((2, 3)))
        np.testing.assert_allclose(sums[group], expected, atol=1e-12)


def test_sum_by_of_no_rows_is_zero_in_every_group():
    np.testing.assert_array_equal(sum_by_group(np.zeros(0, np.intp), np.zeros((0, 2, 2)), 3), np.zeros((3, 2, 2)))
