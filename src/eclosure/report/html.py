"""The page: one file that needs no network, no server and no other file.

The template escapes every value it is given; the explorer's data never becomes markup at all. A policy in the page
allows the one script and the one style it came with, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from eclosure.report.against import against_sentences, against_tables
from eclosure.report.notes import NOT_VALIDATED, Notes
from eclosure.report.payload import make_payload
from eclosure.report.plots import composition_bars, difference_plot, flow_rows, rate_plot
from eclosure.report.story import (
    agreement_figures,
    agreement_sentences,
    cautions,
    evidence_rates,
    evidence_sentences,
    flip_sentences,
    flow,
    headline,
)
from eclosure.report.tables import all_tables, glossary
from eclosure.report.words import unbroken, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Template

    from eclosure.diagnose import Case, Diagnosis

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What the page may do. The last two make a script that writes markup fail instead of being trusted."""


def page(diagnosis: Diagnosis, cases: Sequence[Case], notes: Notes | None = None, *, policy: bool = True) -> str:
    """The whole page. Without its policy it must be just as safe; tests open it that way too."""
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only reports need

    notes = notes or Notes()
    script, style = _text("explorer.js"), _text("page.css")
    html: str = _template().render(
        diagnosis=diagnosis,
        notes=notes,
        validated=notes.validation is not None,
        not_validated=NOT_VALIDATED,
        headline=headline(diagnosis, notes),
        evidence=evidence_sentences(diagnosis),
        evidence_rates=evidence_rates(diagnosis),
        cautions=cautions(diagnosis, notes),
        agreement=agreement_sentences(notes)[:1],
        agreements=agreement_figures(notes),
        flips=flip_sentences(diagnosis),
        flow=flow_rows(flow(diagnosis)),
        rates=rate_plot(diagnosis, notes),
        compositions=composition_bars(diagnosis),
        tables=all_tables(diagnosis, notes),
        glossary=tuple(glossary()),
        against=notes.against,
        against_told=against_sentences(notes.against) if notes.against else (),
        against_tables=against_tables(notes.against) if notes.against else (),
        differences=difference_plot(notes.against.comparison) if notes.against else None,
        payload=make_payload(cases, notes.against.before(cases) if notes.against else None),
        policy=POLICY.format(script=_source_hash(script), style=_source_hash(style)) if policy else "",
        # These two are our own texts, not values.
        script=Markup(script),
        style=Markup(style),
    )
    return html


@cache
def _template() -> Template:
    from jinja2 import DictLoader, Environment, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=DictLoader({"page.html": _text("page.html")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Before anything is escaped, what acts without being seen is made visible.
        finalize=lambda value: unbroken(visible(value)) if type(value) is str else value,
    )
    environment.filters["thousands"] = "{:,}".format
    return environment.get_template("page.html")


@cache
def _text(name: str) -> str:
    return (files(__package__) / "texts" / name).read_text("utf-8")


def _source_hash(source: str) -> str:
    """As a policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")
