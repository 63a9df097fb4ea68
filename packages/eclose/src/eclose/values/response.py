"""Responses: a trace of steps and a submitted answer, parsed from the raw completion of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

UNTUNED_METHOD = "backbone"
"""Name of the method of a model without an adapter, where every model has one: in plans, files and groups."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
# A list number needs its punctuation and a gap after it: "1926 was warm" and "3.5 million" keep their numbers.
_STEP_NUMBER = re.compile(r"^\(?\d{1,3}[.):](?=\s|$)\s*")
# Chat models often number or embolden the marker; the decoration is not part of the answer.
_ANSWER_LINE = re.compile(
    r"^[\s>#]*(?:\(?\d{1,3}[.):]\s+)?(?P<emphasis>[*_]{0,3})final answer\s*(?P<inner>[*_]{0,3})\s*:\s*(?P<answer>.*)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of reasoning, without its number.

    Examples:
        >>> Step("Jewison directed Moonstruck.").text
        'Jewison directed Moonstruck.'
    """

    text: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The ordered steps of a response, without the submitted answer.

    Examples:
        >>> trace = Trace.of("Jewison directed it.", "He was born in 1926.")
        >>> len(trace)
        2
        >>> print(trace.numbered, end="")
        1. Jewison directed it.
        2. He was born in 1926.
    """

    steps: tuple[Step, ...]

    @classmethod
    def of(cls, *texts: str) -> Trace:
        """Build a trace from the texts of its steps."""
        return cls(tuple(Step(text) for text in texts))

    @classmethod
    def from_lines(cls, text: str) -> Trace:
        """Build a trace from the non-empty lines of a text, without their list numbers."""
        lines = (_STEP_NUMBER.sub("", line.strip()) for line in _LINE_BREAK.split(text))
        return cls.of(*(line for line in lines if line))

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the steps."""
        return tuple(step.text for step in self.steps)

    @property
    def numbered(self) -> str:
        """One numbered line per step, as prompts request it."""
        return "".join(f"{number}. {step.text}\n" for number, step in enumerate(self.steps, start=1))

    def __len__(self) -> int:
        return len(self.steps)


class MissingAnswerReason(StrEnum):
    """The first reason that applies for which a completion has no submitted answer."""

    EMPTY = "empty"
    """The completion is blank."""
    EMPTY_ANSWER = "empty_answer"
    """The answer line is blank after its marker."""
    CUT_OFF = "cut_off"
    """The limit of new tokens was reached before the answer line was complete."""
    NO_ANSWER_LINE = "no_answer_line"


@dataclass(frozen=True, slots=True)
class ParsedCompletion:
    """A parsed completion."""

    text: str
    trace: Trace
    answer: str | None
    """None for an incomplete generation."""
    answer_lines: int
    """Number of answer lines; the first is the submitted one."""
    cut_off: bool = False
    """Whether the limit of new tokens was reached."""

    @property
    def incomplete(self) -> MissingAnswerReason | None:
        """Why the answer is missing; None where it is present."""
        return _why_incomplete(self.text, self.answer, self.answer_lines, self.cut_off)


def _why_incomplete(
    text: str | None, answer: str | None, answer_lines: int, cut_off: bool
) -> MissingAnswerReason | None:
    if answer is not None:
        return None
    if text is not None and not text.strip():
        return MissingAnswerReason.EMPTY
    if answer_lines:
        return MissingAnswerReason.EMPTY_ANSWER
    return MissingAnswerReason.CUT_OFF if cut_off else MissingAnswerReason.NO_ANSWER_LINE


def parse_completion(text: str, *, cut_off: bool = False) -> ParsedCompletion:
    """Split a completion at its first ``Final answer:`` line.

    The lines before it are the trace, and the text after its marker is the submitted answer. Later text belongs to
    neither and stays in ``Completion.text``.

    Args:
        text: The raw completion.
        cut_off: Whether the completion reached the limit of new tokens. Its last line is then unfinished and dropped.

    Returns:
        The trace and the answer, which is None where there is no answer line or nothing on it.

    Examples:
        >>> parsed = parse_completion("1. Jewison directed it.\\n2. He was born in 1926.\\nFinal answer: 1926")
        >>> parsed.trace.texts, parsed.answer
        (('Jewison directed it.', 'He was born in 1926.'), '1926')
    """
    lines = _LINE_BREAK.split(text)
    if cut_off:
        # A truncated "Final answer: New Yo" would be a wrong answer, or match a right one by chance.
        lines.pop()
    matches = [(number, match) for number, line in enumerate(lines) if (match := _ANSWER_LINE.match(line))]
    if not matches:
        return ParsedCompletion(text, Trace.from_lines("\n".join(lines)), answer=None, answer_lines=0, cut_off=cut_off)
    number, first = matches[0]
    return ParsedCompletion(
        text,
        Trace.from_lines("\n".join(lines[:number])),
        answer=_extract_answer(first) or None,
        answer_lines=len(matches),
        cut_off=cut_off,
    )


def _extract_answer(answer_line: re.Match[str]) -> str:
    """Return the answer on its line, without emphasis that was opened before the marker."""
    opening, closing, answer = answer_line["emphasis"], answer_line["inner"], answer_line["answer"].strip()
    if opening and not closing:
        # "**Final answer:** Paris" closes after the colon, "**Final answer: Paris**" after the answer.
        answer = answer[len(opening) :] if answer.startswith(opening) else answer.removesuffix(opening)
    return answer.strip()


@dataclass(frozen=True, slots=True)
class ResponseSource:
    """The origin of a response: a model, how it was adapted, and the seed of that training."""

    model: str
    method: str | None = None
    """Adaptation of the model, such as ``SFT``; None for the unadapted model."""
    seed: int | None = None
    """Training seed of an adapted model."""


@dataclass(frozen=True, slots=True)
class SpanRef:
    """The span of a trace store that a response was read from, so that its verdict can be sent back there."""

    trace_id: str
    """Id of the whole trace, in the store's own notation."""
    span_id: str | None = None
    """Id of the span that holds the question and the answer; None where the store knows traces alone."""
    store: str | None = None
    """Dialect it was read in, such as ``otlp`` or ``mlflow``."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A piece of a response that is no step, with the reason."""

    role: str
    """What it does instead, such as ``plan``, ``question`` or ``layout``."""
    text: str


@dataclass(frozen=True, slots=True)
class ResponseReading:
    """How a response was read that is not in the protocol's layout."""

    reader: int
    """Version of the reader."""
    status: str
    """``trace``, ``no_trace``, ``abstained``, ``incomplete`` or ``not_a_response``."""
    rule: str
    """The rule that decided where the answer is."""
    origin: str | None = None
    """Where the trace comes from: ``marked``, ``structured``, ``agent``, ``prose`` or ``hidden``; None without one."""
    left_out: tuple[LeftOut, ...] = ()

    @property
    def located(self) -> bool:
        """Whether the answer is told apart from the rest of the reply."""
        return not self.rule.endswith("not located")


@dataclass(frozen=True, slots=True)
class Response:
    """A trace and a submitted answer to one instance.

    Examples:
        >>> response = Response.from_completion("r1", "q1", "Jewison directed it.\\nFinal answer: 1926")
        >>> response.answer, response.incomplete
        ('1926', None)
    """

    id: str
    instance_id: str
    trace: Trace
    answer: str | None
    """None for an incomplete generation."""
    source: ResponseSource | None = None
    completion: str | None = None
    """Raw text of the model; None where only trace and answer are known."""
    answer_lines: int = 1
    """Number of answer lines in the completion."""
    cut_off: bool = False
    """Whether the completion reached the limit of new tokens."""
    span: SpanRef | None = None
    """The span it was read from; apart from ``source``, by which responses are grouped."""
    reading: ResponseReading | None = None
    """How it was read; None in the protocol's layout."""
    time: str | None = None
    """When it was given, as ISO 8601 in UTC: ``2026-11-20T10:00:00Z``."""
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The user's own columns of the row it was read from; no model is shown them."""

    @property
    def incomplete(self) -> MissingAnswerReason | None:
        """Why the answer is missing; None where it is present."""
        return _why_incomplete(self.completion, self.answer, self.answer_lines, self.cut_off)

    @property
    def in_protocol_layout(self) -> bool:
        """Whether the completion has the answer line of the response prompt, and thus a place for steps before it."""
        return self.completion is not None and parse_completion(self.completion).answer_lines > 0

    @classmethod
    def from_completion(
        cls,
        id: str,  # noqa: A002
        instance_id: str,
        text: str,
        source: ResponseSource | None = None,
        *,
        cut_off: bool = False,
    ) -> Response:
        """Build a response from a raw completion.

        Args:
            id: Id of the response.
            instance_id: Id of the instance that it answers.
            text: The raw completion, parsed by ``parse_completion``.
            source: Origin of the response.
            cut_off: Whether the completion reached the limit of new tokens.

        Returns:
            The response; its answer is None where the completion is incomplete.
        """
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
