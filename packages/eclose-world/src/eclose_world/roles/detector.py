"""The world's model behind detectors: it lists what a response says and decides it exactly, from the oracle.

A response says its steps and its answer. The passages support a statement where the oracle finds it sound; a statement
that claims nothing is supported. The probability of Yes is high where the oracle finds a trace aligned. Where the
oracle cannot read a text, the reply has the wrong shape on purpose and the client counts a response without a score.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError
from eclose.prompts.detector_questions import (
    CLAIM_QUESTIONS,
    STATEMENT_QUESTIONS,
    ClaimQuestions,
    ClaimSupportMaterial,
    DetectorQuestion,
    ResponseMaterial,
    SentenceMaterial,
    StatementSupportMaterial,
    format_answer_statement,
)
from eclose.prompts.disclosure import AlignmentMaterial
from eclose.prompts.material_json import parse_material
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace
from eclose_world.language.claims import ClaimlessStep, PronounReferents
from eclose_world.language.questions import ComparisonQuestion, parse_question
from eclose_world.language.steps import parse_step_claims
from eclose_world.oracle.answer_equality import is_abstention, is_correct_answer
from eclose_world.oracle.evidence import find_warranted_answers
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.oracle.soundness import judge_step_soundness
from eclose_world.roles.judge import CANNOT_READ
from eclose_world.server.chat_requests import BadRequest, ChatRequest, HandlerRegistry, ScriptedReply
from eclose_world.server.faults import hash_to_unit_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.values.three_valued import Label

ANSWER_STATEMENT = re.compile(r'The answer to the question "(?P<question>.*)" is (?P<answer>.*)\.', re.DOTALL)
CONFIDENCE = 0.9
"""Probability of the right one of Yes and No."""
_ID = "material"
_UNREADABLE = ScriptedReply("", refusal=CANNOT_READ)


def register_detector_handlers(registry: HandlerRegistry, *, noise: float = 0.0, seed: int = 0) -> None:
    """Register the handlers of structured questions; ``noise`` is the rate of wrong decisions on statements.

    The question of alignment asks for plain text, so the handler of plain text calls ``answer_alignment``.
    """
    if not 0 <= noise <= 1:
        raise SettingError("the detector's error rate must be between 0 and 1 (detector_noise).")
    for questions in (STATEMENT_QUESTIONS, CLAIM_QUESTIONS):
        registry.register(questions.extract, partial(_list_statements, questions))
        registry.register(questions.verify, partial(_decide_statements, questions, noise, seed))
    registry.register(DetectorQuestion.WINDOW_CLAIMS, _list_sentence_claims)


def parse_alignment_question(request: ChatRequest) -> AlignmentMaterial | None:
    """Return the material of a plain-text question of alignment; None for any other request."""
    if request.schema_name is not None or not request.logprobs:
        return None
    try:
        material: AlignmentMaterial = parse_material(AlignmentMaterial, request.messages[-1]["content"])
    except ValueError:
        return None
    return material


def answer_alignment(
    material: AlignmentMaterial, request: ChatRequest, *, noise: float = 0.0, seed: int = 0
) -> ScriptedReply:
    """Return Yes or No with the probabilities of both; another word where the oracle cannot read the trace."""
    trace = Trace.of(*(step.text for step in material.steps))
    aligned = judge_by_oracle(Instance(_ID, material.question, ()), Response(_ID, _ID, trace, None)).aligned
    if aligned is None:
        return ScriptedReply("Unreadable")
    if _errs(DetectorQuestion.ALIGNMENT, request.messages[-1]["content"], request.draw(seed), noise):
        aligned = not aligned
    likely, unlikely = ("Yes", "No") if aligned else ("No", "Yes")
    return ScriptedReply(likely, first_token={likely: CONFIDENCE, unlikely: 1 - CONFIDENCE})


def _list_statements(questions: ClaimQuestions, request: ChatRequest) -> ScriptedReply:
    material = _parse(ResponseMaterial, request)
    texts = [step.text for step in material.steps]
    if questions is CLAIM_QUESTIONS:
        texts = _drop_claimless(texts)
    if material.answer is not None:
        texts.append(format_answer_statement(material.question, material.answer))
    return ScriptedReply({questions.field: texts})


def _list_sentence_claims(request: ChatRequest) -> ScriptedReply:
    material = _parse(SentenceMaterial, request)
    # Read after the sentences before it, to which its pronouns refer.
    claims_before, claims = (
        _drop_claimless(texts) for texts in (material.before, (*material.before, material.sentence))
    )
    return ScriptedReply({CLAIM_QUESTIONS.field: claims[len(claims_before) :]})


def _drop_claimless(texts: Sequence[str]) -> list[str]:
    """Return the steps without those that claim nothing; an unreadable step stays, because it may claim something."""
    discourse = PronounReferents()
    claims_of = [(text, parse_step_claims(text, discourse)) for text in texts]
    return [
        text
        for text, claims in claims_of
        if claims is None or not all(isinstance(claim, ClaimlessStep) for claim in claims)
    ]


def _decide_statements(questions: ClaimQuestions, noise: float, seed: int, request: ChatRequest) -> ScriptedReply:
    kind = StatementSupportMaterial if questions is STATEMENT_QUESTIONS else ClaimSupportMaterial
    material = _parse(kind, request)
    passages = tuple(Passage(str(passage.index), passage.title, passage.text) for passage in material.evidence)
    statements = getattr(material, questions.field)
    labels = decide_support(passages, [statement.text for statement in statements])
    entries = {}
    for statement, label in zip(statements, labels, strict=True):
        if label is None:
            return _UNREADABLE
        errs = _errs(questions.verify, f"{statement.id}/{request.messages[-1]['content']}", request.draw(seed), noise)
        entries[str(statement.id)] = {"reason": "", "supported": label is not errs}
    return ScriptedReply({questions.field: entries})


def decide_support(passages: tuple[Passage, ...], statements: Sequence[str]) -> list[Label]:
    """Return for each statement whether the passages support it; None where the oracle cannot tell."""
    matches = [ANSWER_STATEMENT.fullmatch(text) for text in statements]
    # Statements made from steps are read in their order: pronouns refer to earlier ones.
    steps = [text for text, match in zip(statements, matches, strict=True) if match is None]
    questions = [parse_question(match["question"]) for match in matches if match is not None]
    # "The older one" is one of the options of the question, which the statement made from the answer repeats.
    options = [option for target in questions if isinstance(target, ComparisonQuestion) for option in target.options]
    judgments = iter(judge_step_soundness(passages, Trace.of(*steps), options)[0])
    labels: list[Label] = []
    for match in matches:
        if match is not None:
            labels.append(_supports_answer(passages, match["question"], match["answer"]))
        else:
            step = next(judgments)
            labels.append(True if step.substantive is False else step.sound)
    return labels


def _supports_answer(passages: tuple[Passage, ...], question: str, answer: str) -> Label:
    values = find_warranted_answers(question, passages)
    if values is None:
        return None
    return not values if is_abstention(answer) else is_correct_answer(answer, values)


def _errs(question: DetectorQuestion, content: str, draw: tuple[int, ...], noise: float) -> bool:
    # Drawn from the material alone: an error on a case recurs on every request, unless the request's seed changes.
    return hash_to_unit_interval("noise", *draw, question, content) < noise


def _parse(kind: type[Any], request: ChatRequest) -> Any:
    try:
        return parse_material(kind, request.messages[-1]["content"])
    except ValueError as error:
        raise BadRequest(str(error)) from None
