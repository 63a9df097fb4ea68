"""Manifests: the record of a step's inputs, outputs, settings, counts and program versions.

A manifest traces a result back to its input files and shows whether a command was already run. It cannot be written
while records are unaccounted for.
"""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

import eclose
from eclose.errors import UserError
from eclose.files.atomic import write_json
from eclose.files.json_reader import require_regular_file
from eclose.files.outcome_counts import RecordCounts
from eclose.values.identity import content_hash

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Manifest:
    """The record of one step, written as JSON beside its output."""

    stage: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]
    """Content hash of each input, by file name."""
    outputs: Mapping[str, str]
    """Content hash of each output, by file name."""
    counts: RecordCounts
    funnel: Mapping[str, RecordCounts] = field(default_factory=dict)
    """Counts of every stage that records pass through, in order; empty where there is one."""
    calls: Mapping[str, Any] = field(default_factory=dict)
    """Model calls: their number, tokens and cost."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Resources used, where recorded: seconds of wall-clock time over all sessions, processes, device."""
    version: str = field(default_factory=lambda: eclose.__version__)
    earlier_versions: tuple[str, ...] = ()
    """Other versions that worked on the run before: its results may mix theirs."""
    python: str = field(default_factory=platform.python_version)
    written_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def work_id(self) -> str:
        """Hash of step, settings and inputs: equal for two runs of the same command on the same input."""
        return hash_work_identity(self.stage, self.settings, self.inputs)

    def with_outputs(self, outputs: Mapping[str, str]) -> Manifest:
        """Return the manifest with the hashes of its outputs."""
        return replace(self, outputs=outputs)

    def refuse_losses(self) -> None:
        """Raise where the counts of a stage do not add up."""
        for stage, counts in {self.stage: self.counts, **self.funnel}.items():
            if not counts.conserved:
                raise AssertionError(f"{stage}: records are unaccounted for: {counts}")

    def write(self, path: Path | str) -> None:
        """Write the manifest; raise where its counts do not add up."""
        self.refuse_losses()
        # NaN is not JSON: other programs could not read the file.
        write_json(path, asdict(self), allow_nan=False)


def hash_work_identity(stage: str, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Return the identity of a piece of work, which can be computed before the work is done."""
    # Hashes without names: the same input in another folder is the same work.
    return content_hash([stage, dict(settings), sorted(inputs.values())])


def read_manifest(path: Path | str) -> Manifest:
    """Read a manifest from its file."""
    require_regular_file(Path(path))
    try:
        # Strict, with no unknown fields: a file of another program under this name must not pass for a manifest.
        return TypeAdapter(Manifest).validate_json(Path(path).read_bytes(), strict=True, extra="forbid")
    except ValidationError as invalid:
        raise UserError(
            f"{path}: this is not a manifest of eclose ({invalid.error_count()} errors). "
            "Move it away, or write to another file."
        ) from invalid


def hash_file(path: Path | str) -> str:
    """Return the hash of a file's bytes, as ``sha256:...``."""
    try:
        with Path(path).open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        # An error while reading, as of a broken disk, names no file.
        error.filename = error.filename or str(path)
        raise


def hash_files(paths: Iterable[Path]) -> dict[str, str]:
    """Return the hashes of files by name; by path where two files share a name."""
    paths = list(paths)
    names = Counter(path.name for path in paths)
    return {path.name if names[path.name] == 1 else path.as_posix(): hash_file(path) for path in paths}
