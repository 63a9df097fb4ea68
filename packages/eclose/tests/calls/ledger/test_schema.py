"""The tables of a ledger are created once and whole, and those of other programs and versions are left alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import inspect, text

from eclose.calls.ledger import queries as sql
from eclose.calls.ledger.database import make_database_engine, open_schema
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.ledger.queries import LEDGER_SCHEMA
from eclose.errors import UserError
from tests.calls.ledger import ledger_child as child
from tests.calls.ledger.postgres import DATABASES, fresh_database


@pytest.fixture(params=DATABASES)
def where(request, tmp_path):
    return tmp_path / "ledger.db" if request.param == "sqlite" else fresh_database()


@pytest.fixture
def engine(where):
    engine = make_database_engine(where)
    yield engine
    engine.dispose()


async def write_and_read(where, *numbers):
    async with Ledger.open(where, run="a") as ledger:
        for number in numbers:
            await ledger.intend(child.call(number))
            await ledger.settle(child.reply(number), child.outcome(number))
        replies = [await ledger.find_reply(child.call(number).key) for number in range(2)]
        return replies, [problem async for problem in ledger.verify()]


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


def test_tables_are_not_created_in_part(where, engine):
    def create_half(connection):
        connection.execute(text("CREATE TABLE ledger_calls (n INTEGER)"))
        raise UserError("the second half does not work")

    with pytest.raises(UserError, match="second half"), engine.begin() as connection:
        open_schema(connection, replace(LEDGER_SCHEMA, create=create_half), "here")
    assert inspect(engine).get_table_names() == []
    assert asyncio.run(write_and_read(where, 0)) == ([child.reply(0), None], [])


def test_ledger_of_another_version_is_left_alone(where, engine):
    asyncio.run(write_and_read(where, 0))
    with engine.begin() as connection:
        connection.execute(text("UPDATE ledger_schema SET version = '99'"))
    engine.dispose()
    with pytest.raises(UserError, match=r"another version of eclose \(99\). Install the newest"):
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


@pytest.mark.database
def test_workers_that_open_a_new_database_at_once_all_can():
    where = fresh_database()

    async def main():
        async def worker(number):
            async with Ledger.open(where, run="a") as ledger:
                return await ledger.claim("s", ["x"], f"w{number}", 60)

        return await asyncio.gather(*(worker(number) for number in range(8)))

    assert sorted(asyncio.run(main())) == [[]] * 7 + [["x"]]
