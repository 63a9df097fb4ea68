"""The prompts of family construction: nine roles, the material of each, and the schema of its reply.

A prompt is rendered from one of the material types only. The verifier of a target cannot see the reference, and a
screen cannot see a trace, because their material has no such field.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.prompts.locked_texts import PromptMessage, load_prompt_text
from eclose.prompts.material_json import DisclosedPassage, DisclosedStep, render_material
from eclose.prompts.structured import (
    BOOLEAN_SCHEMA,
    INTEGER_SCHEMA,
    TEXT_SCHEMA,
    PromptWithSchema,
    array_schema,
    nullable_enum_schema,
    object_schema,
)
from eclose.values.identity import content_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class ConstructionRole(StrEnum):
    """The nine roles of construction; the value names the guideline and the schema of the reply."""

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
        """Whether the role writes candidates; the other roles judge them."""
        return self.value.startswith("construct_")


class SourceQuestionDefect(StrEnum):
    """The defects for which a source question is rejected."""

    MALFORMED = "malformed"
    UNDERDETERMINED = "underdetermined"
    BROKEN_LINK = "broken_link"
    UNSUPPORTED_REFERENCE = "unsupported_reference"
    LONG_ANSWER = "long_answer"


# Material: one type per role. The letters are the paper's; a tilde marks the edited counterpart.


# Field names are keys of the JSON in the prompt, and guidelines refer to them: renaming one changes a locked prompt.


@dataclass(frozen=True, slots=True)
class SourceScreenMaterial:
    """A source question with its reference (q, D, a*)."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    reference: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetWritingMaterial:
    """Material for writing the target response (q, D, a*, E)."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    support: tuple[int, ...]
    """Indices of the supporting passages, counted from zero."""
    reference: str
    objection: str | None = None
    """Why the previous attempt was refused."""


@dataclass(frozen=True, slots=True)
class TargetCheckMaterial:
    """A target response to verify, without the reference (q, D, E, r, a)."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    support: tuple[int, ...]
    steps: tuple[DisclosedStep, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class EvidenceEditWritingMaterial:
    """Material for editing a claim of the evidence (q, D, E, y*)."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    support: tuple[int, ...]
    steps: tuple[DisclosedStep, ...]
    answer: str
    wanted: int
    """Largest number of variations to write."""
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class EvidenceScreenMaterial:
    """An edited passage and both answers (q, D, D~, a*, a~), without a trace."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    edited: DisclosedPassage
    """The edited passage; all others are identical by construction."""
    answer: str
    edited_answer: str


@dataclass(frozen=True, slots=True)
class EvidenceCheckMaterial:
    """Both responses, to be verified under both contexts (q, D, D~, y*, y~, t)."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    edited: DisclosedPassage
    steps: tuple[DisclosedStep, ...]
    answer: str
    edited_steps: tuple[DisclosedStep, ...]
    edited_answer: str
    first: int
    """Id of the first step that differs, counted from one."""


@dataclass(frozen=True, slots=True)
class QuestionEditMaterial:
    """Material for editing the question (q, D, E, y*)."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    support: tuple[int, ...]
    steps: tuple[DisclosedStep, ...]
    answer: str
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionScreenMaterial:
    """Both questions and both answers (q, q~, D, a*, a~), without a trace."""

    question: str
    edited_question: str
    evidence: tuple[DisclosedPassage, ...]
    answer: str
    edited_answer: str


@dataclass(frozen=True, slots=True)
class QuestionCheckMaterial:
    """Both responses, to be verified against both questions (q, q~, D, y*, y~)."""

    question: str
    edited_question: str
    evidence: tuple[DisclosedPassage, ...]
    steps: tuple[DisclosedStep, ...]
    answer: str
    edited_steps: tuple[DisclosedStep, ...]
    edited_answer: str


ConstructionMaterial: TypeAlias = (
    SourceScreenMaterial
    | TargetWritingMaterial
    | TargetCheckMaterial
    | EvidenceEditWritingMaterial
    | EvidenceScreenMaterial
    | EvidenceCheckMaterial
    | QuestionEditMaterial
    | QuestionScreenMaterial
    | QuestionCheckMaterial
)

ROLE_MATERIAL_TYPES: Mapping[ConstructionRole, type[Any]] = {
    ConstructionRole.SCREEN_SEED: SourceScreenMaterial,
    ConstructionRole.CONSTRUCT_TARGET: TargetWritingMaterial,
    ConstructionRole.VERIFY_TARGET: TargetCheckMaterial,
    ConstructionRole.CONSTRUCT_EVIDENCE: EvidenceEditWritingMaterial,
    ConstructionRole.SCREEN_EVIDENCE: EvidenceScreenMaterial,
    ConstructionRole.VERIFY_EVIDENCE: EvidenceCheckMaterial,
    ConstructionRole.CONSTRUCT_QUESTION: QuestionEditMaterial,
    ConstructionRole.SCREEN_QUESTION: QuestionScreenMaterial,
    ConstructionRole.VERIFY_QUESTION: QuestionCheckMaterial,
}
ROLE_OF_MATERIAL: Mapping[type[Any], ConstructionRole] = {kind: role for role, kind in ROLE_MATERIAL_TYPES.items()}
"""Every role has a material type of its own, so the role follows from the type."""

# Replies. Every judgement is preceded by its reason, so that a model writes the reason first.


def _judgement_schema(*names: str) -> dict[str, Any]:
    return object_schema(reason=TEXT_SCHEMA, **dict.fromkeys(names, BOOLEAN_SCHEMA))


_STEP = object_schema(text=TEXT_SCHEMA, passages=array_schema(INTEGER_SCHEMA), premises=array_schema(INTEGER_SCHEMA))
_JUDGED_STEP = object_schema(id=INTEGER_SCHEMA, reason=TEXT_SCHEMA, sound=BOOLEAN_SCHEMA)
# As a judged step, with the passages and premises that the verifier maps it to: the proof graph.
_MAPPED_STEP = object_schema(
    id=INTEGER_SCHEMA,
    reason=TEXT_SCHEMA,
    sound=BOOLEAN_SCHEMA,
    passages=array_schema(INTEGER_SCHEMA),
    premises=array_schema(INTEGER_SCHEMA),
)
_VARIATION = object_schema(
    plan=TEXT_SCHEMA,
    passage=INTEGER_SCHEMA,
    claim=TEXT_SCHEMA,
    replacements=array_schema(object_schema(old=TEXT_SCHEMA, new=TEXT_SCHEMA)),
    keep=array_schema(TEXT_SCHEMA),
    first=INTEGER_SCHEMA,
    steps=array_schema(_STEP),
    answer=TEXT_SCHEMA,
)
ROLE_REPLY_SCHEMAS: Mapping[ConstructionRole, Mapping[str, Any]] = {
    ConstructionRole.SCREEN_SEED: object_schema(
        reason=TEXT_SCHEMA,
        support=array_schema(INTEGER_SCHEMA),
        warranted=BOOLEAN_SCHEMA,
        unique=BOOLEAN_SCHEMA,
        elsewhere=BOOLEAN_SCHEMA,
        defect=nullable_enum_schema(SourceQuestionDefect),
    ),
    ConstructionRole.CONSTRUCT_TARGET: object_schema(
        plan=TEXT_SCHEMA, steps=array_schema(_STEP), answer=TEXT_SCHEMA, complete=BOOLEAN_SCHEMA
    ),
    ConstructionRole.VERIFY_TARGET: object_schema(
        soundness=object_schema(steps=array_schema(_MAPPED_STEP)),
        alignment=_judgement_schema("aligned"),
        closure=_judgement_schema("closed"),
        grounding=object_schema(reason=TEXT_SCHEMA, outside=array_schema(INTEGER_SCHEMA), grounded=BOOLEAN_SCHEMA),
    ),
    ConstructionRole.CONSTRUCT_EVIDENCE: object_schema(
        plan=TEXT_SCHEMA, variations=array_schema(_VARIATION), complete=BOOLEAN_SCHEMA
    ),
    ConstructionRole.SCREEN_EVIDENCE: _judgement_schema(
        "localized", "coherent", "edited_after", "unique_after", "original_after", "edited_before", "same_kind"
    ),
    ConstructionRole.VERIFY_EVIDENCE: object_schema(
        soundness=object_schema(steps=array_schema(_JUDGED_STEP)),
        prefix=_judgement_schema("before", "after"),
        switching=_judgement_schema("original_before", "original_after", "edited_before", "edited_after"),
        alignment=_judgement_schema("aligned"),
        closure=_judgement_schema("original", "edited", "original_to_edited", "edited_to_original"),
    ),
    ConstructionRole.CONSTRUCT_QUESTION: object_schema(
        plan=TEXT_SCHEMA,
        component=TEXT_SCHEMA,
        question=TEXT_SCHEMA,
        support=array_schema(INTEGER_SCHEMA),
        steps=array_schema(_STEP),
        answer=TEXT_SCHEMA,
        complete=BOOLEAN_SCHEMA,
    ),
    ConstructionRole.SCREEN_QUESTION: _judgement_schema(
        "changed",
        "edited_warranted",
        "edited_unique",
        "original_fits_edited",
        "edited_fits_original",
        "natural",
        "several_steps",
        "degenerate",
    ),
    ConstructionRole.VERIFY_QUESTION: object_schema(
        soundness=object_schema(steps=array_schema(_JUDGED_STEP)),
        alignment=_judgement_schema("original", "edited", "edited_to_original", "original_to_edited"),
        closure=_judgement_schema("closed"),
    ),
}

# Prompts: the instructions are the system message, the material is the user message.


def build_construction_prompt(material: ConstructionMaterial) -> PromptWithSchema:
    """Return the prompt of the role that the type of the material belongs to."""
    role = ROLE_OF_MATERIAL[type(material)]
    messages = (
        PromptMessage(role="system", content=render_role_instructions(role)),
        PromptMessage(role="user", content=render_material(material)),
    )
    return PromptWithSchema(role, messages, role_guideline_hash(role), ROLE_REPLY_SCHEMAS[role])


@cache
def render_role_instructions(role: ConstructionRole) -> str:
    """Return the system message of a role: its frame with its guideline."""
    return load_prompt_text(_frame(role)).render(guideline=load_prompt_text(f"{role}.md").text.rstrip("\n"))


@cache
def role_guideline_hash(role: ConstructionRole) -> str:
    """Return the hash of frame and guideline: everything in the prompt but the material."""
    return content_hash([load_prompt_text(_frame(role)).text, load_prompt_text(f"{role}.md").text])


def _frame(role: ConstructionRole) -> str:
    # Screens and verifiers share the frame of the judges: both only decide.
    return "construct_frame.md" if role.constructs else "judge_frame.md"


# The acceptance conditions V of appendix B: the value that each judgement must have for a candidate to be accepted.
#
# All conditions of a role must hold. A condition is named by its field in the reply, with nested fields joined by a
# dot.


SOUNDNESS_JUDGEMENT = "soundness"
"""Name of a further condition for roles that judge steps: every step must be sound."""

ACCEPTANCE_CONDITIONS: Mapping[ConstructionRole, Mapping[str, bool]] = {
    # Appendix B.2. "elsewhere": passages outside the support warrant the answer too, so editing the support would not
    # change it.
    ConstructionRole.SCREEN_SEED: {"warranted": True, "unique": True, "elsewhere": False},
    ConstructionRole.VERIFY_TARGET: {"alignment.aligned": True, "closure.closed": True, "grounding.grounded": True},
    # Appendix B.4. Before the edit only the original answer is warranted, after it only the edited one.
    ConstructionRole.SCREEN_EVIDENCE: {
        "localized": True,
        "coherent": True,
        "edited_after": True,
        "unique_after": True,
        "original_after": False,
        "edited_before": False,
        "same_kind": True,
    },
    # Appendix B.4. Steps before the first affected one hold in both contexts; that step holds only in its own context.
    # Each trace establishes its own answer and not the other one.
    ConstructionRole.VERIFY_EVIDENCE: {
        "prefix.before": True,
        "prefix.after": True,
        "switching.original_before": True,
        "switching.original_after": False,
        "switching.edited_before": False,
        "switching.edited_after": True,
        "alignment.aligned": True,
        "closure.original": True,
        "closure.edited": True,
        "closure.original_to_edited": False,
        "closure.edited_to_original": False,
    },
    # Appendix B.5. The same evidence answers both questions, and neither answer fits the other question.
    ConstructionRole.SCREEN_QUESTION: {
        "changed": True,
        "edited_warranted": True,
        "edited_unique": True,
        "original_fits_edited": False,
        "edited_fits_original": False,
        "natural": True,
        "several_steps": True,
        "degenerate": False,
    },
    # Appendix B.5. Each trace pursues its own question and not the other one.
    ConstructionRole.VERIFY_QUESTION: {
        "alignment.original": True,
        "alignment.edited": True,
        "alignment.edited_to_original": False,
        "alignment.original_to_edited": False,
        "closure.closed": True,
    },
}
"""Required value of every judgement, by role and name."""


def find_objections(role: ConstructionRole, reply: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the judgements in a reply that differ from the required value."""
    for name, required in ACCEPTANCE_CONDITIONS[role].items():
        value: Any = reply
        for key in name.split("."):
            value = value[key]
        if value is not required:
            yield name
