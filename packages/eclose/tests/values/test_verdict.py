"""Derived labels: equal to the paper's definitions when all is known, and never a guess when it is not."""

from itertools import product

import pytest

from eclose import FailureClass, Verdict
from eclose.values.verdict import AbstentionOutcome, TraceGroup
from tests.tables import each_row

LABELS = (True, False, None)
ALL = [Verdict(*labels) for labels in product(LABELS, repeat=5)]
KNOWN = [Verdict(*labels) for labels in product((True, False), repeat=5)]


def completions(verdict):
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    return [Verdict(*world) for world in product(*((True, False) if x is None else (x,) for x in labels))]


@pytest.mark.parametrize("verdict", KNOWN)
def test_known_labels_follow_the_definitions(verdict):
    sufficient = verdict.aligned and verdict.closed
    assert verdict.globally_sufficient == sufficient
    assert verdict.in_gap == (verdict.locally_sound and not sufficient)
    assert verdict.reliable == (verdict.locally_sound and sufficient)
    expected = None
    if not verdict.aligned:
        expected = FailureClass.PATH_DEVIATION
    elif not verdict.closed:
        expected = FailureClass.ANSWER_DECOUPLING if verdict.complete else FailureClass.INCOMPLETE_REASONING
    assert verdict.failure_class is expected


@pytest.mark.parametrize("verdict", KNOWN)
def test_the_three_groups_are_disjoint_and_cover_everything(verdict):
    conditions = {
        TraceGroup.RELIABLE: verdict.reliable,
        TraceGroup.GAP: verdict.in_gap,
        TraceGroup.LOCALLY_UNSOUND: not verdict.locally_sound,
    }
    assert [group for group, holds in conditions.items() if holds] == [verdict.trace_group]


@each_row(ALL)
def test_an_unknown_label_never_decides(verdict):
    """A derived label is known exactly when every completion of the unknowns gives the same one."""
    worlds = completions(verdict)
    for name in ("globally_sufficient", "reliable", "in_gap", "trace_group"):
        outcomes = {getattr(world, name) for world in worlds}
        assert getattr(verdict, name) == (outcomes.pop() if len(outcomes) == 1 else None), name
    if verdict.failure_class in {
        FailureClass.PATH_DEVIATION,
        FailureClass.ANSWER_DECOUPLING,
        FailureClass.INCOMPLETE_REASONING,
    }:
        assert {world.failure_class for world in worlds} == {verdict.failure_class}
    if verdict.inconsistent:
        assert all(world.inconsistent for world in worlds)


def test_closure_failure_of_unknown_kind():
    assert Verdict(aligned=True, closed=False).failure_class is FailureClass.CLOSURE_FAILURE


def test_insufficient_without_knowing_which_link_broke_first():
    verdict = Verdict(locally_sound=True, closed=False, complete=True)
    assert verdict.in_gap is True
    assert verdict.failure_class is FailureClass.UNDETERMINED


def test_unknown_sufficiency_has_no_failure_class():
    assert Verdict(aligned=True).failure_class is None


def test_reliable_but_wrong_is_flagged():
    assert Verdict(True, True, True, True, False).inconsistent
    assert not Verdict(True, True, True, True, None).inconsistent
    assert not Verdict(False, True, True, True, False).inconsistent


@pytest.mark.parametrize("sufficient, outcome", [(True, "wrong"), (False, "right"), (None, "unknown")])
def test_abstention_is_right_where_the_passages_do_not_settle_the_question(sufficient, outcome):
    assert AbstentionOutcome.of(sufficient) == outcome
