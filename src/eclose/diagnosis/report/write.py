"""The files of a report, in one folder. Each file is written completely or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eclose.diagnosis.report.context import ReportContext
from eclose.diagnosis.report.explorer.filters import RunSample
from eclose.diagnosis.report.file_formats import ReportFormat
from eclose.diagnosis.report.html import render_report_page
from eclose.diagnosis.report.junit_responses import render_responses_junit
from eclose.diagnosis.report.latex import render_latex_report
from eclose.diagnosis.report.markdown import render_markdown_report
from eclose.diagnosis.report.plots.figures import draw_report_figures, explain_missing_figures
from eclose.diagnosis.report.to_json import render_diagnosis_json
from eclose.store.records.atomic import write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from eclose.diagnosis.diagnose import Diagnosis, JudgedCase

FIGURES_FOLDER = "figures"
"""Folder of the figures within the report's folder."""


def write_report_files(
    diagnosis: Diagnosis,
    cases: Sequence[JudgedCase] | RunSample,
    folder: Path | str,
    context: ReportContext | None = None,
    formats: Collection[ReportFormat] = tuple(ReportFormat),
) -> dict[str, Path]:
    """Write the page, Markdown, JSON, JUnit XML, LaTeX and figures; return their paths by file name.

    Figures are skipped without matplotlib; ``explain_missing_figures`` returns the reason. With a sample instead of all
    responses, JUnit XML lists the sample too.
    """
    context = context or ReportContext()
    listed = cases.cases if isinstance(cases, RunSample) else cases
    texts: dict[ReportFormat, tuple[str, Callable[[], str]]] = {
        ReportFormat.HTML: ("report.html", lambda: render_report_page(diagnosis, cases, context)),
        ReportFormat.MARKDOWN: ("report.md", lambda: render_markdown_report(diagnosis, listed, context)),
        ReportFormat.JSON: ("diagnosis.json", lambda: render_diagnosis_json(diagnosis, context)),
        ReportFormat.JUNIT: ("junit.xml", lambda: render_responses_junit(listed, context)),
        ReportFormat.LATEX: ("tables.tex", lambda: render_latex_report(diagnosis, context)),
    }
    # Render everything before the first write: an error leaves an old report untouched.
    files = {name: make().encode() for kind, (name, make) in texts.items() if kind in formats}
    if ReportFormat.FIGURES in formats and explain_missing_figures() is None:
        files |= {f"{FIGURES_FOLDER}/{name}": data for name, data in draw_report_figures(diagnosis, context).items()}
    return write_files(Path(folder), files)
