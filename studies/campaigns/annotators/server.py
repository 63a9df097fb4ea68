"""Project and server of a simulated study, and the load of the machine it runs on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

from eclose_annotate import setup
from eclose_annotate.project import AnnotationProjectSettings, create_annotation_project

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sqlalchemy import Connection

    from .material import World


def make_project(
    folder: Path, world: World, crew: setup.AnnotationCrew, *, database: str | None = None, name: str = "study"
) -> dict[str, str]:
    """Create a project and invite its crew; return the paths of the invitations by name."""
    settings = AnnotationProjectSettings(name)
    links: dict[str, str] = {}

    def begin(connection: Connection) -> None:
        setup.add_project_material(connection, world.instances, world.responses)
        begun = setup.invite_and_assign_crew(connection, settings, crew)
        links.update({invitee.person.name: f"/invitation/{invitee.token}" for invitee in begun.invitees})

    create_annotation_project(folder, settings, database, begin).close()
    return links


_SERVE = """
import sys
from pathlib import Path
from eclose_annotate.project import open_annotation_project
from eclose_annotate.web.serve import serve_annotation
from eclose_annotate.web.dependencies import AnnotationServerState

state = AnnotationServerState(open_annotation_project(Path(sys.argv[1])))
serve_annotation(state, port=0, ready=lambda url: print(url, flush=True))
"""


class Server:
    """Annotation server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", _SERVE, str(folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.origin = self._process.stdout.readline().strip()
        self.pid = self._process.pid
        self._seen = psutil.Process(self.pid)

    @property
    def cpu(self) -> float:
        """Processor time so far, in seconds."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    @property
    def memory(self) -> float:
        """Resident memory in MiB."""
        return float(self._seen.memory_info().rss) / 2**20

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def load_average() -> str:
    """Describe the load of the machine."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def quiet(most: float, patience: float) -> None:
    """Wait until the load is at most ``most``, for ``patience`` seconds at most."""
    deadline = time.monotonic() + patience
    while os.getloadavg()[0] > most and time.monotonic() < deadline:
        time.sleep(5)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that this share does not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
