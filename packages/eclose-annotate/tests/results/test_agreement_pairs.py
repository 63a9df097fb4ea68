"""Agreement by person and by pair: undefined labels left out."""

from __future__ import annotations

import pytest

from eclose_annotate.annotations import group_annotations
from eclose_annotate.results.agreement_pairs import LabelMatch, measure_pair_agreement, measure_person_agreement
from tests.results.records import L1, annotation, screening

# Labels in the order A, C, K, Acc.
ROWS = (
    annotation("1", "ann"),
    annotation("1", "bob", labels="0111"),
    annotation("2", "ann"),
    annotation("2", "bob"),
    annotation("3", "ann", steps=(L1,)),
    annotation("3", "cyd", steps=(L1,), labels="1-11"),
    annotation("4", "cyd"),
)


@pytest.fixture
def pairs():
    return measure_pair_agreement(group_annotations(ROWS))


def test_pairs_are_compared_on_common_responses_lowest_first(pairs):
    assert [(pair.people, pair.subjects) for pair in pairs] == [(("ann", "bob"), 2), (("ann", "cyd"), 1)]
    assert pairs[0].labels["A"] == LabelMatch(1, 2)
    assert pairs[0].labels["C"] == LabelMatch(2, 2)
    assert pairs[0].overall == LabelMatch(9, 10)
    assert "C" not in pairs[1].labels
    assert pairs[1].labels["L"] == LabelMatch(1, 1)
    assert pairs[1].overall.share == 1
    assert LabelMatch(0, 0).share is None


def test_a_person_is_compared_with_all_others(pairs):
    persons = {row.people[0]: row for row in measure_person_agreement(pairs)}
    assert list(persons) == ["bob", "ann", "cyd"]
    assert persons["ann"].subjects == 3
    assert persons["ann"].labels["A"] == LabelMatch(2, 3)
    assert persons["ann"].labels["C"] == LabelMatch(2, 2)


def test_screeners_are_compared_on_eligibility():
    rows = [screening("q", "sue"), screening("q", "sam", "N4"), screening("r", "sue"), screening("r", "sam")]
    (pair,) = measure_pair_agreement(group_annotations((), rows))
    assert pair.people == ("sam", "sue")
    assert pair.labels == {"eligible": LabelMatch(1, 2)}
