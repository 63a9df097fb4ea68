"""SQL statements of the call ledger, in the dialect that SQLite and PostgreSQL share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, TextClause, text

from eclose.calls.ledger.database import DatabaseSchema, execute_statements
from eclose.values.identity import hash_sort_key

# Rows are read in pages, which bounds memory and lets writers commit in between.
PAGE_ROWS = 1_000
_PAGE_BYTES = 4 * 2**20

ADD_CALL = text("INSERT INTO ledger_calls (key, request) VALUES (:key, :request) ON CONFLICT (key) DO NOTHING")
ADD_INTENT = text("""
    INSERT INTO ledger_intents (call, writer, run, stage, record_id, reserved, seal)
    SELECT seq, :writer, :run, :stage, :record_id, :reserved, :seal FROM ledger_calls
    WHERE key = :key AND NOT EXISTS (SELECT 1 FROM ledger_replies WHERE call = ledger_calls.seq)
""")
_REPLY_COLUMNS = "call, writer, run, body, prompt_tokens, completion_tokens, cached_tokens, cost, attempts, seal"
# A reply settles the intents of the writer that got it, or, where another wrote them (a batch that was collected by a
# later process), the latest intent.
ADD_REPLY = text(f"""
    INSERT INTO ledger_replies ({_REPLY_COLUMNS})
    SELECT i.call, i.writer, :run, :body, :prompt_tokens, :completion_tokens, :cached_tokens, :cost, :attempts, :seal
    FROM ledger_intents AS i JOIN ledger_calls AS c ON c.seq = i.call
    WHERE c.key = :key ORDER BY i.writer = :writer DESC, i.seq DESC LIMIT 1
    ON CONFLICT (call) DO NOTHING
""")
FIND_REPLY = text(
    "SELECT c.key, r.* FROM ledger_replies AS r JOIN ledger_calls AS c ON c.seq = r.call WHERE c.key = :key"
)
RELEASE = text("INSERT INTO ledger_releases (intent) VALUES (:intent) ON CONFLICT (intent) DO NOTHING")
BREAK = text("INSERT INTO ledger_breaks (intent) VALUES (:intent) ON CONFLICT (intent) DO NOTHING")
# The sends of one call and how each ended, first to last.
SENDS = text("""
    SELECT i.seq, i.run, i.writer, i.reserved, g.intent IS NOT NULL AS released, b.intent IS NOT NULL AS broken,
        r.writer AS settled_writer, r.run AS settled_run, r.cost
    FROM ledger_calls AS c
    JOIN ledger_intents AS i ON i.call = c.seq
    LEFT JOIN ledger_releases AS g ON g.intent = i.seq
    LEFT JOIN ledger_breaks AS b ON b.intent = i.seq
    LEFT JOIN ledger_replies AS r ON r.call = c.seq
    WHERE c.key = :key ORDER BY i.seq
""")
# For PostgreSQL only: two processes that retry a call must not both find that none is in flight.
LOCK_CALL = text("SELECT seq FROM ledger_calls WHERE key = :key FOR UPDATE")
ADD_OUTCOME = text("""
    INSERT INTO ledger_outcomes (run, stage, record_id, kind, reason, body, seal)
    VALUES (:run, :stage, :record_id, :kind, :reason, :body, :seal)
    ON CONFLICT (run, stage, record_id) DO NOTHING
""")
FIND_OUTCOME = text("SELECT * FROM ledger_outcomes WHERE run = :run AND stage = :stage AND record_id = :record_id")
# A reply settles the last intent of its writer for the call. The earlier ones stay open unless they were released, and
# so do those of a writer that died: all of them may have been billed.
_OPEN = """
    NOT EXISTS (SELECT 1 FROM ledger_releases AS g WHERE g.intent = i.seq)
    AND NOT (
        EXISTS (SELECT 1 FROM ledger_replies AS s WHERE s.call = i.call AND s.writer = i.writer) AND NOT EXISTS (
            SELECT 1 FROM ledger_intents AS l WHERE l.call = i.call AND l.writer = i.writer AND l.seq > i.seq
        )
    )
"""
_UNSETTLED = f"FROM ledger_intents AS i JOIN ledger_calls AS c ON c.seq = i.call WHERE i.run = :run AND {_OPEN}"
ORPHANS = text(f"SELECT i.*, c.key, c.request {_UNSETTLED} ORDER BY i.seq")
USAGE = text("""
    SELECT count(*) AS replies, coalesce(sum(prompt_tokens), 0) AS prompt_tokens,
        coalesce(sum(completion_tokens), 0) AS completion_tokens, coalesce(sum(cost), 0) AS cost,
        0 AS unsettled, coalesce(sum(cached_tokens), 0) AS cached_tokens
    FROM ledger_replies WHERE run = :run
""")
# A call that several records share is counted for the record that intended it first.
USAGE_BY_RECORD = text("""
    SELECT i.stage, i.record_id, count(*), sum(r.prompt_tokens), sum(r.completion_tokens), sum(r.cost),
        0 AS unsettled, sum(r.cached_tokens)
    FROM ledger_replies AS r
    JOIN (SELECT call, min(seq) AS first FROM ledger_intents WHERE run = :run GROUP BY call) AS f ON f.call = r.call
    JOIN ledger_intents AS i ON i.seq = f.first
    WHERE r.run = :run GROUP BY i.stage, i.record_id
""")
# Without the calls: their requests need not be read to count sends.
UNSETTLED_COUNT = text(f"SELECT count(*) FROM ledger_intents AS i WHERE i.run = :run AND {_OPEN}")
COST = text("SELECT coalesce(sum(cost), 0) FROM ledger_replies WHERE run = :run")
# Calls in flight count with their highest cost; so do those that broke off, until a later reply gives the real cost.
RESERVED = text(f"""
    SELECT coalesce(sum(CASE WHEN b.intent IS NULL THEN i.reserved ELSE 0 END), 0) AS reserved,
        coalesce(sum(CASE WHEN b.intent IS NULL THEN 0 ELSE coalesce(r.cost, i.reserved) END), 0) AS assumed
    FROM ledger_intents AS i
    LEFT JOIN ledger_breaks AS b ON b.intent = i.seq
    LEFT JOIN ledger_replies AS r ON r.call = i.call
    WHERE i.run = :run AND {_OPEN}
""")
_AMOUNTS = "RETURNING spent, reserved, assumed"
RESERVE = text(f"""
    UPDATE ledger_accounts SET reserved = reserved + :amount
    WHERE run = :run AND spent + reserved + assumed + :amount <= coalesce(CAST(:cap AS BIGINT), 9223372036854775807)
    {_AMOUNTS}
""")
CHANGE_ACCOUNT = text("""
    UPDATE ledger_accounts
    SET spent = spent + :spent, reserved = reserved + :reserved, assumed = assumed + :assumed WHERE run = :run
""")
SET_ACCOUNT = text(f"""
    INSERT INTO ledger_accounts (run, spent, reserved, assumed) VALUES (:run, :spent, :reserved, :assumed)
    ON CONFLICT (run) DO UPDATE
    SET spent = excluded.spent, reserved = excluded.reserved, assumed = excluded.assumed {_AMOUNTS}
""")
# Locks the row of the run, so that no other process changes the totals while they are recomputed.
OPEN_ACCOUNT = text("""
    INSERT INTO ledger_accounts (run, spent, reserved, assumed) VALUES (:run, 0, 0, 0)
    ON CONFLICT (run) DO UPDATE SET spent = ledger_accounts.spent
""")
# For PostgreSQL only. A call is answered and its account changed in one transaction; so that two processes cannot wait
# for each other, all of them lock the account first.
LOCK_ACCOUNT = text("SELECT 1 FROM ledger_accounts WHERE run = :run FOR UPDATE")
# For PostgreSQL only: the account is locked until the transaction ends, so the usual case of a call is one statement.
# The reservation and the intent of a call that the ledger does not have yet; ``written`` is 0 where it has it, and no
# row is returned where the cap does not cover the reservation.
INTEND_NEW = text(f"""
    WITH account AS (
        UPDATE ledger_accounts SET reserved = reserved + CAST(:reserved AS BIGINT)
        WHERE run = :run AND spent + reserved + assumed + CAST(:reserved AS BIGINT)
            <= coalesce(CAST(:cap AS BIGINT), 9223372036854775807)
        {_AMOUNTS}
    ), new_call AS (
        INSERT INTO ledger_calls (key, request) SELECT :key, :request FROM account
        ON CONFLICT (key) DO NOTHING RETURNING seq
    ), new_intent AS (
        INSERT INTO ledger_intents (call, writer, run, stage, record_id, reserved, seal)
        SELECT seq, :writer, :run, :stage, :record_id, CAST(:reserved AS BIGINT), :seal FROM new_call RETURNING seq
    )
    SELECT spent, reserved, assumed, (SELECT count(*) FROM new_intent) AS written FROM account
""")
# The reply to a call with a single send, which this writer has in flight; no row changes in any other case.
SETTLE_ONLY_SEND = text(f"""
    WITH send AS (
        SELECT i.call, i.reserved FROM ledger_calls AS c JOIN ledger_intents AS i ON i.call = c.seq
        WHERE c.key = :key AND i.writer = :writer AND i.run = :run
            AND NOT EXISTS (SELECT 1 FROM ledger_intents AS o WHERE o.call = i.call AND o.seq <> i.seq)
            AND NOT EXISTS (SELECT 1 FROM ledger_releases AS g WHERE g.intent = i.seq)
            AND NOT EXISTS (SELECT 1 FROM ledger_breaks AS b WHERE b.intent = i.seq)
    ), reply AS (
        INSERT INTO ledger_replies ({_REPLY_COLUMNS})
        SELECT call, :writer, :run, :body, :prompt_tokens, :completion_tokens, :cached_tokens, :cost, :attempts, :seal
        FROM send ON CONFLICT (call) DO NOTHING RETURNING call
    )
    UPDATE ledger_accounts
    SET spent = spent + CAST(:cost AS BIGINT), reserved = reserved - (SELECT reserved FROM send)
    WHERE run = :run AND EXISTS (SELECT 1 FROM reply)
""")
ACCOUNT = text("SELECT spent, reserved, assumed FROM ledger_accounts WHERE run = :run")
RUNS = text("SELECT DISTINCT run FROM ledger_writers")
JOIN_WRITER = text("""
    INSERT INTO ledger_writers (writer, run, expires, buried, version)
    VALUES (:writer, :run, :expires, 0, :version)
    ON CONFLICT (writer) DO UPDATE SET expires = excluded.expires, buried = 0
""")
VERSIONS = text("SELECT DISTINCT version FROM ledger_writers WHERE run = :run ORDER BY version")
COMMITS = text("SELECT commits FROM ledger_writers WHERE writer = :writer")
# For PostgreSQL only. A transaction that only read gets no number, so that it stays one.
SET_COMMITS = text("""
    UPDATE ledger_writers SET commits = :number WHERE writer = :writer AND txid_current_if_assigned() IS NOT NULL
""")
END_LEASE = text("UPDATE ledger_writers SET expires = 0 WHERE writer = :writer")
WRITER_ALIVE = text("SELECT 1 FROM ledger_writers WHERE writer = :writer AND expires > :horizon")
DEAD_WRITERS = text("""
    SELECT writer FROM ledger_writers
    WHERE run = :run AND writer <> :writer AND expires <= :horizon AND buried = 0 ORDER BY writer
""")
BREAK_ALL = text(f"""
    INSERT INTO ledger_breaks (intent)
    SELECT i.seq FROM ledger_intents AS i WHERE i.run = :run AND i.writer = :dead AND {_OPEN}
    ON CONFLICT (intent) DO NOTHING
""")
BURY_WRITER = text("UPDATE ledger_writers SET buried = 1 WHERE writer = :dead")
CLAIM = text("""
    INSERT INTO ledger_leases (run, stage, record_id, worker, expires)
    SELECT :run, :stage, :record_id, :worker, :expires WHERE NOT EXISTS (
        SELECT 1 FROM ledger_outcomes WHERE run = :run AND stage = :stage AND record_id = :record_id
    )
    ON CONFLICT (run, stage, record_id) DO UPDATE SET worker = excluded.worker, expires = excluded.expires
    WHERE ledger_leases.worker = excluded.worker OR ledger_leases.expires <= :now
""")
GIVE_BACK = text("""
    DELETE FROM ledger_leases WHERE run = :run AND stage = :stage AND record_id = :record_id AND worker = :worker
""")
LOCK_CLAIMS = text("SELECT pg_advisory_xact_lock(:lock)")
_THE_CALL = "(SELECT seq FROM ledger_calls WHERE key = :key)"
PRUNE_CALL = [
    text(f"DELETE FROM ledger_breaks WHERE intent IN (SELECT seq FROM ledger_intents WHERE call = {_THE_CALL})"),
    text(f"DELETE FROM ledger_releases WHERE intent IN (SELECT seq FROM ledger_intents WHERE call = {_THE_CALL})"),
    text(f"DELETE FROM ledger_replies WHERE call = {_THE_CALL}"),
    text(f"DELETE FROM ledger_intents WHERE call = {_THE_CALL}"),
    text("DELETE FROM ledger_calls WHERE key = :key"),
]
PRUNE_RUN = [text(f"DELETE FROM ledger_{table} WHERE run = :run") for table in ("outcomes", "leases")]
COUNT_OUTCOMES = text("""
    SELECT kind, reason, count(*) FROM ledger_outcomes WHERE run = :run AND stage = :stage GROUP BY kind, reason
""")
REOPEN_QUARANTINED = text("DELETE FROM ledger_outcomes WHERE run = :run AND stage = :stage AND kind = 'quarantined'")


def compute_advisory_lock(purpose: str, run: bytes) -> int:
    """Return the number of an advisory lock, equal in every process."""
    return int(hash_sort_key(purpose, run.hex())[:15], 16)


@dataclass(frozen=True, slots=True)
class PagedQuery:
    """A query that reads rows in the order of a column, a page of bounded size at a time.

    The sizes of the next rows are read first, then the rows that fit into a page.
    """

    sizes: TextClause
    rows: TextClause

    @classmethod
    def of(cls, columns: str, source: str, *, order_by: str, size: str, condition: str = "true") -> PagedQuery:
        """Return the query of a source; ``size`` is an SQL expression for the bytes of a row."""
        where = f"FROM {source} WHERE {condition} AND {order_by} >= :first"
        return cls(
            text(f"SELECT {order_by} AS position, {size} AS size {where} ORDER BY {order_by} LIMIT :most"),
            text(f"SELECT {columns}, {order_by} AS position {where} AND {order_by} <= :last ORDER BY {order_by}"),
        )

    def read_page(self, connection: Connection, parameters: dict[str, Any]) -> list[Row[Any]]:
        """Return the next rows from ``parameters["first"]``: as many as fit into a page, and at least one."""
        last, total = None, 0
        for position, size in connection.execute(self.sizes, {**parameters, "most": PAGE_ROWS}):
            total += size
            if last is not None and total > _PAGE_BYTES:
                break
            last = position
        return [] if last is None else list(connection.execute(self.rows, {**parameters, "last": last}))


BODY_SIZE = "coalesce(length(body), 0)"
OUTCOMES = PagedQuery.of(
    "*", "ledger_outcomes", order_by="record_id", size=BODY_SIZE, condition="run = :run AND stage = :stage"
)


# Tables of the call ledger.
#
# Texts are stored as UTF-8 bytes: these can represent every text of a user's file, and sort by code points on every
# database.


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
        expires DOUBLE PRECISION NOT NULL,
        buried SMALLINT NOT NULL CHECK (buried IN (0, 1)),
        commits BIGINT NOT NULL DEFAULT 0,
        version {bytes} NOT NULL
    )
    """,
    "CREATE INDEX ledger_writers_by_run ON ledger_writers (run)",
    # A send that ended without a reply and may have been billed.
    "CREATE TABLE ledger_breaks (intent {reference} PRIMARY KEY REFERENCES ledger_intents (seq))",
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

LEDGER_SCHEMA = DatabaseSchema("ledger_schema", "2", lambda connection: execute_statements(connection, _TABLES, _TYPES))
