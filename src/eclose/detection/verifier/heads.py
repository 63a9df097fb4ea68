"""What a verifier reads of a response, and the dependencies that it scores.

The three dependencies are those of the verdict: evidence supports the steps, the trace pursues the question, and the
trace establishes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eclose.core.instance import Passage


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
