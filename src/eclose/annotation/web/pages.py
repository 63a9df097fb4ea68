"""Rendering of the server's pages from their templates. Values are escaped and invisible characters shown."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from eclose.annotation.web import field_texts
from eclose.annotation.web.static_files import static_url
from eclose.diagnosis.report.html_template import build_jinja_environment
from eclose.diagnosis.report.word_diff import DiffMark, DiffPiece, diff_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from eclose.annotation.forms import FormProblem

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
    """Return the problems of a field in the entry of this number."""
    return (problem for problem in problems if problem.field == field and (problem.step or 1) == number)


KEYBOARD_SHORTCUTS: Sequence[tuple[tuple[str, ...], str]] = (
    (("y", "n"), "yes, no"),
    (("1", "–", "5"), "choose a code"),
    (("j", "k"), "next, previous step or question; also ↓ and ↑"),
    (("l", "h"), "next, previous question of the step; also → and ←"),
    (("u",), "undo; also Ctrl+Z"),
    (("Enter",), "submit, or go to the next open question"),
    (("/",), "search in the passages"),
    (("f",), "search for the selected words, or for the step"),
    ((".", ","), "next, previous match; in the search box Enter, Shift+Enter"),
    (("Space",), "scroll the passages down; with Shift up"),
    (("g",), "show the whole guideline"),
    (("e",), "show or hide the excerpt of the guideline"),
    (("?",), "show these keys"),
)
"""Keys of the pages of work with their help texts."""
