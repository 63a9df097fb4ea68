"""The files of a run's batches: shards of requests, and a note beside each that says how far it got.

Knows lines, custom ids and states, nothing of providers. A shard is named by the hash of its bytes, so
that the same requests are the same shard, whoever looks.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError, UserError
from eclose.store.ledger.ledger import CallIntent
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.strict_json import JsonObject, parse_object

if TYPE_CHECKING:
    from pathlib import Path

URL = "/v1/chat/completions"
_TAG = "sha256:"


class ShardState(StrEnum):
    """How far a shard got."""

    WRITTEN = "written"
    """On disk, and certainly nowhere else."""
    INTENDED = "intended"
    """A batch of it is about to be made: whether there is one, only the provider knows."""
    CREATED = "created"
    COLLECTED = "collected"


@dataclass(slots=True, kw_only=True)
class ShardNote:
    """What is known of a shard."""

    shard: str
    """SHA-256 of its bytes; its files have this name."""
    model: str
    """Who is asked."""
    state: ShardState
    records: dict[str, list[str]]
    """The records that wait for each custom id."""
    reserved: int = 0
    """What it may cost at worst, in millionths."""
    file_id: str | None = None
    batch_id: str | None = None
    earlier: list[str] = field(default_factory=list)
    """Batches of the very same requests that were collected before: they are not to be adopted again."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """Why which request has no reply, once collected."""
    dialect: dict[str, Any] = field(default_factory=dict)
    """The form of requests its results taught, once collected."""


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A request as a line of a shard."""

    intent: CallIntent
    line: bytes

    @classmethod
    def of(cls, intent: CallIntent, body: JsonObject) -> BatchLine:
        """The line of a request."""
        line = {"custom_id": format_custom_id(intent.key), "method": "POST", "url": URL, "body": body}
        # ASCII: half characters can be written too, and nothing in it passes for the end of a line anywhere.
        return cls(intent, json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n")


def format_custom_id(key: str) -> str:
    """A call's key as a provider takes it: 64 characters, none of them special."""
    return key.removeprefix(_TAG)


def parse_custom_id(identifier: str) -> str:
    """The key of a custom id."""
    return _TAG + identifier


class BatchShard:
    """Requests on their way into one file."""

    def __init__(self) -> None:
        self.asked: dict[str, BatchLine] = {}
        self.records: dict[str, list[str]] = {}
        self.size = 0
        """Bytes."""

    def add(self, asked: BatchLine) -> None:
        """Take a request in."""
        name = format_custom_id(asked.intent.key)
        self.asked[name] = asked
        self.records[name] = [asked.intent.record_id]
        self.size += len(asked.line)

    def note(self, model: str) -> ShardNote:
        """What there is to know of it before anything happens."""
        digest = hashlib.sha256()
        for asked in self.asked.values():
            digest.update(asked.line)
        reserved = sum(asked.intent.reserved for asked in self.asked.values())
        name = digest.hexdigest()
        return ShardNote(shard=name, model=model, state=ShardState.WRITTEN, records=self.records, reserved=reserved)


class BatchFolder:
    """Where shards, notes and results lie."""

    def __init__(self, path: Path, model: str) -> None:
        self._path = path
        self._model = model

    def clear(self) -> None:
        """Take away what a process that was killed left half written."""
        for path in self._path.glob(".*.json*"):
            path.unlink()

    def notes(self) -> list[ShardNote]:
        """All notes, in the order of their shards' names."""
        return [self._note(path) for path in sorted(self._path.glob("*.json"))]

    def _note(self, path: Path) -> ShardNote:
        try:
            note = ShardNote(**parse_object(path.read_bytes()))
            note.state = ShardState(note.state)
        except (TypeError, ValueError, UserError) as error:
            raise UserError(f"{path}: this note of a batch is damaged ({error}). Restore it from a copy.") from error
        if note.model != self._model:
            # Another provider does not list it, and it would pass for never made.
            raise SettingError(f"{path}: is a batch of {note.model}, not of {self._model}. Give each its own folder.")
        return note

    def find(self, shard: str) -> ShardNote | None:
        """The note of a shard."""
        path = self._path / f"{shard}.json"
        return self._note(path) if path.exists() else None

    def save(self, note: ShardNote) -> None:
        """Keep a note; on disk on return."""
        with AtomicFile(self._path / f"{note.shard}.json") as file:
            file.write(json.dumps(asdict(note)).encode("ascii") + b"\n")

    def write(self, shard: BatchShard, note: ShardNote) -> None:
        """Keep the requests of a shard, and then the note: requests without a note were never sent."""
        with AtomicFile(self.requests(note)) as file:
            for asked in shard.asked.values():
                file.write(asked.line)
        self.save(note)

    def drop(self, note: ShardNote) -> None:
        """Forget a shard that was never sent."""
        (self._path / f"{note.shard}.json").unlink(missing_ok=True)
        self.requests(note).unlink(missing_ok=True)

    def requests(self, note: ShardNote) -> Path:
        """The file of a shard."""
        return self._path / f"{note.shard}.jsonl"

    def results(self, note: ShardNote, kind: str) -> Path:
        """Where the results of its batch are kept."""
        # Not by the batch's id: a name that somebody else chose may lead anywhere.
        return self._path / f"{note.shard}.{len(note.earlier) + 1}.{kind}.jsonl"
