"""Parsing of responses that other systems wrote: trace, answer, and the evidence that an agent gathered.

The texts follow no fixed prompt. Where a text does not separate reasoning from answer, all of it is answer. Every such
decision is recorded in a note.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from eclose.errors import RecordError
from eclose.values.announcements import claims_nothing
from eclose.values.identity import content_hash
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, ResponseSource, Trace, parse_completion
from eclose.values.segmentation import SegmentedTrace, TraceLayout, segment_prose, segment_trace, trace_from_step_texts

TraceInput: TypeAlias = str | Sequence[str | Mapping[str, object]]
"""A trace as a text, or as a list of texts or of objects with a text."""

OBSERVATIONS_ADDED_NOTE = "observations of an agent taken as evidence"
ALL_ANSWER_NOTE = "several sentences without an answer line taken as answer alone"
ANSWER_SENTENCE_NOTE = "answer taken from a last sentence that names it"
ANSWER_BELOW_NOTE = "answer taken from below its line"
TEXT_BEHIND_NOTE = "text behind the answer line left out"
THINKING_LEFT_OUT_NOTE = "thinking left out where the response has a trace of its own"
ANSWER_IN_TRACE_NOTE = "answer line within the trace left out"
PROSE_TRACE_NOTE = "sentences of the answer taken as its trace"
ANNOUNCEMENTS_LEFT_OUT_NOTE = "announcements and questions left out of the trace"

_PLAIN_ANSWER = re.compile(r"^([\s>#]*(?:\(?\d{1,3}[.):]\s+)?[*_]{0,3})(answer\s*[*_]{0,3}\s*:)", re.IGNORECASE)
_NAMED_ANSWER = re.compile(
    r"^(?:(?:so|thus|hence|therefore),?\s+)?the\s+(?:final\s+|correct\s+)?answer\s+is\s*:?\s+(?P<answer>\S.*)$",
    re.IGNORECASE | re.DOTALL,
)
# The opening tag may be missing: some chat templates write it into the prompt.
_THINKING = re.compile(r"^\s*(?:<think(?:ing)?>)?(?P<thinking>.*?)</think(?:ing)?>(?P<reply>.*)$", re.DOTALL)
# Roles and types of messages, as OpenAI, LangChain and other agent frameworks name them.
_TOOL_ROLES = frozenset({"tool", "function", "observation"})
_MODEL_ROLES = frozenset({"ai", "assistant"})
_STEP_KEYS = ("text", "step", "content")
_SHAPE = "write a text, or an object with a text under text, step, content, thought or observation"


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """The parts of a response."""

    trace: Trace
    answer: str | None
    answer_lines: int = 0
    """Number of answer lines; 0 where no line marks the answer."""
    observations: tuple[str, ...] = ()
    """Outputs of an agent's tools, in order."""
    notes: tuple[str, ...] = ()
    """Decisions of the parser, from the constants of this module, so that they can be counted."""


def parse_response(
    instance_id: str,
    trace: TraceInput,
    answer: str | None = None,
    *,
    id: str | None = None,  # noqa: A002
    source: ResponseSource | None = None,
) -> Response:
    """Build a response from a trace in any layout and its answer.

    Args:
        instance_id: Id of the instance that the response answers.
        trace: The trace as a text, a list of texts, or a list of objects with a text.
        answer: The submitted answer; None where the trace names it.
        id: Id of the response; by default derived from the texts, so that several responses to one question differ.
        source: Origin of the response.

    Returns:
        The response with one step per line, list item or sentence.

    Raises:
        RecordError: The trace is the log of an agent with observations, which are evidence and need
            ``parse_agent_log``; or an item of it has no text.

    Examples:
        >>> parse_response("q1", "Ada Rowe built the bridge. She was born in Lund.", "Lund").trace.texts
        ('Ada Rowe built the bridge.', 'She was born in Lund.')
        >>> parse_response("q1", ["Ada Rowe built the bridge.", "She was born in Lund."], "Lund").answer
        'Lund'
        >>> parse_response("q1", "Ada Rowe built the bridge.\\nFinal answer: Lund").answer
        'Lund'
    """
    parsed = parse_trace_and_answer(trace, answer)
    if parsed.observations:
        raise RecordError(
            f"trace: is the log of an agent with {len(parsed.observations)} observations, which are evidence. "
            "Call parse_agent_log with the instance: it returns the instance with the observations added."
        )
    return build_response(parsed, instance_id, trace, answer, id=id, source=source)


def parse_agent_log(
    instance: Instance,
    trace: TraceInput,
    answer: str | None = None,
    *,
    id: str | None = None,  # noqa: A002
    source: ResponseSource | None = None,
) -> tuple[Instance, Response]:
    """Build an instance and a response from the log of an agent.

    Args:
        instance: The question with the evidence that was given from the start.
        trace: The log as a text, a list of texts, or a list of messages.
        answer: The submitted answer; None where the log names it.
        id: Id of the response; by default derived from the texts.
        source: Origin of the response.

    Returns:
        The instance with the observations as further passages, and the response to it.

    Raises:
        RecordError: An item of the log has no text, or is a message of the user.

    Examples:
        >>> from eclose import Instance
        >>> log = [{"thought": "I need her file."}, {"observation": "Born in Lund."}, {"thought": "Ada is from Lund."}]
        >>> instance, response = parse_agent_log(Instance("q1", "Where was Ada born?", ()), log, "Lund")
        >>> instance.evidence[0].text, response.trace.texts
        ('Born in Lund.', ('Ada is from Lund.',))
    """
    parsed = parse_trace_and_answer(trace, answer)
    complete = add_observation_passages(instance, parsed.observations)
    return complete, build_response(parsed, complete.id, trace, answer, id=id, source=source)


def build_response(
    parsed: ParsedResponse,
    instance_id: str,
    *texts: object,
    id: str | None = None,  # noqa: A002
    source: ResponseSource | None = None,
) -> Response:
    """Return the response, with an id derived from the original texts unless one is passed."""
    originals = [text for text in texts if text is not None]
    digest = content_hash(originals[0] if len(originals) == 1 else originals).removeprefix("sha256:")[:8]
    # A single text with a recognised trace or answer line is the completion; a bare answer is not.
    is_completion = len(originals) == 1 and bool(parsed.answer_lines or parsed.trace.steps)
    completion = originals[0] if is_completion and isinstance(originals[0], str) else None
    return Response(
        id or f"{instance_id}-{digest}",
        instance_id,
        parsed.trace,
        parsed.answer,
        source,
        completion=completion,
        answer_lines=parsed.answer_lines,
    )


def add_prose_trace(response: Response) -> Response:
    """Return a response without a marked answer with the sentences of its answer as last steps; the answer stays whole.

    A bare answer, such as a name or a number, is no prose and adds no step.

    >>> prose = Response("r", "q", Trace(()), "Ada Rowe built it [1]. She was born in Lund.")
    >>> add_prose_trace(prose).trace.texts
    ('Ada Rowe built it [1].', 'She was born in Lund.')
    """
    if response.answer is None or (response.trace.steps and response.answer_lines):
        return response
    prose = segment_prose(response.answer).steps
    return replace(response, trace=Trace((*response.trace.steps, *prose))) if prose else response


def has_prose_trace(response: Response) -> bool:
    """Return whether the last steps of a response are the sentences of its answer, as by ``add_prose_trace``."""
    answer, texts = response.answer or "", response.trace.texts
    # The last step is a piece of the answer, so a short answer needs no segmentation.
    if not texts or len(texts[-1]) > len(answer):
        return False
    prose = segment_prose(answer).texts
    return bool(prose) and texts[-len(prose) :] == prose


def add_observation_passages(
    instance: Instance, observations: Sequence[str], titles: Mapping[str, str] | None = None
) -> Instance:
    """Return the instance with new observations as its last passages, under their titles where they have one.

    Other evidence makes another instance, so a hash of the observations is appended to the id. Observations that repeat
    a passage are dropped.
    """
    existing = {_collapse_blanks(passage.text) for passage in instance.evidence}
    # A repeated search returns the same text; equal texts become one passage.
    by_text = {_collapse_blanks(text): text for text in observations}
    new = [text for collapsed, text in by_text.items() if collapsed not in existing]
    if not new:
        return instance
    passages = (
        Passage(f"observation-{number}", (titles or {}).get(text) or f"Observation {number} of the agent", text)
        for number, text in enumerate(new, start=1)
    )
    digest = content_hash(new).removeprefix("sha256:")[:8]
    return replace(instance, id=instance.id and f"{instance.id}-{digest}", evidence=(*instance.evidence, *passages))


def parse_trace_and_answer(trace: TraceInput, answer: str | None = None) -> ParsedResponse:
    """Parse a trace and an answer, or a text that holds both."""
    if answer is None and isinstance(trace, str):
        return parse_response_text(trace)
    segmented, notes = _segment_trace(trace)
    if answer is None:
        return ParsedResponse(segmented.trace, None, 0, segmented.observations, notes)
    if not segmented.trace.steps:
        return _add_observations(parse_response_text(answer), segmented.observations, notes)
    split = _split(answer)
    repeated = segment_trace(split.before).trace
    if repeated.steps and repeated != segmented.trace:
        raise RecordError(
            "trace: there is a trace here, and another before the answer line of the response. Keep one of them."
        )
    return ParsedResponse(
        segmented.trace, split.answer, max(1, split.lines), segmented.observations, (*notes, *split.notes)
    )


def parse_agent_trajectory(items: Sequence[str | Mapping[str, object]], last: str | None) -> ParsedResponse:
    """Parse the messages and observations of an agent in order, and its last message.

    Reasoning before the answer line of the last message continues the trace. A last message without such a line may
    hold reasoning that is not told apart from the answer, which then has no answer line.
    """
    segmented, notes = _segment_items(items)
    if last is None or not last.strip():
        return ParsedResponse(segmented.trace, None, 0, segmented.observations, notes)
    if not segmented.trace.steps:
        return _add_observations(parse_response_text(last), segmented.observations, notes)
    split = _split(last)
    closing, closing_notes = _segment_claims(split.before)
    trace = Trace((*segmented.trace.steps, *closing.trace.steps))
    observations = (*segmented.observations, *closing.observations)
    lines = split.lines or int(not segment_prose(last).steps and _ends_in_claim(items))
    return ParsedResponse(trace, split.answer, lines, observations, (*notes, *closing_notes, *split.notes))


def _add_observations(parsed: ParsedResponse, observations: tuple[str, ...], notes: tuple[str, ...]) -> ParsedResponse:
    return replace(parsed, observations=(*observations, *parsed.observations), notes=(*notes, *parsed.notes))


def _ends_in_claim(items: Sequence[str | Mapping[str, object]]) -> bool:
    """Return whether a step follows the last observation of an agent, and thus may lead to its answer."""
    observed = [number for number, item in enumerate(items) if _is_observation(item)]
    closing = items[observed[-1] + 1 :] if observed else items
    return bool(_segment_items(closing)[0].trace.steps)


def _is_observation(item: str | Mapping[str, object]) -> bool:
    if isinstance(item, str):
        return False
    return item.get("observation") is not None or str(item.get("role") or item.get("type")).lower() in _TOOL_ROLES


def parse_response_text(text: str) -> ParsedResponse:
    """Parse a text that holds a trace and an answer, or an answer alone."""
    thinking, reply = _split_thinking(text)
    split = _split(reply)
    segmented = segment_trace(split.before)
    if split.lines:
        notes = split.notes
        # Where the reply holds a trace, that trace is submitted and the thinking is not.
        if thinking and segmented.trace.steps:
            notes = (*notes, THINKING_LEFT_OUT_NOTE)
        elif thinking:
            segmented = segment_trace(thinking)
        # Lines before "Final answer:" are the steps that the response prompt asks for, and stay as they are.
        if thinking or segmented.shape is TraceLayout.AGENT or not parse_completion(reply).answer_lines:
            segmented, left_out = _leave_out_announcements(segmented)
            notes = (*notes, *left_out)
        return ParsedResponse(segmented.trace, split.answer, split.lines, segmented.observations, notes)
    if thinking:
        segmented, notes = _segment_claims(thinking)
        return ParsedResponse(segmented.trace, reply.strip() or None, 1, segmented.observations, notes)
    return _parse_unmarked(reply)


def _parse_unmarked(text: str) -> ParsedResponse:
    """Parse a text without an answer line: the log of an agent, a last sentence that names the answer, or an answer."""
    segmented, notes = _segment_claims(text)
    if segmented.shape is TraceLayout.AGENT:
        return ParsedResponse(segmented.trace, None, 0, segmented.observations, notes)
    *before, last = segmented.trace.texts or ("",)
    if before and (match := _NAMED_ANSWER.match(last)):
        answer = match["answer"].strip().removesuffix(".").strip("*_ ") or None
        return ParsedResponse(Trace.of(*before), answer, 1, notes=(*notes, ANSWER_SENTENCE_NOTE))
    return ParsedResponse(Trace(()), text.strip() or None, 0, notes=(ALL_ANSWER_NOTE,) if before else ())


def _segment_items(items: Sequence[str | Mapping[str, object]]) -> tuple[SegmentedTrace, tuple[str, ...]]:
    """Return the steps of an agent's items without announcements, and a note where there were some."""
    segmented, notes = _segment_trace(items)
    segmented, left_out = _leave_out_announcements(replace(segmented, shape=TraceLayout.AGENT))
    return segmented, notes or left_out


def _segment_claims(text: str) -> tuple[SegmentedTrace, tuple[str, ...]]:
    return _leave_out_announcements(segment_trace(text))


def _leave_out_announcements(segmented: SegmentedTrace) -> tuple[SegmentedTrace, tuple[str, ...]]:
    """Return a trace without its announcements, and a note where there were some; marked steps stay as they are."""
    steps = tuple(step for step in segmented.trace.steps if not claims_nothing(step.text))
    if segmented.shape is TraceLayout.LINES or len(steps) == len(segmented.trace.steps):
        return segmented, ()
    return replace(segmented, trace=Trace(steps)), (ANNOUNCEMENTS_LEFT_OUT_NOTE,)


@dataclass(frozen=True, slots=True)
class _Split:
    """A text split at its answer line; without one, all of it is answer."""

    before: str
    answer: str | None
    lines: int
    """Number of answer lines."""
    notes: tuple[str, ...] = ()


def _split(text: str) -> _Split:
    lines = text.splitlines()
    final = [number for number, line in enumerate(lines) if parse_completion(line).answer_lines]
    # A bare "Answer:" counts only where no line says "Final answer:".
    marked = final or [number for number, line in enumerate(lines) if _PLAIN_ANSWER.match(line)]
    if not marked:
        return _Split("", text.strip() or None, 0)
    # The first answer line is submitted, as in the paper. In a log, observations may contain others before the last.
    index = marked[-1] if segment_trace(text).shape is TraceLayout.AGENT else marked[0]
    line = _PLAIN_ANSWER.sub(r"\1final \2", lines[index])
    answer, below = parse_completion(line).answer, "\n".join(lines[index + 1 :]).strip()
    notes = (TEXT_BEHIND_NOTE if answer else ANSWER_BELOW_NOTE,) if below else ()
    return _Split("\n".join(lines[:index]), answer or below or None, len(marked), notes)


def _split_thinking(text: str) -> tuple[str, str]:
    """Return the tagged thinking of a reasoning model and its reply; the thinking is empty without a tag."""
    match = _THINKING.match(text)
    return (match["thinking"].strip(), match["reply"]) if match else ("", text)


def _segment_trace(trace: TraceInput) -> tuple[SegmentedTrace, tuple[str, ...]]:
    """Return the steps of a trace without its answer line, and notes on what was left out."""
    if isinstance(trace, str):
        text = _drop_thinking_tags(trace)
        split = _split(text)
        segmented, notes = _segment_claims(split.before if split.lines else text)
        return segmented, (*notes, ANSWER_IN_TRACE_NOTE) if split.lines else notes
    if all(isinstance(item, str) for item in trace):
        return trace_from_step_texts([str(item) for item in trace]), ()
    parts = [_segment_item(item, number) for number, item in enumerate(trace)]
    steps = Trace(tuple(step for part in parts for step in part.trace.steps))
    observations = tuple(text for part in parts for text in part.observations)
    shape = TraceLayout.AGENT if observations else TraceLayout.LINES if steps.steps else TraceLayout.EMPTY
    segmented = SegmentedTrace(shape, steps, observations)
    return _leave_out_announcements(segmented) if observations else (segmented, ())


def _drop_thinking_tags(text: str) -> str:
    thinking, reply = _split_thinking(text)
    return f"{thinking}\n{reply}" if thinking else text


def _segment_item(item: object, number: int) -> SegmentedTrace:
    """Segment one item: a step stays one step, thoughts and messages are split, observations are evidence."""
    if isinstance(item, str):
        return trace_from_step_texts([item])
    if not isinstance(item, Mapping):
        raise RecordError(f"trace[{number}]: is not a text; {_SHAPE}")
    role = str(item.get("role") or item.get("type") or "").lower()
    thought, observation = _get_text(item, ("thought",), number), _get_text(item, ("observation",), number)
    step = _get_text(item, _STEP_KEYS, number)
    if role in ("user", "human", "system"):
        raise RecordError(f"trace[{number}]: is a message of the {role}, which is not a step of a trace; leave it out")
    if step is not None and role in _TOOL_ROLES:
        step, observation = None, step
    if thought is None and observation is None and step is None:
        # A message that only calls a tool has no text and is not a step.
        if role in _MODEL_ROLES or item.get("action") is not None:
            return SegmentedTrace(TraceLayout.EMPTY, Trace(()))
        raise RecordError(f"trace[{number}]: has no text; {_SHAPE}")
    message = segment_trace(step or "") if role in _MODEL_ROLES else trace_from_step_texts([step or ""])
    steps = (*segment_trace(thought or "").trace.steps, *message.trace.steps)
    observations = (observation.strip(),) if observation and observation.strip() else ()
    return SegmentedTrace(TraceLayout.AGENT, Trace(steps), observations)


def _get_text(item: Mapping[str, object], keys: Sequence[str], number: int) -> str | None:
    key = next((key for key in keys if item.get(key) is not None), None)
    if key is None:
        return None
    value = item[key]
    if not isinstance(value, str):
        raise RecordError(f"trace[{number}].{key}: should be a text")
    return value


def _collapse_blanks(text: str) -> str:
    return " ".join(text.split())
