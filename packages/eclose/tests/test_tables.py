"""One test for all rows of a table."""

import pytest

from tests.tables import each_row


def test_all_wrong_rows_of_a_table_are_told_and_no_others():
    @each_row([(1, 2), (2, 2), (3, 4)])
    def equal(first, second):
        assert first == second

    with pytest.raises(AssertionError, match=r"2 of 3 rows:\n\(1, 2\): AssertionError(.|\n)*\(3, 4\): AssertionError"):
        equal()


def test_table_without_a_row_proves_nothing():
    with pytest.raises(AssertionError):
        each_row([])(print)()
