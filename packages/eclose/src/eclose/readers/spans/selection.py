"""Selection of the spans that are cases, and JSON pointers to their parts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError

if TYPE_CHECKING:
    from eclose.readers.spans.span import Span

ROOT = "root"


@dataclass(frozen=True, slots=True)
class CaseSelection:
    """Rule for the spans that are cases, and pointers to question, documents and answer in their attributes."""

    case: str = ROOT
    """``root``, ``span NAME``, or ``attribute=value``."""
    question: str | None = None
    """JSON pointer into the attributes of the span; None to find the question by the dialect's conventions."""
    documents: str | None = None
    answer: str | None = None


def check_selection(selection: CaseSelection) -> None:
    """Raise SettingError for a malformed rule or pointer."""
    rule = selection.case
    if rule != ROOT and not rule.removeprefix("span ").strip():
        raise SettingError("case: is empty. Write root, span NAME, or attribute=value.")
    if rule != ROOT and not rule.startswith("span ") and not rule.partition("=")[1]:
        raise SettingError(f"case = {rule!r}: should be root, span NAME, or attribute=value.")
    for name in ("question", "documents", "answer"):
        pointer = getattr(selection, name)
        if pointer is not None and not pointer.startswith("/"):
            raise SettingError(
                f"{name} = {pointer!r}: a JSON pointer starts with a slash, such as /input.value/question."
            )


def matches_selection(span: Span, case: str) -> bool:
    """Return whether a span has the name or the attribute of the rule; ``root`` matches no span."""
    if case.startswith("span "):
        return span.name == case.removeprefix("span ").strip()
    name, separator, value = case.partition("=")
    if not separator or name.strip() not in span.attributes:
        return False
    stored = span.attributes[name.strip()]
    text = stored if isinstance(stored, str) else json.dumps(stored, ensure_ascii=False)
    return text == value.strip()


def resolve_pointer(value: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901), or None; texts that hold JSON are parsed on the way.

    >>> resolve_pointer({"input.value": '{"question": "Who?"}'}, "/input.value/question")
    'Who?'
    """
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, str):
            value = parse_json_text(value)
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def parse_json_text(value: Any) -> Any:
    """Return the JSON value of a text that holds an object or a list; any other value unchanged."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    # A text may start with a bracket and still be prose; a number may be too long to read.
    except (ValueError, RecursionError):
        return value
