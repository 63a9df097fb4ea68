"""Which families are for training and which for development: by their names alone, so that it never changes.

Within each dataset families are ranked by a hash of the dataset and the source's id; the first tenth is for
development. A source and all its views stay together, for they are one family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.core.identity import SPLIT_SALT, hash_split
from eclose.errors import UserError
from eclose.store.records.families import scan_families
from eclose.store.records.jsonl import ReadRecord
from eclose.store.runs.folder import DEVELOPMENT, FAMILIES, TRAIN
from eclose.store.runs.manifest import read_manifest
from eclose.store.runs.step import RunStep, sibling_path, write_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from eclose.core.family import Family

STAGE = "families split"
UNKNOWN = "unknown"
ELSEWHERE = "in the other part"


def dataset_of(benchmark: str | None) -> str:
    """What families are counted under."""
    return benchmark or UNKNOWN


def development_ids(sources: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The source ids for development, out of pairs of dataset and source id."""
    split = hash_split(sources, stratum=lambda one: one[0], identity=lambda one: one[1])
    return frozenset(source_id for _, source_id in split.development)


def split_families(folder: Path) -> None:
    """Write ``train.jsonl`` and ``development.jsonl`` beside ``families.jsonl``; nothing where they are there.

    They follow from the families, so what an earlier end of the run left of them is replaced.
    """
    families, told = folder / FAMILIES, {"salt": SPLIT_SALT}
    stages = [RunStep(f"{STAGE} {name}", told, (families,), folder / name) for name in (TRAIN, DEVELOPMENT)]
    if all(_done(stage) for stage in stages):
        return
    chosen = development_ids(
        (dataset_of(one.value.source.benchmark), one.value.source.id)
        for one in scan_families(families)
        if one.value is not None
    )
    write_steps(stages, _rows(families, chosen))


def _done(stage: RunStep) -> bool:
    try:
        return stage.claim() is not None
    except UserError:
        return False  # of other families, or broken off while it was written


def is_part(path: Path) -> bool:
    """Whether a file is one of the parts that are written here, and not somebody's own."""
    manifest = sibling_path(path, "manifest.json")
    return manifest.is_file() and read_manifest(manifest).stage.startswith(STAGE)


def _rows(families: Path, chosen: frozenset[str]) -> Iterator[tuple[ReadRecord[Family], ReadRecord[Family]]]:
    for record in scan_families(families):
        other: ReadRecord[Family] = ReadRecord(record.where, rejected=ELSEWHERE)
        held_out = record.value is not None and record.value.source.id in chosen
        if record.value is None:
            yield record, record
        else:
            yield (other, record) if held_out else (record, other)
