"""Scores as a CSV or Parquet table, a row for each response and metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.integrations.export.scores import Delivery
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.csv_table import encode_csv
from eclose.store.records.parquet import ParquetWriter, import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.integrations.export.scores import ScoredResponse, VerdictScore, VerdictScoreTable

COLUMNS = (
    "score_id", "response_id", "question_id", "model", "trace_id", "span_id", "name", "value", "label", "explanation",
    "unjudged", "judge", "guideline", "run", "version",
)  # fmt: skip
_ROW_GROUP = 1_000
"""Responses of one row group."""


def build_row(table: VerdictScoreTable, row: ScoredResponse, score: VerdictScore) -> dict[str, Any]:
    """Return one row; a trace id that was derived from the response's id is left out."""
    return {
        "score_id": score.id,
        "response_id": row.response_id,
        "question_id": row.instance_id,
        "model": row.model,
        "trace_id": None if row.derived else row.trace_id,
        "span_id": None if row.derived else row.span_id,
        "name": str(score.name),
        "value": score.number,
        "label": score.label,
        "explanation": score.explanation,
        "unjudged": score.unjudged,
        "judge": row.judge,
        "guideline": score.guideline,
        "run": table.run_id,
        "version": table.version,
    }


def export_csv(table: VerdictScoreTable, target: str) -> Iterator[Delivery]:
    """Write the scores as CSV; an unjudged score has an empty value and a reason."""
    rows = (build_row(table, row, score) for row, score in table.iterate())
    with AtomicFile(Path(target)) as file:
        for line in encode_csv(COLUMNS, rows):
            file.write(line)
    yield from (Delivery(row.response_id, len(row.scores)) for row in table.rows)


def export_parquet(table: VerdictScoreTable, target: str) -> Iterator[Delivery]:
    """Write the scores as Parquet; an unjudged score has the value null and a reason."""
    arrow, _ = import_pyarrow()
    schema = arrow.schema([(name, arrow.int8() if name == "value" else arrow.string()) for name in COLUMNS])
    # Made and removed by AtomicFile's rules: a file appears under its name complete or not at all.
    path = Path(target)
    temporary = path.with_name(f".{path.name}.part")
    try:
        with ParquetWriter(temporary, schema) as writer:
            for rows in table.batch_rows(_ROW_GROUP):
                writer.write_rows([build_row(table, row, score) for row in rows for score in row.scores])
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    yield from (Delivery(row.response_id, len(row.scores)) for row in table.rows)
