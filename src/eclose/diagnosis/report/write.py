"""All files of a report in one folder, each whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eclose.diagnosis.report.context import ReportContext
from eclose.diagnosis.report.formats import ReportFormat
from eclose.diagnosis.report.html import render_page
from eclose.diagnosis.report.junit import render_junit
from eclose.diagnosis.report.latex import render_latex
from eclose.diagnosis.report.markdown import render_markdown
from eclose.diagnosis.report.plots.figures import draw_figures, explain_missing_figures
from eclose.diagnosis.report.to_json import render_json
from eclose.store.records.atomic import AtomicFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from eclose.diagnosis.diagnose import Case, Diagnosis

FIGURES = "figures"
"""A folder within the report's."""


def write_report(
    diagnosis: Diagnosis,
    cases: Sequence[Case],
    folder: Path | str,
    notes: ReportContext | None = None,
    formats: Collection[ReportFormat] = tuple(ReportFormat),
) -> dict[str, Path]:
    """The page, Markdown, JSON, JUnit XML, LaTeX and figures, by the names of their files.

    Figures are left out without matplotlib; ``explain_missing_figures`` says so in a sentence.
    """
    notes = notes or ReportContext()
    texts: dict[ReportFormat, tuple[str, Callable[[], str]]] = {
        ReportFormat.HTML: ("report.html", lambda: render_page(diagnosis, cases, notes)),
        ReportFormat.MARKDOWN: ("report.md", lambda: render_markdown(diagnosis, cases, notes)),
        ReportFormat.JSON: ("diagnosis.json", lambda: render_json(diagnosis, notes)),
        ReportFormat.JUNIT: ("junit.xml", lambda: render_junit(cases, notes)),
        ReportFormat.LATEX: ("tables.tex", lambda: render_latex(diagnosis, notes)),
    }
    files = {name: make().encode() for kind, (name, make) in texts.items() if kind in formats}
    if ReportFormat.FIGURES in formats and explain_missing_figures() is None:
        files |= {f"{FIGURES}/{name}": data for name, data in draw_figures(diagnosis, notes).items()}
    written = {}
    for name, data in files.items():
        written[name] = Path(folder) / name
        with AtomicFile(written[name]) as file:
            file.write(data)
    return written
