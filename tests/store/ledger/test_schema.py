"""A ledger of any earlier day opens today, with everything in it."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest
from sqlalchemy import inspect, text
from tests.store.ledger import ledger_child as child
from tests.store.postgres import fresh_database

from eclose.errors import UserError
from eclose.store.ledger import queries as sql
from eclose.store.ledger.database import apply_migrations, make_database_engine
from eclose.store.ledger.ledger import Ledger
from eclose.store.ledger.reader import read_ledger_calls
from eclose.store.ledger.rows import build_intent_row, build_outcome_row, build_reply_row, encode_ledger_request
from eclose.store.ledger.schema import MIGRATIONS, MIGRATIONS_TABLE


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    return tmp_path / "ledger.db" if request.param == "sqlite" else fresh_database()


@pytest.fixture
def engine(where):
    engine = make_database_engine(where)
    yield engine
    engine.dispose()


def applied(engine):
    with engine.connect() as connection:
        return sorted(connection.execute(text(f"SELECT name FROM {MIGRATIONS_TABLE}")).scalars())


async def write_and_read(where, *numbers):
    async with Ledger.open(where, run="a") as ledger:
        for number in numbers:
            await ledger.intend(child.call(number))
            await ledger.settle(child.reply(number), child.outcome(number))
        found = [await ledger.find_reply(child.call(number).key) for number in range(2)]
        return found, [problem async for problem in ledger.verify()]


def write_of_old(connection, number, *, settled):
    """A call as the first version wrote it."""
    call, writer = child.call(number), b"of old"
    row = build_intent_row(call, encode_ledger_request(call), writer, "a")
    connection.execute(sql.ADD_CALL, row)
    connection.execute(sql.ADD_INTENT, row)
    if settled:
        statement = str(sql.ADD_REPLY).replace("cached_tokens, ", "", 1).replace(":cached_tokens, ", "", 1)
        connection.execute(text(statement), build_reply_row(child.reply(number), writer, "a"))
        connection.execute(sql.ADD_OUTCOME, build_outcome_row(child.outcome(number), "a"))


def test_a_ledger_of_the_first_schema_is_brought_up_to_date(where, engine):
    with engine.begin() as connection:
        apply_migrations(connection, {"calls_and_outcomes": MIGRATIONS["calls_and_outcomes"]}, MIGRATIONS_TABLE, "here")
        write_of_old(connection, 0, settled=True)
        write_of_old(connection, 7, settled=False)
    assert applied(engine) == ["calls_and_outcomes"]
    assert "ledger_leases" not in inspect(engine).get_table_names()
    assert asyncio.run(write_and_read(where, 1)) == ([child.reply(0), child.reply(1)], [])
    assert applied(engine) == sorted(MIGRATIONS)

    async def look():
        async with Ledger.open(where, run="a") as ledger:
            return await ledger.compute_account(), await ledger.list_orphans()

    account, orphans = asyncio.run(look())
    # What had been under way when the old version ended broke off, and is listed.
    assert account == (child.reply(0).cost + child.reply(1).cost, 0, child.call(7).reserved)
    assert [intent.key for intent in orphans] == [child.call(7).key]


def test_a_ledger_without_cached_tokens_can_be_read_as_it_is(where, engine):
    earlier = dict(islice(MIGRATIONS.items(), list(MIGRATIONS).index("cached_tokens")))
    with engine.begin() as connection:
        apply_migrations(connection, earlier, MIGRATIONS_TABLE, "here")
        write_of_old(connection, 0, settled=True)
    (call,) = read_ledger_calls(where)
    assert (call.settled, call.damaged) == (child.reply(0), False)
    assert applied(engine) == sorted(earlier)


def test_sums_of_a_run_are_found_by_index(where, engine):
    """On a ledger of many runs, none is read but the one that is asked for."""
    asyncio.run(write_and_read(where, 0))
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # A few rows are always read one by one.
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        for statement in (sql.COST, sql.USAGE, sql.RESERVED, sql.UNSETTLED_COUNT, sql.ORPHANS):
            explain = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
            rows = connection.execute(text(f"{explain} {statement}"), {"run": b"a"}).all()
            plan = "\n".join(" ".join(map(str, row)) for row in rows)
            assert "_by_run" in plan, plan
            if statement in (sql.COST, sql.USAGE):
                # Tokens and costs come from the index: no body is read.
                assert "COVERING INDEX" in plan or connection.dialect.name != "sqlite", plan
            assert "SCAN i" not in plan
            assert "SCAN ledger" not in plan


def test_names_of_migrations_do_not_change():
    """A ledger out there knows them by these."""
    assert list(MIGRATIONS) == [
        "calls_and_outcomes",
        "leases",
        "releases",
        "shares",
        "accounts",
        "usage_index",
        "cached_tokens",
    ]


def test_opening_again_applies_nothing_again(where, engine):
    for _ in range(2):
        assert asyncio.run(write_and_read(where, 0) if not applied_yet(engine) else write_and_read(where))[1] == []
    assert len(applied(engine)) == len(MIGRATIONS)


def applied_yet(engine):
    return MIGRATIONS_TABLE in inspect(engine).get_table_names()


def test_a_migration_that_fails_leaves_the_old_state(where, engine, monkeypatch):
    asyncio.run(write_and_read(where, 0))

    def broken(connection):
        connection.execute(text("CREATE TABLE ledger_news (n INTEGER)"))
        raise UserError("the second half does not work")

    def attempt():
        with engine.begin() as connection:
            apply_migrations(connection, {**MIGRATIONS, "broken": broken}, MIGRATIONS_TABLE, "here")

    with pytest.raises(UserError, match="second half"):
        attempt()
    assert "ledger_news" not in inspect(engine).get_table_names()
    assert asyncio.run(write_and_read(where)) == ([child.reply(0), None], [])


def test_a_ledger_of_a_later_version_is_left_alone(where, engine):
    asyncio.run(write_and_read(where, 0))
    with engine.begin() as connection:
        connection.execute(text(f"INSERT INTO {MIGRATIONS_TABLE} VALUES ('from_the_future')"))
    engine.dispose()
    with pytest.raises(UserError, match=r"another version of eclose \(from_the_future\). Install the newest"):
        asyncio.run(write_and_read(where))


def test_a_file_of_something_else_is_left_alone(tmp_path):
    engine = make_database_engine(tmp_path / "photos.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE photos (name TEXT)"))
    engine.dispose()
    with pytest.raises(UserError, match=r"photos.db: is the database of another program\. Choose another file"):
        asyncio.run(write_and_read(tmp_path / "photos.db"))
    assert inspect(engine).get_table_names() == ["photos"]
    engine.dispose()


def test_workers_that_open_a_new_database_at_once_all_can():
    where = fresh_database()

    async def main():
        async def worker(number):
            async with Ledger.open(where, run="a") as ledger:
                return await ledger.claim("s", ["x"], f"w{number}", 60)

        return await asyncio.gather(*(worker(number) for number in range(8)))

    assert sorted(asyncio.run(main())) == [[]] * 7 + [["x"]]
