"""Render the words of a family as tokens: a prompt by the chat template, then a response whose tokens know their part.

What is trained is what is served: the prompt is tokenised exactly as generation tokenises it, alone, and the response
as it reads behind that prompt. Parts come from the offsets of the whole response, so a tokenizer that puts a prefix
before every text of its own is no obstacle. Segments end with their own line break and begin with their own blank,
which is where tokenizers part; a token that lies across goes to the segment in which it ends, and that is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError
from eclose.likelihood.spans import Part, Path, Segment
from eclose.models.weights import ReplyTurn, conversation_text, reply_turn
from eclose.protocol.response_prompt import ANSWER_MARKER, ResponsePrompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.core.instance import Passage
    from eclose.core.response import Trace

MISMATCH_LIMIT = 0.05
"""The share of responses with a token across two segments beyond which a tokenizer is refused."""
_GRACE = 100
_REMEMBERED = 64
"""Prompts and responses that are kept as tokens: a family uses its few many times, the next family others."""

TOO_LONG = "longer than max_length"
"""The reason for which a family with a path beyond the limit is set aside."""


class TooLongError(UserError):
    """A path has more tokens than the limit allows."""


def response_segments(trace: Trace, answer: str | None, end: str) -> list[Segment]:
    """Cut a response into its parts; without an answer it stops after the trace."""
    segments: list[Segment] = []
    for number, text in enumerate(trace.texts):
        segments += [Segment(Part.NUMBER, f"{number + 1}."), Segment(Part.STEP, f" {text}\n", number)]
    if answer is not None:
        segments += [
            Segment(Part.DELIMITER, ANSWER_MARKER),
            Segment(Part.ANSWER, f" {answer}"),
            Segment(Part.END, end),
        ]
    return segments


@dataclass(frozen=True, slots=True)
class _Response:
    """The tokens of a response with their parts."""

    ids: tuple[int, ...]
    parts: tuple[tuple[Part, int | None], ...]
    across: bool
    """Whether a token lies across two segments, or across prompt and response."""


@dataclass
class Renderer:
    """Turns prompts and responses into paths for one tokenizer."""

    tokenizer: Any
    prompt: ResponsePrompt = field(default_factory=ResponsePrompt)
    max_length: int = 8_192
    """Longest path in tokens, input and output. Nothing is ever cut to fit."""
    rendered: int = 0
    mismatched: int = 0
    _prompts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _responses: dict[str, _Response] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read off the template how a turn opens and ends; refuse a tokenizer without offsets."""
        self._turn: ReplyTurn = reply_turn(self.tokenizer)
        self._before: tuple[int, ...] = tuple(self._encode(self._turn.before)["input_ids"])
        if not self.tokenizer.is_fast:
            raise UserError(
                f"{self.tokenizer.name_or_path}: the tokenizer is a slow one and tells no offsets. Use a fast one: a "
                "tokenizer.json beside the model."
            )

    def prompt_text(self, question: str, evidence: Sequence[Passage]) -> str:
        """Render the conversation up to the reply, as generation sends it."""
        return conversation_text(self.tokenizer, self.prompt.messages(question, evidence))

    def path(self, question: str, evidence: Sequence[Passage], trace: Trace, answer: str | None = None) -> Path:
        """Render prompt and response as tokens; prompt and trace where no answer is passed."""
        before = self._prompt_ids(self.prompt_text(question, evidence))
        response = self._response(response_segments(trace, answer, self._turn.end))
        count = len(before) + len(response.ids)
        if count > self.max_length:
            raise TooLongError(f"{count} tokens are more than {self.max_length}; nothing is cut to fit.")
        return Path((*before, *response.ids), (*(((Part.PROMPT, None),) * len(before)), *response.parts))

    def _encode(self, text: str, *, offsets: bool = False) -> Any:
        return self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=offsets)

    def _prompt_ids(self, text: str) -> tuple[int, ...]:
        if text not in self._prompts:
            if len(self._prompts) >= _REMEMBERED:
                self._prompts.clear()
            self._prompts[text] = tuple(self._encode(text)["input_ids"])
        return self._prompts[text]

    def _response(self, segments: list[Segment]) -> _Response:
        text = "".join(segment.text for segment in segments)
        if text not in self._responses:
            if len(self._responses) >= _REMEMBERED:
                self._responses.clear()
            self._responses[text] = self._tokenised(segments)
        response = self._responses[text]
        self.rendered += 1
        self.mismatched += response.across
        if self.mismatched > MISMATCH_LIMIT * max(self.rendered, _GRACE):
            raise UserError(
                f"{self.mismatched} of {self.rendered} responses have a token across two of their parts. "
                "This tokenizer does not part at line breaks; scores of steps would not be comparable."
            )
        return response

    def _tokenised(self, segments: list[Segment]) -> _Response:
        """Tokenise a response behind the end of a prompt, and give every token to the segment in which it ends."""
        text = self._turn.opening + "".join(segment.text for segment in segments)
        encoded, start, skipped = (
            self._encode(self._turn.before + text, offsets=True),
            len(self._turn.before),
            len(self._before),
        )
        joined = tuple(encoded["input_ids"][:skipped]) == self._before
        if not joined:  # a token across prompt and response, which generation could not write
            encoded, start, skipped = self._encode(text, offsets=True), 0, 0
        bounds = list(accumulate((len(segment.text) for segment in segments), initial=start + len(self._turn.opening)))
        across, parts = not joined, []
        for begin, end in encoded["offset_mapping"][skipped:]:
            owner = max(bisect_left(bounds, end) - 1, 0)
            parts.append((segments[owner].part, segments[owner].step))
            across |= owner > 0 and begin < bounds[owner]
        return _Response(tuple(encoded["input_ids"][skipped:]), tuple(parts), across)
