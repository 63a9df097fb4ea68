"""What a system wrote -> a trace, an answer, and the evidence an agent gathered on its way.

For texts that were not written to our prompt. Where a text does not say what is reasoning and what is answer, it is all
answer, and a note says so: nothing is guessed in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from eclose.core.identity import content_hash
from eclose.core.instance import Instance, Passage
from eclose.core.response import Response, Source, Trace, parse_completion
from eclose.core.segmentation import Segmented, Shape, segment, segment_list
from eclose.errors import RecordError

Told: TypeAlias = str | Sequence[str | Mapping[str, object]]
"""A trace as a text, or as a list of texts or of objects with a text."""

OBSERVATIONS_ADDED = "observations of an agent taken as evidence"
ALL_ANSWER = "several sentences without an answer line taken as answer alone"
ANSWER_SENTENCE = "answer taken from a last sentence that names it"
ANSWER_BELOW = "answer taken from below its line"
TEXT_BEHIND = "text behind the answer line left out"
THINKING_LEFT_OUT = "thinking left out where the response has a trace of its own"
ANSWER_IN_TRACE = "answer line within the trace left out"

_PLAIN_ANSWER = re.compile(r"^([\s>#]*(?:\(?\d{1,3}[.):]\s+)?[*_]{0,3})(answer\s*[*_]{0,3}\s*:)", re.IGNORECASE)
_NAMED_ANSWER = re.compile(
    r"^(?:(?:so|thus|hence|therefore),?\s+)?the\s+(?:final\s+|correct\s+)?answer\s+is\s*:?\s+(?P<answer>\S.*)$",
    re.IGNORECASE | re.DOTALL,
)
_THINKING = re.compile(r"^\s*(?:<think(?:ing)?>)?(?P<thinking>.*?)</think(?:ing)?>(?P<said>.*)$", re.DOTALL)
_TOOLS = frozenset({"tool", "function", "observation"})
_SPEAKERS = frozenset({"ai", "assistant"})
_STEP_KEYS = ("text", "step", "content")
_SHAPE = "write a text, or an object with a text under text, step, content, thought or observation"


@dataclass(frozen=True, slots=True)
class Reading:
    """A response taken apart."""

    trace: Trace
    answer: str | None
    answer_lines: int = 0
    observations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What was decided on the way, in words that can be counted."""


def read_response(
    instance_id: str,
    trace: Told,
    answer: str | None = None,
    *,
    id: str | None = None,  # noqa: A002
    source: Source | None = None,
) -> Response:
    """A response out of a trace in any shape and an answer; without an answer, the trace has to name it.

    >>> read_response("q1", "Ada Rowe built the bridge. She was born in Lund.", "Lund").trace.texts
    ('Ada Rowe built the bridge.', 'She was born in Lund.')
    >>> read_response("q1", ["Ada Rowe built the bridge.", "She was born in Lund."], "Lund").answer
    'Lund'
    >>> read_response("q1", "Ada Rowe built the bridge.\\nFinal answer: Lund").answer
    'Lund'

    What an agent was told by its tools is evidence. A log with observations therefore needs ``read_log``.
    """
    reading = read(trace, answer)
    if reading.observations:
        raise RecordError(
            f"trace: is the log of an agent with {len(reading.observations)} observations, which are evidence. "
            "Give read_log its instance, and it returns both with the evidence complete."
        )
    return to_response(reading, instance_id, trace, answer, id=id, source=source)


def read_log(
    instance: Instance,
    trace: Told,
    answer: str | None = None,
    *,
    id: str | None = None,  # noqa: A002
    source: Source | None = None,
) -> tuple[Instance, Response]:
    """The same for the log of an agent: the instance with what was observed as further passages, and the response."""
    reading = read(trace, answer)
    seen = with_observations(instance, reading.observations)
    return seen, to_response(reading, seen.id, trace, answer, id=id, source=source)


def to_response(
    reading: Reading,
    instance_id: str,
    *texts: object,
    id: str | None = None,  # noqa: A002
    source: Source | None = None,
) -> Response:
    """The response, named after the texts it was read from so that several responses to one question stay apart."""
    told = [text for text in texts if text is not None]
    named = content_hash(told[0] if len(told) == 1 else told).removeprefix("sha256:")[:8]
    parted = bool(reading.answer_lines or reading.trace.steps)
    whole = told[0] if len(told) == 1 and isinstance(told[0], str) and parted else None
    return Response(
        id or f"{instance_id}-{named}",
        instance_id,
        reading.trace,
        reading.answer,
        source,
        completion=whole,
        answer_lines=reading.answer_lines,
    )


def with_observations(instance: Instance, observations: Sequence[str]) -> Instance:
    """The instance with what an agent observed as its last passages, without what it has already.

    Other evidence makes another instance, so the id says which observations these were.
    """
    known = {_plain(passage.text) for passage in instance.evidence}
    new = list({_plain(text): text for text in observations if _plain(text) not in known}.values())
    if not new:
        return instance
    passages = (
        Passage(f"observation-{number}", f"Observation {number} of the agent", text)
        for number, text in enumerate(new, start=1)
    )
    digest = content_hash(new).removeprefix("sha256:")[:8]
    return replace(instance, id=instance.id and f"{instance.id}-{digest}", evidence=(*instance.evidence, *passages))


def read(trace: Told, answer: str | None = None) -> Reading:
    """A trace and an answer, or a text that holds both."""
    if answer is None and isinstance(trace, str):
        return read_text(trace)
    found, note = _segmented(trace)
    notes = (note,) if note else ()
    if answer is None:
        return Reading(found.trace, None, 0, found.observations, notes)
    if found.shape is Shape.EMPTY:
        return read_text(answer)
    said = _split(answer)
    own = segment(said.before).trace
    if own.steps and own != found.trace:
        raise RecordError(
            "trace: there is a trace here, and another before the answer line of the response. Keep one of them."
        )
    return Reading(found.trace, said.answer, max(1, said.lines), found.observations, (*notes, *said.notes))


def read_trajectory(items: Sequence[str | Mapping[str, object]], last: str | None) -> Reading:
    """What an agent said and was told, one by one, and its last message; a trace before its answer line goes on."""
    found, _ = _segmented(items)
    if last is None or not last.strip():
        return Reading(found.trace, None, 0, found.observations)
    if not found.trace.steps:
        said = read_text(last)
        return replace(said, observations=(*found.observations, *said.observations))
    split = _split(last)
    own = segment(split.before)
    trace = Trace((*found.trace.steps, *own.trace.steps))
    return Reading(trace, split.answer, max(1, split.lines), (*found.observations, *own.observations), split.notes)


def read_text(text: str) -> Reading:
    """A text that holds trace and answer, or an answer alone."""
    thinking, said = _thinking(text)
    split = _split(said)
    found = segment(split.before)
    if split.lines:
        notes = split.notes
        if thinking and found.trace.steps:
            notes = (*notes, THINKING_LEFT_OUT)
        elif thinking:
            found = segment(thinking)
        return Reading(found.trace, split.answer, split.lines, found.observations, notes)
    if thinking:
        found = segment(thinking)
        return Reading(found.trace, said.strip() or None, 1, found.observations)
    return _without_a_line(said)


def _without_a_line(text: str) -> Reading:
    """No line says which part is the answer: an agent's log has none, a last sentence may name it, or all is answer."""
    found = segment(text)
    if found.shape is Shape.AGENT:
        return Reading(found.trace, None, 0, found.observations)
    *before, last = found.trace.texts or ("",)
    if before and (named := _NAMED_ANSWER.match(last)):
        answer = named["answer"].strip().removesuffix(".").strip("*_ ") or None
        return Reading(Trace.of(*before), answer, 1, notes=(ANSWER_SENTENCE,))
    return Reading(Trace(()), text.strip() or None, 0, notes=(ALL_ANSWER,) if before else ())


@dataclass(frozen=True, slots=True)
class _Split:
    """A text cut at its answer line; without one, all of it is both."""

    before: str
    answer: str | None
    lines: int
    notes: tuple[str, ...] = ()


def _split(text: str) -> _Split:
    lines = text.splitlines()
    final = [number for number, line in enumerate(lines) if parse_completion(line).answer_lines]
    marked = final or [number for number, line in enumerate(lines) if _PLAIN_ANSWER.match(line)]
    if not marked:
        return _Split("", text.strip() or None, 0)
    # The first one counts, as in the paper. In a log an observation may hold others, so there it is the last.
    place = marked[-1] if segment(text).shape is Shape.AGENT else marked[0]
    line = _PLAIN_ANSWER.sub(r"\1final \2", lines[place])
    answer, behind = parse_completion(line).answer, "\n".join(lines[place + 1 :]).strip()
    notes = (TEXT_BEHIND if answer else ANSWER_BELOW,) if behind else ()
    return _Split("\n".join(lines[:place]), answer or behind or None, len(marked), notes)


def _thinking(text: str) -> tuple[str, str]:
    """The thinking of a reasoning model, which it sets apart by a tag, and what it said."""
    match = _THINKING.match(text)
    return (match["thinking"].strip(), match["said"]) if match else ("", text)


def _segmented(trace: Told) -> tuple[Segmented, str | None]:
    """The steps of a trace without its answer line, and a note where there was one."""
    if isinstance(trace, str):
        split = _split(_untagged(trace))
        return (segment(split.before), ANSWER_IN_TRACE) if split.lines else (segment(_untagged(trace)), None)
    if all(isinstance(item, str) for item in trace):
        return segment_list([str(item) for item in trace]), None
    parts = [_part(item, number) for number, item in enumerate(trace)]
    steps = Trace(tuple(step for part in parts for step in part.trace.steps))
    observations = tuple(told for part in parts for told in part.observations)
    shape = Shape.AGENT if observations else Shape.LINES if steps.steps else Shape.EMPTY
    return Segmented(shape, steps, observations), None


def _untagged(text: str) -> str:
    thinking, said = _thinking(text)
    return f"{thinking}\n{said}" if thinking else text


def _part(item: object, number: int) -> Segmented:
    """One item of a list: a step as it is, thoughts or a message by their sentences, observations as evidence."""
    if isinstance(item, str):
        return segment_list([item])
    if not isinstance(item, Mapping):
        raise RecordError(f"trace[{number}]: is no text; {_SHAPE}")
    speaker = str(item.get("role") or item.get("type") or "").lower()
    thought, observed = _text(item, ("thought",), number), _text(item, ("observation",), number)
    step = _text(item, _STEP_KEYS, number)
    if speaker in ("user", "human", "system"):
        raise RecordError(f"trace[{number}]: is a message of the {speaker}, which is no step of a trace; leave it out")
    if step is not None and speaker in _TOOLS:
        step, observed = None, step
    if thought is None and observed is None and step is None:
        if speaker in _SPEAKERS or item.get("action") is not None:
            return Segmented(Shape.EMPTY, Trace(()))
        raise RecordError(f"trace[{number}]: has no text; {_SHAPE}")
    spoken = segment(step or "") if speaker in _SPEAKERS else segment_list([step or ""])
    steps = (*segment(thought or "").trace.steps, *spoken.trace.steps)
    return Segmented(Shape.AGENT, Trace(steps), (observed.strip(),) if observed and observed.strip() else ())


def _text(item: Mapping[str, object], keys: Sequence[str], number: int) -> str | None:
    key = next((key for key in keys if item.get(key) is not None), None)
    if key is None:
        return None
    value = item[key]
    if not isinstance(value, str):
        raise RecordError(f"trace[{number}].{key}: should be a text")
    return value


def _plain(text: str) -> str:
    return " ".join(text.split())
