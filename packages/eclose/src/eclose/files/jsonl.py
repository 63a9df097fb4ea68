"""Core values as JSON Lines: validated when read, written atomically.

Every record that enters the program is checked here, against the annotations of the core values and the rules that a
type cannot express. Later code relies on it and does not check again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from eclose.errors import RecordError
from eclose.files.atomic import AtomicFile
from eclose.files.json_reader import read_json_objects
from eclose.values.family import Family
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Judgment
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from eclose.files.json_reader import JsonObject

T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")
_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}

PASSAGE_LIMIT = 1_000_000
"""Longest passage in characters: twenty times the longest complete context of the paper's benchmarks."""

NOT_JSON = "not JSON"
WRONG_RECORD = "wrong record"
DUPLICATE = "duplicate"
"""Reason for a record that repeats an earlier one with the same id."""
ID_REUSED = "id used twice"
"""Kind of error for other content under an id that was used before."""


@dataclass(frozen=True, slots=True)
class ReadRecord(Generic[T]):
    """One record of a file: its value, the reason for its rejection, or the error that took its place."""

    where: str
    """Location in the file, such as ``line 412``."""
    value: T | None = None
    rejected: str | None = None
    """Reason to set a readable record aside on purpose, such as ``duplicate``."""
    error: RecordError | None = None
    error_kind: str = "unreadable"
    """The kind of error, under which quarantined records are counted."""
    repairs: tuple[str, ...] = ()
    """Names of the repairs the record needed, each documented in the data guide."""


def scan_records(path: Path | str, kind: type[T]) -> Iterator[ReadRecord[T]]:
    """Yield every record of the file, readable or not."""
    for raw in read_json_objects(path):
        if raw.value is None:
            yield ReadRecord(raw.where, error=raw.error, error_kind=NOT_JSON)
            continue
        try:
            yield ReadRecord(raw.where, value=decode_core_value(kind, raw.value))
        except RecordError as error:
            yield ReadRecord(raw.where, error=error.at(path, raw.where), error_kind=WRONG_RECORD)


def read_records(path: Path | str, kind: type[T]) -> Iterator[T]:
    """Return an iterator over the values of the file; it raises at the first record that cannot be read."""
    return unwrap_records(scan_records(path, kind))


def unwrap_records(records: Iterable[ReadRecord[T]]) -> Iterator[T]:
    """Yield the values of records, skip rejected ones, and raise the first error."""
    for record in records:
        if record.error is not None:
            raise record.error
        if record.value is not None:
            yield record.value


def decode_core_value(kind: type[T], record: JsonObject) -> T:
    """Return a core value from its JSON object; raise a RecordError that lists every defect."""
    value = parse_dataclass(kind, _normalise_verdict(kind, record))
    check_core_rules(value)
    return value


def validate_line(kind: type[T], line: bytes) -> T | None:
    """Return the value of a line of JSON by its type alone, in one step; None where it is refused or has another form.

    Neither repeated keys nor the rules beyond the types are checked, so this is for lines that were read before.
    """
    try:
        return _adapter(kind).validate_json(line, strict=True, extra="forbid")
    except ValidationError:
        return None


def decode_core_line(kind: type[T], line: bytes, record: JsonObject) -> T:
    """Return the same as ``decode_core_value`` where the line of the record is at hand, without writing it again."""
    value = validate_line(kind, line)
    if value is None:
        return decode_core_value(kind, record)
    check_core_rules(value)
    return value


def parse_dataclass(kind: type[T], record: JsonObject, *, extra: Literal["forbid", "ignore"] = "forbid") -> T:
    """Return a dataclass from a JSON object, by its annotations; raise a RecordError that lists every defect."""
    if extra == "ignore":
        names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
        record = {name: value for name, value in record.items() if name in names}
    try:
        # Validated as JSON text, where strict mode fits a file format: a list may become a tuple and "L1" a reason
        # code, but "yes" is not a label and 7 is not an id.
        return _adapter(kind).validate_json(json.dumps(record), strict=True, extra=extra)
    except ValidationError as invalid:
        if (hint := _describe_other_kind(kind, record)) is not None:
            raise RecordError(hint) from invalid
        shapes = {field.name: field.metadata.get("shape") for field in fields(kind)}  # type: ignore[arg-type]
        problems = (_describe_problem(error, record, shapes) for error in invalid.errors())
        raise RecordError("; ".join(problems)) from invalid
    except RecursionError as error:
        raise RecordError("is nested too deeply to be a record.") from error
    except TypeError as error:
        # Parquet tables may hold dates and bytes, which JSON cannot represent.
        raise RecordError(f"holds a value that is not JSON ({error}). Write it as a text.") from error


def check_core_rules(value: object) -> None:
    """Check a core value by the rules that its type cannot express; raise a RecordError that lists every defect."""
    rules = _RULES.get(type(value))
    if rules and (problems := list(rules(value))):
        raise RecordError("; ".join(problems))


def encode_json_line(value: object) -> bytes:
    """Return a value as one line of JSON without its line break; fields at their default are omitted."""
    return _adapter(type(value)).dump_json(value, exclude_defaults=True)


def write_records(path: Path | str, records: Iterable[object]) -> int:
    """Write values atomically, one a line; return their number."""
    count = 0
    with AtomicFile(path) as file:
        for record in records:
            file.write(encode_json_line(record) + b"\n")
            count += 1
    return count


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    # Building an adapter takes milliseconds, more than validating a record.
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _describe_problem(error: ErrorDetails, record: JsonObject, shapes: dict[str, str | None]) -> str:
    """Return a validation error as a phrase: the field, the defect, and the expected shape."""
    field_path = _format_path(error["loc"])
    kind = error["type"]
    if kind == "json_invalid":
        # json.dumps writes what pydantic refuses to read in two cases only: lone surrogates and deep nesting.
        broken = _find_half_surrogate(record)
        return f"{broken}: holds half of a surrogate pair, which is not text" if broken else "is nested too deeply"
    if kind == "unexpected_keyword_argument":
        return f"{field_path}: no such field; remove it or check its spelling"
    message = "is missing" if kind in {"missing", "missing_argument"} else error["msg"].removeprefix("Input ")
    shape = shapes.get(str(error["loc"][0])) if error["loc"] else None
    return f"{field_path}: {message[0].lower()}{message[1:]}" + (f"; write {shape}" if shape else "")


def _format_path(parts: tuple[str | int, ...]) -> str:
    """Return the path of a field as ``evidence[3].text``; unprintable names are escaped for the terminal."""
    names = (part if isinstance(part, int) or part.isprintable() else repr(part) for part in parts)
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in names).lstrip(".")


def _find_half_surrogate(record: JsonObject) -> str | None:
    """Return the path of a text that cannot be written as UTF-8; None where there is none."""
    # A stack instead of recursion: the record may be nested deeper than Python's limit.
    pending: list[tuple[tuple[str | int, ...], object]] = [((), record)]
    while pending:
        parts, value = pending.pop()
        if isinstance(value, str) and _SURROGATE.search(value):
            return _format_path(parts)
        if isinstance(value, list):
            pending.extend(((*parts, index), item) for index, item in enumerate(value))
        elif isinstance(value, dict):
            # Keys as well as values: either makes the line unwritable as UTF-8.
            if any(map(_SURROGATE.search, value)):
                return _format_path((*parts, "a key"))
            pending.extend(((*parts, key), item) for key, item in value.items())
    return None


_LETTERS = {"L": "locally_sound", "A": "aligned", "C": "closed", "K": "complete", "Acc": "correct"}


def _normalise_verdict(kind: type[object], record: JsonObject) -> JsonObject:
    """Return a verdict with field names for the paper's letters, and booleans for the 0 and 1 of spreadsheets."""
    verdict = record.get("verdict")
    if kind is not SettledVerdict or not isinstance(verdict, dict):
        return record
    labels = {
        _LETTERS.get(name, name): bool(label) if type(label) is int and label in (0, 1) else label
        for name, label in verdict.items()
    }
    # Two labels of one name would silently become the last of them.
    if len(labels) != len(verdict):
        raise RecordError("verdict: a label is given under its name and under its letter; keep one")
    return {**record, "verdict": labels}


# The keys that identify each kind of record, and its name in messages.
_MARKS: dict[type[Any], tuple[frozenset[str], str]] = {
    Instance: (frozenset({"question", "evidence"}), "an instance"),
    Response: (frozenset({"instance_id", "trace"}), "a response"),
    Judgment: (frozenset({"response_id", "judge"}), "a judgment"),
    SettledVerdict: (frozenset({"response_id", "verdict"}), "a verdict"),
    Family: (frozenset({"source", "gold"}), "a family"),
}


def _describe_other_kind(kind: type[object], record: JsonObject) -> str | None:
    """Return a hint where the record is of another kind, as in the wrong file; None otherwise."""
    if kind not in _MARKS or _MARKS[kind][0] <= record.keys():
        return None
    other = next((name for marks, name in _MARKS.values() if marks <= record.keys()), None)
    return f"looks like {other}, not {_MARKS[kind][1]}. Is this the file you meant?" if other else None


def _blank(**texts: str | None) -> Iterator[str]:
    for name, text in texts.items():
        if text is not None and (problem := _text_problem(text)):
            yield f"{name}: {problem}"


def _text_problem(text: str) -> str | None:
    if not text or text.isspace():
        return "is empty"
    if "\x00" in text:
        return "holds a NUL character, which no model or database accepts; remove it"
    return None


def _instance_rules(instance: Instance) -> Iterator[str]:
    yield from _blank(id=instance.id, question=instance.question, reference_answer=instance.reference_answer)
    if not instance.evidence:
        yield "evidence: is empty; a question needs at least one passage"
    for index, passage in enumerate(instance.evidence):
        # The path is formatted only where there is a problem: this loop runs for every passage that is read.
        for problem in _passage_problems(passage):
            yield f"evidence[{index}].{problem}"
    if len(instance.passage_ids) != len(instance.evidence):
        ids = [passage.id for passage in instance.evidence]
        repeated = next(id_ for id_ in ids if ids.count(id_) > 1)
        yield f"evidence: the passage id {repeated!r} occurs twice; titles may repeat, ids may not"
    for unknown in sorted(set(instance.support_ids or ()) - instance.passage_ids):
        yield f"support_ids: {unknown!r} is not a passage of the evidence"
    for index, alias in enumerate(instance.aliases):
        yield from _blank(**{f"aliases[{index}]": alias})
    if instance.hops is not None and instance.hops < 1:
        yield f"hops: {instance.hops} is less than one"


def _passage_problems(passage: Passage) -> Iterator[str]:
    if problem := _text_problem(passage.id):
        yield f"id: {problem}"
    if problem := _text_problem(passage.text):
        yield f"text: {problem}"
    if "\x00" in passage.title:
        yield "title: holds a NUL character; remove it"
    if len(passage.text) > PASSAGE_LIMIT:
        yield f"text: has {len(passage.text):,} characters, at most {PASSAGE_LIMIT:,}; split it"


def _response_rules(response: Response) -> Iterator[str]:
    yield from _blank(id=response.id, instance_id=response.instance_id, answer=response.answer)
    for index, text in enumerate(response.trace.texts):
        yield from _blank(**{f"trace.steps[{index}].text": text})


def _judgment_rules(judgment: Judgment) -> Iterator[str]:
    yield from _blank(response_id=judgment.response_id, judge=judgment.judge)
    for index, step in enumerate(judgment.steps):
        if step.failure is not None and step.sound is not False:
            yield f"steps[{index}]: failure {step.failure.value} is given for a step that is not unsound"
        if step.substantive is False and step.sound is not None:
            yield f"steps[{index}]: soundness is given for a step that is not substantive"


_RULES: dict[type[Any], Callable[[Any], Iterator[str]]] = {
    Instance: _instance_rules,
    Response: _response_rules,
    Judgment: _judgment_rules,
    SettledVerdict: lambda settled: _blank(response_id=settled.response_id, instance_id=settled.instance_id),
}
