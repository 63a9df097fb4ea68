"""Rendering of the server's pages from their templates. Values are escaped and invisible characters shown."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from eclose.report.formats.html_template import build_jinja_environment
from eclose.report.word_diff import DiffMark, DiffPiece, diff_words
from eclose_annotate.web import field_texts
from eclose_annotate.web.static_files import static_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from eclose.prompts.material_json import DisclosedPassage
    from eclose_annotate.forms import FormProblem

HTMX_CONFIG = '{"allowEval": false, "includeIndicatorStyles": false, "selfRequestsOnly": true, "historyCacheSize": 0}'
"""Configuration of htmx: no eval, no inline styles, no requests to other hosts, no cached pages."""


def render_annotation_page(name: str, /, **context: object) -> str:
    """Render a template by name. Values cannot become markup; a missing variable raises."""
    return _environment().get_template(f"{name.removesuffix('.html')}.html").render(**context)


def format_duration(seconds: float) -> str:
    """Format seconds as ``40 s``, ``2 min 10 s``, ``3 h 20 min`` or ``17 h``."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 600:
        return f"{total // 60} min {total % 60} s" if total % 60 else f"{total // 60} min"
    # From ten minutes on seconds, and from ten hours on minutes, are noise.
    minutes = round(total / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 600 else f"{round(minutes / 60)} h"


def format_stored_time(timestamp: str) -> str:
    """Format a stored time as ``2026-11-15 18:49 UTC``; return other texts unchanged."""
    match = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\S*(?:Z|\+00:00)$", timestamp)
    return f"{match[1]} {match[2]} UTC" if match else timestamp


def _chosen_form_value(entries: Sequence[Mapping[str, str]], number: int, field: str) -> str | None:
    """Return the choice of a field in the entry of this number, from 1; None where it is empty."""
    return entries[number - 1].get(field) if number <= len(entries) else None


def mark_new_words(text: str, other: str) -> tuple[DiffPiece, ...]:
    """Return the text in pieces; words that the other text lacks are marked new.

    >>> [piece.text for piece in mark_new_words("born in Lima.", "born in Arica.") if piece.mark == "new"]
    ['Lima']
    """
    return tuple(piece for piece in diff_words(other, text) if piece.mark is not DiffMark.OLD)


class CitedText(NamedTuple):
    """A part of a text."""

    text: str
    passage: int | None = None
    """Index of the passage that it cites; None where it cites none."""


# A list in brackets, as in [3] or [1, 12]; or a passage that is named, as in "passage 4".
_CITATION = re.compile(r"\[\d{1,3}(?:\s*[,;]\s*\d{1,3})*\]|\bpassages? \d{1,3}\b", re.IGNORECASE)


def split_citations(text: str, passages: Sequence[DisclosedPassage]) -> tuple[CitedText, ...]:
    """Return a text in parts, in which citations of these passages stand apart; other numbers stay text.

    >>> from eclose.prompts.material_json import DisclosedPassage
    >>> [part.passage for part in split_citations("By [0], not [7].", [DisclosedPassage(0, "a", "b")])]
    [None, 0, None]
    """
    indices = {passage.index for passage in passages}
    parts, end = [], 0
    for match in _CITATION.finditer(text):
        numbers = [number for number in re.finditer(r"\d+", match[0]) if int(number[0]) in indices]
        # The only number of a citation takes the brackets or the word into its link.
        spans = [match.span()] if re.fullmatch(r"\D*\d+\D*", match[0]) else _shifted(numbers, match.start())
        for number, (start, stop) in zip(numbers, spans, strict=False):
            parts += [CitedText(text[end:start]), CitedText(text[start:stop], int(number[0]))]
            end = stop
    return tuple(part for part in (*parts, CitedText(text[end:])) if part.text)


def _shifted(matches: Sequence[re.Match[str]], by: int) -> list[tuple[int, int]]:
    return [(match.start() + by, match.end() + by) for match in matches]


def people_differ(others: Sequence[Sequence[Mapping[str, str]]], number: int, field: str | None = None) -> bool:
    """Return whether annotators differ in the entry of this number, or in one of its fields."""
    entries = [dict(other[number - 1]) for other in others if number <= len(other)]
    values = [entry if field is None else entry.get(field) for entry in entries]
    return any(value != values[0] for value in values[1:])


# Cached: only a dozen guidelines exist, and parsing them takes most of the time of a page.
@cache
def render_guideline(text: str) -> Markup:
    """Render a guideline from Markdown; its headings are two levels lower, HTML in it stays text."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only this server needs it
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only pages need

    reader = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink"])
    # Links and images are disabled: a guideline must not load anything.
    tokens = reader.parse(text)
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"
    return Markup(reader.renderer.render(tokens, reader.options, {}))


@cache
def _environment() -> Environment:
    environment = build_jinja_environment(_template_text)
    environment.globals |= {"texts": field_texts, "htmx": HTMX_CONFIG, "keys": KEYBOARD_SHORTCUTS}
    environment.globals["static_url"] = static_url
    environment.filters |= {
        "chosen": _chosen_form_value,
        "citations": split_citations,
        "differ": people_differ,
        "duration": format_duration,
        "markdown": render_guideline,
        "moment": format_stored_time,
        "pieces": mark_new_words,
        "within": _field_problems,
    }
    return environment


def _template_text(name: str) -> str:
    return (files(__package__) / "texts" / name).read_text("utf-8")


def _field_problems(problems: Sequence[FormProblem], number: int, field: str) -> Iterator[FormProblem]:
    return (problem for problem in problems if problem.field == field and (problem.step or 1) == number)


KEYBOARD_SHORTCUTS: Sequence[tuple[tuple[str, ...], str]] = (
    (("y", "n"), "yes, no"),
    (("1", "–", "5"), "choose a code, where one is asked"),
    (("0", "–", "9"), "otherwise: go to the passage of this number"),
    (("p",), "then a number: go to this passage in any case"),
    (("j", "k"), "next, previous step or question; also ↓ and ↑"),
    (("l", "h"), "next, previous question of the step; also → and ←"),
    (("u",), "undo; also Ctrl+Z"),
    (("Enter",), "submit, or go to the next open question"),
    (("v",), "show or hide the passages"),
    (("/",), "search in the passages; Esc leaves the box and keeps the marks"),
    (("f",), "search for the selected words, or for the step"),
    ((".", ","), "next, previous match; in the search box Enter, Shift+Enter"),
    (("Space",), "scroll the passages down; with Shift up"),
    (("e",), "show or hide the guideline for this decision"),
    (("g",), "open the whole guideline with examples"),
    (("?",), "show these keys"),
)
"""Keys of the pages of work with their help texts."""
