"""Families of a file by id, or its first ones. Families that fail a gate are included."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError, UserError
from eclose.values.family import Family
from eclose_train.families.files import open_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eclose.files.families import FamilySource

_NEAREST = 3
"""Number of similar ids that an error suggests."""


@dataclass
class FamilySelection:
    """Families selected from a file."""

    path: Path
    families: list[Family] = field(default_factory=list)
    total: int = 0
    """Number of families in the file."""
    unreadable: list[RecordError] = field(default_factory=list)


def pick_families_by_id(
    path: Path | str,
    ids: Sequence[str] = (),
    *,
    limit: int = 50,
    hub: bool = False,
    wrap: Callable[[Iterable[Any], str], Iterable[Any]] = lambda records, _label: records,
) -> FamilySelection:
    """Select families by their ids or those of their sources, in the order given; without ids the first by id.

    Args:
        path: File of families, JSON Lines or Parquet, or folder of a run or of a dataset.
        ids: Ids of families or of their sources. An id of a family takes precedence over the same id of a source.
        limit: Number of families without ids.
        hub: Whether an address on a hub may be fetched.
        wrap: Wraps the records with a label, for a progress display.

    Raises:
        UserError: The file has no family, or none with one of the ids.
    """
    source = open_families(path, hub=hub)
    selection = FamilySelection(source.json_file or Path(path))
    families = _read(selection, source, wrap)
    if ids:
        selection.families = _find(selection.path, families, ids)
    else:
        # By id, so that the selection does not depend on the order of the file; only ``limit`` families are held in
        # memory.
        selection.families = nsmallest(limit, families, key=lambda family: family.id)
    return selection


def _read(
    selection: FamilySelection, source: FamilySource, wrap: Callable[[Iterable[Any], str], Iterable[Any]]
) -> Iterator[Family]:
    """Yield every family and count it; raise at the end where there was none."""
    path = selection.path
    for record in wrap(source.scan(), f"reading {path.name}"):
        if record.error is not None:
            selection.unreadable.append(record.error)
        if record.value is not None:
            selection.total += 1
            yield record.value
    if not selection.total:
        reason = f": {selection.unreadable[0]}" if selection.unreadable else ""
        raise UserError(f"{path}: there is no family in this file{reason}")


def _find(path: Path, families: Iterable[Family], ids: Sequence[str]) -> list[Family]:
    requested = set(ids)
    by_id: dict[str, list[Family]] = {}
    by_source: dict[str, list[Family]] = {}
    existing: dict[str, None] = {}  # a dict keeps the order of the file, a set would not
    for family in families:
        existing |= {family.id: None, family.source.id: None}
        if family.id in requested:
            by_id.setdefault(family.id, []).append(family)
        if family.source.id in requested:
            by_source.setdefault(family.source.id, []).append(family)
    if unknown := [id_ for id_ in ids if id_ not in existing]:
        # A cutoff of 0 always suggests some ids, which show the form that ids have in this file.
        nearest = {id_: get_close_matches(id_, list(existing), n=_NEAREST, cutoff=0) for id_ in unknown}
        raise UserError(
            " ".join(
                f"{path}: no family and no source has the id {id_!r}. Nearest: {', '.join(names)}."
                for id_, names in nearest.items()
            )
        )
    return [family for id_ in dict.fromkeys(ids) for family in by_id.get(id_) or by_source[id_]]
