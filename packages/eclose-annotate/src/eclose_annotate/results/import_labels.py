"""Import of labels made elsewhere: one row per response and annotator, as JSON Lines or CSV.

The ``annotations.jsonl`` of an export is read without loss. All problems of all files are reported together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.errors import RecordError, SettingError, UserError
from eclose.files.json_reader import read_json_objects
from eclose.files.jsonl import check_core_rules, decode_core_value
from eclose.files.tables import LABEL_WORDS, TABLE_SUFFIXES, WORKBOOK_SUFFIXES, read_csv, unescape_formula
from eclose.readers.judged_run import read_run_records
from eclose.values.judgment import (
    WHOLE_TRACE_REASON,
    Criterion,
    Ineligibility,
    Judgment,
    QuestionScreening,
    StepJudgment,
)
from eclose.values.response import ResponseSource
from eclose_annotate.annotations import Annotation, AnnotationSet, Record, ScreeningAnnotation, group_annotations
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.material_store import AnnotationMaterial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eclose.files.json_reader import JsonObject
    from eclose.values.three_valued import Label

NOT_LABELLED = "no label was given"
"""Reason of a criterion whose cell is empty."""
# Problems in one message; a file in a wrong layout has one in every row.
_MOST_PROBLEMS = 20
_LETTERS = {
    "locally_sound": Criterion.LOCAL_SOUNDNESS,
    "aligned": Criterion.ALIGNMENT,
    "closed": Criterion.CLOSURE,
    "complete": Criterion.COMPLETENESS,
    "correct": Criterion.CORRECTNESS,
}
_ORIGIN = ("question_id", "benchmark", "model", "method", "seed", "asked")
COLUMN_NAMES = ("response_id", "annotator", "adjudicates", *_LETTERS, *_ORIGIN, "eligible", "code")
"""Names of the columns. Labels may also be named by the paper's letters; the last two columns are of questions."""


class ImportedLabels(NamedTuple):
    """Imported annotations."""

    annotations: AnnotationSet
    skipped: int
    """Rows that their annotator left without a label."""
    notice: str | None = None
    """Which labels no row has, and the columns that were not used; None where no label is missing everywhere."""


@dataclass(slots=True)
class _Reading:
    """State of an import."""

    columns: Mapping[str, str]
    run: AnnotationMaterial | None
    annotator: str | None = None
    """Name of the person in files without a column of annotators."""
    annotator_used: bool = False
    file_columns: Sequence[str] = ()
    """Columns of the file that is being read."""
    annotations: list[Annotation] = field(default_factory=list)
    screenings: list[ScreeningAnnotation] = field(default_factory=list)
    problems: dict[tuple[Path, str], list[str]] = field(default_factory=dict)
    """Locations of the rows with a problem, by file and problem."""
    skipped: int = 0
    labelled: set[str] = field(default_factory=set)
    """Names of the labels that some row of a table has."""
    people: dict[tuple[object, ...], str] = field(default_factory=dict)
    """Position of each person's row by subject, to find duplicates."""
    shapes: dict[tuple[object, ...], tuple[object, str]] = field(default_factory=dict)
    """Values that all rows of a subject must share, with the position of the first row."""


class _RowError(RecordError):
    """A row with several problems, which are counted apart."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def read_run_material(run: Path) -> AnnotationMaterial:
    """Read the questions and responses of a run's folder; raise where ids are not unique or questions are missing."""
    files = read_run_records(run)
    instances, responses = dict(files.instances), {response.id: response for response in files.responses}
    if orphans := [response.id for response in responses.values() if response.instance_id not in instances]:
        raise UserError(f"{run}: the questions of response {orphans[0]!r} and {len(orphans) - 1} more are missing.")
    return AnnotationMaterial(instances, responses)


def read_label_files(
    paths: Sequence[Path],
    *,
    columns: Mapping[str, str] | None = None,
    run: AnnotationMaterial | None = None,
    per_response: int | None = None,
    annotator: str | None = None,
) -> ImportedLabels:
    """Read all annotations of JSON Lines, JSON, CSV or TSV files.

    Args:
        paths: The files.
        columns: Names of the files' columns, by the name used here; labels also by their letters.
        run: Material of the labelled run, which supplies questions and sources of responses.
        per_response: Number of people assigned to each response; None takes the largest number found.
        annotator: Name of the person who labelled, for files without a column of annotators.

    Raises:
        SettingError: A column is in none of the files, or every row names its annotator although ``annotator`` does.
        UserError: Rows cannot be used; the message counts the rows of each problem.
    """
    names_by_letter = {str(letter): name for name, letter in _LETTERS.items()}
    columns = {names_by_letter.get(name, name): column for name, column in (columns or {}).items()}
    if unknown := sorted(set(columns) - set(COLUMN_NAMES)):
        raise SettingError(f"--column: unknown name {', '.join(unknown)}. Choose from: {', '.join(COLUMN_NAMES)}.")
    reading = _Reading(columns, run, annotator)
    all_columns: dict[str, None] = {}
    for path in paths:
        reading.file_columns, file_rows = _read_rows(path)
        all_columns.update(dict.fromkeys(reading.file_columns))
        for where, row in file_rows:
            _add_row(reading, path, where, row)
    # Before the problems of rows: a misspelt column may be the cause of all of them.
    for name, column in reading.columns.items():
        if column not in all_columns:
            raise SettingError(
                f"--column {name}={column}: no file has a column {column!r}. Columns: {', '.join(all_columns)}."
            )
    if reading.problems:
        # Each problem of a file once, with its first row and the number of further rows.
        problems = []
        for (path, problem), rows in list(reading.problems.items())[:_MOST_PROBLEMS]:
            further = {1: "", 2: " and 1 more row"}.get(len(rows), f" and {len(rows) - 1:,} more rows")
            problems.append(f"{path} {rows[0]}{further}: {problem}")
        if more := len(reading.problems) - len(problems):
            problems.append(f"and {more:,} more")
        raise UserError(f"these labels cannot be imported. {'; '.join(problems)}.")
    if not reading.annotations and not reading.screenings:
        raise UserError(f"{', '.join(map(str, paths))}: holds no labels. Is this the right file?")
    if annotator is not None and not reading.annotator_used:
        raise SettingError(f"--annotator {annotator}: every row names its annotator. Leave the option out.")
    annotations = _fill_required(reading.annotations, lambda row: row.response_id, per_response)
    screenings = _fill_required(reading.screenings, lambda row: row.question_id, None)
    notice = _describe_missing_labels(reading, all_columns)
    return ImportedLabels(group_annotations(annotations, screenings), reading.skipped, notice)


def _describe_missing_labels(reading: _Reading, columns: Iterable[str]) -> str | None:
    """Return which labels no row of the tables has, since a column of another name is lost without a word."""
    missing = [name for name in _LETTERS if name not in reading.labelled]
    if not reading.labelled or not missing:
        return None
    expected = {*COLUMN_NAMES, *_LETTERS.values(), *reading.columns.values()}
    unused = ", ".join(column for column in columns if column not in expected)
    remedy = f" Columns not used: {unused}; name a column with --column {missing[0]}=COLUMN." if unused else ""
    return f"No row has a label for {', '.join(missing)}.{remedy}"


def _read_rows(path: Path) -> tuple[list[str], list[tuple[str, JsonObject | RecordError]]]:
    """Return the columns of a file, and its rows with their locations."""
    rows: list[tuple[str, JsonObject | RecordError]] = []
    if path.suffix.lower() in WORKBOOK_SUFFIXES:
        raise UserError(f"{path}: is a workbook. Save the sheet as CSV UTF-8, and import that file.")
    if path.suffix.lower() in TABLE_SUFFIXES:
        header, table = read_csv(path)
        rows += ((where, {name: unescape_formula(cell) for name, cell in cells.items()}) for where, cells in table)
        return header, rows
    for raw in read_json_objects(path):
        if raw.value is not None:
            rows.append((raw.where, raw.value))
        elif raw.error is not None:
            rows.append((raw.where, raw.error))
    return list(dict.fromkeys(name for _, row in rows if not isinstance(row, RecordError) for name in row)), rows


def _add_row(reading: _Reading, path: Path, where: str, row: JsonObject | RecordError) -> None:
    """Parse a row into annotations, or record its problem."""
    position = f"{path} {where}"
    try:
        if isinstance(row, RecordError):
            raise row
        record = _parse_row(reading, row)
        if record is None:
            reading.skipped += 1
        elif isinstance(record, ScreeningAnnotation):
            _check_record(reading, position, record, record.question_id, record.asked)
            reading.screenings.append(record)
        else:
            judgment = record.judgment if record.kind is AnnotationTaskKind.RESPONSE else None
            steps = None if judgment is None else len(judgment.steps)
            shape = (record.question_id, record.kind, record.asked)
            _check_record(reading, position, record, record.response_id, shape, steps)
            reading.annotations.append(record)
    except RecordError as error:
        for problem in error.problems if isinstance(error, _RowError) else (error.problem,):
            reading.problems.setdefault((path, problem), []).append(where)


def _check_record(
    reading: _Reading,
    position: str,
    record: Annotation | ScreeningAnnotation,
    subject: str,
    shape: object,
    steps: int | None = None,
) -> None:
    """Raise for a repeated person, a second adjudicator, and rows of a subject that contradict each other."""
    person = "an adjudicator" if record.adjudicates else str(record.annotator)
    key = (type(record), subject, person)
    if (earlier := reading.people.get(key)) is not None:
        raise RecordError(f"{subject!r} was labelled by {person} before ({earlier}); keep one of the rows")
    reading.people[key] = position
    expected, first = reading.shapes.setdefault((type(record), subject), (shape, position))
    if expected != shape:
        raise RecordError(f"{subject!r} has another question, form or number of people than in {first}")
    if steps is not None:
        expected, first = reading.shapes.setdefault(("steps", subject), (steps, position))
        if expected != steps:
            raise RecordError(f"{subject!r} has {steps} steps here, and {expected} in {first}")


def _parse_row(reading: _Reading, row: JsonObject) -> Annotation | ScreeningAnnotation | None:
    """Recognise the kind of a row by its keys: exported record or flat row."""
    if "judgment" in row or ("kind" in row and "annotator" not in row):
        return _check_exported(decode_core_value(Annotation, row))
    if "screening" in row or ("asked" in row and not {"annotator", "response_id"} & row.keys()):
        return _check_exported(decode_core_value(ScreeningAnnotation, row))
    if _value(row, _column(reading, "response_id")) is None and "eligible" in row:
        return _flat_screening(reading, row)
    return _flat_annotation(reading, row)


def _check_exported(record: Annotation | ScreeningAnnotation) -> Annotation | ScreeningAnnotation:
    """Return an exported record; raise where its judgment names another response or person."""
    label = record.judgment if isinstance(record, Annotation) else record.screening
    if (record.annotator is None) != (label is None):
        raise RecordError("has an annotator without labels, or labels without an annotator")
    subject = record.response_id if isinstance(record, Annotation) else record.question_id
    if label is not None:
        check_core_rules(label)
        labelled = label.response_id if isinstance(label, Judgment) else label.id
        if (labelled, label.judge) != (subject, record.annotator):
            raise RecordError(
                f"holds the labels of {label.judge!r} for {labelled!r}, but is the row of {record.annotator!r} for"
                f" {subject!r}"
            )
    return record


def _flat_annotation(reading: _Reading, row: JsonObject) -> Annotation | None:
    values = {name: _value(row, _column(reading, name)) for name in COLUMN_NAMES}
    labels, problems = _read_labels(reading, row, ("adjudicates", *_LETTERS))
    values["adjudicates"] = labels.pop("adjudicates", None)
    reading.labelled.update(name for name, label in labels.items() if label is not None)
    # An exported row without annotator stands for an unfinished response.
    unlabelled = all(label is None for label in labels.values())
    if values["annotator"] is None and unlabelled and values["asked"] is not None:
        return _annotation(reading, values, None)
    values["annotator"] = _name_annotator(reading, values)
    has_columns = any(key in row for name in _LETTERS for key in (_column(reading, name), name, _LETTERS[name]))
    if not problems and unlabelled and not has_columns:
        problems.append(f"has no label; name the columns {', '.join(_LETTERS)}, or map them with --column")
    problems[:0] = [_explain_empty(reading, name) for name in ("response_id", "annotator") if values[name] is None]
    if problems:
        raise _RowError(problems)
    if unlabelled:
        return None
    return _annotation(reading, values, _judgment(str(values["response_id"]), str(values["annotator"]), labels))


def _flat_screening(reading: _Reading, row: JsonObject) -> ScreeningAnnotation:
    values = {name: _value(row, _column(reading, name)) for name in COLUMN_NAMES}
    labels, problems = _read_labels(reading, row, ("adjudicates", "eligible"))
    code, eligible, person = values["code"], labels.get("eligible"), values["annotator"]
    unfinished = person is None and eligible is None and values["asked"] is not None
    if not unfinished:
        person = values["annotator"] = _name_annotator(reading, values)
        problems += [_explain_empty(reading, name) for name in ("question_id", "annotator") if values[name] is None]
    if not problems and not unfinished and (eligible is None or (code is None) is not eligible):
        problems.append("eligible: must be yes without a code, or no with a code")
    if code is not None and code not in list(Ineligibility):
        problems.append(f"code: {code!r} is not one of {', '.join(Ineligibility)}")
    if problems:
        raise _RowError(problems)
    question, reason = str(values["question_id"]), None if code is None else Ineligibility(str(code))
    return ScreeningAnnotation(
        question,
        _number(values, "asked") or 0,
        None if person is None else str(person),
        None if person is None else QuestionScreening(question, str(person), eligible, reason),
        adjudicates=bool(labels.get("adjudicates")),
        benchmark=None if values["benchmark"] is None else str(values["benchmark"]),
    )


def _name_annotator(reading: _Reading, values: Mapping[str, object]) -> object:
    """Return the annotator of a row; in a file without that column the one named for the import."""
    if values["annotator"] is not None or _column(reading, "annotator") in reading.file_columns:
        return values["annotator"]
    reading.annotator_used = reading.annotator is not None
    return reading.annotator


def _explain_empty(reading: _Reading, name: str) -> str:
    """Return why a row lacks a value it needs: its cell is empty, or its file has no such column."""
    column = _column(reading, name)
    if column in reading.file_columns:
        return f"{column}: is empty"
    person = ", or the person with --annotator NAME" if name == "annotator" else ""
    columns = ", ".join(reading.file_columns)
    return f"there is no column {column!r} among {columns}; name it with --column {name}=COLUMN{person}"


def _column(reading: _Reading, name: str) -> str:
    return reading.columns.get(name, name)


def _read_labels(reading: _Reading, row: JsonObject, names: Sequence[str]) -> tuple[dict[str, Label], list[str]]:
    """Return the labels by name, and the problems of cells that hold none."""
    labels: dict[str, Label] = {}
    problems = []
    for name in names:
        column = _column(reading, name)
        # Of several files one may have the mapped column and another the usual name.
        mapped = column != name and column in reading.file_columns
        keys = (column,) if mapped else (column, name, _LETTERS.get(name, name))
        cell = next((row[key] for key in keys if key in row), None)
        # 1.0 becomes 1, since spreadsheet tools write floats in columns with gaps.
        word = "" if cell is None else str(cell).strip().lower().removesuffix(".0")
        if word in LABEL_WORDS:
            labels[name] = LABEL_WORDS[word]
        else:
            problems.append(f"{column}: {cell!r} is not a label; write yes or no")
    return labels, problems


def _value(row: JsonObject, column: str) -> object:
    value = row.get(column)
    return value.strip() or None if isinstance(value, str) else value


def _judgment(response_id: str, annotator: str, labels: Mapping[str, Label]) -> Judgment:
    sound = labels["locally_sound"]
    return Judgment(
        response_id=response_id,
        judge=annotator,
        steps=() if sound is None else (StepJudgment(True, sound, reason=WHOLE_TRACE_REASON),),
        aligned=labels["aligned"],
        closed=labels["closed"],
        complete=labels["complete"],
        correct=labels["correct"],
        unjudged={_LETTERS[name]: NOT_LABELLED for name, label in labels.items() if label is None},
    )


def _annotation(reading: _Reading, values: Mapping[str, Any], judgment: Judgment | None) -> Annotation:
    """Build an annotation without steps; the run supplies question, benchmark and source."""
    response_id, question = str(values["response_id"]), values.get("question_id")
    benchmark, source = values.get("benchmark"), _source(values)
    # The run is authoritative: contradicting columns are errors, missing ones are filled.
    if reading.run is not None:
        response = reading.run.responses.get(response_id)
        if response is None:
            raise RecordError(f"{response_id!r} is not a response of the run")
        if question not in (None, response.instance_id):
            raise RecordError(f"{response_id!r} answers {response.instance_id!r} in the run, not {question!r}")
        question, source = response.instance_id, response.source
        benchmark = reading.run.instances[question].benchmark
    if question is None:
        raise RecordError("question_id: is empty; add the column, or name the run with --run")
    return Annotation(
        response_id=response_id,
        question_id=str(question),
        kind=AnnotationTaskKind.SHORT,
        asked=_number(values, "asked") or 0,  # 0 is replaced when all rows are read
        annotator=None if judgment is None else judgment.judge,
        judgment=judgment,
        adjudicates=bool(values.get("adjudicates")),
        benchmark=None if benchmark is None else str(benchmark),
        source=source,
    )


def _source(values: Mapping[str, Any]) -> ResponseSource | None:
    model, method = values.get("model"), values.get("method")
    seed = _number(values, "seed")
    return None if model is None else ResponseSource(str(model), None if method is None else str(method), seed)


def _number(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    try:
        return None if value is None else int(value)
    except ValueError as error:
        raise RecordError(f"{name}: {value!r} is not a number") from error


def _fill_required(
    rows: Sequence[Record], subject: Callable[[Record], str], per_response: int | None
) -> Iterator[Record]:
    """Set the number of assigned people where rows lack it: ``per_response``, or the largest number of any subject."""
    # Adjudicators come in addition to the people who were assigned.
    counts = Counter(subject(row) for row in rows if not row.asked and not row.adjudicates)
    required = per_response or max(counts.values(), default=1)
    for row in rows:
        yield row if row.asked else replace(row, asked=max(required, counts[subject(row)]))
