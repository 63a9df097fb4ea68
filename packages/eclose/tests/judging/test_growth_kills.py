"""A run that takes new responses every hour and is killed with SIGKILL: nothing is lost, asked or paid for twice.

As a program, this file is such an hour: ``python test_growth_kills.py MOMENT judge TRACES ...``. It kills itself before
or after the n-th step of a kind, such as ``before put 3``, or after some seconds; ``never`` lets it come to its end.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import random
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import eclose
from eclose.calls.client import CallSettings
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.ledger_tools import read_ledger_calls
from eclose.cli.main import app
from eclose.errors import UserError
from eclose.files import jsonl
from eclose.files.atomic import AtomicFile
from eclose.files.manifest import read_manifest
from eclose.judging.inputs import find_judge_inputs
from eclose.judging.run import judge_responses
from eclose.values.response import Response
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.faults import ServerBehaviour
from tests.forking import ForkServer
from tests.growing import HourlyTraces, make_rows, write_rows

if TYPE_CHECKING:
    from pathlib import Path

STEPS = {
    "put": (AtomicFile, "_put_in_place"),
    "settle": (Ledger, "settle"),
    "conclude": (Ledger, "conclude"),
}
NEW_AN_HOUR = 3
IN_FLIGHT = 16


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str) -> None:
    """Let the process die at a moment."""
    if moment == "never":
        return
    when, step, number = moment.split()
    if step == "seconds":
        timer = threading.Timer(float(number), kill_myself)
        timer.daemon = True
        timer.start()
        return
    owner, name = STEPS[step]
    original, steps = getattr(owner, name), itertools.count(1)

    @functools.wraps(original)
    def counted(*given: Any) -> Any:
        this = next(steps) == int(number)
        if this and when == "before":
            kill_myself()
        result = original(*given)
        if not asyncio.iscoroutine(result):
            if this:
                kill_myself()
            return result

        async def awaited() -> Any:
            value = await result
            if this:
                kill_myself()
            return value

        return awaited()

    setattr(owner, name, counted)


@pytest.fixture(scope="module")
def forks():
    with ForkServer("eclose.cli.main", "eclose.judging.additions", "eclose.api.judge", "tests.growing") as server:
        yield server


class GrowingRun:
    """A run that is fed by the hour, and what a server was asked for it."""

    def __init__(self, folder: Path, forks: ForkServer, server: ModelServerThread, hours: int, seed: int) -> None:
        self.folder, self.run, self.server = folder, folder / "run", server
        self.rows = make_rows(NEW_AN_HOUR * hours)
        self.traces = HourlyTraces(folder / "traces", self.rows, seed)
        self.kills = 0
        self._forks = forks

    def judge(self, moment: str) -> bool:
        """Judge what is new; return False where the process was killed."""
        words = [moment, "judge", str(self.traces.folder), "--out", str(self.run), "--append", "--no-price"]
        words += ["--judge", self.server.base_url, "--concurrency", str(IN_FLIGHT)]
        code, output = self._forks.run(__file__, words, self.folder / "output.txt")
        assert code in (0, -signal.SIGKILL), output
        self.kills += code != 0
        return code == 0

    def diagnose(self) -> int:
        """Diagnose what is there, finished or not; return the number of judged responses."""
        try:
            results = eclose.diagnose(self.run)
        except UserError as error:
            # Before the first response was taken, or the first judgment was made.
            if re.search(r"no such folder|holds no run|responses\.jsonl: there is no such file|none of", str(error)):
                return 0
            raise
        if not (self.run / "judgments.jsonl.manifest.json").exists():
            assert "UNFINISHED" in results.notices[0]
        return len(results)

    def check(self) -> None:
        """Compare the finished run with one run over all, and its requests with what the ledger paid for."""
        ids = [response.id for response in jsonl.read_records(self.run / "responses.jsonl", Response)]
        assert len(ids) == len(set(ids)) == len(self.rows)
        bill, calls = self.server.bill()["requests"], read_manifest(self.run / "judgments.jsonl.manifest.json").calls
        assert len(list(read_ledger_calls(self.run / "ledger.sqlite"))) == calls["replies"] == len(bill)
        # Asked again is only what was in flight at a kill.
        twice = sum(line["paid"] - 1 for line in bill.values())
        assert twice <= calls["unsettled"] <= self.kills * IN_FLIGHT
        whole, rows = self.folder / "whole", write_rows(self.folder / "all.jsonl", self.rows)
        asyncio.run(
            judge_responses(
                find_judge_inputs(rows, whole), self.server.base_url, whole, calls=CallSettings(unpriced=True)
            )
        )
        for name in ("responses.jsonl", "judgments.jsonl"):
            assert (self.run / name).read_bytes() == (whole / name).read_bytes()
        assert len(self.server.bill()["requests"]) == len(bill)
        assert len(eclose.diagnose(self.run)) == len(self.rows)


MOMENTS = [
    ("after put 2", 0),  # of the first hour: questions are there, and no response
    ("after put 2", 1),  # of a later hour: new questions, and the responses of before
    ("after put 3", 1),  # the responses are there, and the run has not noted them
    ("after settle 7", 1),  # in the midst of judging
    ("after put 7", 1),  # the judgments are there, and no manifest
]
MORE_MOMENTS = [
    ("before put 1", 0),  # the run is about to begin
    ("before put 2", 0),  # the first record of the run is there, and nothing else
    ("before put 1", 1),
    ("after put 4", 0),
    ("after put 4", 1),
    ("before put 7", 1),  # judged, and about to write the judgments
    ("after put 8", 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "hour"), [*MOMENTS, *(pytest.param(*moment, marks=pytest.mark.study) for moment in MORE_MOMENTS)]
)
def test_killed_at_any_moment_the_next_hour_takes_up_what_is_left(forks, tmp_path, moment, hour):
    with ModelServerThread(build_world_handlers()) as server:
        run = GrowingRun(tmp_path, forks, server, hours=hour + 2, seed=1)
        for now in range(hour + 2):
            run.traces.write_hour(NEW_AN_HOUR)
            assert run.judge(moment if now == hour else "never") == (now != hour)
            if now == hour:
                assert run.diagnose() >= hour * (NEW_AN_HOUR - 1)
        run.traces.end()
        assert run.judge("never")
        assert run.kills == 1
        run.check()


@pytest.mark.study  # in short: one kill at each moment, in three hours
@pytest.mark.slow
def test_fed_for_a_hundred_hours_and_killed_at_random_a_run_is_as_one_over_all(forks, tmp_path):
    rng = random.Random(4)
    # Slow enough that a random second is in the midst of the calls.
    with ModelServerThread(build_world_handlers(), ServerBehaviour(latency=0.01, jitter=0.02)) as server:
        run = GrowingRun(tmp_path, forks, server, hours=100, seed=2)
        for _ in range(100):
            run.traces.write_hour(NEW_AN_HOUR)
            moment = f"after seconds {rng.uniform(0.02, 0.8):.3f}"
            if rng.random() < 0.5:
                moment = f"{rng.choice(['before', 'after'])} {rng.choice(list(STEPS))} {rng.randrange(1, 9)}"
            run.judge(moment if rng.random() < 0.5 else "never")
            if rng.random() < 0.2:
                run.diagnose()
        run.traces.end()
        assert run.judge("never")
        assert run.kills >= 20
        run.check()


if __name__ == "__main__":
    arm(sys.argv[1])
    app(sys.argv[2:])
