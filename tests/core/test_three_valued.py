"""Three-valued logic against every completion of the unknowns."""

from itertools import product

import pytest

from eclose.core.three_valued import conjunction, implication, negation

LABELS = (True, False, None)


def completions(*labels):
    return product(*((True, False) if label is None else (label,) for label in labels))


def settled(outcomes):
    """What all completions agree on; None when they do not."""
    outcomes = set(outcomes)
    return outcomes.pop() if len(outcomes) == 1 else None


@pytest.mark.parametrize("label", LABELS)
def test_negation_is_what_every_completion_says(label):
    assert negation(label) is settled(not x for (x,) in completions(label))


@pytest.mark.parametrize("labels", list(product(LABELS, repeat=3)))
def test_conjunction_is_what_every_completion_says(labels):
    assert conjunction(labels) is settled(all(world) for world in completions(*labels))


@pytest.mark.parametrize(("condition", "consequence"), list(product(LABELS, repeat=2)))
def test_implication_is_what_every_completion_says(condition, consequence):
    expected = settled(not a or b for a, b in completions(condition, consequence))
    assert implication(condition, consequence) is expected


def test_nothing_to_check_holds():
    assert conjunction(()) is True
