"""What is trained for: anchors to be likely, and comparisons to be won by a margin. A table, not a class per method.

SFT, CF-SFT, response margins, E-Closure and its ablations differ only in which scores they take and how they weigh them
(appendices C.3 and D.3). Margin weights always sum to the margin weight lambda, whatever is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from eclose.core.edges import COMPARISONS, Direction, Edge, margin_weights
from eclose.core.family import ViewKind
from eclose.likelihood.family_scores import anchor_name, response_name, side_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eclose.likelihood.family_scores import FamilyScores
    from eclose.likelihood.spans import SpanScore


class Method(StrEnum):
    """The objectives of the paper."""

    SFT = "sft"
    CF_SFT = "cf_sft"
    RESPONSE_MARGIN = "rm"
    E_CLOSURE = "e_closure"
    WITHOUT_SUPPORT = "e_closure-S"
    WITHOUT_ALIGNMENT = "e_closure-T"
    WITHOUT_CLOSURE = "e_closure-C"
    ONE_SIDED = "e_closure-one_sided"


@dataclass(frozen=True, slots=True)
class Hinge:
    """How far a comparison is to be won, and how softly that is asked: one value for every edge."""

    target: float = 0.5
    """gamma"""
    smoothing: float = 0.1
    """beta"""

    def __post_init__(self) -> None:
        """Both must be positive: a target of nothing asks for nothing."""
        if self.target <= 0 or self.smoothing <= 0:
            raise ValueError("target and smoothing must be positive")


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison: this score is to exceed that one."""

    name: str
    preferred: str
    dispreferred: str
    weight: float
    hinge: Hinge


@dataclass(frozen=True)
class Loss:
    """The loss of one family, and what it is made of."""

    total: Tensor
    generation: Tensor
    margin: Tensor
    margins: dict[str, Tensor]
    """The difference each comparison was won or lost by."""
    targets: dict[str, float]
    """How far each was to be won."""


@dataclass(frozen=True)
class Objective:
    """Anchors and terms."""

    method: Method
    anchors: tuple[ViewKind, ...]
    terms: tuple[Term, ...]

    def scores(self, pack: FamilyScores) -> list[SpanScore]:
        """The scores a family needs under this objective, each once."""
        wanted = {name for term in self.terms for name in (term.preferred, term.dispreferred)}
        found = pack.anchors(self.anchors)
        kept = [c for c in COMPARISONS if side_name(c.edge, c.direction, preferred=True) in wanted]
        found += pack.comparisons(kept)
        crossed = [(a, g) for a in ViewKind for g in ViewKind if a is not g and response_name(a, g) in wanted]
        return found + pack.responses(crossed)

    def loss(self, values: Mapping[str, Tensor]) -> Loss:
        """The loss of one family from its scores: generation plus weighted smooth hinges."""
        generation = -torch.stack([values[anchor_name(kind)] for kind in self.anchors]).mean()
        margins = {term.name: values[term.preferred] - values[term.dispreferred] for term in self.terms}
        margin = torch.zeros_like(generation)
        for term in self.terms:
            margin = margin + term.weight * smooth_hinge(term.hinge.target - margins[term.name], term.hinge.smoothing)
        targets = {term.name: term.hinge.target for term in self.terms}
        return Loss(generation + margin, generation, margin, margins, targets)


def smooth_hinge(shortfall: Tensor, smoothing: float) -> Tensor:
    """h_beta(t) = beta log(1 + exp(t / beta))."""
    return smoothing * F.softplus(shortfall / smoothing)


_GOLD, _EVIDENCE, _QUESTION = ViewKind
_KEPT: dict[Method, tuple[tuple[Edge, ...], tuple[Direction, ...]]] = {
    Method.E_CLOSURE: (tuple(Edge), tuple(Direction)),
    Method.WITHOUT_SUPPORT: ((Edge.ALIGNMENT, Edge.CLOSURE), tuple(Direction)),
    Method.WITHOUT_ALIGNMENT: ((Edge.SUPPORT, Edge.CLOSURE), tuple(Direction)),
    Method.WITHOUT_CLOSURE: ((Edge.SUPPORT, Edge.ALIGNMENT), tuple(Direction)),
    Method.ONE_SIDED: (tuple(Edge), (Direction.ORIGINAL,)),
}


def objective(
    method: Method, margin_weight: float = 1.0, hinges: Mapping[str, Hinge] | Hinge | None = None
) -> Objective:
    """An objective by its name; hinges may be given per edge ("S", "T", "C") or for all."""
    if method is Method.SFT:
        return Objective(method, (_GOLD,), ())
    if method is Method.CF_SFT:
        return Objective(method, tuple(ViewKind), ())
    if method is Method.RESPONSE_MARGIN:
        return Objective(method, tuple(ViewKind), tuple(_response_terms(margin_weight, _hinge(hinges, "response"))))
    edges, directions = _KEPT[method]
    terms = [
        Term(
            f"{edge.value}_{direction.value}",
            side_name(edge, direction, preferred=True),
            side_name(edge, direction, preferred=False),
            weight,
            _hinge(hinges, edge.value),
        )
        for (edge, direction), weight in margin_weights(edges, directions, margin_weight).items()
    ]
    return Objective(method, tuple(ViewKind), tuple(terms))


def _hinge(hinges: Mapping[str, Hinge] | Hinge | None, edge: str) -> Hinge:
    if isinstance(hinges, Hinge):
        return hinges
    return (hinges or {}).get(edge, Hinge())


def _response_terms(margin_weight: float, hinge: Hinge) -> Iterable[Term]:
    """Whole responses, evidence edits twice as heavy as question edits: 2 : 2 : 1 : 1."""
    for other, share in ((_EVIDENCE, 2), (_QUESTION, 1)):
        letter = "e" if other is _EVIDENCE else "q"
        for asked, missed in ((_GOLD, other), (other, _GOLD)):
            direction = Direction.ORIGINAL if asked is _GOLD else Direction.COUNTERFACTUAL
            yield Term(
                f"R{letter}_{direction.value}",
                anchor_name(asked),
                response_name(asked, missed),
                margin_weight * share / 6,
                hinge,
            )
