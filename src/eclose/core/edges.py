"""The three dependencies a reliable response rests on, and the six comparisons that test them.

A comparison says: under this input, this output is to be preferred to that one. Training sums them, the switch
test counts them; both read the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING

from eclose.core.family import ViewKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Edge(StrEnum):
    """One dependency of a response."""

    SUPPORT = "S"
    """Evidence to the first affected step."""
    ALIGNMENT = "T"
    """Question to trace."""
    CLOSURE = "C"
    """Trace to answer."""


class Direction(StrEnum):
    """Which of the two paired inputs is given."""

    ORIGINAL = "o"
    COUNTERFACTUAL = "c"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Under this input, prefer the output of one view to that of another.

    The input is named by the views it takes its parts from. What is compared follows from the edge: a step, a
    trace or an answer.
    """

    edge: Edge
    direction: Direction
    question: ViewKind
    evidence: ViewKind
    trace: ViewKind | None
    """The view whose trace is given: its shared prefix for S, all of it for C, nothing for T."""
    preferred: ViewKind
    dispreferred: ViewKind


def _comparison(edge: Edge, direction: Direction) -> Comparison:
    gold = ViewKind.GOLD
    other = ViewKind.QUESTION_CF if edge is Edge.ALIGNMENT else ViewKind.EVIDENCE_CF
    given, missed = (gold, other) if direction is Direction.ORIGINAL else (other, gold)
    return Comparison(
        edge,
        direction,
        question=given if edge is Edge.ALIGNMENT else gold,
        evidence=given if edge is Edge.SUPPORT else gold,
        trace={Edge.SUPPORT: gold, Edge.ALIGNMENT: None, Edge.CLOSURE: given}[edge],
        preferred=given,
        dispreferred=missed,
    )


COMPARISONS: tuple[Comparison, ...] = tuple(_comparison(*pair) for pair in product(Edge, Direction))
"""The six comparisons of E-Closure (appendix D.3): S.o, S.c, T.o, T.c, C.o, C.c."""


def margin_weights(
    edges: Iterable[Edge] = tuple(Edge),
    directions: Iterable[Direction] = tuple(Direction),
    total: float = 1.0,
) -> dict[tuple[Edge, Direction], float]:
    """Kept comparisons share the total equally, so every variant spends the same weight."""
    kept = list(product(edges, directions))
    return {pair: total / len(kept) for pair in kept}


@dataclass(frozen=True, slots=True)
class Margin:
    """The score difference of a comparison, with its weight and target in training."""

    comparison: Comparison
    value: float
    weight: float = 1 / 6
    target: float = 0.5


def switched(values: Mapping[Direction, float]) -> bool:
    """Whether the preference follows the input both ways. A tie is a failure (appendix D.7.1)."""
    return all(values[direction] > 0 for direction in Direction)
