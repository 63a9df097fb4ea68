"""Token paths and the spans of them that are scored.

Every token of a path carries the part of the response it belongs to. Plain values: no tokenizer and no model is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TokenPart(StrEnum):
    """Part of a prompt and response that a token belongs to."""

    PROMPT = "prompt"
    NUMBER = "number"
    STEP = "step"
    DELIMITER = "delimiter"
    ANSWER = "answer"
    END = "end"


class ScoredTokens(StrEnum):
    """Tokens that count when a complete response is scored."""

    FULL = "full"
    """All tokens, so that the model also learns the layout and when to stop."""
    CONTENT = "content"
    """Tokens of the steps and the answer only."""


@dataclass(frozen=True, slots=True)
class ResponseSegment:
    """A piece of response text with its part; steps are numbered from zero."""

    part: TokenPart
    text: str
    step: int | None = None


@dataclass(frozen=True)
class TokenPath:
    """A prompt followed by a response, or by the beginning of one, as tokens.

    The methods return token positions, counted from zero at the first token of the prompt.
    """

    ids: tuple[int, ...]
    parts: tuple[tuple[TokenPart, int | None], ...]
    """The part of every token and, for ``STEP``, the number of the step."""

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.parts):
            raise ValueError(f"{len(self.ids)} tokens, but parts for {len(self.parts)}")

    def step_positions(self, number: int) -> tuple[int, ...]:
        """Return the positions of a step's tokens."""
        return tuple(n for n, (part, step) in enumerate(self.parts) if part is TokenPart.STEP and step == number)

    def trace_positions(self) -> tuple[int, ...]:
        """Return the positions of the tokens of all steps, without the step numbers."""
        return self._positions(TokenPart.STEP)

    def answer_positions(self) -> tuple[int, ...]:
        """Return the positions of the answer's tokens, without answer marker and end of turn."""
        return self._positions(TokenPart.ANSWER)

    def response_positions(self, counted: ScoredTokens) -> tuple[int, ...]:
        """Return the positions of the response's tokens that count."""
        # The two readings of S^rsp in appendix C.3 (decision 0036).
        if counted is ScoredTokens.CONTENT:
            return self._positions(TokenPart.STEP, TokenPart.ANSWER)
        return tuple(n for n, (part, _) in enumerate(self.parts) if part is not TokenPart.PROMPT)

    def _positions(self, *parts: TokenPart) -> tuple[int, ...]:
        return tuple(n for n, (part, _) in enumerate(self.parts) if part in parts)


@dataclass(frozen=True, slots=True)
class SpanScore:
    """A score to compute: the mean log-likelihood of some tokens of a path."""

    name: str
    path: TokenPath
    positions: tuple[int, ...]
    """Positions of the scored tokens in ascending order."""

    def __post_init__(self) -> None:
        """Check that there are tokens, each with a token before it that predicts it."""
        if not self.positions or self.positions[0] == 0:
            raise ValueError(f"{self.name}: no token to score, or the first token of the path, which nothing predicts")

    @property
    def prefix(self) -> tuple[int, ...]:
        """Tokens of the path up to the last scored one."""
        # In a causal model later tokens cannot change the score, so they are not computed.
        return self.path.ids[: self.positions[-1] + 1]
