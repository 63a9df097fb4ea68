"""Tables of the call ledger.

Texts are stored as UTF-8 bytes: these can represent every text of a user's file, and sort by code points on every
database.
"""

from __future__ import annotations

from eclose.store.ledger.database import DatabaseSchema, execute_statements

_TYPES = {
    # With the row number as primary key, other tables refer to a call by a number instead of a hash of 32 bytes.
    "sqlite": {"number": "INTEGER PRIMARY KEY", "reference": "INTEGER", "bytes": "BLOB"},
    "postgresql": {
        "number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "reference": "BIGINT",
        "bytes": "BYTEA",
    },
}

_TABLES = (
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
        cached_tokens BIGINT NOT NULL CHECK (cached_tokens >= 0),
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
    """
    CREATE TABLE ledger_releases (
        intent {reference} PRIMARY KEY REFERENCES ledger_intents (seq)
    )
    """,
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
    # A writer is alive while its lease runs, and buried once its open sends are marked as broken off. "commits" is the
    # number of its last commit, by which it notices that a replica that takes over lacks some.
    """
    CREATE TABLE ledger_writers (
        writer {bytes} PRIMARY KEY,
        run {bytes} NOT NULL,
        seen DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        buried SMALLINT NOT NULL CHECK (buried IN (0, 1)),
        commits BIGINT NOT NULL DEFAULT 0,
        version {bytes} NOT NULL
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
    # Holds all that a sum of tokens and costs needs: without it, SQLite reads past every body to reach the numbers.
    """
    CREATE INDEX ledger_replies_usage_by_run
    ON ledger_replies (run, prompt_tokens, completion_tokens, cached_tokens, cost)
    """,
)

LEDGER_SCHEMA = DatabaseSchema("ledger_schema", "1", lambda connection: execute_statements(connection, _TABLES, _TYPES))
