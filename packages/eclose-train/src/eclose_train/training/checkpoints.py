"""Checkpoints of a run: find the complete ones, and copy the adapter of one of them to a folder of its own."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from eclose.calls.local.weights import ADAPTER_WEIGHTS
from eclose.errors import UserError
from eclose.files.atomic import AtomicFile
from eclose.files.manifest import hash_file
from eclose.values.identity import content_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPLETE_MARKER_FILE = "complete.json"
"""File that is written last into a checkpoint; a folder without it was interrupted by a crash."""
CHECKPOINT_RECIPE_FILE = "recipe.json"
"""File with every resolved setting of a run; also beside each adapter, so that a moved adapter can be identified."""
_ADAPTER = (ADAPTER_WEIGHTS, "adapter_config.json")
# Optimizer and random states stay behind: a selected adapter is for use, not for resuming.
_COPIED = (*_ADAPTER, CHECKPOINT_RECIPE_FILE, "README.md")
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    """Update after which it was written."""
    folder: Path

    @cached_property
    def hash(self) -> str:
        """Hash of the adapter's weights and configuration."""
        return _adapter_hash(self.folder)


def list_checkpoints(run: Path) -> Iterator[tuple[int, Path]]:
    """Yield step and folder of every checkpoint, complete or not."""
    for folder in run.glob("checkpoint-*"):
        if (match := _CHECKPOINT.fullmatch(folder.name)) and folder.is_dir():
            yield int(match[1]), folder


def is_candidate(folder: Path) -> bool:
    """Return whether a complete checkpoint is compared by selection; one for safety, in mid-epoch, is not."""
    try:
        marker = json.loads((folder / COMPLETE_MARKER_FILE).read_text("utf-8"))
    except ValueError:
        return True  # markers of other tools say nothing
    # Markers of earlier versions have no such field: every checkpoint was a candidate.
    return not isinstance(marker, dict) or bool(marker.get("candidate", True))


def remove_safety_checkpoints(latest: Path, best: str | None) -> None:
    """Remove earlier checkpoints that are for safety alone, now that the latest one is complete."""
    for _, folder in list_checkpoints(latest.parent):
        complete = (folder / COMPLETE_MARKER_FILE).is_file()
        if folder != latest and complete and not is_candidate(folder) and (best is None or folder != Path(best)):
            shutil.rmtree(folder)


def find_checkpoints(run: Path) -> tuple[list[Checkpoint], list[str]]:
    """Return complete candidates for selection by step, and the names of checkpoints that a crash interrupted."""
    complete, torn = [], []
    for step, folder in list_checkpoints(run):
        # Checked first: a torn folder may also lack its weights, and that is not the user's mistake.
        if not (folder / COMPLETE_MARKER_FILE).is_file():
            torn.append(folder.name)
        elif not is_candidate(folder):
            continue
        elif missing := [name for name in _ADAPTER if not (folder / name).is_file()]:
            raise UserError(
                f"{folder}: has no {missing[0]}. Only adapters can be selected: train with lora_rank above 0."
            )
        else:
            complete.append(Checkpoint(step, folder))
    if not complete:
        detail = f" (interrupted: {', '.join(sorted(torn))})" if torn else ""
        raise UserError(f"{run}: has no finished checkpoint{detail}. Run eclose train first, or name another folder.")
    return sorted(complete, key=lambda checkpoint: checkpoint.step), sorted(torn)


def copy_adapter(folder: Path, target: Path) -> None:
    """Copy an adapter to a folder atomically: at any moment the folder holds a complete adapter or does not exist."""
    _remove_temporary(target)
    if target.exists():
        _require_adapter(target)
        if _adapter_hash(target) == _adapter_hash(folder):
            return
    copy = _temporary_folder(target)
    for name in _COPIED:
        if (folder / name).is_file():
            with AtomicFile(copy / name) as file, (folder / name).open("rb") as original:
                shutil.copyfileobj(original, file)
    # mkdtemp creates a folder that only its owner may read.
    copy.chmod(folder.stat().st_mode & 0o777)
    # A folder cannot be replaced by renaming onto it; the old one moves aside first.
    if target.exists():
        target.rename(_temporary_folder(target))
    copy.rename(target)
    _remove_temporary(target)


def remove_adapter_copy(target: Path) -> None:
    """Remove the copy of an adapter that an earlier selection made; its checkpoint stays."""
    _remove_temporary(target)
    if target.exists():
        _require_adapter(target)
        target.rename(_temporary_folder(target))
    _remove_temporary(target)


def _require_adapter(target: Path) -> None:
    if not all((target / name).is_file() for name in _ADAPTER):
        raise UserError(f"{target}: is not an adapter, so it is not replaced or removed. Move it away.")


def _temporary_folder(target: Path) -> Path:
    return Path(mkdtemp(dir=target.parent, prefix=f".{target.name}."))


def _remove_temporary(target: Path) -> None:
    for stale in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(stale)


def _adapter_hash(folder: Path) -> str:
    return content_hash([hash_file(folder / name) for name in _ADAPTER])
