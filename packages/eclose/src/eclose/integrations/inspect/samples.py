"""Conversion between samples and scores of Inspect and instances, responses and judgments of eclose.

The metadata of a sample holds its full instance, and that of a score its full judgment, so a log alone is enough to
judge, diagnose and report.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import isnan, nan
from typing import TYPE_CHECKING, Any, TypeVar

from eclose.calls.inspect_model import is_refused_output
from eclose.diagnosis.response_failure import describe_response_failure
from eclose.errors import RecordError
from eclose.files.jsonl import decode_core_value, encode_json_line
from eclose.reading.recorded import build_response
from eclose.reading.response import read_response
from eclose.values.identity import content_hash
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import NEVER_ASKED_REASONS, NO_ANSWER_REASON, UNREAD_REASONS, Criterion, Judgment
from eclose.values.response import Response, ResponseSource
from eclose.values.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

    from eclose.diagnosis.diagnose import JudgedCase
    from eclose.values.three_valued import Label

T = TypeVar("T")

INSTANCE, JUDGMENT = "instance", "judgment"
CONTEXT_KEYS = ("contexts", "retrieved_contexts")
"""Metadata fields in which samples of other tasks hold their passages, as RAGAS names them."""
GLOBAL_SUFFICIENCY, RELIABLE, GAP = "G", "TRR", "LGG"
SCORE_KEYS = (*(criterion.value for criterion in Criterion), GLOBAL_SUFFICIENCY, RELIABLE, GAP)
"""Keys of a score's value: the five criteria, then the labels that are derived from them."""
REFUSAL, NO_RESPONSE = "refusal", "no_response"
_CUT_OFF = frozenset({"max_tokens", "model_length"})


def record_to_json_dict(value: object) -> dict[str, Any]:
    """Return a record as a dictionary of JSON values."""
    fields: dict[str, Any] = json.loads(encode_json_line(value))
    return fields


def read_metadata_record(kind: type[T], metadata: Mapping[str, Any] | None, name: str) -> T | None:
    """Return a record from metadata; None where the field is missing, RecordError where it is malformed."""
    value = (metadata or {}).get(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RecordError(f"{name}: is not a record of eclose.")
    return decode_core_value(kind, value)


def instance_from_sample(
    sample_id: str | int, question: str, target: list[str], metadata: Mapping[str, Any]
) -> Instance:
    """Return the instance in the metadata of a sample, or one built from its input, target and contexts."""
    if (recorded := read_metadata_record(Instance, metadata, INSTANCE)) is not None:
        return recorded
    texts = next((metadata[name] for name in CONTEXT_KEYS if name in metadata), None)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RecordError(
            f"the sample's metadata has no passages. Add {INSTANCE!r}, as the tasks of eclose do, or a list of texts "
            f"as {CONTEXT_KEYS[0]!r}."
        )
    # The first target is the reference and the others are aliases, in the order of the tasks of eclose.
    accepted = [text for text in target if text]
    return Instance(
        str(sample_id),
        question,
        tuple(Passage(str(index), "", text) for index, text in enumerate(texts)),
        accepted[0] if accepted else None,
        tuple(accepted[1:]),
    )


def explain_missing_response(output: ModelOutput) -> str | None:
    """Return why there is no response to judge; None for any response, even an empty or truncated one."""
    if output.empty:
        return NO_RESPONSE
    return REFUSAL if is_refused_output(output.choices[0]) else None


def response_from_output(instance: Instance, output: ModelOutput, model: str, epoch: int) -> Response:
    """Return the response of a model; its id depends on instance, model and epoch only."""
    # Characters 7 to 19 are the first twelve hex digits behind "sha256:".
    system = content_hash([model, epoch])[7:19]
    cut_off = output.stop_reason in _CUT_OFF
    id_, source = f"{instance.id}-{system}", ResponseSource(model)
    completion = Response.from_completion(id_, instance.id, output.completion, source, cut_off=cut_off)
    if completion.answer_lines or not output.completion.strip():
        return completion
    # Tasks with a prompt of their own answer in any layout.
    written = {"text": output.completion, "finishReason": "length" if cut_off else "stop"}
    reading = read_response(written, instance.question)
    response = build_response(reading, instance.id, output.completion, id=id_, source=source)
    return replace(response, completion=output.completion, cut_off=cut_off)


def get_verdict_labels(verdict: Verdict) -> dict[str, Label]:
    """Return the labels of a verdict by the keys of a score."""
    five = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    derived = (verdict.globally_sufficient, verdict.reliable, verdict.in_gap)
    return dict(zip(SCORE_KEYS, (*five, *derived), strict=True))


def build_score_value(verdict: Verdict) -> dict[str, float]:
    """Return the value of a score: 1, 0, or NaN for a missing label."""
    # Inspect leaves NaN out of every metric, but counts None as 0.
    return {key: nan if label is None else float(label) for key, label in get_verdict_labels(verdict).items()}


def parse_score_labels(value: object) -> Verdict:
    """Return the five labels of a score's value."""
    if not isinstance(value, dict):
        return Verdict()
    return Verdict(*(_label(value.get(criterion.value)) for criterion in Criterion))


def _label(value: object) -> Label:
    if not isinstance(value, int | float) or isnan(value):
        return None
    if value not in (0, 1):
        # Reducers of Inspect average over epochs, which gives no label.
        raise RecordError(f"{value} is no label. Do not reduce these scores over epochs.")
    return bool(value)


def build_judged_score(case: JudgedCase) -> Score:
    """Return the score of a judged response."""
    from inspect_ai.scorer import Score  # noqa: PLC0415 - optional

    judgment = case.judgment
    unjudged = ", ".join(f"{label} ({reason})" for label, reason in judgment.missing_reasons.items())
    return Score(
        value=build_score_value(case.verdict),
        answer=case.response.answer,
        explanation=describe_response_failure(case) + (f" Not judged: {unjudged}." if unjudged else ""),
        reason=_find_reason(judgment),
        metadata={JUDGMENT: record_to_json_dict(judgment)},
    )


def build_empty_score(reason: str) -> Score:
    """Return the score of a sample without a response: no labels, and the reason."""
    from inspect_ai.scorer import Score  # noqa: PLC0415 - optional

    explanation = {REFUSAL: "The model refused to answer.", NO_RESPONSE: "The model gave no answer."}[reason]
    return Score(value=build_score_value(Verdict()), explanation=explanation, reason=reason)


def _find_reason(judgment: Judgment) -> str | None:
    reasons = set(judgment.unjudged.values()) - NEVER_ASKED_REASONS
    if reasons - UNREAD_REASONS - {NO_ANSWER_REASON}:
        # The judge failed; a missing trace or answer is the fault of the response.
        return "grader_failed"
    return "invalid_response_format" if reasons else None
