"""Export of a project's folder: its labels for other commands, or the filled forms of a family audit."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from eclose.errors import UserError
from eclose.files.atomic import AtomicFile, owner_only
from eclose.values.judgment import PEOPLE_JUDGE
from eclose_annotate.audit_tasks import read_project_audit_forms
from eclose_annotate.choices import AuditFormFormat, LabelExportFormat
from eclose_annotate.events import append_audit_event
from eclose_annotate.family_audit.forms import encode_audit_forms
from eclose_annotate.material_store import read_stored_material
from eclose_annotate.project import LEAD_NAME, guideline_hashes, open_annotation_project
from eclose_annotate.read import read_annotations
from eclose_annotate.results.export_files import (
    ANNOTATIONS,
    SCREENING_ANNOTATIONS,
    AnnotationExport,
    export_annotations,
)
from eclose_annotate.results.import_labels import read_label_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from eclose_annotate.annotations import AnnotationSet
    from eclose_annotate.family_audit.material import FamilyAuditForm
    from eclose_annotate.project import AnnotationProject


class ProjectExport(NamedTuple):
    """The files of an export: labels, or the forms of a family audit."""

    labels: AnnotationExport | None
    """None for a family audit."""
    forms: Mapping[Path, int]
    """Number of forms in each file of a family audit."""


@owner_only()
def export_project(
    folder: Path,
    out: Path,
    *,
    formats: Sequence[LabelExportFormat] = (LabelExportFormat.JSONL,),
    names: bool = False,
    judge: str = PEOPLE_JUDGE,
) -> ProjectExport:
    """Write the labels of a project into the folder ``out``, and record the export in the project's log.

    With ``names``, people have their names instead of A1, A2, S1. Settled judgments are those of ``judge``.
    """
    with closing(open_annotation_project(folder)) as project:
        with project.reading() as connection:
            if forms := read_project_audit_forms(connection):
                return ProjectExport(None, _write_forms(out, forms))
            result = export_labels(connection, project, out, formats, names=names, judge=judge)
        # The files tell who gave which label to which model.
        if not result.again:
            with project.writing() as connection:
                detail = {"files": dict(result.manifest.outputs), "names": names}
                append_audit_event(connection, LEAD_NAME, "exported", detail=detail)
    return ProjectExport(result, {})


def export_labels(
    connection: Connection,
    project: AnnotationProject,
    out: Path,
    formats: Sequence[LabelExportFormat],
    *,
    names: bool = False,
    judge: str = PEOPLE_JUDGE,
) -> AnnotationExport:
    """Write the labels of a project into a folder."""
    return export_annotations(
        read_annotations(connection, names=names),
        out,
        stage="annotate export",
        settings={"project": project.settings.name, "names": names, "guidelines": guideline_hashes()},
        material=read_stored_material(connection),
        judge=judge,
        formats=formats,
    )


def _write_forms(out: Path, forms_by_annotator: Mapping[int, Sequence[FamilyAuditForm]]) -> dict[Path, int]:
    """Write the forms of a family audit as ``eclose annotate audit report`` reads them.

    Raises:
        UserError: A file of that name holds other forms.
    """
    texts = {
        out / f"forms-{number}.jsonl": encode_audit_forms(forms, AuditFormFormat.JSONL)
        for number, forms in forms_by_annotator.items()
    }
    for path, text in texts.items():
        if path.exists() and path.read_bytes() != text:
            raise UserError(f"{path}: holds other forms, which are never overwritten. Name another --out.")
    for path, text in texts.items():
        with AtomicFile(path) as file:
            file.write(text)
    return {out / f"forms-{number}.jsonl": len(forms) for number, forms in forms_by_annotator.items()}


def load_annotations(path: Path) -> AnnotationSet:
    """Return the annotations in the folder of a project, in an export of one, or in a file."""
    if not path.is_dir():
        return read_label_files([path]).annotations
    # An export has these files; the folder of a project has neither.
    if files := [path / name for name in (ANNOTATIONS, SCREENING_ANNOTATIONS) if (path / name).is_file()]:
        return read_label_files(files).annotations
    with closing(open_annotation_project(path)) as project, project.reading() as connection:
        return read_annotations(connection)
