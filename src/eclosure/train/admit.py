"""Which families of a file are fit to be trained on, and why the others are not.

The same for every objective, so that all of them see the same families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclosure.core.family import Family, ViewKind
from eclosure.errors import UserError
from eclosure.likelihood.pack import Pack
from eclosure.likelihood.render import TOO_LONG, TooLongError
from eclosure.store.families import failed_gate
from eclosure.store.indexed import index_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eclosure.likelihood.render import Renderer
    from eclosure.store.indexed import IndexedFile
    from eclosure.store.manifest import Tally
    from eclosure.store.records import ReadRecord


def admit(
    path: Path, renderer: Renderer, tick: Callable[[], None] = lambda: None
) -> tuple[IndexedFile[Family], Tally, list[ReadRecord[Family]]]:
    """The file's families that pass every gate and fit, the counts, and what was left out with the reason."""

    def refuse(family: Family) -> str | None:
        tick()
        return failed_gate(family) or (None if _fits(family, renderer) else TOO_LONG)

    index, tally, left_out = index_file(path, Family, refuse)
    if not len(index):
        raise UserError(f"{path}: there is no family to train on ({tally.counts()}).")
    return index, tally, left_out


def _fits(family: Family, renderer: Renderer) -> bool:
    """Whether every path any objective might take is short enough, whichever evidence edit is drawn."""
    crossed = [(asked, given) for asked in ViewKind for given in ViewKind]
    try:
        for edit in family.evidence_edits:
            pack = Pack(family, edit, renderer)
            pack.responses(crossed)
            pack.comparisons()
    except TooLongError:
        return False
    return True
