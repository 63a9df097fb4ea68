"""Detectors that split a response into statements and count those that the evidence supports.

RAGAS-style: every statement counts. VeriScore-style: verifiable facts count, each of them once. Both take the complete
response, its submitted answer included, and two calls of a model: one lists the statements, one decides all of them.
With a window, VeriScore-style lists the claims of each sentence in a call of its own, as the original does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.calls.http.failures import CallFailureKind
from eclose.calls.structured import StructuredAnswer, ask_structured, build_structured_request
from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored
from eclose.prompts.detector_questions import (
    build_extraction_prompt,
    build_sentence_prompts,
    build_verification_prompt,
    disclose_response,
    format_answer_statement,
    parse_extracted_statements,
    parse_support_decisions,
)
from eclose.values.segmentation import split_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.calls.model import ChatModel, Request
    from eclose.detectors.settings import ChatDetectorSettings
    from eclose.prompts.structured import PromptWithSchema
    from eclose.values.instance import Instance
    from eclose.values.response import Response

_NOTHING_SAID = {DetectorKind.STATEMENT_SUPPORT: Unscored.NO_STATEMENT, DetectorKind.CLAIM_SUPPORT: Unscored.NO_CLAIM}


async def score_claim_support(
    instance: Instance, response: Response, model: ChatModel, settings: ChatDetectorSettings
) -> DetectorScore:
    """Return the share of the response's statements or claims that the evidence supports."""
    detector, questions = settings.detector, settings.claim_questions
    make_score = partial(DetectorScore, response_id=response.id, detector=detector, model=model.name)
    ask = partial(ask_structured, model, decoding=settings.decoding, attempts=settings.attempts)
    if not response.trace.steps and response.answer is None:
        return make_score(score=None, unscored=_NOTHING_SAID[detector])
    statements: list[str] = []
    for prompt in _build_extraction_prompts(instance, response, settings):
        answer = await ask(prompt, partial(parse_extracted_statements, questions))
        if answer.reason is not None:
            # A score without the claims of one sentence would be of another response.
            return make_score(score=None, **_explain_failure(prompt, answer))
        statements += answer.value
    if settings.window is not None and response.answer is not None:
        statements.append(format_answer_statement(instance.question, response.answer))
    # The RAGAS-style detector counts a statement as often as the response makes it, as its original does.
    distinct = drop_repeated_claims(statements) if detector is DetectorKind.CLAIM_SUPPORT else tuple(statements)
    repeated = {"repeated": len(statements) - len(distinct)} if len(distinct) < len(statements) else {}
    if not distinct:
        return make_score(score=None, unscored=_NOTHING_SAID[detector])
    prompt = build_verification_prompt(questions, instance, distinct)
    answer = await ask(prompt, partial(parse_support_decisions, questions, len(distinct)))
    if answer.reason is not None:
        failure = _explain_failure(prompt, answer)
        # The statements were paid for and show what the second question was about.
        failure["details"] |= {questions.field: list(distinct), **repeated}
        return make_score(score=None, **failure)
    entries = [
        {"text": text, "supported": decision.supported, "reason": decision.reason}
        for text, decision in zip(distinct, answer.value, strict=True)
    ]
    score = sum(decision.supported for decision in answer.value) / len(entries)
    return make_score(score=score, details={questions.field: entries, **repeated})


def _build_extraction_prompts(
    instance: Instance, response: Response, settings: ChatDetectorSettings
) -> list[PromptWithSchema]:
    """Return the prompt on the whole response, or one for each sentence of the trace."""
    if settings.window is None:
        return [build_extraction_prompt(settings.claim_questions, disclose_response(instance, response))]
    sentences = [sentence for text in response.trace.texts for sentence in split_sentences(text)]
    return build_sentence_prompts(sentences, instance.question, settings.window)


def drop_repeated_claims(claims: Sequence[str]) -> tuple[str, ...]:
    """Return the claims without repetitions; case, white space and a final stop make no difference.

    >>> drop_repeated_claims(["Ana Ruiz was born in Arica.", "Ana Ruiz was  born in Arica", "Arica is in Chile."])
    ('Ana Ruiz was born in Arica.', 'Arica is in Chile.')
    """
    distinct: dict[str, str] = {}
    for claim in claims:
        distinct.setdefault(" ".join(claim.split()).rstrip(".").casefold(), claim)
    return tuple(distinct.values())


def build_claim_requests(instance: Instance, response: Response, settings: ChatDetectorSettings) -> Iterator[Request]:
    """Yield the requests about a response, supposing one statement for each step and one for the answer."""
    texts = [*response.trace.texts]
    if response.answer is not None:
        texts.append(format_answer_statement(instance.question, response.answer))
    if texts:
        for prompt in _build_extraction_prompts(instance, response, settings):
            yield build_structured_request(prompt, settings.decoding)
        verification = build_verification_prompt(settings.claim_questions, instance, texts)
        yield build_structured_request(verification, settings.decoding)


def _explain_failure(prompt: PromptWithSchema, answer: StructuredAnswer) -> dict[str, Any]:
    """Return why there is no score, with the question that got no usable reply and its problem."""
    too_long = answer.reason == CallFailureKind.TOO_LONG
    details = {"question": prompt.name, "reason": answer.reason, "problem": answer.problem}
    return {"unscored": Unscored.TOO_LONG if too_long else Unscored.NO_REPLY, "details": details}
