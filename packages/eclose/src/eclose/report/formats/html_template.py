"""Jinja templates of the pages. Every value is escaped, and invisible characters are made visible."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from eclose.diagnosis.number_format import add_no_break_spaces
from eclose.diagnosis.show_invisible import reveal_invisible_chars

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Environment, Template


def build_jinja_environment(
    load: Callable[[str], str], clean: Callable[[str], str] = reveal_invisible_chars
) -> Environment:
    """Return the Jinja environment of pages: values are escaped, and ``clean`` is applied to every string.

    ``load`` returns the source of a template by its name.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415 - only pages need it

    environment = Environment(
        loader=FunctionLoader(load),
        autoescape=True,
        # A misspelt name in a template fails instead of printing nothing.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Jinja's Markup and numbers are left alone: only plain strings come from files.
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    environment.filters["thousands"] = "{:,}".format
    return environment


@cache
def load_page_template(name: str) -> Template:
    """Return a template by file name. Its values cannot become markup."""
    environment = build_jinja_environment(
        read_page_text, lambda text: add_no_break_spaces(reveal_invisible_chars(text))
    )
    environment.filters["edges"] = _edges
    return environment.get_template(name)


def _edges(text: str) -> tuple[str, str, str]:
    """Return the blanks before a text, the text, and the blanks behind it; a text of blanks is returned as it is."""
    core = text.strip() or text
    before, _, behind = text.partition(core)
    return before, core, behind


@cache
def read_page_text(name: str) -> str:
    """Return a file of the ``texts`` folder."""
    return (files(__package__) / "texts" / name).read_text("utf-8")


def csp_source_hash(source: str) -> str:
    """Return the hash that a content security policy uses for an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")
