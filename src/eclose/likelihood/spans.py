"""A response as tokens that know their part: number, step, delimiter, answer, end of turn.

Plain values; nothing here needs a tokenizer or a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """What a token belongs to."""

    PROMPT = "prompt"
    NUMBER = "number"
    STEP = "step"
    DELIMITER = "delimiter"
    ANSWER = "answer"
    END = "end"


class Tokens(StrEnum):
    """Which tokens of a response count when a whole response is scored."""

    FULL = "full"
    """All of them: the model learns the layout, and to stop."""
    CONTENT = "content"
    """Steps and answer alone."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of text with its part; steps are counted from zero."""

    part: Part
    text: str
    step: int | None = None


@dataclass(frozen=True)
class Path:
    """A prompt and a response, or the beginning of one, as tokens."""

    ids: tuple[int, ...]
    parts: tuple[tuple[Part, int | None], ...]
    """The part of every token, and the step it belongs to."""

    def __post_init__(self) -> None:
        """Tokens and parts go together."""
        if len(self.ids) != len(self.parts):
            raise ValueError(f"{len(self.ids)} tokens, but parts for {len(self.parts)}")

    def step(self, number: int) -> tuple[int, ...]:
        """The places of one step's tokens."""
        return self._where(lambda part, step: part is Part.STEP and step == number)

    def trace(self) -> tuple[int, ...]:
        """The places of all steps' tokens, without their numbers."""
        return self._where(lambda part, _: part is Part.STEP)

    def answer(self) -> tuple[int, ...]:
        """The places of the answer's tokens, without label and end of turn."""
        return self._where(lambda part, _: part is Part.ANSWER)

    def response(self, tokens: Tokens) -> tuple[int, ...]:
        """The places of the response's tokens."""
        if tokens is Tokens.CONTENT:
            return self._where(lambda part, _: part in (Part.STEP, Part.ANSWER))
        return self._where(lambda part, _: part is not Part.PROMPT)

    def _where(self, wanted: object) -> tuple[int, ...]:
        return tuple(place for place, part in enumerate(self.parts) if wanted(*part))  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Score:
    """A mean log-likelihood to be had: which tokens of which path."""

    name: str
    path: Path
    places: tuple[int, ...]

    def __post_init__(self) -> None:
        """A score of nothing is no score, and the first token of a text has nothing before it."""
        if not self.places or self.places[0] == 0:
            raise ValueError(f"{self.name}: there is no token to score, or one that nothing precedes")
