"""How a page is made of its template: every value escaped, and what acts without being seen made visible first."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from eclose.core.invisible_chars import reveal_invisible
from eclose.diagnosis.report.format import unbroken

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def template(name: str) -> Template:
    """One of our templates. What it is given cannot become markup."""
    from jinja2 import DictLoader, Environment, StrictUndefined  # noqa: PLC0415 - only pages need it

    environment = Environment(
        loader=DictLoader({name: page_text(name)}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: unbroken(reveal_invisible(value)) if type(value) is str else value,
    )
    environment.filters["thousands"] = "{:,}".format
    environment.filters["edges"] = _edges
    return environment.get_template(name)


def _edges(text: str) -> tuple[str, str, str]:
    """Blanks before a text, the text, blanks behind it; a text of blanks is left whole."""
    core = text.strip() or text
    before, _, behind = text.partition(core)
    return before, core, behind


@cache
def page_text(name: str) -> str:
    """A text that pages are made of."""
    return (files(__package__) / "texts" / name).read_text("utf-8")


def source_hash(source: str) -> str:
    """As a policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")
