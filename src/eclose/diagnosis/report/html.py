"""The report as an HTML page: one file that needs no network, no server and no other file.

The template escapes every value, and the data of the explorer never becomes markup. A content security policy allows
only the script and the style of the page, by their hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.report import summary
from eclose.diagnosis.report.comparison import describe_comparison, tabulate_comparison
from eclose.diagnosis.report.context import NOT_VALIDATED, ReportContext
from eclose.diagnosis.report.explorer_data import make_payload
from eclose.diagnosis.report.headline import build_headline
from eclose.diagnosis.report.html_template import page_text, source_hash, template
from eclose.diagnosis.report.plots.layout import layout_compositions, layout_differences, layout_flow, layout_rates
from eclose.diagnosis.report.table import build_tables, list_glossary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.diagnosis.diagnose import Case, Diagnosis

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content security policy. With the last two directives, a script that writes markup fails."""


def render_page(
    diagnosis: Diagnosis, cases: Sequence[Case], context: ReportContext | None = None, *, policy: bool = True
) -> str:
    """Return the page. Without its policy it must be just as safe, and tests open it that way as well."""
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only reports need

    context = context or ReportContext()
    # Inline: the page must work from a mail attachment or an artefact store.
    script, style = page_text("explorer.js"), page_text("page.css")
    html: str = template("page.html").render(
        diagnosis=diagnosis,
        context=context,
        validated=context.validated,
        not_validated=NOT_VALIDATED,
        headline=build_headline(diagnosis, context),
        evidence=summary.describe_evidence(diagnosis),
        evidence_rates=summary.list_evidence_rates(diagnosis),
        evidence_note=summary.EVIDENCE_NOTE if context.corrected else "",
        cautions=summary.list_cautions(diagnosis, context),
        # The second sentence lists all labels; the page has a table for these.
        agreement=summary.describe_agreement(context)[:1],
        agreements=summary.list_agreement(context),
        flips=summary.describe_flips(diagnosis),
        flow=layout_flow(summary.build_flow(diagnosis)),
        rates=layout_rates(diagnosis, context),
        compositions=layout_compositions(diagnosis),
        tables=build_tables(diagnosis, context),
        glossary=tuple(list_glossary()),
        base=context.base,
        base_sentences=describe_comparison(context.base) if context.base else (),
        base_tables=tabulate_comparison(context.base) if context.base else (),
        differences=layout_differences(context.base.comparison) if context.base else None,
        payload=make_payload(cases, context.base.before(cases) if context.base else None),
        policy=POLICY.format(script=source_hash(script), style=source_hash(style)) if policy else "",
        # Part of the package, not values from files: inserted without escaping.
        script=Markup(script),
        style=Markup(style),
    )
    return html
