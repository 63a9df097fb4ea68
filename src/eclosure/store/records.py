"""Core values as JSON Lines: validated when read, written atomically.

Files are the door: what comes in is checked here once, against the annotations of the core values and the few
rules a type cannot state. Inside, nobody checks again.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from eclosure.core.instance import Instance
from eclosure.core.judgment import Judgment
from eclosure.core.response import Response
from eclosure.core.verdict import SettledVerdict
from eclosure.errors import RecordError
from eclosure.store.jsonfile import read_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Self

    from pydantic_core import ErrorDetails

    from eclosure.store.jsonfile import JsonObject

T = TypeVar("T")

_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}

PASSAGE_LIMIT = 1_000_000
"""Longest passage in characters: twenty times the longest whole context of the paper's benchmarks."""


@dataclass(frozen=True, slots=True)
class ReadRecord(Generic[T]):
    """One record of a file: its value, or the error that stands in its place."""

    where: str
    value: T | None = None
    error: RecordError | None = None
    repairs: tuple[str, ...] = ()
    """What was mended on the way in; each kind of repair is documented."""


def scan(path: Path | str, kind: type[T]) -> Iterator[ReadRecord[T]]:
    """Every record of the file, readable or not."""
    for raw in read_objects(path):
        if raw.value is None:
            yield ReadRecord(raw.where, error=raw.error)
            continue
        try:
            yield ReadRecord(raw.where, value=decode(kind, raw.value))
        except RecordError as error:
            yield ReadRecord(raw.where, error=error.at(path, raw.where))


def read(path: Path | str, kind: type[T]) -> Iterator[T]:
    """Every value of the file; the first record that cannot be read raises."""
    return values(scan(path, kind))


def values(records: Iterable[ReadRecord[T]]) -> Iterator[T]:
    """The values alone; the first error raises."""
    for record in records:
        if record.error is not None:
            raise record.error
        if record.value is not None:
            yield record.value


def decode(kind: type[T], record: JsonObject) -> T:
    """A core value from a JSON object; a record with three mistakes reports all three."""
    try:
        # Through JSON text, because only there strictness means what a file format means by it: a list may
        # become a tuple and "L1" a reason code, but "yes" is no label and 7 is no id.
        value = _adapter(kind).validate_json(json.dumps(_named(kind, record)), strict=True, extra="forbid")
    except ValidationError as invalid:
        raise RecordError("; ".join(_problem(error) for error in invalid.errors())) from invalid
    check(value)
    return value


def check(value: object) -> None:
    """The rules a type cannot state; raises with everything that is wrong."""
    rules = _RULES.get(type(value))
    if rules and (problems := list(rules(value))):
        raise RecordError("; ".join(problems))


def encode(value: object) -> bytes:
    """One line of JSON, without its line break. Fields at their default are left out."""
    return _adapter(type(value)).dump_json(value, exclude_defaults=True)


def write(path: Path | str, records: Iterable[object]) -> int:
    """Write values, one a line; the file appears whole or not at all. Returns how many there were."""
    count = 0
    with AtomicFile(path) as file:
        for record in records:
            file.write(encode(record) + b"\n")
            count += 1
    return count


class AtomicFile:
    """A file that appears under its name only when everything was written and reached the disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._raw = NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False)  # noqa: SIM115
        self._temporary = Path(self._raw.name)
        # Without name and time in its header, equal content gives equal bytes.
        packed = self.path.suffix == ".gz"
        self._out: Any = gzip.GzipFile("", "wb", fileobj=self._raw, mtime=0) if packed else self._raw

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._out.write(data)

    def __enter__(self) -> Self:
        """The file, open for writing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the file in its place, or leave no trace of it."""
        try:
            if self._out is not self._raw:
                self._out.close()
            if kind is None:
                self._raw.flush()
                os.fsync(self._raw.fileno())
                os.chmod(self._temporary, 0o666 & ~_umask())
        finally:
            self._raw.close()
            if kind is not None:
                self._temporary.unlink()
        if kind is None:
            self._temporary.replace(self.path)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _problem(error: ErrorDetails) -> str:
    """One validation error as a phrase: where in the record, then what."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    kind = error["type"]
    if kind == "unexpected_keyword_argument":
        return f"{place}: no such field; remove it or check its spelling"
    if kind in {"missing", "missing_argument"}:
        return f"{place}: is missing"
    if kind == "json_invalid":
        return "holds half of a surrogate pair, which is not text; write the character whole"
    message = error["msg"].removeprefix("Input ")
    return f"{place}: {message[0].lower()}{message[1:]}" if place else message


_LETTERS = {"L": "locally_sound", "A": "aligned", "C": "closed", "K": "complete", "Acc": "correct"}


def _named(kind: type[object], record: JsonObject) -> JsonObject:
    """Verdicts may be written with the paper's letters, and with 0 and 1 as a spreadsheet has them."""
    verdict = record.get("verdict")
    if kind is not SettledVerdict or not isinstance(verdict, dict):
        return record
    labels = {
        _LETTERS.get(name, name): bool(label) if type(label) is int and label in (0, 1) else label
        for name, label in verdict.items()
    }
    if len(labels) != len(verdict):
        raise RecordError("verdict: a label is given under its name and under its letter; keep one")
    return {**record, "verdict": labels}


def _blank(**texts: str | None) -> Iterator[str]:
    for name, text in texts.items():
        if text is None:
            continue
        if not text.strip():
            yield f"{name}: is empty"
        elif "\x00" in text:
            yield f"{name}: holds a NUL character, which no model or database accepts; remove it"


def _instance_rules(instance: Instance) -> Iterator[str]:
    yield from _blank(id=instance.id, question=instance.question, reference_answer=instance.reference_answer)
    if not instance.evidence:
        yield "evidence: is empty; a question without passages cannot be studied here"
    for index, passage in enumerate(instance.evidence):
        yield from _blank(**{f"evidence[{index}].id": passage.id, f"evidence[{index}].text": passage.text})
        if "\x00" in passage.title:
            yield f"evidence[{index}].title: holds a NUL character; remove it"
        if len(passage.text) > PASSAGE_LIMIT:
            yield f"evidence[{index}].text: has {len(passage.text):,} characters, at most {PASSAGE_LIMIT:,}; split it"
    if len(instance.passage_ids) != len(instance.evidence):
        ids = [passage.id for passage in instance.evidence]
        twice = next(id_ for id_ in ids if ids.count(id_) > 1)
        yield f"evidence: the passage id {twice!r} occurs twice; titles may repeat, ids may not"
    for unknown in sorted(set(instance.support_ids or ()) - instance.passage_ids):
        yield f"support_ids: {unknown!r} is no passage of the evidence"
    for index, alias in enumerate(instance.aliases):
        yield from _blank(**{f"aliases[{index}]": alias})
    if instance.hops is not None and instance.hops < 1:
        yield f"hops: {instance.hops} is less than one"


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


def _verdict_rules(settled: SettledVerdict) -> Iterator[str]:
    yield from _blank(response_id=settled.response_id, instance_id=settled.instance_id)


_RULES: dict[type[Any], Callable[[Any], Iterator[str]]] = {
    Instance: _instance_rules,
    Response: _response_rules,
    Judgment: _judgment_rules,
    SettledVerdict: _verdict_rules,
}
