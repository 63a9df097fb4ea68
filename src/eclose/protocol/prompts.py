"""Packaged texts: load one, render it, know its hash.

A prompt is a versioned text reviewed like code. Its hash goes into every record it produced, and a lock file
lists the hashes, so that a frozen text cannot change unnoticed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TypedDict

from eclose.core.identity import content_hash

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_ADDRESSED = re.compile(r"\[\[(\w+): (.*?)\]\]", re.DOTALL)
_LOCK = "lock.json"


class Reader(StrEnum):
    """Who reads a guideline. Models and people decide by one text, but are shown and asked for different things."""

    MODELS = "models"
    PEOPLE = "people"


class Message(TypedDict):
    """One turn of a conversation with a model."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class PromptText:
    """A packaged text with named placeholders."""

    name: str
    text: str

    @property
    def hash(self) -> str:
        """The identity of the text: what it says, not what it is called."""
        return content_hash(self.text)

    def addressed_to(self, reader: Reader) -> str:
        """Return the text with the parts ``[[models: ...]]`` or ``[[people: ...]]`` that this reader is meant to see.

        Raises:
            ValueError: A part is addressed to an unknown reader, or a bracket is left open.
        """

        def part(match: re.Match[str]) -> str:
            return match[2] if Reader(match[1]) is reader else ""

        text = _ADDRESSED.sub(part, self.text)
        if "[[" in text or "]]" in text:
            raise ValueError(f"{self.name}: a part that is addressed to a reader is not closed.")
        # What was left out leaves no gap: no line of blanks, no two blanks within a line.
        lines = (re.sub(r"(?<=\S) {2,}", " ", line).rstrip() for line in text.splitlines())
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"

    def render(self, **values: str) -> str:
        """The text with every placeholder filled. Filled-in text is never read for placeholders again."""
        wanted = set(_PLACEHOLDER.findall(self.text))
        if wanted != set(values):
            raise ValueError(f"{self.name} takes {sorted(wanted)}, was given {sorted(values)}")
        return _PLACEHOLDER.sub(lambda found: values[found[1]], self.text).rstrip("\n")


@cache
def load_text(name: str) -> PromptText:
    """One packaged text by its file name."""
    return PromptText(name, (files(__package__) / "texts" / name).read_text("utf-8"))


def locked_hashes() -> dict[str, str]:
    """The hashes the lock file vouches for."""
    locked: dict[str, str] = json.loads(load_text(_LOCK).text)
    return locked


def actual_hashes() -> dict[str, str]:
    """The hashes of the texts as they are packaged."""
    names = sorted(entry.name for entry in (files(__package__) / "texts").iterdir() if entry.name != _LOCK)
    return {name: load_text(name).hash for name in names}
