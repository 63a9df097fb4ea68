"""How pages are made of their templates: every value escaped, and what acts without being seen made visible first."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from eclose.annotation.web import field_texts
from eclose.core.invisible_chars import reveal_invisible
from eclose.diagnosis.report.word_diff import DiffMark, DiffPiece, diff_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from eclose.annotation.forms import FormProblem

HTMX = '{"allowEval": false, "includeIndicatorStyles": false, "selfRequestsOnly": true, "historyCacheSize": 0}'
"""Nothing that the policy forbids, no request to others, and no page kept in the browser."""


def render_page(name: str, /, **context: object) -> str:
    """A page by the name of its template. What it is given cannot become markup; nothing may be missing."""
    return _environment().get_template(f"{name.removesuffix('.html')}.html").render(**context)


def format_duration(seconds: float) -> str:
    """``40 s``, ``2 min 10 s``, ``3 h 20 min``, ``17 h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 600 else f"{round(minutes / 60)} h"


def format_time(kept: str) -> str:
    """A time as it is kept, to the minute: ``2026-11-15 18:49 UTC``. What is no such time is left as it is."""
    found = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\S*(?:Z|\+00:00)$", kept)
    return f"{found[1]} {found[2]} UTC" if found else kept


def chosen_value(entries: Sequence[Mapping[str, str]], number: int, field: str) -> str | None:
    """What was filled in for a field of the form's entry of this number, from 1."""
    return entries[number - 1].get(field) if number <= len(entries) else None


def pieces(text: str, other: str) -> tuple[DiffPiece, ...]:
    """Return the text in pieces; words that the other text lacks are marked new.

    >>> [piece.text for piece in pieces("born in Lima.", "born in Arica.") if piece.mark == "new"]
    ['Lima']
    """
    return tuple(piece for piece in diff_words(other, text) if piece.mark is not DiffMark.OLD)


@cache  # a dozen texts, none of them a user's, and most of the work of a page
def markdown(text: str) -> Markup:
    """One of our guidelines. Its titles stand below those of a page; markup in it stays text."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only this server needs it
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only pages need

    reader = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink"])
    tokens = reader.parse(text)
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"
    return Markup(reader.renderer.render(tokens, reader.options, {}))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415 - only pages need it

    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: reveal_invisible(value) if type(value) is str else value,
    )
    environment.globals |= {"words": field_texts, "htmx": HTMX, "keys": KEYS}
    environment.filters |= {
        "chosen": chosen_value,
        "duration": format_duration,
        "markdown": markdown,
        "moment": format_time,
        "pieces": pieces,
        "thousands": "{:,}".format,
        "within": _within,
    }
    return environment


def _text(name: str) -> str:
    return (files(__package__) / "texts" / name).read_text("utf-8")


def _within(problems: Sequence[FormProblem], number: int, field: str) -> Iterator[FormProblem]:
    """The problems of one field."""
    return (one for one in problems if one.field == field and (one.step or 1) == number)


KEYS: Sequence[tuple[tuple[str, ...], str]] = (
    (("y", "n"), "yes, no"),
    (("1", "–", "5"), "a code, where one is asked"),
    (("j", "k"), "next, previous step or question; also ↓ and ↑"),
    (("l", "h"), "next, previous question of the step; also → and ←"),
    (("u",), "undo; also Ctrl+Z"),
    (("Enter",), "submit; while something is open, go there"),
    (("/",), "find words in the passages"),
    (("f",), "find the selected words, or those of the step"),
    ((".", ","), "next, previous place found; in the box Enter, Shift+Enter"),
    (("Space",), "passages down; with Shift up"),
    (("g",), "the whole guideline"),
    (("e",), "fold or unfold the excerpt of it"),
    (("?",), "these keys"),
)
"""All keys of a page of work, as its list shows them."""
