"""Settings of a judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from eclose.calls.model import Decoding
from eclose.errors import SettingError
from eclose.prompts.judge_questions import (
    EXTENDED_QUESTIONS,
    JOINT_JUDGE_QUESTIONS,
    JudgeQuestion,
    judge_guideline_hash,
)
from eclose.prompts.locked_texts import load_prompt_text
from eclose.prompts.requested_questions import build_hints
from eclose.values.own_criterion import OwnCriterion

ADDED_SETTINGS = frozenset({"criteria", "passages", "domain", "language"})
"""Settings that the identity of a run names only where they are used."""
_SETTING_TEXTS = {
    "judge_own": "criteria",
    "judge_passages": "passages",
    "judge_domain": "domain",
    "judge_language": "language",
}
"""The setting with which each of these texts enters prompts."""
REQUESTED_SETTINGS = frozenset({"criteria", "passages"})
"""Settings that add calls of their own and change no other label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """The settings of a judge; all of them influence its replies and belong to the identity of a run.

    Raises:
        SettingError: ``attempts``, ``max_tokens``, ``repeat`` or ``step_window`` is less than 1; two criteria have one
            name; or ``domain`` or ``language`` is no line of text.

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
    criteria: tuple[OwnCriterion, ...] = ()
    """Criteria of your own, each asked in a call of its own; no rate of the paper depends on them."""
    passages: bool = False
    """Whether each passage is judged as well: needed, not needed, or contradicting; one more call a response."""
    domain: str | None = None
    """Domain of the texts in a few words, such as ``German tenancy law``, for every prompt; None says nothing."""
    language: str | None = None
    """Language in which the judge writes its reasons, such as ``German``; None leaves it to the judge."""

    def __post_init__(self) -> None:
        # Settings that were read from a file are plain values.
        criteria = (OwnCriterion(**each) if isinstance(each, Mapping) else each for each in self.criteria)
        object.__setattr__(self, "criteria", tuple(criteria))
        names = [criterion.name for criterion in self.criteria]
        if len(set(names)) < len(names):
            raise SettingError(f"criteria: two have one name ({', '.join(names)}). Give each a name of its own.")
        for name, text in (("domain", self.domain), ("language", self.language)):
            if text is not None and (not text.strip() or "\n" in text):
                raise SettingError(f"{name}: is one line of text. Write it, or leave it out.")
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
        guidelines = {str(question): judge_guideline_hash(question) for question in questions}
        for name, setting in _SETTING_TEXTS.items():
            if getattr(self, setting):
                guidelines[name] = load_prompt_text(f"{name}.md").hash
        # Runs that do without the settings of later versions keep their identity.
        settings = {name: value for name, value in asdict(self).items() if value or name not in ADDED_SETTINGS}
        return settings | {"guidelines": guidelines}

    @classmethod
    def from_identity(cls, identity: Mapping[str, Any]) -> JudgeSettings | None:
        """Return the settings in the manifest of a run; None where some are missing, as in runs of other tools."""
        names = {field.name for field in fields(cls)}
        if not names - ADDED_SETTINGS <= identity.keys():
            return None
        return cls(**{name: identity[name] for name in names & identity.keys()})

    @property
    def hints(self) -> tuple[str, ...]:
        """Lines at the end of every prompt: on the domain and the language of reasons."""
        return build_hints(self.domain, self.language)

    @property
    def decoding(self) -> Decoding:
        """Decoding parameters of every request."""
        # With repetitions, a seed makes the draws of a sampling server different and reproducible.
        seed = 0 if self.repeat > 1 else None
        return Decoding(max_tokens=self.max_tokens, temperature=self.temperature, seed=seed, effort=self.effort)
