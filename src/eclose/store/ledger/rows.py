"""What the call ledger keeps, and the form it has in a row: packed, and sealed by a checksum over all the row says.

A row that does not fit its seal is damaged, whatever else it may look like, and reads as None.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from eclose.core.identity import canonical_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Row

OutcomeKind: TypeAlias = Literal["accepted", "rejected", "quarantined"]

_TAG = "sha256:"
# What damaged bytes can give rise to on their way to a value.
_DAMAGE = (zlib.error, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class CallIntent:
    """What is about to be sent."""

    key: str
    """``sha256:...``, the content hash of the request."""
    request: dict[str, Any]
    """The fully rendered request as plain JSON; never holds a secret."""
    stage: str
    """For reports, as is the record: neither is part of the key."""
    record_id: str
    reserved: int = 0
    """What it may cost at worst, in millionths of a currency unit."""
    spelled: bytes | None = None
    """The request as its key was made of it; spelled anew where whoever made the key does not say."""


@dataclass(frozen=True, slots=True)
class LedgerReply:
    """What came back."""

    key: str
    body: bytes
    """The raw reply, or the failure, as JSON."""
    usage: tuple[int, int]
    """Tokens read and written."""
    cost: int
    attempts: int
    """The sends it took, this one included."""


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """Where a record went in a stage."""

    stage: str
    record_id: str
    kind: OutcomeKind
    reason: str | None
    body: bytes | None


class RunAccount(NamedTuple):
    """The sums of a run, in millionths of the currency."""

    spent: int
    """What its replies cost."""
    reserved: int
    """What its calls under way cost at worst."""
    assumed: int
    """What calls that broke off may have cost: the worst case, or the same as the answer that a later attempt got."""


class RunUsage(NamedTuple):
    """What a run has asked and got."""

    replies: int
    prompt_tokens: int
    completion_tokens: int
    cost: int
    """Millionths of the currency."""
    unsettled: int
    """Sends whose end nobody knows; they may have been billed."""


def encode_text(value: str) -> bytes:
    """A text as it is kept; lone surrogates too, for files hold them."""
    return value.encode("utf-8", "surrogatepass")


def decode_text(value: bytes) -> str:
    """A text from what is kept."""
    return value.decode("utf-8", "surrogatepass")


def encode_key(key: str) -> bytes:
    """The 32 bytes of a key."""
    digest = bytes.fromhex(key.removeprefix(_TAG)) if key.startswith(_TAG) else b""
    if len(digest) != 32:
        raise ValueError(f"{key!r} is no content hash")
    return digest


def decode_key(digest: bytes) -> str:
    """The key of 32 bytes."""
    return _TAG + digest.hex()


def encode_request(intent: CallIntent) -> bytes:
    """The bytes the key was made of."""
    raw = canonical_bytes(intent.request) if intent.spelled is None else intent.spelled
    if hashlib.sha256(raw).digest() != encode_key(intent.key):
        raise ValueError(f"{intent.key} is not the content hash of its request")
    return raw


def build_intent_row(intent: CallIntent, request: bytes, writer: bytes, run: str) -> dict[str, Any]:
    """An intent as it is kept."""
    return {
        "request": _packed(request),
        "key": encode_key(intent.key),
        "writer": writer,
        "run": encode_text(run),
        "stage": encode_text(intent.stage),
        "record_id": encode_text(intent.record_id),
        "reserved": intent.reserved,
        "seal": _seal([intent.key, writer.hex(), run, intent.stage, intent.record_id, intent.reserved]),
    }


def read_intent(row: Row[Any]) -> CallIntent | None:
    """An intent, with its request if the row has that."""
    try:
        key, stage, record_id = decode_key(row.key), decode_text(row.stage), decode_text(row.record_id)
        facts = [key, row.writer.hex(), decode_text(row.run), stage, record_id, row.reserved]
        request = read_request(row) if "request" in row._fields else {}
        sound = row.seal == _seal(facts) and request is not None
    except _DAMAGE:
        return None
    return CallIntent(key, request or {}, stage, record_id, row.reserved) if sound else None


def read_request(row: Row[Any]) -> dict[str, Any] | None:
    """The request of a call, if it is what its key was made of."""
    try:
        raw = zlib.decompress(row.request)
        sound = hashlib.sha256(raw).digest() == row.key
        return dict(json.loads(decode_text(raw))) if sound else None
    except _DAMAGE:
        return None


def build_reply_row(settled: LedgerReply, writer: bytes, run: str) -> dict[str, Any]:
    """A reply as it is kept."""
    return {
        "key": encode_key(settled.key),
        "writer": writer,
        "run": encode_text(run),
        "body": _packed(settled.body),
        "prompt_tokens": settled.usage[0],
        "completion_tokens": settled.usage[1],
        "cost": settled.cost,
        "attempts": settled.attempts,
        "seal": _seal([settled.key, run, *settled.usage, settled.cost, settled.attempts], settled.body),
    }


def read_reply(row: Row[Any]) -> LedgerReply | None:
    """A reply."""
    try:
        key, body, usage = decode_key(row.key), zlib.decompress(row.body), (row.prompt_tokens, row.completion_tokens)
        sound = row.seal == _seal([key, decode_text(row.run), *usage, row.cost, row.attempts], body)
    except _DAMAGE:
        return None
    return LedgerReply(key, body, usage, row.cost, row.attempts) if sound else None


def build_outcome_row(outcome: RecordOutcome, run: str) -> dict[str, Any]:
    """An outcome as it is kept."""
    facts = [run, outcome.stage, outcome.record_id, outcome.kind, outcome.reason]
    return {
        "run": encode_text(run),
        "stage": encode_text(outcome.stage),
        "record_id": encode_text(outcome.record_id),
        "kind": outcome.kind,
        "reason": None if outcome.reason is None else encode_text(outcome.reason),
        "body": None if outcome.body is None else _packed(outcome.body),
        "seal": _seal(facts, outcome.body),
    }


def read_outcome(row: Row[Any]) -> RecordOutcome | None:
    """An outcome."""
    try:
        stage, record_id = decode_text(row.stage), decode_text(row.record_id)
        reason = None if row.reason is None else decode_text(row.reason)
        body = None if row.body is None else zlib.decompress(row.body)
        sound = row.seal == _seal([decode_text(row.run), stage, record_id, row.kind, reason], body)
    except _DAMAGE:
        return None
    return RecordOutcome(stage, record_id, row.kind, reason, body) if sound else None


def _packed(body: bytes) -> bytes:
    # The quickest level: on texts of a few kilobytes the others save 3 % of the room and take half as long again.
    return zlib.compress(body, 1)


def _seal(facts: Sequence[object], body: bytes | None = None) -> bytes:
    # Canonical JSON says where it ends, so no two rows run together into the same bytes.
    head = canonical_bytes([*facts, body is None])
    return hashlib.blake2b(head + (body or b""), digest_size=16).digest()
