"""A trace as people have it -> steps: numbered lines, prose, the log of an agent, or nothing but an answer.

Rules, no model: what a step is must not depend on who looks. Where a text is split only the split is ours; every step
is a piece of the text as it was, but for line breaks, which become blanks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.core.response import Trace
from eclose.core.sentences import sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Segmented", "Shape", "segment", "segment_list", "sentences"]


class Shape(StrEnum):
    """What a trace looked like."""

    LINES = "lines"
    """One step a line, numbered or as a list."""
    PROSE = "prose"
    AGENT = "agent"
    """Thoughts, actions and observations."""
    EMPTY = "empty"
    """No trace at all: whether it leads to the answer cannot be asked."""


@dataclass(frozen=True, slots=True)
class Segmented:
    """The steps of a trace, and the evidence that stood in it."""

    shape: Shape
    trace: Trace
    observations: tuple[str, ...] = ()
    """What an agent was told by its tools: evidence, not reasoning."""


# "1." "(2)" "a)" "-" "•" "Step 3:" "**Step 3** -"; a number needs its punctuation and a gap: "1926 was warm", "3.5".
_MARKER = re.compile(
    r"^\s*(?:\(?(?P<number>\d{1,3})[.):]|\(?[A-Za-z]\)|[-*•–]"
    r"|[#>*_\s]*(?:[Ss]tep|STEP)\s+(?P<step>\d{1,3})[*_]*\s*(?:[.:)]|[-–—](?=\s))[*_]*)\s+(?=\S)"
)
_PART = re.compile(
    r"^[\s>#*_]*(?P<part>question|thought|reasoning|action input|action|observation|final answer|answer)\s*\d*\s*[*_]*"
    r"\s*:[*_]*\s*(?P<rest>.*)$",
    re.IGNORECASE,
)
_THOUGHTS = frozenset({"thought", "reasoning"})
_LINE_BREAK = re.compile(r"\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_UNFINISHED = re.compile(r"[^\W_][,;]?$|[,;–—-]$")


def segment(text: str) -> Segmented:
    """The steps of a text, by what it looks like.

    >>> segment("1. Ada built it.\\n2. She was born in Lund.").trace.texts
    ('Ada built it.', 'She was born in Lund.')
    >>> segment("Ada built it. She was born in Lund.").trace.texts
    ('Ada built it.', 'She was born in Lund.')
    """
    lines = text.splitlines()
    filled = [line for line in lines if line.strip()]
    if not filled:
        return Segmented(Shape.EMPTY, Trace(()))
    if _is_log(filled):
        return _agent(filled)
    if _is_list(filled):
        return Segmented(Shape.LINES, Trace.of(*_items(lines)))
    return Segmented(Shape.PROSE, Trace.of(*_prose(lines)))


def segment_list(texts: Sequence[str]) -> Segmented:
    """Steps that come one by one are steps as they are, without their numbers; unless they are an agent's log."""
    steps = [_LINE_BREAK.sub(" ", text.strip()) for text in texts if text.strip()]
    if not steps:
        return Segmented(Shape.EMPTY, Trace(()))
    if _is_log(steps):
        return segment("\n".join(texts))
    if all(map(_MARKER.match, steps)):
        steps = [_MARKER.sub("", step) for step in steps]
    return Segmented(Shape.LINES, Trace.of(*steps))


def _is_log(lines: Sequence[str]) -> bool:
    """Observations make a log, where somebody thought or acted to obtain them."""
    parts = {match["part"].lower() for line in lines if (match := _PART.match(line))}
    return "observation" in parts and bool(parts & (_THOUGHTS | {"action"}))


def _is_list(lines: Sequence[str]) -> bool:
    """Numbers that count from one, or two items at least that make up half of the lines."""
    markers = [match for line in lines if (match := _MARKER.match(line))]
    numbers = [int(match["number"] or match["step"] or 0) for match in markers]
    if numbers and numbers == list(range(1, len(numbers) + 1)):
        return len(markers) >= 2 or bool(_MARKER.match(lines[0]))
    return len(markers) >= 2 and 2 * len(markers) >= len(lines)


def _items(lines: Sequence[str]) -> Iterator[str]:
    """The items of a list; a line without a number goes on with the item before it, unless a paragraph begins."""
    item, apart = "", False
    for line in lines:
        if not line.strip():
            apart = True
            continue
        match = _MARKER.match(line)
        if match is None and item and not (apart and not line[0].isspace()):
            item = f"{item} {line.strip()}"
        else:
            yield from [item] if item else []
            item = "" if match is None else line[match.end() :].strip()
            yield from sentences(line) if match is None else ()
        apart = False
    yield from [item] if item else []


def _prose(lines: Sequence[str]) -> Iterator[str]:
    """Sentences, line by line. A line that breaks off in mid-sentence goes on in the next."""
    paragraph: list[str] = []
    for line in map(str.strip, lines):
        if paragraph and not (_UNFINISHED.search(paragraph[-1]) and line[:1].islower()):
            yield from sentences(" ".join(paragraph))
            paragraph = []
        paragraph.append(line)
    yield from sentences(" ".join(paragraph))


def _agent(lines: Sequence[str]) -> Segmented:
    """Thoughts and observations by their labels. What stands before the first label was thought: prompts end in it."""
    thoughts: list[str] = []
    observations: list[str] = []
    part = "thought"
    for line in lines:
        match = _PART.match(line)
        part, rest = (match["part"].lower(), match["rest"]) if match else (part, line)
        into = thoughts if part in _THOUGHTS else observations if part == "observation" else []
        if match or not into:
            into.append(rest.strip())
        else:
            into[-1] = f"{into[-1]}\n{rest.strip()}"
    steps = (sentence for thought in thoughts for sentence in _prose(thought.splitlines()))
    return Segmented(Shape.AGENT, Trace.of(*steps), tuple(told.strip() for told in observations if told.strip()))
