"""All files of a report in one folder, each whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eclose.diagnosis.report.context import Notes
from eclose.diagnosis.report.formats import Written
from eclose.diagnosis.report.html import page
from eclose.diagnosis.report.junit import junit
from eclose.diagnosis.report.latex import latex
from eclose.diagnosis.report.markdown import markdown
from eclose.diagnosis.report.plots.figures import figures, figures_missing
from eclose.diagnosis.report.to_json import diagnosis_json
from eclose.store.records.atomic import AtomicFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from eclose.diagnosis.diagnose import Case, Diagnosis

FIGURES = "figures"
"""A folder within the report's."""


def write_all(
    diagnosis: Diagnosis,
    cases: Sequence[Case],
    folder: Path | str,
    notes: Notes | None = None,
    formats: Collection[Written] = tuple(Written),
) -> dict[str, Path]:
    """The page, Markdown, JSON, JUnit XML, LaTeX and figures, by the names of their files.

    Figures are left out without matplotlib; ``figures_missing`` says so in a sentence.
    """
    notes = notes or Notes()
    texts: dict[Written, tuple[str, Callable[[], str]]] = {
        Written.HTML: ("report.html", lambda: page(diagnosis, cases, notes)),
        Written.MARKDOWN: ("report.md", lambda: markdown(diagnosis, cases, notes)),
        Written.JSON: ("diagnosis.json", lambda: diagnosis_json(diagnosis, notes)),
        Written.JUNIT: ("junit.xml", lambda: junit(cases, notes)),
        Written.LATEX: ("tables.tex", lambda: latex(diagnosis, notes)),
    }
    files = {name: make().encode() for kind, (name, make) in texts.items() if kind in formats}
    if Written.FIGURES in formats and figures_missing() is None:
        files |= {f"{FIGURES}/{name}": data for name, data in figures(diagnosis, notes).items()}
    written = {}
    for name, data in files.items():
        written[name] = Path(folder) / name
        with AtomicFile(written[name]) as file:
            file.write(data)
    return written
