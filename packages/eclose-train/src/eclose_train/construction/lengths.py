"""Lengths of a family's paths, prompt and response, in tokens, to reject families too long for training.

With the tokenizer of the model to be trained, counts equal those of training. Without it, counts are estimates that err
on the high side, so that an accepted family is seldom too long in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.tokens import estimate_token_count
from eclose.files.manifest import hash_files
from eclose.prompts.locked_texts import PromptMessage
from eclose.prompts.response_prompt import ResponsePrompt, format_completion
from eclose.values.identity import content_hash

if TYPE_CHECKING:
    from eclose.values.family import Family
    from eclose.values.instance import Passage

_MESSAGE_TOKENS = 16
"""Tokens that a chat template may add to a message."""
_TOKENIZER_FILES = ("tokenizer", "vocab", "merges", "special_tokens", "chat_template", "added_tokens")
"""How the names of files begin that determine a tokenizer."""


@dataclass(frozen=True)
class PathTokenCounter:
    """Counter of the tokens of paths under a prompt."""

    conversation: Callable[[Sequence[PromptMessage]], int]
    """Counts the tokens of messages up to the reply."""
    reply: Callable[[str], int]
    """Counts the tokens of a reply, with the end of its turn."""
    prompt: ResponsePrompt = field(default_factory=ResponsePrompt)

    def count_prompt(self, question: str, evidence: Sequence[Passage]) -> int:
        """Count the tokens of the prompt with which every path of a view begins."""
        return self.conversation(self.prompt.messages(question, evidence))

    def count_family(self, family: Family) -> int:
        """Return an upper bound of the longest path: the longest trace and answer after the longest prompt."""
        # Objectives also score a trace with another view's answer, so all pairs count.
        pairs = product(family.views, family.views)
        response = max(self.reply(format_completion(view.trace, other.answer)) for view, other in pairs)
        return response + max(self.count_prompt(view.question, view.evidence) for view in family.views)


def make_estimating_counter() -> PathTokenCounter:
    """Return a counter that estimates tokens from characters."""
    return PathTokenCounter(
        lambda messages: sum(estimate_token_count(message["content"]) + _MESSAGE_TOKENS for message in messages),
        lambda text: estimate_token_count(text) + 1,
    )


def make_tokenizer_counter(tokenizer: Any) -> PathTokenCounter:
    """Return a counter that uses the tokenizer of the model to be trained."""
    from eclose.calls.local.weights import render_conversation  # noqa: PLC0415 - heavy

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    def conversation(messages: Sequence[PromptMessage]) -> int:
        return count(render_conversation(tokenizer, messages))

    return PathTokenCounter(conversation, lambda text: count(text) + 1)  # one token ends the turn


def make_path_counter(tokenizer: str | None) -> PathTokenCounter:
    """Return the counter for a tokenizer by folder or name; an estimate for None."""
    if tokenizer is None:
        return make_estimating_counter()
    from eclose.calls.local.weights import load_tokenizer  # noqa: PLC0415 - heavy

    return make_tokenizer_counter(load_tokenizer(tokenizer))


def identify_tokenizer(tokenizer: str | None) -> str | None:
    """Return the identity of a tokenizer: its name, with a hash of its files where it is a local folder."""
    if tokenizer is None or not Path(tokenizer).is_dir():
        return tokenizer
    files = sorted(path for path in Path(tokenizer).iterdir() if path.name.startswith(_TOKENIZER_FILES))
    return f"{Path(tokenizer).name}@{content_hash(hash_files(files)).removeprefix('sha256:')[:12]}"
