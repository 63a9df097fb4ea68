"""The files of a report, in one folder. Each file is written completely or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eclose.files.atomic import write_files
from eclose.files.run_folder import REPORT_PAGE
from eclose.report.context import ReportContext
from eclose.report.explorer import RunSample
from eclose.report.figures import draw_report_figures, explain_missing_figures
from eclose.report.formats.file_formats import ReportFormat
from eclose.report.formats.html_page import render_report_page
from eclose.report.formats.json_file import render_diagnosis_json
from eclose.report.formats.junit import render_responses_junit
from eclose.report.formats.latex import render_latex_report
from eclose.report.formats.markdown import render_markdown_report

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
        ReportFormat.HTML: (REPORT_PAGE, lambda: render_report_page(diagnosis, cases, context)),
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
