"""Export the verdicts of a judged run to a trace store or to a file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.calls.sync import iterate_async
from eclose.errors import SettingError
from eclose.files.atomic import AtomicFile
from eclose.files.parquet import ParquetWriter, import_pyarrow, list_arrow_fields
from eclose.files.tables import encode_csv, fit_column_type, infer_column_types, name_own_columns
from eclose.integrations.otlp import export_otlp_file
from eclose.integrations.scores import Delivery, DeliveryStatus, VerdictScoreTable, read_score_table
from eclose.integrations.stores import TRACE_STORES, send_scores
from eclose.readers.judged_run import LeftOutResponse

if TYPE_CHECKING:
    from eclose.integrations.scores import ScoredResponse, VerdictScore


# Scores as a CSV or Parquet table, a row for each response and metric.


COLUMNS = (
    "score_id", "response_id", "question_id", "model", "trace_id", "span_id", "name", "value", "label", "explanation",
    "unjudged", "judge", "guideline", "run", "version",
)  # fmt: skip
_ROW_GROUP = 1_000
"""Responses of one row group."""


class _OwnColumns:
    """The user's own columns of the responses of a table, behind those of the scores."""

    def __init__(self, table: VerdictScoreTable) -> None:
        rows = [row.columns for row in table.rows]
        self._names = name_own_columns(rows, COLUMNS)
        self._types = infer_column_types(rows)
        # A column that is null in every row has no type.
        self.types = {name: self._types.get(column, str) for column, name in self._names.items()}

    def fill(self, row: ScoredResponse) -> dict[str, Any]:
        """Return the cells of a response."""
        cells = ((name, row.columns.get(column)) for column, name in self._names.items())
        return {name: fit_column_type(value, self.types[name]) for name, value in cells}


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
    own = _OwnColumns(table)
    rows = (build_row(table, row, score) | own.fill(row) for row, score in table.iterate())
    with AtomicFile(Path(target)) as file:
        for line in encode_csv((*COLUMNS, *own.types), rows):
            file.write(line)
    yield from (Delivery(row.response_id, len(row.scores)) for row in table.rows)


def export_parquet(table: VerdictScoreTable, target: str) -> Iterator[Delivery]:
    """Write the scores as Parquet; an unjudged score has the value null and a reason."""
    arrow, _ = import_pyarrow()
    own = _OwnColumns(table)
    fields = [arrow.field(name, arrow.int8() if name == "value" else arrow.string()) for name in COLUMNS]
    schema = arrow.schema([*fields, *list_arrow_fields(own.types)])
    # Made and removed by AtomicFile's rules: a file appears under its name complete or not at all.
    path = Path(target)
    temporary = path.with_name(f".{path.name}.part")
    try:
        with ParquetWriter(temporary, schema) as writer:
            for rows in table.batch_rows(_ROW_GROUP):
                writer.write_rows(
                    [build_row(table, row, score) | own.fill(row) for row in rows for score in row.scores]
                )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    yield from (Delivery(row.response_id, len(row.scores)) for row in table.rows)


ExportObserver: TypeAlias = Callable[[Iterable[Delivery], int], Iterable[Delivery]]
"""A function of the deliveries and the number of scores; it yields the deliveries and may show progress."""


class ExportTarget(StrEnum):
    """Kind of target of an export."""

    OTLP = "otlp"
    MLFLOW = "mlflow"
    LANGFUSE = "langfuse"
    PHOENIX = "phoenix"
    LANGSMITH = "langsmith"
    CSV = "csv"
    PARQUET = "parquet"


_WRITERS = {ExportTarget.OTLP: export_otlp_file, ExportTarget.CSV: export_csv, ExportTarget.PARQUET: export_parquet}


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Counts of an export: scores that were sent, were present before, or were refused with a reason."""

    to: ExportTarget
    target: str
    """File or address."""
    responses: int
    scores: int
    sent: int
    present: int
    """Scores of an earlier export, which are not sent again."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Number of refused scores by reason."""
    refusals: tuple[tuple[str, str], ...] = ()
    """Id of each response with a refused score, and the reason."""
    unjudged: int = 0
    """Scores without a label, exported as errors with their reason."""
    without_span: int = 0
    """Responses without a trace id, exported under one that is derived from their own id."""
    left_out: tuple[LeftOutResponse, ...] = ()
    """Responses without a judgment, with the reason."""
    notices: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the target has every score."""
        return not self.refusals

    def __str__(self) -> str:
        """Return ``traces.jsonl: 420 scores of 60 responses = 420 sent + 0 present + 0 refused``."""
        refused = sum(self.refused.values())
        return (
            f"{self.target}: {self.scores:,} scores of {self.responses:,} responses = {self.sent:,} sent"
            f" + {self.present:,} present + {refused:,} refused"
        )


def export(
    run: Path | str,
    target: Path | str | None = None,
    *,
    to: ExportTarget | str,
    allow_stale: bool = False,
    environ: Mapping[str, str] | None = None,
    watch: ExportObserver | None = None,
) -> ExportResult:
    """Send the verdicts of a judged run to a trace store, or write them to a file.

    The ids of scores follow from run, response and metric, so a second export of the same run changes nothing.
    An unjudged label is sent as an error with its reason, never as 0.

    Args:
        run: Folder of a judged run.
        target: File (otlp, csv, parquet) or base URL of the store; by default the address in the environment, such as
            ``MLFLOW_TRACKING_URI`` or ``LANGFUSE_BASE_URL``.
        to: Kind of the target: otlp, mlflow, langfuse, phoenix, langsmith, csv or parquet.
        allow_stale: Use judgments that were made from other files than those in the folder.
        environ: Variables that hold keys and addresses; those of the process by default.
        watch: Called with the deliveries and the number of scores; passes the deliveries on.

    Returns:
        Counts of the scores that were sent, present before, or refused by the store, with reasons.

    Raises:
        SettingError: A key or the address is missing, or the address is refused.
        UserError: The folder holds no judged run, or the store cannot be reached.

    Examples:
        >>> result = eclose.export("demo", "scores.csv", to="csv")
        >>> result.responses, result.scores, result.sent
        (60, 420, 420)
    """
    environ = os.environ if environ is None else environ
    try:
        kind = ExportTarget(to)
    except ValueError:
        raise SettingError(f"to={to!r}: there is no such target. Use one of {', '.join(ExportTarget)}.") from None
    address = _find_address(kind, None if target is None else str(target), environ)
    table = read_score_table(Path(run), allow_stale=allow_stale)
    deliveries: Iterable[Delivery]
    if _is_url(address):
        deliveries = iterate_async(send_scores(TRACE_STORES[kind], table, address, environ))
    else:
        deliveries = _WRITERS[kind](table, address)
    if watch is not None:
        deliveries = watch(deliveries, table.score_count)
    return _count(kind, address, table, deliveries)


def _find_address(to: ExportTarget, target: str | None, environ: Mapping[str, str]) -> str:
    store = TRACE_STORES.get(to)
    variables = () if store is None else store.address_variables
    if (address := target or (None if store is None else store.find_address(environ))) is None:
        request = f"name the address, or set {' or '.join(variables)}" if store else "name the file to write"
        raise SettingError(f"--to {to}: {request}.")
    if store is None and _is_url(address):
        raise SettingError(f"--to {to}: is written to a file, not to a URL. Name a file.")
    if to not in _WRITERS and not _is_url(address):
        raise SettingError(f"--to {to}: {address!r} is no URL. Give the http:// or https:// address of the server.")
    return address


def _is_url(target: str) -> bool:
    return target.lower().startswith(("http://", "https://"))


def _count(to: ExportTarget, target: str, table: VerdictScoreTable, deliveries: Iterable[Delivery]) -> ExportResult:
    counts: Counter[DeliveryStatus] = Counter()
    refused: Counter[str] = Counter()
    refusals: dict[str, str] = {}
    for delivery in deliveries:
        counts[delivery.status] += delivery.scores
        if delivery.status is DeliveryStatus.REFUSED:
            refused[delivery.reason] += delivery.scores
            refusals.setdefault(delivery.response_id, delivery.reason)
    if counts.total() != table.score_count:
        raise AssertionError(f"scores are unaccounted for: {counts} of {table.score_count}")
    return ExportResult(
        to=to,
        target=target,
        responses=len(table.rows),
        scores=table.score_count,
        sent=counts[DeliveryStatus.SENT],
        present=counts[DeliveryStatus.PRESENT],
        refused=dict(refused),
        refusals=tuple(refusals.items()),
        unjudged=sum(score.unjudged is not None for _, score in table.iterate()),
        without_span=sum(row.derived for row in table.rows),
        left_out=table.left_out,
        notices=table.notices,
    )
