"""The six comparisons and the weights of the ablations, as appendix D.3 lists them."""

from itertools import product

import pytest

from eclose.values.family import ViewKind
from eclose_train import Comparison, Direction, Edge
from eclose_train.families.comparisons import ALL_COMPARISONS, margin_weights, preference_switches

GOLD, EVIDENCE, QUESTION = ViewKind.GOLD, ViewKind.EVIDENCE_CF, ViewKind.QUESTION_CF
S, T, C = Edge
O, R = Direction  # noqa: E741 - the paper's letter


def test_the_table_of_the_paper():
    assert (
        #           input: q, D, given trace           output: preferred over dispreferred
        Comparison(S, O, GOLD, GOLD, GOLD, preferred=GOLD, dispreferred=EVIDENCE),
        Comparison(S, R, GOLD, EVIDENCE, GOLD, preferred=EVIDENCE, dispreferred=GOLD),
        Comparison(T, O, GOLD, GOLD, None, preferred=GOLD, dispreferred=QUESTION),
        Comparison(T, R, QUESTION, GOLD, None, preferred=QUESTION, dispreferred=GOLD),
        Comparison(C, O, GOLD, GOLD, GOLD, preferred=GOLD, dispreferred=EVIDENCE),
        Comparison(C, R, GOLD, GOLD, EVIDENCE, preferred=EVIDENCE, dispreferred=GOLD),
    ) == ALL_COMPARISONS


@pytest.mark.parametrize(
    ("edges", "directions", "terms", "weight"),
    [
        ((S, T, C), (O, R), 6, 1 / 6),
        ((T, C), (O, R), 4, 1 / 4),
        ((S, C), (O, R), 4, 1 / 4),
        ((S, T), (O, R), 4, 1 / 4),
        ((S, T, C), (O,), 3, 1 / 3),
    ],
)
def test_every_variant_spends_the_same_weight(edges, directions, terms, weight):
    weights = margin_weights(edges, directions)
    assert set(weights) == set(product(edges, directions))
    assert list(weights.values()) == [weight] * terms
    assert sum(margin_weights(edges, directions, total=2).values()) == pytest.approx(2)


def test_defaults_are_the_papers():
    assert margin_weights() == {(comparison.edge, comparison.direction): 1 / 6 for comparison in ALL_COMPARISONS}


@pytest.mark.parametrize(
    ("original", "counterfactual", "expected"),
    [(1, 1, True), (1, -1, False), (-1, 1, False), (0, 1, False), (1, 0, False)],
)
def test_switching_needs_both_directions(original, counterfactual, expected):
    assert preference_switches({O: original, R: counterfactual}) is expected
