"""Labels of a judged run as one Parquet table: a file, a folder of files, or an address in object storage.

The columns are those of ``label_schema``; ``describe_labels`` fills all of them. Any other column is the user's own. A
table of another program needs ``REQUIRED_COLUMNS``; any other column that it lacks has no value in any row. Counting
reads no texts. Needs pyarrow.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.diagnosis.label_table import VOTED_LABELS, Hashes, LabelTable, hash_source, number_by_appearance
from eclose.diagnosis.labelled_run import LabelledRun, QuestionHashes, read_run_files
from eclose.diagnosis.response_failure import derive_failure_fields, name_reading
from eclose.errors import UserError
from eclose.files.json_reader import parse_json_object
from eclose.files.jsonl import decode_core_value, encode_json_line
from eclose.files.parquet import ParquetWriter, get_remote_url, import_pyarrow, list_arrow_fields, open_filesystem
from eclose.files.record_file import hash_ids
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.tables import fit_column_type, infer_column_types, make_plain, name_own_columns
from eclose.files.verify import ProvenanceCheck
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eclose.readers.readings import ReadingKey
    from eclose.stats.arrays import Codes, Indices

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
DERIVED_COLUMNS = ("first_unsound_step", "reliable", "in_gap", *_FAILURE_TEXTS, "abstains", "cost")
"""Columns for queries of other programs; they follow from the records, and no reader uses them."""
_NAMED_COLUMNS = ("response_id", "instance_id", "judge")
_FLAG_COLUMNS = (*CRITERION_COLUMNS, "evidence_sufficient", "matched", "matched_with_aliases", "without_trace")
_METADATA_KEY = b"eclose"
_GROUP_ROWS = 2_000
"""Rows of a row group; a response that is shown costs the texts of its group."""


@cache
def label_schema() -> Any:
    """Return the columns of a table of labels, as a schema of Arrow."""
    arrow, _ = import_pyarrow("a table of labels")
    text, flag, hash_ = arrow.string(), arrow.bool_(), arrow.uint64()
    votes = arrow.struct([("label", text), ("true", arrow.int32()), ("false", arrow.int32())])
    columns = [(name, text) for name in ("response_id", "instance_id", "benchmark", "model", "judge")]
    for name in (*CRITERION_COLUMNS, "evidence_sufficient"):
        columns += [(name, flag), (_name_reason_column(name), text)]
    columns += [("first_unsound_step", arrow.int32()), ("step_failures", arrow.list_(text))]
    columns += [("votes", arrow.list_(votes))]
    columns += [(name, flag) for name in _FLAG_COLUMNS[-3:]]
    columns += [("reading", text)]
    columns += [(name, hash_) for name in ("question_hash", "passages_hash", "source_hash")]
    columns += [("reliable", flag), ("in_gap", flag), *((name, text) for name in _FAILURE_TEXTS)]
    columns += [("abstains", flag), ("cost", arrow.float64())]
    return arrow.schema([*columns, *((name, text) for name in RECORD_COLUMNS)])


def _list_read_columns() -> list[str]:
    """Return the columns that readers use."""
    return [name for name in label_schema().names if name not in DERIVED_COLUMNS]


def _name_reason_column(label: str) -> str:
    return "evidence_unjudged" if label == "evidence_sufficient" else f"{label}_unjudged"


def is_label_file(run: Path | str) -> bool:
    """Return whether a run is a table of labels: an address, a Parquet file, or a folder of them and of no run."""
    path = Path(run)
    if get_remote_url(run) is not None or path.suffix == ".parquet":
        return True
    if not path.is_dir() or any((path / name).exists() for name in (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE)):
        return False
    return any(path.glob("*.parquet"))


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
    schema = label_schema()
    filesystem, path = open_filesystem(out)
    if filesystem.get_file_info([path])[0].type.name != "NotFound":
        raise UserError(f"{out}: exists already. Name another file, or remove this one.")
    counted = read_run_files(Path(run), allow_stale=allow_stale)
    caveats = {name: getattr(counted.caveats, name) for name in JudgedCaseSet.__slots__ if name != "cases"}
    schema = schema.with_metadata({_METADATA_KEY: json.dumps({"schema": LABELS_VERSION, **caveats})})
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
    types = dict(own)
    for field in list_arrow_fields(own):
        schema = schema.append(field)
    with ParquetWriter(path, schema) as file:
        for start in range(0, len(counted.labels), _GROUP_ROWS):
            cases = counted.source.read_cases(counted.labels.positions[start : start + _GROUP_ROWS])
            rows = [describe_labels(case) for case in cases]
            names = label_schema().names
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
        "reading": name_reading(response),
        "question_hash": hashes.text,
        "passages_hash": hashes.passages,
        "source_hash": hash_source(response.source),
        **{name: encode_json_line(record).decode() for name, record in records.items()},
        **{name: response.columns[column] for column, name in _name_columns(response).items()},
    }


def _name_columns(response: Response) -> dict[str, str]:
    """Return the name in a table of each own column of a response."""
    return name_own_columns([response.columns], label_schema().names) if response.columns else {}


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
        from pyarrow import dataset, fs  # noqa: PLC0415 - an extra

        self.name = get_remote_url(run) or str(run)
        filesystem, path = open_filesystem(run)
        try:
            paths = [path]
            if filesystem.get_file_info([path])[0].type is fs.FileType.Directory:
                entries = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
                paths = sorted(info.path for info in entries if info.path.endswith(".parquet"))
            schema = self._arrow.schema([label_schema().field(name) for name in _list_read_columns()])
            self._dataset = dataset.dataset(paths, schema, format="parquet", filesystem=filesystem)
            self._fragments = list(self._dataset.get_fragments())
            schemas = [fragment.physical_schema for fragment in self._fragments]
            own = self._find_own_columns(schemas)
            self._own, self._schema = own.names, self._arrow.unify_schemas([schema, own])
            self._groups = [group for fragment in self._fragments for group in fragment.split_by_row_group()]
        except (OSError, self._arrow.ArrowException) as error:
            raise UserError(f"{self.name}: holds no table of labels that can be read ({error}).") from error
        if not paths:
            raise UserError(f"{self.name}: holds no Parquet file.")
        for schema in schemas:
            self._check_columns(schema)
        sizes = [group.row_groups[0].num_rows for group in self._groups]
        self._starts = np.cumsum([0, *sizes])

    def _find_own_columns(self, schemas: Sequence[Any]) -> Any:
        """Return the user's own columns of files, as a schema."""
        names = label_schema().names
        other = [self._arrow.schema([field for field in schema if field.name not in names]) for schema in schemas]
        # One file may hold whole numbers where another holds others.
        return self._arrow.unify_schemas([self._arrow.schema([]), *other], promote_options="permissive")

    def _check_columns(self, schema: Any) -> None:
        if missing := [name for name in REQUIRED_COLUMNS if name not in schema.names]:
            raise UserError(
                f"{self.name}: has no column {missing[0]}, so it is no table of labels as `eclose data labels RUN` "
                f"writes it. If it holds responses, judge them first: eclose judge {self.name} --judge MODEL --out RUN."
            )
        # A number would be read as true where a program writes -1 for a missing label.
        for name in set(_FLAG_COLUMNS).intersection(schema.names):
            if (kind := schema.field(name).type) not in (self._arrow.bool_(), self._arrow.null()):
                raise UserError(f"{self.name}: column {name} is {kind}. Labels are true, false, or null where missing.")

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
        names = [name for name in _list_read_columns() if name not in RECORD_COLUMNS]
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
        return _make_table(columns, hashes, self.name)

    def read_cases(self, positions: Indices) -> Iterator[JudgedCase]:
        """Yield whole cases; without texts where the table has none."""
        for row in self._read_rows(positions, [*_list_read_columns(), *self._own]):
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
            yield QuestionHashes(row["question_hash"] or 0, row["passages_hash"] or 0)

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


def _make_table(columns: Any, ids: Hashes, name: str) -> LabelTable:
    """Return the labels of the rows of an Arrow table, whose ids have these hashes."""
    rows = np.arange(len(ids))
    flags = {column: np.array(columns[column].cast("int8").fill_null(-1)) for column in _FLAG_COLUMNS}
    (benchmark, benchmarks), (instance, instances), (model, models), (judge, judges) = (
        _encode(columns[column]) for column in ("benchmark", "instance_id", "model", "judge")
    )
    question, order = number_by_appearance(instance * (len(benchmarks) + 1) + benchmark + 1)
    keys = (divmod(number, len(benchmarks) + 1) for number in order.tolist())
    # A table of another program has no hashes; the last of these is that of an unknown model.
    by_model = np.array([*(hash_source(ResponseSource(model)) for model in models), 0], np.uint64)[model]
    source = columns["source_hash"].fill_null(0).to_numpy()
    reading, reading_texts = _encode(columns["reading"])
    reasons, unjudged = _read_reasons(columns)
    if (no_claim := (Criterion.LOCAL_SOUNDNESS, NO_CLAIM_REASON)) in reasons:
        flags["without_trace"][unjudged[unjudged[:, 1] == reasons.index(no_claim), 0]] = 1
    verdict = np.zeros(len(rows), np.uint8)
    for column, criterion in CRITERION_COLUMNS.items():
        codes = flags[column] + 1
        # As with a judgment: L comes from the steps, and is unknown where a reason says so.
        if criterion is Criterion.LOCAL_SOUNDNESS:
            codes[columns[_name_reason_column(column)].is_valid().to_numpy()] = 0
        verdict = 3 * verdict + codes.astype(np.uint8)
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
        verdict=verdict,
        evidence=flags["evidence_sufficient"],
        matched=flags["matched"],
        matched_with_aliases=flags["matched_with_aliases"],
        without_trace=flags["without_trace"] == 1,
        reading=reading.astype(np.int32),
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
    )
    source = None if row["model"] is None else ResponseSource(row["model"])
    return JudgedCase(
        Instance(row["instance_id"], "", (), benchmark=row["benchmark"]),
        Response(row["response_id"], row["instance_id"], Trace(()), None, source),
        judgment,
    )
