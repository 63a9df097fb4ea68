"""A step of a pipeline that writes one JSON Lines file, with its rejected records and its manifest beside it.

Repeating a finished step does nothing, inputs are never changed, and results of other work are replaced only with
``--force``. A step that was started with other settings and not finished is refused as well: it would pay for
everything again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.json_reader import require_regular_file
from eclose.files.jsonl import encode_json_line
from eclose.files.manifest import Manifest, hash_file, hash_files, hash_work_identity, read_manifest
from eclose.files.outcome_counts import RecordCounter
from eclose.values.identity import canonical_json

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from eclose.files.jsonl import ReadRecord
    from eclose.files.outcome_counts import RecordCounts


@dataclass(frozen=True)
class PipelineStep:
    """One step of a pipeline: its name, settings, input files and output file."""

    name: str
    settings: Mapping[str, Any]
    inputs: tuple[Path, ...]
    out: Path
    explains_rejected: bool = False
    """Whether a file beside the output lists the rejected records with their reasons."""
    origin: Mapping[str, str] | None = None
    """Hashes that stand for the inputs in the identity of work whose inputs grow; None for any other work."""

    @property
    def manifest_path(self) -> Path:
        """Path of the manifest: ``out/a.jsonl.manifest.json`` for ``out/a.jsonl``."""
        return companion_file_path(self.out, "manifest.json")

    @property
    def quarantine_path(self) -> Path:
        """Path of the file that explains the records that could not be processed."""
        return companion_file_path(self.out, "quarantined.jsonl")

    @property
    def rejected_path(self) -> Path:
        """Path of the file with the records that were set aside on purpose."""
        return companion_file_path(self.out, "rejected.jsonl")

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file that the step may write."""
        return self.out, self.quarantine_path, self.rejected_path, self.manifest_path

    @cached_property
    def input_hashes(self) -> dict[str, str]:
        """Hashes of the inputs by name, taken at the first access; the manifest records these."""
        return hash_files(self.inputs)

    @property
    def work_id(self) -> str:
        """Hash of name, settings and inputs: the identity of the work, before and after it is done."""
        return hash_work_identity(self.name, self.settings, self.origin or self.input_hashes)

    def require_inputs(self) -> None:
        """Raise unless every input exists; hash the inputs in the state that the result is made from."""
        for path in self.inputs:
            require_regular_file(path)
        _ = self.input_hashes

    def refuse_changed_inputs(self) -> None:
        """Raise where an input changed since it was hashed: the result would belong to neither version."""
        for path in self.inputs:
            # Keyed by name, or by path where two inputs share a name (see ``hash_files``).
            then = self.input_hashes.get(path.name) or self.input_hashes[path.as_posix()]
            now = hash_file(path) if path.is_file() else None
            if now != then:
                state = "was removed" if now is None else f"was changed ({then[:15]} at the start, {now[:15]} now)"
                raise UserError(
                    f"{path}: {state} while it was in use, so {self.out.name} was not written. Replies of models are"
                    " kept: put the old file back and run the same command again, or name another --out."
                )

    def claim(self, *, force: bool = False) -> Manifest | None:
        """Claim the output files; return the manifest of the same work where it is finished, None where it is to do.

        Raises:
            UserError: An input is missing, or, without ``force``, the files belong to other work or were changed.
            SettingError: The output is a folder, or the step would overwrite an input.
        """
        self.__dict__.pop("input_hashes", None)  # hash the files as they are now
        self.require_inputs()
        if self.out.is_dir():
            raise SettingError(f"{self.out}: is a folder. Name a file to write.")
        for path in self.paths:
            if any(_is_same_file(path, source) for source in self.inputs):
                raise SettingError(
                    f"{path}: is an input and would be overwritten. Write to another file than {self.out}."
                )
        if force:
            return None
        if self.out.exists():
            return self._read_same_work()
        if self.manifest_path.exists() and self.out.name not in read_manifest(self.manifest_path).outputs:
            raise self._refusal(self.manifest_path, "is the manifest of another file")
        for path in (self.quarantine_path, *([self.rejected_path] if self.explains_rejected else [])):
            if path.exists() and not self.owns(path):
                raise self._refusal(path, f"is not known to belong to {self.out.name}")
        return None

    def write(self, records: Iterable[ReadRecord[Any]], counter: RecordCounter | None = None) -> RecordCounts:
        """Write the accepted values, then the manifest. ``counter`` holds records that were counted before."""
        with StepOutputFiles(self, counter) as files:
            for record in records:
                files.add(record)
        return files.counter.counts()

    def owns(self, path: Path) -> bool:
        """Return whether an existing file beside the output is the one that the manifest lists."""
        if not self.manifest_path.is_file() or not path.is_file():
            return False
        try:
            outputs = read_manifest(self.manifest_path).outputs
        except UserError:
            return False
        return self.out.name in outputs and outputs.get(path.name) == hash_file(path)

    def note_start(self, ledger: str, *, force: bool = False) -> None:
        """Write a note with settings and ledger id of the started work; raise where they changed, unless forced.

        Without the note, a run that stopped half way and is repeated with another server, model, setting or ledger
        would start from the beginning and pay for everything again.
        """
        earlier: Any = None
        with suppress(OSError, ValueError):  # missing, or no note
            earlier = json.loads(self._start_note_path.read_bytes())
        earlier = earlier if isinstance(earlier, dict) else {}
        is_same_work = earlier.get("work") == self.work_id
        if is_same_work and earlier.get("ledger") == ledger:
            return
        if is_same_work and not force:
            raise self.lost_ledger()
        if earlier and not force:
            if not (changes := list_differences(earlier.get("settings"), self.settings)):
                raise UserError(
                    f"{self.out}: a run was begun here and is not finished, and its input has changed since. Pass "
                    "--force to go on with the input as it is now; paid replies are used again."
                )
            raise UserError(
                f"{self.out}: a run with other settings was begun here and is not finished "
                f"({'; '.join(changes)}). Give the earlier settings to go on, "
                "or pass --force to begin anew. If it is the same server at a new address, give its earlier name: "
                "ECLOSE_SERVER_NAME."
            )
        self._start_note_path.parent.mkdir(parents=True, exist_ok=True)
        note = {"work": self.work_id, "ledger": ledger, "settings": dict(self.settings)}
        with AtomicFile(self._start_note_path) as file:
            file.write(json.dumps(note, indent=2, default=str).encode() + b"\n")

    def lost_ledger(self) -> UserError:
        """Return the error for a ledger that does not hold this run."""
        return UserError(
            f"{self.out}: this is not the ledger that this run was begun with, or its file was copied without the one"
            " that ends in -wal, so all calls would be paid again. Bring the ledger back or name it with --ledger; with"
            " --force, begin anew and pay again."
        )

    def remove_start_note(self) -> None:
        """Remove the note of started work, once its result is written."""
        self._start_note_path.unlink(missing_ok=True)

    @property
    def _start_note_path(self) -> Path:
        return companion_file_path(self.out, "begun.json")

    def _read_same_work(self) -> Manifest:
        """Return the manifest of the existing result; raise where it describes other work or another file."""
        if not self.manifest_path.exists():
            raise self._refusal(self.out, "has no manifest, so it is not known what it was made from")
        manifest = read_manifest(self.manifest_path)
        # By the inputs as they are now, also where the work grows.
        if manifest.work_id != hash_work_identity(self.name, self.settings, self.input_hashes):
            changes = [
                f"{name} has changed" for name, hash_ in self.input_hashes.items() if hash_ != manifest.inputs.get(name)
            ]
            changes += list_differences(manifest.settings, self.settings)
            what = f"was made from other inputs or with other settings ({'; '.join(changes) or 'another command'})"
            raise self._refusal(self.out, what)
        if manifest.outputs.get(self.out.name) != hash_file(self.out):
            raise self._refusal(self.out, "was changed after it was written")
        return manifest

    def _refusal(self, path: Path, reason: str) -> UserError:
        return UserError(f"{path}: exists and {reason}. Write to another file, or pass --force to replace it.")


class StepOutputFiles:
    """The files of a step while they are written. They appear once all are complete; after an error there are none."""

    def __init__(self, step: PipelineStep, counter: RecordCounter | None = None) -> None:
        step.require_inputs()
        self.step = step
        self.counter = counter or RecordCounter()
        self._files = ExitStack()
        self._out = self._files.enter_context(AtomicFile(step.out))
        self._explanations: dict[Path, AtomicFile] = {}

    def add(self, record: ReadRecord[Any]) -> None:
        """Count the record, and write it to the output or, with the reason, to a file beside it."""
        self.counter.add(record)
        if record.value is not None:
            self._out.write(encode_json_line(record.value) + b"\n")
        elif record.error is not None:
            self._explain(self.step.quarantine_path, record.where, error=str(record.error))
        elif self.step.explains_rejected:
            self._explain(self.step.rejected_path, record.where, reason=str(record.rejected))

    def _explain(self, path: Path, where: str, **explanation: str) -> None:
        # Created with its first record: until then a file of this name is left alone.
        if path not in self._explanations:
            self._explanations[path] = self._files.enter_context(AtomicFile(path))
        line = canonical_json({"where": where, **explanation})
        self._explanations[path].write(line.encode("utf-8", "backslashreplace") + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Rename the files to their final names and write the manifest, or remove them after an error."""
        step = self.step
        if kind is None:
            try:
                step.refuse_changed_inputs()
            except UserError as changed:
                self._files.__exit__(type(changed), changed, changed.__traceback__)
                raise
        # Asked before the new output is in place: the manifest of the earlier result still fits its files.
        beside = {step.quarantine_path, step.rejected_path} - self._explanations.keys()
        stale = [path for path in beside if kind is None and step.owns(path)]
        self._files.__exit__(kind, error, trace)
        if kind is not None:
            return
        for path in stale:
            path.unlink()
        outputs = [step.out, *self._explanations]
        # Written last: a manifest vouches for files that are complete.
        manifest = Manifest(step.name, step.settings, step.input_hashes, hash_files(outputs), self.counter.counts())
        manifest.write(step.manifest_path)


def write_step_files(steps: Sequence[PipelineStep], rows: Iterable[Sequence[ReadRecord[Any]]]) -> list[RecordCounts]:
    """Write several steps in one pass: the i-th record of a row belongs to the i-th step. Return their counts."""
    with ExitStack() as stack:
        files = [stack.enter_context(StepOutputFiles(step)) for step in steps]
        for row in rows:
            for file, record in zip(files, row, strict=True):
                file.add(record)
    return [file.counter.counts() for file in files]


Rows: TypeAlias = "Iterable[Sequence[ReadRecord[Any]]]"


class PipelineStepResult(NamedTuple):
    """A finished step with its counts."""

    step: PipelineStep
    counts: RecordCounts
    again: bool
    """Whether an earlier run wrote it."""


def run_pipeline_steps(
    steps: Sequence[PipelineStep],
    rows: Rows,
    *,
    force: bool = False,
    scratch: Path | None = None,
    wrap: Callable[[Rows, str], Rows] = lambda rows, _label: rows,
) -> list[PipelineStepResult]:
    """Write the unfinished ones of some steps in one pass over the rows, as ``write_step_files`` does.

    ``wrap`` gets the rows and a label, for a progress display. The rows are not read where every step is finished.
    ``scratch`` is a folder for the files in place of their own, for a forecast that leaves these as they are.
    """
    refuse_shared_files(steps)
    # Claimed in their own place for a forecast too, which then says that the run would be refused.
    finished = [step.claim(force=force) for step in steps]
    if scratch is not None:
        steps = [
            replace(step, out=scratch / step.out.name) if manifest is None else step
            for step, manifest in zip(steps, finished, strict=True)
        ]
    pending = [index for index, manifest in enumerate(finished) if manifest is None]
    counts = {index: manifest.counts for index, manifest in enumerate(finished) if manifest is not None}
    if pending:
        label = f"writing {', '.join(steps[index].out.name for index in pending)}"
        columns = ([row[index] for index in pending] for row in wrap(rows, label))
        counts |= dict(zip(pending, write_step_files([steps[index] for index in pending], columns), strict=True))
    return [PipelineStepResult(step, counts[index], again=index not in pending) for index, step in enumerate(steps)]


def refuse_shared_files(steps: Iterable[PipelineStep]) -> None:
    """Raise where two steps of one command would write to the same file."""
    for first, second in combinations(steps, 2):
        for path in first.paths:
            if any(_is_same_file(path, other) for other in second.paths):
                raise SettingError(f"{first.out} and {second.out}: both would write {path}. Name another file for one.")


def companion_file_path(path: Path, ending: str) -> Path:
    """Return the path of a companion file: ``a.jsonl.manifest.json`` for ``a.jsonl`` and ``manifest.json``."""
    # The complete name is kept, so that a.jsonl and a.jsonl.gz have different manifests.
    return path.parent / f"{path.name}.{ending}"


def _is_same_file(first: Path, second: Path) -> bool:
    """Return whether two paths lead to one file, also through links."""
    return first.resolve() == second.resolve() or (first.exists() and second.exists() and first.samefile(second))


def list_differences(earlier: object, settings: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each setting that is not what it was: ``model: 'a' then, 'b' now``."""
    before = earlier if isinstance(earlier, dict) else {}
    after = json.loads(json.dumps(dict(settings), default=str))  # as the note spells them
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    return [f"{name}: {before.get(name)!r} then, {after.get(name)!r} now" for name in names]
