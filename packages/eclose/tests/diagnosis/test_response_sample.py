"""The responses that are shown of a large run."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from eclose.diagnosis.response_sample import ResponseStratum, choose_responses
from eclose.files.record_file import hash_ids
from eclose.stats.arrays import number_distinct_labels

HOLDS, FAILS = ResponseStratum("reliable", "d", "m"), ResponseStratum("unsound", "d", "m")


def positions(strata, size, ids=None):
    """Return the positions of the responses that are chosen."""
    stratum, names = number_distinct_labels(strata)
    ids = [f"r{position}" for position in range(len(strata))] if ids is None else ids
    return choose_responses(names, stratum, hash_ids(ids), size).tolist()


def outcomes(strata, size):
    return Counter(strata[position].outcome for position in positions(strata, size))


def test_everything_is_chosen_where_it_fits():
    assert positions([HOLDS, FAILS, HOLDS], 3) == [0, 1, 2]


def test_failures_come_first():
    chosen = positions([HOLDS] * 90 + [FAILS] * 10, 20)
    assert len(chosen) == 20
    assert set(range(90, 100)) < set(chosen)


def test_some_places_are_kept_for_reliable_responses():
    assert outcomes([HOLDS] * 90 + [FAILS] * 90, 20) == {"reliable": 4, "unsound": 16}


def test_failures_fill_the_places_that_reliable_responses_leave():
    assert outcomes([HOLDS] * 2 + [FAILS] * 90, 20) == {"reliable": 2, "unsound": 18}


def test_small_strata_are_chosen_in_full():
    rare = FAILS._replace(model="rare")
    chosen = positions([FAILS] * 500 + [rare] * 7 + [HOLDS] * 50, 40)
    assert set(range(500, 507)) <= set(chosen)


def mixed(seed, count=400):
    draw = Random(seed)
    return [
        ResponseStratum(draw.choice(["reliable", "unsound", "gap"]), draw.choice("ab"), draw.choice("xyz"))
        for _ in range(count)
    ]


@pytest.mark.parametrize("size", [0, 1, 15, 37, 100])
def test_the_order_does_not_change_the_sample(size):
    strata = mixed(size)
    whole = positions(strata, size)
    assert len(whole) == size
    ids = [f"r{position}" for position in range(len(strata))]
    assert sorted(len(strata) - 1 - position for position in positions(strata[::-1], size, ids[::-1])) == whole


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_stratum_gives_up_a_response_for_every_one_too_many(seed):
    strata, size = mixed(seed, count=120), 10 + 5 * seed
    ids = [f"r{Random(position).random()}" for position in range(len(strata))]
    groups = {}
    for position, hash_ in enumerate(hash_ids(ids).tolist()):
        groups.setdefault(strata[position], []).append((hash_, position))
    failures, reliable = (
        {g: sorted(m) for g, m in groups.items() if (g.outcome == "reliable") is kind} for kind in (False, True)
    )
    failed, reliable_count = (sum(map(len, part.values())) for part in (failures, reliable))
    places = min(reliable_count, size, max(size - min(failed, size), size - round(0.8 * size)))
    for part, limit in ((failures, size - places), (reliable, places)):
        while sum(map(len, part.values())) > limit:
            part[max(part, key=lambda group: (len(part[group]), group))].pop()
    expected = [position for part in (failures, reliable) for members in part.values() for _, position in members]
    assert positions(strata, size, ids) == sorted(expected)
