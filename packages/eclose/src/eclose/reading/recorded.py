"""Responses of instances, from readings: what stands in columns, what agents logged, what is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eclose.errors import RecordError
from eclose.reading.channels import split_text
from eclose.reading.messages import Part, PartKind, find_role, read_parts
from eclose.reading.response import (
    DEFAULT_SETTINGS,
    READER,
    Gathered,
    Reading,
    ReadSettings,
    gather,
    read_gathered,
    read_response,
)
from eclose.reading.segments import Role, Words, segment_text
from eclose.reading.slots import Slots
from eclose.reading.text import Origin, ReadingStatus, abstains, claims_of, read_text, strip_marks
from eclose.values.identity import content_hash
from eclose.values.response import LeftOut, Response, ResponseReading, ResponseSource, Trace, parse_completion

ALL_ANSWER_NOTE = "answer not told apart from its explanation"
PROSE_TRACE_NOTE = "sentences of the reply taken as its trace"
HIDDEN_TRACE_NOTE = "thinking taken as the trace of a reply that has none"
ANNOUNCEMENTS_LEFT_OUT_NOTE = "announcements and questions left out of the trace"
TEXT_BEHIND_NOTE = "text behind the answer line left out"
THINKING_LEFT_OUT_NOTE = "thinking left out where the response has a trace of its own"
OTHER_ANSWER_NOTE = "another answer in the response left out"
_ROLE_NOTES = {
    Role.PLAN: ANNOUNCEMENTS_LEFT_OUT_NOTE,
    Role.QUESTION: ANNOUNCEMENTS_LEFT_OUT_NOTE,
    Role.FILLER: ANNOUNCEMENTS_LEFT_OUT_NOTE,
    Role.RESTATEMENT: ANNOUNCEMENTS_LEFT_OUT_NOTE,
    Role.BEHIND: TEXT_BEHIND_NOTE,
    Role.HIDDEN: THINKING_LEFT_OUT_NOTE,
    Role.ANSWER: OTHER_ANSWER_NOTE,
}
_UNMARKED = frozenset(("one sentence", "bare answer", "what the question asks for"))
_STEP_KEYS = ("text", "step", "content", "explanation", "description")
_SHAPE = "write a text, or an object with a text under text, step, content, thought or observation"


def read_columns(
    response: Any,
    trace: Any = None,
    before: Mapping[str, Any] | None = None,
    question: str = "",
    settings: ReadSettings = DEFAULT_SETTINGS,
) -> Reading:
    """Read a response whose trace, or whose conversation, stands beside it.

    Args:
        response: The response: a text, a message, or the reply of an API; None where the rest holds it.
        trace: The trace: a text, or a list of texts or of objects with a text.
        before: Messages, calls or steps of an agent, under the key by which they are known.
        question: The question.
        settings: Markers, language and reader.

    Raises:
        RecordError: A part has no known shape, or there are two traces.
    """
    response = None if isinstance(response, str) and not response.strip() else response
    if response is None and before is None and isinstance(trace, str):
        response, trace = trace, None
    if settings.reader is not None or (trace in (None, "", []) and before is None):
        return read_response("" if response is None else response, question, settings)
    gathered = gather(before) if before is not None else Gathered()
    if isinstance(response, str):
        gathered.output = response if before is not None else None
        gathered.parts += [] if before is not None else [Part(PartKind.SAID, response)]
    elif response is not None:
        gathered = _append(gathered, gather(response))
    if trace not in (None, "", []):
        _take_trace(gathered, trace, response, question, settings)
    return read_gathered(gathered, question, settings)


def read_parts_before(answer: str, parts: Sequence[Part], question: str, settings: ReadSettings) -> Reading:
    """Read the answer of an application from which the parts before it are known."""
    if settings.reader is not None:
        return read_response(answer, question, settings)
    return read_gathered(Gathered(list(parts), output=answer if answer.strip() else None), question, settings)


def _append(gathered: Gathered, reply: Gathered) -> Gathered:
    """Return a conversation with a reply that stands beside it; some logs append it as well."""
    repeats = bool(reply.parts) and gathered.parts[-len(reply.parts) :] == reply.parts
    parts = [*gathered.parts, *([] if repeats else reply.parts)]
    return replace(reply, parts=parts, question=gathered.question, output=reply.output)


def _take_trace(gathered: Gathered, trace: Any, response: Any, question: str, settings: ReadSettings) -> None:
    """Put the trace of a column into a slot of its own; what tools returned in it is evidence."""
    steps, results = _segment_trace(trace, question, settings)
    if not any(steps):
        gathered.parts = [*results, *gathered.parts]
        return
    says = (PartKind.SAID, PartKind.HIDDEN, PartKind.COMMENTARY)
    if gathered.output is not None and any(part.kind in says and part.text.strip() for part in gathered.parts):
        raise RecordError("trace: holds a trace, and the agent's messages hold another. Keep one of them.")
    answer = response if isinstance(response, str) else gathered.reply
    if isinstance(response, str):
        _refuse_second_trace(response, [text for part in steps for text in part], question, settings)
    gathered.slots = Slots("trace column", answer, answer is not None, list(steps), has_trace=True, is_reply=True)
    gathered.parts = [*results, *(part for part in gathered.parts if part.kind not in says)]


def _refuse_second_trace(response: str, steps: list[str], question: str, settings: ReadSettings) -> None:
    if not parse_completion(response).answer_lines:
        return
    repeated = read_text(response, settings.for_text(question)).steps
    if repeated and list(repeated) != steps:
        raise RecordError(
            "trace: there is a trace here, and another before the answer line of the response. Keep one of them."
        )


def _segment_trace(trace: Any, question: str, settings: ReadSettings) -> tuple[list[list[str]], list[Part]]:
    """Return the steps of a trace's column, and what tools returned in it."""
    text_settings = settings.for_text(question)
    if isinstance(trace, str):
        text = trace
        split = split_text(text)
        parts = list(split.parts) if split is not None else [Part(PartKind.SAID, text)]
        results = [part for part in parts if part.kind is PartKind.RESULT]
        steps = [claims_of(strip_marks(part.text, text_settings)) for part in parts if part.kind not in _ACTS]
        return [[step for texts in steps for step in texts]], results
    if not isinstance(trace, list | tuple):
        raise RecordError("trace: should be a text, or a list of texts or of objects with a text")
    if all(isinstance(item, str) for item in trace):
        if (split := split_text("\n".join(trace))) is not None and split.is_log:
            return _segment_trace("\n".join(trace), question, settings)
        return [[str(item) for item in trace if item.strip()]], []
    texts: list[str] = []
    results = []
    for number, item in enumerate(trace):
        item_texts, observed = _segment_item(item, number, text_settings.find_words)
        texts += item_texts
        results += observed
    return [texts], results


_ACTS = (PartKind.CALL, PartKind.RESULT)


def _segment_item(item: object, number: int, find_words: Any) -> tuple[list[str], list[Part]]:
    """Return the steps of one item: a step stays one, thoughts and messages are split, observations are evidence."""
    if isinstance(item, str):
        return [item.strip()] if item.strip() else [], []
    if not isinstance(item, Mapping):
        raise RecordError(f"trace[{number}]: is not a text; {_SHAPE}")
    role = find_role(item)
    if role in ("user", "human", "system"):
        raise RecordError(f"trace[{number}]: is a message of the {role}, which is not a step of a trace; leave it out")
    if role or any(item.get(key) is not None for key in ("thought", "observation", "action")):
        parts = read_parts([item], "trace")
        texts = [part.text for part in parts if part.kind not in _ACTS]
        words: list[Words] = [find_words(text) for text in texts]
        steps = [step for text, own in zip(texts, words, strict=True) for step in claims_of(segment_text(text, own))]
        extra = next((item[key] for key in _STEP_KEYS if isinstance(item.get(key), str)), "") if not role else ""
        observed = [part for part in parts if part.kind is PartKind.RESULT and str(part.value or "").strip()]
        return [*steps, *([extra] if extra.strip() else [])], observed
    filled = [(key, item[key]) for key in _STEP_KEYS if item.get(key) is not None]
    if not filled:
        raise RecordError(f"trace[{number}]: has no text; {_SHAPE}")
    if not isinstance(filled[0][1], str):
        raise RecordError(f"trace[{number}].{filled[0][0]}: should be a text")
    return [filled[0][1].strip()] if filled[0][1].strip() else [], []


# Readings to responses.


def build_response(
    reading: Reading,
    instance_id: str,
    *texts: object,
    id: str | None = None,  # noqa: A002
    source: ResponseSource | None = None,
) -> Response:
    """Return the response of a reading, with an id derived from the original texts unless one is passed."""
    originals = [text for text in texts if text is not None]
    digest = content_hash(originals[0] if len(originals) == 1 else originals).removeprefix("sha256:")[:8]
    lines = count_answer_lines(reading)
    # A single text with a recognised trace or answer line is the completion; a bare answer is not.
    is_completion = len(originals) == 1 and bool(lines or reading.steps)
    completion = originals[0] if is_completion and isinstance(originals[0], str) else None
    answer = reading.answer
    if reading.status is ReadingStatus.ABSTAINED and answer is None:
        # What the user reads is submitted; the reading says that it is no answer.
        answer = (reading.text or "").strip() or None
    return Response(
        id or f"{instance_id}-{digest}",
        instance_id,
        Trace.of(*reading.steps),
        answer,
        source,
        completion=completion,
        answer_lines=lines,
        reading=_record(reading),
    )


def is_abstention(response: Response) -> bool:
    """Return whether a response says that it found no answer, or asks back."""
    if response.reading is not None and response.reading.status == ReadingStatus.ABSTAINED:
        return True
    return response.answer is not None and abstains(response.answer)


def list_texts(reading: Reading) -> list[object]:
    """Return the texts of a reading, by which trajectories that end in one answer stay apart."""
    return [list(reading.steps), reading.answer, [part.text for part in reading.left_out]]


def count_answer_lines(reading: Reading) -> int:
    """Return the number of answer lines; 0 where the answer is not told apart from the rest."""
    if reading.rule == "protocol":
        return max(reading.answer_lines, 1)
    if reading.status in (ReadingStatus.ABSTAINED, ReadingStatus.INCOMPLETE) or not reading.located:
        return int(reading.trace == "empty")
    # The answer of an agent may come from what a tool returned last, and not from its claims.
    is_named = reading.rule.startswith("named line")
    if reading.ends_in_result and not is_named:
        return 0
    return int(bool(reading.steps) or reading.rule not in _UNMARKED)


def _record(reading: Reading) -> ResponseReading | None:
    """Return what is stored of a reading; nothing for the protocol's own layout."""
    if reading.rule == "protocol" and not reading.left_out and reading.status is not ReadingStatus.ABSTAINED:
        return None
    left_out = tuple(LeftOut(part.role.value, part.text) for part in reading.left_out)
    origin = None if reading.origin is None else reading.origin.value
    return ResponseReading(READER, reading.status.value, reading.rule, origin, left_out)


def list_notes(reading: Reading) -> tuple[str, ...]:
    """Return the decisions of a reading in words, so that they can be counted."""
    notes = [_ROLE_NOTES[part.role] for part in reading.left_out if part.role in _ROLE_NOTES]
    if reading.origin is Origin.PROSE:
        notes.append(PROSE_TRACE_NOTE)
    elif reading.origin is Origin.HIDDEN:
        notes.append(HIDDEN_TRACE_NOTE)
    if not reading.located:
        notes.append(ALL_ANSWER_NOTE)
    return tuple(dict.fromkeys(notes))
