"""Render prompts and responses as token paths: the prompt by the chat template, the response with a part per token.

Training sees the tokens that serving produces: the prompt is tokenised alone, exactly as generation does, and the
response in the context of the end of that prompt. Parts are read from the character offsets of the complete response,
so a tokenizer that puts a prefix before every text needs no special case. Segments end with their line break and begin
with their space, where tokenizers usually split; a token across two segments belongs to the segment in which it ends,
and such responses are counted.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from eclose.calls.local.weights import ReplyTurnMarkers, read_turn_markers, render_conversation
from eclose.errors import UserError
from eclose.prompts.response_prompt import ANSWER_MARKER, ResponsePrompt
from eclose_train.likelihood.spans import ResponseSegment, TokenPart, TokenPath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.values.instance import Passage
    from eclose.values.response import Trace

MISMATCH_LIMIT = 0.05
"""Share of responses with a token across two segments above which a tokenizer is refused."""
_MISMATCH_MINIMUM = 100
"""Responses from which on the share is taken; before, the count is compared with the limit for this many."""
_CACHE_SIZE = 64
"""Prompts and responses cached as tokens: a family uses its few of them often, the next family uses others."""

TOO_LONG_REASON = "longer than max_length"
"""Reason recorded for a family that is left out because a path is beyond the limit."""


class PathTooLongError(UserError):
    """A path has more tokens than the limit allows."""


def response_segments(trace: Trace, answer: str | None, end: str) -> list[ResponseSegment]:
    """Split a response into its parts; without an answer it stops after the trace."""
    segments: list[ResponseSegment] = []
    for number, text in enumerate(trace.texts):
        segments += [
            ResponseSegment(TokenPart.NUMBER, f"{number + 1}."),
            ResponseSegment(TokenPart.STEP, f" {text}\n", number),
        ]
    if answer is not None:
        segments += [
            ResponseSegment(TokenPart.DELIMITER, ANSWER_MARKER),
            ResponseSegment(TokenPart.ANSWER, f" {answer}"),
            ResponseSegment(TokenPart.END, end),
        ]
    return segments


@dataclass(frozen=True, slots=True)
class _Response:
    """The tokens of a response with their parts."""

    ids: tuple[int, ...]
    parts: tuple[tuple[TokenPart, int | None], ...]
    across: bool
    """Whether a token lies across two segments, or across prompt and response."""


@dataclass
class TokenPathRenderer:
    """Renders prompts and responses as token paths for one tokenizer."""

    tokenizer: Any
    prompt: ResponsePrompt = field(default_factory=ResponsePrompt)
    max_length: int = 8_192
    """Longest path in tokens, prompt and response together. No path is truncated."""
    rendered: int = 0
    """Responses rendered so far."""
    mismatched: int = 0
    """Responses among them with a token across two parts."""
    _prompts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _responses: dict[str, _Response] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read from the template how a turn opens and ends; refuse a tokenizer without offsets."""
        self._turn: ReplyTurnMarkers = read_turn_markers(self.tokenizer)
        self._before: tuple[int, ...] = tuple(self._encode(self._turn.before)["input_ids"])
        if not self.tokenizer.is_fast:
            raise UserError(
                f"{self.tokenizer.name_or_path}: this is a slow tokenizer, which reports no character offsets. "
                "Provide a fast one: a tokenizer.json beside the model."
            )

    def prompt_text(self, question: str, evidence: Sequence[Passage]) -> str:
        """Render the conversation up to the reply, as generation sends it."""
        return render_conversation(self.tokenizer, self.prompt.messages(question, evidence))

    def render(self, question: str, evidence: Sequence[Passage], trace: Trace, answer: str | None = None) -> TokenPath:
        """Render prompt and response as tokens; without an answer, prompt and trace.

        Raises:
            PathTooLongError: The path has more than ``max_length`` tokens.
        """
        prompt = self._tokenise_prompt(self.prompt_text(question, evidence))
        response = self._tokenise_response(response_segments(trace, answer, self._turn.end))
        count = len(prompt) + len(response.ids)
        if count > self.max_length:
            raise PathTooLongError(f"{count} tokens are more than max_length, {self.max_length}; paths are not cut.")
        return TokenPath((*prompt, *response.ids), (*(((TokenPart.PROMPT, None),) * len(prompt)), *response.parts))

    def _encode(self, text: str, *, offsets: bool = False) -> Any:
        return self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=offsets)

    def _tokenise_prompt(self, text: str) -> tuple[int, ...]:
        if text not in self._prompts:
            if len(self._prompts) >= _CACHE_SIZE:
                self._prompts.clear()
            self._prompts[text] = tuple(self._encode(text)["input_ids"])
        return self._prompts[text]

    def _tokenise_response(self, segments: list[ResponseSegment]) -> _Response:
        text = "".join(segment.text for segment in segments)
        if text not in self._responses:
            if len(self._responses) >= _CACHE_SIZE:
                self._responses.clear()
            self._responses[text] = self._assign_parts(segments)
        response = self._responses[text]
        self.rendered += 1
        self.mismatched += response.across
        if self.mismatched > MISMATCH_LIMIT * max(self.rendered, _MISMATCH_MINIMUM):
            raise UserError(
                f"{self.mismatched} of {self.rendered} responses have a token across two of their parts. "
                "This tokenizer does not split at line breaks; scores of steps would not be comparable."
            )
        return response

    def _assign_parts(self, segments: list[ResponseSegment]) -> _Response:
        """Tokenise a response after the end of a prompt, and assign every token to the segment in which it ends."""
        # The context decides how the first tokens of a response split, so the end of the prompt comes before it.
        text = self._turn.opening + "".join(segment.text for segment in segments)
        encoded, start, skipped = (
            self._encode(self._turn.before + text, offsets=True),
            len(self._turn.before),
            len(self._before),
        )
        separable = tuple(encoded["input_ids"][:skipped]) == self._before
        if not separable:  # a token across prompt and response, which generation cannot produce
            encoded, start, skipped = self._encode(text, offsets=True), 0, 0
        # bounds[n] is the character where segment n begins; tokens of the opening count to the first segment.
        bounds = list(accumulate((len(segment.text) for segment in segments), initial=start + len(self._turn.opening)))
        across, parts = not separable, []
        for begin, end in encoded["offset_mapping"][skipped:]:
            # The segment in which the token's last character lies.
            owner = max(bisect_left(bounds, end) - 1, 0)
            parts.append((segments[owner].part, segments[owner].step))
            across |= owner > 0 and begin < bounds[owner]
        return _Response(tuple(encoded["input_ids"][skipped:]), tuple(parts), across)
