"""What most repetitions say counts, with what the first of them says about it."""

from __future__ import annotations

import pytest

from eclose.judging.judge_response import take_majority_labels
from eclose.values.judgment import (
    EVIDENCE,
    REPETITIONS_DISAGREE_REASON,
    Criterion,
    Judgment,
    LocalFailure,
    StepJudgment,
)

SOUND, BROKEN = StepJudgment(True, True), StepJudgment(True, False, LocalFailure.OTHER)


def said(step=SOUND, **labels):
    return Judgment("r", "house/judge", (step,), **labels)


def test_one_judgment_stays_as_it_is():
    only = said(aligned=True)
    assert take_majority_labels([only]) is only


def test_each_label_follows_its_own_majority_and_takes_the_words_that_go_with_it():
    labels = take_majority_labels(
        [
            said(aligned=True, pursued="one", closed=False, established="Lima", evidence_sufficient=False),
            said(BROKEN, aligned=False, closed=True, established="Arica", reasons={Criterion.CLOSURE: "Yes."}),
            said(BROKEN, aligned=True, pursued="three", closed=True, established="Iquique", evidence_sufficient=False),
        ]
    )  # fmt: skip
    assert (labels.steps, labels.locally_sound) == ((BROKEN,), False)
    assert (labels.aligned, labels.pursued) == (True, "one")
    assert (labels.closed, labels.established, labels.reasons) == (True, "Arica", {Criterion.CLOSURE: "Yes."})
    assert (labels.evidence_sufficient, labels.votes[EVIDENCE]) == (False, (False, None, False))
    assert labels.votes["L"] == (True, False, False)


@pytest.mark.parametrize(
    ("labels", "settled", "reason"),
    [
        ((True, False), None, REPETITIONS_DISAGREE_REASON),
        ((True, None), True, None),
        ((None, None), None, "refusal"),
        ((True, False, None), None, REPETITIONS_DISAGREE_REASON),
        ((False, None, None), False, None),
    ],
)
def test_who_does_not_say_anything_does_not_vote_and_a_tie_is_left_open(labels, settled, reason):
    refused = {Criterion.CORRECTNESS: "refusal"}
    result = take_majority_labels([said(correct=label, unjudged=refused if label is None else {}) for label in labels])
    assert result.correct is settled
    assert result.unjudged.get(Criterion.CORRECTNESS) == reason
    assert result.votes["Acc"] == labels


@pytest.mark.parametrize(
    ("labels", "settled", "reason"),
    [
        ((True, False), None, REPETITIONS_DISAGREE_REASON),
        ((None, None), None, "refusal"),
        ((True, None), True, None),
    ],
)
def test_a_missing_majority_on_the_evidence_has_a_reason(labels, settled, reason):
    judgments = [
        said(evidence_sufficient=label, evidence_unjudged="refusal" if label is None else None) for label in labels
    ]
    majority = take_majority_labels(judgments)
    assert (majority.evidence_sufficient, majority.evidence_unjudged) == (settled, reason)


def test_steps_are_left_out_where_repetitions_disagree_about_them():
    labels = take_majority_labels([said(), said(BROKEN)])
    assert (labels.steps, labels.locally_sound) == ((), None)
    assert labels.unjudged[Criterion.LOCAL_SOUNDNESS] == REPETITIONS_DISAGREE_REASON
