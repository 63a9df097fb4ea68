"""Finished cells of the miniature study as an archive, so that a study may be made in several sittings.

The archive has the responses and switch tests of each cell, the hashes of the backbones, and no weights. A later
sitting takes its cells in as runs made elsewhere and makes the others, if it made the same backbones. All responses are
judged anew, which takes seconds, so one judge has judged all.
"""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.files.atomic import AtomicFile, write_files
from eclose.files.manifest import hash_file
from eclose.files.run_folder import RESPONSES_FILE
from eclose_train.experiment.cells import SWITCHES_FILE, Stage
from eclose_train.experiment.plan import ImportedRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eclose_train.experiment.cells import Cell, StageTask
    from eclose_train.experiment.folder import Experiment

_NO_SEED = "untuned"
_BACKBONES_FILE = "backbones.json"


def hash_backbones(weights: Path) -> dict[str, str]:
    """Return the hash of the weights of each backbone by its name."""
    return {path.parent.name: hash_file(path) for path in sorted(weights.glob("*/model.safetensors"))}


def save_cells(experiment: Experiment, archive: Path, backbones: Mapping[str, str]) -> int:
    """Write the results of all cells that have responses and switch tests into an archive; return their number.

    Args:
        experiment: Study with the cells.
        archive: File to replace. Two processes on one study may both write it: each writes all finished cells.
        backbones: Hash of the weights of each backbone.
    """
    root = experiment.folder
    by_cell: dict[Cell, dict[Stage, StageTask]] = {}
    for task in experiment.tasks:
        if task.is_finished(root):
            by_cell.setdefault(task.cell, {})[task.stage] = task
    finished = {cell: tasks for cell, tasks in by_cell.items() if {Stage.GENERATE, Stage.SWITCH} <= tasks.keys()}
    # A stream of tar, which the file packs; tarfile writes to a stream and nothing else.
    with AtomicFile(archive) as out, tarfile.open(mode="w|", fileobj=out) as file:  # type: ignore[call-overload]
        _add_member(file, _BACKBONES_FILE, json.dumps(dict(backbones), indent=2).encode())
        for cell, tasks in sorted(finished.items(), key=lambda item: str(item[0])):
            folder = "/".join((cell.backbone, cell.method, str(cell.seed or _NO_SEED)))
            for path in _list_files(tasks, root):
                # Switch tests name the folder of their adapter, which is of no use elsewhere.
                content = path.read_bytes()
                for prefix in (root.resolve(), root):
                    content = content.replace(f"{prefix}/".encode(), b"")
                _add_member(file, f"{folder}/{path.name}", content)
    return len(finished)


def _add_member(file: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    file.addfile(member, io.BytesIO(content))


def _list_files(tasks: dict[Stage, StageTask], root: Path) -> Iterator[Path]:
    yield tasks[Stage.GENERATE].folder(root) / RESPONSES_FILE
    yield tasks[Stage.SWITCH].folder(root) / SWITCHES_FILE


def take_cells(archive: Path, folder: Path, backbones: Mapping[str, str]) -> list[ImportedRun]:
    """Unpack an archive and return its cells as runs made elsewhere.

    Two processes may unpack into one folder, so each file appears whole.

    Raises:
        UserError: The cells were made from other weights than ``backbones``.
    """
    with tarfile.open(archive) as file:
        for member in file:
            content = file.extractfile(tarfile.data_filter(member, str(folder)))
            if content is not None:
                write_files(folder, {member.name: content.read()})
    earlier = json.loads((folder / _BACKBONES_FILE).read_text("utf-8"))
    if earlier != dict(backbones):
        differing = sorted(name for name in earlier | dict(backbones) if earlier.get(name) != backbones.get(name))
        raise UserError(f"{archive}: made from other weights of {', '.join(differing)}. Start without --cells.")
    runs = []
    for path in sorted(folder.glob(f"*/*/*/{RESPONSES_FILE}")):
        backbone, method, seed = path.parent.relative_to(folder).parts
        runs.append(
            ImportedRun(
                backbone=backbone,
                method=method,
                seed=None if seed == _NO_SEED else int(seed),
                responses=path,
                switches=path.with_name(SWITCHES_FILE),
            )
        )
    return runs
