"""Rows of a table with the labels of their responses as further columns."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from eclose.calls.http.failures import CallFailure
from eclose.calls.model import CallContext
from eclose.calls.prices import MILLION
from eclose.calls.progress_line import show_run_progress
from eclose.calls.record_loop import RunProgress
from eclose.diagnosis.label_file import (
    FLAG_COLUMNS,
    RECORD_COLUMNS,
    describe_labels,
    label_schema,
    name_requested_reason,
)
from eclose.diagnosis.label_table import CONTEXT_COLUMNS, OWN_PREFIX
from eclose.errors import RecordError, SettingError
from eclose.files.tables import iterate_table_rows, make_plain, read_row_columns
from eclose.judging.judge_response import judge_response
from eclose.judging.run import JUDGE_JOB
from eclose.readers.judged_run import JudgedCase
from eclose.readers.load import NO_RESPONSE, convert_row
from eclose.values.identity import content_hash
from eclose.values.instance import Instance
from eclose.values.judgment import Criterion, Judgment
from eclose.values.response import Response, Trace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from eclose.calls.client import ModelConnection
    from eclose.calls.model import ChatModel, Reply, Request
    from eclose.calls.prices import ModelPrice
    from eclose.judging.settings import JudgeSettings
    from eclose.progress import ProgressOption
    from eclose.readers.import_settings import ImportSettings

_PANDAS_TYPES = {
    **dict.fromkeys((*FLAG_COLUMNS, "reliable", "in_gap"), "boolean"),
    **dict.fromkeys(("question_hash", "passages_hash", "source_hash"), "int64"),
    "first_unsound_step": "Int32",
    **dict.fromkeys(("cost", *CONTEXT_COLUMNS), "Float64"),
    "answered_at": "datetime64[us, UTC]",
}
"""Types of columns in a data frame of pandas; all others but lists are texts."""
UNREAD_ROW = "the row was not read"
"""Reason of every label of a row that holds no response that can be read."""
_OWN_NAMES = ("model", "benchmark")
"""Columns of labels that rows may have themselves: their own values stay."""


def read_row(columns: Mapping[str, Any], imported: ImportSettings) -> tuple[Instance, Response]:
    """Return the question and the response of a row.

    Raises:
        RecordError: The row lacks a field, or holds no response.
    """
    converted = convert_row(make_plain(columns), imported)
    if converted.response is None:
        raise RecordError(converted.rejected or NO_RESPONSE)
    return converted.instance, converted.response


@dataclass(frozen=True, slots=True)
class LabelColumns:
    """The columns that rows get with their labels."""

    records: bool
    """Whether to add question, response and judgment as JSON."""
    requested: tuple[str, ...]
    """Columns of what the judge gives on request."""

    @classmethod
    def of(cls, settings: JudgeSettings, *, records: bool) -> Self:
        """Return the columns of a judge with these settings."""
        criteria = tuple(f"{OWN_PREFIX}{criterion.name}" for criterion in settings.criteria)
        return cls(records, criteria + (CONTEXT_COLUMNS if settings.passages else ()))

    def list_new(self, own: Collection[str]) -> list[str]:
        """Return the columns that rows with these columns of their own get.

        Raises:
            SettingError: One of their own has the name of a label.
        """
        requested = (name for each in self.requested for name in (each, name_requested_reason(each)))
        names = dict.fromkeys((*_LABELS, *requested, *(RECORD_COLUMNS if self.records else ())))
        if conflicts := [name for name in names if name in own and name not in _OWN_NAMES]:
            raise SettingError(
                f"the rows have a column {conflicts[0]}, to which a label is written. Rename it before judging."
            )
        return [name for name in names if name not in own]

    def extend(self, rows: pa.Schema | None) -> pa.Schema:
        """Return the columns of rows with those of their labels behind them, as a schema of Arrow."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        fields, new = label_schema(self.requested), self.list_new([] if rows is None else rows.names)
        return pa.schema([*(rows or ()), *(fields.field(name) for name in new)])

    def add(self, rows: Any, items: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, Any]]) -> Any:
        """Return rows in their own type, with the labels of each behind its own columns.

        Args:
            rows: The table, or an iterable of rows.
            items: The columns of each row.
            labels: The labels of each row.
        """
        if hasattr(rows, "to_pylist") and hasattr(rows, "schema"):  # PyArrow
            schema = self.extend(rows.schema)
            arrays = _to_arrays(labels, schema, len(rows.schema))
            return type(rows).from_arrays([*rows.columns, *arrays], schema=schema)
        if hasattr(rows, "iter_rows"):  # Polars
            import pyarrow as pa  # noqa: PLC0415 - an extra

            schema = pa.schema([label_schema(self.requested).field(name) for name in self.list_new(rows.columns)])
            return rows.hstack(type(rows)(pa.Table.from_arrays(_to_arrays(labels, schema, 0), schema=schema)))
        if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
            return _add_to_pandas(rows, labels, self.list_new(list(rows.columns)))
        return [
            {**row, **{name: each.get(name) for name in self.list_new(row)}}
            for row, each in zip(items, labels, strict=True)
        ]


class RowLabeller:
    """Judges the responses of rows with a connected model."""

    def __init__(
        self,
        connection: ModelConnection,
        price: ModelPrice | None,
        *,
        settings: JudgeSettings,
        imported: ImportSettings,
        columns: LabelColumns,
    ) -> None:
        self._connection = connection
        self._price = price
        self._settings = settings
        self._imported = imported
        self._columns = columns

    async def label(self, rows: Any, *, workers: int, progress: ProgressOption) -> Any:
        """Return the rows in their own type, with the columns of their labels, judging ``workers`` at a time."""
        items = [read_row_columns(row, number) for number, row in enumerate(iterate_table_rows(rows), start=1)]
        # Refused before anything is paid.
        self._columns.list_new({name for row in items for name in row})
        labels: list[Mapping[str, Any]] = [{}] * len(items)
        pending = iter(enumerate(items))
        failures: list[Exception] = []
        counts = RunProgress()

        async def work() -> None:
            for number, row in pending:
                try:
                    labels[number] = await self._label_row(row)
                except Exception as error:  # raised below, once the calls of other rows in flight are answered
                    failures.append(error)
                if failures:
                    return
                counts.finished["accepted"] += 1

        with show_run_progress(progress, counts, [self._connection], len(items), accepted="judged"):
            await asyncio.gather(*(work() for _ in range(min(workers, len(items)))))
        if failures:
            raise failures[0]
        return self._columns.add(rows, items, labels)

    async def _label_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        try:
            instance, response = read_row(row, self._imported)
        except RecordError as error:
            case = _build_unread_case(row, self._connection.model.name, error)
            # It is not known whether there is a trace.
            return {**describe_labels(case), "without_trace": None}
        context = CallContext(JUDGE_JOB, response.id)
        model = _MeteredModel(self._connection.model.for_record(context), self._price)
        judgment = await judge_response(instance, response, model, self._settings)
        return {**describe_labels(JudgedCase(instance, response, judgment)), "cost": model.cost}


class _MeteredModel:
    """A model that adds up what its replies cost, whoever paid for them."""

    def __init__(self, model: ChatModel, price: ModelPrice | None) -> None:
        self.name = model.name
        """Name of the model in records and call keys."""
        self._model = model
        self._price = price
        self._millionths = 0

    @property
    def cost(self) -> float | None:
        """Cost of the replies so far, in the currency of the price; None without a price."""
        return None if self._price is None else self._millionths / MILLION

    async def complete(self, request: Request) -> Reply:
        """Return the reply of the model."""
        try:
            reply = await self._model.complete(request)
        except CallFailure as failure:
            self._add(failure.reply)
            raise
        self._add(reply)
        return reply

    def _add(self, reply: Reply | None) -> None:
        if self._price is not None and reply is not None:
            self._millionths += self._price.cost(reply.usage)


def _build_unread_case(row: Mapping[str, Any], judge: str, error: RecordError) -> JudgedCase:
    """Return a case without any label for a row that was not read."""
    id_ = f"row-{content_hash(repr(row)).removeprefix('sha256:')[:16]}"
    reason = f"{UNREAD_ROW}: {error}"
    judgment = Judgment(
        response_id=id_,
        judge=judge,
        steps=(),
        unjudged=dict.fromkeys(Criterion, reason),
        evidence_unjudged=reason,
    )
    instance = Instance(id=id_, question="", evidence=())
    return JudgedCase(instance, Response(id=id_, instance_id=id_, trace=Trace(()), answer=None), judgment)


_LABELS = tuple(
    name for name in describe_labels(_build_unread_case({}, "", RecordError(""))) if name not in RECORD_COLUMNS
)
"""Columns of labels, also where pyarrow, which has their schema, is not installed."""


def _to_arrays(labels: Sequence[Mapping[str, Any]], schema: pa.Schema, start: int) -> list[pa.Array]:
    """Return the columns of labels from the ``start``-th field of a schema on."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    fields = [schema.field(number) for number in range(start, len(schema))]
    return [pa.array([row.get(field.name) for row in labels], field.type) for field in fields]


def _add_to_pandas(rows: Any, labels: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    # By position and not by index, which may repeat.
    frame = rows.assign(**{name: [row.get(name) for row in labels] for name in columns})
    # A column without a value would have no type, in Parquet neither, and differ from that of another file.
    return frame.astype({name: _find_pandas_type(name) for name in columns if name not in ("step_failures", "votes")})


def _find_pandas_type(name: str) -> str:
    if name.startswith(OWN_PREFIX) and not name.endswith("_unjudged"):
        return "boolean"
    return _PANDAS_TYPES.get(name, "string")
