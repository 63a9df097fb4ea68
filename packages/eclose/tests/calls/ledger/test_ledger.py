"""The call ledger says what was asked, what came back and what became of it, on either database."""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from sqlalchemy import event

from eclose.calls.ledger import accounts, queries
from eclose.calls.ledger import ledger as ledger_module
from eclose.calls.ledger.database import make_database_engine
from eclose.calls.ledger.ledger import (
    CallInFlightError,
    CallIntent,
    CostCapExceededError,
    Ledger,
    LedgerReply,
    RecordOutcome,
)
from eclose.errors import RecordError, SettingError, UserError
from eclose.values.identity import canonical_bytes, content_hash
from tests.calls.ledger.postgres import DATABASES, fresh_database
from tests.calls.ledger.spending import compute_spending

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Why?"}], "decoding": {"seed": 1}, "replica": 0}


@pytest.fixture(params=DATABASES)
def where(request, tmp_path):
    return tmp_path / "ledger.db" if request.param == "sqlite" else fresh_database()


def intent(number=0, *, reserved=0, stage="judge", **changes):
    request = {**REQUEST, "number": number, **changes}
    return CallIntent(content_hash(request), request, stage, f"r{number}", reserved)


def reply(asked, *, cost=3, body=b'{"text": "Because."}', attempts=1):
    return LedgerReply(asked.key, body, (10, 2), cost, attempts, cached_tokens=4)


def outcome(record_id="r0", kind="accepted", *, reason=None, body=b"{}", stage="judge"):
    return RecordOutcome(stage, record_id, kind, reason, body)


def using(where, *steps, run="a"):
    """What each step, a function of the ledger, gives in one opening."""

    async def main():
        async with Ledger.open(where, run=run) as ledger:
            return [await step(ledger) for step in steps]

    return asyncio.run(main())


def every(stream):
    async def gather(ledger):
        return [item async for item in stream(ledger)]

    return gather


def concluded_ids(stage):
    async def read(ledger):
        return [outcome.record_id async for outcome in ledger.read_outcomes(stage)]

    return read


def problems(where):
    return using(where, every(lambda ledger: ledger.verify()))[0]


def test_a_reply_is_found_in_the_same_opening_and_in_the_next(where):
    call = intent(1)
    before, _, pending, _, after = using(
        where,
        lambda ledger: ledger.find_reply(call.key),
        lambda ledger: ledger.intend(call),
        lambda ledger: ledger.find_reply(call.key),
        lambda ledger: ledger.settle(reply(call)),
        lambda ledger: ledger.find_reply(call.key),
    )
    assert (before, pending, after) == (None, None, reply(call))
    assert using(where, lambda ledger: ledger.find_reply(call.key)) == [reply(call)]
    assert problems(where) == []


def test_calls_are_shared_by_runs_and_outcomes_are_not(where):
    call = intent()
    using(
        where,
        lambda ledger: ledger.intend(call),
        lambda ledger: ledger.settle(reply(call, cost=7), outcome()),
        run="a",
    )
    stored_reply, cost, record_ids = using(
        where,
        lambda ledger: ledger.find_reply(call.key),
        compute_spending,
        concluded_ids("judge"),
        run="b",
    )
    assert (stored_reply, cost, record_ids) == (reply(call, cost=7), (0, 0), [])
    assert using(
        where,
        compute_spending,
        concluded_ids("judge"),
        run="a",
    ) == [
        (7, 0),
        ["r0"],
    ]


def test_what_was_answered_is_not_sent_again(where):
    call = intent()
    with pytest.raises(RecordError, match=f"{call.key}: was answered before"):
        using(
            where,
            lambda ledger: ledger.intend(call),
            lambda ledger: ledger.settle(reply(call)),
            lambda ledger: ledger.intend(replace(call, stage="other", record_id="other")),
        )


@pytest.mark.slow
def test_a_reply_without_an_intent_is_refused(where):
    with pytest.raises(RecordError, match=r"was never intended\. Note the intent before sending"):
        using(where, lambda ledger: ledger.settle(reply(intent())))
    assert using(where, lambda ledger: ledger.find_reply(intent().key)) == [None]


def test_a_call_is_settled_once(where):
    call = intent()
    first = reply(call)
    using(where, lambda ledger: ledger.intend(call), *[lambda ledger: ledger.settle(first)] * 2)
    others = [
        replace(first, body=b"{}"),
        replace(first, usage=(1, 1)),
        replace(first, cost=4),
        replace(first, attempts=2),
    ]
    for other in others:
        with pytest.raises(RecordError, match="settled before with another reply"):
            using(where, lambda ledger, other=other: ledger.settle(other))
    assert using(where, lambda ledger: ledger.find_reply(call.key), compute_spending) == [
        first,
        (3, 0),
    ]


def test_what_was_used_is_told_by_whatever_the_records_belong_to(where):
    calls = [intent(number) for number in range(4)]
    twice = calls[0]
    steps = [lambda ledger, one=one: ledger.intend(one) for one in [*calls, twice]]
    steps += [lambda ledger, one=one: ledger.settle(reply(one)) for one in calls[:3]]
    *_, usages, whole = using(
        where,
        *steps,
        lambda ledger: ledger.compute_usage_by(lambda _, record_id: "first" if record_id == "r0" else "others"),
        lambda ledger: ledger.compute_usage(),
    )
    assert {name: usage.replies for name, usage in usages.items()} == {"first": 1, "others": 2}
    for amount in ("replies", "prompt_tokens", "completion_tokens", "cost", "cached_tokens"):
        assert sum(getattr(usage, amount) for usage in usages.values()) == getattr(whole, amount) > 0


def test_a_reply_and_its_outcome_are_one_transaction(where):
    call = intent()

    async def main():
        async with Ledger.open(where, run="a") as ledger:
            await ledger.intend(call)
            commits = []
            event.listen(ledger._commits._engine, "commit", commits.append)
            await ledger.settle(reply(call), outcome())
            return len(commits)

    assert asyncio.run(main()) == 1


def test_a_refused_outcome_does_not_lose_the_reply(where):
    call = intent()
    with pytest.raises(RecordError, match="r0: is rejected in stage judge already, and now accepted"):
        using(
            where,
            lambda ledger: ledger.conclude(outcome(kind="rejected", reason="too long")),
            lambda ledger: ledger.intend(call),
            lambda ledger: ledger.settle(reply(call), outcome()),
        )
    assert using(where, lambda ledger: ledger.find_reply(call.key)) == [reply(call)]


def test_a_record_ends_in_one_place(where):
    first = outcome(reason="said so")
    using(where, *[lambda ledger: ledger.conclude(first)] * 2)
    others = [replace(first, kind="rejected"), replace(first, reason=None), replace(first, body=None)]
    for other in others:
        with pytest.raises(RecordError, match="Name another run"):
            using(where, lambda ledger, other=other: ledger.conclude(other))
    assert using(where, every(lambda ledger: ledger.read_outcomes("judge"))) == [[first]]


def test_no_other_kind_of_outcome_is_taken(where):
    with pytest.raises(Exception, match=r"(?i)check constraint"):
        using(where, lambda ledger: ledger.conclude(outcome(kind="lost")))


ODD = ["", "a", "b", "B", "ä", "a\0b", "\ud800", "\u2028", "\U0001f600", "e\u0301", "\u00e9", "x" * 3000]


def test_any_text_is_an_id_and_the_order_is_that_of_code_points(where, monkeypatch):
    monkeypatch.setattr(queries, "PAGE_ROWS", 2)
    results = [outcome(text, "rejected", reason=text, stage=ODD[6]) for text in ODD]
    *_, ids, read = using(
        where,
        *[lambda ledger, result=result: ledger.conclude(result) for result in results],
        concluded_ids(ODD[6]),
        every(lambda ledger: ledger.read_outcomes(ODD[6])),
        run=ODD[5],
    )
    assert ids == sorted(ODD)
    assert read == sorted(results, key=lambda result: result.record_id)
    assert problems(where) == []


def test_any_request_is_kept_as_it_is(where):
    call = intent(text=ODD, deep={"a": [1, 2.5, None, True, {"b": {}}]})
    assert using(where, lambda ledger: ledger.intend(call), lambda ledger: ledger.list_orphans())[1] == [call]
    assert problems(where) == []


def leaves(value, path=()):
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key], (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


def with_leaf(value, path, new):
    changed = json.loads(json.dumps(value))
    inner = changed
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = new
    return changed


def test_another_component_is_another_call_and_nothing_else_is(where):
    call = intent()
    settle = [lambda ledger: ledger.intend(call), lambda ledger: ledger.settle(reply(call))]
    using(where, *settle)
    others = [content_hash(with_leaf(call.request, path, "else")) for path in leaves(call.request)]
    assert len(set(others)) == 6
    replies = using(where, *[lambda ledger, key=key: ledger.find_reply(key) for key in others])
    assert replies == [None] * 6
    # Order of keys, stage, record, reservation, run: all of them context.
    again = dict(reversed(call.request.items()))
    with pytest.raises(RecordError, match="was answered before"):
        using(where, lambda ledger: ledger.intend(CallIntent(content_hash(again), again, "x", "y", 9)), run="z")


@pytest.mark.parametrize("key", ["sha256:00", "md5:" + 64 * "0", 64 * "0", content_hash({})])
def test_a_key_that_is_not_the_requests_is_a_bug(where, key):
    with pytest.raises(ValueError, match="content hash"):
        using(where, lambda ledger: ledger.intend(replace(intent(), key=key)))
    assert using(where, lambda ledger: ledger.list_orphans()) == [[]]


def test_a_spelling_is_kept_only_if_the_key_is_its_hash(where):
    call = intent()
    with pytest.raises(ValueError, match="content hash"):
        using(where, lambda ledger: ledger.intend(replace(call, spelled=b"{}")))
    spelled = canonical_bytes(call.request)
    *_, orphans = using(
        where, lambda ledger: ledger.intend(replace(call, spelled=spelled)), lambda ledger: ledger.list_orphans()
    )
    assert orphans == [call]


def test_an_opening_that_died_leaves_orphans_which_a_later_reply_does_not_hide(where):
    call, other = intent(1, reserved=50), intent(2, reserved=8)
    using(where, lambda ledger: ledger.intend(call), lambda ledger: ledger.intend(other))
    orphans, spent, *_ = using(where, lambda ledger: ledger.list_orphans(), compute_spending)
    assert (orphans, spent) == ([call, other], (0, 58))
    *_, orphans, spent = using(
        where,
        lambda ledger: ledger.intend(call),
        lambda ledger: ledger.settle(reply(call, cost=20)),
        lambda ledger: ledger.list_orphans(),
        compute_spending,
    )
    # It may have been billed once more, for the same request: counted at the same cost, no longer at the worst.
    assert (orphans, spent) == ([call, other], (20, 20 + 8))


def test_every_send_may_have_been_billed_unless_it_was_released_or_answered(where):
    call = intent(1, reserved=50)
    *_, spent, _, orphans, after = using(
        where,
        lambda ledger: ledger.intend(call),  # timed out: perhaps billed
        lambda ledger: ledger.break_off(call.key),
        lambda ledger: ledger.intend(call),
        lambda ledger: ledger.release(call.key),  # turned away
        lambda ledger: ledger.release(call.key),
        lambda ledger: ledger.intend(call),  # answered
        compute_spending,
        lambda ledger: ledger.settle(reply(call, cost=20, attempts=3)),
        lambda ledger: ledger.list_orphans(),
        compute_spending,
    )
    assert (spent, orphans, after) == ((0, 100), [call], (20, 20))


def test_only_ones_own_last_intent_is_released(where):
    call = intent(1, reserved=50)
    using(where, lambda ledger: ledger.intend(call))
    _, _, orphans = using(
        where,
        lambda ledger: ledger.release(call.key),
        lambda ledger: ledger.release(intent(2).key),
        lambda ledger: ledger.list_orphans(),
    )
    assert orphans == [call]


def test_a_reply_that_another_opening_fetches_settles_the_intent(where):
    call = intent(1, reserved=50)
    using(where, lambda ledger: ledger.intend(call))
    _, orphans, spent = using(
        where,
        lambda ledger: ledger.settle(reply(call)),
        lambda ledger: ledger.list_orphans(),
        compute_spending,
    )
    assert (orphans, spent) == ([], (3, 0))


def test_a_lease_keeps_others_away_until_it_ends_or_the_record_is_done(where):
    first, again, _, second, third, back, fourth = using(
        where,
        lambda ledger: ledger.claim("s", ["b", "a", "b"], "one", 60),
        lambda ledger: ledger.claim("s", ["b"], "one", 60),
        lambda ledger: ledger.conclude(outcome("c", stage="s")),
        lambda ledger: ledger.claim("s", ["c", "b", "d"], "two", 60),
        lambda ledger: ledger.claim("other", ["b"], "two", 60),
        lambda ledger: ledger.claim("s", ["a"], "one", 0),
        lambda ledger: ledger.claim("s", ["a", "b"], "two", 60),
    )
    assert (first, again) == (["b", "a"], ["b"])
    assert (second, third) == (["d"], ["b"])
    assert (back, fourth) == (["a"], ["a"])


def test_a_dead_workers_records_are_given_back(where):
    async def main():
        async with Ledger.open(where, run="a") as ledger:
            await ledger.claim("s", ["x"], "dead", 0.3)
            early = await ledger.claim("s", ["x"], "alive", 60)
            await asyncio.sleep(0.4)
            return early, await ledger.claim("s", ["x"], "alive", 60)

    assert asyncio.run(main()) == ([], ["x"])


@pytest.mark.database
def test_many_workers_share_the_records_and_get_each_once():
    where = fresh_database()
    ids = [f"r{number}" for number in range(200)]

    async def worker(name, order):
        async with Ledger.open(where, run="a") as ledger:
            mine = []
            for record_id in order:
                mine += await ledger.claim("s", [record_id, *order[:5]], name, 60)
                call = intent(int(record_id[1:]) % 20)
                try:
                    while True:
                        with suppress(CallInFlightError):
                            await ledger.intend(call)
                            break
                    await ledger.settle(LedgerReply(call.key, name.encode(), (0, 0), 1, 1))
                except RecordError:
                    assert await ledger.find_reply(call.key) is not None
            return set(mine)

    async def main():
        orders = [ids, ids[::-1], ids[100:] + ids[:100], ids[50:] + ids[:50]]
        return await asyncio.gather(*(worker(f"w{number}", order) for number, order in enumerate(orders)))

    claimed = asyncio.run(main())
    assert sum(map(len, claimed)) == 200
    assert set().union(*claimed) == set(ids)
    assert problems(where) == []


@pytest.mark.database
def test_workers_that_wait_for_each_other_both_get_done():
    """Each writes what the other has written, in the other order, within one transaction."""
    where = fresh_database()
    numbers = range(300)

    async def worker(order):
        async with Ledger.open(where, run="a") as ledger:
            await asyncio.gather(*(ledger.conclude(outcome(f"r{number}")) for number in order))

    async def main():
        await asyncio.gather(*(worker(order) for order in [numbers, reversed(numbers)] * 2))

    asyncio.run(main())
    assert len(using(where, concluded_ids("judge"))[0]) == 300


def test_pruning_is_explicit_and_takes_what_it_is_told(where):
    calls = [intent(number) for number in range(3)]
    steps = [lambda ledger, asked=asked: ledger.intend(asked) for asked in calls]
    steps += [lambda ledger, asked=asked: ledger.settle(reply(asked)) for asked in calls]
    using(where, *steps, lambda ledger: ledger.conclude(outcome()), run="a")
    using(where, lambda ledger: ledger.conclude(outcome()), run="b")
    deleted, gone, stored_reply = using(
        where,
        lambda ledger: ledger.prune(calls=[calls[0].key], runs=["a"]),
        lambda ledger: ledger.find_reply(calls[0].key),
        lambda ledger: ledger.find_reply(calls[1].key),
        run="b",
    )
    assert (deleted, gone, stored_reply) == (4, None, reply(calls[1]))
    assert using(where, every(lambda ledger: ledger.read_outcomes("judge")), run="a") == [[]]
    assert using(where, every(lambda ledger: ledger.read_outcomes("judge")), run="b") == [[outcome()]]
    assert problems(where) == []


@pytest.mark.slow
def test_outcomes_stream_in_bounded_memory(where, monkeypatch):
    monkeypatch.setattr(queries, "_PAGE_BYTES", 2**17)
    size, count = 2**16, 100

    async def main():
        async with Ledger.open(where, run="a") as ledger:
            for number in range(count):
                await ledger.conclude(outcome(f"{number:03}", body=Random(number).randbytes(size)))
            tracemalloc.start()
            sizes = [len(outcome.body) async for outcome in ledger.read_outcomes("judge")]
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return sizes, peak

    seen, peak = asyncio.run(main())
    assert seen == [size] * count
    assert peak < 10 * size


def test_a_password_is_not_shown(monkeypatch):
    pytest.importorskip("psycopg")
    url = "postgresql://me:hunter2@127.0.0.1:1/none"
    with pytest.raises(UserError, match=r"postgresql\+psycopg://me:\*\*\*@127.0.0.1:1/none: cannot be") as error:
        using(url, compute_spending)
    assert "hunter2" not in str(error.value)


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UserError, match=r"needs psycopg. Run: pip install 'eclose\[postgres\]'"):
        using("postgresql://host/name", compute_spending)


@pytest.mark.parametrize("url", ["://", "mysql://host/name", "sqlite:///file.db", "https://host/x"])
def test_other_databases_are_refused(url):
    with pytest.raises(SettingError, match="Write postgresql://user@host/name, or name a file"):
        Ledger.open(url, run="a")


def test_places_that_cannot_be_a_ledger(tmp_path):
    (tmp_path / "text").write_text("not a database, but long enough to be taken for a header" * 20)
    for path, problem in [
        (tmp_path, "is a folder"),
        (tmp_path / "text", "file is not a database"),
        (tmp_path / "text" / "ledger.db", "cannot be written here"),
    ]:
        with pytest.raises(UserError, match=problem):
            using(path, compute_spending)


def test_a_ledger_that_is_closed_takes_nothing(where):
    async def main():
        async with Ledger.open(where, run="a") as ledger:
            pass
        await ledger.conclude(outcome())

    with pytest.raises(RuntimeError, match="is closed"):
        asyncio.run(main())


def test_a_record_is_found_where_it_got_to_and_quarantined_ones_can_be_tried_again(where):
    passed, stuck = (
        RecordOutcome("first", "r1", "accepted", None, b"1"),
        RecordOutcome("second", "r1", "quarantined", "timeout", None),
    )
    *_, reached, nowhere, tally, reopened, last_outcome, again = using(
        where,
        lambda ledger: ledger.conclude(passed),
        lambda ledger: ledger.conclude(stuck),
        lambda ledger: ledger.find_last_outcome(["first", "second", "third"], "r1"),
        lambda ledger: ledger.find_last_outcome(["first", "second", "third"], "r2"),
        lambda ledger: ledger.count_outcomes("second"),
        lambda ledger: ledger.reopen_quarantined("second"),
        lambda ledger: ledger.find_last_outcome(["first", "second", "third"], "r1"),
        lambda ledger: ledger.reopen_quarantined("first"),
    )
    assert (reached, nowhere, tally) == (stuck, None, {("quarantined", "timeout"): 1})
    assert (reopened, last_outcome, again) == (1, passed, 0)


def test_the_last_open_intent_is_released_whoever_wrote_it(where):
    call = intent(1, reserved=50)
    using(where, lambda ledger: ledger.intend(call), lambda ledger: ledger.intend(call))
    _, orphans, _, none, _ = using(
        where,
        lambda ledger: ledger.release(call.key, any_writer=True),
        lambda ledger: ledger.list_orphans(),
        lambda ledger: ledger.release(call.key, any_writer=True),
        lambda ledger: ledger.list_orphans(),
        lambda ledger: ledger.release(call.key, any_writer=True),
    )
    assert (orphans, none) == ([call], [])


def test_an_orphan_stops_counting_at_its_worst_once_answered(where):
    call, other = intent(1, reserved=50), intent(2, reserved=8)
    using(where, lambda ledger: ledger.intend(call), lambda ledger: ledger.intend(other))
    before, *_, answered, orphans = using(
        where,
        lambda ledger: ledger.compute_account(),
        lambda ledger: ledger.intend(call),
        lambda ledger: ledger.settle(reply(call, cost=3)),
        lambda ledger: ledger.compute_account(),
        lambda ledger: ledger.list_orphans(),
    )
    assert (before, answered) == ((0, 0, 58), (3, 0, 3 + 8))
    # Both may have been billed, and stay listed.
    assert orphans == [call, other]


def test_the_cap_is_held_against_everything_that_may_have_been_billed(where):
    calls = [intent(number, reserved=40) for number in range(4)]
    using(where, lambda ledger: ledger.intend(calls[0]))  # broken off with its opening

    async def work(ledger):
        await ledger.intend(calls[1], cap=100)
        with pytest.raises(CostCapExceededError) as refused:
            await ledger.intend(calls[2], cap=100)
        assert refused.value.account == (0, 40, 40)
        await ledger.settle(reply(calls[1], cost=20))
        assert await ledger.intend(calls[2], cap=100) == (20, 40, 40)
        await ledger.release(calls[2].key)
        assert await ledger.intend(calls[3], cap=None) == (20, 40, 40)
        return await ledger.compute_account()

    assert using(where, work) == [(20, 40, 40)]


def test_call_refused_as_answered_before_leaves_its_reservation_to_others(where):
    answered, waiting = intent(1, reserved=60), intent(2, reserved=90)

    async def work(ledger):
        await ledger.intend(answered, cap=100)
        await ledger.settle(reply(answered, cost=3))
        with pytest.raises(RecordError, match="was answered before"):
            await ledger.intend(answered, cap=100)
        return await ledger.intend(waiting, cap=100)

    assert using(where, work) == [(3, 90, 0)]


def test_a_refused_call_adds_up_no_rows(where, monkeypatch):
    """Every record in progress is refused when a budget is spent, and a run may have millions of calls."""
    sums: list[object] = []
    derive = accounts.WriterAccounting.derive
    monkeypatch.setattr(accounts.WriterAccounting, "derive", lambda *given: sums.append(given) or derive(*given))

    async def work(ledger):
        await ledger.intend(intent(1, reserved=40), cap=50)
        sums.clear()
        with pytest.raises(CostCapExceededError) as refused:
            await ledger.intend(intent(2, reserved=40), cap=50)
        return refused.value.account, len(sums)

    assert using(where, work) == [((0, 40, 0), 0)]


@pytest.mark.database
def test_what_a_process_that_is_alive_has_under_way_is_not_sent_by_another(monkeypatch):
    for module in (accounts, ledger_module):
        monkeypatch.setattr(module, "LEASE_SECONDS", 1.5)
    where, call = fresh_database(), intent(1, reserved=50)

    async def main():
        async with Ledger.open(where, run="a") as alive:
            await alive.intend(call)
            dead = Ledger.open(where, run="a")
            await dead.__aenter__()
            await dead.intend(intent(2, reserved=8))
            dead._commits._beat = None  # as if killed: it says nothing any more
            async with Ledger.open(where, run="a") as ledger:
                with pytest.raises(CallInFlightError):
                    await ledger.intend(intent(2))
                await asyncio.sleep(3.5)
                with pytest.raises(CallInFlightError):
                    await ledger.intend(call)
                await ledger.intend(intent(2, reserved=8))
                account = await ledger.compute_account()
            await dead.__aexit__(None, None, None)
            return account

    # One of the living each, and one that broke off.
    assert asyncio.run(main()) == (0, 50 + 8, 8)


@pytest.mark.database
@pytest.mark.slow
def test_a_reply_does_not_deadlock_with_another_process_that_sends_the_same_call():
    """Two records in different shards may ask the same question; with a price, both change one account."""
    psycopg = pytest.importorskip("psycopg", reason="needs the postgres extra")
    database = fresh_database()

    async def main():
        async with Ledger.open(database, run="a") as ledger:
            call = intent(reserved=5)
            await ledger.intend(call, cap=100)
            with psycopg.connect(database) as other:
                # As ``intend`` does: the account first, then the call.
                other.execute("UPDATE ledger_accounts SET reserved = reserved + 1")
                settling = asyncio.create_task(ledger.settle(reply(call)))
                await asyncio.sleep(0.5)
                locked = await asyncio.to_thread(other.execute, "SELECT seq FROM ledger_calls FOR UPDATE")
                assert len(locked.fetchall()) == 1
                await asyncio.to_thread(other.execute, "UPDATE ledger_accounts SET reserved = reserved - 1")
                other.commit()
            await settling
            return await ledger.find_reply(call.key), await ledger.compute_account()

    settled, account = asyncio.run(main())
    assert settled.cost == account.spent == 3
    assert account.reserved == 0


def stored_account(where, run="a"):
    """The totals as the database keeps them, not computed again."""
    engine = make_database_engine(where)
    with engine.connect() as connection:
        row = tuple(connection.execute(queries.ACCOUNT, {"run": run.encode()}).one())
    engine.dispose()
    return row


def test_the_totals_that_are_kept_are_those_of_the_rows_however_a_call_went(where):
    calls = [intent(number, reserved=40) for number in range(6)]

    async def work(ledger):
        for call in calls:
            await ledger.intend(call, cap=1_000)
        await ledger.settle(reply(calls[0], cost=20))
        await ledger.settle(reply(calls[0], cost=20))  # the same again
        await ledger.break_off(calls[1].key)
        await ledger.settle(reply(calls[1], cost=21))  # the answer came after all
        await ledger.break_off(calls[2].key)
        await ledger.intend(calls[2], cap=1_000)
        await ledger.settle(reply(calls[2], cost=22))
        await ledger.release(calls[3].key)
        await ledger.settle(reply(calls[3], cost=23))
        totals = stored_account(where)
        return totals, await ledger.compute_account()

    async def other_run(ledger):
        await ledger.settle(reply(calls[4], cost=24))  # the other run's send, as in a batch that it collects
        totals = stored_account(where), stored_account(where, "b")
        return totals, await ledger.compute_account()

    ((kept, computed),) = using(where, work)
    assert kept == tuple(computed)
    ((kept, computed),) = using(where, other_run, run="b")
    assert kept[1] == tuple(computed)
    (account,) = using(where, lambda ledger: ledger.compute_account())
    # Opening it again finds that the first opening died with one call in flight, which then counts as broken off.
    assert (kept[0][0], sum(kept[0][1:])) == (account.spent, account.reserved + account.assumed)


@pytest.mark.database
def test_a_call_with_a_budget_takes_few_statements_while_it_holds_the_account():
    """All processes of a run write one after the other, so each statement in between costs all of them."""
    where = fresh_database()
    statements = []

    async def work(ledger):
        event.listen(ledger._commits._engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
        await ledger.intend(intent(1, reserved=40), cap=100)
        await ledger.settle(reply(intent(1)))

    using(where, work)
    assert len([statement for statement in statements if "ledger_writers" not in statement]) == 3
