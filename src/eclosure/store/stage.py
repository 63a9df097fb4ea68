"""A stage that writes one JSON Lines file, with what it could not use and its manifest beside it.

Running a finished stage again does nothing, and what other work has written is never overwritten unasked.
Knows nothing of what the records mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclosure.core.identity import canonical_json
from eclosure.errors import SettingError, UserError
from eclosure.store.atomic import AtomicFile
from eclosure.store.manifest import Manifest, Tally, file_hash, file_hashes, read_manifest, work_hash
from eclosure.store.records import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclosure.store.manifest import Counts
    from eclosure.store.records import ReadRecord


@dataclass(frozen=True)
class Stage:
    """A piece of work with a file as its result."""

    name: str
    settings: Mapping[str, Any]
    inputs: tuple[Path, ...]
    out: Path

    @property
    def manifest_path(self) -> Path:
        """``out/a.manifest.json`` for ``out/a.jsonl``."""
        return beside(self.out, "manifest.json")

    @property
    def quarantine_path(self) -> Path:
        """Where the records that could not be read are explained."""
        return beside(self.out, "quarantined.jsonl")

    def finished(self, *, force: bool = False) -> Manifest | None:
        """The manifest of the same work done before; None when it is still to do, or to do anew by force.

        Raises when the result would overwrite an input, or, unless forced, the result of other work.
        """
        if self.out.resolve() in {path.resolve() for path in self.inputs}:
            raise SettingError(f"{self.out}: is also an input. Write to another file.")
        if force or not self.out.exists():
            return None
        manifest = read_manifest(self.manifest_path) if self.manifest_path.exists() else None
        if manifest is None:
            raise self._refusal("has no manifest, so it is not known what it was made from")
        if manifest.work != work_hash(self.name, self.settings, file_hashes(self.inputs)):
            raise self._refusal("was made from other inputs or with other settings")
        if manifest.outputs.get(self.out.name) != file_hash(self.out):
            raise self._refusal("was changed after it was written")
        return manifest

    def write(self, records: Iterable[ReadRecord[Any]], tally: Tally | None = None) -> Counts:
        """Write the accepted values, then the manifest. A given tally holds what was counted on the way here."""
        tally = tally or Tally()
        with AtomicFile(self.out) as out, AtomicFile(self.quarantine_path) as quarantine:
            for record in records:
                tally.note(record)
                if record.error is not None:
                    quarantine.write(_explained(record))
                elif record.value is not None:
                    out.write(encode(record.value) + b"\n")
        if not tally.quarantined:
            self.quarantine_path.unlink()
        outputs = [path for path in (self.out, self.quarantine_path) if path.exists()]
        counts = tally.counts()
        Manifest(self.name, self.settings, file_hashes(self.inputs), file_hashes(outputs), counts).write(
            self.manifest_path
        )
        return counts

    def _refusal(self, reason: str) -> UserError:
        return UserError(f"{self.out}: exists and {reason}. Write to another file, or pass --force to replace it.")


def beside(path: Path, ending: str) -> Path:
    """A file of the same stem in the same folder: ``a.jsonl.gz`` and ``manifest.json`` give ``a.manifest.json``."""
    stem = path.name.removesuffix(".gz")
    return path.with_name(f"{stem.rsplit('.', 1)[0] or stem}.{ending}")


def _explained(record: ReadRecord[Any]) -> bytes:
    line = canonical_json({"where": record.where, "error": str(record.error)})
    return line.encode("utf-8", "backslashreplace") + b"\n"
