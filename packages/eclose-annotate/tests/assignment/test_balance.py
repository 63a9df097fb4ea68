from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eclose_annotate.assignment import balance
from eclose_annotate.assignment.balance import (
    AssignmentBalance,
    PlacedItem,
    annotators_in_group,
    deal_items_to_groups,
    list_annotator_groups,
)

SYSTEMS = 3


def hands(counts, random):
    return [
        [PlacedItem(0, position, random.randrange(SYSTEMS), random.randrange(1_000)) for _ in range(count)]
        for position, count in enumerate(counts)
    ]


def loads(questions):
    return Counter(number for question in questions for hand in question for number in annotators_in_group(hand.group))


def within(questions):
    """How often each annotator meets each question."""
    return Counter(
        (hand.question, number)
        for question in questions
        for hand in question
        for number in annotators_in_group(hand.group)
    )


def sum_of_squares(questions):
    groups = Counter(hand.group for question in questions for hand in question)
    cells = Counter(
        (hand.system, n) for question in questions for hand in question for n in annotators_in_group(hand.group)
    )
    return sum(n * n for n in (*groups.values(), *cells.values()))


def test_groups_and_members():
    assert [list(annotators_in_group(group)) for group in list_annotator_groups(3, 2)] == [[0, 1], [0, 2], [1, 2]]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=10), st.integers(3, 8), st.integers(1, 3), st.integers(0, 1_000)
)
def test_exchanges_touch_neither_loads_nor_repeats_and_their_count_is_right(counts, people, size, seed):
    questions = hands(counts, Random(seed))
    deal_items_to_groups(questions, people=people, size=size, systems=SYSTEMS)
    before, squares, repeats = loads(questions), sum_of_squares(questions), max(within(questions).values())
    assert max(before.values()) - min(before[number] for number in range(people)) <= 1
    table = AssignmentBalance(questions, people=people, size=size, systems=SYSTEMS)
    excess = table.excess
    table.even_out(Random(seed))
    assert loads(questions) == before
    assert max(within(questions).values()) == repeats
    assert all(hand.group.bit_count() == size for question in questions for hand in question)
    assert excess - table.excess == squares - sum_of_squares(questions)
    assert table.excess <= excess
    # Counted anew, the excess is what was kept up.
    assert AssignmentBalance(questions, people=people, size=size, systems=SYSTEMS).excess == table.excess


@pytest.mark.parametrize("tries", [1, 7, 50, 51, 99])
def test_used_up_tries_leave_the_best_counts_seen(monkeypatch, tries):
    monkeypatch.setattr(balance, "MAX_EXCHANGES", tries)
    monkeypatch.setattr(balance, "EXCESS_SLACK", 1_000)
    questions = hands([3] * 20, Random(1))
    deal_items_to_groups(questions, people=6, size=2, systems=SYSTEMS)
    table = AssignmentBalance(questions, people=6, size=2, systems=SYSTEMS)
    excess = table.excess
    assert excess > 0
    table.even_out(Random(1))
    assert table.excess <= excess


def test_equal_counts_have_no_excess():
    assert balance._excess([2, 3, 2, 3]) == 0
    assert balance._excess([1, 3]) == 2  # 1 + 9 against 4 + 4
    assert balance._excess([0, 0]) == 0
