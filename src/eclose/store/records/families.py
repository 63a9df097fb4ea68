"""Reading of family files: every family is checked against the gates and for a repeated id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.core.family import Family
from eclose.core.family_gates import check_family
from eclose.errors import RecordError
from eclose.store.records.jsonl import DUPLICATE, WRONG_RECORD, ReadRecord, encode_json_line, scan_records
from eclose.store.records.seen_ids import SeenIds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def scan_families(path: Path) -> Iterator[ReadRecord[Family]]:
    """Yield every record of the file as a family, a reason for its rejection, or an error.

    A family that fails a gate or repeats an earlier one is rejected; other content under a used id is an error.
    """
    seen_ids = SeenIds()
    for number, record in enumerate(scan_records(path, Family), start=1):
        yield record if record.value is None else _check_family(path, record, record.value, seen_ids, number)


def _check_family(
    path: Path, record: ReadRecord[Family], family: Family, seen_ids: SeenIds, number: int
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
