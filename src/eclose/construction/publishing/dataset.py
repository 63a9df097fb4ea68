"""Export of families as a folder for a dataset hub: a Parquet table per split, the data card, and a manifest.

Running it again does nothing. Files of another origin are replaced only with ``force``.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from eclose.construction.publishing.dataset_card import write_dataset_card
from eclose.construction.publishing.dataset_facts import (
    SPLITS,
    collect_card_facts,
    find_audit_reports,
    find_origin_manifest,
)
from eclose.construction.split import dataset_of_benchmark
from eclose.core.identity import canonical_json
from eclose.errors import SettingError, UserError
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.families import scan_families, write_families_parquet
from eclose.store.records.json_reader import require_regular_file
from eclose.store.records.outcome_counts import RecordCounter
from eclose.store.runs.folder import CARD_FILE, FAMILIES_FILE
from eclose.store.runs.manifest import Manifest, hash_file, hash_files, hash_work_identity, read_manifest
from eclose.store.runs.step import companion_file_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eclose.core.family import Family

EXPORT_STAGE = "families export"
EXPORT_SETTINGS = {"format": "datasets"}
DATA, MANIFEST, QUARANTINE = "data", "manifest.json", "quarantined.jsonl"
_TEMPORARY = ".making."
"""How the names of temporary folders begin; such a folder is left by a run that was killed."""


@dataclass(frozen=True)
class DatasetExport:
    """Result of an export."""

    manifest: Manifest
    again: bool
    """Whether the export had been finished before this call."""


def export_dataset(source: Path, out: Path, *, force: bool = False) -> DatasetExport:
    """Write the families of a run's folder, or of a file, as a dataset."""
    splits = _find_split_files(source)
    folder = source if source.is_dir() else source.parent
    if out.resolve() == folder.resolve():
        raise SettingError(f"{out}: holds the families, and their card would be overwritten. Name another folder.")
    families = folder / FAMILIES_FILE if source.is_dir() else source
    origin = companion_file_path(families, "manifest.json")
    # The manifest and the audit report appear on the card, so a change of either makes another export.
    inputs = hash_files([*splits.values(), *([origin] if origin.is_file() else []), *find_audit_reports(folder)])
    if (
        not force
        and (finished := _read_finished(out, hash_work_identity(EXPORT_STAGE, EXPORT_SETTINGS, inputs))) is not None
    ):
        return DatasetExport(finished, again=True)
    tables = _Tables(out)
    tables.write(splits)
    files = {split: f"{DATA}/{split}-*.parquet" for split, datasets in tables.counts.items() if datasets}
    write_dataset_card(out, collect_card_facts(find_origin_manifest(families), tables.counts, files, folder))
    outputs = [*tables.written, out / CARD_FILE]
    manifest = Manifest(EXPORT_STAGE, EXPORT_SETTINGS, inputs, hash_files(outputs), tables.tally.counts())
    # Last: a folder without a manifest is an unfinished export.
    manifest.write(out / MANIFEST)
    return DatasetExport(manifest, again=False)


def _find_split_files(source: Path) -> dict[str, Path]:
    """Return the files of a run's folder by split name; a single file is for training."""
    if not source.is_dir():
        require_regular_file(source)
        return {"train": source}
    splits = {split: source / name for split, name in SPLITS.items()}
    if missing := [path.name for path in splits.values() if not path.is_file()]:
        raise UserError(
            f"{source}: has no {' and no '.join(missing)}. Name the folder of eclose construct, or a file of families."
        )
    return splits


def _read_finished(out: Path, work: str) -> Manifest | None:
    """Return the manifest of the same export if it is finished; None for an empty folder; raise otherwise."""
    if out.exists() and not out.is_dir():
        raise SettingError(f"{out}: is a file. Name a folder to write.")
    if not out.exists() or all(path.name.startswith(_TEMPORARY) for path in out.iterdir()):
        return None
    refusal = "Write to another folder, or pass --force to replace it."
    if not (out / MANIFEST).is_file():
        raise UserError(f"{out}: is not empty and has no manifest, so it may belong to other work. {refusal}")
    manifest = read_manifest(out / MANIFEST)
    if manifest.work_id != work:
        raise UserError(f"{out}: was made from other families or by another command. {refusal}")
    files = {path.name: path for path in (*(out / DATA).glob("*.parquet"), out / CARD_FILE, out / QUARANTINE)}
    for name, expected in manifest.outputs.items():
        if name not in files or not files[name].is_file() or hash_file(files[name]) != expected:
            raise UserError(f"{out}: {name} was changed after it was written. {refusal}")
    return manifest


class _Tables:
    """Writer of the tables. They appear once all are written; after an error there are none."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.tally = RecordCounter()
        self.counts: dict[str, Counter[str]] = {}
        self.written: list[Path] = []
        self._files = ExitStack()
        self._quarantine: AtomicFile | None = None

    def write(self, splits: Mapping[str, Path]) -> None:
        """Write the tables of all splits into a temporary folder, then move them into place."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            for stale in self.out.glob(f"{_TEMPORARY}*"):
                rmtree(stale)
            # Inside the target folder, because a rename works only within one file system.
            temporary = Path(mkdtemp(dir=self.out, prefix=_TEMPORARY))
            try:
                with self._files:
                    tables = [table for split in splits for table in self._write_split(temporary, split, splits[split])]
                self._move(tables)
            finally:
                rmtree(temporary, ignore_errors=True)
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error})"
            raise UserError(f"{self.out}: {problem}. Choose another folder or free some space.") from error

    def _write_split(self, folder: Path, split: str, path: Path) -> list[Path]:
        self.counts[split] = Counter()
        return write_families_parquet(folder, split, self._read_families(split, path))

    def _read_families(self, split: str, path: Path) -> Iterator[Family]:
        """Yield the families of a file; count all records, and quarantine unreadable ones with their error."""
        for record in scan_families(path):
            self.tally.add(record)
            if record.error is not None:
                self._write_quarantine({"where": f"{path.name}, {record.where}", "error": str(record.error)})
            elif record.value is not None:
                self.counts[split][dataset_of_benchmark(record.value.source.benchmark)] += 1
                yield record.value

    def _write_quarantine(self, line: Mapping[str, str]) -> None:
        if self._quarantine is None:
            self._quarantine = self._files.enter_context(AtomicFile(self.out / QUARANTINE))
        self._quarantine.write(canonical_json(line).encode("utf-8", "backslashreplace") + b"\n")

    def _move(self, tables: Iterable[Path]) -> None:
        data, quarantine = self.out / DATA, self.out / QUARANTINE
        data.mkdir(exist_ok=True)
        # Shards of an older, longer table would be read as part of this one.
        for split in SPLITS:
            for old in data.glob(f"{split}-[0-9]*.parquet"):
                old.unlink()
        self.written = [table.rename(data / table.name) for table in tables]
        if self._quarantine is None:
            quarantine.unlink(missing_ok=True)
        else:
            self.written.append(quarantine)
