"""The three dependencies of a reliable response, and the six comparisons that test them (appendix D.3).

A comparison states which of two outputs a model should prefer under a given input. Training sums the six comparisons
and the switch test counts them; both use the table in this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING

from eclose.values.family import ViewKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Edge(StrEnum):
    """A dependency inside a response that an edit of the input should carry through.

    Examples:
        >>> [edge.value for edge in Edge]
        ['S', 'T', 'C']
    """

    SUPPORT = "S"
    """Evidence to the first affected step."""
    ALIGNMENT = "T"
    """Question to trace."""
    CLOSURE = "C"
    """Trace to answer."""


class Direction(StrEnum):
    """The input under which a comparison is made: the original or its counterfactual.

    Examples:
        >>> Direction("c") is Direction.COUNTERFACTUAL
        True
    """

    ORIGINAL = "o"
    COUNTERFACTUAL = "c"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A preference: under one input, the output of one view is better than the output of another.

    The input is described by the views that its parts come from. The compared output follows from the edge: a step for
    S, a trace for T, an answer for C.

    Examples:
        >>> from eclose_train.families.comparisons import ALL_COMPARISONS
        >>> first = ALL_COMPARISONS[0]
        >>> first.edge.name, first.preferred.value, first.dispreferred.value
        ('SUPPORT', 'Gold', 'Evidence-CF')
    """

    edge: Edge
    direction: Direction
    question: ViewKind
    """View that the question comes from."""
    evidence: ViewKind
    """View that the passages come from."""
    trace: ViewKind | None
    """View whose trace is part of the input: its shared prefix for S, the full trace for C; None for T."""
    preferred: ViewKind
    dispreferred: ViewKind


def _build_comparison(edge: Edge, direction: Direction) -> Comparison:
    # T compares across the question edit, S and C across the evidence edit.
    counterfactual = ViewKind.QUESTION_CF if edge is Edge.ALIGNMENT else ViewKind.EVIDENCE_CF
    pair = (ViewKind.GOLD, counterfactual)
    preferred, dispreferred = pair if direction is Direction.ORIGINAL else pair[::-1]
    return Comparison(
        edge,
        direction,
        # Only the part that the edge starts from follows the direction; all others stay those of the gold view.
        question=preferred if edge is Edge.ALIGNMENT else ViewKind.GOLD,
        evidence=preferred if edge is Edge.SUPPORT else ViewKind.GOLD,
        trace={Edge.SUPPORT: ViewKind.GOLD, Edge.ALIGNMENT: None, Edge.CLOSURE: preferred}[edge],
        preferred=preferred,
        dispreferred=dispreferred,
    )


ALL_COMPARISONS: tuple[Comparison, ...] = tuple(_build_comparison(*pair) for pair in product(Edge, Direction))
"""The six comparisons of E-Closure (appendix D.3): S.o, S.c, T.o, T.c, C.o, C.c."""


def margin_weights(
    edges: Iterable[Edge] = tuple(Edge),
    directions: Iterable[Direction] = tuple(Direction),
    total: float = 1.0,
) -> dict[tuple[Edge, Direction], float]:
    """Divide the total weight equally among the selected comparisons, so that every ablation spends the same weight."""
    # lambda / 6 for all six, lambda / 4 without an edge, lambda / 3 for one direction (appendix D.3).
    pairs = list(product(edges, directions))
    return {pair: total / len(pairs) for pair in pairs}


def preference_switches(values: Mapping[Direction, float]) -> bool:
    """Return whether the preference follows the input in both directions; a tie counts as failure (appendix D.7.1)."""
    return all(values[direction] > 0 for direction in Direction)
