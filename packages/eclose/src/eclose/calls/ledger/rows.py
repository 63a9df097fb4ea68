"""Values of the call ledger and their database rows: compressed, with a checksum (seal) over the content of the row.

A row whose content does not match its seal is damaged and is read as None.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection, Row, text

from eclose.calls.ledger.queries import BODY_SIZE, PagedQuery
from eclose.values.identity import canonical_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


OutcomeKind: TypeAlias = Literal["accepted", "rejected", "quarantined"]

_TAG = "sha256:"
# The exceptions that decoding damaged bytes can raise.
_DAMAGE = (zlib.error, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class CallIntent:
    """A model call that is about to be sent."""

    key: str
    """``sha256:...``, the content hash of the request."""
    request: dict[str, Any]
    """The fully rendered request as plain JSON; never holds a secret."""
    stage: str
    """Job on whose behalf the call is made; like the record id, not part of the key."""
    record_id: str
    reserved: int = 0
    """Highest possible cost, in millionths of the currency."""
    spelled: bytes | None = None
    """The canonical bytes that the key is the hash of; computed from the request where None."""


@dataclass(frozen=True, slots=True)
class LedgerReply:
    """The reply to a model call."""

    key: str
    body: bytes
    """The raw reply, or the failure, as JSON."""
    usage: tuple[int, int]
    """Prompt tokens and completion tokens."""
    cost: int
    """Millionths of the currency."""
    attempts: int
    """Number of sends until this reply."""
    cached_tokens: int = 0
    """Prompt tokens that the provider read from its cache."""


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """The outcome of a record in a stage of a run."""

    stage: str
    record_id: str
    kind: OutcomeKind
    reason: str | None
    """Why the record was rejected or quarantined; None where it was accepted."""
    body: bytes | None
    """The result, or details of the reason, as JSON."""


class RunAccount(NamedTuple):
    """Cost totals of a run, in millionths of the currency."""

    spent: int
    """Cost of its replies."""
    reserved: int
    """Highest possible cost of its calls in flight."""
    assumed: int
    """Cost of calls that broke off and may have been billed: the highest possible, or that of a later reply."""


class RunUsage(NamedTuple):
    """Numbers of replies and tokens of a run, and their cost."""

    replies: int
    prompt_tokens: int
    completion_tokens: int
    cost: int
    """Millionths of the currency."""
    unsettled: int
    """Sends without a known end, which may have been billed."""
    cached_tokens: int = 0
    """Prompt tokens that providers read from their caches, as reported."""


def encode_utf8_text(value: str) -> bytes:
    """Return a text as UTF-8 bytes; lone surrogates, which occur in users' files, are encoded too."""
    return value.encode("utf-8", "surrogatepass")


def decode_utf8_text(value: bytes) -> str:
    """Return the text of ``encode_utf8_text``."""
    return value.decode("utf-8", "surrogatepass")


def encode_call_key(key: str) -> bytes:
    """Return the 32 bytes of a key ``sha256:...``."""
    digest = bytes.fromhex(key.removeprefix(_TAG)) if key.startswith(_TAG) else b""
    if len(digest) != 32:
        raise ValueError(f"{key!r} is not a content hash")
    return digest


def decode_call_key(digest: bytes) -> str:
    """Return the key ``sha256:...`` of 32 bytes."""
    return _TAG + digest.hex()


def build_intent_row(intent: CallIntent, writer: bytes, run: str) -> dict[str, Any]:
    """Return the columns of an intent, and of its call; raise ValueError where the request does not match the key."""
    request = canonical_bytes(intent.request) if intent.spelled is None else intent.spelled
    if hashlib.sha256(request).digest() != encode_call_key(intent.key):
        raise ValueError(f"{intent.key} is not the content hash of its request")
    return {
        "request": _compress(request),
        "key": encode_call_key(intent.key),
        "writer": writer,
        "run": encode_utf8_text(run),
        "stage": encode_utf8_text(intent.stage),
        "record_id": encode_utf8_text(intent.record_id),
        "reserved": intent.reserved,
        "seal": _seal([intent.key, writer.hex(), run, intent.stage, intent.record_id, intent.reserved]),
    }


def decode_intent_row(row: Row[Any]) -> CallIntent | None:
    """Return the intent of a row, with its request where the row has it; None where it is damaged."""
    try:
        key, stage, record_id = decode_call_key(row.key), decode_utf8_text(row.stage), decode_utf8_text(row.record_id)
        facts = [key, row.writer.hex(), decode_utf8_text(row.run), stage, record_id, row.reserved]
        request = decode_ledger_request(row) if "request" in row._fields else {}
        sound = row.seal == _seal(facts) and request is not None
    except _DAMAGE:
        return None
    return CallIntent(key, request or {}, stage, record_id, row.reserved) if sound else None


def decode_ledger_request(row: Row[Any]) -> dict[str, Any] | None:
    """Return the request of a call; None where it does not match its key."""
    try:
        raw = zlib.decompress(row.request)
        sound = hashlib.sha256(raw).digest() == row.key
        return dict(json.loads(decode_utf8_text(raw))) if sound else None
    except _DAMAGE:
        return None


def build_reply_row(reply: LedgerReply, writer: bytes, run: str) -> dict[str, Any]:
    """Return the columns of a reply."""
    return {
        "key": encode_call_key(reply.key),
        "writer": writer,
        "run": encode_utf8_text(run),
        "body": _compress(reply.body),
        "prompt_tokens": reply.usage[0],
        "completion_tokens": reply.usage[1],
        "cached_tokens": reply.cached_tokens,
        "cost": reply.cost,
        "attempts": reply.attempts,
        "seal": _seal_reply(reply, run),
    }


def decode_reply_row(row: Row[Any]) -> LedgerReply | None:
    """Return the reply of a row; None where it is damaged."""
    try:
        key, body = decode_call_key(row.key), zlib.decompress(row.body)
        usage = row.prompt_tokens, row.completion_tokens
        reply = LedgerReply(
            key=key, body=body, usage=usage, cost=row.cost, attempts=row.attempts, cached_tokens=row.cached_tokens
        )
        sound = row.seal == _seal_reply(reply, decode_utf8_text(row.run))
    except _DAMAGE:
        return None
    return reply if sound else None


def _seal_reply(reply: LedgerReply, run: str) -> bytes:
    return _seal([reply.key, run, *reply.usage, reply.cost, reply.attempts, reply.cached_tokens], reply.body)


def build_outcome_row(outcome: RecordOutcome, run: str) -> dict[str, Any]:
    """Return the columns of an outcome."""
    facts = [run, outcome.stage, outcome.record_id, outcome.kind, outcome.reason]
    return {
        "run": encode_utf8_text(run),
        "stage": encode_utf8_text(outcome.stage),
        "record_id": encode_utf8_text(outcome.record_id),
        "kind": outcome.kind,
        "reason": None if outcome.reason is None else encode_utf8_text(outcome.reason),
        "body": None if outcome.body is None else _compress(outcome.body),
        "seal": _seal(facts, outcome.body),
    }


def decode_outcome_row(row: Row[Any]) -> RecordOutcome | None:
    """Return the outcome of a row; None where it is damaged."""
    try:
        stage, record_id = decode_utf8_text(row.stage), decode_utf8_text(row.record_id)
        reason = None if row.reason is None else decode_utf8_text(row.reason)
        body = None if row.body is None else zlib.decompress(row.body)
        sound = row.seal == _seal([decode_utf8_text(row.run), stage, record_id, row.kind, reason], body)
    except _DAMAGE:
        return None
    return RecordOutcome(stage, record_id, row.kind, reason, body) if sound else None


def _compress(body: bytes) -> bytes:
    # The fastest level: on texts of a few kilobytes the others save 3 % of the space and take 50 % longer.
    return zlib.compress(body, 1)


def _seal(facts: Sequence[object], body: bytes | None = None) -> bytes:
    # Canonical JSON is self-delimiting, so different rows never concatenate to the same bytes.
    head = canonical_bytes([*facts, body is None])
    return hashlib.blake2b(head + (body or b""), digest_size=16).digest()


# Integrity checks of the rows of the call ledger, and the description of damaged rows in messages.


_WITH_KEY = "LEFT JOIN ledger_calls AS c ON c.seq = call"
# The seal of a reply does not cover its writer, which is only known in the INSERT. So its intent must exist instead.
_INTENDED = "(SELECT max(i.seq) FROM ledger_intents AS i WHERE i.call = r.call AND i.writer = r.writer) AS intended"
_CALLS = PagedQuery.of("*", "ledger_calls", order_by="seq", size="length(request)")
_INTENTS = PagedQuery.of("i.*, c.key", f"ledger_intents AS i {_WITH_KEY}", order_by="i.seq", size="length(record_id)")
_REPLIES = PagedQuery.of(
    f"r.*, c.key, {_INTENDED}", f"ledger_replies AS r {_WITH_KEY}", order_by="call", size=BODY_SIZE
)
_ALL_OUTCOMES = PagedQuery.of("*", "ledger_outcomes", order_by="seq", size=BODY_SIZE)
# Name in messages, query, and whether a row is sound.
ROW_CHECKS: tuple[tuple[str, PagedQuery, Callable[[Row[Any]], bool]], ...] = (
    ("the request of", _CALLS, lambda row: decode_ledger_request(row) is not None),
    ("an intent of", _INTENTS, lambda row: decode_intent_row(row) is not None),
    ("the reply to", _REPLIES, lambda row: decode_reply_row(row) is not None and row.intended is not None),
    ("the outcome of", _ALL_OUTCOMES, lambda row: decode_outcome_row(row) is not None),
)


@dataclass(frozen=True, slots=True)
class LedgerProblem:
    """A problem of a stored row, or of the database itself."""

    message: str
    row: Row[Any] | None = None
    """The damaged row; None for a problem of the database."""
    unreadable: bool = False
    """Whether the rows after this one could not be read."""


def find_database_problems(connection: Connection) -> list[str]:
    """Return the problems that the database itself reports; only SQLite has such a check."""
    if connection.dialect.name != "sqlite":
        return []
    problems = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
    orphaned = [
        f"row {row[1]} of {row[0]} refers to a missing row"
        for row in connection.execute(text("PRAGMA foreign_key_check"))
    ]
    return [problem for problem in problems if problem != "ok"] + orphaned


def describe_ledger_row(row: Row[Any]) -> str:
    """Return the name of a row for messages, as far as it can still be decoded."""
    fields = row._asdict()
    names = ["key"] if "key" in fields else ["record_id", "stage", "run"]
    return " of ".join(_readable(fields[name], name) for name in names)


def _readable(value: object, name: str) -> str:
    if not isinstance(value, bytes):
        return repr(value)
    return decode_call_key(value) if name == "key" else value.decode("utf-8", "backslashreplace")
