"""Slots inside a text that hold an answer or a trace: JSON objects, tags, boxes, and lines that name the answer."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from eclose.reading.languages import collect_keys, collect_texts, key_name


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BROKEN = "\ufffc"
"""Stands at the end of a text that was cut off inside a JSON object."""


@dataclass(slots=True)
class Slots:
    """What the slots of a text hold."""

    rule: str
    answer: str | None = None
    has_answer: bool = False
    """Whether there is a slot for the answer, filled or not."""
    trace: list[str | list[str]] = field(default_factory=list)
    """Texts, and lists of marked steps."""
    has_trace: bool = False
    """Whether there is a slot for the trace, filled or not."""
    rest: str = ""
    """The text outside the slots."""
    broken: bool = False
    """Whether the text ends inside a slot."""
    is_reply: bool = False
    """Whether the slot of the answer holds a whole reply, as a column of responses does."""
    is_null: bool = False
    """Whether the slot of the answer says that there is none."""


def find_object(value: Mapping[str, Any], rule: str = "JSON key") -> Slots | None:
    """Return the slots of an object by its keys; None where none of them is one."""
    names = {key_name(key): key for key in value}
    traces = collect_keys("trace_keys")
    # The order of the table ranks the keys: ``final_answer`` stands before ``result``.
    answer_key = next((names[name] for name in _ranked("answer_keys") if name in names), None)
    trace_keys = [
        key for name, key in names.items() if name in traces and key != answer_key and _holds_trace(value[key])
    ]
    if answer_key is None and not trace_keys:
        inner = next(iter(value.values())) if len(value) == 1 else None
        return find_object(inner, rule) if isinstance(inner, Mapping) else None
    slots = Slots(rule, has_answer=answer_key is not None, has_trace=bool(trace_keys))
    if answer_key is not None:
        content = value[answer_key]
        inner_slots = find_object(content, rule) if isinstance(content, Mapping) else None
        if inner_slots is not None:
            inner_slots.trace[:0] = [part for key in trace_keys for part in _list_steps(value[key])]
            inner_slots.has_trace |= bool(trace_keys)
            return inner_slots
        slots.answer = flatten(content, ", ") if content is not None else None
        slots.is_null = content is None
    # Of several keys only the first names that fit are read; the same text under two keys counts once.
    steps = [part for key in trace_keys for part in _list_steps(value[key])]
    slots.trace = [part for number, part in enumerate(steps) if part not in steps[:number]]
    return slots


@lru_cache(maxsize=2)
def _ranked(kind: str) -> tuple[str, ...]:
    return tuple(key_name(key) for key in collect_texts(kind))


def _holds_trace(value: Any) -> bool:
    """Return whether a value may be a trace: a number of steps is none."""
    return value is None or isinstance(value, str | list | Mapping)


def _list_steps(value: Any) -> list[str | list[str]]:
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, list):
        texts = [flatten(item, " ") for item in value]
        return [[text for text in texts if text]] if any(texts) else []
    if isinstance(value, Mapping):
        return [[text for item in value.values() if (text := flatten(item, " "))]] if value else []
    return []


def flatten(value: Any, separator: str) -> str:
    """Return the texts of a value as one; numbers and truth values as JSON writes them."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, Mapping):
        texts = [value[key] for key in value if key_name(key) not in _NO_TEXTS]
        return separator.join(text for item in texts if (text := flatten(item, separator)))
    if isinstance(value, list):
        return separator.join(text for item in value if (text := flatten(item, separator)))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


_NO_TEXTS = _words(
    """
    id type index number step step_number confidence score sources citations source title page status
    """
)
_JSON_FENCE = re.compile(r"```(?:json5?|JSON)?[ \t]*\n?(?P<body>\s*\{.*?\})\s*```", re.DOTALL)
_OPEN_FENCE = re.compile(r"```(?:json5?|JSON)?\s*(?P<body>\{.*)$", re.DOTALL)


def find_slots(text: str) -> Slots | None:
    """Return the slots of a text: JSON, tags, the printed record of a program, or YAML."""
    return find_json(text) or find_tags(text) or _find_record(text) or _find_yaml(text)


_RECORD = re.compile(r"[A-Za-z_]\w*\(\s*[A-Za-z_]\w*\s*=.*\)", re.DOTALL)


def _find_record(text: str) -> Slots | None:
    """Return the slots of a record as Python prints it, such as ``Prediction(reasoning='...', answer='...')``."""
    if not _RECORD.fullmatch(text.strip()):
        return None
    try:
        call = ast.parse(text.strip(), mode="eval").body
        fields = {field.arg: ast.literal_eval(field.value) for field in getattr(call, "keywords", ()) if field.arg}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return find_object(fields, "record")


_YAML_FENCE = re.compile(r"```ya?ml\s*\n(?P<body>.*?)(?:```|$)", re.DOTALL | re.IGNORECASE)
_YAML_KEY = re.compile(r"^(?P<key>[^\W\d]\w*):(?:\s|$)", re.MULTILINE)


def _find_yaml(text: str) -> Slots | None:
    """Return the slots of a YAML mapping with a trace and an answer, which is the text or stands in a fence."""
    fence = _YAML_FENCE.search(text)
    body = fence["body"] if fence else text
    keys = {key_name(match["key"]) for match in _YAML_KEY.finditer(body)}
    if not (keys & collect_keys("answer_keys") and keys & collect_keys("trace_keys")):
        return None
    import yaml  # noqa: PLC0415 - few texts are YAML

    try:
        value = yaml.safe_load(body)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return find_object(value, "YAML key") if isinstance(value, dict) else None


def find_json(text: str) -> Slots | None:
    """Return the slots of a JSON object that is the text, stands in a fence, or stands between other sentences."""
    if "{" not in text or '"' not in text:
        return None
    for fence in _JSON_FENCE.finditer(text):
        if (slots := _parse_object(fence["body"])) is not None:
            slots.rest = f"{text[: fence.start()]}\n{text[fence.end() :]}"
            return slots
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        if isinstance(value, dict) and (slots := find_object(value)) is not None:
            slots.rest = f"{text[:start]}\n{text[end:]}".replace("```json", "").replace("```", "")
            return slots
        start = text.find("{", end)
    opened = _OPEN_FENCE.search(text)
    body = opened["body"] if opened else text.strip()
    return _parse_object(body) if body.startswith("{") else None


_DECODER = json.JSONDecoder(strict=False)


def _parse_object(text: str) -> Slots | None:
    """Return the slots of an object, also of one that is cut off."""
    text = text.strip()
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        value = _close_object(text)
        slots = find_object(value) if isinstance(value, dict) else None
        if slots is not None:
            slots.broken = True
        return slots
    return find_object(value) if isinstance(value, dict) else None


def _close_object(text: str) -> Any:
    """Return the object of a text that breaks off inside it; None where it cannot be closed."""
    closers: list[str] = []
    in_text, escaped = False, False
    for char in text:
        if in_text:
            in_text = escaped or char != '"'
            escaped = not escaped and char == "\\"
        elif char == '"':
            in_text, escaped = True, False
        elif char in "{[":
            closers.append("}" if char == "{" else "]")
        elif char in "}]" and (not closers or closers.pop() != char):
            return None
    if not closers:
        return None
    whole = text + (f'{BROKEN}"' if in_text else "")
    ending = "".join(reversed(closers))
    for tail in ("", ": null", "null"):
        try:
            return _DECODER.decode(whole.rstrip().removesuffix(",") + tail + ending)
        except (ValueError, RecursionError):
            continue
    return None


_ITEM_TAG = re.compile(r"<(?:step|item|li|claim)\b[^>]*>(.*?)</(?:step|item|li|claim)>", re.DOTALL | re.IGNORECASE)
# Tags, and the field headers of DSPy's chat adapter, which are tags without an end.
_TAG = re.compile(r"<(?P<name>[^\W\d][\w-]{1,30})>", re.IGNORECASE)
_FIELD = re.compile(r"^\s*\[\[ ## (?P<name>[\w-]+) ## \]\]\s*$", re.MULTILINE)


def find_tags(text: str) -> Slots | None:
    """Return the slots of tags such as ``<answer>``; None where there are none."""
    if fields := list(_FIELD.finditer(text)):
        return _read_fields(text, fields)
    if "<" not in text:
        return None
    slots, rest, position = Slots("tag"), [], 0
    while (tag := _TAG.search(text, position)) is not None:
        name = key_name(tag["name"])
        is_answer, is_trace = name in collect_keys("answer_keys"), name in collect_keys("trace_keys")
        if not (is_answer or is_trace):
            rest.append(text[position : tag.end()])
            position = tag.end()
            continue
        rest.append(text[position : tag.start()])
        closing = text.lower().find(f"</{tag['name'].lower()}>", tag.end())
        content = text[tag.end() : closing if closing >= 0 else len(text)].strip()
        if is_answer:
            # The last word counts, where a model corrects itself.
            slots.answer, slots.has_answer = content or None, True
            slots.broken = closing < 0
        else:
            slots.has_trace = True
            items = [text.strip() for text in _ITEM_TAG.findall(content)]
            slots.trace += [items] if items else [content] if content else []
            slots.broken = closing < 0
        position = len(text) if closing < 0 else closing + len(tag["name"]) + 3
    slots.rest = "".join([*rest, text[position:]])
    return slots if slots.has_answer or slots.has_trace else None


def _read_fields(text: str, fields: list[re.Match[str]]) -> Slots | None:
    slots = Slots("field")
    for field_, end in zip(fields, [*(match.start() for match in fields[1:]), len(text)], strict=True):
        name, content = key_name(field_["name"]), text[field_.end() : end].strip()
        if name in collect_keys("answer_keys"):
            slots.answer, slots.has_answer = content or None, True
        elif name in collect_keys("trace_keys"):
            slots.has_trace = True
            slots.trace += [content] if content else []
    slots.broken = not slots.has_answer
    return slots if slots.has_answer or slots.has_trace else None


def find_boxes(text: str) -> list[tuple[int, int, str]]:
    """Return start, end and content of every ``\\boxed{...}``; a box that is never closed ends with the text."""
    boxes, position = [], 0
    while (start := text.find("\\boxed{", position)) >= 0:
        depth, at = 1, start + 7
        while at < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        boxes.append((start, at, text[start + 7 : at - 1] if not depth else BROKEN))
        position = at
    return boxes


_TEX_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox|mathbf)\{([^{}]*)\}")


def clean_box(content: str) -> str:
    """Return the content of a box without commands that set text.

    >>> clean_box("\\\\text{Hall B}")
    'Hall B'
    """
    return _TEX_TEXT.sub(r"\1", content).replace("\\,", " ").strip().strip("$ ")


@dataclass(frozen=True, slots=True)
class NamedLine:
    """A line or heading that names the answer or the trace, with the text on it."""

    number: int
    marker: str
    text: str
    is_trace: bool = False
    is_heading: bool = False


@lru_cache(maxsize=64)
def _line_patterns(
    answer_markers: tuple[str, ...], trace_markers: tuple[str, ...]
) -> tuple[re.Pattern[str], frozenset[str]]:
    own = [_as_pattern(marker) for marker in answer_markers], [_as_pattern(marker) for marker in trace_markers]
    answers = "|".join([*own[0], *sorted(map(re.escape, collect_texts("answer_markers")), key=len, reverse=True)])
    traces = "|".join([*own[1], *sorted(map(re.escape, collect_texts("trace_markers")), key=len, reverse=True)])
    lead = r"[\s>#]*(?:\(?\d{1,3}[.)]\s+|[-•]\s+)?(?P<open>[*_]{0,3})\s*"
    pattern = re.compile(
        rf"^{lead}(?:(?P<answer>{answers})|(?P<trace>{traces}))\s*(?P<inner>[*_]{{0,3}})\s*"
        r"(?:(?P<mark>[:：]|->|→|⇒|=>|=|[–—](?=\s))\s*(?P<text>.*)|(?P<bare>\s*))$",
        re.IGNORECASE,
    )
    return pattern, frozenset(answer_markers)


@lru_cache(maxsize=64)
def inline_markers(answer_markers: tuple[str, ...]) -> re.Pattern[str]:
    """Return the gap before a marker that stands behind a sentence on the same line."""
    markers = [*map(_as_pattern, answer_markers), *map(re.escape, collect_texts("answer_markers"))]
    return re.compile(
        rf"(?<=[.!?。！？।])[ \t]*(?=[*_]{{0,3}}(?:{'|'.join(markers)})\s*[*_]{{0,3}}[:：][ \t]*\S[^\n]*$)",
        re.IGNORECASE | re.MULTILINE,
    )


def _as_pattern(marker: str) -> str:
    """Return a marker as a pattern: ``/.../`` is one, any other text stands for itself."""
    if len(marker) > 2 and marker[0] == marker[-1] == "/":
        return marker[1:-1]
    return re.escape(marker.strip().rstrip(":：").strip())


def find_named_lines(
    lines: list[str], answer_markers: tuple[str, ...] = (), trace_markers: tuple[str, ...] = ()
) -> Iterator[NamedLine]:
    """Yield the lines and headings that name an answer or a trace."""
    pattern, _ = _line_patterns(answer_markers, trace_markers)
    for number, line in enumerate(lines):
        # A line that names something is short, or has its mark early.
        if (match := pattern.match(line[:4000])) is None:
            continue
        is_heading = match["mark"] is None
        if is_heading and not (match["open"] or line.lstrip().startswith("#")):
            continue
        text = (match["text"] or "").strip() + line[4000:]
        if match["open"] and not match["inner"]:
            text = (
                text.removeprefix(match["open"]) if text.startswith(match["open"]) else text.removesuffix(match["open"])
            )
        yield NamedLine(
            number,
            (match["answer"] or match["trace"]).strip(),
            text.strip(),
            is_trace=match["trace"] is not None,
            is_heading=is_heading,
        )
