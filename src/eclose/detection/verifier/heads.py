"""The interface of verifiers: what they read of a response, and one probability for each dependency.

The three dependencies are those of the verdict: evidence supports the steps, the trace pursues the question, and the
trace establishes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from eclose.core.instance import Passage

if TYPE_CHECKING:
    from collections.abc import Sequence


class VerifierHead(StrEnum):
    """Dependencies that a verifier scores."""

    SUPPORT = "support"
    """Evidence to step: whether every step follows from the passages."""
    ALIGNMENT = "alignment"
    """Question to trace: whether the trace pursues what was asked. Never sees the submitted answer."""
    CLOSURE = "closure"
    """Trace to answer: whether the trace establishes the submitted answer."""


HeadScores = dict[VerifierHead, float]
"""Probability that each dependency holds; low values mean failure. A head that cannot be scored is absent."""


@dataclass(frozen=True, slots=True)
class VerifierInput:
    """The parts of a response and its question that a verifier reads."""

    question: str
    steps: tuple[str, ...]
    answer: str
    evidence: tuple[Passage, ...] = ()
    """Passages; read by the support head alone."""


class Verifier(Protocol):
    """A trained verifier."""

    @property
    def name(self) -> str:
        """Name in scores: kind and fingerprint, as in ``linear@0123456789ab``."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the verifier that decides its scores, for the manifest of a run."""
        ...

    @property
    def heads(self) -> tuple[VerifierHead, ...]:
        """Heads that the verifier was trained with."""
        ...

    def score(self, inputs: Sequence[VerifierInput]) -> list[HeadScores]:
        """Return the scores of each input, in order."""
        ...
