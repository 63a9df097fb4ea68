"""Reading of question files in any known layout, one instance at a time.

Every record is converted, checked against the rules for instances, and checked for repeated ids. Memory grows by a few
dozen bytes a record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from eclose.errors import RecordError, SettingError, UserError
from eclose.files.id_set import SeenIds
from eclose.files.json_reader import RawRecord, is_conversation, read_json_objects
from eclose.files.jsonl import (
    DUPLICATE,
    ID_REUSED,
    NOT_JSON,
    WRONG_RECORD,
    ReadRecord,
    check_core_rules,
    encode_json_line,
    parse_dataclass,
)
from eclose.files.outcome_counts import RecordCounter, RecordCounts
from eclose.readers import conversion, rag_rows
from eclose.readers.conversion import ConvertedRecord
from eclose.readers.import_settings import CaseSelection, ImportSettings
from eclose.readers.layouts import BENCHMARK_LOADERS, RecordLayout, detect_record_layout, is_known_record
from eclose.readers.mapping import check_field_map, drop_mapped_keys, get_at_path, has_mapped_question, map_record
from eclose.readers.spans.cases import NO_DOCUMENTS, TIME_UNREAD, TraceCase
from eclose.readers.spans.detection import TraceDialect, detect_trace_dialect
from eclose.readers.spans.load import detect_pretty_trace, scan_traces
from eclose.reading import recorded
from eclose.values.instance import Instance
from eclose.values.response import Response, ResponseSource
from eclose.values.times import normalize_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from eclose.files.json_reader import JsonObject
    from eclose.values.response import SpanRef


AnswerAliases: TypeAlias = "Mapping[str, tuple[str, ...]]"
RecordConverter: TypeAlias = "Callable[[JsonObject], ConvertedRecord]"
"""Function that returns a converted record, or the reason why the record is left out."""
Value = TypeVar("Value", Instance, Response)

NO_RESPONSE = "no response"


@dataclass(frozen=True, slots=True)
class QuestionFileCheck:
    """The result of reading a whole file of questions."""

    counts: RecordCounts
    problems: tuple[RecordError, ...]
    """Errors of the first unusable records, up to the limit."""
    stopped: UserError | None = None
    """Why reading stopped before the end of the file; None where the end was reached."""

    @property
    def passed(self) -> bool:
        """Whether the file was read to its end without an unusable record."""
        return self.stopped is None and not self.counts.quarantined


def scan_instances(
    path: Path,
    *,
    aliases: AnswerAliases | None = None,
    settings: ImportSettings | None = None,
) -> Iterator[ReadRecord[Instance]]:
    """Yield every record of the file as an instance, a reason for its rejection, or an error.

    A record that repeats an earlier one with the same id is rejected as a duplicate; other content under a used id is
    an error. Raises where the file as a whole cannot be read.
    """
    instance_ids = SeenIds()
    for record in scan_converted(path, aliases, settings, instance_only=True):
        if record.value is None:
            # Without a value the type parameter is void: a reason or an error fits records of every kind.
            yield cast("ReadRecord[Instance]", record)
        else:
            yield _check_value(path, record, record.value.instance, instance_ids)


def scan_recorded_responses(path: Path, *, settings: ImportSettings | None = None) -> Iterator[ReadRecord[Response]]:
    """Yield every response recorded together with its question, in the layouts that have responses."""
    return (response for _, response in scan_cases(path, settings=settings))


def scan_cases(
    path: Path, *, aliases: AnswerAliases | None = None, settings: ImportSettings | None = None
) -> Iterator[tuple[ReadRecord[Instance], ReadRecord[Response]]]:
    """Yield every record of the file as a question and as a response, both as the scans of one kind yield them."""
    instance_ids, response_ids = SeenIds(), SeenIds()
    for record in scan_converted(path, aliases, settings):
        if record.value is None:
            yield cast("ReadRecord[Instance]", record), cast("ReadRecord[Response]", record)
            continue
        # A question may repeat with another response; two questions under one id make the response ambiguous.
        question = _check_value(path, record, record.value.instance, instance_ids)
        if question.error is not None:
            yield question, cast("ReadRecord[Response]", question)
        elif record.value.response is None:
            yield question, ReadRecord(record.where, rejected=NO_RESPONSE)
        else:
            notes = record.value.notes
            repaired = replace(record, repairs=(*record.repairs, *notes)) if notes else record
            yield question, _check_value(path, repaired, record.value.response, response_ids)


def holds_responses(path: Path) -> bool:
    """Return whether the first readable record has the fields of a response."""
    # By the fields of a record and not by the name of the file: another tool's file may be called responses.jsonl as
    # well.
    try:
        first = next((raw.value for raw in read_json_objects(path) if raw.value is not None), {})
    except UserError:
        # Not a file of records; finding its layout says so, or reads it in another way.
        return False
    return {"instance_id", "trace"} <= first.keys()


def detect_file_layout(path: Path) -> RecordLayout:
    """Return the layout of a file by its first readable record."""
    if (dialect := detect_pretty_trace(path)) is not None:
        return RecordLayout(dialect.value)
    empty = True
    # Unreadable records at the start of a file do not decide its layout.
    for raw in read_raw_records(path, ImportSettings()):
        empty = False
        if raw.value is None:
            continue
        try:
            return detect_record_layout(raw.value)
        except RecordError as error:
            raise error.at(path, raw.where) from error
    if empty:
        raise UserError(f"{path}: holds no records. Check that this is the file you meant.")
    # No record is readable; with any layout the scan then reports the error of each record.
    return RecordLayout.ECLOSE


def resolve_import_settings(path: Path, settings: ImportSettings | None = None) -> ImportSettings:
    """Return the settings with the layout to read a file in, and refuse settings that do nothing there.

    Raises:
        SettingError: A setting has no effect on files of this layout.
    """
    settings = settings or ImportSettings()
    layout = settings.format
    if settings.columns:
        if layout not in (RecordLayout.AUTO, RecordLayout.MAPPED):
            raise SettingError(f"--map and --format {layout}: a mapping reads any layout. Leave one of them out.")
        check_field_map(settings.columns)
        layout = RecordLayout.MAPPED
    elif layout is RecordLayout.MAPPED:
        raise SettingError(
            "--format mapped needs --map question=PATH,answer=PATH,documents=PATH. Give both to eclose judge, or to "
            "eclose data convert."
        )
    layout = detect_file_layout(path) if layout is RecordLayout.AUTO else layout
    settings = replace(settings, format=layout)
    _refuse_idle_settings(path, settings)
    return settings


def _refuse_idle_settings(path: Path, settings: ImportSettings) -> None:
    """Raise where a setting has no effect on files of this layout: it would be ignored in silence."""
    layout = settings.format
    if settings.cases != CaseSelection() and layout.trace_dialect is None:
        raise SettingError(
            "case, question_at, documents_at and answer_at choose from the spans of traces, and "
            f"{path} is read as {layout}. Leave them out; --map names the fields of records."
        )
    if settings.dataset is not None and layout in BENCHMARK_LOADERS:
        raise SettingError(f"dataset: {path} is read as {layout}, which names the dataset already. Leave it out.")
    has_responses = layout not in (RecordLayout.ECLOSE, *BENCHMARK_LOADERS)
    keys = {name.removesuffix("s") if name.endswith("markers") else name for name in settings.identity}
    for key in ("model", "trace", "answer_marker", "trace_marker", "language", "reader"):
        option = "--trace" if key == "trace" else key
        if key in keys and not has_responses:
            raise SettingError(f"{option}: {path} is read as {layout}, which holds no responses. Leave it out.")


def check_question_file(records: Iterable[ReadRecord[Instance]], *, limit: int) -> QuestionFileCheck:
    """Read all records of a file; return their counts and the first ``limit`` problems."""
    counter = RecordCounter()
    problems: list[RecordError] = []
    stopped: UserError | None = None
    try:
        for record in records:
            counter.add(record)
            if record.error is not None and len(problems) < limit:
                problems.append(record.error)
    except UserError as error:
        stopped = error
    return QuestionFileCheck(counter.counts(), tuple(problems), stopped)


def read_raw_records(path: Path, settings: ImportSettings) -> Iterator[RawRecord]:
    """Yield the records of a file; those of a wrapper in a single line, as ``json.dump`` writes it, as well."""
    records = read_json_objects(path)
    if (first := next(records, None)) is None:
        return
    if is_conversation([first.value]) and not is_known_record(first.value or {}):
        # The whole file is one conversation, as a chat client saves it.
        yield RawRecord("record 1", value={"messages": [raw.value for raw in (first, *records) if raw.value]})
        return
    wrapped = _find_wrapped_records(path, first.value, settings) if first.where == "line 1" else None
    if wrapped is None:
        yield first
    elif (second := next(records, None)) is not None:
        yield from (first, second)
    else:
        yield from (RawRecord(f"record {number}", value=value) for number, value in enumerate(wrapped, start=1))
    yield from records


def _find_wrapped_records(path: Path, value: JsonObject | None, settings: ImportSettings) -> list[JsonObject] | None:
    """Return the items of the only list of an object; None where the object is a record itself."""
    # A single line of JSON Lines may be a record with a list of documents, so its name and its keys decide.
    if value is None or not path.name.removesuffix(".gz").endswith(".json"):
        return None
    lists = [items for items in value.values() if isinstance(items, list)]
    if len(lists) != 1 or not lists[0] or not all(isinstance(item, dict) for item in lists[0]):
        return None
    is_record = has_mapped_question(value, settings.columns) if settings.columns else is_known_record(value)
    return None if is_record else lists[0]


def _get_record_converter(
    aliases: AnswerAliases | None, settings: ImportSettings, *, instance_only: bool
) -> RecordConverter:
    """Return the function that converts a raw record of the layout."""
    layout = settings.format
    if layout is RecordLayout.MAPPED:
        return lambda record: rag_rows.convert_columns(
            *map_record(record, settings.columns),
            layout,
            settings,
            own=drop_mapped_keys(record, settings.columns),
            instance_only=instance_only,
        )
    if layout in rag_rows.TOOL_LAYOUTS:
        return partial(rag_rows.convert_tool_record, layout=layout, reading=settings, instance_only=instance_only)
    if layout is RecordLayout.ECLOSE:
        return lambda record: ConvertedRecord(parse_dataclass(Instance, record))
    loader = BENCHMARK_LOADERS[layout]
    convert = loader.load_converter()
    return partial(convert, aliases=aliases) if loader.takes_aliases else convert


def scan_converted(
    path: Path,
    aliases: AnswerAliases | None = None,
    settings: ImportSettings | None = None,
    *,
    instance_only: bool = False,
) -> Iterator[ReadRecord[ConvertedRecord]]:
    """Yield the converted records, before ids are compared."""
    settings = resolve_import_settings(path, settings)
    if (dialect := settings.format.trace_dialect) is not None:
        yield from scan_trace_cases(path, settings, dialect)
        return
    convert = _get_record_converter(aliases, settings, instance_only=instance_only)
    for raw in read_raw_records(path, settings):
        if raw.value is None:
            yield ReadRecord(raw.where, error=raw.error, error_kind=NOT_JSON)
            continue
        try:
            converted = _add_time(_add_names(convert(raw.value), settings), raw.value, settings)
        except RecordError as error:
            yield ReadRecord(raw.where, error=error.at(path, raw.where), error_kind=WRONG_RECORD)
            continue
        if converted.rejected is not None:
            yield ReadRecord(raw.where, rejected=converted.rejected)
        else:
            yield ReadRecord(raw.where, value=converted, repairs=converted.repairs)


def convert_row(row: JsonObject, settings: ImportSettings) -> ConvertedRecord:
    """Return one row of a table as a question and its response, whatever other rows hold.

    Raises:
        RecordError: The row fits no layout, lacks a field, or is a span, of which a response has several.
    """
    if settings.columns:
        settings = replace(settings, format=RecordLayout.MAPPED)
    elif settings.format is RecordLayout.AUTO:
        settings = replace(settings, format=detect_record_layout(row))
    if settings.format.trace_dialect is not None:
        raise RecordError("is a span of a trace, and a response has several. Judge the file of spans: eclose judge")
    converted = _add_names(_get_record_converter(None, settings, instance_only=False)(row), settings)
    converted = _add_time(converted, row, settings)
    check_core_rules(converted.instance)
    if converted.response is not None:
        check_core_rules(converted.response)
    return converted


def _add_names(converted: ConvertedRecord, settings: ImportSettings) -> ConvertedRecord:
    """Return the record with the names that the file leaves out."""
    if settings.dataset is not None and converted.instance.benchmark is None:
        converted = replace(converted, instance=replace(converted.instance, benchmark=settings.dataset))
    response = converted.response
    if response is not None and settings.model is not None and response.source is None:
        converted = replace(converted, response=replace(response, source=ResponseSource(settings.model)))
    return converted


def _add_time(converted: ConvertedRecord, record: JsonObject, settings: ImportSettings) -> ConvertedRecord:
    """Return the record with the time of its response, from a column of the record or of the reply in it."""
    response = converted.response
    if response is None:
        return converted
    if settings.columns:
        path = settings.columns.get("time")
        value = None if path is None else get_at_path(record, "time", path)
    else:
        reply = record.get("response")
        holders = [record, reply] if isinstance(reply, dict) else [record]
        times = (conversion.first_present_column(holder, conversion.TIME_COLUMNS) for holder in holders)
        value = next((time for time in times if time is not None), None)
    if value in (None, ""):
        return converted
    if (time := normalize_time(value)) is None:
        return replace(converted, notes=(*converted.notes, TIME_UNREAD))
    # No column of one's own any more; further times of the row are.
    used = next((name for name in conversion.TIME_COLUMNS if record.get(name) == value), None)
    columns = {name: value for name, value in response.columns.items() if name != used}
    return replace(converted, response=replace(response, time=time, columns=columns))


def _check_value(path: Path, record: ReadRecord[ConvertedRecord], value: Value, seen_ids: SeenIds) -> ReadRecord[Value]:
    """Return the value if it keeps the rules and its id is new, a rejection if it is a duplicate, else an error."""
    try:
        check_core_rules(value)
    except RecordError as error:
        return ReadRecord(record.where, error=error.at(path, record.where), error_kind=WRONG_RECORD)
    unit, number = record.where.split(" ")  # "line 412", "record 412" or "row 412"
    # An id that is derived from texts stands for these texts, whatever ids a store gave to its chunks this time.
    compared = drop_provenance(value, derived=conversion.ID_DERIVED in record.repairs)
    earlier = seen_ids.add(value.id, encode_json_line(compared), int(number))
    if earlier is None:
        return ReadRecord(record.where, value=value, repairs=record.repairs)
    first_number, is_same = earlier
    if is_same:
        return ReadRecord(record.where, rejected=DUPLICATE)
    problem = f"the id {value.id!r} was used in {unit} {first_number} for other content. Give every record its own id."
    return ReadRecord(record.where, error=RecordError(problem, path=path, record=record.where), error_kind=ID_REUSED)


def drop_provenance(value: Instance | Response, *, derived: bool) -> Instance | Response:
    """Return a record as it is compared with another one of its id: without what a store or a clock adds."""
    if not isinstance(value, Instance):
        # The id of a response stands for its texts: a table may repeat it with another time, number or date.
        return replace(value, time=None, columns={})
    if not derived:
        return value
    passages = (replace(passage, id=str(number)) for number, passage in enumerate(value.evidence))
    return replace(value, evidence=tuple(passages))


# Conversion of the cases in trace files to instances with their responses.


def scan_trace_cases(
    path: Path, settings: ImportSettings, dialect: TraceDialect | None = None
) -> Iterator[ReadRecord[ConvertedRecord]]:
    """Yield the cases of a trace file as instances with responses; every trace is a case, a reason, or an error.

    Args:
        path: The file of traces.
        settings: Which spans are cases, and names that the file leaves out.
        dialect: Notation of the file; None to detect it from the keys of its first readable record.

    Raises:
        UserError: The file as a whole cannot be read, or is not of traces.
    """
    for record in scan_traces(path, dialect or _detect_dialect(path), settings.cases):
        if record.value is None:
            yield cast("ReadRecord[ConvertedRecord]", record)
        elif (converted := convert_trace_case(record.value, settings)) is None:
            yield ReadRecord(f"{record.where}, trace {record.value.span.trace_id}", rejected=NO_DOCUMENTS)
        else:
            yield ReadRecord(record.where, value=converted, repairs=converted.repairs)


def _detect_dialect(path: Path) -> TraceDialect:
    if (pretty := detect_pretty_trace(path)) is not None:
        return pretty
    first = next((raw.value for raw in read_json_objects(path) if raw.value is not None), {})
    if (dialect := detect_trace_dialect(first)) is None:
        dialects = ", ".join(TraceDialect)
        raise UserError(f"{path}: is not a file of traces. Known are {dialects}, recognised by their keys.")
    return dialect


def convert_trace_case(case: TraceCase, settings: ImportSettings) -> ConvertedRecord | None:
    """Return a case as an instance with its response; None where it has no evidence."""
    repairs: list[str] = list(case.notes)
    reading = recorded.read_parts_before(case.answer, case.parts, case.question, settings)
    passages = conversion.drop_blank_passages(conversion.build_passages(case.documents, repairs), None, repairs)
    instance = Instance("", case.question, passages, benchmark=settings.dataset)
    complete = conversion.add_tool_outputs(instance, reading)
    if complete is not instance:
        repairs.append(conversion.OBSERVATIONS_ADDED)
    if not complete.evidence:
        return None
    converted = conversion.finish_record_conversion(complete, repairs, case.span.store or "trace")
    model = case.model or settings.model
    response = recorded.build_response(
        reading,
        converted.instance.id,
        case.answer,
        id=_response_id(case.span),
        source=None if model is None else ResponseSource(model),
    )
    response = replace(response, span=case.span, time=case.time)
    return replace(converted, response=response, notes=recorded.list_notes(reading))


def _response_id(span: SpanRef) -> str:
    """Return the ids of trace and span; the root of a LangSmith trace has the id of the trace."""
    return span.trace_id if span.span_id in (None, span.trace_id) else f"{span.trace_id}-{span.span_id}"
