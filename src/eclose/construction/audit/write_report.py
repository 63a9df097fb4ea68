"""Files of an audit report: ``audit-report.json``, and blank forms for the families on which annotators disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic import TypeAdapter

from eclose.construction.audit.file_names import REPORT, FormFormat
from eclose.construction.audit.forms import encode_forms, read_forms
from eclose.construction.audit.report import AnnotatorForms, AuditReport, build_audit_report, match_forms
from eclose.construction.audit.sample import AuditKey, read_audit_key
from eclose.protocol.auditing import GUIDELINE
from eclose.protocol.prompts import load_text
from eclose.store.records.atomic import AtomicFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DISAGREEMENTS = "disagreements"


class DisagreementFile(NamedTuple):
    """Forms for a third person on the disputed families."""

    path: Path
    written: bool
    """False where the existing file has answers and was left as it is."""
    lacking: int = 0
    """Disputed families without a form in the existing file."""


class AuditFiles(NamedTuple):
    """The report of an audit and the files that were written."""

    path: Path
    key: AuditKey
    report: AuditReport
    disagreements: DisagreementFile | None
    same_guideline: bool
    """Whether the guideline that was handed out is that of this version."""


def report_audit(
    folder: Path, forms: Sequence[Path], adjudicated: Path | None = None, *, seed: int = 42, resamples: int = 2_000
) -> AuditFiles:
    """Write the report of an audit into its folder, and blank forms where annotators disagree.

    Args:
        folder: Folder with the key, ``audit.json``.
        forms: File of filled forms of each annotator.
        adjudicated: File of the third person's forms.
        seed: Seed of the bootstrap.
        resamples: Number of bootstrap resamples.
    """
    key = read_audit_key(folder)

    def read_sheet(path: Path) -> AnnotatorForms:
        return match_forms(key, path, read_forms(path))

    sheets = [read_sheet(path) for path in forms]
    third = None if adjudicated is None else read_sheet(adjudicated)
    report = build_audit_report(key, sheets, third, seed=seed, resamples=resamples)
    with AtomicFile(folder / REPORT) as file:
        file.write(TypeAdapter(AuditReport).dump_json(report, indent=1) + b"\n")
    # The third person gets the format that the annotators used.
    layout = FormFormat.CSV if forms[0].suffix.lower() == ".csv" else FormFormat.JSONL
    disagreements = _write_disagreements(folder / f"{DISAGREEMENTS}.{layout}", key, report, layout)
    same_guideline = key.guideline == load_text(GUIDELINE).hash
    return AuditFiles(folder / REPORT, key, report, disagreements, same_guideline)


def _write_disagreements(path: Path, key: AuditKey, report: AuditReport, layout: FormFormat) -> DisagreementFile | None:
    """Write blank forms of the disputed families, unless the file already has answers; None without a dispute."""
    if not report.disputed:
        return None
    third = key.annotators + 1
    blank = sorted(
        (item.form(third) for item in key.items if item.family_id in set(report.disputed)), key=lambda form: form.id
    )
    existing = read_forms(path) if path.exists() else []
    if any(not form.blank or form.note for form in existing):
        ids = {form.id for form in existing}
        return DisagreementFile(path, written=False, lacking=sum(form.id not in ids for form in blank))
    with AtomicFile(path) as file:
        file.write(encode_forms(blank, layout))
    return DisagreementFile(path, written=True)
