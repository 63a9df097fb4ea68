"""Every record gets to its end exactly once, whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eclose.calls.ledger.ledger import Ledger
from eclose.calls.record_loop import (
    READ_STAGE,
    JobRunner,
    RecordJob,
    RecordRejection,
    RunStoppedError,
    count_run_funnel,
    sum_run_funnel,
    write_run_results,
)
from eclose.errors import RecordError, Resumable, UserError
from eclose.files.jsonl import ReadRecord
from eclose.files.manifest import read_manifest
from eclose.files.outcome_counts import RecordCounts
from eclose.files.step import PipelineStep
from tests.calls.ledger.postgres import DATABASES, fresh_database


@dataclass(frozen=True)
class Number:
    id: str
    value: int


@pytest.fixture(params=DATABASES)
def where(request, tmp_path):
    return tmp_path / "ledger.db" if request.param == "sqlite" else fresh_database()


def numbers(count, first=0):
    return [ReadRecord(f"line {n}", Number(f"n{n:04}", n)) for n in range(first, first + count)]


class Work:
    """Jobs that note what they did: doubling, then adding one."""

    def __init__(self, *, fail=None):
        self.done = []
        self.fail = fail or {}
        self.peak = self.under_way = 0
        self.jobs = [RecordJob("double", self.double, Number), RecordJob("add", self.add, Number)]

    async def double(self, number):
        return await self.do("double", number, number.value * 2)

    async def add(self, number):
        return await self.do("add", number, number.value + 1)

    async def do(self, stage, number, value):
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        try:
            await asyncio.sleep(0.001)
        finally:
            self.under_way -= 1
        self.done.append((stage, number.id))
        if (problem := self.fail.get((stage, number.id))) is not None:
            if isinstance(problem, RecordRejection):
                return problem
            raise problem
        return Number(number.id, value)


async def go(where, work, records, *, run="a", workers=8, then=None):
    async with Ledger.open(where, run=run) as ledger:
        runner = JobRunner(ledger, work.jobs, lambda number: number.id, workers=workers)
        try:
            await runner.run(records)
        finally:
            runner.counts = await count_run_funnel(ledger, ["double", "add"], runner.progress.received)
        if then:
            await then(ledger, runner)
        return runner


def results(where, run="a"):
    async def look():
        async with Ledger.open(where, run=run) as ledger:
            return [json.loads(outcome.body)["value"] async for outcome in ledger.read_outcomes("add")]

    return asyncio.run(look())


def test_every_record_goes_through_every_job(where):
    work = Work()
    runner = asyncio.run(go(where, work, numbers(50)))
    assert results(where) == [2 * n + 1 for n in range(50)]
    assert sorted(work.done) == sorted((stage, f"n{n:04}") for stage in ("double", "add") for n in range(50))
    assert work.peak == 8
    assert runner.progress.received == 50
    assert runner.progress.finished == {"accepted": 50}
    assert runner.counts["double"] == RecordCounts(50, 50)


def test_jobs_have_no_barrier_between_them(where):
    """A record that is quick is through before a slow one has left the first job."""
    ended = []
    slow = asyncio.Event()

    async def first(number):
        if number.value == 0:
            await slow.wait()
        return number

    async def second(number):
        ended.append(number.id)
        if len(ended) == 4:
            slow.set()
        return number

    work = Work()
    work.jobs = [RecordJob("double", first, Number), RecordJob("add", second, Number)]
    asyncio.run(asyncio.wait_for(go(where, work, numbers(5), workers=2), 30))
    assert ended == ["n0001", "n0002", "n0003", "n0004", "n0000"]


def test_what_is_rejected_or_fails_is_set_aside_with_its_reason_and_the_rest_goes_on(where):
    class RefusedError(Exception):
        kind = "refusal"

    fail = {
        ("double", "n0001"): RecordRejection("too small", Number("n0001", 1)),
        ("double", "n0002"): RecordError("is odd"),
        ("add", "n0003"): RefusedError("no"),
        ("add", "n0004"): KeyError("bug"),
    }
    unread = ReadRecord("line 9", error=RecordError("no JSON"), error_kind="not JSON")
    runner = asyncio.run(go(where, Work(fail=fail), [*numbers(6), unread, ReadRecord("line 10", rejected="duplicate")]))
    assert runner.progress.finished == {"accepted": 2, "rejected": 2, "quarantined": 4}
    assert runner.counts == {
        READ_STAGE: RecordCounts(8, 6, {"duplicate": 1}, {"not JSON": 1}),
        "double": RecordCounts(6, 4, {"too small": 1}, {"RecordError": 1}),
        "add": RecordCounts(4, 2, {}, {"refusal": 1, "KeyError": 1}),
    }
    assert all(counts.conserved for counts in runner.counts.values())
    assert sum_run_funnel(runner.counts).conserved


def test_a_run_goes_on_where_it_was(where):
    work = Work(fail={("add", "n0010"): Resumable("down")})
    with pytest.raises(Resumable, match="down"):
        asyncio.run(go(where, work, numbers(30), workers=4))
    before = list(work.done)
    assert ("double", "n0010") in before
    assert ("double", "n0029") not in before
    again = Work()
    runner = asyncio.run(go(where, again, numbers(30), workers=4))
    assert results(where) == [2 * n + 1 for n in range(30)]
    # Only what the record that stopped it was at is done again.
    assert sorted(before + again.done) == sorted(
        [("add", "n0010"), *((stage, f"n{n:04}") for stage in ("double", "add") for n in range(30))]
    )
    assert runner.progress.finished_before == sum(stage == "add" for stage, _ in before) - 1
    third = Work()
    asyncio.run(go(where, third, numbers(30)))
    assert third.done == []


def test_what_is_under_way_is_finished_when_the_run_stops(where):
    """It may be paid for."""
    work = Work(fail={("double", "n0000"): Resumable("budget spent")})
    with pytest.raises(Resumable):
        asyncio.run(go(where, work, numbers(100), workers=8))
    assert {record for _, record in work.done} == {f"n{n:04}" for n in range(8)}


@pytest.mark.parametrize("error", [UserError("disk is full"), Resumable("down")])
def test_what_is_not_the_records_fault_stops_the_run(where, error):
    with pytest.raises(type(error)):
        asyncio.run(go(where, Work(fail={("add", "n0001"): error}), numbers(3)))
    assert len(results(where)) == 2


@pytest.mark.slow
def test_somebody_may_stop_it(where):
    async def stop_soon():
        async with Ledger.open(where, run="a") as ledger:
            work = Work()
            runner = JobRunner(ledger, work.jobs, lambda number: number.id, workers=2)

            def records():
                for record in numbers(10_000):
                    if record.where == "line 20":
                        runner.stop()
                    yield record

            with pytest.raises(RunStoppedError):
                await runner.run(records())
            return runner.progress

    progress = asyncio.run(stop_soon())
    assert 20 <= progress.received <= 22
    assert len(results(where)) < 22


def test_quarantined_records_are_tried_again_on_request(where):
    asyncio.run(
        go(
            where,
            Work(fail={("add", "n0001"): ValueError("x"), ("double", "n0002"): RecordRejection("no")}),
            numbers(4),
        )
    )

    async def reopen():
        async with Ledger.open(where, run="a") as ledger:
            return [await ledger.reopen_quarantined(stage) for stage in ("double", "add")]

    assert asyncio.run(reopen()) == [0, 1]
    again = Work()
    asyncio.run(go(where, again, numbers(4)))
    assert again.done == [("add", "n0001")]


def test_shards_share_the_records_out(where):
    works = [Work(), Work()]

    async def shard(index):
        async with Ledger.open(where, run="a") as ledger:
            mine = lambda record_id: sum(record_id.encode()) % 2 == index  # noqa: E731
            await JobRunner(ledger, works[index].jobs, lambda number: number.id, in_shard=mine).run(
                [*numbers(20), ReadRecord("line 99", rejected="duplicate")]
            )
            return await count_run_funnel(ledger, ["double", "add"], 21)

    asyncio.run(shard(0))
    counts = asyncio.run(shard(1))
    assert sorted(works[0].done + works[1].done) == sorted(
        (stage, f"n{n:04}") for stage in ("double", "add") for n in range(20)
    )
    assert all(works[index].done for index in (0, 1))
    assert counts[READ_STAGE] == RecordCounts(21, 20, {"duplicate": 1})


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 5))
def test_exports_are_the_same_in_whatever_order_and_however_often_it_stopped(tmp_path_factory, rng, stops):
    folder = tmp_path_factory.mktemp("run")
    source = folder / "in.jsonl"
    source.write_text("input")
    fail = {("double", "n0003"): RecordRejection("small", Number("n0003", 3)), ("add", "n0004"): RecordError("odd")}

    def written(name, records, breaks):
        stage = PipelineStep("test", {}, (source,), folder / name / "out.jsonl")

        async def then(ledger, runner):
            await write_run_results(ledger, stage, ["double", "add"], runner.progress.received)

        for at in breaks:
            with suppress(Resumable):  # unless the record was through before
                asyncio.run(go(folder / name / "db", Work(fail=fail | {at: Resumable("stop")}), records))
        asyncio.run(go(folder / name / "db", Work(fail=fail), records, then=then))
        manifest = read_manifest(stage.manifest_path)
        assert manifest.counts == RecordCounts(20, 18, {"double: small": 1}, {"add: RecordError": 1})
        return {path.name: path.read_bytes() for path in stage.paths if "manifest" not in path.name}

    for name in ("plain", f"broken{rng.random()}"):
        (folder / name).mkdir()
        shuffled = numbers(20)
        if name != "plain":
            rng.shuffle(shuffled)
        breaks = [("add", f"n{n:04}") for n in rng.sample(range(5, 20), stops)] if name != "plain" else []
        files = written(name, shuffled, breaks)
        if name == "plain":
            plain = files
    assert files == plain
    assert [json.loads(line)["id"] for line in files["out.jsonl"].splitlines()] == [
        f"n{n:04}" for n in range(20) if n not in (3, 4)
    ]
    assert json.loads(files["out.jsonl.rejected.jsonl"]) == {
        "id": "n0003", "stage": "double", "reason": "small", "value": {"id": "n0003", "value": 3}
    }  # fmt: skip


def test_a_record_that_is_lost_keeps_the_manifest_from_being_written(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("input")
    stage = PipelineStep("test", {}, (source,), tmp_path / "out.jsonl")

    async def lose():
        async with Ledger.open(tmp_path / "db", run="a") as ledger:
            await JobRunner(ledger, Work().jobs, lambda number: number.id).run(numbers(3))
            await write_run_results(ledger, stage, ["double", "add"], received=4)

    with pytest.raises(AssertionError, match="unaccounted"):
        asyncio.run(lose())
    assert not stage.out.exists()


CHILD = """
import asyncio, sys
from tests.calls.test_record_loop import Number, numbers
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.record_loop import JobRunner, RecordJob

async def main():
    async def work(number):
        if number.value >= 4:
            print(number.id, flush=True)
            await asyncio.sleep(600)
        return number

    async with Ledger.open(sys.argv[1], run="a") as ledger:
        jobs = [RecordJob("double", work, Number), RecordJob("add", work, Number)]
        await JobRunner(ledger, jobs, lambda number: number.id, workers=2).run(numbers(20))

asyncio.run(main())
"""


@pytest.mark.database
@pytest.mark.slow
def test_the_records_of_a_killed_process_are_taken_over_when_its_lease_is_over():
    """By a process that works at the same time and leaves them alone until then."""
    where = fresh_database()
    command = [sys.executable, "-c", CHILD, where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4]) as child:
        assert child.stdout is not None
        record_ids = sorted(child.stdout.readline().strip() for _ in range(2))
        assert record_ids == ["n0004", "n0005"]
        work, began = Work(), time.monotonic()

        async def main():
            running = asyncio.create_task(go(where, work, iter(numbers(20))))
            while len(work.done) < 2 * 14:
                await asyncio.sleep(0.05)
            child.send_signal(signal.SIGKILL)
            return await running

        runner = asyncio.run(asyncio.wait_for(main(), 120))
    assert runner.progress.finished == {"accepted": 20}
    assert runner.progress.finished_before == 4  # done by the other one before it was killed
    assert Counter(work.done) == Counter((stage, f"n{n:04}") for stage in ("double", "add") for n in range(4, 20))
    assert {record_id for _, record_id in work.done[-4:]} == set(record_ids)
    assert time.monotonic() - began > 5


@pytest.mark.database
def test_processes_at_one_run_share_the_records_and_all_see_everything_done():
    where, works = fresh_database(), [Work() for _ in range(3)]

    async def main():
        return await asyncio.gather(*(go(where, work, numbers(60), workers=4) for work in works))

    runners = asyncio.run(asyncio.wait_for(main(), 120))
    assert [runner.progress.finished for runner in runners] == [{"accepted": 60}] * 3
    step_counts = Counter(step for work in works for step in work.done)
    assert step_counts == Counter((stage, f"n{n:04}") for stage in ("double", "add") for n in range(60))
    assert sum(runner.progress.finished_before for runner in runners) == 2 * 60


@pytest.mark.database
def test_a_run_that_is_stopped_gives_its_records_back_at_once():
    where = fresh_database()
    broken = Work(fail={("add", "n0003"): Resumable("down")})
    with pytest.raises(Resumable, match="down"):
        asyncio.run(go(where, broken, numbers(10), workers=2))
    began = time.monotonic()
    assert asyncio.run(go(where, Work(), numbers(10))).progress.finished == {"accepted": 10}
    assert time.monotonic() - began < 10


def test_a_run_stops_with_the_cause_when_the_same_bug_ends_twenty_records_in_a_row(tmp_path):
    work = Work(fail={("double", f"n{n:04}"): ValueError(f"line {n}: bad header") for n in range(100)})
    with pytest.raises(
        RunStoppedError, match=r"double: the same error ended 20 records.*ValueError: line \d+: bad header"
    ):
        asyncio.run(go(tmp_path / "ledger.db", work, numbers(100), workers=1))
    assert len(work.done) == 20


def test_a_run_goes_on_when_other_records_succeed_between_bugs(tmp_path):
    work = Work(fail={("double", f"n{n:04}"): ValueError("bad record") for n in range(100) if n % 10})
    runner = asyncio.run(go(tmp_path / "ledger.db", work, numbers(100), workers=1))
    assert runner.progress.finished == {"accepted": 10, "quarantined": 90}
