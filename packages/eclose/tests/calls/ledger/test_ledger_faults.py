"""What the ledger promised holds when the process is killed, the power fails, the disk is full or a bit flips."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from eclose.calls.ledger import commits as group_commit
from eclose.calls.ledger import database
from eclose.calls.ledger import ledger as ledger_module
from eclose.calls.ledger.commits import GroupCommitter
from eclose.calls.ledger.database import make_database_engine
from eclose.calls.ledger.ledger import Ledger, RecordOutcome
from eclose.errors import UserError
from tests.calls.ledger import ledger_child as child
from tests.calls.ledger.postgres import DATABASES, fresh_database

CHILD = Path(child.__file__)


@pytest.fixture(params=DATABASES)
def where(request, tmp_path):
    return tmp_path / "ledger.db" if request.param == "sqlite" else fresh_database()


def start(where, folder, records, concurrency=16, **environment):
    arguments = [sys.executable, CHILD, str(where), folder, str(records), str(concurrency)]
    return subprocess.Popen(arguments, env={**os.environ, **environment}, stderr=subprocess.PIPE)


def lines(folder, name):
    file = folder / name
    # A line that the kill cut off never was.
    return [int(line) for line in re.findall(rb"(\d+)\n", file.read_bytes())] if file.exists() else []


def kill_after(process, folder, acks):
    """Kill once so many more are acknowledged; True if it did not end by itself before."""
    goal = len(lines(folder, "acked")) + acks
    while process.poll() is None and len(lines(folder, "acked")) < goal:
        time.sleep(0.005)
    # Right after an acknowledgement is always the same moment; any other may come as well.
    time.sleep(random.random() * 0.05)
    process.kill()
    error = process.communicate(timeout=60)[1]
    assert b"Traceback" not in error, error.decode()
    return process.returncode == -9


async def survey(where, records):
    """What the ledger has of each record, what is unsettled, and what is wrong with it."""
    async with Ledger.open(where, run="a") as ledger:
        replies = {number: await ledger.find_reply(child.call(number).key) for number in range(records)}
        outcomes = {outcome.record_id: outcome async for outcome in ledger.read_outcomes("judge")}
        orphans = Counter(intent.record_id for intent in await ledger.list_orphans())
        return replies, outcomes, orphans, [problem async for problem in ledger.verify()]


@pytest.mark.slow
@pytest.mark.parametrize(("records", "least"), [(150, 1), pytest.param(600, 3, marks=pytest.mark.study)])
def test_killed_again_and_again_a_run_loses_nothing_and_pays_nothing_twice(where, tmp_path, records, least):
    concurrency, kills, rng = 16, 0, random.Random(1)
    while True:
        killed = kill_after(start(where, tmp_path, records, concurrency), tmp_path, rng.randrange(1, 140))
        replies, outcomes, orphans, problems = asyncio.run(survey(where, records))
        assert problems == []
        settled = {number for number, reply in replies.items() if reply is not None}
        assert all(replies[number] == child.reply(number) for number in settled)
        assert outcomes == {f"r{number:06}": child.outcome(number) for number in settled}
        assert set(lines(tmp_path, "acked")) <= settled
        sent = Counter(lines(tmp_path, "sent"))
        for number, times in sent.items():
            # Every call that went out is accounted for: it has its reply, or is known as possibly billed.
            assert times <= orphans[f"r{number:06}"] + (number in settled)
        if not killed:
            break
        kills += 1
    assert len(settled) == records
    assert kills >= least
    assert max(Counter(lines(tmp_path, "acked")).values()) == 1
    assert sum(sent.values()) - records <= orphans.total() <= kills * concurrency


# Keeps elsewhere what has reached the disk: a file's content when it was last synced, and the removals a synced folder
# has seen. The rest is lost when the power fails, while a mere kill leaves it to the system to write.
SHIM = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void keep_names(int folder) {
    DIR *kept = opendir(getenv("SYNCED"));
    for (struct dirent *entry; (entry = readdir(kept));)
        if (faccessat(folder, entry->d_name, F_OK, 0)) unlinkat(dirfd(kept), entry->d_name, 0);
    closedir(kept);
}

static void keep(int fd) {
    char link[64], path[4096], part[4096], whole[4096], buffer[65536];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    struct stat about;
    if (length < 0 || fstat(fd, &about)) return;
    if (S_ISDIR(about.st_mode)) keep_names(fd);
    if (!S_ISREG(about.st_mode)) return;
    path[length] = 0;
    snprintf(whole, sizeof whole, "%s/%s", getenv("SYNCED"), strrchr(path, '/') + 1);
    snprintf(part, sizeof part, "%s.part", whole);
    int out = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (off_t at = 0; (length = pread(fd, buffer, sizeof buffer, at)) > 0; at += length)
        if (write(out, buffer, length) != length) abort();
    close(out);
    rename(part, whole);
}

int fsync(int fd) {
    keep(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    keep(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        pytest.skip("simulating a power cut needs Linux and a C compiler")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c", "-ldl"], check=True)
    return folder / "shim.so"


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_power_cut(shim, tmp_path):
    synced = tmp_path / "synced"
    synced.mkdir()
    process = start(tmp_path / "ledger.db", tmp_path, 10_000, LD_PRELOAD=str(shim), SYNCED=str(synced))
    assert kill_after(process, tmp_path, 300)
    sent, acked = set(lines(tmp_path, "sent")), set(lines(tmp_path, "acked"))
    replies, outcomes, orphans, problems = asyncio.run(survey(synced / "ledger.db", max(sent) + 1))
    assert problems == []
    assert all(replies[number] == child.reply(number) for number in acked)
    assert {f"r{number:06}" for number in acked} <= outcomes.keys()
    assert {f"r{number:06}" for number in sent - acked} <= outcomes.keys() | orphans.keys()


def test_a_commit_waits_for_the_disk(tmp_path):
    pragmas = [ask(tmp_path / "x.db", f"PRAGMA {name}") for name in ("journal_mode", "synchronous")]
    assert pragmas == ["wal", 2]


def ask(where, question):
    engine = make_database_engine(where)
    with engine.connect() as connection:
        answer = connection.execute(text(question)).scalar_one()
    engine.dispose()
    return answer


@pytest.mark.database
def test_a_server_that_answers_too_early_is_told_to_wait():
    where = fresh_database()
    for setting, used in [("off", "on"), ("remote_apply", "remote_apply")]:
        assert ask(f"{where}&options=-csynchronous_commit%3D{setting}", "SHOW synchronous_commit") == used


def big(number):
    return RecordOutcome("s", f"r{number:04}", "accepted", None, random.Random(number).randbytes(20_000))


async def fill(ledger, numbers):
    """Which of them were taken, when many are queued at once; the others were refused with a sentence."""
    results = await asyncio.gather(*(ledger.conclude(big(number)) for number in numbers), return_exceptions=True)
    for result in results:
        if result is not None:
            assert isinstance(result, UserError)
            assert "disk is full" in str(result)
    return {number for number, result in zip(numbers, results, strict=True) if result is None}


async def fill_up(path):
    """Write until the disk is full; what was taken, and what is there."""
    accepted, number = set(), 0
    async with Ledger.open(path, run="a") as ledger:
        while len(accepted) == number:
            numbers = range(number, number + 8)
            number += 8
            accepted |= await fill(ledger, numbers)
        return accepted, number, {outcome.record_id async for outcome in ledger.read_outcomes("s")}


def check_full(path, taken, number, there):
    assert 0 < len(taken) < number
    assert there == {f"r{index:04}" for index in taken}
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.parametrize("code", ["53100", sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE])
def test_reply_is_kept_while_the_disk_is_full(tmp_path, monkeypatch, caplog, code):
    transact, failures = GroupCommitter._transact, iter(range(2))
    full = sqlite3.OperationalError("disk is full") if isinstance(code, int) else Exception("disk is full")
    full.sqlite_errorcode = full.sqlstate = code

    def fail_twice(self, batch):
        if next(failures, None) is not None:
            raise OperationalError("INSERT", None, full)
        return transact(self, batch)

    async def settle_on_full_disk():
        async with Ledger.open(tmp_path / "ledger.db", run="a") as ledger:
            await ledger.intend(child.call(0))
            monkeypatch.setattr(GroupCommitter, "_transact", fail_twice)
            monkeypatch.setattr(group_commit, "_PAUSE", 0.01)
            await ledger.settle(child.reply(0))
            return await ledger.find_reply(child.call(0).key)

    assert asyncio.run(settle_on_full_disk()) == child.reply(0)
    assert "cannot be used now (disk is full). Waiting up to 120 s" in caplog.text


def test_a_full_database_refuses_whole_batches_and_goes_on_when_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_module, "MAX_OUTAGE_SECONDS", 0.0)
    path = tmp_path / "ledger.db"
    monkeypatch.setattr(database, "_PRAGMAS", (*database._PRAGMAS, "max_page_count = 200"))
    accepted, number, there = asyncio.run(fill_up(path))
    check_full(path, accepted, number, there)
    monkeypatch.undo()
    check_resumed(path, number)


def check_resumed(path, number):
    async def resume():
        async with Ledger.open(path, run="a") as ledger:
            await asyncio.gather(*(ledger.conclude(big(index)) for index in range(number)))
            return [outcome async for outcome in ledger.read_outcomes("s")], [
                problem async for problem in ledger.verify()
            ]

    assert asyncio.run(resume()) == ([big(index) for index in range(number)], [])


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.slow
def test_a_full_disk_refuses_whole_batches_and_a_larger_one_goes_on(small_disk, monkeypatch):
    monkeypatch.setattr(ledger_module, "MAX_OUTAGE_SECONDS", 0.0)
    path = small_disk / "ledger.db"
    accepted, number, there = asyncio.run(fill_up(path))
    check_full(path, accepted, number, there)
    subprocess.run(["mount", "-o", "remount,size=40m", small_disk], check=True)
    check_resumed(path, number)


async def write_some(where, count):
    async with Ledger.open(where, run="a") as ledger:
        for number in range(count):
            await ledger.intend(child.call(number))
        for number in range(count - 2):
            await ledger.settle(child.reply(number), child.outcome(number))


COLUMNS = {
    "ledger_calls": ["key", "request"],
    "ledger_intents": ["call", "writer", "run", "stage", "record_id", "reserved", "seal"],
    "ledger_replies": [
        "call",
        "writer",
        "run",
        "body",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "cost",
        "attempts",
        "seal",
    ],
    "ledger_outcomes": ["run", "stage", "record_id", "kind", "reason", "body", "seal"],
}


@pytest.mark.parametrize("table", COLUMNS)
def test_no_column_changes_unnoticed(where, table):
    asyncio.run(write_some(where, 4))
    key_column = "call" if table == "ledger_replies" else "seq"
    for column in COLUMNS[table]:
        engine = make_database_engine(where)
        with engine.begin() as connection:
            row = f"FROM {table} WHERE {key_column} = 1"
            before = connection.execute(text(f"SELECT {column} {row}")).scalar_one()
            new = changed(before, column)
            at = new if column == key_column else 1
            connection.execute(text(f"UPDATE {table} SET {column} = :new WHERE {key_column} = 1"), {"new": new})
        problems = asyncio.run(survey_problems(where))
        # A key is part of all that hangs on it, and a reply needs its intent.
        assert len(problems) == {"key": 3}.get(column, 1) + ((table, column) in LEAVE_A_REPLY_ALONE), column
        assert re.search(rf"{NAMES[table]}.*is damaged\.$", problems[0])
        with engine.begin() as connection:
            change = text(f"UPDATE {table} SET {column} = :old WHERE {key_column} = :at")
            connection.execute(change, {"old": before, "at": at})
        engine.dispose()
    assert asyncio.run(survey_problems(where)) == []


LEAVE_A_REPLY_ALONE = {("ledger_intents", "call"), ("ledger_intents", "writer")}
NAMES = {
    "ledger_calls": "the request of sha256:",
    "ledger_intents": "an intent of sha256:",
    "ledger_replies": "the reply to sha256:",
    "ledger_outcomes": "the outcome of",
}


def changed(value, column):
    if column == "call":
        return 4
    if isinstance(value, int):
        return value + 1
    if value is None:
        return b""
    return "rejected" if isinstance(value, str) else value[:-1] + bytes([value[-1] ^ 128])


async def survey_problems(where):
    async with Ledger.open(where, run="a") as ledger:
        return [problem.message async for problem in ledger.verify()]


def test_a_damaged_reply_is_never_served_and_can_be_asked_anew(where):
    asyncio.run(write_some(where, 4))
    engine = make_database_engine(where)
    with engine.begin() as connection:
        connection.execute(text("UPDATE ledger_replies SET cost = cost + 1 WHERE call = 1"))
        connection.execute(text("UPDATE ledger_outcomes SET kind = 'rejected' WHERE seq = 1"))
    engine.dispose()
    key = child.call(0).key

    async def main():
        async with Ledger.open(where, run="a") as ledger:
            with pytest.raises(UserError, match=f"the reply to {key} is damaged. Restore"):
                await ledger.find_reply(key)
            with pytest.raises(UserError, match="the outcome of r000000 of judge of a is damaged"):
                [outcome async for outcome in ledger.read_outcomes("judge")]
            with pytest.raises(UserError, match="is damaged in stage judge already"):
                await ledger.conclude(child.outcome(0))
            await ledger.prune(calls=[key])
            await ledger.intend(child.call(0))
            await ledger.settle(child.reply(0))
            return await ledger.find_reply(key)

    assert asyncio.run(main()) == child.reply(0)


@pytest.mark.slow
def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path):
    path = tmp_path / "ledger.db"
    asyncio.run(write_some(path, 12))
    whole, rng, noticed = path.read_bytes(), random.Random(5), 0
    unharmed = asyncio.run(survey(path, 12))
    for _ in range(120):
        offset, bit = rng.randrange(len(whole)), rng.randrange(8)
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1 << bit]) + whole[offset + 1 :])
        for rest in ("-wal", "-shm"):
            Path(f"{path}{rest}").unlink(missing_ok=True)
        try:
            harmed = asyncio.run(survey(path, 12))
        except UserError:
            noticed += 1
            continue
        assert harmed == unharmed or harmed[3], offset
        assert all(reply in (None, child.reply(number)) for number, reply in harmed[0].items())
        noticed += harmed != unharmed
    assert noticed > 5


@pytest.mark.slow
def test_a_second_process_is_refused_and_told_who_is_first(tmp_path):
    path = tmp_path / "ledger.db"
    first = start(path, tmp_path, 100_000)
    while not lines(tmp_path, "acked"):
        time.sleep(0.01)
    second = start(path, tmp_path, 1)
    message = second.communicate(timeout=60)[1].decode()
    assert second.returncode != 0
    assert re.search(rf"ledger.db: process {first.pid} on \S+ \(run a, since [^)]+\) is writing to it. Wait", message)
    assert kill_after(first, tmp_path, 0)
    assert asyncio.run(survey(path, 1))[3] == []


def test_a_second_opening_in_the_same_process_is_refused(tmp_path):
    async def main():
        async with Ledger.open(tmp_path / "x.db", run="a"), Ledger.open(tmp_path / "x.db", run="b"):
            pass

    with pytest.raises(UserError, match=f"process {os.getpid()} on"):
        asyncio.run(main())
    asyncio.run(survey(tmp_path / "x.db", 1))


def test_a_lock_that_nobody_signed_is_respected_too(tmp_path):
    import fcntl

    with (tmp_path / "x.db.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is writing to it"):
            asyncio.run(survey(tmp_path / "x.db", 1))
