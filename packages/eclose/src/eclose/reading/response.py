"""Reading of a response in any form: a text, messages, or an object, to steps, answer and evidence.

``read_response`` takes what a producer wrote, without a client package and without a model. Prompts that eclose writes
itself are read by ``parse_completion``.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from eclose.errors import RecordError, SettingError
from eclose.reading import shapes
from eclose.reading.channels import SplitText, split_text, take_completion
from eclose.reading.languages import AUTO, find_language
from eclose.reading.messages import Part, PartKind, find_role, join_texts, nest_attributes, read_parts, unwrap_message
from eclose.reading.segments import SENTENCE_END, Role, Segment, segment_claims, segment_text
from eclose.reading.slots import Slots, find_object
from eclose.reading.text import (
    Origin,
    ReadingStatus,
    TextReading,
    TextSettings,
    claims_of,
    read_slots,
    read_text,
    strip_signal,
)
from eclose.reading.unknown import find_reply, lower_keys
from eclose.values.identity import content_hash

READER = 2
"""Version of the reader, as readings carry it."""


class TraceMode(StrEnum):
    """Where the steps of a response come from."""

    AUTO = "auto"
    """From wherever the response has them; each origin is a stratum of its own."""
    MARKED = "marked"
    """From what the response marks as steps; prose has no trace."""
    PROSE = "prose"
    """Another name of ``auto``."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How responses are read."""

    trace: TraceMode = TraceMode.AUTO
    answer_markers: tuple[str, ...] = ()
    """Further texts of lines that name the answer; a regular expression as ``/.../``."""
    trace_markers: tuple[str, ...] = ()
    """Further texts of lines that name the trace."""
    language: str = AUTO
    """Code of the responses' language; ``auto`` to detect it."""
    judge_arguments: bool = False
    """Whether sentences in the arguments of calls, such as a report that an agent writes, are claims."""
    reader: str | None = None
    """``FILE.py:FUNCTION`` that reads responses instead: it takes input and question, and returns a ``Reading``."""

    def __post_init__(self) -> None:
        """Raise SettingError for an unknown mode or language."""
        try:
            object.__setattr__(self, "trace", TraceMode(self.trace))
        except ValueError as error:
            raise SettingError(f"trace: {self.trace!r} is none of {', '.join(TraceMode)}.") from error
        object.__setattr__(self, "answer_markers", tuple(self.answer_markers))
        object.__setattr__(self, "trace_markers", tuple(self.trace_markers))
        find_language(self.language)

    @property
    def identity(self) -> dict[str, object]:
        """The settings that differ from the defaults, as manifests record them; a reader by the hash of its source."""
        settings: dict[str, object] = {
            "answer_markers": list(self.answer_markers),
            "trace_markers": list(self.trace_markers),
            "language": self.language if self.language != AUTO else None,
            "judge_arguments": self.judge_arguments,
        }
        if self.trace is TraceMode.MARKED:
            settings["trace"] = self.trace.value
        if self.reader is not None:
            load_reader(self.reader)
            source = Path(self.reader.rpartition(":")[0]).read_text("utf-8")
            settings["reader"] = f"{self.reader.rpartition(':')[2]} {content_hash(source)}"
        return {name: value for name, value in settings.items() if value}

    def for_text(self, question: str, *, cut_off: bool = False) -> TextSettings:
        """Return the settings with which one text is read."""
        markers, language = (self.answer_markers, self.trace_markers), find_language(self.language)
        return TextSettings(question, cut_off, *markers, language)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returned to an agent."""

    value: Any
    name: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a response is: its steps, its answer and its evidence, and the rule that decided."""

    status: ReadingStatus
    trace: str | None
    """``known``, ``unknown`` or ``empty``; None where there is no complete response."""
    steps: tuple[str, ...]
    answer: str | None
    rule: str
    origin: Origin | None = None
    located: bool = True
    """Whether the answer is told apart from the rest; otherwise ``answer`` is the whole reply."""
    evidence: tuple[ToolOutput, ...] = ()
    left_out: tuple[Segment, ...] = ()
    """What is no step, with its role."""
    question: str | None = None
    """The last question of the messages; None where the input holds none."""
    text: str | None = None
    """The reply as it was written; None where the response is no text."""
    answer_lines: int = 0
    """Number of the protocol's answer lines."""
    claims_between: int = 0
    """How many steps, the first, an agent wrote between its calls."""
    ends_in_result: bool = False
    """Whether an agent wrote its last claim before a tool returned what it answers from."""


DEFAULT_SETTINGS = ReadSettings()


def read_response(response: object, question: str = "", settings: ReadSettings = DEFAULT_SETTINGS) -> Reading:
    """Read a response as a system wrote it.

    Args:
        response: A text, a list of messages or chunks, or an object of a chat API or a framework.
        question: The question, which decides where a reply in prose does not.
        settings: Markers, language and reader.

    Returns:
        The reading, with the rule that decided and what was left out.

    Raises:
        RecordError: The input has no known shape; the error names its keys.
        SettingError: The reader of the settings cannot be loaded.

    Examples:
        >>> reading = read_response("Hall A has 320 seats. Hall B has 410. So Hall B is larger.", "Which is larger?")
        >>> reading.steps, reading.answer
        (('Hall A has 320 seats.', 'Hall B has 410.'), 'So Hall B is larger.')
        >>> read_response({"reasoning": ["It is red."], "answer": "red"}).steps
        ('It is red.',)
    """
    if settings.reader is not None:
        return load_reader(settings.reader)(response, question)
    return read_gathered(gather(response), question, settings)


def read_gathered(gathered: Gathered, question: str, settings: ReadSettings) -> Reading:
    """Read the parts of one response."""
    text_settings = settings.for_text(question or gathered.question or "", cut_off=gathered.cut_off)
    if settings.judge_arguments:
        gathered.parts = [inner for part in gathered.parts for inner in _list_claims(part)]
    reading = _read_parts(gathered, text_settings)
    if settings.trace is TraceMode.MARKED and reading.origin in (Origin.PROSE, Origin.HIDDEN):
        reading = _drop_trace(reading, gathered)
    return reading


def _list_claims(part: Part) -> list[Part]:
    """Return a call with the sentences of its arguments before it; every other part as it is."""
    if part.kind is not PartKind.CALL or part.name.lower() in shapes.SUBMITTING:
        return [part]
    values = part.value.values() if isinstance(part.value, Mapping) else [part.value]
    texts = [text for text in values if isinstance(text, str) and SENTENCE_END.search(text) and len(text.split()) > 2]
    return [*(Part(PartKind.COMMENTARY, text, message=part.message) for text in texts), part]


def _drop_trace(reading: Reading, gathered: Gathered) -> Reading:
    """Return a reading without the steps that the response does not mark; what an agent says between calls stays."""
    steps = reading.steps[: reading.claims_between]
    origin = Origin.AGENT if steps else None
    if reading.status not in (ReadingStatus.TRACE, ReadingStatus.NO_TRACE):
        return replace(reading, steps=steps, origin=origin)
    status = ReadingStatus.TRACE if steps else ReadingStatus.NO_TRACE
    trace = "known" if steps else "unknown"
    answer = gathered.reply or reading.answer
    located = reading.located and not steps
    return replace(reading, status=status, trace=trace, steps=steps, answer=answer, origin=origin, located=located)


@lru_cache(maxsize=8)
def load_reader(name: str) -> Callable[[object, str], Reading]:
    """Load the function of ``FILE.py:FUNCTION``.

    Raises:
        SettingError: There is no such file or function.
    """
    path, _, function = name.rpartition(":")
    if not path or not Path(path).is_file():
        raise SettingError(f"reader: {name!r} should be FILE.py:FUNCTION, and there is no such file.")
    spec = importlib.util.spec_from_file_location("eclose_reader", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(finding := getattr(module, function, None)):
        raise SettingError(f"reader: {path} has no function {function!r}.")
    return finding  # type: ignore[no-any-return]


# Containers and messages to the parts of one response.


@dataclass(slots=True)
class Gathered:
    """The parts of one response, and what its container says of it."""

    parts: list[Part] = field(default_factory=list)
    output: str | None = None
    """The application's result, which comes before the last message."""
    slots: Slots | None = None
    """Slots of an object beside the messages, such as a structured response or a trace's column."""
    cut_off: bool = False
    withheld: bool = False
    question: str | None = None

    @property
    def reply(self) -> str | None:
        """The last visible text, or the application's result."""
        earlier = [part.text for part in self.parts if part.kind in (PartKind.SAID, PartKind.REFUSAL)]
        return self.output if self.output is not None else earlier[-1] if earlier else None


def gather(response: object) -> Gathered:
    """Return the parts of a response in any container."""
    response = lower_keys(response)
    if isinstance(response, str):
        return Gathered([Part(PartKind.SAID, take_completion(response))])
    if isinstance(response, Mapping):
        return _gather_object(response)
    if isinstance(response, Sequence):
        return _gather_messages(list(response))
    raise RecordError(f"response: is of type {type(response).__name__}. Give a text, messages, or an object.")


def _gather_messages(messages: list[Any], where: str = "messages") -> Gathered:
    gathered = Gathered()
    gathered.parts = read_parts(messages, where)
    finishes = [finding for message in messages if isinstance(message, Mapping) for finding in _list_finishes(message)]
    _note_finish(gathered, finishes)
    _take_turn(gathered)
    return gathered


def _list_finishes(message: Mapping[str, Any]) -> list[Any]:
    metadata = message.get("response_metadata")
    places = [message, metadata if isinstance(metadata, Mapping) else {}, *_dicts(message.get("choices"))]
    return [holder[key] for holder in places for key in shapes.FINISH_KEYS if holder.get(key) is not None]


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _note_finish(gathered: Gathered, finishes: Sequence[Any]) -> None:
    last = str(finishes[-1]).lower().rpartition(".")[2] if finishes else ""
    gathered.cut_off = gathered.cut_off or last in shapes.CUT_OFF
    gathered.withheld = gathered.withheld or last in shapes.WITHHELD


def _take_turn(gathered: Gathered) -> None:
    """Keep what stands behind the last message of the user; earlier turns are context."""
    questions = [number for number, part in enumerate(gathered.parts) if part.kind is PartKind.USER]
    if questions:
        gathered.question = gathered.parts[questions[-1]].text
        gathered.parts = gathered.parts[questions[-1] + 1 :]
    gathered.parts = [part for part in gathered.parts if part.kind is not PartKind.SYSTEM]


_QUESTION_KEYS = ("question", "query", "user_input", "input", "task", "prompt", "query_str")
_REPLY_KEYS = (
    "response",
    "output",
    "answer",
    "result",
    "completion",
    "reply",
    "actual_output",
    "actualOutput",
    "output_text",
)
_ERRORS = frozenset(("error", "errors", "detail", "fault", "exception"))


def _gather_object(value: Mapping[str, Any]) -> Gathered:
    if any("_messages." in str(key) for key in value):
        value = nest_attributes(value)
    container = shapes.find_container(value)
    if container is not None:
        return _gather_container(value, container)
    if _is_error(value):
        return Gathered(withheld=True)
    if (reply := _find_component_reply(value)) is not None:
        return _with_question(gather(reply), value)
    if _holds_parts(value):
        return _gather_messages([value], "response")
    slots = find_object(value)
    nested = next((value[key] for key in _REPLY_KEYS if isinstance(value.get(key), Mapping | list)), None)
    if nested is not None and (not slots or not slots.has_trace):
        return _with_question(gather(nested), value)
    if slots is not None and (slots.has_answer or slots.has_trace):
        return _with_question(_gather_row(slots, has_question=any(key in value for key in _QUESTION_KEYS)), value)
    text = next(
        (value[key] for key in (*_REPLY_KEYS, "text", "content", "raw") if isinstance(value.get(key), str)), None
    )
    if text is not None:
        return _with_question(Gathered([Part(PartKind.SAID, text)]), value)
    return _with_question(_gather_unknown(value), value)


def _gather_unknown(value: Mapping[str, Any]) -> Gathered:
    """Return the parts of an object without a text where it is known to be."""
    if any(key in value for key in (*_REPLY_KEYS, *_QUESTION_KEYS)):
        return Gathered()
    if (reply := find_reply(value)) is not None:
        return gather(reply)
    keys = ", ".join(repr(key) for key in sorted(map(str, value))[:20]) or "none"
    raise RecordError(
        f"response: is an object that is no known reply. Keys seen: {keys}. Write its text, or a message with a "
        "content, or name the path of the text with --map answer=PATH."
    )


def _gather_row(slots: Slots, *, has_question: bool) -> Gathered:
    """Return a row of columns: its response is a text, unless a trace stands in a column beside it."""
    if slots.has_trace and slots.trace:
        return Gathered(slots=slots)
    if slots.answer is not None:
        return Gathered([Part(PartKind.SAID, slots.answer)])
    # Beside its question, nothing was recorded; in an object of a model, null is what it says.
    return Gathered() if has_question else Gathered(slots=slots)


def _with_question(gathered: Gathered, value: Mapping[str, Any]) -> Gathered:
    if gathered.question is None:
        question = next((value[key] for key in _QUESTION_KEYS if isinstance(value.get(key), str)), None)
        gathered.question = question
    return gathered


def _is_error(value: Mapping[str, Any]) -> bool:
    """Return whether an object is an error of a provider or a gateway, without a part of a model."""
    filled = {key for key, item in value.items() if item not in (None, "", [], {})}
    return bool(filled & _ERRORS) and not filled & {
        "content",
        "output",
        "answer",
        "messages",
        "response",
        "message_content",
    }


def _holds_parts(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a message itself."""
    fields = unwrap_message(value)
    return bool(find_role(fields)) and any(key in fields for key in (*shapes.CONTENT_KEYS, *shapes.CALL_KEYS))


def _find_component_reply(value: Mapping[str, Any]) -> object:
    """Return the reply in the output of a pipeline, by component: an answer, a reply, or an agent's messages."""
    components = [item for item in value.values() if isinstance(item, Mapping)]
    for key in ("answers", "replies", "messages"):
        lists = [item[key] for item in components if isinstance(item.get(key), list) and item[key]]
        if not lists:
            continue
        if key == "messages":
            return lists[-1]
        if len(lists[-1]) != 1:
            raise RecordError(f"{key}: holds {len(lists[-1])}, and one is judged at a time. Write a record for each")
        first = lists[-1][0]
        return first.get("data") if isinstance(first, Mapping) and "data" in first else first
    return None


def _gather_container(value: Mapping[str, Any], container: shapes.Container) -> Gathered:
    gathered = Gathered()
    for path in container.messages:
        messages = shapes.get_path(value, path)
        if isinstance(messages, str) or (
            path in ("output", "input", "response") and not isinstance(messages, list | Mapping)
        ):
            if isinstance(messages, str) and path in ("response", "output"):
                gathered.parts.append(Part(PartKind.SAID, messages, message=len(gathered.parts)))
            continue
        if messages is None:
            continue
        finding = read_parts_of(messages, path)
        # Some logs append the reply to the messages and keep it apart as well.
        gathered.parts += [] if finding and gathered.parts[-len(finding) :] == finding else finding
        items = messages if isinstance(messages, list) else [messages]
        _note_finish(gathered, [finish for item in _dicts(items) for finish in _list_finishes(item)])
    _note_finish(
        gathered, [finding for path in container.finish if (finding := shapes.get_path(value, path)) is not None]
    )
    _note_finish(gathered, [value[key] for key in shapes.FINISH_KEYS if value.get(key) is not None])
    if (reason := shapes.get_path(value, "incomplete_details.reason")) is not None:
        _note_finish(gathered, [reason])
    if container.name == "crew":
        # Its task is one turn, in which the framework writes as the user to have the next tool called.
        gathered.parts = [part for part in gathered.parts if part.kind is not PartKind.USER]
    _take_turn(gathered)
    _take_output(gathered, value, container)
    _take_rest(gathered, value)
    slots = find_object(value)
    if container.name in ("trajectory", "executor", "calls") and slots is not None and slots.has_trace and slots.trace:
        gathered.slots = slots
    elif container.name == "trajectory" and slots is not None and slots.answer is not None:
        gathered.output = slots.answer
    return _with_question(gathered, value)


_MENTIONED = re.compile(r"Text '(?P<text>[^']+)' mentioned")


def _take_rest(gathered: Gathered, value: Mapping[str, Any]) -> None:
    """Take the thinking that stands beside the messages, and drop the text that ended the conversation."""
    hidden = next(
        (value[key] for key in ("reasoningText", "reasoning_content") if isinstance(value.get(key), str)), None
    )
    if hidden and not any(part.kind is PartKind.HIDDEN for part in gathered.parts):
        gathered.parts.insert(0, Part(PartKind.HIDDEN, hidden, message=-1))
    signal = _MENTIONED.fullmatch(str(value.get("stop_reason") or ""))
    if signal is not None:
        gathered.parts = [
            replace(part, text=part.text.strip().removesuffix(signal["text"]).rstrip())
            if part.kind is PartKind.SAID
            else part
            for part in gathered.parts
        ]


def read_parts_of(messages: Any, path: str) -> list[Part]:
    """Return the parts at a path of a container; an object there may be another container."""
    if isinstance(messages, Mapping) and (inner := shapes.find_container(messages)) is not None:
        return [part for nested in inner.messages for part in read_parts_of(shapes.get_path(messages, nested), nested)]
    return [] if messages is None else read_parts(messages, path)


def _take_output(gathered: Gathered, value: Mapping[str, Any], container: shapes.Container) -> None:
    """Take the application's result: a text, or an object of slots."""
    for path in container.output:
        output = shapes.get_path(value, path)
        if isinstance(output, str) and output.strip():
            gathered.output = output
            return
        if isinstance(output, Mapping):
            gathered.slots = find_object(output)
            if gathered.slots is not None:
                return
        elif output is not None and not isinstance(output, str | list):
            gathered.output = str(output)
            return


# Parts to a reading.


def _read_parts(gathered: Gathered, settings: TextSettings) -> Reading:
    parts, is_log, ends_open = _split_texts(gathered.parts)
    evidence = tuple(
        ToolOutput(part.value, part.name)
        for part in parts
        if part.kind is PartKind.RESULT
        and not part.is_error
        and part.value not in (None, "", [], {})
        and part.name.lower() not in shapes.SUBMITTING
    )
    submitted = _find_submission(parts)
    slots = gathered.slots or submitted
    reply, earlier = _find_reply(parts, gathered.output)
    if slots is not None:
        main = read_slots(slots, settings.find_words(slots.answer or str(slots.trace)), settings)
    elif reply is None or ends_open:
        main = _read_missing(gathered)
    else:
        main = _read_reply(reply, settings)
    reading = _combine(main, earlier, parts, settings, is_log=is_log)
    text = slots.answer if slots is not None and slots.is_reply else None if reply is None else reply.text
    return replace(reading, evidence=evidence, question=gathered.question, text=text)


def _split_texts(parts: list[Part]) -> tuple[list[Part], bool, bool]:
    """Return the parts with texts that hold several parts split, whether one is a log, and whether the last is open."""
    result: list[Part] = []
    is_log = ends_open = False
    for part in _join_parts(parts):
        split: SplitText | None = split_text(part.text) if part.kind in (PartKind.SAID,) else None
        if split is None:
            result.append(part)
            ends_open = False
            continue
        is_log = is_log or split.is_log
        ends_open = split.ends_open
        result += split.parts
    return result, is_log, ends_open


def _join_parts(parts: list[Part]) -> list[Part]:
    """Return the parts with neighbouring texts of one message or of chunks joined, and repeated texts once."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last is not None and last.kind is part.kind and part.kind in (PartKind.SAID, PartKind.HIDDEN):
            if part.kind is PartKind.SAID and last.text.strip() == part.text.strip():
                continue
            if last.message == part.message or _is_delta(last.text, part.text):
                separator = join_texts if part.kind is PartKind.SAID else _join_hidden_texts
                joined[-1] = replace(last, text=separator([last.text, part.text]), message=part.message)
                continue
        if part.kind in (PartKind.SAID, PartKind.HIDDEN) and not part.text:
            continue
        joined.append(part)
    return joined


def _join_hidden_texts(texts: Sequence[str]) -> str:
    first, second = texts
    return first + second if _is_delta(first, second) else f"{first}\n{second}"


def _is_delta(first: str, second: str) -> bool:
    """Return whether a text continues another without a break, as chunks of a stream do."""
    return (
        (bool(second[:1].isspace() and second.strip()) and not second.startswith("\n"))
        or (first[-1:].isspace() and not first.endswith("\n"))
        or (second[:1].islower() and first[-1:].isalnum())
    )


def _find_submission(parts: list[Part]) -> Slots | None:
    """Return the slots of the last call of a tool that submits the answer, or whose arguments are trace and answer."""
    if parts and parts[-1].kind is PartKind.CALL and isinstance(parts[-1].value, Mapping):
        last = find_object(parts[-1].value, "output tool")
        if last is not None and last.has_answer and last.trace:
            return last
    for part in reversed(parts):
        if part.kind is PartKind.CALL and part.name.lower() in shapes.SUBMITTING:
            if isinstance(part.value, Mapping):
                slots = find_object(part.value, "output tool")
                texts = [text for text in part.value.values() if isinstance(text, str)]
                values = texts if len(texts) == 1 else list(part.value.values())
                if slots is None and len(values) == 1 and values[0] is not None:
                    slots = Slots("output tool", str(values[0]), has_answer=True)
                return slots
            if isinstance(part.value, str) and part.value.strip():
                return Slots("output tool", part.value.strip(), has_answer=True)
    return None


def _find_reply(parts: list[Part], output: str | None) -> tuple[Part | None, list[Part]]:
    """Return the reply, which is the application's result or the last visible text, and the visible texts before it."""
    visible = [
        (number, part)
        for number, part in enumerate(parts)
        if part.kind in (PartKind.SAID, PartKind.REFUSAL) and part.text.strip()
    ]
    commented = [(number, part) for number, part in enumerate(parts) if part.kind is PartKind.COMMENTARY]
    acts = [number for number, part in enumerate(parts) if part.kind in (PartKind.CALL, PartKind.RESULT)]
    last_act = acts[-1] if acts else -1
    reply: Part | None = None
    if output is not None:
        reply = Part(PartKind.SAID, output)
        same = [number for number, part in visible if part.text.strip() == output.strip()]
        # The last message is the result in the words of the model, unless it says more than the result.
        visible = [pair for pair in visible if pair[0] not in same]
        reply_number = len(parts)
    elif visible and visible[-1][0] > last_act:
        reply_number, reply = visible.pop()
    else:
        reply_number = len(parts)
    earlier = [
        part for number, part in sorted([*visible, *commented], key=lambda pair: pair[0]) if number < reply_number
    ]
    return reply, earlier


def _read_missing(gathered: Gathered) -> TextReading:
    """Return the reading of a response without a reply."""
    acts = (PartKind.CALL, PartKind.RESULT, PartKind.SAID, PartKind.COMMENTARY)
    if (not gathered.parts or gathered.withheld) and not any(part.kind in acts for part in gathered.parts):
        rule = "reply withheld" if gathered.withheld else "no part of a model"
        return TextReading(ReadingStatus.NOT_A_RESPONSE, rule)
    return TextReading(ReadingStatus.INCOMPLETE, "ended without a reply")


def _read_reply(reply: Part, settings: TextSettings) -> TextReading:
    if reply.kind is PartKind.REFUSAL:
        return TextReading(ReadingStatus.ABSTAINED, "refusal", left_out=(Segment(reply.text, Role.ABSTENTION),))
    return read_text(reply.text, settings)


def _combine(
    main: TextReading, earlier: list[Part], parts: list[Part], settings: TextSettings, *, is_log: bool
) -> Reading:
    """Return the reading of a reply with the claims between the calls before it, or else those of the thinking."""
    between: list[str] = []
    left_out: list[Segment] = []
    for part in earlier:
        segments = segment_text(strip_signal(part.text), settings.find_words(part.text))
        segments = [
            replace(item, role=Role.PLAN) if item.is_item and _is_plan_list(segments) else item for item in segments
        ]
        between += claims_of(segments)
        left_out += [item for item in segments if item.role is not Role.CLAIM]
    steps = (*between, *(step for step in main.steps if step not in between))
    origin = main.origin
    if between and (origin is None or is_log):
        origin = Origin.AGENT
    hidden = [part.text for part in parts if part.kind is PartKind.HIDDEN and part.text.strip()]
    status = main.status
    if not steps and hidden and status in (ReadingStatus.NO_TRACE, ReadingStatus.INCOMPLETE, ReadingStatus.ABSTAINED):
        segments = [item for text in hidden for item in segment_claims(text, settings.find_words(text))]
        if status is ReadingStatus.INCOMPLETE and main.answer is None and settings.cut_off:
            segments = segments[:-1] if segments and segments[-1].text[-1:].isalnum() else segments
        steps = claims_of(segments)
        origin = Origin.HIDDEN if steps else None
        left_out += [item for item in segments if item.role is not Role.CLAIM]
    elif hidden:
        left_out += [Segment(text, Role.HIDDEN) for text in hidden]
    if status is ReadingStatus.NO_TRACE and steps:
        status = ReadingStatus.TRACE
    if status is ReadingStatus.NOT_A_RESPONSE:
        steps = ()
    trace = None
    if status is ReadingStatus.TRACE:
        trace = "known"
    elif status is ReadingStatus.NO_TRACE:
        trace = "empty" if main.has_place and not hidden else "unknown"
    return Reading(
        status=status,
        trace=trace,
        steps=steps,
        answer=main.answer,
        rule=main.rule,
        origin=origin,
        located=main.located,
        left_out=(*left_out, *main.left_out),
        answer_lines=main.answer_lines,
        claims_between=len(between),
        ends_in_result=bool(between) and not main.steps and not _ends_in_claim(earlier, parts, settings),
    )


def _ends_in_claim(earlier: list[Part], parts: list[Part], settings: TextSettings) -> bool:
    """Return whether a claim follows the last output of a tool."""
    # A tool that takes the answer returns no more than that it was taken.
    results = [
        number
        for number, part in enumerate(parts)
        if part.kind is PartKind.RESULT and part.name.lower() not in shapes.SUBMITTING
    ]
    behind = parts[results[-1] + 1 :] if results else parts
    return any(claims_of(segment_text(part.text, settings.find_words(part.text))) for part in earlier if part in behind)


def _is_plan_list(segments: list[Segment]) -> bool:
    """Return whether the items of a text before a call are a plan: one of them announces something."""
    return sum(item.is_item for item in segments) > 1 and any(item.role is Role.PLAN for item in segments)
