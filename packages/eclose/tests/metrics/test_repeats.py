from __future__ import annotations

import pytest

from eclose.metrics.repeats import count_label_flips
from eclose.values.judgment import Judgment


def voted(**votes):
    return Judgment("r", "j", (), votes=votes)


def test_responses_that_flip_and_pairs_that_differ_are_counted():
    flips = count_label_flips(
        [voted(L=(True, True, False)), voted(L=(True, True, True)), voted(L=(False, None, False))]
    )["L"]
    assert (flips.responses, flips.flipped, flips.pairs, flips.differing) == (3, 1, 7, 2)
    assert flips.rate == pytest.approx(1 / 3)
    assert flips.pair_rate == pytest.approx(2 / 7)
    assert flips.interval is not None
    assert flips.interval.low < 1 / 3 < flips.interval.high


def test_a_label_that_was_had_once_cannot_flip():
    flips = count_label_flips([voted(C=(None, True, None)), voted(C=(None, None, None))])["C"]
    assert (flips.responses, flips.rate, flips.pair_rate, flips.interval) == (0, None, None, None)


def test_nothing_repeated_is_nothing_to_tell():
    assert count_label_flips([Judgment("r", "j", ())]) == {}


def test_criteria_come_in_their_order_and_the_evidence_last():
    assert list(count_label_flips([voted(evidence=(True, True), Acc=(True, True), L=(True, True))])) == [
        "L",
        "Acc",
        "evidence",
    ]
