"""What a model said: a trace of steps and a submitted answer, read out of its raw completion.

Knows the layout of a completion, nothing of prompts, models or judgements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
# A list number needs its punctuation and a gap after it: "1926 was warm" and "3.5 million" keep their numbers.
_STEP_NUMBER = re.compile(r"^\(?\d{1,3}[.):](?=\s|$)\s*")
# Chat models like to number or embolden the marker; the decoration is layout, not answer.
_ANSWER_LINE = re.compile(
    r"^[\s>#]*(?:\(?\d{1,3}[.):]\s+)?(?P<emphasis>[*_]{0,3})final answer\s*(?P<inner>[*_]{0,3})\s*:\s*(?P<rest>.*)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of reasoning, without its number."""

    text: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The ordered steps of a response; the submitted answer is not one of them."""

    steps: tuple[Step, ...]

    @classmethod
    def of(cls, *texts: str) -> Trace:
        """A trace from the texts of its steps."""
        return cls(tuple(Step(text) for text in texts))

    @classmethod
    def read(cls, text: str) -> Trace:
        """Every non-empty line is a step; a leading list number is removed."""
        lines = (_STEP_NUMBER.sub("", line.strip()) for line in _LINE_BREAK.split(text))
        return cls.of(*(line for line in lines if line))

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of every step."""
        return tuple(step.text for step in self.steps)

    @property
    def numbered(self) -> str:
        """One numbered line per step, as a model is asked to write it."""
        return "".join(f"{number}. {step.text}\n" for number, step in enumerate(self.steps, start=1))

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.steps)


class Incomplete(StrEnum):
    """Why a completion yields no submitted answer; the first that applies."""

    EMPTY = "empty"
    """The model wrote nothing."""
    EMPTY_ANSWER = "empty_answer"
    """There is an answer line, and nothing on it."""
    CUT_OFF = "cut_off"
    """It ran into the limit of new tokens before its answer line was finished."""
    NO_ANSWER_LINE = "no_answer_line"


@dataclass(frozen=True, slots=True)
class Completion:
    """A raw completion taken apart."""

    text: str
    trace: Trace
    answer: str | None
    """None for an incomplete generation."""
    answer_lines: int
    """How many answer lines there are: the first one counts, more than one is worth a look."""
    cut_off: bool = False
    """Whether it ran into the limit of new tokens."""

    @property
    def incomplete(self) -> Incomplete | None:
        """Why there is no answer; None when there is one."""
        return _why_incomplete(self.text, self.answer, self.answer_lines, self.cut_off)


def _why_incomplete(text: str | None, answer: str | None, answer_lines: int, cut_off: bool) -> Incomplete | None:
    if answer is not None:
        return None
    if text is not None and not text.strip():
        return Incomplete.EMPTY
    if answer_lines:
        return Incomplete.EMPTY_ANSWER
    return Incomplete.CUT_OFF if cut_off else Incomplete.NO_ANSWER_LINE


def parse_completion(text: str, *, cut_off: bool = False) -> Completion:
    """Split a completion at its first ``Final answer:`` line.

    What precedes the line is the trace, the rest of that line is the submitted answer. Text after the line
    belongs to neither; it stays in ``Completion.text``. The last line of a completion that was cut off is not
    finished, so it is neither a step nor an answer: "New Yo" might match one.

    >>> parsed = parse_completion("1. Jewison directed it.\\n2. He was born in 1926.\\nFinal answer: 1926")
    >>> parsed.trace.texts, parsed.answer
    (('Jewison directed it.', 'He was born in 1926.'), '1926')
    """
    lines = _LINE_BREAK.split(text)
    if cut_off:
        lines.pop()
    found = [(number, match) for number, line in enumerate(lines) if (match := _ANSWER_LINE.match(line))]
    if not found:
        return Completion(text, Trace.read("\n".join(lines)), answer=None, answer_lines=0, cut_off=cut_off)
    number, first = found[0]
    return Completion(
        text,
        Trace.read("\n".join(lines[:number])),
        answer=_submitted(first) or None,
        answer_lines=len(found),
        cut_off=cut_off,
    )


def _submitted(answer_line: re.Match[str]) -> str:
    """The answer on its line, freed of the emphasis that was opened around the marker."""
    opened, closed, rest = answer_line["emphasis"], answer_line["inner"], answer_line["rest"].strip()
    if opened and not closed:
        # "**Final answer:** Paris" closes behind the colon, "**Final answer: Paris**" behind the answer.
        rest = rest[len(opened) :] if rest.startswith(opened) else rest.removesuffix(opened)
    return rest.strip()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a response comes from."""

    model: str
    method: str | None = None
    """How the model was adapted, such as ``SFT``; None for a model as it is."""
    seed: int | None = None
    """The training seed, where there is one."""


@dataclass(frozen=True, slots=True)
class Response:
    """A trace and a submitted answer to one instance."""

    id: str
    instance_id: str
    trace: Trace
    answer: str | None
    """None for an incomplete generation."""
    source: Source | None = None
    completion: str | None = None
    """The raw text the model returned; None where only its parts are known."""
    answer_lines: int = 1
    cut_off: bool = False
    """Whether the completion ran into the limit of new tokens."""

    @property
    def incomplete(self) -> Incomplete | None:
        """Why there is no answer; None when there is one."""
        return _why_incomplete(self.completion, self.answer, self.answer_lines, self.cut_off)

    @classmethod
    def from_completion(
        cls,
        id: str,  # noqa: A002
        instance_id: str,
        text: str,
        source: Source | None = None,
        *,
        cut_off: bool = False,
    ) -> Response:
        """Read a raw completion."""
        parsed = parse_completion(text, cut_off=cut_off)
        return cls(
            id,
            instance_id,
            parsed.trace,
            parsed.answer,
            source,
            completion=text,
            answer_lines=parsed.answer_lines,
            cut_off=cut_off,
        )
