"""Checks of a file of families: their form, the gates, repeated ids, and whether they are short enough to train on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.construction.token_lengths import make_path_counter
from eclose.core.family_gates import check_family
from eclose.store.records.jsonl import ReadRecord, encode_json_line
from eclose.store.records.seen_ids import SeenIds
from eclose.store.runs.family_files import open_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eclose.core.family import Family


class FamilyProblem(NamedTuple):
    """A problem of a record: where it is, the gate that it fails, and the detail."""

    where: str
    gate: str
    detail: str


@dataclass
class FamilyValidation:
    """The counts and problems of a file of families."""

    path: Path
    passed: int = 0
    failed: int = 0
    unreadable: int = 0
    problems: list[FamilyProblem] = field(default_factory=list)

    @property
    def received(self) -> int:
        """Number of records in the file."""
        return self.passed + self.failed + self.unreadable


def validate_families(
    path: Path | str,
    *,
    tokenizer: str | None = None,
    max_length: int = 8_192,
    hub: bool = False,
    wrap: Callable[[Iterable[Any], str], Iterable[Any]] = lambda records, _label: records,
) -> FamilyValidation:
    """Check all that code can check in a file of families, in ``families.jsonl`` of a run's folder, or in a dataset.

    Args:
        path: File of families, JSON Lines or Parquet, or folder of a run or of a dataset.
        tokenizer: Folder or name of the model to train, to count tokens exactly; estimated by default.
        max_length: Longest path in tokens.
        hub: Whether an address on a hub may be fetched.
        wrap: Wraps the records with a label, for a progress display.
    """
    source = open_families(path, hub=hub)
    validation = FamilyValidation(source.json_file or Path(path))
    records = wrap(source.scan(), f"reading {validation.path.name}")
    for record, problems in _check(records, tokenizer, max_length):
        if record.error is not None:
            validation.unreadable += 1
        elif problems:
            validation.failed += 1
        else:
            validation.passed += 1
        validation.problems += problems
    return validation


def _check(
    records: Iterable[ReadRecord[Family]], tokenizer: str | None, max_length: int
) -> Iterator[tuple[ReadRecord[Family], list[FamilyProblem]]]:
    length, ids = make_path_counter(tokenizer), SeenIds()
    for number, record in enumerate(records, start=1):
        family = record.value
        if family is None:
            yield record, [FamilyProblem(record.where, "unreadable", str(record.error or record.rejected))]
            continue
        problems = [
            FamilyProblem(record.where, failure.gate.value, f"{failure.where}: {failure.detail}")
            for failure in check_family(family)
        ]
        if first := ids.add(family.id, encode_json_line(family), number):
            detail = f"{family.id!r} is the id of record {first[0]} as well"
            problems.append(FamilyProblem(record.where, "repeated_id", detail))
        if (tokens := length.count_family(family)) > max_length:
            detail = f"{tokens:,} tokens are more than {max_length:,}"
            problems.append(FamilyProblem(record.where, "too_long", detail))
        yield record, problems
