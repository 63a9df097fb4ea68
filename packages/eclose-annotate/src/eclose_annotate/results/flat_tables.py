"""Annotations as flat tables for CSV and Parquet: one row per label, annotation or step.

The tables hold what the JSON Lines files hold, except for free text of judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from eclose.files.parquet import ParquetWriter, import_pyarrow
from eclose.files.tables import CsvCell

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.values.verdict import Verdict
    from eclose_annotate.annotations import Annotation, AnnotationSet
    from eclose_annotate.results.final_labels import SettledLabel

Columns: TypeAlias = Mapping[str, type[str] | type[int] | type[bool]]
"""Types of columns by name."""

LABEL_COLUMNS = ("locally_sound", "aligned", "closed", "complete", "correct")
_SUBJECT: Columns = {"response_id": str, "question_id": str, "benchmark": str, "model": str, "method": str, "seed": int}
_PERSON: Columns = {"annotator": str, "adjudicates": bool}
_LABELS: Columns = dict.fromkeys(LABEL_COLUMNS, bool)
_LABEL_COLUMNS: Columns = {
    **_SUBJECT,
    **_LABELS,
    "globally_sufficient": bool,
    "in_gap": bool,
    "failure_class": str,
    "trace_group": str,
    "origin": str,
    "triggers": str,
    "annotators": str,
    "adjudicator": str,
}
_ANNOTATION_COLUMNS: Columns = {
    **_SUBJECT,
    "kind": str,
    "asked": int,
    **_PERSON,
    **_LABELS,
    "reference_seen_before": bool,
}
_STEP_COLUMNS: Columns = {
    "response_id": str,
    **_PERSON,
    "step": int,
    "substantive": bool,
    "sound": bool,
    "failure": str,
}
_SCREENING_COLUMNS: Columns = {"question_id": str, "benchmark": str, "eligible": bool, "code": str}
_SCREENING_ANNOTATION_COLUMNS: Columns = {
    "question_id": str,
    "benchmark": str,
    "asked": int,
    **_PERSON,
    "eligible": bool,
    "code": str,
}

_BATCH = 10_000
"""Rows per Parquet row group."""
_ARROW_TYPES = {str: "string", int: "int64", bool: "bool_"}


@dataclass(frozen=True, slots=True)
class FlatLabelTable:
    """A table with the types of its columns."""

    name: str
    columns: Columns
    rows: Callable[[], Iterator[dict[str, CsvCell]]]
    """Yields the rows again with every call, so that each format can stream them."""


def build_flat_label_tables(
    annotations: AnnotationSet, labels: Callable[[], Iterator[SettledLabel]]
) -> list[FlatLabelTable]:
    """Return the tables of responses and of questions, as far as there are any."""
    tables = []
    if annotations.responses:
        tables += [
            FlatLabelTable("labels", _LABEL_COLUMNS, lambda: map(_label_row, labels())),
            FlatLabelTable("annotations", _ANNOTATION_COLUMNS, lambda: _annotation_rows(annotations)),
            FlatLabelTable("steps", _STEP_COLUMNS, lambda: _step_rows(annotations)),
        ]
    if annotations.questions:
        tables += [
            FlatLabelTable("screening", _SCREENING_COLUMNS, lambda: _screening_rows(annotations)),
            FlatLabelTable(
                "screening-annotations",
                _SCREENING_ANNOTATION_COLUMNS,
                lambda: _screening_annotation_rows(annotations),
            ),
        ]
    return tables


def write_parquet_table(path: Path, table: FlatLabelTable) -> None:
    """Write a table in batches, in constant memory."""
    arrow, _ = import_pyarrow()
    schema = arrow.schema([(name, getattr(arrow, _ARROW_TYPES[kind])()) for name, kind in table.columns.items()])
    rows = table.rows()
    with ParquetWriter(path, schema) as file:
        while batch := list(islice(rows, _BATCH)):
            file.write_rows(batch)


def _subject_cells(record: Annotation | SettledLabel) -> dict[str, CsvCell]:
    source = record.source
    return {
        "response_id": record.response_id,
        "question_id": record.question_id,
        "benchmark": record.benchmark,
        "model": None if source is None else source.model,
        "method": None if source is None else source.method,
        "seed": None if source is None else source.seed,
    }


def _label_cells(verdict: Verdict) -> dict[str, CsvCell]:
    return {name: getattr(verdict, name) for name in LABEL_COLUMNS}


def _label_row(label: SettledLabel) -> dict[str, CsvCell]:
    verdict = label.verdict
    failure, group = verdict.failure_class, verdict.trace_group
    return {
        **_subject_cells(label),
        **_label_cells(verdict),
        "globally_sufficient": verdict.globally_sufficient,
        "in_gap": verdict.in_gap,
        "failure_class": None if failure is None else failure.value,
        "trace_group": None if group is None else group.value,
        "origin": label.origin.value,
        "triggers": " ".join(label.triggers),
        "annotators": " ".join(label.annotators),
        "adjudicator": label.adjudicator,
    }


def _annotation_rows(annotations: AnnotationSet) -> Iterator[dict[str, CsvCell]]:
    for record in (record for response in annotations.responses for record in response.records):
        cells: dict[str, CsvCell] = {**_subject_cells(record), "kind": record.kind.value, "asked": record.asked}
        # The single row of a response without a finished annotation: counts in = counts out.
        if record.judgment is None:
            yield cells
            continue
        yield {
            **cells,
            "annotator": record.annotator,
            "adjudicates": record.adjudicates,
            **_label_cells(record.judgment.verdict),
            "reference_seen_before": record.reference_seen_before,
        }


def _step_rows(annotations: AnnotationSet) -> Iterator[dict[str, CsvCell]]:
    for record in (record for response in annotations.responses for record in response.records):
        for number, step in enumerate(() if record.judgment is None else record.judgment.steps, start=1):
            yield {
                "response_id": record.response_id,
                "annotator": record.annotator,
                "adjudicates": record.adjudicates,
                "step": number,
                "substantive": step.substantive,
                "sound": step.sound,
                "failure": None if step.failure is None else step.failure.value,
            }


def _screening_rows(annotations: AnnotationSet) -> Iterator[dict[str, CsvCell]]:
    for question in annotations.questions:
        if (final := question.final) is not None:
            code = None if final.code is None else final.code.value
            cells: dict[str, CsvCell] = {"question_id": question.question_id, "benchmark": question.benchmark}
            yield {**cells, "eligible": final.eligible, "code": code}


def _screening_annotation_rows(annotations: AnnotationSet) -> Iterator[dict[str, CsvCell]]:
    for record in (record for question in annotations.questions for record in question.records):
        cells: dict[str, CsvCell] = {
            "question_id": record.question_id,
            "benchmark": record.benchmark,
            "asked": record.asked,
        }
        if (screening := record.screening) is not None:
            code = None if screening.code is None else screening.code.value
            cells |= {"annotator": record.annotator, "adjudicates": record.adjudicates}
            cells |= {"eligible": screening.eligible, "code": code}
        yield cells
