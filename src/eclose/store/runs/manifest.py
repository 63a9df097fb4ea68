"""The record of one stage: what went in, what came out, by which code and settings.

A manifest lets a table be traced back to a benchmark file, says whether a command was already run, and refuses
to be written when records are unaccounted for.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

import eclose
from eclose.core.identity import content_hash
from eclose.errors import UserError
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.counts import Counts
from eclose.store.records.json_reader import require_file

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Manifest:
    """The record of one stage."""

    stage: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]
    """File name to content hash."""
    outputs: Mapping[str, str]
    counts: Counts
    funnel: Mapping[str, Counts] = field(default_factory=dict)
    """The counts of every stage a record goes through, in order, where there are several."""
    calls: Mapping[str, Any] = field(default_factory=dict)
    """What was asked of models: calls, tokens, cost."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """What the work took, where it is kept: seconds of wall-clock time over all sessions, processes, device."""
    version: str = field(default_factory=lambda: eclose.__version__)
    python: str = field(default_factory=platform.python_version)
    written_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def work(self) -> str:
        """What was asked for: equal for two runs of the same command on the same input."""
        return hash_work(self.stage, self.settings, self.inputs)

    def with_outputs(self, outputs: Mapping[str, str]) -> Manifest:
        """The same, once it is known what was written."""
        return replace(self, outputs=outputs)

    def refuse_losses(self) -> None:
        """Raise when the counts do not add up."""
        for stage, counts in {self.stage: self.counts, **self.funnel}.items():
            if not counts.conserved:
                raise AssertionError(f"{stage}: records are unaccounted for: {counts}")

    def write(self, path: Path | str) -> None:
        """Write the manifest; refuses when the counts do not add up."""
        self.refuse_losses()
        with AtomicFile(path) as file:
            # NaN would be written, and then be no JSON to whoever reads it.
            file.write(json.dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def hash_work(stage: str, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """The identity of a piece of work, known before it is done. Where the inputs lie does not matter."""
    return content_hash([stage, dict(settings), sorted(inputs.values())])


def read_manifest(path: Path | str) -> Manifest:
    """Read a manifest from its file."""
    require_file(Path(path))
    try:
        return TypeAdapter(Manifest).validate_json(Path(path).read_bytes(), strict=True, extra="forbid")
    except ValidationError as invalid:
        raise UserError(
            f"{path}: this is not a manifest of ours ({invalid.error_count()} errors). Move it away or write elsewhere."
        ) from invalid


def hash_file(path: Path | str) -> str:
    """Tagged hash of a file's bytes."""
    with Path(path).open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def hash_files(paths: Iterable[Path]) -> dict[str, str]:
    """File names with the hashes of their bytes; whole paths where two files share a name."""
    paths = list(paths)
    names = Counter(path.name for path in paths)
    return {path.name if names[path.name] == 1 else path.as_posix(): hash_file(path) for path in paths}
