"""Files of a run's batches: shards of requests, and a note with the state of each shard.

A shard is named by the hash of its bytes, so the same requests make the same shard on every machine.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.json_reader import JsonObject, parse_json_object

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.calls.ledger.ledger import CallIntent

CHAT_COMPLETIONS_PATH = "/v1/chat/completions"
_TAG = "sha256:"


class BatchShardState(StrEnum):
    """State of a shard."""

    WRITTEN = "written"
    """The shard is on disk and was certainly not sent."""
    INTENDED = "intended"
    """A batch is being created: only the provider's list tells whether it exists."""
    CREATED = "created"
    COLLECTED = "collected"


@dataclass(slots=True, kw_only=True)
class BatchShardNote:
    """State and identifiers of a shard, stored beside it as JSON."""

    shard: str
    """SHA-256 of its bytes, and the name of its files."""
    model: str
    """Name of the model."""
    state: BatchShardState
    records: dict[str, list[str]]
    """Ids of the records that wait for each custom id."""
    reserved: int = 0
    """Worst-case cost in millionths."""
    file_id: str | None = None
    batch_id: str | None = None
    earlier: list[str] = field(default_factory=list)
    """Ids of batches of the same requests that were collected before; these are not adopted again."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """Reason for each request without a reply, once collected."""
    dialect: dict[str, Any] = field(default_factory=dict)
    """Variant of the request body that the results showed to work, once collected."""


def encode_request_line(key: str, body: JsonObject) -> bytes:
    """Return a request body as a line of a shard."""
    line = {"custom_id": format_custom_id(key), "method": "POST", "url": CHAT_COMPLETIONS_PATH, "body": body}
    # ASCII escapes keep lone surrogates writable, and no character is read as a line end by any provider.
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"


def format_custom_id(key: str) -> str:
    """Return the custom id of a call: its key without the prefix, 64 hexadecimal characters."""
    return key.removeprefix(_TAG)


def parse_custom_id(identifier: str) -> str:
    """Return the call key of a custom id."""
    return _TAG + identifier


class BatchShard:
    """Requests collected for one batch file."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[CallIntent, bytes]] = {}
        """Intent and line of each request, by custom id."""
        self.records: dict[str, list[str]] = {}
        self.size = 0
        """Size of the file in bytes."""

    def add(self, intent: CallIntent, line: bytes) -> None:
        """Add a request."""
        name = format_custom_id(intent.key)
        self.lines[name] = intent, line
        # A list, since two records with the same request share a line: custom ids of a batch must be unique.
        self.records[name] = [intent.record_id]
        self.size += len(line)

    def create_note(self, model: str) -> BatchShardNote:
        """Return the note of this shard before anything is sent."""
        digest = hashlib.sha256()
        for _, line in self.lines.values():
            digest.update(line)
        return BatchShardNote(
            shard=digest.hexdigest(),
            model=model,
            state=BatchShardState.WRITTEN,
            records=self.records,
            reserved=sum(intent.reserved for intent, _ in self.lines.values()),
        )


class BatchFolder:
    """Folder with the shards, notes and results of one model."""

    def __init__(self, path: Path, model: str) -> None:
        self._path = path
        self._model = model

    def clear(self) -> None:
        """Delete the unfinished files of a killed process."""
        # Names of ``AtomicFile`` before its rename. The folder is locked, so no other process is writing them.
        for path in self._path.glob(".*.json*"):
            path.unlink()

    def notes(self) -> list[BatchShardNote]:
        """Return all notes, sorted by the names of their shards."""
        return [self._read_note(path) for path in sorted(self._path.glob("*.json"))]

    def _read_note(self, path: Path) -> BatchShardNote:
        try:
            note = BatchShardNote(**parse_json_object(path.read_bytes()))
            note.state = BatchShardState(note.state)
        except (TypeError, ValueError, UserError) as error:
            raise UserError(f"{path}: this batch note is damaged ({error}). Restore the file from a copy.") from error
        if note.model != self._model:
            # Another provider does not list this batch, so it would be created and paid again.
            raise SettingError(f"{path}: is a batch of {note.model}, not of {self._model}. Use one folder per model.")
        return note

    def find(self, shard: str) -> BatchShardNote | None:
        """Return the note of a shard; None where there is none."""
        path = self._path / f"{shard}.json"
        return self._read_note(path) if path.exists() else None

    def save(self, note: BatchShardNote) -> None:
        """Write a note; it is on disk on return."""
        with AtomicFile(self._path / f"{note.shard}.json") as file:
            file.write(json.dumps(asdict(note)).encode("ascii") + b"\n")

    def write(self, shard: BatchShard, note: BatchShardNote) -> None:
        """Write the requests of a shard, then its note: requests without a note were never sent."""
        with AtomicFile(self.requests(note)) as file:
            for _, line in shard.lines.values():
                file.write(line)
        self.save(note)

    def drop(self, note: BatchShardNote) -> None:
        """Delete a shard that was never sent."""
        (self._path / f"{note.shard}.json").unlink(missing_ok=True)
        self.requests(note).unlink(missing_ok=True)

    def requests(self, note: BatchShardNote) -> Path:
        """Return the path of a shard's requests."""
        return self._path / f"{note.shard}.jsonl"

    def results(self, note: BatchShardNote, kind: str) -> Path:
        """Return the path of the results of a shard's latest batch."""
        # The provider's batch id is not used as a file name: it could contain path separators.
        return self._path / f"{note.shard}.{len(note.earlier) + 1}.{kind}.jsonl"
