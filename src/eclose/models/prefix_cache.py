"""Prompt caches of providers: a prefix that an earlier prompt had is read from the cache, at a lower price."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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
