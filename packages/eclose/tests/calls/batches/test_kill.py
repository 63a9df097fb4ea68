"""Batches of a run that is killed with SIGKILL: nothing is sent twice, nothing is lost, whatever it was doing.

As a program, this file is such a run: ``python test_batch_kill.py url folder moment each``. It kills itself before or
after the n-th step of a kind, such as ``before save 3``; ``never`` lets it come to its end.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from eclose.calls.batches.files import BatchFolder
from eclose.calls.batches.provider import BatchProvider
from eclose.calls.batches.run import BatchSettings, ModelBatches
from eclose.calls.http.endpoint import ModelRoute
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import Request
from eclose.calls.paid_once import ReplayModel
from eclose_world.server.app import ModelServer, open_model_server
from eclose_world.server.batches import BatchBehaviour
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply
from tests.forking import ForkServer

CANARY = "canary.0123456789abcdef.canary"
COUNT = 60
STEPS = {"save": (BatchFolder, "save"), "upload": (BatchProvider, "upload"), "create": (BatchProvider, "create")} | {
    name: (Ledger, name) for name in ("intend", "settle")
}


def records() -> list[tuple[str, Request]]:
    return [(f"r{n:03}", Request(({"role": "user", "content": f"question {n} of many"},))) for n in range(COUNT)]


def registry() -> HandlerRegistry:
    registry = HandlerRegistry()
    registry.register(None, lambda asked: ScriptedReply(asked.messages[-1]["content"]))
    return registry


def route(base_url: str) -> ModelRoute:
    return ModelRoute(base_url, "world", SecretStr(CANARY))


# --- the run that is killed --------------------------------------------------------------------------------------


def arm(moment: str) -> None:
    """Let the process die at a moment."""
    if moment == "never":
        return
    when, step, number = moment.split()
    owner, name = STEPS[step]
    original = getattr(owner, name)
    steps = itertools.count(1)

    def die_at(time: str, this: int) -> None:
        if (time, this) == (when, int(number)):
            os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(original)
    def at_once(*given: Any) -> Any:
        this = next(steps)
        die_at("before", this)
        result = original(*given)
        die_at("after", this)
        return result

    @functools.wraps(original)
    async def by_and_by(*given: Any) -> Any:
        this = next(steps)
        die_at("before", this)
        result = await original(*given)
        die_at("after", this)
        return result

    setattr(owner, name, by_and_by if asyncio.iscoroutinefunction(original) else at_once)


async def child(base_url: str, folder: Path, each: int) -> None:
    settings = BatchSettings(requests=each, poll=0.01, first_wait=0.01)
    async with (
        Ledger.open(folder / "ledger.db", run="a") as ledger,
        ModelBatches(route(base_url), ledger, folder / "batches", stage="judge", settings=settings) as batches,
    ):
        await batches.submit(records())
        await batches.collect()


# --- the one that looks on ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forks():
    """A process that has imported what the run needs: importing takes longer than running."""
    with ForkServer("eclose.calls.batches.run", "eclose.calls.http.endpoint", "eclose_world.server.app") as server:
        yield server


async def start(forks: ForkServer, server: ModelServer, folder: Path, moment: str, each: int = 25) -> bool:
    """Run it; True if it came to its end, False if it was killed on the way."""
    words = [server.base_url, str(folder), moment, str(each)]
    code, output = await asyncio.to_thread(forks.run, __file__, words, folder.parent / f"{folder.name}.txt")
    assert code in (0, -signal.SIGKILL), output
    return code == 0


async def check(server: ModelServer, folder: Path) -> None:
    """All is answered, each was paid once, no batch was made twice, and nothing is left in doubt."""
    lines = server.bill()["requests"].values()
    assert Counter(line["paid"] for line in lines) == {1: COUNT}
    async with Ledger.open(folder / "ledger.db", run="a") as ledger:
        model = ReplayModel(route(server.base_url).name, ledger)
        texts = [(await model.complete(request)).text for _, request in records()]
        assert texts == [request.messages[0]["content"] for _, request in records()]
        assert await ledger.list_orphans() == []
        assert [problem async for problem in ledger.verify()] == []
    notes = [json.loads(path.read_bytes()) for path in (folder / "batches").glob("*.json")]
    assert {note["state"] for note in notes} == {"collected"}
    assert sum(len(note["records"]) for note in notes) == COUNT
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]
    assert not [path for path in files if path.name.startswith(".")]


MOMENTS = [
    "after intend 10",  # part of a shard is in the ledger
    "before save 3",  # a batch is made, and nobody noted it
    "after settle 30",  # in the midst of collecting
]
MORE_MOMENTS = [
    "before save 1",  # the requests are on disk, the note is not
    "after upload 1",
    "after save 2",  # about to make a batch
    "after save 3",
    "before save 6",  # a second batch is made, and nobody noted it
    "before settle 1",  # about to keep replies
    "before save 10",  # a batch is collected, and nobody noted it
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", [*MOMENTS, *(pytest.param(moment, marks=pytest.mark.study) for moment in MORE_MOMENTS)]
)
def test_killed_at_any_moment_a_run_goes_on(forks, tmp_path, moment):
    async def main() -> None:
        async with open_model_server(registry(), batches=BatchBehaviour(shuffled=True)) as server:
            assert not await start(forks, server, tmp_path, moment)
            assert await start(forks, server, tmp_path, "never")
            await check(server, tmp_path)

    asyncio.run(main())


@pytest.mark.study  # in short: one kill at each of three moments
@pytest.mark.slow
def test_killed_again_and_again_a_run_comes_to_its_end(forks, tmp_path):
    rng = random.Random(1)

    async def main() -> None:
        async with open_model_server(registry(), batches=BatchBehaviour(shuffled=True, late=1)) as server:
            for kills in itertools.count():  # noqa: B007 - how many it took
                step = rng.choice(["save", "save", "save", "upload", "create", "intend"])
                moment = f"{rng.choice(['before', 'after'])} {step} {rng.randrange(1, 4)}"
                if await start(forks, server, tmp_path, moment, each=10):
                    break
            assert kills >= 5
            await check(server, tmp_path)

    asyncio.run(main())


if __name__ == "__main__":
    arm(sys.argv[3])
    asyncio.run(child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[4])))
