"""Samples and scores of Inspect as our instances, responses and judgments, and back.

A sample carries its instance, and a score its judgment, whole: a log alone is enough to judge, diagnose and report.
"""

from __future__ import annotations

import json
from math import isnan, nan
from typing import TYPE_CHECKING, Any, TypeVar

from eclose.core.identity import content_hash
from eclose.core.instance import Instance, Passage
from eclose.core.judgment import NEVER_ASKED, NO_ANSWER, NO_TRACE, Criterion, Judgment
from eclose.core.response import Response, Source
from eclose.core.verdict import Verdict
from eclose.diagnosis.diagnose import Case, broken_link
from eclose.errors import RecordError
from eclose.integrations.inspect.model import refused
from eclose.protocol.response_prompt import completion_text
from eclose.store.records.jsonl import decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

    from eclose.core.three_valued import Label

T = TypeVar("T")

INSTANCE, RESPONSE, JUDGMENT = "instance", "response", "judgment"
CONTEXTS = ("contexts", "retrieved_contexts")
"""Where samples of other people's tasks keep their passages, by RAGAS's names."""
GLOBAL_SUFFICIENCY, RELIABLE, GAP = "G", "TRR", "LGG"
KEYS = (*(criterion.value for criterion in Criterion), GLOBAL_SUFFICIENCY, RELIABLE, GAP)
"""What the value of a score is made of: the five labels, and what follows from them."""
REFUSAL, NO_RESPONSE = "refusal", "no_response"
_CUT_OFF = frozenset({"max_tokens", "model_length"})


def plain(value: object) -> dict[str, Any]:
    """A value of ours as JSON has it."""
    found: dict[str, Any] = json.loads(encode(value))
    return found


def kept(kind: type[T], metadata: Mapping[str, Any] | None, name: str) -> T | None:
    """A value of ours out of somebody's metadata; None where there is none, an error where it is spoilt."""
    value = (metadata or {}).get(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RecordError(f"{name}: is not a record of ours.")
    return decode(kind, value)


def instance_of(sample_id: str | int, question: str, target: list[str], metadata: Mapping[str, Any]) -> Instance:
    """What a sample asks: the instance it carries, or one made of its input, target and contexts."""
    if (found := kept(Instance, metadata, INSTANCE)) is not None:
        return found
    texts = next((metadata[name] for name in CONTEXTS if name in metadata), None)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RecordError(
            f"the sample's metadata has no passages. Give it {INSTANCE!r}, as our tasks do, or a list of texts "
            f"as {CONTEXTS[0]!r}."
        )
    accepted = [text for text in target if text]
    return Instance(
        str(sample_id),
        question,
        tuple(Passage(str(place), "", text) for place, text in enumerate(texts)),
        accepted[0] if accepted else None,
        tuple(accepted[1:]),
    )


def unanswered(output: ModelOutput) -> str | None:
    """Why there is no response to judge; None where there is one, be it empty or cut off."""
    if output.empty:
        return NO_RESPONSE
    return REFUSAL if refused(output.choices[0]) else None


def response_of(instance: Instance, output: ModelOutput, model: str, epoch: int) -> Response:
    """What a model said. The id is the same whenever the same model answers in the same epoch."""
    system = content_hash([model, epoch])[7:19]
    cut_off = output.stop_reason in _CUT_OFF
    return Response.from_completion(
        f"{instance.id}-{system}", instance.id, output.completion, Source(model), cut_off=cut_off
    )


def completion_of(response: Response) -> str:
    """Return what the model wrote; where only trace and answer are known, these in the form we ask for."""
    if response.completion is not None:
        return response.completion
    return completion_text(response.trace, response.answer or "")


def recorded_response(metadata: Mapping[str, Any] | None, output: ModelOutput) -> Response | None:
    """Return the response that a log of ours carries; None where the output is no longer that response's."""
    response = kept(Response, metadata, RESPONSE)
    return response if response is not None and completion_of(response) == output.completion else None


def labels(verdict: Verdict) -> dict[str, Label]:
    """The value of a score, before it is put in numbers."""
    five = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    derived = (verdict.globally_sufficient, verdict.reliable, verdict.in_gap)
    return dict(zip(KEYS, (*five, *derived), strict=True))


def value_of(verdict: Verdict) -> dict[str, float]:
    """1, 0, or NaN for what was not judged: Inspect leaves NaN out of every metric, and takes None for 0."""
    return {key: nan if label is None else float(label) for key, label in labels(verdict).items()}


def verdict_of(value: object) -> Verdict:
    """The five labels of a score's value."""
    if not isinstance(value, dict):
        return Verdict()
    return Verdict(*(_label(value.get(criterion.value)) for criterion in Criterion))


def _label(value: object) -> Label:
    if not isinstance(value, int | float) or isnan(value):
        return None
    if value not in (0, 1):
        # Inspect's reducers average over epochs; an average of labels is none.
        raise RecordError(f"{value} is no label. Do not reduce these scores over epochs.")
    return bool(value)


def score_of(case: Case) -> Score:
    """What a judge said, as Inspect keeps it."""
    from inspect_ai.scorer import Score  # noqa: PLC0415 - optional

    judgment = case.judgment
    return Score(
        value=value_of(case.verdict),
        answer=case.response.answer,
        explanation=_explanation(case),
        reason=_reason(judgment),
        metadata={JUDGMENT: plain(judgment)},
    )


def unscored(reason: str) -> Score:
    """A sample without a response: no label at all, and why."""
    from inspect_ai.scorer import Score  # noqa: PLC0415 - optional

    told = {REFUSAL: "The model refused to answer.", NO_RESPONSE: "The model gave no answer."}[reason]
    return Score(value=value_of(Verdict()), explanation=told, reason=reason)


def _explanation(case: Case) -> str:
    """The broken link, and what was not judged."""
    unjudged = ", ".join(f"{criterion} ({reason})" for criterion, reason in case.judgment.unjudged.items())
    return broken_link(case) + (f" Not judged: {unjudged}." if unjudged else "")


def _reason(judgment: Judgment) -> str | None:
    """In Inspect's words: whose fault it is that a label is missing."""
    reasons = set(judgment.unjudged.values()) - NEVER_ASKED
    if reasons - {NO_TRACE, NO_ANSWER}:
        return "grader_failed"
    return "invalid_response_format" if reasons else None
