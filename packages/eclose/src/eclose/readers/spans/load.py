"""Reading of trace files: every trace becomes cases, a reason for its rejection, or an error.

Spans of one trace may be anywhere in a file. They are grouped on disk, so memory grows with the longest trace and not
with the file.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError, UserError
from eclose.files.json_reader import (
    JsonStreamWindow,
    RawRecord,
    open_bytes,
    read_json_objects,
    require_json_object,
    require_regular_file,
)
from eclose.files.jsonl import NOT_JSON, ReadRecord
from eclose.readers.spans import atif, genai, langfuse, langsmith, mlflow, openinference, otlp
from eclose.readers.spans.cases import CaseReader, TraceCase, TraceRejection
from eclose.readers.spans.detection import TraceDialect, detect_trace_dialect
from eclose.readers.spans.otlp import DamagedSpanError
from eclose.readers.spans.selection import CaseSelection, check_selection
from eclose.readers.spans.span import Span, SpanContent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self


DAMAGED = "damaged trace"
"""Kind of error of a trace that cannot be read."""
MAX_TRACE_BYTES = 128 * 2**20
"""Most bytes of one trace that are held in memory; a longer trace is an error."""
_PRETTY = re.compile(rb"\s*\{\s*\n")
_HEAD = 4096
_BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)


@dataclass(frozen=True, slots=True)
class _DialectReader:
    read_record: Callable[[Mapping[str, Any]], Iterator[Span | RecordError]]
    read_content: Callable[[Span], SpanContent]
    find_switch: Callable[[Span], str]
    whole_traces: bool = False
    """Whether a record is a whole trace."""
    updates: bool = False
    """Whether a later row with the id of a span replaces it."""


def _convention_of(span: Span) -> Any:
    """Return the module of the conventions that a span of OpenTelemetry follows."""
    if openinference.KIND in span.attributes or span.kind.upper() in openinference.KINDS:
        return openinference
    return mlflow if mlflow.KIND in span.attributes else genai


_READERS = {
    TraceDialect.OTLP: _DialectReader(
        otlp.read_otlp_record,
        lambda span: _convention_of(span).read_content(span),
        lambda span: _convention_of(span).SWITCH,
    ),
    TraceDialect.MLFLOW: _DialectReader(mlflow.read_record, mlflow.read_content, lambda _: mlflow.SWITCH, True),
    TraceDialect.LANGFUSE: _DialectReader(
        langfuse.read_record, langfuse.read_content, lambda _: langfuse.SWITCH, updates=True
    ),
    TraceDialect.LANGSMITH: _DialectReader(
        langsmith.read_record, langsmith.read_content, lambda _: langsmith.SWITCH, updates=True
    ),
    TraceDialect.ATIF: _DialectReader(atif.read_record, atif.read_content, lambda _: atif.SWITCH, True),
}


def detect_pretty_trace(path: Path) -> TraceDialect | None:
    """Return the dialect of a file whose objects are written over several lines; None for every other file.

    ``trajectory.json``, ``Trace.to_json(pretty=True)`` and the console exporter of OpenTelemetry write such files.
    """
    if path.suffix == ".parquet" or not path.is_file():
        return None
    try:
        with open_bytes(path) as stream:
            if not _PRETTY.match(stream.read(_HEAD)):
                return None
        first = next(_read_pretty_objects(path), None)
    except _BROKEN_GZIP:
        # The reader of lines says what is wrong with the file.
        return None
    return None if first is None or first.value is None else detect_trace_dialect(first.value)


def scan_traces(path: Path, dialect: TraceDialect, selection: CaseSelection) -> Iterator[ReadRecord[TraceCase]]:
    """Yield every case of the file, and for every trace without one the reason or the error.

    Raises:
        UserError: The file as a whole cannot be read.
        SettingError: The selection of cases cannot be read.
    """
    check_selection(selection)
    reader = _READERS[dialect]
    cases = CaseReader(dialect.value, reader.read_content, reader.find_switch, selection)
    if reader.whole_traces:
        for raw in _read_objects(path):
            if raw.value is None:
                yield ReadRecord(raw.where, error=raw.error, error_kind=NOT_JSON)
            else:
                yield from _read_trace(path, raw.where, _collect(reader, raw.value), cases, reader)
        return
    with SpanSpool() as spool:
        unit = "line"
        for number, raw in enumerate(_read_objects(path), start=1):
            unit, _, position = raw.where.partition(" ")
            if raw.value is None:
                yield ReadRecord(raw.where, error=raw.error, error_kind=NOT_JSON)
                continue
            for span in _collect(reader, raw.value):
                if isinstance(span, Span):
                    spool.add(span.trace_id, int(position or number), span.to_json())
                elif isinstance(span, DamagedSpanError):
                    spool.add(span.trace_id, int(position or number), json.dumps({"error": span.problem}))
                else:
                    yield ReadRecord(raw.where, error=span.at(path, raw.where), error_kind=DAMAGED)
        for _, rows in groupby(spool, key=lambda row: row[0]):
            yield from _read_spooled(path, unit, rows, cases, reader)


def _collect(reader: _DialectReader, record: Mapping[str, Any]) -> Iterator[Span | RecordError]:
    """Yield the spans of a record; an error of the record as a whole comes last."""
    try:
        yield from reader.read_record(record)
    except RecordError as error:
        yield error


def _read_spooled(
    path: Path, unit: str, rows: Iterable[tuple[int, int, str]], cases: CaseReader, reader: _DialectReader
) -> Iterator[ReadRecord[TraceCase]]:
    spans: list[Span | RecordError] = []
    size, where = 0, ""
    for _, position, body in rows:
        where = where or f"{unit} {position}"
        size += len(body)
        if size > MAX_TRACE_BYTES:
            # The rest of the trace is read and dropped, so that the next trace starts where it should.
            spans = [RecordError(f"the trace is longer than {MAX_TRACE_BYTES:,} bytes; select a part of it upstream")]
        elif body.startswith('{"error"'):
            spans.append(RecordError(json.loads(body)["error"]))
        else:
            spans.append(Span.from_json(body))
    yield from _read_trace(path, where, spans, cases, reader)


def _read_trace(
    path: Path, where: str, spans: Iterable[Span | RecordError], cases: CaseReader, reader: _DialectReader
) -> Iterator[ReadRecord[TraceCase]]:
    """Yield the cases of one trace, the reason for its rejection, or the error of a span in it."""
    by_id: dict[str, Span] = {}
    try:
        for span in spans:
            if isinstance(span, RecordError):
                raise span
            earlier = by_id.setdefault(span.span_id, span)
            if reader.updates:
                by_id[span.span_id] = span
            elif earlier != span:
                raise RecordError(f"the span id {span.span_id!r} is used twice with other content")
        if not by_id:
            raise RecordError("the trace has no spans")
        results = list(cases.read_cases(list(by_id.values())))
        for result in results:
            _refuse_surrogates(result)
    except RecordError as error:
        yield ReadRecord(where, error=error.at(path, where), error_kind=DAMAGED)
        return
    for result in results:
        if isinstance(result, TraceRejection):
            # The id of the trace, under which its store shows it.
            trace_id = next(iter(by_id.values())).trace_id
            yield ReadRecord(f"{where}, trace {trace_id}", rejected=result.reason)
        else:
            yield ReadRecord(where, value=result)


def _refuse_surrogates(result: TraceCase | TraceRejection) -> None:
    """Raise where a text of a case holds half of a surrogate pair, which JSON can escape and UTF-8 cannot hold."""
    if isinstance(result, TraceRejection):
        return
    texts = [result.question, result.answer, result.model or "", result.span.trace_id, result.span.span_id or ""]
    texts += [text for part in result.parts for text in (part.text, part.value or "")]
    texts += [text for document in result.documents for text in (document.doc_id or "", document.title, document.text)]
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise RecordError("holds half of a surrogate pair, which is not text. Write the file again as UTF-8") from error


def _read_objects(path: Path) -> Iterator[RawRecord]:
    """Yield the objects of a file; in place of a manifest of Langfuse, those of the files that it lists."""
    require_regular_file(path)
    for raw in read_json_objects(path) if detect_pretty_trace(path) is None else _read_pretty_objects(path):
        names = langfuse.list_manifest(raw.value or {})
        if not names:
            yield raw
        for name in names:
            yield from read_json_objects(_find_exported(path, name))


def _find_exported(manifest: Path, name: str) -> Path:
    """Return a file that a manifest lists by its key in the store, as far as the folders were copied with it."""
    parts = Path(name).parts
    for folder in manifest.resolve().parents[:6]:
        for start in range(len(parts)):
            if (path := folder.joinpath(*parts[start:])).is_file():
                return path
    raise UserError(
        f"{manifest}: lists {name}, which is not beside it. Download the whole export, or name one file of it."
    )


def _read_pretty_objects(path: Path) -> Iterator[RawRecord]:
    """Yield the objects of a file in which one follows the other, each over several lines."""
    number = 0
    with open_bytes(path) as stream:
        window = JsonStreamWindow(io.BufferedReader(stream))
        while window.peek():
            number += 1
            where = f"record {number}"
            try:
                yield RawRecord(where, value=require_json_object(window.read_value()))
            except RecordError as error:
                yield RawRecord(where, error=error.at(path, where))
            except (json.JSONDecodeError, RecursionError, *_BROKEN_GZIP):
                # What follows cannot be told apart from the broken object.
                problem = RecordError("is not JSON, or is cut off; the rest of the file cannot be read")
                yield RawRecord(where, error=problem.at(path, where))
                return
            window.skip(",")


# Spans of a file grouped by trace on disk, so that memory does not grow with the file.


_BATCH = 500
_CACHE_KIB = 16_384


class SpanSpool:
    """Texts under a trace id, returned trace by trace in the order in which the traces began. A context manager.

    They are in an unnamed database file, which the system removes with the process. SQLite sorts it on disk.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        for statement in (
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "PRAGMA temp_store = FILE",
            "CREATE TABLE traces (id INTEGER PRIMARY KEY, trace TEXT UNIQUE)",
            "CREATE TABLE spans (trace INTEGER, position INTEGER, body TEXT)",
            "BEGIN",
        ):
            self._database.execute(statement)
        self._waiting: list[tuple[str, int, str]] = []

    def add(self, trace: str, position: int, body: str) -> None:
        """Add a text to a trace; ``position`` is the number of its record in the file."""
        # JSON may hold half of a surrogate pair, which SQLite cannot store.
        self._waiting.append((trace.encode("utf-8", "backslashreplace").decode(), position, body))
        if len(self._waiting) == _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._database.executemany(
            "INSERT OR IGNORE INTO traces (trace) VALUES (?)", ((t,) for t, _, _ in self._waiting)
        )
        self._database.executemany("INSERT INTO spans SELECT id, ?2, ?3 FROM traces WHERE trace = ?1", self._waiting)
        self._waiting.clear()

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        """Yield the number of the trace, the position and the text, trace by trace."""
        self._flush()
        yield from self._database.execute("SELECT trace, position, body FROM spans ORDER BY trace, rowid")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, and thereby remove, the database."""
        self._database.close()
