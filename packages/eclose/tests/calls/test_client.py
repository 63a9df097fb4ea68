"""A whole run against a server that behaves badly: nothing is lost, and nothing is sent that should not be."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from aiohttp import web

from eclose.calls.client import CallSettings, connect_model, find_price, open_connection
from eclose.calls.http.failures import CallFailureKind
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import Decoding, FinishReason, Reply, Request, TokenUsage
from eclose.calls.prices import ModelPrice
from eclose.calls.record_loop import JobRunner, RecordJob
from eclose.calls.retry import ServiceDown
from eclose.calls.tokens import bound_request_usage
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import ReadRecord
from eclose_world.server.app import ModelServerThread, open_model_server
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.calls.http.test_endpoint import completion, site
from tests.serving import registry


@dataclass(frozen=True)
class Question:
    id: str
    text: str


def questions(count, size=10):
    return [ReadRecord(f"line {n}", Question(f"q{n:04}", f"{n} " + "x" * size)) for n in range(count)]


async def go(base_url, path, records, workers=32, **settings):
    """One run; how many ended where."""
    async with Ledger.open(path, run="a") as ledger:
        call_settings = CallSettings(**{"concurrency": 16, "unpriced": True, **settings})
        async with open_connection(base_url, ledger, call_settings, environ={}) as connection:

            async def ask(question):
                request = Request(({"role": "user", "content": question.text},), Decoding(max_tokens=64))
                return Question(question.id, (await connection.model.complete(request)).text)

            runner = JobRunner(ledger, [RecordJob("ask", ask, Question)], lambda question: question.id, workers=workers)
            try:
                await runner.run(records)
            finally:
                reasons = {reason: count for (_, reason), count in (await ledger.count_outcomes("ask")).items()}
            return runner.progress.finished, reasons, connection


@pytest.mark.slow
def test_a_storm_of_429_fails_no_record_and_nobody_comes_back_too_early(tmp_path):
    storm = ServerBehaviour(faults={ServerFault.RATE_LIMIT: 0.4}, retry_after=0.1, max_faults_per_key=5)

    async def main():
        async with open_model_server(registry(), storm) as server:
            counts, _, connection = await go(server.base_url, tmp_path / "l.db", questions(150))
            return counts, server.bill(keys=False)["totals"], connection

    outcomes, bill, connection = asyncio.run(main())
    assert outcomes == {"accepted": 150}
    assert (bill["paid"], bill["early"]) == (150, 0)
    assert bill["faulted"]["rate_limit"] > 30
    assert sum(connection.model.failures.values()) == bill["faulted"]["rate_limit"]


@pytest.mark.slow
def test_an_outage_stops_the_run_and_the_same_command_goes_on(tmp_path):
    port = []

    async def first():
        async with open_model_server(registry(), ServerBehaviour(latency=0.02)) as server:
            port.append(int(server.base_url.split(":")[2].split("/")[0]))
            url, records = server.base_url, questions(800)
            running = asyncio.ensure_future(go(url, tmp_path / "l.db", records, deadline=2.0, breaker_seconds=3.0))
            while server.bill(keys=False)["totals"]["paid"] < 50:
                await asyncio.sleep(0.01)
        with pytest.raises(ServiceDown, match="run the same command again") as down:
            await running
        return url, down.value.exit_code

    began = time.monotonic()
    url, code = asyncio.run(first())
    assert code == 75
    assert time.monotonic() - began < 30  # 3 s without a success, and what was under way

    async def again():
        async with open_model_server(registry(), port=port[0]) as server:
            assert server.base_url == url
            counts, _, _ = await go(url, tmp_path / "l.db", questions(800))
            return counts, server.bill(keys=False)["totals"]["paid"]

    outcomes, paid = asyncio.run(again())
    assert outcomes == {"accepted": 800}
    assert 0 < paid < 800  # the rest was answered before


@pytest.mark.slow
@pytest.mark.parametrize("fault", [ServerFault.GZIP_PAGE, ServerFault.ENCODED, ServerFault.OVERSIZED])
def test_trouble_on_the_way_is_never_kept_as_an_answer(tmp_path, fault):
    """One request in ten meets it for ever: quarantined as transient, not in the ledger, and sent again by a retry."""
    trouble = ServerBehaviour(faults={fault: 0.02}, max_faults_per_key=5, oversized_bytes=200_000_000, seed=4)

    class Failing(ServerBehaviour):
        """The same requests fail at every attempt."""

        def draw_fault(self, key, _attempt):
            return trouble.draw_fault(key, 1)

    async def main():
        async with open_model_server(registry(), Failing(oversized_bytes=200_000_000)) as server:
            counts, reasons, connection = await go(server.base_url, tmp_path / "l.db", questions(100))
            before = server.bill(keys=False)["totals"]
        async with Ledger.open(tmp_path / "l.db", run="a") as ledger:
            usage, reopened = await ledger.compute_usage(), await ledger.reopen_quarantined("ask")
        async with open_model_server(registry(), port=int(server.base_url.split(":")[2].split("/")[0])) as server:
            again, _, _ = await go(server.base_url, tmp_path / "l.db", questions(100))
            sent = server.bill(keys=False)["totals"]["received"]
        return counts, reasons, connection.model.failures, before, usage, reopened, again, sent

    outcomes, reason_counts, met, before, usage, reopened, again, sent = asyncio.run(main())
    lost = outcomes["quarantined"]
    assert 0 < lost < 10
    assert reason_counts == {None: 100 - lost, "transient": lost}
    assert met == {CallFailureKind.TRANSIENT: 5 * lost}
    assert before["received"] == 100 + 4 * lost
    assert usage.replies == 100 - lost
    assert (reopened, sent) == (lost, lost)
    assert again == {"accepted": 100}


@pytest.mark.study  # in short: an outage that stops a run, and the same command
@pytest.mark.slow
def test_ten_seconds_of_502_at_full_concurrency_are_survived(tmp_path):
    async def main():
        async with open_model_server(registry(), ServerBehaviour(latency=0.05)) as server:
            settings = {"concurrency": 64, "slow_start": False, "workers": 128}
            running = asyncio.ensure_future(go(server.base_url, tmp_path / "l.db", questions(1_500), **settings))
            while server.bill(keys=False)["totals"]["paid"] < 200:
                await asyncio.sleep(0.01)
            server.outage = ServerFault.BAD_GATEWAY
            await asyncio.sleep(10)
            server.outage = None
            counts, reasons, connection = await running
            return counts, reasons, connection.model.failures, server.bill(keys=False)["totals"]

    outcomes, reason_counts, met, bill = asyncio.run(main())
    assert outcomes == {"accepted": 1_500}, reason_counts
    assert bill["paid"] == 1_500  # nothing was paid twice
    assert met[CallFailureKind.TRANSIENT] > 200


@pytest.mark.slow
def test_slow_bytes_take_a_place_until_the_deadline_and_harm_nobody(tmp_path):
    slow = ServerBehaviour(faults={ServerFault.SLOW: 0.04}, slow_seconds=60, max_faults_per_key=99)

    async def main():
        async with open_model_server(registry(), slow) as server:
            began = time.monotonic()
            counts, _, connection = await go(server.base_url, tmp_path / "l.db", questions(200), deadline=0.5)
            return (
                counts,
                connection.model.failures,
                server.bill(keys=False)["totals"]["paid"],
                time.monotonic() - began,
            )

    outcomes, met, paid, seconds = asyncio.run(main())
    assert outcomes == {"accepted": 200}  # a time-out is tried again
    assert set(met) == {CallFailureKind.TIMEOUT}
    assert seconds < 30

    async def orphans():
        async with Ledger.open(tmp_path / "l.db", run="a") as ledger:
            return len(await ledger.list_orphans())

    # Every one that dribbled was billed, as the ledger suspects.
    assert asyncio.run(orphans()) == met.total() == paid - 200 > 0


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 15), marks=pytest.mark.study)], ids=len)
def test_a_budget_holds_over_any_number_of_interrupted_runs(tmp_path, seeds):
    """Random models, prices and stops: what was paid never exceeds the cap."""

    class Model:
        name = "house/model"

        def __init__(self, rng):
            self.rng, self.paid = rng, 0

        async def complete(self, _):
            await asyncio.sleep(0)
            usage = TokenUsage(self.rng.randrange(1, 8), self.rng.randrange(1, 65))
            self.paid += PRICE.cost(usage)
            return Reply("x", FinishReason.STOP, usage)

    async def spend(place, rng, cap):
        model = Model(rng)
        for opening in range(3):
            async with Ledger.open(place, run="a") as ledger:
                settings = CallSettings(budget=cap / 1e6, unpriced=False, concurrency=4)
                connection = await connect_model(model, ledger, settings, price=PRICE)
                requests = [
                    Request(({"role": "user", "content": f"{opening} {number}"},), Decoding(max_tokens=64))
                    for number in range(rng.randrange(30))
                ]
                replies = await asyncio.gather(*map(connection.model.complete, requests), return_exceptions=True)
                ended = Counter(type(reply).__name__ for reply in replies)
                assert set(ended) <= {"Reply", "BudgetSpent"}
                assert model.paid <= cap
                assert (await ledger.compute_account()).spent == model.paid
        return model.paid

    PRICE = ModelPrice.of(1, 2)  # noqa: N806
    for seed in seeds:
        rng = Random(seed)
        cap = rng.randrange(100, 6000)
        asyncio.run(spend(tmp_path / f"{seed}.db", rng, cap))


@pytest.mark.slow
def test_a_full_disk_stops_the_run_cleanly_and_a_larger_one_goes_on(tmp_path, monkeypatch):
    # A run waits two minutes for space before it stops.
    monkeypatch.setattr("eclose.calls.ledger.ledger.MAX_OUTAGE_SECONDS", 3.0)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small disk needs the right to mount one")
    rng = Random(1)
    records = [ReadRecord(f"line {n}", Question(f"q{n:04}", f"{n} {rng.randbytes(1500).hex()}")) for n in range(400)]

    async def main():
        async with open_model_server(registry()) as server:
            with pytest.raises(UserError, match="full"):
                await go(server.base_url, disk / "l.db", records)
            before = server.bill(keys=False)["totals"]["paid"]
            subprocess.run(["mount", "-o", "remount,size=40m", disk], check=True)
            counts, _, _ = await go(server.base_url, disk / "l.db", records)
            return counts, before, server.bill(keys=False)["totals"]["paid"]

    try:
        outcomes, before, after = asyncio.run(main())
    finally:
        subprocess.run(["umount", disk], check=True)
    assert outcomes == {"accepted": 400}
    assert 0 < before < 400
    assert after <= 400 + 32  # what was under way when the disk was full


@pytest.mark.parametrize("usage", [(10**30, 10**30), (-5, 10**12), (2**63, 1)])
def test_absurd_usage_with_a_price_keeps_the_reply_at_its_worst_cost(tmp_path, usage):
    (tmp_path / "prices.json").write_text('{"m": {"input": 1, "output": 2}}')

    async def boast(_):
        payload = completion("fine") | {"usage": dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=True))}
        return web.json_response(payload)

    async def main():
        async with site(boast) as url, Ledger.open(tmp_path / "l.db", run="a") as ledger:
            settings = CallSettings(prices=tmp_path / "prices.json", budget=1.0)
            async with open_connection("m", ledger, settings, environ={"ECLOSE_BASE_URL": url}) as connection:
                requests = [
                    Request(({"role": "user", "content": f"q{n}"},), Decoding(max_tokens=64)) for n in range(50)
                ]
                replies = await asyncio.gather(*map(connection.model.complete, requests))
                return (
                    replies,
                    await ledger.compute_usage(),
                    sum(ModelPrice.of(1, 2).cost(bound_request_usage(request)) for request in requests),
                )

    replies, recorded_usage, worst = asyncio.run(main())
    assert {reply.text for reply in replies} == {"fine"}
    assert (recorded_usage.replies, recorded_usage.cost, recorded_usage.prompt_tokens) == (50, worst, 0)


def test_an_unknown_price_is_refused_unless_told_otherwise():
    with pytest.raises(SettingError, match="no price is known"):
        find_price("house/model", CallSettings())
    assert find_price("house/model", CallSettings(unpriced=True)) is None
    with pytest.raises(SettingError, match="no price is known"):
        find_price("house/model", CallSettings(unpriced=True, budget=1.0))


CHILD = """
import asyncio, sys
from pathlib import Path
from tests.calls.test_client import go, questions

prices = Path(sys.argv[3])
asyncio.run(go(sys.argv[1], sys.argv[2], questions(200), unpriced=False, budget=float(sys.argv[4]), prices=prices))
"""


@pytest.mark.slow
def test_kills_do_not_use_up_the_budget(tmp_path):
    """What a killed run had under way is asked again, and then counts at what it cost, not at the worst."""
    prices, ledger = tmp_path / "prices.json", tmp_path / "l.db"
    prices.write_text('{"world": {"input": 1, "output": 1}}')
    with ModelServerThread(registry(), ServerBehaviour(latency=0.2)) as server:
        arguments = [sys.executable, "-c", CHILD, server.base_url, str(ledger), str(prices)]

        def child(budget, *, kill_at=None):
            with subprocess.Popen([*arguments, str(budget)], cwd=Path(__file__).parents[4]) as process:
                while kill_at and server.bill(keys=False)["totals"]["paid"] < kill_at:
                    assert process.poll() is None
                    time.sleep(0.01)
                if kill_at:
                    process.kill()
            return process.returncode

        cap = 4_500
        assert [child(cap / 1e6, kill_at=paid) for paid in (30, 70, 110)] == [-9, -9, -9]
        assert child(cap / 1e6) == 0
        totals = server.bill(keys=False)["totals"]

    async def look():
        async with Ledger.open(ledger, run="a") as books:
            return await books.compute_account(), len(await books.list_orphans())

    account, orphans = asyncio.run(look())
    billed = totals["prompt_tokens"] + totals["completion_tokens"]
    assert account.spent <= billed <= account.spent + account.assumed <= cap
    assert totals["paid"] - 200 <= orphans <= 3 * 16
