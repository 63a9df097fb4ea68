"""Training objectives: anchor responses to make likely, and comparisons to win by a margin.

SFT, CF-SFT, response margins, E-Closure and its ablations differ only in which scores they use and how they weight them
(appendices C.3 and D.3), so one class and a table define all of them. Margin weights always sum to lambda, also in
ablations.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from eclose.values.family import ViewKind
from eclose_train.families.comparisons import ALL_COMPARISONS, Direction, Edge, margin_weights
from eclose_train.likelihood.family_scores import anchor_score_name, comparison_side_name, response_score_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eclose_train.likelihood.family_scores import FamilyScores
    from eclose_train.likelihood.spans import SpanScore


class TrainingMethod(StrEnum):
    """The objectives of the paper."""

    SFT = "sft"
    CF_SFT = "cf_sft"
    RESPONSE_MARGIN = "rm"
    E_CLOSURE = "e_closure"
    WITHOUT_SUPPORT = "e_closure-S"
    """E-Closure without S: "-" means "minus"."""
    WITHOUT_ALIGNMENT = "e_closure-T"
    """E-Closure without T."""
    WITHOUT_CLOSURE = "e_closure-C"
    """E-Closure without C."""
    ONE_SIDED = "e_closure-one_sided"
    """E-Closure with the original direction of each edge only."""


@dataclass(frozen=True, slots=True)
class MarginHinge:
    """Target and smoothing of the margin loss of a comparison."""

    target: float = 0.5
    """gamma: margin at which a comparison is won, in nats per token."""
    smoothing: float = 0.1
    """beta: width of the transition from no loss to linear loss."""

    def __post_init__(self) -> None:
        if self.target <= 0 or self.smoothing <= 0:
            raise ValueError("target and smoothing must be positive")


@dataclass(frozen=True, slots=True)
class MarginTerm:
    """A comparison: the preferred score is to exceed the dispreferred one by the target of the hinge."""

    name: str
    preferred: str
    """Name of a score."""
    dispreferred: str
    """Name of a score."""
    weight: float
    hinge: MarginHinge


@dataclass(frozen=True)
class FamilyLoss:
    """The loss of a family and its parts."""

    total: Tensor
    generation: Tensor
    margin: Tensor
    margins: dict[str, Tensor]
    """Preferred minus dispreferred score of every comparison."""
    targets: dict[str, float]
    """Target margin of every comparison."""


@dataclass(frozen=True)
class TrainingObjective:
    """Anchors and margin terms of a method."""

    method: TrainingMethod
    anchors: tuple[ViewKind, ...]
    terms: tuple[MarginTerm, ...]

    @property
    def sequences(self) -> int:
        """Number of sequences that are scored for each family: 1 for SFT, 15 for E-Closure."""
        # A response margin also compares anchors, which are scored once.
        names = {anchor_score_name(kind) for kind in self.anchors}
        return len(names | {name for term in self.terms for name in (term.preferred, term.dispreferred)})

    def scores(self, family_scores: FamilyScores) -> list[SpanScore]:
        """Return the scores of a family that this objective needs, each once."""
        names = {name for term in self.terms for name in (term.preferred, term.dispreferred)}
        comparisons = [c for c in ALL_COMPARISONS if comparison_side_name(c.edge, c.direction, preferred=True) in names]
        # A response margin compares an anchor with another view's response under the anchor's input.
        crossed = [(p, r) for p in ViewKind for r in ViewKind if p is not r and response_score_name(p, r) in names]
        return [
            *family_scores.anchors(self.anchors),
            *family_scores.comparisons(comparisons),
            *family_scores.responses(crossed),
        ]

    def loss(self, values: Mapping[str, Tensor]) -> FamilyLoss:
        """Return the loss of a family from its scores: generation loss plus weighted smooth hinges (appendix C.3)."""
        # Mean over the anchors, each a mean over its tokens: long responses weigh no more than short ones.
        generation = -torch.stack([values[anchor_score_name(kind)] for kind in self.anchors]).mean()
        margins = {term.name: values[term.preferred] - values[term.dispreferred] for term in self.terms}
        margin = torch.zeros_like(generation)
        # Summed in the order of the terms: another order would round differently.
        for term in self.terms:
            margin = margin + term.weight * smooth_hinge(term.hinge.target - margins[term.name], term.hinge.smoothing)
        targets = {term.name: term.hinge.target for term in self.terms}
        return FamilyLoss(generation + margin, generation, margin, margins, targets)


def smooth_hinge(shortfall: Tensor, smoothing: float) -> Tensor:
    """Return h_beta(t) = beta log(1 + exp(t / beta)) of a shortfall t."""
    # softplus stays finite where exp(t / beta) would overflow: beta = 0.1 multiplies a shortfall by ten.
    return smoothing * F.softplus(shortfall / smoothing)


_GOLD, _EVIDENCE, _QUESTION = ViewKind
_COMPARED: dict[TrainingMethod, tuple[tuple[Edge, ...], tuple[Direction, ...]]] = {
    TrainingMethod.E_CLOSURE: (tuple(Edge), tuple(Direction)),
    TrainingMethod.WITHOUT_SUPPORT: ((Edge.ALIGNMENT, Edge.CLOSURE), tuple(Direction)),
    TrainingMethod.WITHOUT_ALIGNMENT: ((Edge.SUPPORT, Edge.CLOSURE), tuple(Direction)),
    TrainingMethod.WITHOUT_CLOSURE: ((Edge.SUPPORT, Edge.ALIGNMENT), tuple(Direction)),
    TrainingMethod.ONE_SIDED: (tuple(Edge), (Direction.ORIGINAL,)),
}
"""Edges and directions that E-Closure and its ablations compare."""


def build_objective(
    method: TrainingMethod, margin_weight: float = 1.0, hinges: Mapping[str, MarginHinge] | MarginHinge | None = None
) -> TrainingObjective:
    """Build the objective of a method; hinges may be given by edge: "S", "T", "C", and "response" for its margins."""
    # SFT and CF-SFT have anchors only: lambda and the hinges have no effect on them.
    if method is TrainingMethod.SFT:
        return TrainingObjective(method, (_GOLD,), ())
    if method is TrainingMethod.CF_SFT:
        return TrainingObjective(method, tuple(ViewKind), ())
    if method is TrainingMethod.RESPONSE_MARGIN:
        return TrainingObjective(
            method, tuple(ViewKind), tuple(_response_terms(margin_weight, _hinge(hinges, "response")))
        )
    edges, directions = _COMPARED[method]
    terms = [
        MarginTerm(
            f"{edge.value}_{direction.value}",
            comparison_side_name(edge, direction, preferred=True),
            comparison_side_name(edge, direction, preferred=False),
            weight,
            _hinge(hinges, edge.value),
        )
        for (edge, direction), weight in margin_weights(edges, directions, margin_weight).items()
    ]
    return TrainingObjective(method, tuple(ViewKind), tuple(terms))


def _hinge(hinges: Mapping[str, MarginHinge] | MarginHinge | None, edge: str) -> MarginHinge:
    if isinstance(hinges, MarginHinge):
        return hinges
    return (hinges or {}).get(edge, MarginHinge())


def _response_terms(margin_weight: float, hinge: MarginHinge) -> Iterable[MarginTerm]:
    """Yield the comparisons of complete responses, weighted 2 : 2 : 1 : 1 (appendix D.3)."""
    # Evidence edits weigh twice as much as question edits; each has two directions, so the shares sum to 6.
    for other, share in ((_EVIDENCE, 2), (_QUESTION, 1)):
        letter = "e" if other is _EVIDENCE else "q"
        for preferred, dispreferred in ((_GOLD, other), (other, _GOLD)):
            direction = Direction.ORIGINAL if preferred is _GOLD else Direction.COUNTERFACTUAL
            yield MarginTerm(
                f"R{letter}_{direction.value}",
                anchor_score_name(preferred),
                response_score_name(preferred, dispreferred),
                margin_weight * share / 6,
                hinge,
            )
