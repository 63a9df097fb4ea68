"""Three-valued logic against every completion of the unknowns."""

from itertools import product

import pytest

from eclose.values.three_valued import three_valued_and, three_valued_implies, three_valued_not

LABELS = (True, False, None)


def completions(*labels):
    return product(*((True, False) if label is None else (label,) for label in labels))


def settled(outcomes):
    """What all completions agree on; None when they do not."""
    outcomes = set(outcomes)
    return outcomes.pop() if len(outcomes) == 1 else None


@pytest.mark.parametrize("label", LABELS)
def test_negation_is_what_every_completion_says(label):
    assert three_valued_not(label) is settled(not x for (x,) in completions(label))


@pytest.mark.parametrize("labels", list(product(LABELS, repeat=3)))
def test_conjunction_is_what_every_completion_says(labels):
    assert three_valued_and(labels) is settled(all(world) for world in completions(*labels))


@pytest.mark.parametrize(("condition", "consequence"), list(product(LABELS, repeat=2)))
def test_implication_is_what_every_completion_says(condition, consequence):
    expected = settled(not a or b for a, b in completions(condition, consequence))
    assert three_valued_implies(condition, consequence) is expected


def test_nothing_to_check_holds():
    assert three_valued_and(()) is True
