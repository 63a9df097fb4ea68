"""Reading of families from JSON Lines, Parquet tables or values, checked against the gates and for repeated ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.core.family import Family
from eclose.core.family_gates import check_family
from eclose.errors import RecordError
from eclose.store.records.families_parquet import decode_family_row
from eclose.store.records.json_reader import read_json_objects
from eclose.store.records.jsonl import DUPLICATE, WRONG_RECORD, ReadRecord, encode_json_line, scan_records
from eclose.store.records.seen_ids import SeenIds

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class FamilySource:
    """Where families are read from, as often as needed: files, or rows in memory."""

    name: str
    """What messages and manifests call it: a path, an address on a hub, or the type of the rows."""
    files: tuple[Path, ...] = ()
    rows: Iterable[Family | Mapping[str, Any]] = ()
    """Families, or rows of a table such as ``datasets.Dataset``; read only where there are no files."""

    @property
    def json_file(self) -> Path | None:
        """The file itself, where the families are one file of JSON; None for tables, several files and rows."""
        return self.files[0] if len(self.files) == 1 and self.files[0].suffix != ".parquet" else None

    def scan(self) -> Iterator[ReadRecord[Family]]:
        """Yield every record as a family or an error, unchecked by gates."""
        if not self.files:
            for number, row in enumerate(self.rows, start=1):
                where = f"record {number}"
                yield ReadRecord(where, value=row) if isinstance(row, Family) else _decode(self.name, where, row)
        for file in self.files:
            records = _scan_table(file) if file.suffix == ".parquet" else scan_records(file, Family)
            # Row numbers start anew in every file.
            prefix = f"{file.name} " if len(self.files) > 1 else ""
            for record in records:
                yield replace(record, where=prefix + record.where) if prefix else record


def _scan_table(file: Path) -> Iterator[ReadRecord[Family]]:
    for raw in read_json_objects(file):
        yield _decode(file, raw.where, raw.value or {})


def _decode(path: Path | str, where: str, row: Mapping[str, Any]) -> ReadRecord[Family]:
    try:
        return ReadRecord(where, value=decode_family_row(row))
    except RecordError as error:
        return ReadRecord(where, error=error.at(path, where), error_kind=WRONG_RECORD)


def scan_families(families: Path | FamilySource) -> Iterator[ReadRecord[Family]]:
    """Yield every record of a file or source as a family, a reason for its rejection, or an error.

    A family that fails a gate or repeats an earlier one is rejected; other content under a used id is an error.
    """
    source = families if isinstance(families, FamilySource) else FamilySource(str(families), (families,))
    seen_ids = SeenIds()
    for number, record in enumerate(source.scan(), start=1):
        yield record if record.value is None else _check_family(source.name, record, record.value, seen_ids, number)


def _check_family(
    path: str, record: ReadRecord[Family], family: Family, seen_ids: SeenIds, number: int
) -> ReadRecord[Family]:
    # Ids are compared before the gates, so that a duplicate is counted as one whether or not it passes them.
    if earlier := seen_ids.add(family.id, encode_json_line(family), number):
        first_number, is_same = earlier
        if is_same:
            return ReadRecord(record.where, rejected=DUPLICATE)
        problem = f"the id {family.id!r} was used by record {first_number} for other content. Give it another id."
        return ReadRecord(
            record.where, error=RecordError(problem, path=path, record=record.where), error_kind=WRONG_RECORD
        )
    reason = find_failed_gate(family)
    return ReadRecord(record.where, rejected=reason) if reason else record


def find_failed_gate(family: Family) -> str | None:
    """Return the first gate that a family fails, as a reason for its rejection; None where it passes all."""
    failures = check_family(family)
    return f"fails {failures[0].gate.value}" if failures else None
