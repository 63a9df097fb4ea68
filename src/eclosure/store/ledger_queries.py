"""What the call ledger asks of its database, in SQL that SQLite and PostgreSQL both read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, TextClause, text

from eclosure.store.ledger_rows import read_intent, read_outcome, read_request, read_settled

if TYPE_CHECKING:
    from collections.abc import Callable

# Rows are read a page at a time, so that memory is bounded and writers get their turn.
PAGE_ROWS = 1_000
_PAGE_BYTES = 4 * 2**20

ADD_CALL = text("INSERT INTO ledger_calls (key, request) VALUES (:key, :request) ON CONFLICT (key) DO NOTHING")
ADD_INTENT = text("""
    INSERT INTO ledger_intents (call, writer, run, stage, record_id, reserved, seal)
    SELECT seq, :writer, :run, :stage, :record_id, :reserved, :seal FROM ledger_calls
    WHERE key = :key AND NOT EXISTS (SELECT 1 FROM ledger_replies WHERE call = ledger_calls.seq)
""")
# A reply settles this opening's own intents, or, when they were another's (a batch that was adopted), the latest.
ADD_REPLY = text("""
    INSERT INTO ledger_replies (call, writer, run, body, prompt_tokens, completion_tokens, cost, attempts, seal)
    SELECT i.call, i.writer, :run, :body, :prompt_tokens, :completion_tokens, :cost, :attempts, :seal
    FROM ledger_intents AS i JOIN ledger_calls AS c ON c.seq = i.call
    WHERE c.key = :key ORDER BY i.writer = :writer DESC, i.seq DESC LIMIT 1
    ON CONFLICT (call) DO NOTHING
""")
FIND = text("SELECT c.key, r.* FROM ledger_replies AS r JOIN ledger_calls AS c ON c.seq = r.call WHERE c.key = :key")
RELEASE = text("""
    INSERT INTO ledger_releases (intent)
    SELECT max(i.seq) FROM ledger_intents AS i JOIN ledger_calls AS c ON c.seq = i.call
    WHERE c.key = :key AND i.writer = :writer HAVING max(i.seq) IS NOT NULL
    ON CONFLICT (intent) DO NOTHING
""")
RELEASE_WHOEVER = text("""
    INSERT INTO ledger_releases (intent)
    SELECT max(i.seq) FROM ledger_intents AS i JOIN ledger_calls AS c ON c.seq = i.call
    WHERE c.key = :key AND NOT EXISTS (SELECT 1 FROM ledger_releases AS g WHERE g.intent = i.seq)
    HAVING max(i.seq) IS NOT NULL
    ON CONFLICT (intent) DO NOTHING
""")
ADD_OUTCOME = text("""
    INSERT INTO ledger_outcomes (run, stage, record_id, kind, reason, body, seal)
    VALUES (:run, :stage, :record_id, :kind, :reason, :body, :seal)
    ON CONFLICT (run, stage, record_id) DO NOTHING
""")
FIND_OUTCOME = text("SELECT * FROM ledger_outcomes WHERE run = :run AND stage = :stage AND record_id = :record_id")
# Of what one opening intended for a call, its reply settles the last. The others stay unsettled for good unless they
# were released, and so does what an opening that died had intended: all of them may have been billed.
_UNSETTLED = """
    FROM ledger_intents AS i
    JOIN ledger_calls AS c ON c.seq = i.call
    WHERE i.run = :run
    AND NOT EXISTS (SELECT 1 FROM ledger_releases AS g WHERE g.intent = i.seq)
    AND NOT (
        EXISTS (SELECT 1 FROM ledger_replies AS r WHERE r.call = i.call AND r.writer = i.writer) AND NOT EXISTS (
            SELECT 1 FROM ledger_intents AS l WHERE l.call = i.call AND l.writer = i.writer AND l.seq > i.seq
        )
    )
"""
ORPHANS = text(f"SELECT i.*, c.key, c.request {_UNSETTLED} ORDER BY i.seq")
USAGE = text("""
    SELECT count(*), coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0), coalesce(sum(cost), 0)
    FROM ledger_replies WHERE run = :run
""")
# A call that several records share is on whose behalf it was first intended.
USAGE_BY_RECORD = text("""
    SELECT i.stage, i.record_id, count(*), sum(r.prompt_tokens), sum(r.completion_tokens), sum(r.cost)
    FROM ledger_replies AS r
    JOIN (SELECT call, min(seq) AS first FROM ledger_intents WHERE run = :run GROUP BY call) AS f ON f.call = r.call
    JOIN ledger_intents AS i ON i.seq = f.first
    WHERE r.run = :run GROUP BY i.stage, i.record_id
""")
UNSETTLED_COUNT = text(f"SELECT count(*) {_UNSETTLED}")
RESERVED = text(f"SELECT coalesce(sum(i.reserved), 0) {_UNSETTLED}")
COST = text("SELECT coalesce(sum(cost), 0) FROM ledger_replies WHERE run = :run")
CLAIM = text("""
    INSERT INTO ledger_leases (run, stage, record_id, worker, expires)
    SELECT :run, :stage, :record_id, :worker, :expires WHERE NOT EXISTS (
        SELECT 1 FROM ledger_outcomes WHERE run = :run AND stage = :stage AND record_id = :record_id
    )
    ON CONFLICT (run, stage, record_id) DO UPDATE SET worker = excluded.worker, expires = excluded.expires
    WHERE ledger_leases.worker = excluded.worker OR ledger_leases.expires <= :now
""")
_THE_CALL = "(SELECT seq FROM ledger_calls WHERE key = :key)"
PRUNE_CALL = [
    text(f"DELETE FROM ledger_releases WHERE intent IN (SELECT seq FROM ledger_intents WHERE call = {_THE_CALL})"),
    text(f"DELETE FROM ledger_replies WHERE call = {_THE_CALL}"),
    text(f"DELETE FROM ledger_intents WHERE call = {_THE_CALL}"),
    text("DELETE FROM ledger_calls WHERE key = :key"),
]
PRUNE_RUN = [text(f"DELETE FROM ledger_{table} WHERE run = :run") for table in ("outcomes", "leases")]
TALLY = text("""
    SELECT kind, reason, count(*) FROM ledger_outcomes WHERE run = :run AND stage = :stage GROUP BY kind, reason
""")
REOPEN = text("DELETE FROM ledger_outcomes WHERE run = :run AND stage = :stage AND kind = 'quarantined'")
IDS = text("""
    SELECT record_id FROM ledger_outcomes
    WHERE run = :run AND stage = :stage AND record_id >= :first ORDER BY record_id LIMIT :most
""")


@dataclass(frozen=True, slots=True)
class Pages:
    """How to read rows in order: first the places and sizes of the next ones, then those that fit into a page."""

    sizes: TextClause
    rows: TextClause

    @classmethod
    def of(cls, columns: str, source: str, *, place: str, size: str, condition: str = "true") -> Pages:
        """Rows of a source in the order of a column, with another that says how large each is."""
        where = f"FROM {source} WHERE {condition} AND {place} >= :first"
        return cls(
            text(f"SELECT {place} AS place, {size} AS size {where} ORDER BY {place} LIMIT :most"),
            text(f"SELECT {columns}, {place} AS place {where} AND {place} <= :last ORDER BY {place}"),
        )

    def next(self, connection: Connection, given: dict[str, Any]) -> list[Row[Any]]:
        """The next rows: as many as fit into a page, and at least one."""
        last, total = None, 0
        for place, size in connection.execute(self.sizes, {**given, "most": PAGE_ROWS}):
            total += size
            if last is not None and total > _PAGE_BYTES:
                break
            last = place
        return [] if last is None else list(connection.execute(self.rows, {**given, "last": last}))


_WITH_KEY = "LEFT JOIN ledger_calls AS c ON c.seq = call"
_BODY = "coalesce(length(body), 0)"
# No seal covers whose intents a reply settles: that is only known when it is written. So they must be there.
_INTENDED = "(SELECT max(i.seq) FROM ledger_intents AS i WHERE i.call = r.call AND i.writer = r.writer) AS intended"
OUTCOMES = Pages.of("*", "ledger_outcomes", place="record_id", size=_BODY, condition="run = :run AND stage = :stage")
CALLS = Pages.of("*", "ledger_calls", place="seq", size="length(request)")
INTENTS = Pages.of("i.*, c.key", f"ledger_intents AS i {_WITH_KEY}", place="i.seq", size="length(record_id)")
REPLIES = Pages.of(f"r.*, c.key, {_INTENDED}", f"ledger_replies AS r {_WITH_KEY}", place="call", size=_BODY)
ALL_OUTCOMES = Pages.of("*", "ledger_outcomes", place="seq", size=_BODY)
CHECKS: tuple[tuple[str, Pages, Callable[[Row[Any]], bool]], ...] = (
    ("the request of", CALLS, lambda row: read_request(row) is not None),
    ("an intent of", INTENTS, lambda row: read_intent(row) is not None),
    ("the reply to", REPLIES, lambda row: read_settled(row) is not None and row.intended is not None),
    ("the outcome of", ALL_OUTCOMES, lambda row: read_outcome(row) is not None),
)
