"""Families at the door: read, checked against the gates, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.core.family import Family
from eclose.core.gates import check_family
from eclose.errors import RecordError
from eclose.store.records.jsonl import WRONG_RECORD, ReadRecord, encode, scan_records
from eclose.store.records.seen_ids import SeenIds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def scan_families(path: Path) -> Iterator[ReadRecord[Family]]:
    """Every record of the file as a family, a reason, or an error.

    A family that fails a gate is set aside, and so is one that repeats another; one that takes another's id for
    different content is an error.
    """
    seen = SeenIds()
    for number, record in enumerate(scan_records(path, Family), start=1):
        yield record if record.value is None else _settled(path, record, record.value, seen, number)


def _settled(path: Path, record: ReadRecord[Family], family: Family, seen: SeenIds, number: int) -> ReadRecord[Family]:
    if first := seen.add(family.id, encode(family), number):
        place, same = first
        if same:
            return ReadRecord(record.where, rejected="duplicate")
        problem = f"the id {family.id!r} was used by record {place} for something else. Give it another."
        return ReadRecord(
            record.where, error=RecordError(problem, path=path, record=record.where), error_kind=WRONG_RECORD
        )
    reason = find_failed_gate(family)
    return ReadRecord(record.where, rejected=reason) if reason else record


def find_failed_gate(family: Family) -> str | None:
    """Why a family is set aside: the first gate it fails; None when it passes all."""
    failures = check_family(family)
    return f"fails {failures[0].gate.value}" if failures else None
