"""The site's table of contents for language models: every page of the navigation with its first sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from pages import DOCS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = DOCS / "llms.txt"
HEAD = """\
# eclose

> Measures and closes the local-global gap in multi-hop reasoning: responses in which every step is sound, but the
> reasoning as a whole does not establish the answer. Python package and command line.

Given a file of responses, run `eclose judge FILE --judge MODEL --out RUN --dry-run` for the cost, the same with
`--budget` instead of `--dry-run`, then `eclose diagnose RUN`, and read `RUN/report/diagnosis.json`.
"""
_GENERATED = "Generated"


def make_pages() -> dict[Path, str]:
    """Return the page."""
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    # Pages without a section come first, or they would seem to belong to the section before them.
    navigation.sort(key=lambda entry: not isinstance(next(iter(entry.values())), str))
    return {PAGE: HEAD + "\n" + "".join(_format_entries(navigation, 2))}


def _format_entries(entries: list[Any], level: int) -> Iterator[str]:
    """Yield a line for each page, and a heading for each section of the navigation."""
    for entry in entries:
        # The first page of a section has no title of its own.
        title, content = next(iter(entry.items())) if isinstance(entry, dict) else ("Overview", entry)
        if isinstance(content, str):
            yield f"- [{title}]({content}){_describe(DOCS / content)}\n"
        else:
            yield f"\n{'#' * level} {title}\n\n"
            yield from _format_entries(content, level + 1)


def _describe(path: Path) -> str:
    """Return the first sentence of a page, or nothing where it begins with something else."""
    for paragraph in path.read_text("utf-8").split("\n\n")[1:]:
        text = " ".join(paragraph.split())
        if text[:1].isalnum() and not text.startswith(_GENERATED):
            sentence = re.split(r"(?<=\.)\s", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text))[0]
            return f": {sentence.rstrip(':')}"
    return ""
