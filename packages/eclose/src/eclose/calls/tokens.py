"""Token counts of requests without a tokenizer: an upper bound, and an estimate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from eclose.calls.model import Request, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Iterable


TokenCount: TypeAlias = Callable[[str], int]
"""A function that counts the tokens of a text, such as a tokenizer's own count."""
_PER_MESSAGE = 16
"""Tokens a chat template may add to a turn: roles, separators, a date."""
_WORDS = re.compile(r"[A-Za-z ]+")


def bound_token_count(text: str) -> int:
    """Return an upper bound of the tokens of a text: its bytes in UTF-8, about four times the count for English."""
    return len(text.encode("utf-8", "surrogatepass"))


def estimate_token_count(text: str) -> int:
    """Return about the tokens of a text, usually a quarter too many and rarely too few."""
    # Three letters or blanks make a token; every digit, sign and byte of another script counts as one.
    letters = sum(len(run) for run in _WORDS.findall(text))
    return -(-letters // 3) + len(text.encode("utf-8", "surrogatepass")) - letters


def bound_request_usage(request: Request, count: TokenCount = bound_token_count) -> TokenUsage:
    """Return the tokens of a request and of the longest reply it allows."""
    prompt = sum(count(message["content"]) + _PER_MESSAGE for message in request.messages)
    if request.schema is not None:
        prompt += count(json.dumps(dict(request.schema.schema))) + _PER_MESSAGE
    return TokenUsage(prompt, request.decoding.max_tokens)


# Prompt caches of providers: a prefix that an earlier prompt had is read from the cache, at a lower price.


CHARACTERS = 4
"""Characters of a token, on average over English prompts."""
MINIMUM_TOKENS, STEP_TOKENS = 1_024, 128
"""Tokens of the shortest prefix that is cached, and of the steps above it, as OpenAI documents them."""
_MOST_PREFIXES = 100_000
"""Prefixes that are remembered: memory stays bounded, and a provider forgets a prefix within minutes."""


class PromptPrefixCache:
    """The prefixes of earlier prompts. Hashes are kept, not texts."""

    def __init__(self, minimum: int = MINIMUM_TOKENS, step: int = STEP_TOKENS) -> None:
        self._minimum = minimum * CHARACTERS
        self._step = step * CHARACTERS
        # A dictionary keeps the order of insertion, so the oldest prefix is the first.
        self._prefixes: dict[int, None] = {}

    def count_cached(self, parts: Iterable[str], tokens: int) -> int:
        """Return how many of a prompt's tokens are read from the cache, without adding the prompt."""
        prompt = "\0".join(parts)
        for end in reversed(self._ends(prompt)):
            if hash(prompt[:end]) in self._prefixes:
                return tokens * end // len(prompt)
        return 0

    def add(self, parts: Iterable[str]) -> None:
        """Add a prompt that the provider has read."""
        prompt = "\0".join(parts)
        for prefix in (hash(prompt[:end]) for end in self._ends(prompt)):
            # Moved to the end: a prefix that is in use stays.
            self._prefixes.pop(prefix, None)
            self._prefixes[prefix] = None
        while len(self._prefixes) > _MOST_PREFIXES:
            del self._prefixes[next(iter(self._prefixes))]

    def _ends(self, prompt: str) -> range:
        return range(self._minimum, len(prompt) + 1, self._step)
