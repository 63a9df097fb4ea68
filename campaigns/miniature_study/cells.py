"""Finished cells of the miniature study as an archive, so that a study may be made in several sittings.

The archive has the responses and switch tests of each cell, and no weights. A later sitting takes its cells in as runs
made elsewhere and makes the others. All responses are judged anew, which takes seconds, so one judge has judged all.
"""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

from eclose.experiments.cells import SWITCHES_FILE, Stage
from eclose.experiments.plan import ImportedRun
from eclose.store.runs.folder import RESPONSES_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eclose.experiments.cells import Cell, StageTask
    from eclose.experiments.folder import Experiment

_NO_SEED = "untuned"


def save_cells(experiment: Experiment, archive: Path) -> int:
    """Write the results of all cells that have responses and switch tests into an archive; return their number."""
    root = experiment.folder
    by_cell: dict[Cell, dict[Stage, StageTask]] = {}
    for task in experiment.tasks:
        if task.is_finished(root):
            by_cell.setdefault(task.cell, {})[task.stage] = task
    finished = {cell: tasks for cell, tasks in by_cell.items() if {Stage.GENERATE, Stage.SWITCH} <= tasks.keys()}
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as file:
        for cell, tasks in sorted(finished.items(), key=lambda item: str(item[0])):
            folder = "/".join((cell.backbone, cell.method, str(cell.seed or _NO_SEED)))
            for path in _list_files(tasks, root):
                # Switch tests name the folder of their adapter, which is of no use elsewhere.
                content = (
                    path.read_bytes().replace(f"{root.resolve()}/".encode(), b"").replace(f"{root}/".encode(), b"")
                )
                member = tarfile.TarInfo(f"{folder}/{path.name}")
                member.size = len(content)
                file.addfile(member, io.BytesIO(content))
    return len(finished)


def _list_files(tasks: dict[Stage, StageTask], root: Path) -> Iterator[Path]:
    yield tasks[Stage.GENERATE].folder(root) / RESPONSES_FILE
    yield tasks[Stage.SWITCH].folder(root) / SWITCHES_FILE


def take_cells(archive: Path, folder: Path) -> list[ImportedRun]:
    """Unpack an archive and return its cells as runs made elsewhere."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
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
