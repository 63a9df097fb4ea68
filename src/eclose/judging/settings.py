"""How responses are judged."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from eclose.errors import SettingError
from eclose.models.interface import Decoding
from eclose.protocol.judging import JOINT_PARTS, Question, guideline_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """All of it decides what is asked, so all of it belongs to a run's identity."""

    reference_free: bool = False
    """Whether the reference is left out: completeness and correctness are then not judged."""
    joint: bool = False
    """Whether everything is asked in one call. Cheaper, and the judge sees what it should not use."""
    repeat: int = 1
    """How often every question is asked; the label is what most of the answers say."""
    effort: str | None = None
    """How hard a judge that thinks shall think, in its provider's words: low, medium, high."""
    attempts: int = 2
    """How often a judge is asked that answers in the wrong shape, about the wrong steps or with a false quote."""
    max_tokens: int = 4096
    temperature: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if min(self.attempts, self.max_tokens, self.repeat) < 1:
            raise SettingError("a judge is asked at least once, for at least one token.")

    @property
    def identity(self) -> dict[str, Any]:
        """For manifests: the settings and what every question's guideline says."""
        questions = (*JOINT_PARTS, *([Question.JOINT] if self.joint else []))
        return asdict(self) | {"guidelines": {str(question): guideline_hash(question) for question in questions}}

    @property
    def decoding(self) -> Decoding:
        """As the model is told. Repetitions have a seed, so that they are different draws to a server that draws."""
        seed = 0 if self.repeat > 1 else None
        return Decoding(max_tokens=self.max_tokens, temperature=self.temperature, seed=seed, effort=self.effort)
