"""Files of an audit report: ``audit-report.json``, and blank forms for the families on which annotators disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic import TypeAdapter

from eclose.construction.audit.file_names import AUDIT_REPORT_FILE, AuditFormFormat
from eclose.construction.audit.forms import encode_audit_forms, read_filled_forms
from eclose.construction.audit.report import (
    AnnotatorAuditForms,
    AuditReport,
    build_audit_report,
    match_forms_to_families,
)
from eclose.construction.audit.sample import AuditKey, read_audit_key
from eclose.protocol.auditing import AUDIT_GUIDELINE_FILE
from eclose.protocol.prompts import load_prompt_text
from eclose.store.records.atomic import AtomicFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DISAGREEMENTS = "disagreements"


class DisagreementForms(NamedTuple):
    """Forms for a third person on the disputed families."""

    path: Path
    written: bool
    """False where the existing file has answers and was left as it is."""
    lacking: int = 0
    """Disputed families without a form in the existing file."""


class AuditReportFiles(NamedTuple):
    """The report of an audit and the files that were written."""

    path: Path
    key: AuditKey
    report: AuditReport
    disagreements: DisagreementForms | None
    same_guideline: bool
    """Whether the guideline that was handed out is that of this version."""


def write_audit_report(
    folder: Path, forms: Sequence[Path], adjudicated: Path | None = None, *, seed: int = 42, resamples: int = 2_000
) -> AuditReportFiles:
    """Write the report of an audit into its folder, and blank forms where annotators disagree.

    Args:
        folder: Folder with the key, ``audit.json``.
        forms: File of filled forms of each annotator.
        adjudicated: File of the third person's forms.
        seed: Seed of the bootstrap.
        resamples: Number of bootstrap resamples.
    """
    key = read_audit_key(folder)

    def read_sheet(path: Path) -> AnnotatorAuditForms:
        return match_forms_to_families(key, path, read_filled_forms(path))

    sheets = [read_sheet(path) for path in forms]
    third = None if adjudicated is None else read_sheet(adjudicated)
    report = build_audit_report(key, sheets, third, seed=seed, resamples=resamples)
    with AtomicFile(folder / AUDIT_REPORT_FILE) as file:
        file.write(TypeAdapter(AuditReport).dump_json(report, indent=1) + b"\n")
    # The third person gets the format that the annotators used.
    layout = AuditFormFormat.CSV if forms[0].suffix.lower() == ".csv" else AuditFormFormat.JSONL
    disagreements = _write_disagreements(folder / f"{DISAGREEMENTS}.{layout}", key, report, layout)
    same_guideline = key.guideline == load_prompt_text(AUDIT_GUIDELINE_FILE).hash
    return AuditReportFiles(folder / AUDIT_REPORT_FILE, key, report, disagreements, same_guideline)


def _write_disagreements(
    path: Path, key: AuditKey, report: AuditReport, layout: AuditFormFormat
) -> DisagreementForms | None:
    """Write blank forms of the disputed families, unless the file already has answers; None without a dispute."""
    if not report.disputed:
        return None
    third = key.annotators + 1
    blank = sorted(
        (item.form(third) for item in key.items if item.family_id in set(report.disputed)), key=lambda form: form.id
    )
    existing = read_filled_forms(path) if path.exists() else []
    if any(not form.blank or form.note for form in existing):
        ids = {form.id for form in existing}
        return DisagreementForms(path, written=False, lacking=sum(form.id not in ids for form in blank))
    with AtomicFile(path) as file:
        file.write(encode_audit_forms(blank, layout))
    return DisagreementForms(path, written=True)
