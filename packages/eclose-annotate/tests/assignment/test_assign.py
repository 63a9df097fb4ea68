from collections import Counter, defaultdict
from itertools import combinations, pairwise
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eclose.errors import SettingError
from eclose.values.identity import content_hash
from eclose_annotate.assignment.assign import (
    AssignmentCountRange,
    AssignmentItem,
    AssignmentPlan,
    _separate,
    assign_to_annotators,
    order_annotator_queue,
)

SIX = ("A1", "A2", "A3", "A4", "A5", "A6")
patient = settings(deadline=None, max_examples=25)


def grid(questions, systems):
    return [AssignmentItem(f"q{q}/m{m}", f"q{q}", f"m{m}") for q in range(questions) for m in range(systems)]


def rows(assignment):
    return [[task.annotator, task.position, task.item.id] for task in assignment.tasks]


def people_of(assignment):
    annotators = defaultdict(list)
    for task in assignment.tasks:
        annotators[task.item.id].append(task.annotator)
    return annotators


@st.composite
def projects(draw, crowded=False):
    """Questions with different numbers of responses, and as many annotators as they need, or fewer."""
    size = draw(st.integers(1, 3))
    people = draw(st.integers(max(2, size), 9))
    most = 6 if crowded else people // size
    responses = draw(st.lists(st.integers(1, most), min_size=1, max_size=12))
    systems = Random(draw(st.integers(0, 99)))
    items = [
        AssignmentItem(f"q{q}/{m}", f"q{q}", f"m{system}")
        for q, count in enumerate(responses)
        for m, system in enumerate(systems.choices(range(4), k=count))
    ]
    return items, [f"A{number}" for number in range(people)], size


def test_at_the_size_of_the_paper_all_counts_are_as_equal_as_they_can_be():
    assignment = assign_to_annotators(grid(866, 3), SIX)
    # 2,598 responses x 2 / 6; / 15 pairs = 173.2; 866 x 2 / 6 = 288.67.
    assert Counter(task.annotator for task in assignment.tasks) == dict.fromkeys(SIX, 866)
    pairs = Counter(map(tuple, people_of(assignment).values()))
    assert set(pairs) == set(combinations(SIX, 2))
    assert set(pairs.values()) == {173, 174}
    cells = Counter((task.annotator, task.item.system) for task in assignment.tasks)
    assert len(cells) == 18
    assert set(cells.values()) == {288, 289}
    assert set(Counter((task.annotator, task.item.question) for task in assignment.tasks).values()) == {1}


@pytest.mark.parametrize("questions", [5, 10, 15, pytest.param(30, marks=pytest.mark.slow), 31, 52])
def test_small_projects_are_even_too(questions):
    assignment = assign_to_annotators(grid(questions, 3), SIX)
    summary = assignment.summary()
    cells = Counter((task.item.system, task.annotator) for task in assignment.tasks)
    systems = [[cells[system, name] for name in SIX] for system in {system for system, _ in cells}]
    for counts in (summary.loads.values(), summary.groups.values(), *systems):
        assert max(counts) - min(counts) <= 1


@patient
@given(projects(), st.integers(0, 3))
def test_everybody_has_a_fair_share_and_no_question_twice(project, seed):
    items, names, size = project
    assignment = assign_to_annotators(items, names, per_response=size, seed=seed)
    people = people_of(assignment)
    assert set(people) == {item.id for item in items}
    assert all(len(set(group)) == len(group) == size for group in people.values())
    assert max(Counter((task.annotator, task.item.question) for task in assignment.tasks).values()) == 1
    loads = [sum(task.annotator == name for task in assignment.tasks) for name in names]
    assert max(loads) - min(loads) <= 1
    for name in names:
        places = [task.position for task in assignment.tasks if task.annotator == name]
        assert places == list(range(1, len(places) + 1))


@pytest.mark.slow
@patient
@given(projects(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(project, random):
    items, names, size = project
    expected = assign_to_annotators(items, names, per_response=size)
    shuffled = random.sample(items, len(items))
    assert assign_to_annotators(iter(shuffled), random.sample(names, len(names)), per_response=size) == expected


def test_the_same_seed_gives_the_same_bytes_on_every_machine():
    assignment = assign_to_annotators(grid(7, 3), SIX)
    assert assign_to_annotators(grid(7, 3), SIX, seed=43).tasks != assignment.tasks
    # A change here changes every project that has not been launched: say so in the changelog.
    assert content_hash(rows(assignment)) == "sha256:574239a2d2a6ca6ceab271d7eb0db53dc9879be6479602e1a7ad13245bd7e0ad"


def test_annotators_have_orders_of_their_own():
    assignment = assign_to_annotators(grid(40, 3), SIX)
    orders = [[item.question for item in items] for items in assignment.queues.values()]
    assert len(set(map(tuple, orders))) == 6
    assert all(order != sorted(order) for order in orders)
    for name, items in assignment.queues.items():
        assert order_annotator_queue(reversed(items), name) == items
        assert order_annotator_queue(items, name, seed=43) != items


def test_an_order_is_a_fair_shuffle():
    # The mean place of 300 of 600 items is 299.5 with a standard error below 10: within five of them.
    items = grid(600, 1)
    places = [rank for rank, item in enumerate(order_annotator_queue(items, "A1")) if int(item.question[1:]) < 300]
    assert abs(sum(places) / 300 - 299.5) < 50


@pytest.mark.parametrize(
    "items, names, size, message",
    [
        ([], SIX, 2, "no responses"),
        (grid(1, 1) * 2, SIX, 2, "response 'q0/m0' occurs twice"),
        (grid(1, 1), ("A1", "A2", "A1"), 2, "annotator 'A1' is named twice"),
        (grid(1, 1), ("A1",), 2, "--per-response 2: is not possible with 1 annotator"),
        (grid(1, 1), SIX, 0, "--per-response 0"),
        (grid(1, 1), map(str, range(60)), 3, "60 annotators form 34,220 groups of 3"),
        (
            grid(1, 4),
            SIX,
            2,
            r"question 'q0' has 4 responses and needs 4 x 2 different annotators, but there are only 6",
        ),
        (grid(3, 4), SIX, 2, r"question 'q0' .* 2 more questions"),
    ],
)
def test_what_cannot_be_assigned_is_refused_with_the_numbers(items, names, size, message):
    with pytest.raises(SettingError, match=message):
        assign_to_annotators(items, names, per_response=size)


def test_the_most_crowded_question_is_named():
    items = [*grid(1, 2), *(AssignmentItem(f"x{n}", "x", "m") for n in range(3)), AssignmentItem("y", "y", "m")]
    with pytest.raises(SettingError, match=r"question 'x' has 3 responses.* 1 more question"):
        assign_to_annotators(items, ("A1", "A2", "A3"))
    assert assign_to_annotators(items, ("A1", "A2", "A3"), share_questions=True).share_questions


@pytest.mark.slow
@patient
@given(projects(crowded=True))
def test_shared_questions_repeat_as_little_as_possible_and_are_counted(project):
    items, names, size = project
    assignment = assign_to_annotators(items, names, per_response=size, share_questions=True)
    sizes = Counter(item.question for item in items).values()
    repeats = sum(len(queue) - len({item.question for item in queue}) for queue in assignment.queues.values())
    assert repeats == sum(max(0, count * size - len(names)) for count in sizes)
    summary = assignment.summary()
    assert summary.load_spread.most - summary.load_spread.least <= 1


@patient
@given(st.lists(st.integers(1, 6), min_size=1, max_size=7), st.integers(0, 20))
@example([3, 2], 0)
@example([4, 3], 0)
@example([5, 1, 1, 1, 1], 0)
@example([3, 3], 0)
def test_items_of_one_question_are_never_neighbours_where_that_can_be(counts, seed):
    items = [AssignmentItem(f"{q}/{n}", f"q{q}", "m") for q, count in enumerate(counts) for n in range(count)]
    order = order_annotator_queue(items, "A7", seed=seed)
    assert sorted(item.id for item in order) == sorted(item.id for item in items)
    neighbours = sum(first.question == second.question for first, second in pairwise(order))
    # n items of one question and m others leave at least n - 1 - m neighbours.
    others = len(items) - max(counts)
    assert neighbours == max(0, max(counts) - 1 - others)
    assert order_annotator_queue(reversed(items), "A7", seed=seed) == order


@pytest.mark.parametrize(
    "given_order, apart",
    [("ABC", "ABC"), ("AABC", "ABAC"), ("ABB", "BAB"), ("AAABB", "ABABA"), ("AAB", "ABA"), ("AAAB", "AABA")],
)
def test_what_is_out_of_place_goes_to_the_nearest_place_that_fits(given_order, apart):
    # AAABB needs two rounds: the third A fits only once the second B has found its place.
    items = [AssignmentItem(str(number), question, "m") for number, question in enumerate(given_order)]
    assert "".join(item.question for item in _separate(items)) == apart


def test_an_adjudicator_meets_a_question_again_a_third_of_the_queue_later():
    # 823 responses as in the paper: three to 50 questions, two to 150, one to 373.
    counts = [3] * 50 + [2] * 150 + [1] * 373
    items = [AssignmentItem(f"{q}/{n}", f"q{q}", "m") for q, count in enumerate(counts) for n in range(count)]
    assert len(items) == 823
    last, gaps = {}, []
    for position, item in enumerate(order_annotator_queue(items, "A7")):
        gaps += [position - last[item.question]] if item.question in last else []
        last[item.question] = position
    assert 200 < min(gaps) <= 823 / 3


@patient
@given(projects(crowded=True))
def test_the_summary_counts_what_was_assigned(project):
    items, names, size = project
    assignment = assign_to_annotators(items, names, per_response=size, share_questions=True)
    summary = assignment.summary()
    groups = Counter(tuple(sorted(group)) for group in people_of(assignment).values())
    assert summary.groups == {group: groups[group] for group in combinations(sorted(names), size)}
    assert summary.loads == {name: len(items) for name, items in assignment.queues.items()}
    assert summary.load_spread == (min(summary.loads.values()), max(summary.loads.values()))
    assert summary.group_spread == (min(summary.groups.values()), max(summary.groups.values()))


def test_an_annotator_without_work_has_an_empty_queue():
    assignment = assign_to_annotators(grid(1, 1), ("A1", "A2", "A3"), per_response=1)
    assert isinstance(assignment, AssignmentPlan)
    assert sorted(map(len, assignment.queues.values())) == [0, 0, 1]
    assert assignment.summary().load_spread == AssignmentCountRange(0, 1)
