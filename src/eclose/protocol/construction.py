"""What is asked while families are built: nine roles, what each is shown, and the shape of its reply.

A prompt is rendered from one of the values here and from nothing else. The verifier of a target cannot see the
reference, and a screen cannot see a trace, because there is none in what they are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.core.identity import content_hash
from eclose.protocol.material_json import ShownPassage, ShownStep, material_json
from eclose.protocol.prompts import Message, load_text
from eclose.protocol.structured import BOOLEAN, INTEGER, TEXT, Asked, code_or_null, listed, shape

if TYPE_CHECKING:
    from collections.abc import Mapping


class Role(StrEnum):
    """Who is asked; the value names the text, and the shape of the reply."""

    SCREEN_SEED = "screen_seed"
    CONSTRUCT_TARGET = "construct_target"
    VERIFY_TARGET = "verify_target"
    CONSTRUCT_EVIDENCE = "construct_evidence"
    SCREEN_EVIDENCE = "screen_evidence"
    VERIFY_EVIDENCE = "verify_evidence"
    CONSTRUCT_QUESTION = "construct_question"
    SCREEN_QUESTION = "screen_question"
    VERIFY_QUESTION = "verify_question"

    @property
    def constructs(self) -> bool:
        """Whether it writes; the others judge."""
        return self.value.startswith("construct_")


class SeedDefect(StrEnum):
    """What is wrong with a source itself."""

    MALFORMED = "malformed"
    UNDERDETERMINED = "underdetermined"
    BROKEN_LINK = "broken_link"
    UNSUPPORTED_REFERENCE = "unsupported_reference"
    LONG_ANSWER = "long_answer"


# --- what is shown -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seed:
    """A source, before anybody reasoned about it (q, D, a*)."""

    question: str
    evidence: tuple[ShownPassage, ...]
    reference: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetBrief:
    """For whoever writes the target response (q, D, a*, E)."""

    question: str
    evidence: tuple[ShownPassage, ...]
    support: tuple[int, ...]
    reference: str
    objection: str | None = None
    """Why an earlier attempt was refused."""


@dataclass(frozen=True, slots=True)
class TargetCheck:
    """A target response without the reference (q, D, E, r, a)."""

    question: str
    evidence: tuple[ShownPassage, ...]
    support: tuple[int, ...]
    steps: tuple[ShownStep, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class EvidenceBrief:
    """For whoever changes a claim (q, D, E, y*)."""

    question: str
    evidence: tuple[ShownPassage, ...]
    support: tuple[int, ...]
    steps: tuple[ShownStep, ...]
    answer: str
    wanted: int
    """How many variations at most."""
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class EvidenceScreen:
    """A changed passage and both answers (q, D, D~, a*, a~): no trace."""

    question: str
    evidence: tuple[ShownPassage, ...]
    edited: ShownPassage
    """The one passage that differs; all others are the same by construction."""
    answer: str
    edited_answer: str


@dataclass(frozen=True, slots=True)
class EvidenceCheck:
    """Both responses under both contexts (q, D, D~, y*, y~, t)."""

    question: str
    evidence: tuple[ShownPassage, ...]
    edited: ShownPassage
    steps: tuple[ShownStep, ...]
    answer: str
    edited_steps: tuple[ShownStep, ...]
    edited_answer: str
    first: int
    """The id of the first step that differs."""


@dataclass(frozen=True, slots=True)
class QuestionBrief:
    """For whoever asks for something else (q, D, E, y*)."""

    question: str
    evidence: tuple[ShownPassage, ...]
    support: tuple[int, ...]
    steps: tuple[ShownStep, ...]
    answer: str
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionScreen:
    """Both questions and both answers (q, q~, D, a*, a~): no trace."""

    question: str
    edited_question: str
    evidence: tuple[ShownPassage, ...]
    answer: str
    edited_answer: str


@dataclass(frozen=True, slots=True)
class QuestionCheck:
    """Both responses to both questions (q, q~, D, y*, y~)."""

    question: str
    edited_question: str
    evidence: tuple[ShownPassage, ...]
    steps: tuple[ShownStep, ...]
    answer: str
    edited_steps: tuple[ShownStep, ...]
    edited_answer: str


Shown: TypeAlias = (
    Seed
    | TargetBrief
    | TargetCheck
    | EvidenceBrief
    | EvidenceScreen
    | EvidenceCheck
    | QuestionBrief
    | QuestionScreen
    | QuestionCheck
)

MATERIAL: Mapping[Role, type[Any]] = {
    Role.SCREEN_SEED: Seed,
    Role.CONSTRUCT_TARGET: TargetBrief,
    Role.VERIFY_TARGET: TargetCheck,
    Role.CONSTRUCT_EVIDENCE: EvidenceBrief,
    Role.SCREEN_EVIDENCE: EvidenceScreen,
    Role.VERIFY_EVIDENCE: EvidenceCheck,
    Role.CONSTRUCT_QUESTION: QuestionBrief,
    Role.SCREEN_QUESTION: QuestionScreen,
    Role.VERIFY_QUESTION: QuestionCheck,
}
_ROLE_OF = {kind: role for role, kind in MATERIAL.items()}

# --- what is replied ---------------------------------------------------------------------------------------------


def _judged(*names: str) -> dict[str, Any]:
    """A reason, and yes or no to each of the names."""
    return shape(reason=TEXT, **dict.fromkeys(names, BOOLEAN))


_WRITTEN = shape(text=TEXT, passages=listed(INTEGER), premises=listed(INTEGER))
_SOUND = shape(id=INTEGER, reason=TEXT, sound=BOOLEAN)
_MAPPED = shape(id=INTEGER, reason=TEXT, sound=BOOLEAN, passages=listed(INTEGER), premises=listed(INTEGER))
_VARIATION = shape(
    plan=TEXT,
    passage=INTEGER,
    claim=TEXT,
    replacements=listed(shape(old=TEXT, new=TEXT)),
    keep=listed(TEXT),
    first=INTEGER,
    steps=listed(_WRITTEN),
    answer=TEXT,
)
SCHEMAS: Mapping[Role, Mapping[str, Any]] = {
    Role.SCREEN_SEED: shape(
        reason=TEXT,
        support=listed(INTEGER),
        warranted=BOOLEAN,
        unique=BOOLEAN,
        elsewhere=BOOLEAN,
        defect=code_or_null(SeedDefect),
    ),
    Role.CONSTRUCT_TARGET: shape(plan=TEXT, steps=listed(_WRITTEN), answer=TEXT, complete=BOOLEAN),
    Role.VERIFY_TARGET: shape(
        soundness=shape(steps=listed(_MAPPED)),
        alignment=_judged("aligned"),
        closure=_judged("closed"),
        grounding=shape(reason=TEXT, outside=listed(INTEGER), grounded=BOOLEAN),
    ),
    Role.CONSTRUCT_EVIDENCE: shape(plan=TEXT, variations=listed(_VARIATION), complete=BOOLEAN),
    Role.SCREEN_EVIDENCE: _judged(
        "localized", "coherent", "edited_after", "unique_after", "original_after", "edited_before", "same_kind"
    ),
    Role.VERIFY_EVIDENCE: shape(
        soundness=shape(steps=listed(_SOUND)),
        prefix=_judged("before", "after"),
        switching=_judged("original_before", "original_after", "edited_before", "edited_after"),
        alignment=_judged("aligned"),
        closure=_judged("original", "edited", "original_to_edited", "edited_to_original"),
    ),
    Role.CONSTRUCT_QUESTION: shape(
        plan=TEXT,
        component=TEXT,
        question=TEXT,
        support=listed(INTEGER),
        steps=listed(_WRITTEN),
        answer=TEXT,
        complete=BOOLEAN,
    ),
    Role.SCREEN_QUESTION: _judged(
        "changed",
        "edited_warranted",
        "edited_unique",
        "original_fits_edited",
        "edited_fits_original",
        "natural",
        "several_steps",
        "degenerate",
    ),
    Role.VERIFY_QUESTION: shape(
        soundness=shape(steps=listed(_SOUND)),
        alignment=_judged("original", "edited", "edited_to_original", "original_to_edited"),
        closure=_judged("closed"),
    ),
}

# --- how it is asked ---------------------------------------------------------------------------------------------


def asked(shown: Shown) -> Asked:
    """The question that goes with what is shown."""
    role = _ROLE_OF[type(shown)]
    messages = (Message(role="system", content=told(role)), Message(role="user", content=material_json(shown)))
    return Asked(role, messages, guideline_hash(role), SCHEMAS[role])


@cache
def told(role: Role) -> str:
    """What a role is told before it is shown anything."""
    return load_text(_frame(role)).render(guideline=load_text(f"{role}.md").text.rstrip("\n"))


@cache
def guideline_hash(role: Role) -> str:
    """The identity of everything that is told apart from the material."""
    return content_hash([load_text(_frame(role)).text, load_text(f"{role}.md").text])


def _frame(role: Role) -> str:
    return "construct_frame.md" if role.constructs else "judge_frame.md"
