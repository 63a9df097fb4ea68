"""How long a family's paths are, before anybody trains on them: prompt and response in tokens.

With the tokenizer of the model to be trained the count is the one that training makes. Without it the count is an
estimate, rather high than low, so that what is kept here seldom turns out to be too long there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.core.identity import content_hash
from eclose.models.token_counts import estimate_tokens
from eclose.protocol.prompts import Message
from eclose.protocol.response_prompt import ResponsePrompt, completion_text
from eclose.store.runs.manifest import hash_files

if TYPE_CHECKING:
    from eclose.core.family import Family
    from eclose.core.instance import Passage

_A_MESSAGE = 16
"""Tokens a chat template may add to a turn."""
_OF_TOKENIZERS = ("tokenizer", "vocab", "merges", "special_tokens", "chat_template", "added_tokens")


@dataclass(frozen=True)
class Length:
    """Counts the tokens of paths under one prompt."""

    conversation: Callable[[Sequence[Message]], int]
    """Of everything up to the reply."""
    reply: Callable[[str], int]
    """Of a reply, with the end of its turn."""
    prompt: ResponsePrompt = field(default_factory=ResponsePrompt)

    def of_prompt(self, question: str, evidence: Sequence[Passage]) -> int:
        """What every path of a view begins with."""
        return self.conversation(self.prompt.messages(question, evidence))

    def of_family(self, family: Family) -> int:
        """At least the longest path: the longest trace with the longest answer under the longest prompt."""
        pairs = product(family.views, family.views)
        response = max(self.reply(completion_text(one.trace, other.answer)) for one, other in pairs)
        return response + max(self.of_prompt(view.question, view.evidence) for view in family.views)


def estimated() -> Length:
    """By the letters, for whoever will train some model."""
    return Length(
        lambda messages: sum(estimate_tokens(message["content"]) + _A_MESSAGE for message in messages),
        lambda text: estimate_tokens(text) + 1,
    )


def tokenized(tokenizer: Any) -> Length:
    """By the tokenizer of the model that is to be trained."""
    from eclose.models.weights import render_conversation  # noqa: PLC0415 - heavy

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    def conversation(messages: Sequence[Message]) -> int:
        return count(render_conversation(tokenizer, messages))

    return Length(conversation, lambda text: count(text) + 1)


def length_for(tokenizer: str | None) -> Length:
    """For a tokenizer by its name, or for none."""
    if tokenizer is None:
        return estimated()
    from eclose.models.weights import load_tokenizer  # noqa: PLC0415 - heavy

    return tokenized(load_tokenizer(tokenizer))


def tokenizer_identity(tokenizer: str | None) -> str | None:
    """What a tokenizer is known by: its name, and its content where it lies in a folder, wherever that is."""
    if tokenizer is None or not Path(tokenizer).is_dir():
        return tokenizer
    files = sorted(path for path in Path(tokenizer).iterdir() if path.name.startswith(_OF_TOKENIZERS))
    return f"{Path(tokenizer).name}@{content_hash(hash_files(files)).removeprefix('sha256:')[:12]}"
