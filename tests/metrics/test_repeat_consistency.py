from __future__ import annotations

import pytest

from eclose.core.judgment import Judgment
from eclose.metrics.repeat_consistency import count_flips


def voted(**votes):
    return Judgment("r", "j", (), votes=votes)


def test_responses_that_flip_and_pairs_that_differ_are_counted():
    found = count_flips([voted(L=(True, True, False)), voted(L=(True, True, True)), voted(L=(False, None, False))])["L"]
    assert (found.responses, found.flipped, found.pairs, found.differing) == (3, 1, 7, 2)
    assert found.rate == pytest.approx(1 / 3)
    assert found.pair_rate == pytest.approx(2 / 7)
    assert found.interval is not None
    assert found.interval.low < 1 / 3 < found.interval.high


def test_a_label_that_was_had_once_cannot_flip():
    found = count_flips([voted(C=(None, True, None)), voted(C=(None, None, None))])["C"]
    assert (found.responses, found.rate, found.pair_rate, found.interval) == (0, None, None, None)


def test_nothing_repeated_is_nothing_to_tell():
    assert count_flips([Judgment("r", "j", ())]) == {}


def test_criteria_come_in_their_order_and_the_evidence_last():
    assert list(count_flips([voted(evidence=(True, True), Acc=(True, True), L=(True, True))])) == [
        "L",
        "Acc",
        "evidence",
    ]
