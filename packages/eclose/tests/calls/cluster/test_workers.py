"""A run on Ray: workers and drivers that are killed, limits that hold, and what cannot work is said."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from eclose.calls.cluster.workers import (
    RaySettings,
    RecordShard,
    ShardStopSignal,
    run_shards_on_ray,
)
from eclose.calls.ledger.ledger import Ledger
from eclose.errors import Resumable, SettingError, UserError
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import ScriptedReply
from eclose_world.server.faults import ServerBehaviour
from tests.calls.cluster.cluster import cluster
from tests.calls.cluster.cluster_work import RUN, Asking, drive, run_shard, write_settings
from tests.calls.ledger.postgres import fresh_database
from tests.serving import registry

__all__ = ["cluster"]

ROOT = Path(__file__).parents[5]
LATENCY = 0.2


# --- shards -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_record_belongs_to_one_shard():
    ids = [f"r{number}" for number in range(2_000)]
    shards = RaySettings(workers=4, shards_per_worker=4).shards
    sizes = [sum(map(shard.contains, ids)) for shard in shards]
    assert len(shards) == 16
    assert all(sum(shard.contains(record_id) for shard in shards) == 1 for record_id in ids)
    assert sum(sizes) == 2_000
    assert min(sizes) > 90
    assert all(map(RecordShard().contains, ids))


def test_a_record_stays_in_its_shard():
    """On every machine and in every version, while two of them may work on one run."""
    for name in "abcdé":
        digest = hashlib.sha256(f'["shard","{name}"]'.encode()).digest()
        assert RecordShard(int.from_bytes(digest[:8]) % 8, 8).contains(name)


# --- what cannot work -------------------------------------------------------------------------------------------------


async def nothing(shard: RecordShard, stop: ShardStopSignal) -> None:
    stop.listen(lambda: None)


def test_the_work_of_a_shard_needs_no_cluster():
    asyncio.run(nothing(RecordShard(), ShardStopSignal()))


def test_a_ledger_in_a_file_is_refused(tmp_path):
    with pytest.raises(SettingError, match=r"ledger\.db: .* a file takes one writer\. Pass a PostgreSQL database"):
        run_shards_on_ray(nothing, tmp_path / "ledger.db", RaySettings())


def test_without_ray_one_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'eclose\[postgres,ray\]'"):
        run_shards_on_ray(nothing, "postgresql://nowhere/x", RaySettings())


def test_settings_are_checked_together():
    with pytest.raises(SettingError, match=r"workers must .* restarts must .* cpus_per_worker must "):
        RaySettings(workers=0, restarts=-1, cpus_per_worker=0)


# --- on Ray -----------------------------------------------------------------------------------------------------------


class Rig:
    """A model server that notes what it was asked and when, a ledger, records, and drivers to start and kill."""

    def __init__(self, folder: Path, records: int) -> None:
        self.ledger = fresh_database()
        self.folder = folder
        self.texts = {f"r{number:04}": f"question {number}" for number in range(records)}
        self.asked: list[tuple[float, str]] = []
        """When the server answered, and what: everything here is paid."""
        lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in self.texts.items()]
        (folder / "items.jsonl").write_text("".join(lines))
        (folder / "pids").mkdir()
        self.server = ModelServerThread(registry(self._answer), ServerBehaviour(latency=LATENCY))

    def _answer(self, request):
        text = request.messages[-1]["content"]
        self.asked.append((time.monotonic(), text))
        return ScriptedReply(text)

    def asking(self, **settings) -> Asking:
        names = {"items": str(self.folder / "items.jsonl"), "pids": str(self.folder / "pids")}
        return Asking(ledger=self.ledger, base_url=self.server.base_url, **names, **settings)

    @contextmanager
    def driver_here(self, **settings):
        """A driver at work in a thread of this process, on the cluster of the module: its exit code and result."""
        with ThreadPoolExecutor(1) as thread:
            yield thread.submit(drive, self.asking(**settings))

    @contextmanager
    def driver(self, **settings):
        """A driver at work in a process of its own, to be killed. Afterwards nothing of it is left."""
        path = write_settings(self.folder / "settings.json", self.asking(**settings))
        command = [sys.executable, "-m", "tests.calls.cluster.cluster_work", str(path)]
        # A job in the background is born deaf to SIGINT, and what it starts inherits that.
        hearing = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
        options = {"cwd": ROOT, "stdout": subprocess.PIPE, "text": True, "preexec_fn": hearing}
        with subprocess.Popen(command, **options) as process:
            try:
                yield process
            finally:
                process.kill()

    def finish(self, process) -> dict:
        out, _ = process.communicate(timeout=150)
        return json.loads(out.splitlines()[-1])

    def wait(self, condition, within: float = 120.0) -> None:
        end = time.monotonic() + within
        while not condition():
            assert time.monotonic() < end, "nothing happened"
            time.sleep(0.02)

    def at_work(self) -> list[int]:
        """The processes of workers."""
        return [int(text) for note in (self.folder / "pids").iterdir() if (text := note.read_text())]

    def find_half_done(self, shards: list[RecordShard]) -> int | None:
        """Return the process of a shard under way that has some answers and still has many records left."""
        names = {text: name for name, text in self.texts.items()}
        answered = [names[text] for _, text in self.asked]
        for shard in shards:
            note = self.folder / "pids" / str(shard.index)
            count, total = sum(map(shard.contains, answered)), sum(map(shard.contains, self.texts))
            if 30 <= count <= total - 60 and note.exists() and (text := note.read_text()):
                return int(text)
        return None

    def in_ledger(self) -> tuple[dict[str, str], Counter[str]]:
        """The answers that are concluded, and the questions whose sends may have been billed for nothing."""

        async def main():
            async with Ledger.open(self.ledger, run=RUN) as ledger:
                answers = {
                    outcome.record_id: json.loads(outcome.body)["text"] async for outcome in ledger.read_outcomes("ask")
                }
                orphans = Counter(orphan.request["messages"][-1]["content"] for orphan in await ledger.list_orphans())
                return answers, orphans

        return asyncio.run(main())

    def check(self, done_before: dict[str, str], *, most_again: int) -> None:
        """Nothing lost, nothing twice, what was done before a death not paid again, and what was is listed."""
        answers, orphans = self.in_ledger()
        assert answers == self.texts
        paid = Counter(text for _, text in self.asked)
        assert set(paid) == set(self.texts.values())
        assert [text for text in done_before.values() if paid[text] > 1] == []
        again = {text: count - 1 for text, count in paid.items() if count > 1}
        assert all(orphans[text] >= count for text, count in again.items())
        assert sum(again.values()) <= most_again


def alive(one: psutil.Process) -> bool:
    """Where nobody reaps orphans they stay as zombies, which have ended too."""
    try:
        return one.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_driver(process) -> None:
    """Without warning. Workers end by themselves; helpers of Ray's may take a minute, and are ended here."""
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [child for child in children if "_Worker" in child.name()]
    assert len(workers) == 2
    process.kill()
    end = time.monotonic() + 30
    while any(map(alive, workers)):
        assert time.monotonic() < end, "workers without a driver go on"
        time.sleep(0.02)
    for child in filter(alive, children):
        child.kill()


@pytest.mark.ray
@pytest.mark.slow
def test_ray_on_one_machine_listens_on_loopback_alone(cluster):
    """Ray replaces the loopback address by the one in the network, unless it is told not to."""
    assert cluster.startswith("127.0.0.1:")
    listening = {
        connection.laddr.ip
        for process in psutil.Process().children(recursive=True)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


async def wait_for_signal(signal: str, shard: RecordShard, stop: ShardStopSignal) -> int:
    """Return the number of the shard; the first waits until a file is there."""
    end = time.monotonic() + 30
    while shard.index == 0 and not Path(signal).exists():
        assert time.monotonic() < end, f"{shard} waits for ever"
        await asyncio.sleep(0.01)
    return shard.index


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_results_are_in_the_order_of_the_shards_where_the_first_ends_last(tmp_path):
    finished: list[str] = []

    def tell(line: str) -> None:
        finished.append(line)
        if len(finished) == 5:
            (tmp_path / "0").touch()

    work = partial(wait_for_signal, str(tmp_path / "0"))
    settings = RaySettings(workers=2, shards_per_worker=3)
    assert run_shards_on_ray(work, "postgresql://unused/x", settings, tell=tell) == list(range(6))


@pytest.mark.ray
@pytest.mark.slow
def test_a_worker_is_killed_and_its_shard_goes_on(cluster, tmp_path):
    rig = Rig(tmp_path, 400)
    with rig.server, rig.driver_here(concurrency=16, shards_per_worker=1) as driver:
        # A worker may begin long after the other, so one is killed that has answers behind it and records left.
        shards = RaySettings(workers=2, shards_per_worker=1).shards
        rig.wait(lambda: rig.find_half_done(shards) is not None)
        done_before, _ = rig.in_ledger()
        os.kill(rig.find_half_done(shards), signal.SIGKILL)
        code, result = driver.result(150)
        assert code == 0, result
        assert sum("a worker died on shard" in line for line in result["told"]) == 1
        assert sum(shard["received"] for shard in result["shards"]) == 400
        assert sum(shard["before"] for shard in result["shards"]) > 0  # the shard did not begin anew
        assert len({shard["pid"] for shard in result["shards"]}) >= 2
        rig.check(done_before, most_again=16)
        # Of two workers, and of three with the dead one.
        assert 8 < rig.server.bill(keys=False)["totals"]["peak_in_flight"] <= 16


@pytest.mark.study  # in short: a worker that is killed
@pytest.mark.ray
@pytest.mark.slow
def test_the_driver_is_killed_and_the_next_one_goes_on(cluster, tmp_path):
    """The first has a Ray of its own, which dies with it."""
    rig = Rig(tmp_path, 160)
    rate = {"concurrency": 16, "requests_per_minute": 900}
    with rig.server:
        with rig.driver(**rate) as process:
            rig.wait(lambda: len(rig.asked) >= 40 and len(rig.at_work()) == 2)
            done_before, _ = rig.in_ledger()
            kill_driver(process)
        # With another number of shards, since nothing of the first is needed.
        with rig.driver_here(**rate, shards_per_worker=1) as driver:
            code, result = driver.result(150)
            assert code == 0, result
        rig.check(done_before, most_again=16)
        moments = sorted(moment for moment, _ in rig.asked)
        # 15 a second, and one more of each of the four workers there were, wherever the four seconds begin.
        assert max(bisect_left(moments, start + 4) - position for position, start in enumerate(moments)) <= 60 + 4
        count = len(rig.asked)
        # Nor does it need the engine: one process finds everything done.
        assert asyncio.run(run_shard(rig.asking(**rate), RecordShard(), ShardStopSignal()))["before"] == 160
        assert len(rig.asked) == count


@pytest.mark.study  # in short: a worker that is killed
@pytest.mark.ray
@pytest.mark.slow
def test_a_shard_that_kills_its_workers_is_left_and_the_others_are_finished(cluster, tmp_path):
    rig = Rig(tmp_path, 80)
    with rig.server:
        with rig.driver_here(deadly="r0040", restarts=1) as driver:
            code, result = driver.result(150)
        shard = next(shard for shard in RaySettings(shards_per_worker=2).shards if shard.contains("r0040"))
        assert (code, result["kind"]) == (Resumable.exit_code, "WorkersLost")
        assert result["error"].startswith(f"{shard}: the worker died 2 times.")
        assert "Finished work is kept" in result["error"]
        answers, _ = rig.in_ledger()
        assert {name for name in rig.texts if not shard.contains(name)} <= set(answers)
        asyncio.run(run_shard(rig.asking(), RecordShard(), ShardStopSignal()))
        rig.check(answers, most_again=32)


@pytest.mark.ray
@pytest.mark.slow
def test_an_error_in_one_shard_stops_all_once_what_is_under_way_is_done(cluster, tmp_path):
    rig = Rig(tmp_path, 400)
    with rig.server, rig.driver_here(broken="r0200") as driver:
        code, result = driver.result(150)
        assert (code, result["kind"]) == (UserError.exit_code, "UserError")
        assert result["error"] == "this record stops the run."
        answers, orphans = rig.in_ledger()
        assert 0 < len(answers) < 400
        assert len(answers) == len(rig.asked)
        assert orphans == {}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_finishes_what_is_under_way(cluster, tmp_path, number):
    rig = Rig(tmp_path, 1_000)
    with rig.server, rig.driver(address=cluster) as process:
        rig.wait(lambda: len(rig.asked) >= 40)
        process.send_signal(number)
        result = rig.finish(process)
        assert (process.returncode, result["kind"]) == (Resumable.exit_code, "RunStoppedError")
        answers, orphans = rig.in_ledger()
        assert len(answers) == len(rig.asked) < 300  # not even the shards that were under way are finished
        assert orphans == {}
