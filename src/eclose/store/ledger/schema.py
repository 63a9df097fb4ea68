"""Tables of the call ledger, as a list of migrations. A published migration never changes.

Texts are stored as UTF-8 bytes: these can represent every text of a user's file, and sort by code points on every
database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.store.ledger.database import execute_statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from eclose.store.ledger.database import Migration

MIGRATIONS_TABLE = "ledger_migrations"

_TYPES = {
    # With the row number as primary key, other tables refer to a call by a number instead of a hash of 32 bytes.
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
    # Rows never change: another attempt is another row. A writer is one open ledger of one process.
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
    # The writer whose intent this reply settles.
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
    # The share of a worker in a rate limit that all workers of a run have in common, and its expiry.
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
    # A writer is alive while its lease runs, and buried once its open sends are marked as broken off.
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
    # A send that ended without a reply and may have been billed; counted = 1 while the budget includes it.
    """
    CREATE TABLE ledger_breaks (
        intent {reference} PRIMARY KEY REFERENCES ledger_intents (seq),
        counted SMALLINT NOT NULL CHECK (counted IN (0, 1))
    )
    """,
    # Cost totals of a run, updated by every transaction that changes them, so that no call waits for a scan.
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
    # Earlier versions did not list writers. None of theirs is alive: they could not read this schema.
    """
    INSERT INTO ledger_writers (writer, run, seen, expires, buried)
    SELECT DISTINCT writer, run, 0, 0, 0 FROM ledger_intents
    """,
)

_USAGE = (
    # Holds all that a sum of tokens and costs needs: without it, SQLite reads past every body to reach the numbers.
    """
    CREATE INDEX ledger_replies_usage_by_run ON ledger_replies (run, prompt_tokens, completion_tokens, cost)
    """,
    "DROP INDEX ledger_replies_by_run",
)

_CACHED_TOKENS = (
    "ALTER TABLE ledger_replies ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0 CHECK (cached_tokens >= 0)",
    "DROP INDEX ledger_replies_usage_by_run",
    """
    CREATE INDEX ledger_replies_usage_by_run
    ON ledger_replies (run, prompt_tokens, completion_tokens, cached_tokens, cost)
    """,
)


def _create_call_tables(connection: Connection) -> None:
    """Create the tables of calls, intents, replies and outcomes."""
    execute_statements(connection, _CALLS, _TYPES)


def _create_lease_table(connection: Connection) -> None:
    """Create the table of claims on records, with their expiry."""
    execute_statements(connection, _LEASES, _TYPES)


def _create_release_table(connection: Connection) -> None:
    """Create the table of intents that were certainly not billed."""
    execute_statements(connection, _RELEASES, _TYPES)


def _create_share_table(connection: Connection) -> None:
    """Create the table of the workers' shares in rate limits."""
    execute_statements(connection, _SHARES, _TYPES)


def _create_account_tables(connection: Connection) -> None:
    """Create the tables of writers, broken sends and cost totals, and indexes by run."""
    execute_statements(connection, _ACCOUNTS, _TYPES)


def _create_usage_index(connection: Connection) -> None:
    """Replace the index of replies by run by one that also holds tokens and cost."""
    execute_statements(connection, _USAGE, _TYPES)


def _add_cached_tokens(connection: Connection) -> None:
    """Add the prompt tokens that were read from a provider's cache, also to the index of usage."""
    execute_statements(connection, _CACHED_TOKENS, _TYPES)


# Ledgers store these names, so they do not follow a renamed function.
MIGRATIONS: Mapping[str, Migration] = {
    "calls_and_outcomes": _create_call_tables,
    "leases": _create_lease_table,
    "releases": _create_release_table,
    "shares": _create_share_table,
    "accounts": _create_account_tables,
    "usage_index": _create_usage_index,
    "cached_tokens": _add_cached_tokens,
}
