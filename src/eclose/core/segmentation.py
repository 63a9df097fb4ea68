"""Segmentation of a trace into steps: numbered lines, prose, or the log of an agent.

The rules are deterministic and need no model. Every step is a piece of the original text, in which only line breaks
become blanks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.core.response import Trace
from eclose.core.sentences import split_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class TraceShape(StrEnum):
    """The layouts of a trace."""

    LINES = "lines"
    """One step per line, numbered or as a list."""
    PROSE = "prose"
    AGENT = "agent"
    """Thoughts, actions and observations."""
    EMPTY = "empty"
    """No trace: closure cannot be judged."""


@dataclass(frozen=True, slots=True)
class SegmentedTrace:
    """The steps of a trace, and the evidence inside it."""

    shape: TraceShape
    trace: Trace
    observations: tuple[str, ...] = ()
    """Outputs of an agent's tools, which are evidence rather than reasoning."""


# "1." "(2)" "a)" "-" "•" "Step 3:" "**Step 3** -"; a number needs its punctuation and a gap: "1926 was warm", "3.5".
_MARKER = re.compile(
    r"^\s*(?:\(?(?P<number>\d{1,3})[.):]|\(?[A-Za-z]\)|[-*•–]"
    r"|[#>*_\s]*(?:[Ss]tep|STEP)\s+(?P<step>\d{1,3})[*_]*\s*(?:[.:)]|[-–—](?=\s))[*_]*)\s+(?=\S)"
)
_PART = re.compile(
    r"^[\s>#*_]*(?P<part>question|thought|reasoning|action input|action|observation|final answer|answer)\s*\d*\s*[*_]*"
    r"\s*:[*_]*\s*(?P<text>.*)$",
    re.IGNORECASE,
)
_THOUGHTS = frozenset({"thought", "reasoning"})
_LINE_BREAK = re.compile(r"\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_UNFINISHED = re.compile(r"[^\W_][,;]?$|[,;–—-]$")


def segment_text(text: str) -> SegmentedTrace:
    """Split a text into steps, by its layout.

    >>> segment_text("1. Ada built it.\\n2. She was born in Lund.").trace.texts
    ('Ada built it.', 'She was born in Lund.')
    >>> segment_text("Ada built it. She was born in Lund.").trace.texts
    ('Ada built it.', 'She was born in Lund.')
    """
    lines = text.splitlines()
    filled = [line for line in lines if line.strip()]
    if not filled:
        return SegmentedTrace(TraceShape.EMPTY, Trace(()))
    if _is_log(filled):
        return _segment_log(filled)
    if _is_list(filled):
        return SegmentedTrace(TraceShape.LINES, Trace.of(*_split_items(lines)))
    return SegmentedTrace(TraceShape.PROSE, Trace.of(*_split_prose(lines)))


def segment_texts(texts: Sequence[str]) -> SegmentedTrace:
    """Take every text of a list as one step, without its number; join and segment the log of an agent."""
    steps = [_LINE_BREAK.sub(" ", text.strip()) for text in texts if text.strip()]
    if not steps:
        return SegmentedTrace(TraceShape.EMPTY, Trace(()))
    if _is_log(steps):
        return segment_text("\n".join(texts))
    # Markers are dropped only where all steps have one: a single "1)" may be part of the sentence.
    if all(map(_MARKER.match, steps)):
        steps = [_MARKER.sub("", step) for step in steps]
    return SegmentedTrace(TraceShape.LINES, Trace.of(*steps))


def _is_log(lines: Sequence[str]) -> bool:
    """Return whether the lines hold observations together with thoughts or actions."""
    parts = {match["part"].lower() for line in lines if (match := _PART.match(line))}
    return "observation" in parts and bool(parts & (_THOUGHTS | {"action"}))


def _is_list(lines: Sequence[str]) -> bool:
    """Return whether the markers count up from one, or at least two markers make up half of the lines."""
    markers = [match for line in lines if (match := _MARKER.match(line))]
    numbers = [int(match["number"] or match["step"] or 0) for match in markers]
    if numbers and numbers == list(range(1, len(numbers) + 1)):
        return len(markers) >= 2 or bool(_MARKER.match(lines[0]))
    return len(markers) >= 2 and 2 * len(markers) >= len(lines)


def _split_items(lines: Sequence[str]) -> Iterator[str]:
    """Yield the items of a list; an unmarked line continues the item before it, unless it starts a paragraph."""
    item, after_blank = "", False
    for line in lines:
        if not line.strip():
            after_blank = True
            continue
        match = _MARKER.match(line)
        # An indented line continues its item even after a blank line, as in Markdown.
        if match is None and item and not (after_blank and not line[0].isspace()):
            item = f"{item} {line.strip()}"
        else:
            yield from [item] if item else []
            item = "" if match is None else line[match.end() :].strip()
            yield from split_sentences(line) if match is None else ()
        after_blank = False
    yield from [item] if item else []


def _split_prose(lines: Sequence[str]) -> Iterator[str]:
    """Yield the sentences of each line; a line that ends in mid-sentence continues on the next one."""
    paragraph: list[str] = []
    for line in map(str.strip, lines):
        if paragraph and not (_UNFINISHED.search(paragraph[-1]) and line[:1].islower()):
            yield from split_sentences(" ".join(paragraph))
            paragraph = []
        paragraph.append(line)
    yield from split_sentences(" ".join(paragraph))


def _segment_log(lines: Sequence[str]) -> SegmentedTrace:
    """Separate the thoughts and observations of a log by their labels."""
    thoughts: list[str] = []
    observations: list[str] = []
    # Agent prompts end in "Thought:", so text before the first label is a thought.
    part = "thought"
    for line in lines:
        match = _PART.match(line)
        part, text = (match["part"].lower(), match["text"]) if match else (part, line)
        # Questions, actions and answers go into a list that is dropped.
        target = thoughts if part in _THOUGHTS else observations if part == "observation" else []
        if match or not target:
            target.append(text.strip())
        else:
            target[-1] = f"{target[-1]}\n{text.strip()}"
    steps = (sentence for thought in thoughts for sentence in _split_prose(thought.splitlines()))
    texts = tuple(text.strip() for text in observations if text.strip())
    return SegmentedTrace(TraceShape.AGENT, Trace.of(*steps), texts)
