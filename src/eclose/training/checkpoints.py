"""Find the complete checkpoints of a run, and copy one of them to become the run's adapter."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from eclose.core.identity import content_hash
from eclose.errors import UserError
from eclose.models.weights import ADAPTER_WEIGHTS
from eclose.store.records.atomic import AtomicFile
from eclose.store.runs.manifest import hash_file

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPLETE = "complete.json"
"""Written last into a checkpoint: a folder without it was torn by a crash."""
RECIPE = "recipe.json"
"""Every resolved setting of a run; beside its adapters too, so that one that is moved still says what it is."""
_ADAPTER = (ADAPTER_WEIGHTS, "adapter_config.json")
_KEPT = (*_ADAPTER, RECIPE, "README.md")
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class Candidate:
    """A finished checkpoint."""

    step: int
    folder: Path

    @cached_property
    def hash(self) -> str:
        """The identity of its adapter."""
        return _adapter_hash(self.folder)


def checkpoints(run: Path) -> Iterator[tuple[int, Path]]:
    """Yield every checkpoint by its step, complete or not."""
    for folder in run.glob("checkpoint-*"):
        if (match := _CHECKPOINT.fullmatch(folder.name)) and folder.is_dir():
            yield int(match[1]), folder


def find_candidates(run: Path) -> tuple[list[Candidate], list[str]]:
    """Return finished checkpoints by step, and the names of those that a crash left unfinished."""
    candidates, torn = [], []
    for step, folder in checkpoints(run):
        if not (folder / COMPLETE).is_file():
            torn.append(folder.name)
        elif missing := [name for name in _ADAPTER if not (folder / name).is_file()]:
            raise UserError(f"{folder}: is complete and holds no {missing[0]}. Only adapters are selected from.")
        else:
            candidates.append(Candidate(step, folder))
    if not candidates:
        ending = f"; {', '.join(sorted(torn))} broke off" if torn else ""
        raise UserError(f"{run}: holds no finished checkpoint{ending}. Train first, or name another folder.")
    return sorted(candidates, key=lambda candidate: candidate.step), sorted(torn)


def keep_adapter(folder: Path, target: Path) -> None:
    """Copy an adapter to a folder by renaming, so that the folder holds a whole adapter or none at any moment."""
    _sweep(target)
    if target.exists():
        _require_adapter(target)
        if _adapter_hash(target) == _adapter_hash(folder):
            return
    fresh = _beside(target)
    for name in _KEPT:
        if (folder / name).is_file():
            with AtomicFile(fresh / name) as copy, (folder / name).open("rb") as original:
                shutil.copyfileobj(original, copy)
    fresh.chmod(folder.stat().st_mode & 0o777)
    if target.exists():
        target.rename(_beside(target))
    fresh.rename(target)
    _sweep(target)


def drop_adapter(target: Path) -> None:
    """Remove the copy of an adapter that an earlier selection made; its checkpoint stays."""
    _sweep(target)
    if target.exists():
        _require_adapter(target)
        target.rename(_beside(target))
    _sweep(target)


def _require_adapter(target: Path) -> None:
    if not all((target / name).is_file() for name in _ADAPTER):
        raise UserError(f"{target}: is no adapter, so it is not replaced or removed. Move it away.")


def _beside(target: Path) -> Path:
    return Path(mkdtemp(dir=target.parent, prefix=f".{target.name}."))


def _sweep(target: Path) -> None:
    """Remove what was replaced, or left behind by a crash."""
    for stale in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(stale)


def _adapter_hash(folder: Path) -> str:
    return content_hash([hash_file(folder / name) for name in _ADAPTER])
