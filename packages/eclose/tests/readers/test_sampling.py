"""Samples follow from seed, benchmark and id alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.errors import RecordError, SettingError
from eclose.files.jsonl import ReadRecord
from eclose.readers.sampling import draw_instance_sample, instance_matches_filter, sample_instances
from eclose.values.identity import hash_sort_key
from eclose.values.instance import Instance, Passage


def make(id_, kind="bridge", hops=2):
    return Instance(id_, "Q?", (Passage("0", "", "text"),), benchmark="B", kind=kind, hops=hops)


ids = st.lists(st.text(max_size=5), min_size=1, max_size=40, unique=True)


@given(ids, st.integers(), st.data())
def test_a_smaller_sample_begins_the_larger(names, seed, data):
    large = data.draw(st.integers(1, len(names)))
    small = data.draw(st.integers(1, large))
    instances = [make(name) for name in names]
    assert sample_instances(instances, small, seed=seed) == sample_instances(instances, large, seed=seed)[:small]


@pytest.mark.slow
@given(ids, st.randoms(use_true_random=False), st.data())
def test_neither_the_order_of_the_file_nor_repeats_matter(names, shuffler, data):
    n = data.draw(st.integers(1, len(names)))
    instances = [make(name) for name in names]
    mixed = instances + data.draw(st.lists(st.sampled_from(instances), max_size=10))
    shuffler.shuffle(mixed)
    assert sample_instances(mixed, n) == sample_instances(instances, n)


def test_the_order_is_that_of_the_hash():
    instances = [make(str(number)) for number in range(200)]
    by_hash = sorted(instances, key=lambda instance: hash_sort_key(42, "B", instance.id))
    assert sample_instances(iter(instances), 50) == by_hash[:50]


def test_the_seed_and_the_benchmark_change_the_order():
    instances = [make(str(number)) for number in range(50)]
    assert sample_instances(instances, 50, seed=1) != sample_instances(instances, 50, seed=2)


def test_the_sample_of_today_is_the_sample_of_tomorrow():
    # Pinned: a change here would make every published sample another one.
    instances = [make(str(number)) for number in range(1000)]
    random.Random(7).shuffle(instances)
    assert [instance.id for instance in sample_instances(instances, 5)] == ["211", "856", "905", "776", "990"]


def test_asking_for_too_many_says_how_many_there_are():
    with pytest.raises(SettingError, match="asked for 4 instances, but there are only 2 to draw from"):
        sample_instances([make("a"), make("b"), make("a")], 4)


@pytest.mark.parametrize("n", [0, -1])
def test_a_sample_of_nothing_is_refused(n):
    with pytest.raises(SettingError, match="at least one"):
        sample_instances([make("a")], n)


def test_filters_by_type_and_hops():
    instances = [make("a"), make("b", kind="comparison"), make("c", hops=4), make("d", kind=None, hops=None)]
    assert [item.id for item in instances if instance_matches_filter(item, kinds=["bridge"])] == ["a", "c"]
    assert [item.id for item in instances if instance_matches_filter(item, hops=[2])] == ["a", "b"]
    assert [item.id for item in instances if instance_matches_filter(item, kinds=["bridge"], hops=[2, 3])] == ["a"]
    assert all(map(instance_matches_filter, instances))


def test_a_draw_accounts_for_everything():
    records = [ReadRecord(f"line {n}", make(str(n)), repairs=("mended",)) for n in range(10)]
    records += [ReadRecord("line 11", make("x", kind="comparison")), ReadRecord("line 12", rejected="duplicate")]
    sample, tally = draw_instance_sample(records, 3, kinds=["bridge"])
    for record in sample:
        tally.add(record)
    counts = tally.counts()
    assert counts.conserved
    assert (counts.received, counts.accepted) == (12, 3)
    assert counts.rejected == {"not drawn": 7, "other kind or number of hops": 1, "duplicate": 1}
    assert counts.repaired == {"mended": 3}


def test_a_draw_refuses_a_file_that_cannot_be_read_whole():
    records = [ReadRecord("line 1", error=RecordError("is wrong", path="f", record="line 1"))]
    with pytest.raises(RecordError, match="f line 1: is wrong"):
        draw_instance_sample(records, 1)
