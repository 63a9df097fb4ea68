"""Reading of one visible text: the answer's place, the claims before and behind it, and what was left out."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from eclose.reading.languages import Language, detect_language
from eclose.reading.messages import parse_json_text
from eclose.reading.segments import (
    MARKER,
    SENTENCE_END,
    Role,
    Segment,
    Words,
    join_lines,
    segment_claims,
    segment_text,
    strip_emphasis,
)
from eclose.reading.slots import (
    BROKEN,
    NamedLine,
    Slots,
    clean_box,
    find_boxes,
    find_named_lines,
    find_slots,
    inline_markers,
)
from eclose.values.response import parse_completion

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class ReadingStatus(StrEnum):
    """What a response is."""

    TRACE = "trace"
    NO_TRACE = "no_trace"
    ABSTAINED = "abstained"
    INCOMPLETE = "incomplete"
    NOT_A_RESPONSE = "not_a_response"


class Origin(StrEnum):
    """Where a trace comes from."""

    MARKED = "marked"
    """Steps before a line that names the answer."""
    STRUCTURED = "structured"
    """Steps in a slot of their own: a key, a tag, a column."""
    AGENT = "agent"
    """Claims that an agent wrote between its calls."""
    PROSE = "prose"
    HIDDEN = "hidden"
    """Thinking, where nothing visible is a trace."""


@dataclass(frozen=True, slots=True)
class TextReading:
    """The reading of one text."""

    status: ReadingStatus
    rule: str
    steps: tuple[str, ...] = ()
    answer: str | None = None
    located: bool = True
    """Whether the answer is told apart from the rest; otherwise it is the whole text."""
    origin: Origin | None = None
    left_out: tuple[Segment, ...] = ()
    answer_lines: int = 0
    """Number of the protocol's answer lines."""
    has_place: bool = False
    """Whether there was a place for steps, which may be empty."""


@dataclass(frozen=True, slots=True)
class TextSettings:
    """What decides the reading of a text besides the text."""

    question: str = ""
    cut_off: bool = False
    answer_markers: tuple[str, ...] = ()
    trace_markers: tuple[str, ...] = ()
    language: Language | None = None

    def find_words(self, text: str) -> Words:
        """Return the words of the text's language; of the question's in doubt."""
        if self.language is not None:
            return Words.of(self.language)
        return Words.detect(text, self.question)


_PAGE = re.compile(r"^\s*(?:<!doctype html|<html\b|<\?xml\b)", re.IGNORECASE)
# Texts that frameworks put in the place of a reply, as identifiers.
_NO_REPLIES = re.compile(
    r"""(?:empty\ response|no\ response|null|undefined|\[?(?:content\ )?filtered\]?|internal\ server\ error
    |bad\ gateway|service\ unavailable|gateway\ time-?out|rate\ limit\ (?:exceeded|reached).*
    |\d{3}\ (?:bad\ gateway|internal\ server\ error|service\ unavailable|too\ many\ requests|gateway\ time-?out).*
    |(?:error(?:\ code)?:\ ?\d{3}|upstream\ connect\ error)\b.*)\.?""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_STOP_TEXTS = re.compile(
    r"""(?:agent\ stopped\ due\ to\ (?:iteration\ limit|time\ limit|max\ iterations).*
    |sorry,\ need\ more\ steps\ to\ process\ this\ request
    |(?:agent\ )?(?:reached|stopped\ after|exceeded)(?:\ the)?\ max(?:imum)?(?:\ number\ of)?
    \ (?:iterations|steps|turns).*
    |max(?:imum)?\ (?:iterations|steps|turns)(?:\ \(?\d+\)?)?\ (?:reached|exceeded).*
    |recursion\ limit\ of\ \d+\ reached.*)\.?""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_SIGNAL = re.compile(r"(?:(?<!\S)[*_`]{0,3}TERMINATE[*_`.]{0,4}|<\|(?:return|end|im_end|eot_id|endoftext)\|>|</s>)$")


_MARKUP = re.compile(r"\s*<(?:p|div|ul|ol|h[1-6]|br|span|strong|em|b|table)\b[^>]*>", re.IGNORECASE)
_BLOCK_END = re.compile(r"</(?:p|li|div|tr|h[1-6]|ul|ol)>|<br\s*/?>", re.IGNORECASE)
_ANY_TAG = re.compile(r"</?[a-z][a-z0-9]*\b[^<>]*>", re.IGNORECASE)


def strip_markup(text: str) -> str:
    """Return a text in HTML as lines; any other text as it is.

    >>> strip_markup("<p>It is <b>red</b>.</p><ul><li>It was sold.</li></ul>")
    'It is red.\\n- It was sold.'
    """
    if not _MARKUP.match(text):
        return text
    lines = _BLOCK_END.sub("\n", re.sub(r"<li\b[^>]*>", "- ", text, flags=re.IGNORECASE))
    plain = html.unescape(_ANY_TAG.sub("", lines))
    return re.sub(r"\n{2,}", "\n", plain).strip()


def strip_signal(text: str) -> str:
    """Return a text without the signal that ends a conversation, such as TERMINATE."""
    text = text.rstrip()
    while (match := _SIGNAL.search(text, max(0, len(text) - 24))) is not None:
        text = text[: match.start()].rstrip()
    return text


def read_text(text: str, settings: TextSettings) -> TextReading:
    """Read a text that holds an answer, and perhaps the claims for it."""
    text = strip_markup(strip_signal(text).strip())
    if not text:
        return TextReading(ReadingStatus.INCOMPLETE, "empty")
    if _PAGE.match(text) or _NO_REPLIES.fullmatch(text) or _is_error_object(text):
        return TextReading(ReadingStatus.NOT_A_RESPONSE, "error page or stand-in")
    if _STOP_TEXTS.fullmatch(text):
        return TextReading(ReadingStatus.INCOMPLETE, "stop text of the framework")
    words = settings.find_words(text)
    slots = find_slots(text)
    if slots is not None:
        return read_slots(slots, words, settings)
    return _read_marked(text, words, settings) or _read_boxed(text, words) or _read_prose(text, words, settings)


@lru_cache(maxsize=64)  # several figures of one response ask the same
def abstains(answer: str) -> bool:
    """Return whether an answer says that there is none.

    >>> abstains("I could not find this in the handbook."), abstains("60 months. I could not find the price.")
    (True, False)
    """
    return read_text(answer, TextSettings()).status is ReadingStatus.ABSTAINED


def claims_of(segments: Iterable[Segment]) -> tuple[str, ...]:
    """Return the texts of the claims among segments."""
    return tuple(join_lines(part.text) for part in segments if part.role is Role.CLAIM)


def _others(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    return tuple(part for part in segments if part.role is not Role.CLAIM)


def strip_marks(text: str, settings: TextSettings) -> list[Segment]:
    """Return the segments of a trace that may end in a line that names the answer, without that line."""
    words = settings.find_words(text)
    lines = text.splitlines()
    named = list(find_named_lines(lines, settings.answer_markers, settings.trace_markers))
    return _segment_around(lines, 0, named, words)


def _is_error_object(text: str) -> bool:
    """Return whether a text is the error object of a provider."""
    fields = parse_json_text(text) if text.startswith("{") and "error" in text[:40] else None
    return isinstance(fields, dict) and next(iter(fields), None) == "error" and fields.keys() <= _ERROR_KEYS


_ERROR_KEYS = frozenset(("error", "type", "code", "status", "request_id", "message"))


# Structured slots: JSON, tags, fields.


def read_slots(slots: Slots, words: Words, settings: TextSettings) -> TextReading:
    """Read the slots of an object or of tags; an answer of several sentences is a reply in prose."""
    steps, left_out = _read_traces(slots, settings)
    origin = Origin.STRUCTURED if steps else None
    rule = slots.rule
    if slots.has_answer and slots.answer and not (slots.broken and _is_broken(slots.answer, slots)):
        inner = _read_answer_slot(slots.answer, words, settings, has_steps=bool(steps), is_reply=slots.is_reply)
        if inner.status is ReadingStatus.ABSTAINED:
            return replace(inner, steps=(*steps, *inner.steps), origin=origin or inner.origin, rule=rule)
        steps = (*steps, *inner.steps)
        status = ReadingStatus.TRACE if steps else ReadingStatus.NO_TRACE
        others = (*left_out, *inner.left_out)
        return TextReading(
            status=status,
            rule=rule,
            steps=steps,
            answer=inner.answer,
            located=inner.located,
            origin=origin or inner.origin,
            left_out=others,
            has_place=slots.has_trace and not slots.trace,
        )
    if slots.is_null:
        return TextReading(
            ReadingStatus.ABSTAINED, rule, steps, origin=origin, left_out=left_out, has_place=slots.has_trace
        )
    if not slots.has_answer and not slots.broken:
        # The trace has a place of its own, and the answer stands outside it.
        outer = read_text(slots.rest, settings) if slots.rest.strip() else TextReading(ReadingStatus.INCOMPLETE, rule)
        if outer.answer is not None or outer.status is ReadingStatus.ABSTAINED:
            status = ReadingStatus.TRACE if steps or outer.steps else ReadingStatus.NO_TRACE
            status = outer.status if outer.status is ReadingStatus.ABSTAINED else status
            # The slot of the trace comes before explanations around it, so the text outside is all answer.
            if steps and not outer.located:
                outer = replace(outer, steps=(), located=True)
            return TextReading(
                status=status,
                rule=rule,
                steps=(*steps, *outer.steps),
                answer=outer.answer,
                located=outer.located,
                origin=origin or outer.origin,
                left_out=(*left_out, *outer.left_out),
                has_place=True,
            )
    return TextReading(
        ReadingStatus.INCOMPLETE, rule, steps, origin=Origin.STRUCTURED, left_out=left_out, has_place=True
    )


def _is_broken(answer: str, slots: Slots) -> bool:
    return answer.endswith(BROKEN) or (slots.rule != "JSON key" and slots.broken)


def _read_traces(slots: Slots, settings: TextSettings) -> tuple[tuple[str, ...], tuple[Segment, ...]]:
    steps: list[str] = []
    left_out: list[Segment] = []
    for part in slots.trace:
        if isinstance(part, list):
            texts = [text for text in part if not text.endswith(BROKEN)]
            steps += trim_numbers(texts)
            continue
        text = part.removesuffix(BROKEN)
        segments = segment_claims(text, settings.find_words(text))
        if text != part or (slots.broken and not slots.has_answer):
            segments = _drop_broken(segments)
        steps += claims_of(segments)
        left_out += _others(segments)
    return tuple(steps), tuple(left_out)


def trim_numbers(texts: Sequence[str]) -> list[str]:
    """Return marked steps on one line each; numbers are dropped where every step has one."""
    steps = [join_lines(text.strip()) for text in texts if text.strip()]
    return [MARKER.sub("", step) for step in steps] if all(map(MARKER.match, steps)) else steps


def _read_answer_slot(
    answer: str, words: Words, settings: TextSettings, *, has_steps: bool, is_reply: bool = False
) -> TextReading:
    """Read the content of a slot: a bare answer, a reply in prose, or what stands for no answer."""
    if words.marks_no_answer(answer):
        return TextReading(ReadingStatus.ABSTAINED, "slot says that there is no answer")
    own = settings.find_words(answer)
    if is_reply:
        reading = read_text(answer, settings)
        if has_steps and reading.status in (ReadingStatus.TRACE, ReadingStatus.NO_TRACE):
            # The column of the trace holds the steps; a line in the response may name the answer.
            is_named = reading.rule == "protocol" or reading.rule.startswith("named line")
            answer = reading.answer if is_named and reading.answer is not None else answer
            return TextReading(ReadingStatus.NO_TRACE, "slot", answer=answer.strip())
        return reading
    reading = _read_prose(answer, own, replace(settings, cut_off=False), in_slot=True)
    if reading.status in (ReadingStatus.INCOMPLETE, ReadingStatus.NOT_A_RESPONSE):
        return TextReading(ReadingStatus.NO_TRACE, "slot", answer=answer.strip())
    if not reading.located and has_steps:
        return TextReading(ReadingStatus.NO_TRACE, "slot", answer=answer.strip())
    return reading


def _drop_broken(segments: list[Segment]) -> list[Segment]:
    """Return the segments with the last one, if it has no end mark, as broken off."""
    if segments and segments[-1].role is not Role.CODE and not SENTENCE_END.search(segments[-1].text):
        return [*segments[:-1], replace(segments[-1], role=Role.BROKEN)]
    return segments


# Lines and headings that name the answer.


def _read_marked(text: str, words: Words, settings: TextSettings, *, is_inline: bool = False) -> TextReading | None:
    lines = text.splitlines()
    # Behind a sentence on its line, even the protocol's marker is one of any system.
    has_protocol = not is_inline and "final answer" in text.lower()
    final = [number for number, line in enumerate(lines) if has_protocol and parse_completion(line).answer_lines]
    named = list(find_named_lines(lines, settings.answer_markers, settings.trace_markers))
    if final and not any(line.marker in settings.answer_markers for line in named):
        return _read_protocol(lines, final, words, settings)
    answers = [line for line in named if not line.is_trace]
    if not answers:
        # "She was born in Lund. Answer: Lund": the line is the end of a paragraph.
        has_mark = ":" in text or "：" in text
        broken = inline_markers(settings.answer_markers).sub("\n", text) if has_mark else text
        return _read_marked(broken, words, settings, is_inline=True) if broken != text else None
    last = answers[-1]
    # Headings name parts of a reply: the answer's part ends at the next heading.
    content, behind = _take_answer(lines, last, named)
    if not content or (settings.cut_off and last.number == len(lines) - 1):
        segments = segment_claims("\n".join(lines[: last.number]), words)
        origin = Origin.MARKED if claims_of(segments) else None
        return TextReading(
            ReadingStatus.INCOMPLETE,
            f"named line {last.marker!r}",
            claims_of(segments),
            origin=origin,
            left_out=_others(segments),
            has_place=True,
        )
    before = _segment_around(lines[: last.number], 0, named, words)
    after = _segment_around(lines[behind:], behind, named, words)
    is_labelled = any(line.is_trace and line.number >= behind for line in named)
    if not claims_of(before) or is_labelled:
        segments = [*before, *after]
    else:
        segments = [*before, *(replace(part, role=Role.BEHIND) if part.role is Role.CLAIM else part for part in after)]
    return _finish_named(content, segments, last, words, settings)


def _finish_named(
    content: str, segments: list[Segment], line: NamedLine, words: Words, settings: TextSettings
) -> TextReading:
    steps = claims_of(segments)
    boxes = find_boxes(content)
    if boxes and boxes[-1][2] != BROKEN:
        content = clean_box(boxes[-1][2])
    inner = _read_answer_slot(content, words, settings, has_steps=bool(steps))
    steps = (*steps, *inner.steps)
    status = ReadingStatus.TRACE if steps else ReadingStatus.NO_TRACE
    if inner.status is ReadingStatus.ABSTAINED:
        status = inner.status
    origin = Origin.MARKED if steps else None
    left_out = (*_others(segments), *inner.left_out)
    return TextReading(
        status=status,
        rule=f"named line {line.marker!r}",
        steps=steps,
        answer=inner.answer,
        located=inner.located,
        origin=origin,
        left_out=left_out,
    )


def _take_answer(lines: list[str], line: NamedLine, named: list[NamedLine]) -> tuple[str, int]:
    """Return the answer of a named line or heading, and the number of the line behind it."""
    if line.text:
        return line.text.strip(), line.number + 1
    stops = [other.number for other in named if other.number > line.number]
    end = min([*stops, len(lines)])
    content: list[str] = []
    for number in range(line.number + 1, end):
        text = lines[number].strip()
        # Below a line the answer is one paragraph; below a heading all of its part.
        if not text and content and not line.is_heading:
            return "\n".join(content).strip(), number
        if text.startswith("#") and content:
            return "\n".join(content).strip(), number
        content += [lines[number]] if text or content else []
    return "\n".join(content).strip(), end


def _segment_around(lines: list[str], first: int, named: list[NamedLine], words: Words) -> list[Segment]:
    """Return the segments of lines around the answer, without other answer lines and without labels."""
    names = {line.number: line for line in named}
    body: list[str] = []
    left_out: list[Segment] = []
    for number, line in enumerate(lines, start=first):
        name = names.get(number)
        if name is None:
            body.append(line)
        elif name.is_trace:
            body.append(name.text)
        else:
            left_out.append(Segment(line.strip(), Role.ANSWER, line=number))
            body.append("")
    return [*segment_claims("\n".join(body), words), *left_out]


def _read_protocol(lines: list[str], final: list[int], words: Words, settings: TextSettings) -> TextReading:
    """Read a text with the protocol's answer line: the first counts, and no roles are applied."""
    if settings.cut_off and final[0] == len(lines) - 1:
        segments = segment_text("\n".join(lines[:-1]), words)
        return _incomplete_protocol(segments, len(final))
    index = final[0]
    answer = parse_completion(lines[index]).answer
    below = "\n".join(lines[index + 1 :]).strip()
    segments = segment_protocol("\n".join(lines[:index]), words)
    steps, others = claims_of(segments), _others(segments)
    if not (answer or below):
        return _incomplete_protocol(segments, len(final))
    if answer is not None and below:
        others = (*others, Segment(below, Role.BEHIND))
    status = ReadingStatus.TRACE if steps else ReadingStatus.NO_TRACE
    submitted = answer or below
    # An abstention stays the submitted text, as the response prompt has it.
    if words.abstains(submitted) or words.marks_no_answer(submitted):
        status = ReadingStatus.ABSTAINED
    origin = Origin.MARKED if steps else None
    return TextReading(
        status, "protocol", steps, submitted, origin=origin, left_out=others, answer_lines=len(final), has_place=True
    )


def _incomplete_protocol(segments: list[Segment], answer_lines: int) -> TextReading:
    steps = claims_of(segments)
    origin = Origin.MARKED if steps else None
    return TextReading(
        ReadingStatus.INCOMPLETE,
        "protocol",
        steps,
        origin=origin,
        left_out=_others(segments),
        answer_lines=answer_lines,
        has_place=True,
    )


def segment_protocol(text: str, words: Words) -> list[Segment]:
    """Return the segments of the lines before the protocol's answer line: every sentence and item is a step."""
    return [
        replace(part, role=Role.CLAIM) if part.role not in (Role.LAYOUT, Role.CODE) or part.is_item else part
        for part in segment_text(text, words)
    ]


# Boxes.


def _read_boxed(text: str, words: Words) -> TextReading | None:
    boxes = find_boxes(text)
    if not boxes:
        return None
    start, end, content = boxes[-1]
    closed = content != BROKEN
    # The sentences around the box are found again by a mark that no sentence is split at.
    mark = "\ufdd0"
    segments = segment_claims(text[:start] + mark + (text[end:] if closed else ""), words)
    parts: list[Segment] = []
    for part in segments:
        if mark not in part.text:
            parts.append(part)
            continue
        outside = part.text.replace(mark, "")
        whole = part.text.replace(mark, text[start:end])
        parts.append(Segment(whole, Role.CLAIM if "=" in outside and closed else Role.NAMES_ANSWER))
    steps, origin = claims_of(parts), Origin.MARKED
    if not closed:
        return TextReading(
            ReadingStatus.INCOMPLETE, "box", steps, origin=origin if steps else None, left_out=_others(parts)
        )
    status = ReadingStatus.TRACE if steps else ReadingStatus.NO_TRACE
    return TextReading(
        status, "box", steps, clean_box(content), origin=origin if steps else None, left_out=_others(parts)
    )


# Prose.


def _read_prose(text: str, words: Words, settings: TextSettings, *, in_slot: bool = False) -> TextReading:
    segments = segment_text(text, words)
    if settings.cut_off or (not in_slot and _breaks_off(segments)):
        return _read_cut_off(segments)
    claims = [part for part in segments if part.role is Role.CLAIM]
    if any(part.role is Role.NAMES_ANSWER for part in segments):
        return _read_named_sentence(segments, words)
    if not claims:
        return _read_without_claims(text, segments)
    if words.marks_no_answer(text):
        return TextReading(ReadingStatus.ABSTAINED, "stands for no answer", left_out=(Segment(text, Role.ABSTENTION),))
    if len(claims) == 1 and not words.denies(claims[0].text) and not (claims[0].is_item and len(segments) > 1):
        return _read_one_sentence(text, segments, claims[0])
    located = _read_abstention(segments, claims, words) or _locate(segments, claims, words, settings.question)
    if located is not None:
        return located
    if _asks_for(segments, words, settings.question):
        return TextReading(ReadingStatus.NO_TRACE, "what the question asks for", answer=text.strip())
    return TextReading(
        ReadingStatus.TRACE,
        "prose, answer not located",
        claims_of(claims),
        text.strip(),
        located=False,
        origin=Origin.PROSE,
        left_out=_others(segments),
    )


def _read_named_sentence(segments: list[Segment], words: Words) -> TextReading:
    """Return the reading of prose in which a sentence calls itself the answer; the last such sentence counts."""
    named = next(part for part in reversed(segments) if part.role is Role.NAMES_ANSWER)
    answer, steps = words.match_named_answer(named.text), claims_of(segments)
    status = ReadingStatus.TRACE if steps else ReadingStatus.NO_TRACE
    if answer is None or words.abstains(answer):
        answer, status = None, ReadingStatus.ABSTAINED
    origin = Origin.MARKED if steps else None
    rule = "sentence that names the answer"
    return TextReading(status, rule, steps, answer, origin=origin, left_out=_others(segments))


def _read_one_sentence(text: str, segments: list[Segment], claim: Segment) -> TextReading:
    heading = segments[-1] if segments[-1].is_heading else segments[0]
    is_repeated = heading.text.casefold() in claim.text.casefold()
    if heading.is_heading and (heading is segments[-1] or is_repeated):
        return _take_out(heading.text, [claim], [part for part in segments if part is not heading], "heading")
    answer = join_lines(claim.text) if len(segments) > 1 else text.strip()
    return TextReading(ReadingStatus.NO_TRACE, "one sentence", answer=answer, left_out=_others(segments))


def _breaks_off(segments: list[Segment]) -> bool:
    """Return whether the last sentence breaks off: it alone has no end mark, and it is more than a closing fragment."""
    texts = [part for part in segments if part.role not in (Role.LAYOUT, Role.CODE)]
    if len(texts) < 2 or texts[-1] is not segments[-1] or SENTENCE_END.search(texts[-1].text):
        return False
    last = texts[-1]
    if last.role is Role.NAMES_ANSWER:
        return False
    same = [part for part in texts[:-1] if part.is_item == last.is_item]
    if not last.text[-1:].isalnum() and last.text[-1:] not in ",;–—-":
        return False
    if last.is_item:
        return bool(same) and all(SENTENCE_END.search(part.text) for part in same)
    return texts[-2].line == last.line and bool(SENTENCE_END.search(texts[-2].text))


def _read_cut_off(segments: list[Segment]) -> TextReading:
    segments = _drop_broken(segments)
    steps = claims_of(segments)
    origin = Origin.PROSE if steps else None
    return TextReading(ReadingStatus.INCOMPLETE, "cut off", steps, origin=origin, left_out=_others(segments))


def _read_without_claims(text: str, segments: list[Segment]) -> TextReading:
    roles = {part.role for part in segments}
    left_out = tuple(segments)
    if segments and all(part.is_heading for part in segments):
        return TextReading(ReadingStatus.NO_TRACE, "bare answer", answer=segments[-1].text)
    if roles & {Role.QUESTION}:
        return TextReading(ReadingStatus.ABSTAINED, "question back", left_out=left_out)
    if roles & {Role.PLAN, Role.RESTATEMENT}:
        return TextReading(ReadingStatus.INCOMPLETE, "ends in a plan", left_out=left_out)
    return TextReading(ReadingStatus.NO_TRACE, "bare answer", answer=text.strip())


def _read_abstention(segments: list[Segment], claims: list[Segment], words: Words) -> TextReading | None:
    """Return the reading of a reply that says at its start or end that there is no answer."""
    first, last = claims[0], claims[-1]
    said_last, said_first = words.denies(last.text), words.denies(first.text)
    if not (said_first or said_last):
        return None
    # A partial answer is an answer: "60 months. I could not find the price."
    if not said_first and _opens_with_answer(first, words):
        return None
    if not said_last and _concludes(last, words):
        return None
    ends = {id(last)} if said_last else {id(first)}
    parts = [
        replace(part, role=Role.ABSTENTION)
        if part.role is Role.CLAIM and (id(part) in ends or words.abstains(part.text))
        else part
        for part in segments
    ]
    steps = claims_of(parts)
    origin = Origin.PROSE if steps else None
    return TextReading(ReadingStatus.ABSTAINED, "abstention", steps, origin=origin, left_out=_others(parts))


def _take_out(answer: str, claims: Sequence[Segment], segments: Sequence[Segment], rule: str) -> TextReading:
    """Return the reading of prose whose answer was located; the other claims are the trace."""
    steps = claims_of(claims)
    status = ReadingStatus.TRACE if steps else ReadingStatus.NO_TRACE
    origin = Origin.PROSE if steps else None
    return TextReading(status, rule, steps, join_lines(answer), origin=origin, left_out=_others(segments))


def _locate(segments: list[Segment], claims: list[Segment], words: Words, question: str) -> TextReading | None:
    """Return the reading by a conclusion word, an opening fragment or verdict, or a closing fragment."""
    if (heading := _find_heading_answer(segments, claims, words, question)) is not None:
        return _take_out(heading.text, claims, [part for part in segments if part is not heading], "heading")
    first, last = claims[0], claims[-1]
    opening = _opens_with_answer(first, words)
    if _concludes(last, words):
        # The fragment at the start of a reply that changes its mind is dropped and counted.
        dropped = [first] if opening and len(claims) > 2 and _is_fragment(first.text, words) else []
        rest = [part for part in claims[:-1] if part not in dropped]
        others = [*segments, *(replace(part, role=Role.ANSWER) for part in dropped)]
        return _take_out(last.text, rest, others, "prose, conclusion word")
    if opening:
        return _take_out(first.text, claims[1:], segments, "prose, opening fragment")
    is_alone = not last.is_item and last.line > claims[-2].line and not SENTENCE_END.search(last.text)
    if is_alone and _is_fragment(last.text, words):
        return _take_out(last.text, claims[:-1], segments, "prose, closing fragment")
    return None


def _concludes(segment: Segment, words: Words) -> bool:
    bare = strip_emphasis(segment.text).lstrip('> #"“')
    language = words.main
    return bool(language.conclusion.match(bare) or language.therefore.search(bare))


def _opens_with_answer(segment: Segment, words: Words) -> bool:
    """Return whether a first sentence is a verdict, an opinion or a fragment."""
    if segment.is_item:
        return False
    bare = strip_emphasis(segment.text).strip("> ¡¿")
    language = words.main
    if language.verdict.match(bare) and _is_verdict(bare, language):
        return True
    return bool(language.hedge.match(bare)) or _is_fragment(segment.text, words)


def _is_verdict(text: str, language: Language) -> bool:
    """Return whether the verdict stands apart: "Both." and "Yes, it does.", but not "Both trains arrive."."""
    match = language.verdict.match(text)
    behind = text[match.end() :].lstrip() if match else ""
    return not behind or not (behind[0].isalnum() or behind[0] in "'’")


_PARENTHESIS = re.compile(r"\s*(?:\([^)]*\)|\[[^\]]*\]|【[^】]*】)")
_EMPHASIS_OR_QUOTES = re.compile(r"[*_`\"“”«»]+")
_MAX_FRAGMENT = 6
_LABEL_MARK = re.compile(r"[:：](?!\d)")


def _is_fragment(text: str, words: Words) -> bool:
    """Return whether a text has no finite verb: "Malmö.", "Hall B, with 410 seats."."""
    bare = _EMPHASIS_OR_QUOTES.sub("", _PARENTHESIS.sub("", text)).strip(" .。!！")
    # "Hall A: 320 seats" states something of what it names; "the 7:12 train" does not.
    if not bare or "=" in bare or _LABEL_MARK.search(bare):
        return False
    language = words.main
    if language.fragment is not None:
        return bool(language.fragment.fullmatch(bare)) and not language.finite.search(bare)
    head, comma, tail = bare.partition(", ")
    if comma and language.because.match(tail):
        # "Hall B, because it has 410 seats.": the verb is in the reason.
        bare = head
    tokens = bare.split()
    if language.verbless:
        # A sentence may do without a verb here: names and numbers alone are fragments.
        named = all(token[:1].isupper() or not token[:1].isalpha() for token in tokens)
        return len(tokens) <= 2 or (named and len(tokens) <= _MAX_FRAGMENT)
    return len(tokens) <= _MAX_FRAGMENT and not language.finite.search(bare)


def _find_heading_answer(segments: list[Segment], claims: list[Segment], words: Words, question: str) -> Segment | None:
    """Return the heading that is itself the answer: it ends the reply, or opens it and is repeated by the claims."""
    first, last = segments[0], segments[-1]
    if last.is_heading and last.text and last is not first:
        return last
    if not first.is_heading or sum(part.is_heading for part in segments) > 1 or len(first.text) > 80:
        return None
    name = first.text.casefold()
    in_claims = any(name in part.text.casefold() for part in claims)
    return first if in_claims and name not in question.casefold() and _is_fragment(first.text, words) else None


def _asks_for(segments: list[Segment], words: Words, question: str) -> bool:
    """Return whether the question asks for the list, the instructions or the account that the reply is."""
    if not question:
        return False
    language = detect_language(question, words.main)[0]
    bare = question.strip().lstrip("¿¡ ")
    items = [part for part in segments if part.is_item]
    if language.account.match(bare):
        return True
    if language.instruction.search(bare):
        return True
    if len(items) >= 2 and language.listing.search(bare):
        return all(_is_fragment(part.text, words) and ":" not in part.text for part in items)
    return False
