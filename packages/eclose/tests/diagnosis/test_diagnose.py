"""What a diagnosis counts, on responses whose truth is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from eclose.diagnosis.diagnose import (
    EvidenceSufficiency,
    JudgedCase,
    JudgeVersusMatching,
    ViolatedLabelCounts,
    diagnose_cases,
)
from eclose.diagnosis.response_failure import describe_response_failure
from eclose.errors import UserError
from eclose.metrics.rates import Metric
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import WHOLE_TRACE_REASON, Criterion, Judgment, LocalFailure, StepJudgment
from eclose.values.response import Response, ResponseSource, Trace
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.judge import judge_by_oracle

INSTANCE = Instance("i", "Where?", (Passage("0", "", "Arica."),), "Arica", benchmark="b")
HOLDS, FAILS = StepJudgment(True, True), StepJudgment(True, False, LocalFailure.INVALID_INFERENCE)


def case(*, steps=(HOLDS,), number=0, answer="Arica", **labels):
    values = {"aligned": True, "closed": True, "complete": True, "correct": True, "evidence_sufficient": True, **labels}
    response = Response(f"r{number}", "i", Trace.of(*("x" for _ in steps)), answer, ResponseSource("m"))
    return JudgedCase(INSTANCE, response, Judgment(f"r{number}", "judge", steps, **values))


def diagnosed(*cases, resamples=20):
    return diagnose_cases(cases)


@pytest.mark.slow
def test_everything_planted_is_counted():
    cases = []
    planted: Counter[object] = Counter()
    for item in islice(make_world_items("2wiki", 1), 10):
        for plan in (FailurePlan(), *Random(item.seed).sample(FAILURE_PLANS, 6)):
            if (response_case := break_response(item, plan, "x")) is not None:
                cases.append(
                    JudgedCase(
                        item.instance, response_case.response, judge_by_oracle(item.instance, response_case.response)
                    )
                )
                planted[
                    response_case.verdict.locally_sound, response_case.verdict.aligned, response_case.verdict.closed
                ] += 1
                planted.update(step.failure for step in response_case.steps if step.failure)
    diagnosis = diagnosed(*cases)
    assert diagnosis.joint == {key: count for key, count in planted.items() if isinstance(key, tuple)}
    assert diagnosis.local_failures == {key: count for key, count in planted.items() if isinstance(key, LocalFailure)}
    assert diagnosis.overall.responses == len(cases)
    assert diagnosis.judges == ("world oracle",)
    assert diagnosis.unjudged == {}


def test_rates_are_given_for_sufficient_and_insufficient_evidence_apart():
    cases = [
        case(number=0),
        case(number=1, closed=False),
        case(number=2, evidence_sufficient=False, aligned=False),
        case(number=3, evidence_sufficient=None),
    ]
    diagnosis = diagnosed(*cases)
    assert {kind: group.responses for kind, group in diagnosis.by_evidence.items()} == {
        EvidenceSufficiency.SUFFICIENT: 2, EvidenceSufficiency.INSUFFICIENT: 1, EvidenceSufficiency.UNJUDGED: 1
    }  # fmt: skip
    rate = diagnosis.by_evidence[EvidenceSufficiency.SUFFICIENT].rates[Metric.TRACE_RELIABILITY_RATE]
    assert (rate.hits, rate.n) == (1, 2)
    assert diagnosed(cases[0]).by_evidence.keys() == {EvidenceSufficiency.SUFFICIENT}


def of(model, benchmark, number, **labels):
    response_case = case(number=number, **labels)
    instance = replace(INSTANCE, id=f"i{number}", benchmark=benchmark)
    response = replace(response_case.response, instance_id=instance.id, source=ResponseSource(model))
    return replace(response_case, instance=instance, response=response)


def counted(groups):
    return [(group.group, group.responses, group.rates[Metric.TRACE_RELIABILITY_RATE].hits) for group in groups]


def test_models_are_counted_over_all_datasets_and_datasets_over_all_models():
    cases = [of("m", "b", 0), of("m", "c", 1, closed=False)]
    cases += [of("n", "b", number, closed=number % 3 != 0) for number in range(2, 32)]
    diagnosis = diagnosed(*cases)
    assert counted(diagnosis.by_model) == [(("m",), 2, 1), (("n",), 30, 20)]
    assert counted(diagnosis.by_dataset) == [(("b",), 31, 21), (("c",), 1, 0)]
    assert counted(diagnosis.pairs) == [(("b", "m"), 1, 1), (("b", "n"), 30, 20), (("c", "m"), 1, 0)]
    # The same responses have the same figures, whatever they are called.
    assert replace(diagnosis.by_model[1], group=()) == replace(diagnosis.pairs[1], group=())


@pytest.mark.parametrize(
    "cases",
    [
        [of("m", "b", 0), of("n", "b", 1)],
        [of("m", "b", 0), of("m", "c", 1)],
        [of("m", "b", 0), of("n", "c", 1)],
        [of("m", "b", 0)],
    ],
    ids=["one dataset", "one model", "a dataset for each model", "one of both"],
)
def test_no_groups_say_what_others_say(cases):
    diagnosis = diagnosed(*cases)
    assert (diagnosis.by_model, diagnosis.by_dataset) == ((), ())


def test_what_was_judged_again_is_counted_and_kin_is_named():
    again = replace(case(), judgment=replace(case().judgment, votes={"C": (True, False)}))
    diagnosis = diagnosed(again, case(number=1))
    assert list(diagnosis.flips) == ["C"]
    assert (diagnosis.flips["C"].responses, diagnosis.flips["C"].flipped) == (1, 1)
    assert diagnosed(case()).flips == {}
    assert diagnosis.same_family_pairs == ()
    kin = [of(model, "b", number) for number, model in enumerate(("x/llama-3-8b", "y/qwen3-8b", "x/llama-3-8b"))]
    kin = [replace(judged_case, judgment=replace(judged_case.judgment, judge="z/llama-4")) for judged_case in kin]
    nobody = replace(kin[0], response=replace(kin[0].response, id="r9", source=None))
    assert diagnosed(*kin, nobody).same_family_pairs == (("z/llama-4", "x/llama-3-8b"),)


def test_where_judge_and_matching_disagree_is_counted():
    cases = [
        case(number=0),
        case(number=1, answer="the town of Arica in Chile", correct=True),
        case(number=2, answer="Lima", correct=True),
        case(number=3, correct=False),
        case(number=4, answer="Lima", correct=False),
        case(number=5, correct=None),
        case(number=6, answer=None, correct=None),
    ]
    matched = [judged_case.matched for judged_case in cases]
    assert matched[0] is True
    assert matched[2] is False
    assert matched[6] is None
    diagnosis = diagnosed(*cases).matching
    assert diagnosis == JudgeVersusMatching(1 + matched[1], 2 - matched[1], 1, 1, 2)


def test_a_match_of_an_alias_alone_is_a_figure_of_its_own():
    """D.5.3 holds answers against the reference alone."""
    judged_case = case(number=0, answer="San Marcos de Arica")
    named = replace(judged_case, instance=replace(judged_case.instance, reference_answer="Morro", aliases=("Arica",)))
    assert (named.matched, named.matched_with_aliases) == (False, True)
    diagnosis = diagnosed(named)
    assert diagnosis.matching == JudgeVersusMatching(0, 1, 0, 0, 0)
    assert diagnosis.alias_matching == JudgeVersusMatching(1, 0, 0, 0, 0)
    assert case(answer=None).matched_with_aliases is None


def test_responses_are_counted_by_how_many_labels_they_violate():
    diagnosis = diagnosed(
        case(number=0),
        case(number=1, aligned=False),
        case(number=2, steps=(FAILS,), closed=False),
        case(number=3, aligned=False, closed=False),
        case(number=4, steps=(FAILS,), aligned=False, closed=False),
        case(number=5, aligned=None),
    )
    assert diagnosis.violations == ViolatedLabelCounts(none=1, one=1, several=3, both_links=2, unknown=1)


def test_answers_and_sufficiency_can_come_apart():
    cases = [case(number=0, closed=False), case(number=1, correct=False), case(number=2, correct=False, closed=None)]
    diagnosis = diagnosed(*cases)
    assert (diagnosis.correct_but_insufficient, diagnosis.incorrect_but_sufficient, diagnosis.inconsistent) == (1, 1, 1)


def test_why_labels_are_missing_is_counted():
    missing = replace(case().judgment, closed=None, unjudged={Criterion.CLOSURE: "refusal"})
    diagnosis = diagnosed(replace(case(), judgment=missing), case(number=1))
    assert diagnosis.unjudged == {Criterion.CLOSURE: {"refusal": 1}}


@pytest.mark.parametrize(
    ("failing", "sentence"),
    [
        (case(), "Every step holds, and so does the whole."),
        (case(correct=None, closed=None), "Not everything was judged."),
        (case(steps=(HOLDS, FAILS)), "Step 2 does not hold."),
        (case(steps=(FAILS, HOLDS, FAILS, FAILS)), "Steps 1, 3 and 4 do not hold."),
        (case(steps=(replace(FAILS, reason=WHOLE_TRACE_REASON),)), "A step does not hold."),
        (
            case(aligned=False, pursued="when she was born"),
            "The reasoning pursues something other than the question: when she was born.",
        ),
        (
            case(closed=False, complete=False),
            "The reasoning establishes neither the reference answer nor the submitted one.",
        ),
        (
            case(closed=False, established="Arica"),
            "The reasoning establishes the reference answer, “Arica”, and another answer was submitted.",
        ),
        (
            case(closed=False, complete=None, established="Lima"),
            "The reasoning does not establish the submitted answer, but “Lima”.",
        ),
        (
            case(steps=(FAILS,), closed=False, aligned=None),
            "Step 1 does not hold. The reasoning does not establish the submitted answer; "
            "what it pursues was not judged.",
        ),
    ],
)
def test_the_broken_link_is_named_in_a_sentence(failing, sentence):
    assert describe_response_failure(failing) == sentence


def test_nothing_to_diagnose_is_said():
    with pytest.raises(UserError, match="no judged response"):
        diagnosed()
