"""Seeded samples of instances, independent of the order of the file.

Instances are ranked by a hash of seed, benchmark and id; a sample of n is the first n. A larger sample therefore starts
with the smaller one.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Any

from eclose.core.identity import hash_sort_key
from eclose.errors import SettingError
from eclose.store.records.jsonl import ReadRecord
from eclose.store.records.outcome_counts import RecordCounter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from eclose.core.instance import Instance

DEFAULT_SEED = 42
NOT_DRAWN = "not drawn"
NOT_SELECTED = "other kind or number of hops"


def sample_instances(instances: Iterable[Instance], n: int, *, seed: int = DEFAULT_SEED) -> list[Instance]:
    """Return the first n instances in seeded order: a sample of 600 starts with the sample of 300.

    Memory holds n instances at a time. An id that occurs twice is drawn once.
    """
    if n < 1:
        raise SettingError(f"n: a sample has at least one instance, not {n}.")
    drawn: dict[int, Instance] = {}
    worst_first: list[int] = []  # negated ranks: heapq keeps the smallest first
    for instance in instances:
        rank = rank_in_seeded_order(instance, seed)
        # The worst rank only falls, so an instance that was dropped never returns and its id need not be remembered.
        if rank in drawn or (len(drawn) == n and rank > -worst_first[0]):
            continue
        drawn[rank] = instance
        heapq.heappush(worst_first, -rank)
        if len(drawn) > n:
            del drawn[-heapq.heappop(worst_first)]
    if len(drawn) < n:
        raise SettingError(f"n: asked for {n} instances, but there are only {len(drawn)} to draw from.")
    return [drawn[rank] for rank in sorted(drawn)]


def instance_matches_filter(instance: Instance, *, kinds: Collection[str] = (), hops: Collection[int] = ()) -> bool:
    """Return whether an instance passes both filters."""
    return (not kinds or instance.kind in kinds) and (not hops or instance.hops in hops)


def draw_instance_sample(
    records: Iterable[ReadRecord[Instance]],
    n: int,
    *,
    seed: int = DEFAULT_SEED,
    kinds: Collection[str] = (),
    hops: Collection[int] = (),
) -> tuple[list[ReadRecord[Instance]], RecordCounter]:
    """Return a sample of a file, and a counter of all other records. Raise where a record cannot be read."""
    # The instances are consumed by sample_instances below, so counts are taken while they pass by.
    left_out: Counter[str] = Counter()
    kind_counts: Counter[str] = Counter()
    hop_counts: Counter[int] = Counter()
    repairs: dict[str, tuple[str, ...]] = {}

    def candidates() -> Iterator[Instance]:
        for record in records:
            if record.error is not None:
                raise record.error
            if record.value is None:
                left_out[record.rejected or "no value"] += 1
                continue
            kind_counts.update(filter(None, [record.value.kind]))
            hop_counts.update(filter(None, [record.value.hops]))
            if not instance_matches_filter(record.value, kinds=kinds, hops=hops):
                left_out[NOT_SELECTED] += 1
            else:
                left_out[NOT_DRAWN] += 1
                if record.repairs:
                    repairs[record.value.id] = record.repairs
                yield record.value

    try:
        drawn = sample_instances(candidates(), n, seed=seed)
    except SettingError as short:
        raise SettingError(
            f"{short}{_list_counts('type', kind_counts)}{_list_counts('number of hops', hop_counts)}"
        ) from short
    # Every candidate was counted as not drawn above; the n that were drawn are accepted instead.
    left_out[NOT_DRAWN] -= n
    sampled = [
        ReadRecord(f"draw {number}", instance, repairs=repairs.get(instance.id, ()))
        for number, instance in enumerate(drawn, start=1)
    ]
    return sampled, RecordCounter(received=left_out.total(), rejected=+left_out)


def _list_counts(name: str, counts: Counter[Any]) -> str:
    """Return a sentence with the available values and their counts; empty where there are none."""
    listed = ", ".join(f"{value} ({count})" for value, count in sorted(counts.items()))
    return f" Questions by {name}: {listed}." if listed else ""


def rank_in_seeded_order(instance: Instance, seed: int) -> int:
    """Return the rank of an instance in the seeded order."""
    # With the benchmark, since ids of two benchmarks may be equal.
    return int(hash_sort_key(seed, instance.benchmark or "", instance.id), base=16)
