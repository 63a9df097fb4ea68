"""The prompts of judging models and the parsing of their replies.

There are seven questions, each with its material, locked guideline and strict schema; a joint question that combines
several of them; and a question about the later steps of a long trace. A reply is parsed or refused, never repaired:
refused are replies about other steps than those in the material, and quotations that do not occur in their passage.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.prompts import disclosure
from eclose.prompts.locked_texts import GuidelineReader, PromptMessage, load_prompt_text
from eclose.prompts.material_json import render_material
from eclose.prompts.structured import (
    BOOLEAN_SCHEMA,
    INTEGER_SCHEMA,
    TEXT_SCHEMA,
    InconsistentReplyError,
    PromptWithSchema,
    enum_schema,
    nullable_enum_schema,
    nullable_schema,
    object_schema,
)
from eclose.values.identity import content_hash
from eclose.values.judgment import Criterion, Ineligibility, LocalFailure, StepJudgment, StepSupport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.prompts.disclosure import (
        JointJudgeMaterial,
        JudgeMaterial,
        LocatingMaterial,
        SoundnessMaterial,
        SoundnessWindowMaterial,
    )

    StepMaterial: TypeAlias = SoundnessMaterial | SoundnessWindowMaterial | JointJudgeMaterial


class JudgeQuestion(StrEnum):
    """The questions to a judge; the value names the guideline and the schema of the reply."""

    SUFFICIENCY = "judge_sufficiency"
    SOUNDNESS = "judge_soundness"
    SOUNDNESS_WINDOW = "judge_soundness_window"
    """Soundness of some later steps of a long trace."""
    ALIGNMENT = "judge_alignment"
    ALIGNMENT_LOCATING = "judge_alignment_locating"
    """Alignment, and which sentence of an unmarked reply is its answer."""
    CLOSURE = "judge_closure"
    COMPLETENESS = "judge_completeness"
    CORRECTNESS = "judge_correctness"
    ELIGIBILITY = "screen_eligibility"
    JOINT = "judge_joint"
    """Several questions in one call."""

    @property
    def part(self) -> str:
        """Field of a joint reply that answers this question."""
        return self.value.removeprefix("judge_")


_STEP_QUESTIONS = frozenset({JudgeQuestion.SOUNDNESS, JudgeQuestion.SOUNDNESS_WINDOW})
NOT_SUBSTANTIVE_VERDICT = "not substantive"
SOUND_VERDICT = "sound"
_SUPPORT = object_schema(passage=INTEGER_SCHEMA, quote=TEXT_SCHEMA)
# One field for three decisions: substantive or not, sound or not, and the code of the failure.
_STEP = object_schema(
    reason=TEXT_SCHEMA,
    verdict=enum_schema((NOT_SUBSTANTIVE_VERDICT, SOUND_VERDICT, *LocalFailure)),
    support=nullable_schema(_SUPPORT),
)
# The reason comes first in every reply, so that a model gives it before it decides.
_SCHEMAS: Mapping[JudgeQuestion, Mapping[str, Any]] = {
    JudgeQuestion.SUFFICIENCY: object_schema(
        reason=TEXT_SCHEMA,
        missing=nullable_schema(TEXT_SCHEMA),
        sufficient=BOOLEAN_SCHEMA,
        answer=nullable_schema(TEXT_SCHEMA),
    ),
    JudgeQuestion.ALIGNMENT: object_schema(reason=TEXT_SCHEMA, pursued=TEXT_SCHEMA, aligned=BOOLEAN_SCHEMA),
    JudgeQuestion.ALIGNMENT_LOCATING: object_schema(
        reason=TEXT_SCHEMA, answer_step=nullable_schema(INTEGER_SCHEMA), pursued=TEXT_SCHEMA, aligned=BOOLEAN_SCHEMA
    ),
    JudgeQuestion.CLOSURE: object_schema(
        reason=TEXT_SCHEMA, established=nullable_schema(TEXT_SCHEMA), closed=BOOLEAN_SCHEMA
    ),
    JudgeQuestion.COMPLETENESS: object_schema(
        reason=TEXT_SCHEMA, missing=nullable_schema(TEXT_SCHEMA), complete=BOOLEAN_SCHEMA
    ),
    JudgeQuestion.CORRECTNESS: object_schema(reason=TEXT_SCHEMA, correct=BOOLEAN_SCHEMA),
    JudgeQuestion.ELIGIBILITY: object_schema(
        reason=TEXT_SCHEMA, eligible=BOOLEAN_SCHEMA, code=nullable_enum_schema(Ineligibility)
    ),
}

_QUESTION_OF: Mapping[type[Any], JudgeQuestion] = {
    disclosure.SufficiencyMaterial: JudgeQuestion.SUFFICIENCY,
    disclosure.SoundnessMaterial: JudgeQuestion.SOUNDNESS,
    disclosure.SoundnessWindowMaterial: JudgeQuestion.SOUNDNESS_WINDOW,
    disclosure.AlignmentMaterial: JudgeQuestion.ALIGNMENT,
    disclosure.LocatingMaterial: JudgeQuestion.ALIGNMENT_LOCATING,
    disclosure.ClosureMaterial: JudgeQuestion.CLOSURE,
    disclosure.CompletenessMaterial: JudgeQuestion.COMPLETENESS,
    disclosure.CorrectnessMaterial: JudgeQuestion.CORRECTNESS,
    disclosure.EligibilityMaterial: JudgeQuestion.ELIGIBILITY,
    disclosure.JointJudgeMaterial: JudgeQuestion.JOINT,
}
CRITERION_QUESTIONS = {
    Criterion.LOCAL_SOUNDNESS: JudgeQuestion.SOUNDNESS,
    Criterion.ALIGNMENT: JudgeQuestion.ALIGNMENT,
    Criterion.CLOSURE: JudgeQuestion.CLOSURE,
    Criterion.COMPLETENESS: JudgeQuestion.COMPLETENESS,
    Criterion.CORRECTNESS: JudgeQuestion.CORRECTNESS,
}
"""The question that decides each criterion."""
JOINT_JUDGE_QUESTIONS = (JudgeQuestion.SUFFICIENCY, *CRITERION_QUESTIONS.values())
"""The questions of a joint judge in the order of its reply: those that use the reference come last."""
EXTENDED_QUESTIONS = {
    JudgeQuestion.SOUNDNESS_WINDOW: JudgeQuestion.SOUNDNESS,
    JudgeQuestion.ALIGNMENT_LOCATING: JudgeQuestion.ALIGNMENT,
}
"""Questions that are asked in place of another in some calls, with a text before its guideline."""
JUDGE_MATERIAL_TYPES: Mapping[JudgeQuestion, type[Any]] = {question: kind for kind, question in _QUESTION_OF.items()}


def build_judge_prompt(
    material: JudgeMaterial, parts: Sequence[JudgeQuestion] = JOINT_JUDGE_QUESTIONS
) -> PromptWithSchema:
    """Return the prompt of the question that the material belongs to; ``parts`` are the questions of a joint prompt."""
    question = _QUESTION_OF[type(material)]
    steps = tuple(str(step.id) for step in getattr(material, "steps", ()))
    schema = judge_reply_schema(question, steps, tuple(parts) if question is JudgeQuestion.JOINT else ())
    messages = (
        PromptMessage(role="system", content=_render_frame(question, tuple(parts))),
        PromptMessage(role="user", content=render_material(material)),
    )
    return PromptWithSchema(question, messages, judge_guideline_hash(question), schema)


@cache
def judge_reply_schema(
    question: JudgeQuestion, steps: tuple[str, ...] = (), parts: tuple[JudgeQuestion, ...] = ()
) -> Mapping[str, Any]:
    """Return the schema of a reply; it requires every step id, so that constrained decoding cannot skip a step."""
    if question is JudgeQuestion.JOINT:
        schema = object_schema(**{part.part: _question_schema(part, steps) for part in parts})
    else:
        schema = _question_schema(question, steps)
    # The step schema is a definition, because a schema is paid for with every call and steps may be many.
    return schema | {"$defs": {"step": _STEP}} if _STEP_QUESTIONS & {question, *parts} else schema


def _question_schema(question: JudgeQuestion, steps: tuple[str, ...]) -> dict[str, Any]:
    if question in _STEP_QUESTIONS:
        return object_schema(steps=object_schema(**{step: {"$ref": "#/$defs/step"} for step in steps}))
    return dict(_SCHEMAS[question])


@cache
def _render_frame(question: JudgeQuestion, parts: tuple[JudgeQuestion, ...]) -> str:
    return load_prompt_text("judge_frame.md").render(guideline=_guideline(question, parts))


def _guideline(question: JudgeQuestion, parts: Sequence[JudgeQuestion]) -> str:
    text = load_prompt_text(f"{question}.md")
    if question in EXTENDED_QUESTIONS:
        return text.render(guideline=_guideline(EXTENDED_QUESTIONS[question], ()))
    if question is not JudgeQuestion.JOINT:
        return text.text_for(GuidelineReader.MODELS).rstrip("\n")
    guidelines = (f"Guideline for `{part.part}`:\n\n{_guideline(part, ())}" for part in parts)
    return text.render(guidelines="\n\n---\n\n".join(guidelines))


@cache
def judge_guideline_hash(question: JudgeQuestion) -> str:
    """Return the hash of frame and guidelines as models see them: everything in the prompt but the material."""
    # Passages addressed to people are left out, so that editing those does not invalidate judgments of models.
    # A joint prompt is hashed with all guidelines, whichever of them a call uses.
    extended = (EXTENDED_QUESTIONS[question],) if question in EXTENDED_QUESTIONS else ()
    contained = JOINT_JUDGE_QUESTIONS if question is JudgeQuestion.JOINT else extended
    names = ("judge_frame", question, *contained)
    return content_hash([load_prompt_text(f"{name}.md").text_for(GuidelineReader.MODELS) for name in names])


def cut_material_to_question(material: JointJudgeMaterial, question: JudgeQuestion) -> JudgeMaterial:
    """Return the part of joint material that one question may rest on."""
    kind = JUDGE_MATERIAL_TYPES[question]
    restricted: JudgeMaterial = kind(**{field.name: getattr(material, field.name) for field in fields(kind)})
    return restricted


def check_answer_step(material: LocatingMaterial, reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the reply; raise InconsistentReplyError where it names a step that the material does not have."""
    step, ids = reply["answer_step"], [step.id for step in material.steps]
    if step is not None and step not in ids:
        raise InconsistentReplyError("no such step", f"the steps are {ids}, the answer is said to be step {step}.")
    return reply


def parse_step_judgments(material: StepMaterial, reply: Mapping[str, Any]) -> tuple[StepJudgment, ...]:
    """Return the judgment of every step in order.

    Raises:
        InconsistentReplyError: The step ids differ from those in the material, or a quotation is not in its passage.
    """
    entries: Mapping[str, Mapping[str, Any]] = reply["steps"]
    ids = [str(step.id) for step in material.steps]
    if set(entries) != set(ids):
        raise InconsistentReplyError("wrong step ids", f"the steps are {ids}, the reply is about {list(entries)}.")
    return tuple(_parse_step(id_, entries[id_], material) for id_ in ids)


def _parse_step(step: str, entry: Mapping[str, Any], material: StepMaterial) -> StepJudgment:
    support = None if entry["support"] is None else _parse_support(entry["support"], step, material)
    reason, verdict = entry["reason"] or None, entry["verdict"]
    if verdict == NOT_SUBSTANTIVE_VERDICT:
        return StepJudgment(False, None, None, support, reason)
    # Every other verdict is the code of a failure, by the schema.
    failure = None if verdict == SOUND_VERDICT else LocalFailure(verdict)
    return StepJudgment(True, failure is None, failure, support, reason)


def encode_step_judgment(judgment: StepJudgment) -> dict[str, Any]:
    """Return the entry of a step in a reply, as ``parse_step_judgments`` parses it."""
    failure, support = judgment.failure or LocalFailure.OTHER, judgment.support
    return {
        "reason": judgment.reason or "",
        "verdict": NOT_SUBSTANTIVE_VERDICT
        if not judgment.substantive
        else SOUND_VERDICT
        if judgment.sound
        else str(failure),
        "support": None if support is None else {"passage": support.passage_index, "quote": support.quote},
    }


def _parse_support(entry: Mapping[str, Any], step: str, material: StepMaterial) -> StepSupport:
    index, quote = entry["passage"], entry["quote"]
    if not 0 <= index < len(material.evidence):
        raise InconsistentReplyError("no such passage", f"step {step}: there is no passage {index}.")
    passage, collapsed = material.evidence[index], _collapse_blanks(quote)
    texts = (_collapse_blanks(passage.text), _collapse_blanks(passage.title))
    if not collapsed or not any(collapsed in text for text in texts):
        raise InconsistentReplyError("quote not found", f"step {step}: {quote!r} does not occur in passage {index}.")
    # "the" occurs in every passage and supports nothing, unless it is all of the title.
    if not _is_informative(collapsed) and collapsed not in texts:
        raise InconsistentReplyError("quote too short", f"step {step}: {quote!r} is too short to show support.")
    return StepSupport(index, quote)


def _is_informative(quote: str) -> bool:
    """Return whether a quotation has at least three words, or twelve characters in scripts without blanks."""
    return len(quote.split()) >= 3 or len(quote) >= 12


def _collapse_blanks(text: str) -> str:
    # Quotations must be verbatim except for white space.
    return " ".join(text.split())
