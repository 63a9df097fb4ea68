"""A stage that writes one JSON Lines file, with what it could not use and its manifest beside it.

Running a finished stage again does nothing, an input is never touched, and what other work has written is never
overwritten unasked. Knows nothing of what the records mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.core.identity import canonical_json
from eclose.errors import SettingError, UserError
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.counts import RecordCounter
from eclose.store.records.json_reader import require_file
from eclose.store.records.jsonl import encode
from eclose.store.runs.manifest import Manifest, hash_file, hash_files, hash_work, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from eclose.store.records.counts import Counts
    from eclose.store.records.jsonl import ReadRecord


@dataclass(frozen=True)
class RunStep:
    """A piece of work with a file as its result."""

    name: str
    settings: Mapping[str, Any]
    inputs: tuple[Path, ...]
    out: Path

    @property
    def manifest_path(self) -> Path:
        """``out/a.jsonl.manifest.json`` for ``out/a.jsonl``."""
        return sibling_path(self.out, "manifest.json")

    @property
    def quarantine_path(self) -> Path:
        """Where the records that could not be read are explained."""
        return sibling_path(self.out, "quarantined.jsonl")

    @property
    def rejected_path(self) -> Path:
        """Where a run of jobs lists the records that were set aside on purpose."""
        return sibling_path(self.out, "rejected.jsonl")

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file the stage may write."""
        return self.out, self.quarantine_path, self.rejected_path, self.manifest_path

    @cached_property
    def input_hashes(self) -> dict[str, str]:
        """The hashes of the inputs as they were when this was first read, by name: those of the manifest."""
        return hash_files(self.inputs)

    @property
    def work(self) -> str:
        """The identity of the work, known before it is done."""
        return hash_work(self.name, self.settings, self.input_hashes)

    def require_inputs(self) -> None:
        """Raise unless every input is there; hash them, as the state that the result is made from."""
        for path in self.inputs:
            require_file(path)
        _ = self.input_hashes

    def refuse_changed_inputs(self) -> None:
        """Raise where an input is no longer what it was at the start: the result would be of neither version."""
        for path in self.inputs:
            then = self.input_hashes.get(path.name) or self.input_hashes[path.as_posix()]
            now = hash_file(path) if path.is_file() else None
            if now != then:
                state = "was removed" if now is None else f"was changed ({then[:15]} at the start, {now[:15]} now)"
                raise UserError(
                    f"{path}: {state} while it was in use, so {self.out.name} was not written. Replies of models are"
                    " kept: put the old file back and run the same command again, or name another --out."
                )

    def claim(self, *, force: bool = False) -> Manifest | None:
        """The manifest of the same work done before; None when it is still to do, or to do anew by force.

        Raises when an input is missing or would be overwritten, or, unless forced, the result of other work would.
        """
        self.__dict__.pop("input_hashes", None)  # a question about the files as they are now
        self.require_inputs()
        if self.out.is_dir():
            raise SettingError(f"{self.out}: is a folder. Name a file to write.")
        for path in self.paths:
            if any(_same(path, read) for read in self.inputs):
                raise SettingError(
                    f"{path}: is an input and would be overwritten. Write to another file than {self.out}."
                )
        if force:
            return None
        if not self.out.exists():
            self._refuse_strangers()
            return None
        return self._same_work()

    def write(self, records: Iterable[ReadRecord[Any]], tally: RecordCounter | None = None) -> Counts:
        """Write the accepted values, then the manifest. A given tally holds what was counted on the way here."""
        with StepFiles(self, tally) as files:
            for record in records:
                files.add(record)
        return files.tally.counts()

    def explains_quarantine(self) -> bool:
        """Whether the quarantine file that lies there is the one that this file's manifest speaks of."""
        if not self.manifest_path.is_file() or not self.quarantine_path.is_file():
            return False
        try:
            outputs = read_manifest(self.manifest_path).outputs
        except UserError:
            return False
        known = outputs.get(self.quarantine_path.name)
        return self.out.name in outputs and known == hash_file(self.quarantine_path)

    def _same_work(self) -> Manifest:
        """The manifest beside the result, if it tells of this work and this result."""
        if not self.manifest_path.exists():
            raise self._refusal(self.out, "has no manifest, so it is not known what it was made from")
        manifest = read_manifest(self.manifest_path)
        if manifest.work != self.work:
            raise self._refusal(self.out, "was made from other inputs or with other settings")
        if manifest.outputs.get(self.out.name) != hash_file(self.out):
            raise self._refusal(self.out, "was changed after it was written")
        return manifest

    def _refuse_strangers(self) -> None:
        """There is no result yet, but what lies in the places beside it may be somebody's."""
        if self.manifest_path.exists() and self.out.name not in read_manifest(self.manifest_path).outputs:
            raise self._refusal(self.manifest_path, "tells of another file")
        if self.quarantine_path.exists() and not self.explains_quarantine():
            raise self._refusal(self.quarantine_path, f"is not known to belong to {self.out.name}")

    def _refusal(self, path: Path, reason: str) -> UserError:
        return UserError(f"{path}: exists and {reason}. Write to another file, or pass --force to replace it.")


class StepFiles:
    """The files of a stage in the making. They appear when all is written; after an error there are none."""

    def __init__(self, stage: RunStep, tally: RecordCounter | None = None) -> None:
        stage.require_inputs()
        self.stage = stage
        self.tally = tally or RecordCounter()
        self._files = ExitStack()
        self._out = self._files.enter_context(AtomicFile(stage.out))
        self._quarantine: AtomicFile | None = None

    def add(self, record: ReadRecord[Any]) -> None:
        """Count the record, and put it where it belongs."""
        self.tally.add(record)
        if record.error is not None:
            # Only a record that needs the file makes it: whatever lies under this name is left alone till then.
            if self._quarantine is None:
                self._quarantine = self._files.enter_context(AtomicFile(self.stage.quarantine_path))
            self._quarantine.write(_explained(record))
        elif record.value is not None:
            self._out.write(encode(record.value) + b"\n")

    def __enter__(self) -> Self:
        """The files, open for writing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the files in their places and write the manifest, or leave no trace of them."""
        stage = self.stage
        if kind is None:
            try:
                stage.refuse_changed_inputs()
            except UserError as changed:
                self._files.__exit__(type(changed), changed, changed.__traceback__)
                raise
        stale = kind is None and self._quarantine is None and stage.explains_quarantine()
        self._files.__exit__(kind, error, trace)
        if kind is not None:
            return
        if stale:
            stage.quarantine_path.unlink()
        written = [stage.out] if self._quarantine is None else [stage.out, stage.quarantine_path]
        manifest = Manifest(stage.name, stage.settings, stage.input_hashes, hash_files(written), self.tally.counts())
        manifest.write(stage.manifest_path)


def write_steps(stages: Sequence[RunStep], rows: Iterable[Sequence[ReadRecord[Any]]]) -> list[Counts]:
    """Several stages in one pass: the record at each place of a row belongs to the stage at that place."""
    with ExitStack() as stack:
        files = [stack.enter_context(StepFiles(stage)) for stage in stages]
        for row in rows:
            for file, record in zip(files, row, strict=True):
                file.add(record)
    return [file.tally.counts() for file in files]


def refuse_shared_files(stages: Iterable[RunStep]) -> None:
    """Raise when two stages of one command would write to the same file."""
    for first, second in combinations(stages, 2):
        for path in first.paths:
            if any(_same(path, other) for other in second.paths):
                raise SettingError(f"{first.out} and {second.out}: both would write {path}. Name another file for one.")


def sibling_path(path: Path, ending: str) -> Path:
    """A file named after the whole of another's name, so that no two share it: ``a.jsonl.manifest.json``."""
    return path.parent / f"{path.name}.{ending}"


def _same(first: Path, second: Path) -> bool:
    """Whether two paths lead to one file, by whatever links or spelling."""
    return first.resolve() == second.resolve() or (first.exists() and second.exists() and first.samefile(second))


def _explained(record: ReadRecord[Any]) -> bytes:
    line = canonical_json({"where": record.where, "error": str(record.error)})
    return line.encode("utf-8", "backslashreplace") + b"\n"
