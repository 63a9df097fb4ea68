"""How pages are made of their templates: every value escaped, and what acts without being seen made visible first."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from eclose.annotation.web import field_texts
from eclose.core.invisible_chars import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from eclose.annotation.forms import Problem

HTMX = '{"allowEval": false, "includeIndicatorStyles": false, "selfRequestsOnly": true, "historyCacheSize": 0}'
"""Nothing that the policy forbids, no request to others, and no page kept in the browser."""

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


class Piece(NamedTuple):
    """A stretch of a text, and whether it is the same in another."""

    text: str
    same: bool


def page(name: str, /, **context: object) -> str:
    """A page by the name of its template. What it is given cannot become markup; nothing may be missing."""
    return _environment().get_template(f"{name.removesuffix('.html')}.html").render(**context)


def duration(seconds: float) -> str:
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


def moment(kept: str) -> str:
    """A time as it is kept, to the minute: ``2026-11-15 18:49 UTC``. What is no such time is left as it is."""
    found = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\S*(?:Z|\+00:00)$", kept)
    return f"{found[1]} {found[2]} UTC" if found else kept


def chosen(entries: Sequence[Mapping[str, str]], number: int, field: str) -> str | None:
    """What was filled in for a field of the form's entry of this number, from 1."""
    return entries[number - 1].get(field) if number <= len(entries) else None


def pieces(text: str, other: str) -> tuple[Piece, ...]:
    """The text, with the words in it that are not in the same place of the other.

    >>> [piece.text for piece in pieces("born in Lima.", "born in Arica.") if not piece.same]
    ['Lima']
    """
    ours, theirs = _WORDS.findall(text), _WORDS.findall(other)
    matcher = SequenceMatcher(None, theirs, ours, autojunk=False)
    found = [Piece("".join(ours[start:end]), kind == "equal") for kind, _, _, start, end in matcher.get_opcodes()]
    return tuple(_joined([piece for piece in found if piece.text]))


def _joined(found: Sequence[Piece]) -> Iterator[Piece]:
    """Neighbours of one kind as one; a blank between two changes is part of them."""
    around = zip([None, *found], found, [*found[1:], None], strict=False)
    parts = [
        one._replace(same=False) if before and after and one.text.isspace() and not (before.same or after.same) else one
        for before, one, after in around
    ]
    for same, run in groupby(parts, key=attrgetter("same")):
        yield Piece("".join(one.text for one in run), same)


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
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.globals |= {"words": field_texts, "htmx": HTMX, "keys": KEYS}
    environment.filters |= {
        "chosen": chosen,
        "duration": duration,
        "markdown": markdown,
        "moment": moment,
        "pieces": pieces,
        "thousands": "{:,}".format,
        "within": _within,
    }
    return environment


def _text(name: str) -> str:
    return (files(__package__) / "texts" / name).read_text("utf-8")


def _within(problems: Sequence[Problem], number: int, field: str) -> Iterator[Problem]:
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
