"""What is worked on and where: responses of the world with what is true of them, projects, and servers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

from eclose.annotation import setup
from eclose.annotation.project import ProjectSettings, create_project
from eclose.core.instance import Instance
from eclose.core.response import Response, Source
from eclose.world.faulty.broken_responses import FailurePlan, break_response
from eclose.world.make.instances import WorldItem, make_items

from .error_model import Truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from sqlalchemy import Connection

SYSTEMS = ("one", "two", "three")
PROFILES = {"2wiki": 278, "musique": 255, "hotpot": 333}
"""The paper's questions after screening, by benchmark."""


@dataclass(frozen=True, slots=True)
class World:
    """Questions, responses, and what is true of these."""

    instances: Sequence[Instance]
    responses: Sequence[Response]
    truths: Sequence[Truth]


def make_world(
    questions: int, mix: Mapping[tuple[FailurePlan, ...], float], *, systems: Sequence[str] = SYSTEMS, seed: int = 42
) -> World:
    """Each question answered by each system, failing as the mix says; the rest is reliable."""
    share = sum(PROFILES.values())
    counts = {name: round(questions * count / share) for name, count in PROFILES.items()}
    counts["hotpot"] += questions - sum(counts.values())
    instances, pairs = [], []
    for profile, count in counts.items():
        for item in islice(make_items(profile, seed), count):
            instances.append(item.instance)
            pairs += [_answered(item, system, mix) for system in systems]
    return World(instances, [response for response, _ in pairs], [truth for _, truth in pairs])


def _answered(item: WorldItem, system: str, mix: Mapping[tuple[FailurePlan, ...], float]) -> tuple[Response, Truth]:
    rng = Random(f"{item.seed}/{system}/mix")
    tried = (break_response(item, plan, f"annotate/{system}") for plan in _plans(mix, rng))
    broken = next(candidate for candidate in tried if candidate is not None)
    name = f"{item.instance.id}/{system}"
    response = Response.from_completion(name, item.instance.id, broken.response.completion or "", Source(system))
    assert len(response.trace.texts) == len(broken.steps)
    question, steps = item.instance.question, tuple(response.trace.texts)
    return response, Truth(name, question, steps, response.answer, broken.steps, broken.verdict)


def _plans(mix: Mapping[tuple[FailurePlan, ...], float], rng: Random) -> Iterator[FailurePlan]:
    """How a response is to fail, at best; not every question admits every failure."""
    roll = rng.random()
    for plans, share in mix.items():
        if roll < share:
            yield from rng.sample(plans, len(plans))
            break
        roll -= share
    yield FailurePlan()


def make_project(
    folder: Path, world: World, crew: setup.AnnotationCrew, *, database: str | None = None, name: str = "study"
) -> dict[str, str]:
    """A project with everybody invited; the paths of their invitations by name."""
    settings = ProjectSettings(name)
    links: dict[str, str] = {}

    def begin(connection: Connection) -> None:
        setup.add_project_material(connection, world.instances, world.responses)
        begun = setup.invite_and_assign_crew(connection, settings, crew)
        links.update({invitee.person.name: f"/invitation/{invitee.token}" for invitee in begun.invitees})

    create_project(folder, settings, database, begin).close()
    return links


_SERVE = """
import sys
from pathlib import Path
from eclose.annotation.project import open_project
from eclose.annotation.web.serve import serve
from eclose.annotation.web.dependencies import House

serve(House(open_project(Path(sys.argv[1]))), port=0, ready=lambda url: print(url, flush=True))
"""


class Server:
    """The annotation server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", _SERVE, str(folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.origin = self._process.stdout.readline().strip()
        self.pid = self._process.pid
        self._seen = psutil.Process(self.pid)

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    @property
    def memory(self) -> float:
        """MiB it holds now."""
        return float(self._seen.memory_info().rss) / 2**20

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def load_average() -> str:
    """How busy the machine is with all that runs on it."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def quiet(most: float, patience: float) -> None:
    """Wait until the machine is quiet, for so many seconds at most."""
    deadline = time.monotonic() + patience
    while os.getloadavg()[0] > most and time.monotonic() < deadline:
        time.sleep(5)


def percentile(values: Iterable[float], share: float) -> float:
    """The value that so large a share does not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
