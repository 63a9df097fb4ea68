"""Everything the saboteur plants, the oracle finds, and nothing else."""

from collections import Counter
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from eclose.files.jsonl import check_core_rules
from eclose.values.judgment import LocalFailure
from eclose.values.response import parse_completion
from eclose.values.verdict import FailureClass, Verdict
from eclose_world.faulty.broken_responses import (
    FAILURE_PLANS,
    FailureImpact,
    FailurePlan,
    ResponseBreaker,
    break_response,
)
from eclose_world.language import relations as rel
from eclose_world.language.claims import FactClaim
from eclose_world.language.phrases import RelationPhrase
from eclose_world.language.questions import ComparisonQuestion, LookupQuestion, SameValueQuestion, YearSpanQuestion
from eclose_world.make.instances import make_world_item
from eclose_world.make.shapes import BENCHMARK_PROFILES
from eclose_world.make.wrong_alternatives import ItemAlternatives
from eclose_world.oracle.answer_equality import is_same_answer
from eclose_world.oracle.judge import judge_by_oracle

# The share of items that can fail in a way: a comparison has no false premise to run through, a chain no computation.
RARE = {
    FailurePlan(LocalFailure.UNSUPPORTED_CONTENT, None, FailureImpact.FATAL): 0.5,
    FailurePlan(LocalFailure.INVALID_INFERENCE, None, FailureImpact.FATAL): 0.55,
    FailurePlan(LocalFailure.CONSTRAINT_OR_COMPUTATION, None, FailureImpact.FATAL): 0.15,
    FailurePlan(LocalFailure.INVALID_INFERENCE, FailureClass.PATH_DEVIATION): 0.4,
    **{FailurePlan(LocalFailure.INVALID_INFERENCE, broken): 0.65 for broken in (None, *list(FailureClass)[1:3])},
}
USUAL = 0.85


def recovers(item, planted):
    judgment = judge_by_oracle(item.instance, planted.response)
    assert judgment.verdict == planted.verdict, planted.response.completion
    assert [(s.substantive, s.sound, s.failure) for s in judgment.steps] == [
        (s.substantive, s.sound, s.failure) for s in planted.steps
    ], planted.response.completion
    assert judgment.unjudged == {}


def name_of(plan):
    return f"{plan.local}-{plan.broken}-{plan.impact}"


@pytest.mark.slow
@pytest.mark.parametrize("plan", [FailurePlan(), *FAILURE_PLANS], ids=name_of)
def test_every_planted_label_and_code_is_recovered(plan, items):
    count = 0
    for item in items:
        if planted := break_response(item, plan, "seed"):
            recovers(item, planted)
            count += 1
    assert count / len(items) >= RARE.get(plan, USUAL)


@pytest.mark.slow
@pytest.mark.parametrize("count", [15, pytest.param(300, marks=pytest.mark.study)])
@pytest.mark.parametrize("profile", BENCHMARK_PROFILES)
def test_every_planted_label_and_code_is_recovered_over_many_items(profile, count):
    for index in range(count):
        item = make_world_item(profile, 23, index)
        for number, plan in enumerate((FailurePlan(), *FAILURE_PLANS)):
            if planted := break_response(item, plan, str(number % 3)):
                recovers(item, planted)


def test_there_are_28_ways_to_fail():
    assert len(FAILURE_PLANS) == len(set(FAILURE_PLANS)) == 5 * 2 + 3 + 5 * 3
    assert FailurePlan() not in FAILURE_PLANS


@pytest.mark.slow
@pytest.mark.parametrize("plan", FAILURE_PLANS, ids=name_of)
def test_a_plan_is_carried_out(plan, items):
    for item in items[::3]:
        planted = break_response(item, plan, "other")
        if planted is None:
            continue
        verdict, failures = planted.verdict, {step.failure for step in planted.steps} - {None}
        assert verdict.locally_sound is (plan.local is None)
        assert failures <= {plan.local, LocalFailure.INVALID_INFERENCE}
        assert (plan.local in failures) or plan.local is None
        if plan.broken is not None:
            assert verdict.failure_class is plan.broken
        elif plan.impact is FailureImpact.HARMLESS:
            assert verdict == Verdict(False, True, True, True, True)
        else:
            assert verdict.correct is False
            assert verdict.complete is False
        assert planted.plan == plan


@pytest.mark.slow
def test_what_was_planted_is_a_good_record(items):
    for item in items[::5]:
        for plan in FAILURE_PLANS:
            if planted := break_response(item, plan, "seed"):
                response = planted.response
                check_core_rules(response)
                parsed = parse_completion(response.completion)
                assert (parsed.trace, parsed.answer) == (response.trace, response.answer)
                assert len(planted.steps) == len(response.trace)
                assert response.instance_id == item.instance.id


@pytest.mark.slow
def test_ids_tell_the_plans_of_an_item_apart(items):
    ids = [
        broken.response.id
        for plan in (FailurePlan(), *FAILURE_PLANS)
        if (broken := break_response(items[0], plan, "seed"))
    ]
    assert len(ids) == len(set(ids))


def test_the_same_seed_breaks_the_same_way(items):
    for item in items[:20]:
        for plan in FAILURE_PLANS[::4]:
            assert break_response(item, plan, "a") == break_response(item, plan, "a")
    texts = {
        broken.response.completion for seed in "abcdef" if (broken := break_response(items[0], FailurePlan(), seed))
    }
    assert len(texts) > 1


def planted_all(items, plan, seeds="abc"):
    return [(item, broken) for item in items for seed in seeds if (broken := break_response(item, plan, seed))]


@pytest.mark.slow
def test_an_unfinished_trace_guesses_right_wrong_and_the_last_thing_reached(items):
    planted = planted_all(items, FailurePlan(None, FailureClass.INCOMPLETE_REASONING))
    assert 0.2 < sum(broken.verdict.correct for _, broken in planted) / len(planted) < 0.8
    wrong = [broken.response for _, broken in planted if not broken.verdict.correct]
    last = [response for response in wrong if response.answer.strip(".") in response.trace.texts[-1]]
    assert len(last) / len(planted) > 0.05


@pytest.mark.slow
def test_a_decoupled_answer_may_hedge_between_right_and_wrong(items):
    planted = planted_all(items, FailurePlan(None, FailureClass.ANSWER_DECOUPLING))
    torn = [(item, broken) for item, broken in planted if " or " in broken.response.answer]
    assert 0.1 < len(torn) / len(planted) < 0.6
    for item, broken in torn:
        names = broken.response.answer.strip(".").split(" or ")
        assert sum(is_same_answer(name, item.solution.answer) for name in names) == 1
        assert broken.verdict.correct is False


@pytest.mark.slow
def test_a_deviating_trace_may_end_with_the_right_answer(items):
    planted = planted_all(items, FailurePlan(None, FailureClass.PATH_DEVIATION))
    correct = [broken for _, broken in planted if broken.verdict.correct]
    assert 0.1 < len(correct) / len(planted) < 0.35
    assert not any(broken.verdict.closed for broken in correct)


@pytest.fixture(scope="module")
def spans():
    return [
        item
        for index in range(250)
        if isinstance((item := make_world_item("hotpot", 31, index)).target, YearSpanQuestion)
    ]


@pytest.mark.slow
def test_a_deviation_never_ends_on_a_part_of_the_way(spans):
    # What leads to one side of a span is no deviation from it, though it is a sibling of the other side.
    assert len(spans) > 4
    for item in spans:
        sides = item.target.phrases()
        for other, _ in ResponseBreaker(item, Random(0)).others.find_targets():
            phrase = other.phrase
            assert not any(phrase.base == side.base and phrase.path == side.path[: len(phrase.path)] for side in sides)
        for plan in FAILURE_PLANS:
            for seed in "abc":
                if planted := break_response(item, plan, seed):
                    recovers(item, planted)


def test_right_answers_are_submitted_in_many_forms(items):
    forms = Counter()
    for item, broken in planted_all(items, FailurePlan()):
        assert is_same_answer(broken.response.answer, item.solution.answer)
        forms[broken.response.answer == item.instance.reference_answer] += 1
    assert forms[False] > 0.3 * forms.total()


@pytest.mark.slow
def test_a_wrong_number_of_years_is_still_a_number_of_years(spans):
    item = spans[0]
    for answer in ("1", "2", "40"):
        breaker = ResponseBreaker(replace(item, solution=replace(item.solution, answer=answer)), Random(1))
        assert all(int(breaker.others.pick_wrong_answer()) > 0 for _ in range(50))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LookupQuestion, ComparisonQuestion, SameValueQuestion, YearSpanQuestion])
def test_a_wrong_answer_is_wrong(kind, items, spans):
    matching = [item for item in (*items, *spans) if isinstance(item.target, kind)]
    assert matching
    for item in matching:
        other = ResponseBreaker(item, Random(2)).others.pick_wrong_answer()
        assert other is None or not is_same_answer(other, item.solution.answer)


def without_evidence(item):
    """A saboteur who finds nothing in the passages."""
    breaker = ResponseBreaker(item, Random(0))
    breaker.evidence = type(breaker.evidence)(())
    breaker.others = replace(breaker.others, evidence=breaker.evidence)
    return breaker


def test_where_nothing_else_is_named_there_is_no_other_value(items):
    breaker = without_evidence(items[0])
    assert breaker.others.pick_other_value(rel.MOTHER, "Petra Lind") is None
    assert breaker.draft(FailurePlan(LocalFailure.UNSUPPORTED_CONTENT)) is None
    assert breaker.draft(FailurePlan(LocalFailure.INVALID_INFERENCE)) is None


def test_an_item_that_is_one_fact_cannot_stop_short(items):
    item = next(item for item in items if isinstance(item.target, LookupQuestion) and item.target.phrase.path)
    first = item.solution.moves[0]
    solution = replace(item.solution, moves=(first,), answer=first.claim.value)
    single = replace(item, target=LookupQuestion(first.claim.phrase), solution=solution)
    for plan in (
        FailurePlan(None, FailureClass.INCOMPLETE_REASONING),
        FailurePlan(LocalFailure.INVALID_INFERENCE, None, FailureImpact.FATAL),
        FailurePlan(LocalFailure.OTHER, None, FailureImpact.FATAL),
    ):
        assert break_response(single, plan, "s") is None


@pytest.mark.slow
def test_a_link_between_names_is_neither_denied_nor_called_missing(items):
    def with_alias(item):
        return any(isinstance(m.claim, FactClaim) and m.claim.phrase.path == (rel.ALIAS,) for m in item.solution.moves)

    linked = [item for item in items if with_alias(item)]
    assert linked
    for item in linked:
        for plan in FAILURE_PLANS:
            for seed in "abcdef":
                if planted := break_response(item, plan, seed):
                    recovers(item, planted)


def test_a_namesakes_value_is_no_invented_content(items):
    breaker = ResponseBreaker(items[0], Random(0))
    reading = next(r for r in breaker.evidence.readings if r.statements)
    statement = next(s for s in reading.statements if s.subject is None and s.era is None)
    fact = FactClaim(RelationPhrase(reading.name, (statement.relation,)), statement.value)
    assert breaker._namesake_has(fact, statement.value)
    assert not breaker._namesake_has(fact, "Nobody Else")


@pytest.mark.slow
def test_a_false_premise_is_not_a_namesakes_fact(items, monkeypatch):
    tried = 0
    for item in items:
        breaker = ResponseBreaker(item, Random(0))
        fact = breaker.moves[breaker.facts[-1]].claim
        others = {way.value for way in breaker.evidence.derive(fact.phrase)} - {fact.value}
        if isinstance(item.target, LookupQuestion) and item.target.phrase.path and others:
            monkeypatch.setattr(ItemAlternatives, "pick_other_value", partial(lambda value, *_: value, min(others)))
            assert breaker.draft(FailurePlan(LocalFailure.UNSUPPORTED_CONTENT, None, FailureImpact.FATAL)) is None
            tried += 1
    assert tried


def test_a_chain_that_begins_with_a_link_cannot_stop_at_it(items):
    item = next(item for item in items if isinstance(item.target, LookupQuestion) and item.target.phrase.path)
    link = replace(item.solution.moves[0], claim=FactClaim(RelationPhrase("Nora Quist", (rel.ALIAS,)), "Nora Marsh"))
    short = replace(item, solution=replace(item.solution, moves=(link, item.solution.moves[1])))
    assert break_response(short, FailurePlan(None, FailureClass.INCOMPLETE_REASONING), "s") is None


def test_without_another_name_there_is_no_false_premise_and_no_false_conclusion(items):
    named = [
        item for item in items if isinstance(item.target, LookupQuestion) and not item.solution.answer[:1].isdigit()
    ]
    breaker = without_evidence(named[0])
    assert breaker.draft(FailurePlan(LocalFailure.UNSUPPORTED_CONTENT, None, FailureImpact.FATAL)) is None
    assert breaker.draft(FailurePlan(LocalFailure.INVALID_INFERENCE, None, FailureImpact.FATAL)) is None
    assert breaker.draft(FailurePlan(LocalFailure.OTHER, None, FailureImpact.FATAL)) is None
    assert breaker.draft(FailurePlan(None, FailureClass.ANSWER_DECOUPLING)) is None
    assert breaker._guess(replace(named[0].solution.moves[-1])) is None
