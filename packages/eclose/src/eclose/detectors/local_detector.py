"""The interface of detectors whose model runs in this process: a response becomes pairs of texts, pairs become scores.

A detector plans which pairs it needs before a model sees any of them, so pairs of many responses share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from eclose.detectors.scores import DetectorScore
from eclose.values.three_valued import Label

BATCH_TOKENS = 16_384
"""Largest number of tokens of a batch, padding included."""


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """A premise and a hypothesis as the tokens that a model reads."""

    ids: tuple[int, ...]
    segments: tuple[int, ...] | None = None
    """Segment of each token, for models that tell the two texts apart by it."""

    def __len__(self) -> int:
        return len(self.ids)


class PairModel(Protocol):
    """A loaded model that gives the probability that a premise supports a hypothesis."""

    @property
    def name(self) -> str:
        """Name in scores: ``name@revision``."""
        ...

    @property
    def token_limit(self) -> int:
        """Largest number of tokens of a pair."""
        ...

    def encode_pair(self, premise: str, hypothesis: str) -> EncodedPair:
        """Return the tokens of a pair; nothing is cut."""
        ...

    def score_batch(self, pairs: Sequence[EncodedPair]) -> list[float]:
        """Return the probability of support of each pair, in order; all pairs run in one batch."""
        ...


class PairModelRef(Protocol):
    """A reference to a pair model. The identity is known before the weights are loaded."""

    @property
    def name(self) -> str:
        """Name in scores: ``name@revision``."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the model that decides its scores, for the settings of a run."""
        ...

    def load(self) -> PairModel:
        """Load the weights."""
        ...


@dataclass(frozen=True, slots=True)
class StepLabels:
    """Which steps of a response are substantive, by one judge."""

    judge: str
    substantive: tuple[Label, ...]
    """One label for each step; empty where the judge labelled none."""


@dataclass(frozen=True, slots=True)
class PairPlan:
    """The pairs that a detector needs for a response, and how their scores become the score of the response."""

    pairs: tuple[EncodedPair, ...]
    conclude: Callable[[Sequence[float]], DetectorScore]


def score_pairs_by_length(
    model: PairModel, pairs: Sequence[EncodedPair], batch_tokens: int = BATCH_TOKENS
) -> list[float]:
    """Return the score of each pair, in order; pairs of similar length share a batch, and equal pairs are scored once.

    Args:
        model: The model.
        pairs: The pairs, in any order.
        batch_tokens: Largest number of tokens of a batch, padding included. A longer pair is a batch of its own.
    """
    # Longest first: a batch that does not fit into memory fails at once and not after hours. Equal lengths are sorted
    # by content, so that batches do not depend on the order of the pairs.
    waiting = sorted(set(pairs), key=lambda pair: (-len(pair), pair.ids, pair.segments or ()))
    scores: dict[EncodedPair, float] = {}
    while waiting:
        size = max(1, batch_tokens // len(waiting[0]))
        batch, waiting = waiting[:size], waiting[size:]
        scores |= zip(batch, model.score_batch(batch), strict=True)
    return [scores[pair] for pair in pairs]
