"""Rows of a table with the labels of their responses as further columns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from eclose.calls.http.failures import CallFailure
from eclose.calls.model import CallContext
from eclose.calls.prices import MILLION
from eclose.calls.progress_line import show_run_progress
from eclose.calls.record_loop import RunProgress
from eclose.diagnosis.label_file import FLAG_COLUMNS, RECORD_COLUMNS, describe_labels, label_schema
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
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from eclose.calls.client import ModelConnection
    from eclose.calls.model import ChatModel, Reply, Request
    from eclose.calls.prices import ModelPrice
    from eclose.judging.settings import JudgeSettings
    from eclose.progress import ProgressOption
    from eclose.readers.import_settings import ImportSettings

_FLAGS = (*FLAG_COLUMNS, "reliable", "in_gap")
_LISTS = ("step_failures", "votes")
_PANDAS_TYPES = {
    **dict.fromkeys(_FLAGS, "boolean"),
    **dict.fromkeys(("question_hash", "passages_hash", "source_hash"), "int64"),
    "first_unsound_step": "Int32",
    "cost": "Float64",
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


def extend_schema(rows: pa.Schema | None, *, records: bool) -> pa.Schema:
    """Return the columns of rows with those of their labels behind them."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    labels = label_schema()
    new = _list_new_columns([] if rows is None else rows.names, labels.names, records=records)
    return pa.schema([*(rows or ()), *(labels.field(name) for name in new)])


def _list_new_columns(own: Collection[str], labels: Iterable[str], *, records: bool) -> list[str]:
    """Return the columns of labels that rows with these columns of their own get."""
    new = [name for name in labels if records or name not in RECORD_COLUMNS]
    if conflicts := [name for name in new if name in own and name not in _OWN_NAMES]:
        raise SettingError(
            f"the rows have a column {conflicts[0]}, to which a label is written. Rename it before judging."
        )
    return [name for name in new if name not in own]


class RowLabeller:
    """Judges the responses of rows with a connected model."""

    def __init__(
        self,
        connection: ModelConnection,
        price: ModelPrice | None,
        *,
        settings: JudgeSettings,
        imported: ImportSettings,
        records: bool,
    ) -> None:
        self._connection = connection
        self._price = price
        self._settings = settings
        self._imported = imported
        self._records = records

    async def label(self, rows: Any, *, workers: int, progress: ProgressOption) -> Any:
        """Return the rows in their own type, with the columns of their labels, judging ``workers`` at a time."""
        items = [read_row_columns(row, number) for number, row in enumerate(iterate_table_rows(rows), start=1)]
        # Refused before anything is paid.
        _list_new_columns({name for row in items for name in row}, _LABELS, records=self._records)
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
        return add_columns(rows, items, labels, records=self._records)

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


_LABELS = tuple(describe_labels(_build_unread_case({}, "", RecordError(""))))
"""Columns of labels, also where pyarrow, which has their schema, is not installed."""


def add_columns(
    rows: Any, items: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, Any]], *, records: bool
) -> Any:
    """Return rows in their own type, with the labels of each behind its own columns.

    Args:
        rows: The table, or an iterable of rows.
        items: The columns of each row.
        labels: The labels of each row.
        records: Whether to add question, response and judgment as JSON.
    """
    if hasattr(rows, "to_pylist") and hasattr(rows, "schema"):  # PyArrow
        schema = extend_schema(rows.schema, records=records)
        return type(rows).from_arrays([*rows.columns, *_to_arrays(labels, schema, len(rows.schema))], schema=schema)
    if hasattr(rows, "iter_rows"):  # Polars
        import pyarrow as pa  # noqa: PLC0415 - an extra

        columns = _list_new_columns(rows.columns, label_schema().names, records=records)
        schema = pa.schema([label_schema().field(name) for name in columns])
        return rows.hstack(type(rows)(pa.Table.from_arrays(_to_arrays(labels, schema, 0), schema=schema)))
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
        return _add_to_pandas(rows, labels, records=records)
    return [
        {**row, **{name: each[name] for name in _list_new_columns(list(row), _LABELS, records=records)}}
        for row, each in zip(items, labels, strict=True)
    ]


def _to_arrays(labels: Sequence[Mapping[str, Any]], schema: pa.Schema, start: int) -> list[pa.Array]:
    """Return the columns of labels from the ``start``-th field of a schema on."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    fields = [schema.field(number) for number in range(start, len(schema))]
    return [pa.array([row.get(field.name) for row in labels], field.type) for field in fields]


def _add_to_pandas(rows: Any, labels: Sequence[Mapping[str, Any]], *, records: bool) -> Any:
    columns = _list_new_columns(list(rows.columns), _LABELS, records=records)
    # By position and not by index, which may repeat.
    frame = rows.assign(**{name: [row.get(name) for row in labels] for name in columns})
    # A column without a value would have no type, in Parquet neither, and differ from that of another file.
    return frame.astype({name: _PANDAS_TYPES.get(name, "string") for name in columns if name not in _LISTS})
