"""Split of families into training and development, by ids alone, so that it never changes.

Within each dataset families are ranked by a hash of the dataset and the source's id; the first tenth is for
development. All views of a source belong to one family and stay together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.files.families import scan_families
from eclose.files.jsonl import ReadRecord
from eclose.files.manifest import read_manifest
from eclose.files.run_folder import DEVELOPMENT, FAMILIES_FILE, TRAIN
from eclose.files.step import PipelineStep, companion_file_path, write_step_files
from eclose.values.identity import SPLIT_SALT, split_by_hash
from eclose.values.instance import dataset_of_benchmark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from eclose.values.family import Family

SPLIT_STAGE = "families split"
OTHER_PART_REASON = "in the other part"
"""Reason recorded for families of the other split."""


def select_development_ids(sources: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the source ids for development, from pairs of dataset and source id."""
    split = split_by_hash(sources, stratum=lambda source: source[0], identity=lambda source: source[1])
    return frozenset(source_id for _, source_id in split.development)


def split_families(folder: Path) -> None:
    """Write ``train.jsonl`` and ``development.jsonl`` beside ``families.jsonl``, unless they are up to date.

    Both are derived from the families, so files of an earlier state are replaced.
    """
    families, settings = folder / FAMILIES_FILE, {"salt": SPLIT_SALT}
    steps = [
        PipelineStep(f"{SPLIT_STAGE} {name}", settings, (families,), folder / name) for name in (TRAIN, DEVELOPMENT)
    ]
    if all(_is_finished(step) for step in steps):
        return
    # Two passes over the file, one for the ids and one for the families: a corpus need not fit into memory.
    development = select_development_ids(
        (dataset_of_benchmark(record.value.source.benchmark), record.value.source.id)
        for record in scan_families(families)
        if record.value is not None
    )
    write_step_files(steps, _split_records(families, development))


def _is_finished(step: PipelineStep) -> bool:
    try:
        return step.claim() is not None
    except UserError:
        return False  # written for other families, or interrupted


def is_split_file(path: Path) -> bool:
    """Return whether a file was written by ``split_families``."""
    # Recognised by its manifest rather than by its name, so that a user's own train.jsonl is safe.
    manifest = companion_file_path(path, "manifest.json")
    return manifest.is_file() and read_manifest(manifest).stage.startswith(SPLIT_STAGE)


def _split_records(
    families: Path, development: frozenset[str]
) -> Iterator[tuple[ReadRecord[Family], ReadRecord[Family]]]:
    """Yield every record for training and for development, rejected in the split it does not belong to."""
    for record in scan_families(families):
        other: ReadRecord[Family] = ReadRecord(record.where, rejected=OTHER_PART_REASON)
        held_out = record.value is not None and record.value.source.id in development
        if record.value is None:
            yield record, record
        else:
            yield (other, record) if held_out else (record, other)
