"""Labels of a judged run as one Parquet table: a file, a folder of files, or an address in object storage.

The columns are those of ``label_schema``; ``describe_labels`` fills all of them. Any other column is the user's own. A
table of another program needs ``REQUIRED_COLUMNS``; any other column that it lacks has no value in any row. Counting
reads no texts. Needs pyarrow.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.diagnosis.label_table import (
    CONTEXT_COLUMNS,
    NO_TIME,
    NOT_ASKED,
    OWN_PREFIX,
    UNJUDGED,
    VOTED_LABELS,
    Hashes,
    LabelTable,
    hash_source,
    number_by_appearance,
)
from eclose.diagnosis.labelled_run import LabelledRun, QuestionHashes, read_run_files
from eclose.diagnosis.response_failure import derive_failure_fields, name_reading
from eclose.errors import UserError
from eclose.files.json_reader import parse_json_object
from eclose.files.jsonl import decode_core_value, encode_json_line
from eclose.files.parquet import (
    ParquetWriter,
    find_parquet_files,
    get_remote_url,
    import_pyarrow,
    is_path_pattern,
    list_arrow_fields,
    open_filesystem,
)
from eclose.files.record_file import hash_ids
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.tables import fit_column_type, infer_column_types, make_plain, name_own_columns
from eclose.files.verify import ProvenanceCheck
from eclose.metrics.rates import ABSTAINED_CODES
from eclose.readers.judged_run import JudgedCase, JudgedCaseSet, combine_caveats, describe_reused_id
from eclose.reading.text import ReadingStatus
from eclose.values.instance import Instance
from eclose.values.judgment import (
    NO_CLAIM_REASON,
    WHOLE_TRACE_REASON,
    Criterion,
    Judgment,
    LocalFailure,
    StepJudgment,
    missing_reason_kind,
)
from eclose.values.response import Response, ResponseSource, Trace
from eclose.values.times import normalize_time, to_datetime, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eclose.readers.readings import ReadingKey
    from eclose.stats.arrays import Codes, Floats, Indices

LABELS_VERSION = "eclose.labels/2"
"""Version of the columns and of the caveats in the file's metadata; a reader refuses any other."""
CRITERION_COLUMNS = {
    "locally_sound": Criterion.LOCAL_SOUNDNESS,
    "aligned": Criterion.ALIGNMENT,
    "closed": Criterion.CLOSURE,
    "complete": Criterion.COMPLETENESS,
    "correct": Criterion.CORRECTNESS,
}
"""Column of each label, in the order of the digits of a verdict; ``_unjudged`` behind it names its reason."""
REQUIRED_COLUMNS = ("response_id", "instance_id", "judge", "locally_sound", "aligned", "closed")
RECORD_COLUMNS = ("instance_record", "response_record", "judgment_record")
"""The records as JSON, which a report shows."""
_FAILURE_TEXTS = (
    "failure_class",
    "failure",
    "broken_link",
    "judge_sentence",
    "first_unsound_text",
    "pursued",
    "established",
    "missing_evidence",
)
DERIVED_COLUMNS = ("first_unsound_step", "reliable", "in_gap", *_FAILURE_TEXTS, "abstention", "cost")
"""Columns for queries of other programs; they follow from the records, and no reader uses them."""
_NAMED_COLUMNS = ("response_id", "instance_id", "judge")
FLAG_COLUMNS = (
    *CRITERION_COLUMNS,
    "evidence_sufficient",
    "matched",
    "matched_with_aliases",
    "without_trace",
    "abstained",
)
"""Labels that readers use: true, false, or null where missing."""
_METADATA_KEY = b"eclose"
_GROUP_ROWS = 2_000
"""Rows of a row group; a response that is shown costs the texts of its group."""


@cache
def label_schema(requested: tuple[str, ...] = ()) -> Any:
    """Return the columns of a table of labels, as a schema of Arrow; ``requested`` are those of what judges gave on
    request."""
    arrow, _ = import_pyarrow("a table of labels")
    # Signed, although hashes are not: Spark has no other integers.
    text, flag, number, hash_ = arrow.string(), arrow.bool_(), arrow.float64(), arrow.int64()
    votes = arrow.struct([("label", text), ("true", arrow.int32()), ("false", arrow.int32())])
    columns = [(name, text) for name in ("response_id", "instance_id", "benchmark", "model", "judge")]
    for name in (*CRITERION_COLUMNS, "evidence_sufficient"):
        columns += [(name, flag), (_name_reason_column(name), text)]
    columns += [("first_unsound_step", arrow.int32()), ("step_failures", arrow.list_(text))]
    columns += [("votes", arrow.list_(votes))]
    columns += [(name, flag) for name in FLAG_COLUMNS[-4:]]
    columns += [("reading", text), ("answered_at", arrow.timestamp("us", tz="UTC"))]
    columns += [(name, hash_) for name in ("question_hash", "passages_hash", "source_hash")]
    columns += [("reliable", flag), ("in_gap", flag), *((name, text) for name in _FAILURE_TEXTS)]
    columns += [("abstention", text), ("cost", number)]
    for name in requested:
        columns += [(name, number if name in CONTEXT_COLUMNS else flag), (name_requested_reason(name), text)]
    columns += [(name, text) for name in RECORD_COLUMNS]
    # Precision and recall of passages share their reason.
    return arrow.schema(list(dict(columns).items()))


def name_requested_reason(name: str) -> str:
    """Return the column that says why one of what judges give on request is missing."""
    return "passages_unjudged" if name in CONTEXT_COLUMNS else f"{name}_unjudged"


def _name_reason_column(label: str) -> str:
    return "evidence_unjudged" if label == "evidence_sufficient" else f"{label}_unjudged"


def is_label_file(run: Path | str) -> bool:
    """Return whether a run is a table of labels: an address, a Parquet file or pattern, or a folder of them alone."""
    path = Path(run)
    if get_remote_url(run) is not None or path.suffix == ".parquet" or is_path_pattern(path):
        return True
    if not path.is_dir() or any((path / name).exists() for name in (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE)):
        return False
    return any(any(path.glob(pattern)) for pattern in ("*.parquet", "*=*/**/*.parquet"))


def write_labels(run: Path | str, out: Path | str, *, allow_stale: bool = False) -> int:
    """Write the labels of a judged run as a Parquet table, which ``diagnose`` and ``gate`` read as the run's folder.

    Args:
        run: Folder of a judged run in JSON Lines.
        out: New file, or an address in object storage: ``s3://bucket/labels.parquet``, ``gs://`` or ``abfss://``.
        allow_stale: Use judgments although questions or responses changed after they were judged.

    Returns:
        The number of responses.

    Raises:
        UserError: The folder holds no judged run, or judgments of other responses; or ``out`` exists.

    Examples:
        >>> from eclose.diagnosis.label_file import write_labels
        >>> write_labels("demo", "demo-labels.parquet")
        60
    """
    filesystem, path = open_filesystem(out)
    if filesystem.get_file_info([path])[0].type.name != "NotFound":
        raise UserError(f"{out}: exists already. Name another file, or remove this one.")
    counted = read_run_files(Path(run), allow_stale=allow_stale)
    caveats = {name: getattr(counted.caveats, name) for name in JudgedCaseSet.__slots__ if name != "cases"}
    schema = label_schema(counted.labels.requested).with_metadata(
        {_METADATA_KEY: json.dumps({"schema": LABELS_VERSION, **caveats})}
    )
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    # Written aside and moved as a whole: a conversion that was cut off leaves no table behind.
    with TemporaryDirectory(dir=None if get_remote_url(out) else Path(path).parent) as scratch:
        written = Path(scratch, "labels.parquet")
        own: dict[str, type] = {}
        # A later row may have a column that the earlier ones lack, or a value of another type.
        while (types := _write_table(written, counted, schema, own)) != own:
            own = types
        if get_remote_url(out) is None:
            written.replace(path)
        else:
            from pyarrow import fs  # noqa: PLC0415 - an extra

            fs.copy_files(str(written), path, fs.LocalFileSystem(), filesystem)
    return len(counted.labels)


def _write_table(path: Path, counted: LabelledRun, schema: Any, own: Mapping[str, type]) -> dict[str, type]:
    """Write the rows with own columns of these types; return the types of the rows, at the first that do not fit."""
    types, names = dict(own), schema.names
    for field in list_arrow_fields(own):
        schema = schema.append(field)
    with ParquetWriter(path, schema) as file:
        for start in range(0, len(counted.labels), _GROUP_ROWS):
            cases = counted.source.read_cases(counted.labels.positions[start : start + _GROUP_ROWS])
            rows = [describe_labels(case) for case in cases]
            types = infer_column_types(({name: row[name] for name in row if name not in names} for row in rows), types)
            if types != own:
                return types
            file.write_rows([row | {name: fit_column_type(row.get(name), own[name]) for name in own} for row in rows])
    return types


def describe_labels(case: JudgedCase) -> dict[str, Any]:
    """Return the row of a response in a table of labels: the columns of the schema, and the user's own."""
    judgment, response, instance = case.judgment, case.response, case.instance
    reasons = {criterion: missing_reason_kind(reason) for criterion, reason in judgment.unjudged.items()}
    hashes = QuestionHashes.of(instance)
    records = dict(zip(RECORD_COLUMNS, (instance, response, judgment), strict=True))
    time = to_microseconds(response.time)
    return {
        "response_id": response.id,
        "instance_id": instance.id,
        "benchmark": instance.benchmark,
        "model": response.source.model if response.source else None,
        "judge": judgment.judge,
        **{name: getattr(judgment.verdict, name) for name in CRITERION_COLUMNS},
        **{_name_reason_column(name): reasons.get(criterion) for name, criterion in CRITERION_COLUMNS.items()},
        "evidence_sufficient": judgment.evidence_sufficient,
        "evidence_unjudged": judgment.evidence_unjudged,
        **derive_failure_fields(case),
        "step_failures": [str(step.failure) for step in judgment.steps if step.failure is not None],
        "votes": [
            {"label": str(name), "true": votes.count(True), "false": votes.count(False)}
            for name, votes in judgment.votes.items()
            if name in VOTED_LABELS
        ],
        "matched": case.matched,
        "matched_with_aliases": case.matched_with_aliases,
        "without_trace": not response.trace.steps or reasons.get(Criterion.LOCAL_SOUNDNESS) == NO_CLAIM_REASON,
        "abstained": judgment.abstained,
        "reading": name_reading(response),
        **_describe_requested(judgment),
        "answered_at": None if time is None else to_datetime(time),
        "question_hash": _to_signed(hashes.text),
        "passages_hash": _to_signed(hashes.passages),
        "source_hash": _to_signed(hash_source(response.source)),
        **{name: encode_json_line(record).decode() for name, record in records.items()},
        **{name: response.columns[column] for column, name in _name_columns(response).items()},
    }


def _to_signed(hash_: int) -> int:
    return hash_ - 2**64 if hash_ >= 2**63 else hash_


def _name_columns(response: Response) -> dict[str, str]:
    """Return the name in a table of each own column of a response."""
    return name_own_columns([response.columns], label_schema().names) if response.columns else {}


def _describe_requested(judgment: Judgment) -> dict[str, Any]:
    """Return what the judge gave on request, by column; empty where nothing was asked for."""
    row: dict[str, Any] = {}
    for name, label in judgment.own.items():
        column = f"{OWN_PREFIX}{name}"
        row |= {column: label.holds, name_requested_reason(column): None if label.label else label.reason}
    if (passages := judgment.passages) is not None:
        values = (passages.precision, passages.recall, passages.unjudged)
        row |= dict(zip((*CONTEXT_COLUMNS, "passages_unjudged"), values, strict=True))
    return row


def read_label_file(run: Path | str, *, allow_stale: bool = False) -> LabelledRun:
    """Read a table of labels.

    Raises:
        UserError: There is no such table, a column is missing or of another type, a response has no id or two rows, or
            the judgments were stale when it was written and ``allow_stale`` is false.
    """
    file = _LabelFile(run)
    caveats = file.read_caveats()
    ProvenanceCheck(caveats.checked, caveats.stale).refuse_stale(
        Path(file.name), "Judge these responses, write the labels again", allow_stale=allow_stale
    )
    return LabelledRun(file.read_labels(), file, caveats)


class _LabelFile:
    """The Parquet files of a table; the position of a response is its row."""

    def __init__(self, run: Path | str) -> None:
        self._arrow, _ = import_pyarrow("reading labels in Parquet")
        from pyarrow import dataset  # noqa: PLC0415 - an extra

        self.name = get_remote_url(run) or str(run)
        try:
            filesystem, folder, paths = find_parquet_files(run)
            if not paths:
                raise UserError(f"{self.name}: holds no Parquet file.")
            # Spark and Hive write a column that they divide rows by into names of folders: `model=ours/part.parquet`.
            in_path = self._arrow.schema(_list_path_columns(path.removeprefix(folder) for path in paths))
            options: dict[str, Any] = {"format": "parquet", "filesystem": filesystem, "partition_base_dir": folder}
            options["partitioning"] = dataset.partitioning(in_path, flavor="hive")
            self._fragments = list(dataset.dataset(paths, in_path, **options).get_fragments())
            schemas = [fragment.physical_schema for fragment in self._fragments]
            self._requested = tuple(dict.fromkeys(name for each in schemas for name in _list_requested(each.names)))
            labels = label_schema(self._requested)
            self._read = [name for name in labels.names if name not in DERIVED_COLUMNS]
            schema = self._arrow.schema([labels.field(name) for name in self._read])
            self._dataset = dataset.dataset(paths, schema, **options)
            own = self._find_own_columns([*schemas, in_path], labels.names)
            self._own, self._schema = own.names, self._arrow.unify_schemas([schema, own])
            self._groups = [group for fragment in self._fragments for group in fragment.split_by_row_group()]
        except (OSError, self._arrow.ArrowException) as error:
            raise UserError(f"{self.name}: holds no table of labels that can be read ({error}).") from error
        for schema in schemas:
            self._check_columns(schema, in_path.names)
        sizes = [group.row_groups[0].num_rows for group in self._groups]
        self._starts = np.cumsum([0, *sizes])

    def _find_own_columns(self, schemas: Sequence[Any], labels: Sequence[str]) -> Any:
        """Return the user's own columns of files, as a schema."""
        own: dict[str, list[Any]] = {}
        for field in chain.from_iterable(schemas):
            if field.name not in labels:
                own.setdefault(field.name, []).append(self._arrow.schema([field]))
        return self._arrow.schema([self._merge_column(name, parts) for name, parts in own.items()])

    def _merge_column(self, name: str, parts: Sequence[Any]) -> Any:
        """Return a column of several files as one field: texts where one file holds numbers and another texts."""
        try:
            # One file may hold whole numbers where another holds others.
            return self._arrow.unify_schemas(parts, promote_options="permissive").field(0)
        except self._arrow.ArrowException as error:
            if any(self._arrow.types.is_nested(part.field(0).type) for part in parts):
                raise UserError(f"{self.name}: column {name} holds lists in one file and not in another.") from error
            return self._arrow.field(name, self._arrow.string())

    def _check_columns(self, schema: Any, in_path: Sequence[str]) -> None:
        if repeated := [name for name in schema.names if schema.names.count(name) > 1]:
            raise UserError(f"{self.name}: has two columns {repeated[0]}. Rename one of them.")
        if missing := [name for name in REQUIRED_COLUMNS if name not in (*schema.names, *in_path)]:
            raise UserError(
                f"{self.name}: has no column {missing[0]}, so it is no table of labels as `eclose data labels RUN` "
                f"writes it. If it holds responses, judge them first: eclose judge {self.name} --judge MODEL --out RUN."
            )
        # A number would be read as true where a program writes -1 for a missing label.
        for name in set(FLAG_COLUMNS).intersection(schema.names):
            if (kind := schema.field(name).type) not in (self._arrow.bool_(), self._arrow.null()):
                raise UserError(f"{self.name}: column {name} is {kind}. Labels are true, false, or null where missing.")
        # A number would be read as microseconds, whatever its unit is.
        if "answered_at" in schema.names and not str(kind := schema.field("answered_at").type).startswith(
            ("timestamp", "null")
        ):
            raise UserError(
                f"{self.name}: column answered_at is {kind}. Write a timestamp in UTC, or rename the column."
            )

    def read_caveats(self) -> JudgedCaseSet:
        """Return the caveats in the metadata of the files; without metadata nothing was checked."""
        sets = {}
        for fragment in self._fragments:
            content = json.loads((fragment.physical_schema.metadata or {}).get(_METADATA_KEY, b"null"))
            if content is None:
                sets[fragment.path] = JudgedCaseSet((), checked=False)
                continue
            if content.pop("schema", None) != LABELS_VERSION:
                raise UserError(f"{fragment.path}: this version reads {LABELS_VERSION}. Write the labels again.")
            lists = {name: tuple(content[name]) for name in ("stale", "selected")}
            left_out = tuple((id_, reason) for id_, reason in content["left_out"])
            sets[fragment.path] = JudgedCaseSet(
                (), left_out=left_out, rejected=content["rejected"], checked=content["checked"], **lists
            )
        return next(iter(sets.values())) if len(sets) == 1 else combine_caveats(sets, repeated_ids=False)

    def read_labels(self) -> LabelTable:
        """Return the labels of all rows."""
        names = [name for name in self._read if name not in RECORD_COLUMNS]
        try:
            columns = self._dataset.to_table(columns=names)
        except self._arrow.ArrowException as error:
            raise UserError(f"{self.name}: cannot be read as a table of labels ({error}).") from error
        for name in _NAMED_COLUMNS:
            if count := columns[name].null_count:
                raise UserError(f"{self.name}: {count:,} of {len(columns):,} rows have no {name}. Fill the column.")
        if not len(columns):
            return LabelTable.of(())
        ids = columns["response_id"]
        hashes = np.concatenate([hash_ids(chunk.to_pylist()) for chunk in ids.chunks])
        _, first, number = np.unique(hashes, return_index=True, return_inverse=True)
        for repeat in np.flatnonzero(first[number] != np.arange(len(hashes)))[:1].tolist():
            places = (f"row {first[number[repeat]] + 1}", f"row {repeat + 1}")
            raise describe_reused_id(Path(self.name), Judgment, ids[repeat].as_py(), *places)
        table = _make_table(columns, hashes, self.name)
        values = np.zeros((len(table), len(self._requested)))
        for column, name in enumerate(self._requested):
            values[:, column] = _read_values(columns, name)
        return replace(table, requested=self._requested, values=values)

    def read_cases(self, positions: Indices) -> Iterator[JudgedCase]:
        """Yield whole cases; without texts where the table has none."""
        for row in self._read_rows(positions, [*self._read, *self._own]):
            case = _read_case(row)
            columns, names = case.response.columns, _name_columns(case.response).values()
            added = {name: make_plain(row[name]) for name in self._own if name not in names and row[name] is not None}
            yield replace(case, response=replace(case.response, columns={**columns, **added})) if added else case

    def read_ids(self, positions: Indices) -> Iterator[str]:
        """Yield the ids of responses."""
        return (row["response_id"] for row in self._read_rows(positions, ["response_id"]))

    def hash_questions(self, positions: Indices) -> Iterator[QuestionHashes]:
        """Yield the hashes of the questions of responses; zeros where the table has none."""
        for row in self._read_rows(positions, ["question_hash", "passages_hash"]):
            yield QuestionHashes((row["question_hash"] or 0) % 2**64, (row["passages_hash"] or 0) % 2**64)

    def _read_rows(self, positions: Indices, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield some rows in the order of their positions, one row group in memory at a time."""
        rows = positions[:, 0]
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        pairs = zip(groups.tolist(), (rows - self._starts[groups]).tolist(), strict=True)
        for group, places in groupby(pairs, key=lambda pair: pair[0]):
            table = self._groups[group].to_table(schema=self._schema, columns=columns)
            yield from table.take([row for _, row in places]).to_pylist()
            # Arrow keeps what it has freed; texts of several row groups would stay in memory.
            self._arrow.default_memory_pool().release_unused()


def _list_path_columns(paths: Iterable[str]) -> list[Any]:
    """Return the columns whose values are in paths, as fields; the user's own are texts."""
    arrow, _ = import_pyarrow()
    names = [part.partition("=")[0] for path in paths for part in path.split("/")[:-1] if "=" in part]
    labels = label_schema()
    return [
        labels.field(name) if name in labels.names else arrow.field(name, arrow.string())
        for name in dict.fromkeys(names)
    ]


def _make_table(columns: Any, ids: Hashes, name: str) -> LabelTable:
    """Return the labels of the rows of an Arrow table, whose ids have these hashes."""
    rows = np.arange(len(ids))
    flags = {column: np.array(columns[column].cast("int8").fill_null(-1)) for column in FLAG_COLUMNS}
    (benchmark, benchmarks), (instance, instances), (model, models), (judge, judges) = (
        _encode(columns[column]) for column in ("benchmark", "instance_id", "model", "judge")
    )
    question, order = number_by_appearance(instance * (len(benchmarks) + 1) + benchmark + 1)
    keys = (divmod(number, len(benchmarks) + 1) for number in order.tolist())
    # A table of another program has no hashes; the last of these is that of an unknown model.
    by_model = np.array([*(hash_source(ResponseSource(model)) for model in models), 0], np.uint64)[model]
    source = columns["source_hash"].fill_null(0).to_numpy().view(np.uint64)
    reading, reading_texts = _encode(columns["reading"])
    reasons, unjudged = _read_reasons(columns)
    if (no_claim := (Criterion.LOCAL_SOUNDNESS, NO_CLAIM_REASON)) in reasons:
        flags["without_trace"][unjudged[unjudged[:, 1] == reasons.index(no_claim), 0]] = 1
    verdict = np.zeros(len(rows), np.uint16)
    for column, criterion in CRITERION_COLUMNS.items():
        codes = flags[column] + 1
        # As with a judgment: L comes from the steps, and is unknown where a reason says so.
        if criterion is Criterion.LOCAL_SOUNDNESS:
            codes[columns[_name_reason_column(column)].is_valid().to_numpy()] = 0
        verdict = 3 * verdict + codes.astype(np.uint16)
    failed_rows, failures = _flatten(columns["step_failures"])
    voted_rows, votes = _flatten(columns["votes"])
    labels, true, false = votes.flatten()
    failure_numbers = _number_names(failures, [str(failure) for failure in LocalFailure], name)
    vote_columns = (_number_names(labels, [str(label) for label in VOTED_LABELS], name), true, false)
    return LabelTable(
        ids=ids,
        question=question.astype(np.int32),
        model=model.astype(np.int32),
        source=np.where(source == 0, by_model, source),
        judge=judge.astype(np.int32),
        verdict=verdict + np.uint16(ABSTAINED_CODES) * (flags["abstained"] == 1),
        evidence=flags["evidence_sufficient"],
        matched=flags["matched"],
        matched_with_aliases=flags["matched_with_aliases"],
        without_trace=flags["without_trace"] == 1,
        reading=reading.astype(np.int32),
        time=columns["answered_at"].cast("int64").fill_null(NO_TIME).to_numpy(),
        positions=np.repeat(rows[:, None], 3, axis=1),
        questions=tuple(([*benchmarks, None][benchmark - 1], instances[instance]) for instance, benchmark in keys),
        models=tuple(models),
        judges=tuple(judges),
        readings=tuple(_parse_reading(text, name) for text in reading_texts),
        reasons=reasons,
        step_failures=np.stack([failed_rows, failure_numbers], axis=1),
        unjudged=unjudged,
        votes=np.stack([voted_rows, *vote_columns], axis=1).astype(np.intp),
    )


def _list_requested(names: Sequence[str]) -> list[str]:
    """Return the columns of what judges gave on request, each of which has one for the reason why it is missing."""
    columns = [name for name in names if name in CONTEXT_COLUMNS or name.startswith(OWN_PREFIX)]
    return [name for name in columns if name_requested_reason(name) in names]


def _read_values(columns: Any, name: str) -> Floats:
    """Return a column of what judges gave on request, as ``LabelTable.values`` holds it."""
    column = columns[name].cast("int8") if name.startswith(OWN_PREFIX) else columns[name]
    values = np.array(column.fill_null(int(UNJUDGED))).astype(float)
    is_asked = columns[name].is_valid().to_numpy() | columns[name_requested_reason(name)].is_valid().to_numpy()
    values[~is_asked] = NOT_ASKED
    return values


def _parse_reading(text: str, name: str) -> ReadingKey:
    status, *parts = text.split("/", 2)
    if status not in list(ReadingStatus) or len(parts) != 2:
        raise UserError(
            f"{name}: column reading holds {text!r}. Write status/origin/rule: trace/prose/conclusion word."
        )
    return ReadingStatus(status), parts[0] or None, parts[1]


def _read_reasons(columns: Any) -> tuple[tuple[tuple[Criterion, str], ...], Indices]:
    """Return the criteria with the kinds of reasons, and row and position among them of every missing label."""
    numbers: dict[tuple[Criterion, str], int] = {}
    entries = []
    for column, criterion in CRITERION_COLUMNS.items():
        codes, texts = _encode(columns[_name_reason_column(column)])
        kinds = [numbers.setdefault((criterion, missing_reason_kind(text)), len(numbers)) for text in texts]
        rows = np.flatnonzero(codes >= 0)
        entries.append(np.stack([rows, np.array([*kinds, -1], np.intp)[codes[rows]]], axis=1))
    return tuple(numbers), np.concatenate(entries)


def _encode(column: Any) -> tuple[Codes, list[str]]:
    """Return the position of each text among the distinct ones, -1 where there is none, and the distinct ones."""
    encoded = column.dictionary_encode().unify_dictionaries()
    codes = [chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    return np.concatenate(codes).astype(np.int64), encoded.chunk(0).dictionary.to_pylist()


def _flatten(column: Any) -> tuple[Indices, Any]:
    """Return the row of every entry of a column of lists, and the entries."""
    lists = column.combine_chunks()
    return np.repeat(np.arange(len(lists)), lists.value_lengths().fill_null(0).to_numpy()), lists.flatten()


def _number_names(values: Any, choices: Sequence[str], name: str) -> Indices:
    """Return the positions of names in a list; raise UserError where one is not in it."""
    encoded = values.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if unknown := [each for each in names if each not in choices]:
        raise UserError(f"{name}: {unknown[0]!r} is none of {', '.join(choices)}.")
    numbers: Indices = np.array([choices.index(each) for each in names], np.intp)[encoded.indices.to_numpy()]
    return numbers


def _read_case(row: dict[str, Any]) -> JudgedCase:
    """Return the case of a row; without texts where the row has no records."""
    if all(row[name] is not None for name in RECORD_COLUMNS):
        return JudgedCase(
            decode_core_value(Instance, parse_json_object(row["instance_record"].encode())),
            decode_core_value(Response, parse_json_object(row["response_record"].encode())),
            decode_core_value(Judgment, parse_json_object(row["judgment_record"].encode())),
        )
    reasons = {criterion: row[_name_reason_column(name)] for name, criterion in CRITERION_COLUMNS.items()}
    failure = next((LocalFailure(code) for code in row["step_failures"] or ()), None)
    judgment = Judgment(
        row["response_id"],
        row["judge"],
        (StepJudgment(True, row["locally_sound"], failure, reason=WHOLE_TRACE_REASON),),
        **{name: row[name] for name in (*CRITERION_COLUMNS, "evidence_sufficient") if name != "locally_sound"},
        unjudged={criterion: reason for criterion, reason in reasons.items() if reason is not None},
        evidence_unjudged=row["evidence_unjudged"],
        abstained=bool(row["abstained"]),
    )
    source = None if row["model"] is None else ResponseSource(row["model"])
    return JudgedCase(
        Instance(row["instance_id"], "", (), benchmark=row["benchmark"]),
        Response(
            row["response_id"], row["instance_id"], Trace(()), None, source, time=normalize_time(row["answered_at"])
        ),
        judgment,
    )
