"""What a lead takes away: agreement so far, and all labels in one packed file."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.annotation.dashboard import AgreementLine
from eclose.annotation.project import guidelines
from eclose.annotation.results import agreement_report, project_annotations
from eclose.annotation.results.export import export
from eclose.annotation.results.formats import Format

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from eclose.annotation.project import Project
    from eclose.metrics.agreement import AgreementRow

RESAMPLES = 200
"""For a look; the command has the paper's 2,000."""


def agreement_so_far(connection: Connection) -> tuple[AgreementLine, ...]:
    """How far people agree, judgment by judgment; nothing before two have finished the same."""
    found = agreement_report.report(project_annotations.told(connection), resamples=RESAMPLES)
    rows: list[AgreementRow] = []
    if found.screening is not None:
        rows += [found.screening.overall.eligibility, found.screening.overall.reason]
    if found.responses is not None:
        rows += found.responses.rows
    return tuple(_line(row) for row in rows if row.n)


def _line(row: AgreementRow) -> AgreementLine:
    """An undefined coefficient is said to be so, and why."""
    alpha = agreement_report.undefined(row) if row.alpha.value is None else f"{row.alpha.value:.3f}"
    return AgreementLine(row.judgment, row.n, f"{100 * (row.raw.value or 0):.1f} %", alpha or "undefined")


def packed_export(connection: Connection, project: Project) -> bytes:
    """What ``eclose annotate export`` writes, as lines of JSON and as tables, people under other names."""
    told, material = project_annotations.told(connection), project_annotations.material(connection)
    settings = {"project": project.settings.name, "names": False, "guidelines": guidelines()}
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "labels"
        formats = (Format.JSONL, Format.CSV)
        export(told, out, stage="annotate export", settings=settings, material=material, formats=formats)
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(out.iterdir()):
                archive.write(path, f"labels/{path.name}")
    return packed.getvalue()
