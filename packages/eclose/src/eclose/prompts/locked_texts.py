"""Loading, rendering and hashing of the packaged prompt texts.

Prompts are versioned and reviewed like code. Records carry the hash of their prompt, and a lock file lists the hashes,
so that a released text cannot change unnoticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TypedDict

from eclose.values.identity import content_hash

# ``{{name}}`` is filled in by code; ``[[models: ...]]`` and ``[[people: ...]]`` are for one of the two readers.
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_ADDRESSED = re.compile(r"\[\[(\w+): (.*?)\]\]", re.DOTALL)


class GuidelineReader(StrEnum):
    """The readers of a guideline; models and people share one text with passages for either."""

    MODELS = "models"
    PEOPLE = "people"


class PromptMessage(TypedDict):
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
        """Hash of the text; the name has no influence."""
        return content_hash(self.text)

    def text_for(self, reader: GuidelineReader) -> str:
        """Return the text with only those of the passages ``[[models: ...]]`` and ``[[people: ...]]`` for this reader.

        Raises:
            ValueError: A passage names an unknown reader, or a bracket is not closed.
        """

        def select(match: re.Match[str]) -> str:
            return match[2] if GuidelineReader(match[1]) is reader else ""

        text = _ADDRESSED.sub(select, self.text)
        if "[[" in text or "]]" in text:
            raise ValueError(f"{self.name}: a [[...]] passage is not closed.")
        # A dropped passage leaves no trace: no blank lines in a row, no double blanks.
        lines = (re.sub(r"(?<=\S) {2,}", " ", line).rstrip() for line in text.splitlines())
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"

    def render(self, **values: str) -> str:
        """Return the text with every placeholder filled."""
        placeholders = set(_PLACEHOLDER.findall(self.text))
        if placeholders != set(values):
            raise ValueError(f"{self.name} takes {sorted(placeholders)}, got {sorted(values)}")
        # One pass: a value that contains a placeholder is not expanded again.
        return _PLACEHOLDER.sub(lambda match: values[match[1]], self.text).rstrip("\n")


@cache
def load_prompt_text(name: str) -> PromptText:
    """Load a packaged text by its file name."""
    return PromptText(name, (files(__package__) / "texts" / name).read_text("utf-8"))
