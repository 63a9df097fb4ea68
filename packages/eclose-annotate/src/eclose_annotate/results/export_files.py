"""Export of annotations: a folder of files that other commands read.

The folder appears complete or not at all. An existing export is never overwritten: exporting the same labels again does
nothing, and exporting others raises.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile, sync_folder
from eclose.files.jsonl import write_records
from eclose.files.manifest import Manifest, hash_file, hash_files, read_manifest
from eclose.files.outcome_counts import RecordCounts
from eclose.files.parquet import import_pyarrow
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE, SCREENING_FILE
from eclose.files.tables import encode_csv
from eclose.values.judgment import PEOPLE_JUDGE
from eclose_annotate.choices import LabelExportFormat
from eclose_annotate.results.final_labels import (
    collect_final_judgments,
    collect_final_labels,
    collect_final_verdicts,
    collect_question_screenings,
)
from eclose_annotate.results.flat_tables import build_flat_label_tables, write_parquet_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from eclose_annotate.annotations import AnnotationSet, QuestionAnnotations, ResponseAnnotations
    from eclose_annotate.material_store import AnnotationMaterial


ANNOTATIONS, SCREENING_ANNOTATIONS = "annotations.jsonl", "screening-annotations.jsonl"
"""Annotations of each person."""
LABELS, VERDICTS = "labels.jsonl", "verdicts.jsonl"
"""Final labels."""
OPEN, INELIGIBLE_RESPONSES, MANIFEST = "open.jsonl", "ineligible.jsonl", "manifest.json"
DRAFTS = "drafts.jsonl"
"""Unfinished work of people whose tasks went to others."""
TIMES = "times.jsonl"
"""Times of each person for each pass."""


@dataclass(frozen=True, slots=True)
class AnnotationExport:
    """An exported folder."""

    manifest: Manifest
    again: bool
    """Whether the folder held the same export before."""


def export_annotations(
    annotations: AnnotationSet,
    out: Path,
    *,
    stage: str,
    settings: Mapping[str, Any],
    inputs: Mapping[str, str] | None = None,
    material: AnnotationMaterial | None = None,
    judge: str = PEOPLE_JUDGE,
    formats: Collection[LabelExportFormat] = (LabelExportFormat.JSONL,),
) -> AnnotationExport:
    """Write the files of an export; with ``material`` the folder is a run that ``eclose diagnose`` reads."""
    if LabelExportFormat.PARQUET in formats:
        import_pyarrow()  # raises where it is missing, before any file is written
    # Before the work, so that a refusal is quick; _find_same below decides again with the written files.
    _check_output(out)
    with _temporary_folder(out) as folder:
        if LabelExportFormat.JSONL in formats:
            _write_jsonl(folder, annotations, material, judge)
        _write_tables(folder, annotations, formats)
        funnel = _count_funnel(annotations)
        parameters = {**settings, "judge": judge, "formats": sorted(formats)}
        # Hashed before the manifest exists, which is not an output itself.
        outputs = hash_files(sorted(folder.iterdir()))
        manifest = Manifest(
            stage=stage,
            settings=parameters,
            inputs=dict(inputs or {}),
            outputs=outputs,
            counts=next(iter(funnel.values())),
            funnel=funnel,
        )
        if (existing := _find_same(out, outputs)) is not None:
            return AnnotationExport(existing, again=True)
        manifest.write(folder / MANIFEST)
        # Atomic: replaces an empty folder, fails on any other.
        os.rename(folder, out)
        sync_folder(out.parent)
    return AnnotationExport(manifest, again=False)


def _write_jsonl(folder: Path, annotations: AnnotationSet, material: AnnotationMaterial | None, judge: str) -> None:
    if annotations.responses:
        rows = (record for response in annotations.responses for record in response.records)
        write_records(folder / ANNOTATIONS, rows)
        write_records(folder / JUDGMENTS_FILE, collect_final_judgments(annotations, judge))
        write_records(folder / VERDICTS, collect_final_verdicts(annotations))
        write_records(folder / LABELS, collect_final_labels(annotations))
    if annotations.questions:
        screenings = (record for question in annotations.questions for record in question.records)
        write_records(folder / SCREENING_ANNOTATIONS, screenings)
        write_records(folder / SCREENING_FILE, collect_question_screenings(annotations, judge))
    _write_lines(folder / OPEN, _open_lines(annotations, ineligible=False))
    if any(response.ineligible for response in annotations.responses):
        _write_lines(folder / INELIGIBLE_RESPONSES, _open_lines(annotations, ineligible=True))
    if annotations.set_aside:
        write_records(folder / DRAFTS, annotations.set_aside)
    if annotations.times:
        write_records(folder / TIMES, annotations.times)
    if material is not None:
        responses = [material.responses[response.response_id] for response in annotations.eligible_responses]
        answered = [response.instance_id for response in responses]
        # Each question once, those of responses first.
        questions = dict.fromkeys(answered + [question.question_id for question in annotations.questions])
        write_records(folder / INSTANCES_FILE, (material.instances[question] for question in questions))
        write_records(folder / RESPONSES_FILE, responses)


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    with AtomicFile(path) as file:
        for line in lines:
            file.write(json.dumps(line).encode() + b"\n")


def _open_lines(annotations: AnnotationSet, *, ineligible: bool) -> Iterator[dict[str, str]]:
    """Yield the responses to ineligible questions, or all others without final labels, with the reason."""
    for response in annotations.responses:
        if response.ineligible is ineligible and (reason := response.open_reason) is not None:
            yield {"response_id": response.response_id, "question_id": response.question_id, "reason": reason}
    for question in () if ineligible else annotations.questions:
        if (reason := question.open_reason) is not None:
            yield {"question_id": question.question_id, "reason": reason}


def _write_tables(folder: Path, annotations: AnnotationSet, formats: Collection[LabelExportFormat]) -> None:
    for table in build_flat_label_tables(annotations, lambda: collect_final_labels(annotations)):
        if LabelExportFormat.CSV in formats:
            with AtomicFile(folder / f"{table.name}.csv") as file:
                for row in encode_csv(list(table.columns), table.rows()):
                    file.write(row)
        if LabelExportFormat.PARQUET in formats:
            write_parquet_table(folder / f"{table.name}.parquet", table)


def _count_funnel(annotations: AnnotationSet) -> dict[str, RecordCounts]:
    """Count responses and questions: received = settled + open + ineligible."""
    groups: dict[str, Sequence[ResponseAnnotations] | Sequence[QuestionAnnotations]] = {
        "responses": annotations.responses,
        "questions": annotations.questions,
    }
    funnel = {name: _count_settled(subjects) for name, subjects in groups.items() if subjects}
    if not funnel:
        raise UserError("there is nothing to export: no tasks were assigned. Assign them with: eclose annotate assign")
    return funnel


def _count_settled(subjects: Iterable[ResponseAnnotations | QuestionAnnotations]) -> RecordCounts:
    reasons = Counter(subject.open_reason for subject in subjects)
    settled = reasons.pop(None, 0)
    unsettled = {str(reason): count for reason, count in reasons.items()}
    return RecordCounts(settled + sum(unsettled.values()), settled, unsettled)


_REFUSAL = "Write to another folder, or move this one away."


def _check_output(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise SettingError(f"{out}: is a file. Name a folder with --out.")
    if out.is_dir() and any(out.iterdir()) and not (out / MANIFEST).is_file():
        raise UserError(f"{out}: is not empty and holds no export (no {MANIFEST}). {_REFUSAL}")


def _find_same(out: Path, outputs: Mapping[str, str]) -> Manifest | None:
    """Return the manifest of an existing, unchanged export of the same files; None where the folder is empty."""
    if not (out / MANIFEST).is_file():
        return None
    manifest = read_manifest(out / MANIFEST)
    if manifest.outputs != outputs:
        raise UserError(f"{out}: holds an export of other labels or formats. {_REFUSAL}")
    for name, expected in outputs.items():
        if not (out / name).is_file() or hash_file(out / name) != expected:
            raise UserError(f"{out}: {name} was changed after the export. {_REFUSAL}")
    return manifest


@contextmanager
def _temporary_folder(out: Path) -> Iterator[Path]:
    """Yield a new folder beside ``out`` and delete it at the end, unless it was renamed."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = out.with_name(f".{out.name}.{token_hex(8)}")
        folder.mkdir()  # unlike tempfile, with the permissions of the umask
        try:
            yield folder
        finally:
            # After a rename the folder is gone, and after an error its remains are.
            rmtree(folder, ignore_errors=True)
    except OSError as error:
        problem = f"cannot be written here ({error.strerror or error})"
        raise UserError(f"{out}: {problem}. Choose another folder, or free disk space.") from error
