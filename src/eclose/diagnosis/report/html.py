"""The page: one file that needs no network, no server and no other file.

The template escapes every value it is given; the explorer's data never becomes markup at all. A policy in the page
allows the one script and the one style it came with, by their hashes, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.report.comparison import comparison_sentences, comparison_tables
from eclose.diagnosis.report.context import NOT_VALIDATED, ReportContext
from eclose.diagnosis.report.explorer_data import make_payload
from eclose.diagnosis.report.headline import headline_items
from eclose.diagnosis.report.html_template import page_text, source_hash, template
from eclose.diagnosis.report.plots.layout import composition_bars, difference_plot, flow_rows, rate_plot
from eclose.diagnosis.report.summary import (
    EVIDENCE_NOTE,
    agreement_figures,
    agreement_sentences,
    caution_sentences,
    evidence_rates,
    evidence_sentences,
    flip_sentences,
    flow_stages,
)
from eclose.diagnosis.report.table import all_tables, glossary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.diagnosis.diagnose import Case, Diagnosis

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What the page may do. The last two make a script that writes markup fail instead of being trusted."""


def render_page(
    diagnosis: Diagnosis, cases: Sequence[Case], notes: ReportContext | None = None, *, policy: bool = True
) -> str:
    """The whole page. Without its policy it must be just as safe; tests open it that way too."""
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only reports need

    notes = notes or ReportContext()
    script, style = page_text("explorer.js"), page_text("page.css")
    html: str = template("page.html").render(
        diagnosis=diagnosis,
        notes=notes,
        validated=notes.validated,
        not_validated=NOT_VALIDATED,
        headline=headline_items(diagnosis, notes),
        evidence=evidence_sentences(diagnosis),
        evidence_rates=evidence_rates(diagnosis),
        evidence_note=EVIDENCE_NOTE if notes.corrected else "",
        cautions=caution_sentences(diagnosis, notes),
        agreement=agreement_sentences(notes)[:1],
        agreements=agreement_figures(notes),
        flips=flip_sentences(diagnosis),
        flow=flow_rows(flow_stages(diagnosis)),
        rates=rate_plot(diagnosis, notes),
        compositions=composition_bars(diagnosis),
        tables=all_tables(diagnosis, notes),
        glossary=tuple(glossary()),
        against=notes.against,
        against_told=comparison_sentences(notes.against) if notes.against else (),
        against_tables=comparison_tables(notes.against) if notes.against else (),
        differences=difference_plot(notes.against.comparison) if notes.against else None,
        payload=make_payload(cases, notes.against.before(cases) if notes.against else None),
        policy=POLICY.format(script=source_hash(script), style=source_hash(style)) if policy else "",
        # These two are our own texts, not values.
        script=Markup(script),
        style=Markup(style),
    )
    return html
