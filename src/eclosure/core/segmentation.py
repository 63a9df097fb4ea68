"""A trace as people have it -> steps: numbered lines, prose, the log of an agent, or nothing but an answer.

Rules, no model: what a step is must not depend on who looks. Where a text is split only the split is ours; every step
is a piece of the text as it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from eclosure.core.response import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator


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


_NUMBERED = re.compile(r"^\s*(?:\(?\d{1,3}[.):]|[-*•]|(?:[Ss]tep|STEP) \d{1,3}[.:)])\s+(?=\S)")
_PART = re.compile(
    r"^\s*(?P<part>thought|reasoning|action input|action|observation|final answer|answer)\s*\d*\s*:\s*(?P<rest>.*)$",
    re.IGNORECASE,
)
_THOUGHTS = frozenset({"thought", "reasoning"})


def segment(text: str) -> Segmented:
    """The steps of a text, by what it looks like."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return Segmented(Shape.EMPTY, Trace(()))
    parts = [match["part"].lower() for line in lines if (match := _PART.match(line))]
    if "observation" in parts and _THOUGHTS & set(parts):
        return _agent(lines)
    numbered = sum(bool(_NUMBERED.match(line)) for line in lines)
    if numbered >= 2 and 2 * numbered >= len(lines):
        return Segmented(Shape.LINES, Trace.of(*_joined(lines)))
    return Segmented(Shape.PROSE, Trace.of(*(sentence for line in lines for sentence in sentences(line))))


def _joined(lines: list[str]) -> Iterator[str]:
    """A line without a number goes on with the step before it."""
    step = ""
    for line in lines:
        if (match := _NUMBERED.match(line)) is not None:
            if step:
                yield step
            step = line[match.end() :].strip()
        elif step:
            step = f"{step} {line.strip()}"
        else:
            yield line.strip()
    yield step  # there is a numbered line, or nobody would ask


def _agent(lines: list[str]) -> Segmented:
    steps: list[str] = []
    observations: list[str] = []
    part = ""
    for line in lines:
        match = _PART.match(line)
        part, rest = (match["part"].lower(), match["rest"]) if match else (part, line)
        if part in _THOUGHTS and rest.strip():
            steps.extend(sentences(rest))
        elif part == "observation" and rest.strip():
            if match or not observations:
                observations.append(rest.strip())
            else:
                observations[-1] += "\n" + rest.strip()
    return Segmented(Shape.AGENT, Trace.of(*steps), tuple(observations))


# What ends with a full stop and ends no sentence.
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof rev gen col capt lt sgt sen rep gov pres st mt ft jr sr no nos vol fig eq sec ch pp ed eds dir vs
    etc inc ltd co corp dept univ assn bros al approx ca cf e.g i.e a.m p.m u.s u.k u.n u.s.a b.c a.d ph.d m.d b.a m.a
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun
    """.split()  # noqa: SIM905 - a list literal would hide the words
)
# Of these, what may well end one.
_AT_THE_END = frozenset({"etc", "a.m", "p.m", "inc", "ltd"})
_END = re.compile(r"""(?P<mark>[.!?…]+)(?P<close>["'”’»)\]]*)(?P<gap>\s+)(?=(?P<open>["'“‘«(\[]*)(?P<next>\S))""")
_LAST_WORD = re.compile(r"[^\s(\[\"“‘«]+$")


def sentences(text: str) -> list[str]:
    """Prose cut behind its sentences.

    >>> sentences('Dr. Ruiz was born in St. Louis in 1.5 B.C. "Odd." She said so.')
    ['Dr. Ruiz was born in St. Louis in 1.5 B.C.', '"Odd."', 'She said so.']
    """
    text = text.strip()
    found, start = [], 0
    for match in _END.finditer(text):
        if _ends(text[start : match.start("mark")], match):
            found.append(text[start : match.end("close")].strip())
            start = match.end("gap")
    rest = text[start:].strip()
    return [*found, rest] if rest else found


def _ends(before: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends at this mark."""
    following = match["next"]
    if match["mark"] != ".":
        # An exclamation within a title ("Help! was their fifth album") goes on in small letters.
        return not following.islower()
    if following.islower() and not match["close"]:
        return False
    word = (_LAST_WORD.search(before) or [""])[0].rstrip(",;:")
    plain = word.lower()
    if plain in _ABBREVIATIONS:
        # "in 44 B.C. Caesar" goes on, "in 44 B.C. \"Odd.\"" does not: with a quotation something new begins.
        return bool(match["open"]) or (plain in _AT_THE_END and following.isupper())
    # An initial: "J. K. Rowling". One letter that is a word of its own ends a sentence: "so did I."
    return not (len(word) == 1 and word.isalpha() and word.isupper() and word != "I")
