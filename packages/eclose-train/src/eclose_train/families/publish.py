"""Data card of families, and their export as a folder for a dataset hub: a Parquet table per split, card, manifest.

Numbers of a card are counted in the files, so it can be written again at any time. Names of datasets come from outside
and are escaped, so that they cannot act as markup, as a link or as the end of a cell.

Running an export again does nothing. Files of another origin are replaced only with ``force``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, TypeAlias

from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.families import scan_families, write_families_parquet
from eclose.files.json_reader import read_json_objects, require_regular_file
from eclose.files.manifest import Manifest, hash_file, hash_files, hash_work_identity, read_manifest
from eclose.files.outcome_counts import RecordCounter
from eclose.files.run_folder import CARD_FILE
from eclose.readers import benchmarks
from eclose.values.identity import canonical_json, content_hash
from eclose.values.instance import dataset_of_benchmark
from eclose_train.families.files import SPLIT_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eclose.values.family import Family

CountsBySplit: TypeAlias = Mapping[str, Mapping[str, int]]
"""Numbers of families by split and dataset."""

LICENCES: Mapping[str, str] = {
    benchmarks.HOTPOT_BENCHMARK: "cc-by-sa-4.0",
    benchmarks.MUSIQUE_BENCHMARK: "cc-by-4.0",
    # By the mirror of its authors; the README of its repository names none.
    benchmarks.TWO_WIKI_BENCHMARK: "apache-2.0",
    # The questions of ``eclose world make``, made up from no other source. Another dataset may be called world-… too.
    "world-2wiki": "apache-2.0",
    "world-hotpot": "apache-2.0",
    "world-musique": "apache-2.0",
    "world-short-easy": "apache-2.0",
    "world-short-hard": "apache-2.0",
    "world-confusable-short": "apache-2.0",
    "world-confusable-long": "apache-2.0",
}
"""Licences by benchmark name, by the identifiers of dataset hubs."""
UNKNOWN = "unknown"
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
# Beside Markdown's own signs: bare URLs and www. addresses, which renderers turn into links, and @ and # of hubs.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&|~$@#]|:(?=//)|(?<=\bwww)\.", re.IGNORECASE)
_MARK = b"\n<!-- written by eclose, "
"""Start of the last line of a card; the hash after it shows whether the card was edited."""
_TEMPLATE = """\
---
pretty_name: Counterfactual families
license: {licence_ids}
task_categories: [question-answering, text-generation]
tags: [eclose, multi-hop, counterfactual, reasoning]
size_categories: [{size}]
{configs}---

# Counterfactual families

A family is a multi-hop question with its passages and a response; the same question over passages in which one claim
was changed, with the response that then follows; and another question to the same passages, with its response.
Families measure, and train, whether a model follows its evidence, its question and its own reasoning.

> Edited passages are false on purpose. Do not use them as a source of facts.

The families are no random sample of their sources: they are those whose parts passed every check, and parts may have
been built again until they did, which favours what verifiers accept. Families built by models name these in
`provenance`.

## Number of families

{counts}

## Licences

{licences}

Confirm the licences of the sources before you publish. Works derived from share-alike texts (`-sa-`), these families
included, must carry the same licence and name their source. Texts written by a model may be subject to its provider's
terms.

## Citation

```bibtex
@misc{{chu2026locallysound,
  title  = {{Locally Sound, Globally Insufficient: The Local-Global Gap in Multi-Hop Reasoning}},
  author = {{Chu, Bohao and Damm, Hendrik and Wang, Qianli and Wang, Hui and Zhang, Shuning and
            Friedrich, Christoph M. and Fuhr, Norbert}},
  year   = {{2026}},
}}
```
"""


class DatasetCardState(StrEnum):
    """State of a folder's ``README.md``."""

    NONE = "none"
    """There is no file."""
    OURS = "ours"
    """A card, unchanged since it was written."""
    EDITED = "edited"
    """A card that was edited since."""
    FOREIGN = "foreign"
    """A file of another origin."""


def write_dataset_card(folder: Path, counts: CountsBySplit, files: Mapping[str, str]) -> None:
    """Write a card into a folder, with the file of each split that has families, as dataset hubs are told."""
    with AtomicFile(folder / CARD_FILE) as file:
        file.write(render_dataset_card(counts, files).encode())


def write_run_card(folder: Path) -> None:
    """Write a card of the splits in a run's folder."""
    paths = {split.value: folder / name for split, name in SPLIT_FILES.items() if (folder / name).is_file()}
    counts: dict[str, Counter[str]] = {split: Counter() for split in paths}
    for split, path in paths.items():
        for raw in read_json_objects(path):
            if raw.error is not None:
                raise raw.error
            counts[split][dataset_of_benchmark(((raw.value or {}).get("source") or {}).get("benchmark"))] += 1
    write_dataset_card(folder, counts, {split: paths[split].name for split, datasets in counts.items() if datasets})


def find_dataset_card_state(folder: Path) -> DatasetCardState:
    """Return whether a folder has a card, and whether the card was edited."""
    path = folder / CARD_FILE
    if not path.exists():
        return DatasetCardState.NONE
    # The last mark counts: text that was added after it makes the hash differ, as any other edit does.
    body, separator, mark = path.read_bytes().rpartition(_MARK)
    if not separator:
        return DatasetCardState.FOREIGN
    return DatasetCardState.OURS if mark == _hash_body(body) else DatasetCardState.EDITED


def render_dataset_card(counts: CountsBySplit, files: Mapping[str, str]) -> str:
    """Return the card as Markdown, with the front matter that dataset hubs read."""
    datasets = sorted({dataset for numbers in counts.values() for dataset in numbers})
    licences = {dataset: LICENCES.get(dataset, UNKNOWN) for dataset in datasets}
    rows = [(dataset, [numbers.get(dataset, 0) for numbers in counts.values()]) for dataset in datasets]
    totals = [sum(numbers.values()) for numbers in counts.values()]
    if len(rows) != 1:  # a total of one dataset would repeat its row
        rows.append(("all", totals))
    text = _TEMPLATE.format(
        licence_ids=json.dumps(sorted(set(licences.values())) or [UNKNOWN]),
        size=name_size_category(sum(totals)),
        configs=_hub_configs(files),
        counts=_table(
            ["dataset", *counts, "all"],
            [[escape_markdown(name), *(f"{number:,}" for number in (*row, sum(row)))] for name, row in rows],
        ),
        licences=_table(
            ["source", "licence"], [[escape_markdown(name), licence] for name, licence in licences.items()]
        ),
    )
    return text + (_MARK + _hash_body(text.encode())).decode()


def _hash_body(body: bytes) -> bytes:
    """Return the end of the last line: an edited card is recognised by its hash, and not overwritten."""
    return f"{content_hash(body.decode('utf-8', 'replace'))} -->\n".encode()


def escape_markdown(text: str) -> str:
    """Return text that Markdown renders literally, on one line."""
    printable = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
    return _SPECIAL.sub(r"\\\g<0>", printable)


def name_size_category(families: int) -> str:
    """Return the size category of dataset hubs for a number of families."""
    return next((name for most, name in _SIZES if families < most), "n>10M")


def _hub_configs(files: Mapping[str, str]) -> str:
    """Return the lines of the front matter that name the file of each split."""
    if not files:
        return ""
    # A string literal of JSON is valid in YAML too, with special characters included.
    lines = [f"  - split: {split}\n    path: {json.dumps(path)}" for split, path in files.items()]
    return "\n".join(["configs:", "- config_name: default", "  data_files:", *lines, ""])


def _table(columns: list[str], rows: list[list[str]]) -> str:
    """Return a table whose first column holds names and whose others are aligned right."""
    rule = "|---|" + "---:|" * (len(columns) - 1)
    return "\n".join([f"| {' | '.join(columns)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


EXPORT_STAGE = "families export"
EXPORT_SETTINGS = {"format": "datasets"}
DATA, MANIFEST, QUARANTINE = "data", "manifest.json", "quarantined.jsonl"
_TEMPORARY = ".making."
"""How the names of temporary folders begin; such a folder is left by a run that was killed."""


def export_dataset(source: Path, out: Path, *, force: bool = False) -> tuple[Manifest, bool]:
    """Write the families of a run's folder, or of a file, as a dataset; return the manifest and whether it was done."""
    splits = _find_split_files(source)
    folder = source if source.is_dir() else source.parent
    if out.resolve() == folder.resolve():
        raise SettingError(f"{out}: holds the families, and their card would be overwritten. Name another folder.")
    inputs = hash_files(list(splits.values()))
    if (
        not force
        and (finished := _read_finished(out, hash_work_identity(EXPORT_STAGE, EXPORT_SETTINGS, inputs))) is not None
    ):
        return finished, True
    tables = _Tables(out)
    tables.write(splits)
    files = {split: f"{DATA}/{split}-*.parquet" for split, datasets in tables.counts.items() if datasets}
    write_dataset_card(out, tables.counts, files)
    outputs = [*tables.written, out / CARD_FILE]
    manifest = Manifest(EXPORT_STAGE, EXPORT_SETTINGS, inputs, hash_files(outputs), tables.tally.counts())
    # Last: a folder without a manifest is an unfinished export.
    manifest.write(out / MANIFEST)
    return manifest, False


def _find_split_files(source: Path) -> dict[str, Path]:
    """Return the files of a run's folder by split name; a single file is for training."""
    if not source.is_dir():
        require_regular_file(source)
        return {"train": source}
    splits = {split.value: source / name for split, name in SPLIT_FILES.items()}
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
            temporary, tables = Path(mkdtemp(dir=self.out, prefix=_TEMPORARY)), list[Path]()
            try:
                with self._files:
                    for split in splits:
                        self.counts[split] = Counter()
                        tables += write_families_parquet(temporary, split, self._read_families(split, splits[split]))
                self._move(tables)
            finally:
                rmtree(temporary, ignore_errors=True)
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error})"
            raise UserError(f"{self.out}: {problem}. Choose another folder or free some space.") from error

    def _read_families(self, split: str, path: Path) -> Iterator[Family]:
        """Yield the families of a file; count all records, and quarantine unreadable ones with their error."""
        for record in scan_families(path):
            self.tally.add(record)
            if record.error is not None:
                if self._quarantine is None:
                    self._quarantine = self._files.enter_context(AtomicFile(self.out / QUARANTINE))
                line = {"where": f"{path.name}, {record.where}", "error": str(record.error)}
                self._quarantine.write(canonical_json(line).encode("utf-8", "backslashreplace") + b"\n")
            elif record.value is not None:
                self.counts[split][dataset_of_benchmark(record.value.source.benchmark)] += 1
                yield record.value

    def _move(self, tables: Iterable[Path]) -> None:
        data, quarantine = self.out / DATA, self.out / QUARANTINE
        data.mkdir(exist_ok=True)
        # Shards of an older, longer table would be read as part of this one.
        for split in SPLIT_FILES:
            for old in data.glob(f"{split}-[0-9]*.parquet"):
                old.unlink()
        self.written = [table.rename(data / table.name) for table in tables]
        if self._quarantine is None:
            quarantine.unlink(missing_ok=True)
        else:
            self.written.append(quarantine)
