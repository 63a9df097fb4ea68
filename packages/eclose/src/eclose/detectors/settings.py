"""Settings of detectors: of those that ask a chat model, and of those whose model runs in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from eclose.calls.model import Decoding
from eclose.detectors.align_score import AlignScoreDetector
from eclose.detectors.entailment import BATCH_TOKENS, ClosureDetector, LocalDetector, StepSupportDetector
from eclose.detectors.entailment_models import PromptLayout, find_entailment_model
from eclose.detectors.scores import DetectorKind
from eclose.errors import SettingError
from eclose.prompts.detector_questions import (
    CLAIM_QUESTIONS,
    STATEMENT_QUESTIONS,
    ClaimQuestions,
    DetectorQuestion,
    detector_guideline_hash,
)

CHAT_DETECTORS = (DetectorKind.STATEMENT_SUPPORT, DetectorKind.CLAIM_SUPPORT, DetectorKind.ALIGNMENT)
"""Detectors that ask a chat model."""
LOCAL_DETECTORS = (DetectorKind.CLOSURE, DetectorKind.STEP_SUPPORT)
"""Detectors whose entailment model runs in this process."""
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

    Examples:
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
    window: tuple[int, int] | None = None
    """Sentences before and after a sentence that are shown with it, where claims are extracted sentence by sentence, as
    the original VeriScore does with (3, 1); None for one call on the whole response (veriscore only)."""
    thinking: bool | None = None
    """Whether a reasoning model reasons before it answers Yes or No; None sends no such setting."""

    def __post_init__(self) -> None:
        if self.detector not in CHAT_DETECTORS:
            raise SettingError(
                f"{self.detector}: is no detector that asks a chat model. Choose from: {', '.join(CHAT_DETECTORS)}."
            )
        if self.attempts < 1 or (self.max_tokens is not None and self.max_tokens < 1):
            raise SettingError("attempts and max_tokens of a detector must be at least 1.")
        if self.window is not None and (self.detector is not DetectorKind.CLAIM_SUPPORT or min(self.window) < 0):
            raise SettingError("window: two numbers of sentences, at least 0 each, and for veriscore only.")
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
            # Without a window nothing is recorded: scores that were made before there was one stay valid.
            settings = {"attempts": self.attempts, **({} if self.window is None else {"window": list(self.window)})}
            extract = self.claim_questions.extract if self.window is None else DetectorQuestion.WINDOW_CLAIMS
            questions = (extract, self.claim_questions.verify)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDetectorSettings:
    """The settings of a detector whose entailment model runs in this process.

    Raises:
        SettingError: The detector has no model of its own.

    Examples:
        >>> LocalDetectorSettings(detector=DetectorKind.CLOSURE).dtype
        'auto'
    """

    detector: DetectorKind
    revision: str | None = None
    """Branch, tag or commit of a model on the hub; the scores record the commit."""
    layout: PromptLayout | None = None
    """Layout of the model's input; None to choose it by the name and the class of the model."""
    label: str | None = None
    """Name of the label that means support; None to find it in the model's configuration."""
    max_tokens: int | None = None
    """Largest number of tokens of a pair; None for the limit of the model."""
    dtype: str = "auto"
    """Precision of the weights."""
    device: str | None = None
    """Device; None for the accelerator where there is one."""
    titles: bool = True
    """Whether the title of a passage is part of the premise (alignscore only)."""
    strip_citations: bool = False
    """Whether marks such as [0] are removed from steps (alignscore only)."""
    batch_tokens: int = BATCH_TOKENS
    """Largest number of tokens of a batch, padding included. Scores do not depend on it, up to rounding."""

    def __post_init__(self) -> None:
        if self.detector not in LOCAL_DETECTORS:
            raise SettingError(
                f"{self.detector}: is no detector with a model in this process. Choose from:"
                f" {', '.join(LOCAL_DETECTORS)}."
            )

    def build_detector(self, model: str) -> LocalDetector:
        """Return the detector on an entailment model, given by folder or hub name; no weights are loaded.

        Raises:
            UserError: The model is no entailment model, or its weights are pickles.
        """
        ref = find_entailment_model(
            model,
            revision=self.revision,
            layout=self.layout,
            label=self.label,
            max_tokens=self.max_tokens,
            dtype=self.dtype,
            device=self.device,
        )
        if self.detector is DetectorKind.CLOSURE:
            return ClosureDetector(model=ref)
        # Chunks and sentences belong to AlignScore; other models were trained on whole claims. Reports go by the name
        # of the model as well.
        kind = AlignScoreDetector if "alignscore" in ref.name.lower() else StepSupportDetector
        return kind(model=ref, titles=self.titles, strip_citations=self.strip_citations)


DetectorSettings: TypeAlias = ChatDetectorSettings | LocalDetectorSettings


def find_detector_settings(detector: str) -> DetectorSettings:
    """Return the default settings of a detector by its name.

    Raises:
        SettingError: No detector has this name, or it is a verifier, which has a command of its own.

    >>> find_detector_settings("closure").detector
    <DetectorKind.CLOSURE: 'closure'>
    """
    names = (*CHAT_DETECTORS, *LOCAL_DETECTORS)
    if detector not in names:
        raise SettingError(f"{detector}: is no detector. Choose from: {', '.join(names)}.")
    kind = DetectorKind(detector)
    return ChatDetectorSettings(detector=kind) if kind in CHAT_DETECTORS else LocalDetectorSettings(detector=kind)
