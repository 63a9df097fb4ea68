"""Settings of the detectors that ask a chat model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eclose.detection.scores import DetectorKind
from eclose.errors import SettingError
from eclose.models.interface import Decoding
from eclose.protocol.detection import (
    CLAIM_QUESTIONS,
    STATEMENT_QUESTIONS,
    ClaimQuestions,
    DetectorQuestion,
    detector_guideline_hash,
)

CHAT_DETECTORS = (DetectorKind.STATEMENT_SUPPORT, DetectorKind.CLAIM_SUPPORT, DetectorKind.ALIGNMENT)
"""Detectors that ask a chat model."""
MOST_LOGPROBS = 20
"""Largest number of alternatives that the OpenAI protocol reports for a token."""

_CLAIM_QUESTIONS = {
    DetectorKind.STATEMENT_SUPPORT: STATEMENT_QUESTIONS,
    DetectorKind.CLAIM_SUPPORT: CLAIM_QUESTIONS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDetectorSettings:
    """The settings of a detector that asks a chat model; those that influence its scores are the identity of a run.

    Raises:
        SettingError: The detector asks no chat model, or a number is out of range.

    >>> ChatDetectorSettings(detector=DetectorKind.ALIGNMENT).decoding.max_tokens
    4
    """

    detector: DetectorKind
    effort: str | None = None
    """Reasoning effort of the model in the provider's words, such as low, medium or high."""
    attempts: int = 2
    """Largest number of attempts where a reply violates the schema; the question of alignment is asked once."""
    max_tokens: int | None = None
    """Largest number of tokens of a reply; None for 4,096, and for 4 where the first token alone counts."""
    temperature: float = 0.0
    """Sampling temperature (0 = greedy); the question of alignment is always asked with 0."""
    top_logprobs: int = MOST_LOGPROBS
    """Number of alternatives to the first token whose probabilities are requested."""
    thinking: bool | None = None
    """Whether a reasoning model reasons before it answers Yes or No; None sends no such setting."""

    def __post_init__(self) -> None:
        """Raise SettingError for another detector and for numbers out of range."""
        if self.detector not in CHAT_DETECTORS:
            raise SettingError(
                f"{self.detector}: is no detector that asks a chat model. Choose from: {', '.join(CHAT_DETECTORS)}."
            )
        if self.attempts < 1 or (self.max_tokens is not None and self.max_tokens < 1):
            raise SettingError("attempts and max_tokens of a detector must be at least 1.")
        if not 1 <= self.top_logprobs <= MOST_LOGPROBS:
            raise SettingError(f"top_logprobs of a detector must be 1 to {MOST_LOGPROBS}.")

    @property
    def claim_questions(self) -> ClaimQuestions:
        """The two questions of a detector that checks what a response says."""
        return _CLAIM_QUESTIONS[self.detector]

    @property
    def asks_yes_or_no(self) -> bool:
        """Whether the score is the probability of Yes."""
        return self.detector is DetectorKind.ALIGNMENT

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that influence the scores and the hashes of the guidelines, for the manifest of a run."""
        settings: dict[str, Any]
        questions: tuple[DetectorQuestion, ...]
        if self.asks_yes_or_no:
            # Settings that do not apply are left out: changing one of them must not make the scores stale.
            settings, questions = {"thinking": self.thinking}, (DetectorQuestion.ALIGNMENT,)
        else:
            settings = {"attempts": self.attempts}
            questions = (self.claim_questions.extract, self.claim_questions.verify)
        guidelines = {str(question): detector_guideline_hash(question) for question in questions}
        return {"detector": str(self.detector), **settings, **self.decoding.plain, "guidelines": guidelines}

    @property
    def decoding(self) -> Decoding:
        """Decoding parameters of every request."""
        if self.asks_yes_or_no:
            # At another temperature, some servers report probabilities that the temperature has changed.
            return Decoding(
                max_tokens=self.max_tokens or 4,
                top_logprobs=self.top_logprobs,
                thinking=self.thinking,
                effort=self.effort,
            )
        return Decoding(max_tokens=self.max_tokens or 4096, temperature=self.temperature, effort=self.effort)
