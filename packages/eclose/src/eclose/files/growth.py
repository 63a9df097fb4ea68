"""What the folder of a run that takes new responses records about itself: its identity, and the files so far."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from eclose.errors import UserError
from eclose.files.atomic import write_json
from eclose.files.manifest import hash_work_identity
from eclose.files.run_folder import GROWTH_FILE, INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.step import companion_file_path

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class FileBeginning:
    """The first bytes of a file that grows: they stay as they are."""

    size: int
    hash: str


@dataclass(frozen=True, slots=True)
class RunGrowth:
    """The record of a run that grows."""

    identity: Mapping[str, str]
    """Hashes that stand for the questions and responses in the identity of the run, so that it stays the same."""
    settings: Mapping[str, Any]
    """Settings of the judge, the same for all responses."""
    files: Mapping[str, FileBeginning] = field(default_factory=dict)
    """The questions and responses that were taken, by the name of the file."""
    samples: tuple[float, ...] = ()
    """Shares of the responses that were taken, in order; 1 for all."""
    since: str | None = None
    """Earliest time from which responses were taken; None where time played no part."""

    @property
    def run_id(self) -> str:
        """Identity of the run, in its ledger and towards other tools."""
        return hash_work_identity("judge", self.settings, self.identity)

    def write(self, run: Path) -> None:
        """Write the record into the folder of the run."""
        write_json(run / GROWTH_FILE, asdict(self))

    def list_changed_files(self, run: Path) -> list[str]:
        """Return the files that hold something else than was taken; what follows it is not looked at."""
        return [
            name
            for name, beginning in self.files.items()
            if not (run / name).is_file() or measure_beginning(run / name, beginning.size) != beginning
        ]

    def refuse_changed_files(self, run: Path) -> None:
        """Raise where a question or response of the run was changed: it would keep its earlier judgment."""
        if changed := self.list_changed_files(run):
            raise UserError(
                f"{run}: {' and '.join(changed)} changed since the run took these records, and each keeps one judgment."
                " Put the old file back, or pass --force to judge all of them as they are now; paid replies are used"
                " again."
            )


def read_growth(run: Path) -> RunGrowth | None:
    """Return the record of a run that grows; None for any other folder."""
    path = run / GROWTH_FILE
    if not path.is_file():
        return None
    try:
        return TypeAdapter(RunGrowth).validate_json(path.read_bytes(), extra="forbid")
    except ValidationError as invalid:
        raise UserError(
            f"{path}: is not what eclose judge --append writes. Bring the file back, or begin a new folder."
        ) from invalid


def is_growing(run: Path) -> bool:
    """Return whether a run has taken responses whose judgments are not written yet."""
    if not (run / GROWTH_FILE).is_file():
        return False
    return not companion_file_path(run / JUDGMENTS_FILE, "manifest.json").is_file()


def measure_beginning(path: Path, size: int | None = None) -> FileBeginning:
    """Return the length and hash of the first bytes of a file; of all of it by default."""
    remaining = path.stat().st_size if size is None else size
    digest, read = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(min(_CHUNK, remaining - read)):
            digest.update(chunk)
            read += len(chunk)
    return FileBeginning(read, f"sha256:{digest.hexdigest()}")


def measure_run_files(run: Path) -> dict[str, FileBeginning]:
    """Return the questions and responses of a run as they are now, by name."""
    return {name: measure_beginning(run / name) for name in (INSTANCES_FILE, RESPONSES_FILE) if (run / name).is_file()}
