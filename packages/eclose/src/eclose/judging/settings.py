"""Settings of a judge."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from eclose.calls.model import Decoding
from eclose.errors import SettingError
from eclose.prompts.judge_questions import (
    EXTENDED_QUESTIONS,
    JOINT_JUDGE_QUESTIONS,
    JudgeQuestion,
    judge_guideline_hash,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """The settings of a judge; all of them influence its replies and belong to the identity of a run.

    Raises:
        SettingError: ``attempts``, ``max_tokens``, ``repeat`` or ``step_window`` is less than 1.

    Examples:
        >>> JudgeSettings(joint=True, repeat=3).decoding.max_tokens
        4096
    """

    reference_free: bool = False
    """Whether the reference is withheld; completeness and correctness then get no label."""
    joint: bool = False
    """Whether one call asks all questions: cheaper, but the judge sees material that a question should not rest on."""
    repeat: int = 1
    """Number of times that every question is asked; the majority gives the label."""
    locate: bool = True
    """Whether the judge says which sentence is the answer of a reply that does not mark it; not with ``joint``."""
    effort: str | None = None
    """Reasoning effort of the judge in the provider's words, such as low, medium or high."""
    attempts: int = 2
    """Largest number of attempts where a reply violates the schema, is about other steps, or misquotes a passage."""
    max_tokens: int = 4096
    """Largest number of tokens of a reply."""
    temperature: float = 0.0
    """Sampling temperature of the judge (0 = greedy)."""
    step_window: int = 20
    """Largest number of steps in one reply. The soundness of a longer trace is asked in several calls. A verdict with a
    long quote takes about 130 tokens, so twenty fit into ``max_tokens``."""

    def __post_init__(self) -> None:
        if min(self.attempts, self.max_tokens, self.repeat, self.step_window) < 1:
            raise SettingError("attempts, max_tokens, repeat and step_window of a judge must be at least 1.")

    @property
    def identity(self) -> dict[str, Any]:
        """The settings and the hashes of all guidelines, for the manifest of a run."""
        # The joint guideline adds to the others and does not replace them: its prompt contains their texts.
        questions = (
            *JOINT_JUDGE_QUESTIONS,
            *EXTENDED_QUESTIONS,
            *([JudgeQuestion.JOINT] if self.joint else []),
        )
        return asdict(self) | {"guidelines": {str(question): judge_guideline_hash(question) for question in questions}}

    @property
    def decoding(self) -> Decoding:
        """Decoding parameters of every request."""
        # With repetitions, a seed makes the draws of a sampling server different and reproducible.
        seed = 0 if self.repeat > 1 else None
        return Decoding(max_tokens=self.max_tokens, temperature=self.temperature, seed=seed, effort=self.effort)
