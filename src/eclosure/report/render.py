"""All files of a report in one folder, each whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eclosure.report.html import page
from eclosure.report.junit import junit
from eclosure.report.latex import latex
from eclosure.report.markdown import markdown
from eclosure.report.notes import Notes
from eclosure.report.plain import diagnosis_json
from eclosure.store.atomic import AtomicFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclosure.diagnose import Case, Diagnosis


def write_all(
    diagnosis: Diagnosis, cases: Sequence[Case], folder: Path | str, notes: Notes | None = None
) -> dict[str, Path]:
    """The page, Markdown, JSON, JUnit XML and LaTeX, by the names of their files."""
    notes = notes or Notes()
    texts = {
        "report.html": page(diagnosis, cases, notes),
        "report.md": markdown(diagnosis, cases, notes),
        "diagnosis.json": diagnosis_json(diagnosis, notes),
        "junit.xml": junit(cases, notes),
        "tables.tex": latex(diagnosis, notes),
    }
    written = {}
    for name, text in texts.items():
        written[name] = Path(folder) / name
        with AtomicFile(written[name]) as file:
            file.write(text.encode())
    return written
