"""Seeded samples that do not depend on the order of the file and can be extended without drawing anew.

Every instance has a place in an order that follows from seed, benchmark and id alone; a sample of n is the first n.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Any

from eclose.core.identity import hash_rank
from eclose.errors import SettingError
from eclose.store.records.counts import RecordCounter
from eclose.store.records.jsonl import ReadRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from eclose.core.instance import Instance

DEFAULT_SEED = 42
NOT_DRAWN = "not drawn"
NOT_SELECTED = "other kind or number of hops"


def sample_instances(instances: Iterable[Instance], n: int, *, seed: int = DEFAULT_SEED) -> list[Instance]:
    """The first n instances in seeded order: a sample of 300 begins every sample of 600.

    Memory holds n instances, however many there are. An id that occurs twice is drawn once.
    """
    if n < 1:
        raise SettingError(f"n: a sample has at least one instance, not {n}.")
    drawn: dict[int, Instance] = {}
    worst_first: list[int] = []
    for instance in instances:
        place = rank_instance(instance, seed)
        # What has been pushed out can never come back, so ids need to be remembered only while they are in.
        if place in drawn or (len(drawn) == n and place > -worst_first[0]):
            continue
        drawn[place] = instance
        heapq.heappush(worst_first, -place)
        if len(drawn) > n:
            del drawn[-heapq.heappop(worst_first)]
    if len(drawn) < n:
        raise SettingError(f"n: asked for {n} instances, but there are only {len(drawn)} to draw from.")
    return [drawn[place] for place in sorted(drawn)]


def filter_instances(
    instances: Iterable[Instance], *, kinds: Collection[str] = (), hops: Collection[int] = ()
) -> Iterator[Instance]:
    """The instances of the given question types and hop counts; an empty filter lets everything pass."""
    return (instance for instance in instances if matches_filter(instance, kinds=kinds, hops=hops))


def matches_filter(instance: Instance, *, kinds: Collection[str] = (), hops: Collection[int] = ()) -> bool:
    """Whether an instance passes both filters."""
    return (not kinds or instance.kind in kinds) and (not hops or instance.hops in hops)


def draw_sample(
    records: Iterable[ReadRecord[Instance]],
    n: int,
    *,
    seed: int = DEFAULT_SEED,
    kinds: Collection[str] = (),
    hops: Collection[int] = (),
) -> tuple[list[ReadRecord[Instance]], RecordCounter]:
    """A sample of a file, and the count of everything that is not in it. A record that cannot be read raises."""
    left_out: Counter[str] = Counter()
    kinds_seen: Counter[str] = Counter()
    hops_seen: Counter[int] = Counter()
    repairs: dict[str, tuple[str, ...]] = {}

    def candidates() -> Iterator[Instance]:
        for record in records:
            if record.error is not None:
                raise record.error
            if record.value is None:
                left_out[record.rejected or "no value"] += 1
                continue
            kinds_seen.update(filter(None, [record.value.kind]))
            hops_seen.update(filter(None, [record.value.hops]))
            if not matches_filter(record.value, kinds=kinds, hops=hops):
                left_out[NOT_SELECTED] += 1
            else:
                left_out[NOT_DRAWN] += 1
                if record.repairs:
                    repairs[record.value.id] = record.repairs
                yield record.value

    try:
        drawn = sample_instances(candidates(), n, seed=seed)
    except SettingError as short:
        raise SettingError(f"{short}{_seen('type', kinds_seen)}{_seen('number of hops', hops_seen)}") from short
    left_out[NOT_DRAWN] -= n
    kept = [
        ReadRecord(f"draw {place}", item, repairs=repairs.get(item.id, ())) for place, item in enumerate(drawn, start=1)
    ]
    return kept, RecordCounter(received=left_out.total(), rejected=+left_out)


def _seen(name: str, counts: Counter[Any]) -> str:
    """What there was to choose from; nothing where nothing was told."""
    listed = ", ".join(f"{value} ({count})" for value, count in sorted(counts.items()))
    return f" Questions by {name}: {listed}." if listed else ""


def rank_instance(instance: Instance, seed: int) -> int:
    """Return the place of an instance in the seeded order."""
    return int(hash_rank(seed, instance.benchmark or "", instance.id), base=16)
