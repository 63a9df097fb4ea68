"""The sample of a run that is read in one pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from tests.diagnosis.judged_responses import random_cases

from eclose.diagnosis.counts import CountedResponse
from eclose.diagnosis.response_counter import ResponseCounter, ResponseSample, ResponseStratum

HOLDS, FAILS = ResponseStratum("reliable", "d", "m"), ResponseStratum("unsound", "d", "m")


def offer(strata, size, order=1):
    sample = ResponseSample(size)
    for position, stratum in list(enumerate(strata))[::order]:
        sample.add(stratum, f"r{position}", (position,))
    return sample


def positions(sample):
    return [position for (position,), _ in sample.choose()]


def test_everything_is_chosen_where_it_fits():
    assert positions(offer([HOLDS, FAILS, HOLDS], 3)) == [0, 1, 2]


def test_failures_come_first():
    chosen = positions(offer([HOLDS] * 90 + [FAILS] * 10, 20))
    assert len(chosen) == 20
    assert set(range(90, 100)) < set(chosen)


def test_some_places_are_kept_for_reliable_responses():
    outcomes = Counter(outcome for _, outcome in offer([HOLDS] * 90 + [FAILS] * 90, 20).choose())
    assert outcomes == {"reliable": 4, "unsound": 16}


def test_failures_fill_the_places_that_reliable_responses_leave():
    outcomes = Counter(outcome for _, outcome in offer([HOLDS] * 2 + [FAILS] * 90, 20).choose())
    assert outcomes == {"reliable": 2, "unsound": 18}


def test_small_strata_are_chosen_in_full():
    rare = FAILS._replace(model="rare")
    chosen = positions(offer([FAILS] * 500 + [rare] * 7 + [HOLDS] * 50, 40))
    assert set(range(500, 507)) <= set(chosen)


def mixed(seed, count=400):
    draw = Random(seed)
    return [
        ResponseStratum(draw.choice(["reliable", "unsound", "gap"]), draw.choice("ab"), draw.choice("xyz"))
        for _ in range(count)
    ]


@pytest.mark.parametrize("size", [0, 1, 15, 37, 100])
def test_neither_order_nor_division_changes_the_sample(size):
    strata = mixed(size)
    whole = offer(strata, size).choose()
    assert len(whole) == size
    assert offer(strata, size, order=-1).choose() == whole
    merged = ResponseSample(size)
    for first in range(0, len(strata), 90):
        part = ResponseSample(size)
        for position in range(first, min(first + 90, len(strata))):
            part.add(strata[position], f"r{position}", (position,))
        merged.include(part)
    assert merged.choose() == whole
    assert merged.judged == Counter(stratum.outcome for stratum in strata)


def test_a_choice_leaves_the_sample_as_it_is():
    sample = offer(mixed(3), 30)
    assert sample.choose() == sample.choose()


def test_the_prefix_tells_equal_positions_apart():
    merged = ResponseSample(10)
    for number in range(2):
        merged.include(offer([FAILS, HOLDS], 10), prefix=(number,))
    assert [position for position, _ in merged.choose()] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_hash_of_a_response_leaves_its_judgment_out():
    facts = [CountedResponse.of(case) for case in random_cases(3, count=2)]
    changed = replace(facts[0], verdict=facts[1].verdict, judge="another")
    counter = ResponseCounter(5, keep_hashes=True)
    for number, response in enumerate((facts[0], changed, replace(facts[0], model="another"))):
        counter.add(response, (number,))
    first, second, third = counter.hashes.facts
    assert first == second != third
    assert len(set(counter.hashes.ids)) == 1
