"""The prompts of detectors that ask a chat model, and the parsing of their replies.

Two detectors split a response into statements and let the passages decide each of them. They differ in what they take:
the RAGAS-style one takes every statement, the VeriScore-style one only verifiable facts, each of them once. The
alignment detector asks a question to be answered with Yes or No. No detector is shown the reference answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from eclose.prompts.locked_texts import GuidelineReader, PromptMessage, load_prompt_text
from eclose.prompts.material_json import (
    DisclosedPassage,
    DisclosedStep,
    disclose_passages,
    disclose_steps,
    render_material,
)
from eclose.prompts.structured import (
    BOOLEAN_SCHEMA,
    TEXT_SCHEMA,
    InconsistentReplyError,
    PromptWithSchema,
    array_schema,
    object_schema,
)
from eclose.values.identity import content_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.prompts.disclosure import AlignmentMaterial
    from eclose.values.instance import Instance
    from eclose.values.response import Response


class DetectorQuestion(StrEnum):
    """The questions of detectors; the value names the guideline and the schema of the reply."""

    STATEMENTS = "detect_statements"
    STATEMENTS_SUPPORTED = "detect_supported"
    CLAIMS = "detect_claims"
    WINDOW_CLAIMS = "detect_window_claims"
    CLAIMS_SUPPORTED = "detect_claims_supported"
    ALIGNMENT = "detect_alignment"


# Field names are keys of the JSON in the prompt, and guidelines refer to them: renaming one changes a locked prompt.


@dataclass(frozen=True, slots=True)
class ResponseMaterial:
    """Question, trace and submitted answer (q, r, a): no evidence, no reference."""

    question: str
    steps: tuple[DisclosedStep, ...]
    answer: str | None


@dataclass(frozen=True, slots=True)
class SentenceMaterial:
    """Question and one sentence of the trace with those around it: no answer, no evidence, no reference."""

    question: str
    before: tuple[str, ...]
    sentence: str
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StatementSupportMaterial:
    """Evidence and statements of a response: no question, no reference."""

    evidence: tuple[DisclosedPassage, ...]
    statements: tuple[DisclosedStep, ...]


@dataclass(frozen=True, slots=True)
class ClaimSupportMaterial:
    """Evidence and claims of a response: no question, no reference."""

    evidence: tuple[DisclosedPassage, ...]
    claims: tuple[DisclosedStep, ...]


@dataclass(frozen=True, slots=True)
class ClaimQuestions:
    """The two questions of a detector that checks what a response says."""

    extract: DetectorQuestion
    verify: DetectorQuestion
    field: str
    """Field of the replies and of the material of the second question: ``statements`` or ``claims``."""


STATEMENT_QUESTIONS = ClaimQuestions(DetectorQuestion.STATEMENTS, DetectorQuestion.STATEMENTS_SUPPORTED, "statements")
CLAIM_QUESTIONS = ClaimQuestions(DetectorQuestion.CLAIMS, DetectorQuestion.CLAIMS_SUPPORTED, "claims")

_ENTRY_SCHEMA = object_schema(reason=TEXT_SCHEMA, supported=BOOLEAN_SCHEMA)


@dataclass(frozen=True, slots=True)
class SupportDecision:
    """Whether the evidence supports a statement, with the reason in the model's words."""

    supported: bool
    reason: str


def disclose_response(instance: Instance, response: Response) -> ResponseMaterial:
    """Return the material for listing what a response says."""
    return ResponseMaterial(instance.question, disclose_steps(response.trace), response.answer)


def build_extraction_prompt(questions: ClaimQuestions, material: ResponseMaterial) -> PromptWithSchema:
    """Return the prompt that asks for the statements or claims of a response."""
    schema = object_schema(**{questions.field: array_schema(TEXT_SCHEMA)})
    return _build_prompt(questions.extract, material, schema)


def build_sentence_prompts(sentences: Sequence[str], question: str, window: tuple[int, int]) -> list[PromptWithSchema]:
    """Return for each sentence the prompt that asks for its claims.

    Args:
        sentences: All sentences of a trace, in order.
        question: The question of the instance.
        window: How many sentences before and after it are shown with a sentence.
    """
    before, after = window
    schema = object_schema(**{CLAIM_QUESTIONS.field: array_schema(TEXT_SCHEMA)})
    materials = (
        SentenceMaterial(
            question,
            tuple(sentences[max(0, number - before) : number]),
            sentence,
            tuple(sentences[number + 1 : number + 1 + after]),
        )
        for number, sentence in enumerate(sentences)
    )
    return [_build_prompt(DetectorQuestion.WINDOW_CLAIMS, material, schema) for material in materials]


def format_answer_statement(question: str, answer: str) -> str:
    """Return the statement that a submitted answer makes."""
    return f'The answer to the question "{question}" is {answer.removesuffix(".")}.'


def build_verification_prompt(
    questions: ClaimQuestions, instance: Instance, statements: Sequence[str]
) -> PromptWithSchema:
    """Return the prompt that asks whether the evidence supports each of the statements or claims."""
    evidence = disclose_passages(instance.evidence)
    numbered = tuple(DisclosedStep(number, text) for number, text in enumerate(statements, start=1))
    material = (
        StatementSupportMaterial(evidence, numbered)
        if questions is STATEMENT_QUESTIONS
        else ClaimSupportMaterial(evidence, numbered)
    )
    return _build_prompt(questions.verify, material, support_reply_schema(questions.field, len(numbered)))


@cache
def support_reply_schema(field: str, count: int) -> Mapping[str, Any]:
    """Return the schema of a reply on ``count`` statements; it requires every id, so that none can be left out."""
    entries = object_schema(**{str(number): {"$ref": "#/$defs/entry"} for number in range(1, count + 1)})
    # The entry is a definition, because a schema is paid for with every call and statements may be many.
    return object_schema(**{field: entries}) | {"$defs": {"entry": _ENTRY_SCHEMA}}


def build_alignment_messages(material: AlignmentMaterial) -> tuple[PromptMessage, ...]:
    """Return the messages of the question whether a trace pursues the question, to be answered with Yes or No."""
    return _build_messages(DetectorQuestion.ALIGNMENT, material)


def _build_prompt(question: DetectorQuestion, material: Any, schema: Mapping[str, Any]) -> PromptWithSchema:
    return PromptWithSchema(question, _build_messages(question, material), detector_guideline_hash(question), schema)


def _build_messages(question: DetectorQuestion, material: Any) -> tuple[PromptMessage, ...]:
    guideline = load_prompt_text(f"{question}.md").text_for(GuidelineReader.MODELS).rstrip("\n")
    system = load_prompt_text("detect_frame.md").render(guideline=guideline)
    return (
        PromptMessage(role="system", content=system),
        PromptMessage(role="user", content=render_material(material)),
    )


@cache
def detector_guideline_hash(question: DetectorQuestion) -> str:
    """Return the hash of frame and guideline: everything in the prompt but the material."""
    names = ("detect_frame", question)
    return content_hash([load_prompt_text(f"{name}.md").text_for(GuidelineReader.MODELS) for name in names])


def parse_extracted_statements(questions: ClaimQuestions, reply: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the statements or claims of a reply, in order.

    Raises:
        InconsistentReplyError: A statement is blank, so that it cannot be verified.
    """
    statements: list[str] = reply[questions.field]
    if blank := next((number for number, text in enumerate(statements, start=1) if not text.strip()), None):
        raise InconsistentReplyError("blank statement", f"number {blank} of {questions.field} is blank.")
    return tuple(statements)


def parse_support_decisions(questions: ClaimQuestions, count: int, reply: Mapping[str, Any]) -> list[SupportDecision]:
    """Return the decision on every statement, in order.

    Raises:
        InconsistentReplyError: The ids differ from those in the material.
    """
    entries: Mapping[str, Mapping[str, Any]] = reply[questions.field]
    ids = [str(number) for number in range(1, count + 1)]
    if set(entries) != set(ids):
        raise InconsistentReplyError("wrong ids", f"the {questions.field} are {ids}, the reply is on {list(entries)}.")
    return [SupportDecision(entries[id_]["supported"], entries[id_]["reason"]) for id_ in ids]
