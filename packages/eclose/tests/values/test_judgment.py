"""One judge's opinion, and which reason is reported when several apply."""

from itertools import combinations

import pytest

from eclose import Judgment, Verdict
from eclose.values.judgment import (
    EVIDENCE,
    INELIGIBILITY_PRECEDENCE,
    NEVER_ASKED_REASONS,
    NO_CLAIM_REASON,
    WHOLE_TRACE_REASON,
    Criterion,
    Ineligibility,
    LocalFailure,
    PassageLabel,
    PassageLabels,
    PassageUse,
    ReferenceClaim,
    StepJudgment,
    missing_reason_kind,
    primary_ineligibility,
)

SOUND, UNSOUND = StepJudgment(True, True), StepJudgment(True, False, LocalFailure.INVALID_INFERENCE)
PLAN, OPEN = StepJudgment(False), StepJudgment(True)


def judged(*steps, **labels):
    return Judgment("r", "a1", steps, **labels)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((SOUND, PLAN, SOUND), True),
        ((SOUND, UNSOUND), False),
        ((SOUND, OPEN), None),
        ((UNSOUND, OPEN), False),
        ((PLAN, PLAN), True),
        ((), True),
        ((StepJudgment(None, None),), None),
        ((StepJudgment(None, True),), True),
        ((StepJudgment(None, False),), None),
    ],
)
def test_local_soundness_asks_only_substantive_steps(steps, expected):
    assert judged(*steps).locally_sound is expected


def test_steps_judged_together_are_no_single_steps():
    assert judged(SOUND, UNSOUND).stepwise
    assert not judged(StepJudgment(True, False, reason=WHOLE_TRACE_REASON)).stepwise


def test_an_unjudged_trace_is_not_sound_by_being_empty():
    assert judged(unjudged={Criterion.LOCAL_SOUNDNESS: "the judge timed out"}).locally_sound is None


def test_reasons_of_missing_labels_include_the_evidence():
    missing = judged(unjudged={Criterion.CLOSURE: "refusal"}, evidence_unjudged="timeout")
    assert missing.missing_reasons == {"evidence": "timeout", "C": "refusal"}
    assert judged(unjudged={Criterion.CLOSURE: "refusal"}).missing_reasons == {"C": "refusal"}
    assert judged(SOUND).missing_reasons == {}


def test_a_judgment_gives_a_verdict():
    judgment = judged(SOUND, aligned=True, closed=False, complete=True, correct=None)
    assert judgment.verdict == Verdict(True, True, False, True, None)


def test_codes_are_the_papers():
    assert [code.value for code in LocalFailure] == ["L1", "L2", "L3", "L4", "L5"]
    assert [code.value for code in INELIGIBILITY_PRECEDENCE] == ["N4", "N1", "N2", "N3", "N5"]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_first_applicable_reason_is_reported(size):
    for applying in combinations(Ineligibility, size):
        first = next(code for code in INELIGIBILITY_PRECEDENCE if code in applying)
        assert primary_ineligibility(reversed(applying)) is first


def test_no_reason_to_exclude():
    assert primary_ineligibility([]) is None


def test_labels_go_by_their_criterion():
    judgment = judged(SOUND, aligned=True, closed=False, correct=False, evidence_sufficient=True)
    assert [judgment.label(criterion) for criterion in Criterion] == [True, True, False, None, False]
    assert judgment.label(EVIDENCE) is True


def test_the_kind_of_a_reason_stands_before_its_details():
    assert missing_reason_kind("invalid: 'a' is missing: really") == "invalid"
    assert {missing_reason_kind(reason) for reason in NEVER_ASKED_REASONS} == NEVER_ASKED_REASONS


@pytest.mark.parametrize("steps", [(), (PLAN, SOUND), (PLAN, StepJudgment(None))])
def test_judgment_of_a_trace_that_may_claim_something_is_not_withheld(steps):
    judgment = judged(*steps, aligned=True, closed=True, complete=True, correct=True)
    assert judgment.withhold_hollow_trace() is judgment


def test_trace_of_plans_alone_is_unknown_when_withheld_and_its_answer_stays_judged():
    labels = {"aligned": False, "closed": False, "complete": False, "correct": True}
    reasons = {Criterion.ALIGNMENT: "It plans.", Criterion.CORRECTNESS: "It matches."}
    judgment = judged(PLAN, PLAN, **labels, reasons=reasons).withhold_hollow_trace()
    verdict = judgment.verdict
    assert (judgment.locally_sound, verdict.aligned, verdict.closed, verdict.complete) == (None,) * 4
    assert verdict.correct
    assert set(judgment.unjudged.values()) == {NO_CLAIM_REASON}
    assert judgment.reasons == {Criterion.CORRECTNESS: "It matches."}


@pytest.mark.parametrize(
    "uses, precision",
    [("NN", 1.0), ("-N", 0.5), ("N-N", (1 + 2 / 3) / 2), ("--", 0.0), ("xN", 0.5), ("", None)],
)
def test_context_precision_ranks_needed_passages(uses, precision):
    by_letter = {"N": PassageUse.NEEDED, "-": PassageUse.NOT_NEEDED, "x": PassageUse.CONTRADICTS}
    labels = PassageLabels(tuple(PassageLabel(by_letter[use]) for use in uses))
    assert labels.precision == precision


def test_context_recall_is_the_share_of_supported_claims_and_undefined_without_any():
    claims = tuple(ReferenceClaim("a claim", supported=supported) for supported in (True, True, False))
    assert PassageLabels(claims=claims).recall == pytest.approx(2 / 3)
    assert PassageLabels().recall is None
