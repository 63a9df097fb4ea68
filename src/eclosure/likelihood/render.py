"""From a family's words to tokens: the chat template, then the response in segments that tokenise alone as joined.

What is trained is what is served: the prompt is tokenised exactly as generation tokenises it, alone, and the response
follows it as the model would have written it. Segments end with their own line break and begin with their own blank,
which is where byte-pair tokenizers part; where one does not, the joined tokenisation decides, and that is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eclosure.errors import UserError
from eclosure.likelihood.spans import Part, Path, Segment
from eclosure.protocol.response import ANSWER_MARKER, ResponsePrompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclosure.core.instance import Passage
    from eclosure.core.response import Trace

MISMATCH_LIMIT = 0.05
"""The share of responses that may need the joined tokenisation before something must be wrong."""
_GRACE = 100


TOO_LONG = "longer than max_length"
"""Why a family with a path beyond the limit is set aside."""


class TooLongError(UserError):
    """A path has more tokens than the limit allows."""


def response_segments(trace: Trace, answer: str | None, end: str) -> list[Segment]:
    """A response cut into its parts; without an answer it stops after the trace."""
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
    _segments: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """A response must be able to end."""
        if self.tokenizer.eos_token is None:
            raise UserError("the tokenizer has no end-of-turn token, so a model could never learn to stop.")

    def prompt_text(self, question: str, evidence: Sequence[Passage]) -> str:
        """The conversation up to the reply, as generation sends it: no thinking, the reply's opening included."""
        text: str = self.tokenizer.apply_chat_template(
            self.prompt.messages(question, evidence),
            add_generation_prompt=True,
            tokenize=False,
            enable_thinking=False,
        )
        return text

    def path(self, question: str, evidence: Sequence[Passage], trace: Trace, answer: str | None = None) -> Path:
        """Prompt and response as tokens, or prompt and trace where no answer is given."""
        prompt = self.prompt_text(question, evidence)
        segments = response_segments(trace, answer, self.tokenizer.eos_token)
        ids, parts = self._response(segments)
        before = self._prompt_ids(prompt)
        if len(before) + len(ids) > self.max_length:
            count = len(before) + len(ids)
            raise TooLongError(f"{count} tokens are more than {self.max_length}; nothing is cut to fit.")
        return Path((*before, *ids), (*(((Part.PROMPT, None),) * len(before)), *parts))

    def _prompt_ids(self, text: str) -> tuple[int, ...]:
        if text not in self._prompts:
            # A family has three prompts, used many times; more than a few families are not worth remembering.
            if len(self._prompts) > 64:
                self._prompts.clear()
            self._prompts[text] = self._encode(text)
        return self._prompts[text]

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _response(self, segments: list[Segment]) -> tuple[tuple[int, ...], tuple[tuple[Part, int | None], ...]]:
        """The response's tokens with their parts; segment by segment where that equals the whole."""
        self.rendered += 1
        ids: list[int] = []
        parts: list[tuple[Part, int | None]] = []
        for segment in segments:
            tokens = self._segment_ids(segment.text)
            ids += tokens
            parts += [(segment.part, segment.step)] * len(tokens)
        whole = self._encode("".join(segment.text for segment in segments))
        if tuple(ids) == whole:
            return whole, tuple(parts)
        self.mismatched += 1
        if self.mismatched > MISMATCH_LIMIT * max(self.rendered, _GRACE):
            raise UserError(
                f"{self.mismatched} of {self.rendered} responses tokenise otherwise in parts than as a whole. "
                "This tokenizer does not part at line breaks; scores of steps would not be comparable."
            )
        return self._joined(segments)

    def _segment_ids(self, text: str) -> tuple[int, ...]:
        if text not in self._segments:
            if len(self._segments) > 50_000:
                self._segments.clear()
            self._segments[text] = self._encode(text)
        return self._segments[text]

    def _joined(self, segments: list[Segment]) -> tuple[tuple[int, ...], tuple[tuple[Part, int | None], ...]]:
        """The whole's tokens, each given to the segment in which it ends."""
        text = "".join(segment.text for segment in segments)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        bounds = []
        reached = 0
        for segment in segments:
            reached += len(segment.text)
            bounds.append(reached)
        parts = []
        for _, end in encoded["offset_mapping"]:
            owner = next(segment for segment, bound in zip(segments, bounds, strict=True) if end <= bound)
            parts.append((owner.part, owner.step))
        return tuple(encoded["input_ids"]), tuple(parts)
