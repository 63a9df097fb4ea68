"""The split into training and development: by names alone, dataset by dataset, a tenth of each."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice

import pytest

from eclose.files import jsonl
from eclose.files.manifest import read_manifest
from eclose.values.family import Family
from eclose.values.instance import dataset_of_benchmark
from eclose_train.families.split import select_development_ids, split_families
from eclose_world.make.families import make_world_families


def named(dataset, count):
    return [(dataset, f"{dataset}-{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("count", "held_out"), [(0, 0), (4, 0), (5, 1), (14, 1), (15, 2), (1276, 128), (559, 56), (1017, 102)]
)
def test_a_tenth_of_each_dataset_rounded_to_the_nearest(count, held_out):
    assert len(select_development_ids(named("a", count))) == held_out


def test_the_papers_sizes_come_out():
    sizes = {"2wiki": 1276, "musique": 559, "hotpotqa": 1017}
    chosen = select_development_ids([pair for dataset, count in sizes.items() for pair in named(dataset, count)])
    assert (sum(sizes.values()) - len(chosen), len(chosen)) == (2566, 286)


def test_neither_order_nor_other_datasets_matter():
    ours, others = named("a", 200), named("b", 70)
    mixed = [*ours, *others]
    random.Random(1).shuffle(mixed)
    assert select_development_ids(mixed) == select_development_ids(ours) | select_development_ids(others)


def test_a_family_more_moves_at_most_one_to_the_other_side():
    before, after = select_development_ids(named("a", 204)), select_development_ids(named("a", 205))
    assert len(before ^ after) <= 2


@pytest.fixture
def run(tmp_path):
    families = [
        replace(family, source=replace(family.source, benchmark=benchmark))
        for profile, benchmark in (("short-easy", "one"), ("short-hard", None))
        for family in islice(make_world_families(profile, 5), 12)
    ]
    jsonl.write_records(tmp_path / "families.jsonl", families)
    return tmp_path


@pytest.mark.slow
def test_two_files_hold_every_family_once_byte_for_byte(run):
    split_families(run)
    parts = [(run / name).read_bytes().splitlines() for name in ("train.jsonl", "development.jsonl")]
    assert [len(part) for part in parts] == [22, 2]
    assert sorted(parts[0] + parts[1]) == sorted((run / "families.jsonl").read_bytes().splitlines())
    held_out = list(jsonl.read_records(run / "development.jsonl", Family))
    assert sorted(dataset_of_benchmark(family.source.benchmark) for family in held_out) == ["one", "unknown"]
    manifest = read_manifest(run / "train.jsonl.manifest.json")
    assert (manifest.counts.received, manifest.counts.accepted) == (24, 22)


@pytest.mark.slow
def test_a_second_time_nothing_is_written_and_what_is_lost_comes_back(run):
    split_families(run)
    before = (run / "train.jsonl").read_bytes()
    stamp = (run / "train.jsonl").stat().st_mtime_ns
    split_families(run)
    assert (run / "train.jsonl").stat().st_mtime_ns == stamp
    (run / "development.jsonl").unlink()
    split_families(run)
    assert (run / "train.jsonl").read_bytes() == before
    assert (run / "development.jsonl").read_bytes()
