"""A folder that a hub of datasets can show and load: a table for each split, the card, and a manifest.

Running it again does nothing, and what other work has written is never overwritten unasked.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from eclose.construction.publishing.dataset_card import write_card
from eclose.construction.publishing.dataset_facts import SPLITS, collect_facts, find_audit_reports, find_origin_manifest
from eclose.construction.publishing.parquet import write_families_parquet
from eclose.construction.split import dataset_name
from eclose.core.identity import canonical_json
from eclose.errors import SettingError, UserError
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.counts import RecordCounter
from eclose.store.records.families import scan_families
from eclose.store.records.json_reader import require_file
from eclose.store.runs.folder import CARD, FAMILIES
from eclose.store.runs.manifest import Manifest, hash_file, hash_files, hash_work, read_manifest
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eclose.core.family import Family

STAGE = "families export"
SETTINGS = {"format": "datasets"}
DATA, MANIFEST, QUARANTINE = "data", "manifest.json", "quarantined.jsonl"
_MAKING = ".making."
"""What begins with this is left of a run that was killed."""


@dataclass(frozen=True)
class DatasetExport:
    """What lies in the folder."""

    manifest: Manifest
    again: bool
    """Whether it lay there before."""


def export_dataset(given: Path, out: Path, *, force: bool = False) -> DatasetExport:
    """Write the families of a run's folder, or of one file, as a dataset."""
    splits = find_splits(given)
    home = given if given.is_dir() else given.parent
    if out.resolve() == home.resolve():
        raise SettingError(
            f"{out}: is where the families lie, and their card would be overwritten. Name another folder."
        )
    origin = home / FAMILIES if given.is_dir() else given
    told = sibling_path(origin, "manifest.json")
    inputs = hash_files([*splits.values(), *([told] if told.is_file() else []), *find_audit_reports(home)])
    if not force and (done := _finished(out, hash_work(STAGE, SETTINGS, inputs))) is not None:
        return DatasetExport(done, again=True)
    tables = _Tables(out)
    tables.write(splits)
    files = {split: f"{DATA}/{split}-*.parquet" for split, found in tables.counts.items() if found}
    write_card(out, collect_facts(find_origin_manifest(origin), tables.counts, files, home))
    outputs = [*tables.written, out / CARD]
    manifest = Manifest(STAGE, SETTINGS, inputs, hash_files(outputs), tables.tally.counts())
    manifest.write(out / MANIFEST)
    return DatasetExport(manifest, again=False)


def find_splits(given: Path) -> dict[str, Path]:
    """The files of a run's folder by the names of splits; one file is for training."""
    if not given.is_dir():
        require_file(given)
        return {"train": given}
    splits = {split: given / name for split, name in SPLITS.items()}
    if missing := [path.name for path in splits.values() if not path.is_file()]:
        raise UserError(
            f"{given}: has no {' and no '.join(missing)}. Name the folder of eclose construct, or a file of families."
        )
    return splits


def _finished(out: Path, work: str) -> Manifest | None:
    """The manifest of the same work, whole and unchanged; None for a folder that is still empty."""
    if out.exists() and not out.is_dir():
        raise SettingError(f"{out}: is a file. Name a folder to write.")
    if not out.exists() or all(path.name.startswith(_MAKING) for path in out.iterdir()):
        return None
    refusal = "Write to another folder, or pass --force to replace it."
    if not (out / MANIFEST).is_file():
        raise UserError(f"{out}: is not empty and has no manifest, so it is not known whose it is. {refusal}")
    manifest = read_manifest(out / MANIFEST)
    if manifest.work_id != work:
        raise UserError(f"{out}: was made from other families or by another command. {refusal}")
    lying = {path.name: path for path in (*(out / DATA).glob("*.parquet"), out / CARD, out / QUARANTINE)}
    for name, known in manifest.outputs.items():
        if name not in lying or not lying[name].is_file() or hash_file(lying[name]) != known:
            raise UserError(f"{out}: {name} was changed after it was written. {refusal}")
    return manifest


class _Tables:
    """The tables in the making. They appear when all is written; after an error there are none."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.tally = RecordCounter()
        self.counts: dict[str, Counter[str]] = {}
        self.written: list[Path] = []
        self._files = ExitStack()
        self._quarantine: AtomicFile | None = None

    def write(self, splits: Mapping[str, Path]) -> None:
        """Every split, then all of them into their places."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            for left in self.out.glob(f"{_MAKING}*"):
                rmtree(left)
            making = Path(mkdtemp(dir=self.out, prefix=_MAKING))
            try:
                with self._files:
                    made = [path for split, path in splits.items() for path in self._table(making, split, path)]
                self._place(made)
            finally:
                rmtree(making, ignore_errors=True)
        except OSError as error:
            problem = f"cannot be written here ({error.strerror or error})"
            raise UserError(f"{self.out}: {problem}. Choose another place or make room.") from error

    def _table(self, making: Path, split: str, path: Path) -> list[Path]:
        self.counts[split] = Counter()
        return write_families_parquet(making, split, self._taken(split, path))

    def _taken(self, split: str, path: Path) -> Iterator[Family]:
        """The families of a file; what is none is counted, and explained where it could not be read."""
        for record in scan_families(path):
            self.tally.add(record)
            if record.error is not None:
                self._explain({"where": f"{path.name}, {record.where}", "error": str(record.error)})
            elif record.value is not None:
                self.counts[split][dataset_name(record.value.source.benchmark)] += 1
                yield record.value

    def _explain(self, told: Mapping[str, str]) -> None:
        if self._quarantine is None:
            self._quarantine = self._files.enter_context(AtomicFile(self.out / QUARANTINE))
        self._quarantine.write(canonical_json(told).encode("utf-8", "backslashreplace") + b"\n")

    def _place(self, made: Iterable[Path]) -> None:
        """Where they belong. Files of an older and longer table would be taken for more of this one, so they go."""
        data, quarantine = self.out / DATA, self.out / QUARANTINE
        data.mkdir(exist_ok=True)
        for split in SPLITS:
            for old in data.glob(f"{split}-[0-9]*.parquet"):
                old.unlink()
        self.written = [one.rename(data / one.name) for one in made]
        if self._quarantine is None:
            quarantine.unlink(missing_ok=True)
        else:
            self.written.append(quarantine)
