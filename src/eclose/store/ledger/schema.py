"""The tables of the call ledger, as the list of steps that made them. A step that was published never changes.

Texts are kept as the bytes of their UTF-8: every text a user's file may hold has such bytes, and they sort the same
everywhere. The order is that of code points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.store.ledger.database import execute_all

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from eclose.store.ledger.database import Migration

MIGRATIONS_TABLE = "ledger_migrations"

_TYPES = {
    # A key that is the row's own number makes the one index by hash a small one.
    "sqlite": {"number": "INTEGER PRIMARY KEY", "reference": "INTEGER", "bytes": "BLOB"},
    "postgresql": {
        "number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "reference": "BIGINT",
        "bytes": "BYTEA",
    },
}

_CALLS = (
    """
    CREATE TABLE ledger_calls (
        seq {number},
        key {bytes} NOT NULL UNIQUE CHECK (length(key) = 32),
        request {bytes} NOT NULL
    )
    """,
    # Nothing is ever changed here: another attempt is another row. The writer is one opening of the ledger.
    """
    CREATE TABLE ledger_intents (
        seq {number},
        call {reference} NOT NULL REFERENCES ledger_calls (seq),
        writer {bytes} NOT NULL,
        run {bytes} NOT NULL,
        stage {bytes} NOT NULL,
        record_id {bytes} NOT NULL,
        reserved BIGINT NOT NULL CHECK (reserved >= 0),
        seal {bytes} NOT NULL
    )
    """,
    "CREATE INDEX ledger_intents_by_call ON ledger_intents (call)",
    # The writer is the one whose intents this reply settles.
    """
    CREATE TABLE ledger_replies (
        call {reference} PRIMARY KEY REFERENCES ledger_calls (seq),
        writer {bytes} NOT NULL,
        run {bytes} NOT NULL,
        body {bytes} NOT NULL,
        prompt_tokens BIGINT NOT NULL,
        completion_tokens BIGINT NOT NULL,
        cost BIGINT NOT NULL CHECK (cost >= 0),
        attempts BIGINT NOT NULL CHECK (attempts > 0),
        seal {bytes} NOT NULL
    )
    """,
    """
    CREATE TABLE ledger_outcomes (
        seq {number},
        run {bytes} NOT NULL,
        stage {bytes} NOT NULL,
        record_id {bytes} NOT NULL,
        kind VARCHAR(20) NOT NULL CHECK (kind IN ('accepted', 'rejected', 'quarantined')),
        reason {bytes},
        body {bytes},
        seal {bytes} NOT NULL,
        UNIQUE (run, stage, record_id)
    )
    """,
)

_LEASES = (
    """
    CREATE TABLE ledger_leases (
        run {bytes} NOT NULL,
        stage {bytes} NOT NULL,
        record_id {bytes} NOT NULL,
        worker {bytes} NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (run, stage, record_id)
    )
    """,
)

_RELEASES = (
    """
    CREATE TABLE ledger_releases (
        intent {reference} PRIMARY KEY REFERENCES ledger_intents (seq)
    )
    """,
)

_SHARES = (
    # What a worker may use of a limit that all workers of a run share, and until when.
    """
    CREATE TABLE ledger_shares (
        run {bytes} NOT NULL,
        model {bytes} NOT NULL,
        worker {bytes} NOT NULL,
        ceiling BIGINT NOT NULL,
        requests_per_minute BIGINT NOT NULL,
        tokens_per_minute BIGINT NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (run, model, worker)
    )
    """,
)

_ACCOUNTS = (
    # An opening of the ledger: alive while its lease runs. Buried once its open sends are marked as broken off.
    """
    CREATE TABLE ledger_writers (
        writer {bytes} PRIMARY KEY,
        run {bytes} NOT NULL,
        seen DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        buried SMALLINT NOT NULL CHECK (buried IN (0, 1))
    )
    """,
    "CREATE INDEX ledger_writers_by_run ON ledger_writers (run)",
    # A send that ended without an answer and may have been billed; whether the budget still counts it.
    """
    CREATE TABLE ledger_breaks (
        intent {reference} PRIMARY KEY REFERENCES ledger_intents (seq),
        counted SMALLINT NOT NULL CHECK (counted IN (0, 1))
    )
    """,
    # The sums of a run, kept up to date by every transaction that changes them: no call waits for a scan.
    """
    CREATE TABLE ledger_accounts (
        run {bytes} PRIMARY KEY,
        spent BIGINT NOT NULL,
        reserved BIGINT NOT NULL,
        assumed BIGINT NOT NULL
    )
    """,
    "CREATE INDEX ledger_intents_by_run ON ledger_intents (run)",
    "CREATE INDEX ledger_replies_by_run ON ledger_replies (run)",
    # Openings of before were not listed. Those that are alive today cannot read this schema, so all have ended.
    """
    INSERT INTO ledger_writers (writer, run, seen, expires, buried)
    SELECT DISTINCT writer, run, 0, 0, 0 FROM ledger_intents
    """,
)


def calls_and_outcomes(connection: Connection) -> None:
    """What was asked, what came back, and where every record went."""
    execute_all(connection, _CALLS, _TYPES)


def leases(connection: Connection) -> None:
    """Who works on which record, and until when."""
    execute_all(connection, _LEASES, _TYPES)


def releases(connection: Connection) -> None:
    """Which intents were certainly not billed."""
    execute_all(connection, _RELEASES, _TYPES)


def shares(connection: Connection) -> None:
    """Who uses how much of a limit, and until when."""
    execute_all(connection, _SHARES, _TYPES)


def accounts(connection: Connection) -> None:
    """Add who is alive, which sends broke off, what a run has cost so far, and indexes by run."""
    execute_all(connection, _ACCOUNTS, _TYPES)


MIGRATIONS: tuple[Migration, ...] = (calls_and_outcomes, leases, releases, shares, accounts)
