"""Responses of every kind in one shape: the oracle finds each failure, number of steps and conclusion words do not."""

import re
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from eclose.files.jsonl import check_core_rules
from eclose.stats.ranking import ScoredResponses, auroc
from eclose.values.verdict import FailureClass, TraceGroup
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.faulty.matched_responses import (
    GAP_PLANS,
    MatchedFunnel,
    break_matched_response,
    break_matched_responses,
    make_matched_responses,
)
from eclose_world.language import relations as rel
from eclose_world.language.questions import ComparisonQuestion, SameValueQuestion
from eclose_world.make.confusable_shapes import CONFUSABLE_BENCHMARK_PROFILES
from eclose_world.make.instances import make_world_item, make_world_items
from eclose_world.oracle.answer_equality import is_same_answer
from eclose_world.oracle.closure import AlignmentTracer
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.oracle.soundness import judge_step_soundness

SEED = 91
GROUPS = 40
WORD = re.compile(r"\b(so|therefore|thus|hence|follows|means|consequently|finally|conclusion)\b", re.IGNORECASE)
PROFILES = tuple(CONFUSABLE_BENCHMARK_PROFILES)


@pytest.fixture(scope="module")
def groups():
    return {profile: list(make_matched_responses(profile, SEED, GROUPS)) for profile in PROFILES}


def recovers(item, broken):
    judgment = judge_by_oracle(item.instance, broken.response)
    assert judgment.verdict == broken.verdict, broken.response.completion
    assert [(s.substantive, s.sound, s.failure) for s in judgment.steps] == [
        (s.substantive, s.sound, s.failure) for s in broken.steps
    ], broken.response.completion
    assert judgment.unjudged == {}


def count_conclusion_words(response):
    return sum(bool(WORD.search(text)) for text in response.trace.texts)


def features(response):
    """Number of steps, and whether any step has a conclusion word."""
    return len(response.trace), count_conclusion_words(response) > 0


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_every_label_and_code_is_the_oracles(profile, groups):
    for group in groups[profile]:
        for broken in group.responses:
            recovers(group.item, broken)


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_every_label_and_code_is_the_oracles_over_many_items(profile):
    for group in make_matched_responses(profile, SEED + 1, 300):
        for broken in group.responses:
            recovers(group.item, broken)


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_every_single_failure_can_be_asked_for_and_is_recovered(profile):
    admitted = Counter()
    for item in islice(make_world_items(profile, 12), 40):
        for plan in (FailurePlan(), *FAILURE_PLANS):
            if broken := break_matched_response(item, plan, "any"):
                assert broken.plan == plan
                recovers(item, broken)
                admitted[plan] += 1
    assert all(admitted[plan] == 40 for plan in (FailurePlan(), *GAP_PLANS))
    # A wrong step and a broken link at once is not offered.
    assert not any(plan.local and plan.broken for plan in admitted)
    assert {plan.local for plan in admitted} >= {plan.local for plan in FAILURE_PLANS if not plan.broken}


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_a_group_has_one_response_of_each_kind(profile, groups):
    for group in groups[profile]:
        verdicts = [broken.verdict for broken in group.responses]
        kinds = [verdict.failure_class or verdict.trace_group for verdict in verdicts]
        assert kinds == [TraceGroup.RELIABLE, *list(FailureClass)[:3], TraceGroup.LOCALLY_UNSOUND]
        for broken in group.responses:
            check_core_rules(broken.response)
            assert broken.response.instance_id == group.item.instance.id


@pytest.mark.parametrize("profile", PROFILES)
def test_all_traces_of_a_group_have_its_shape(profile, groups):
    for group in groups[profile]:
        for broken in group.responses:
            trace = broken.response.trace
            assert len(trace) == group.shape.steps
            assert count_conclusion_words(broken.response) == group.shape.concluded
            assert bool(WORD.search(trace.texts[-1])) == group.shape.concluded
            assert [step.substantive for step in broken.steps].count(False) == group.shape.idle
    shapes = [group.shape for group in groups[profile]]
    assert {shape.concluded for shape in shapes} == {shape.idle for shape in shapes} == {True, False}
    assert len({shape.steps for shape in shapes}) >= 4


def test_a_group_depends_on_item_and_seed_alone():
    item = make_world_item("confusable-short", SEED, 3)
    assert break_matched_responses(item, "a") == break_matched_responses(item, "a")
    assert break_matched_responses(item, "a").responses != break_matched_responses(item, "b").responses
    (later,) = make_matched_responses("confusable-short", SEED, 1, start=7)
    assert int(later.item.instance.id.rsplit("-", 1)[-1]) >= 7


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_items_without_a_group_are_counted(profile):
    funnel = MatchedFunnel()
    groups = list(make_matched_responses(profile, SEED, 30, funnel))
    assert len(groups) == funnel.groups == 30
    assert funnel.items == funnel.groups + funnel.dropped.total()
    assert funnel.groups >= 0.8 * funnel.items


# What the failures look like.


@pytest.mark.parametrize("profile", PROFILES)
def test_a_deviation_pursues_a_question_that_is_easily_taken_for_the_asked_one(profile, groups):
    for group in groups[profile]:
        item, trace = group.item, group.responses[1].response.trace
        _, claims, _ = judge_step_soundness(item.instance.evidence, trace)
        pursued = [target for target in item.plot.near if AlignmentTracer(target).find_main_line(claims)[0]]
        assert pursued
        assert AlignmentTracer(item.target).find_main_line(claims)[0] is False


@pytest.mark.parametrize("profile", PROFILES)
def test_near_questions_differ_in_one_relation_of_close_meaning(profile, groups):
    for group in groups[profile]:
        target = group.item.target
        for near in group.item.plot.near:
            assert type(near) is type(target)
            if isinstance(target, ComparisonQuestion):
                assert near.attribute is rel.NEAR_RELATIONS[target.attribute] or near.least is not target.least
            elif isinstance(target, SameValueQuestion):
                assert near == replace(target, relation=rel.NEAR_RELATIONS[target.relation])
            elif len(near.phrase.path) == len(target.phrase.path):
                pairs = zip(near.phrase.path, target.phrase.path, strict=True)
                ((other, relation),) = [pair for pair in pairs if pair[0] is not pair[1]]
                assert rel.NEAR_RELATIONS[relation] is other
            else:
                assert near.phrase.path[-1] in (rel.FATHER, rel.MOTHER)


@pytest.mark.parametrize("profile", PROFILES)
def test_an_unfinished_trace_may_conclude_and_a_reliable_one_may_not(profile, groups):
    reliable, incomplete = (
        Counter(count_conclusion_words(group.responses[index].response) for group in groups[profile])
        for index in (0, 2)
    )
    assert reliable == incomplete
    assert min(reliable[0], reliable[1]) >= 0.2 * GROUPS


def test_of_a_choice_the_other_option_is_submitted(groups):
    choices = [g for group in groups.values() for g in group if isinstance(g.item.target, ComparisonQuestion)]
    assert len(choices) >= 10
    for group in choices:
        (other,) = (o for o in group.item.target.options if not is_same_answer(o, group.item.solution.answer))
        assert is_same_answer(group.responses[3].response.answer, other)
        deviation = group.responses[1]
        assert deviation.verdict.correct or is_same_answer(deviation.response.answer, other)


@pytest.mark.slow
def test_for_a_grandparent_a_parent_is_submitted():
    parents = Counter()
    for group in make_matched_responses("confusable-short", 5, 120):
        target = group.item.target
        if group.item.instance.kind != "kinship":
            continue
        (person, _), *_ = [(m.claim.phrase.base, m) for m in group.item.solution.moves]
        entity = next(e for e in group.item.entities if e.name == person)
        relatives = {entity.value(relation) for relation in (rel.FATHER, rel.MOTHER, rel.CHILD, rel.SPOUSE)}
        for broken in group.responses[1:4]:
            hit = any(name and is_same_answer(broken.response.answer, name) for name in relatives)
            parents[target.phrase.path[-2:] == (rel.CHILD, rel.CHILD), broken.plan.broken, hit] += 1
    assert parents[False, FailureClass.ANSWER_DECOUPLING, True] >= 3
    assert parents[False, FailureClass.INCOMPLETE_REASONING, True] >= 3
    assert parents[True, FailureClass.PATH_DEVIATION, True] >= 1


# The two shortcuts.


def cross_fit_table(rows, folds=5):
    """Score each response by the share of failures with the same features in the other folds."""
    tables = [defaultdict(lambda: [1.0, 2.0]) for _ in range(folds)]
    for question, shape, failed in rows:
        for fold in set(range(folds)) - {question % folds}:
            tables[fold][shape][0] += failed
            tables[fold][shape][1] += 1
    # A shape that the other folds do not have gets one half.
    return [-tables[question % folds][shape][0] / tables[question % folds][shape][1] for question, shape, _ in rows]


def shortcut_aurocs(rows):
    """AUROC of the two features alone and of a cross-fitted table of both; rows are (question, features, failed)."""
    failed = np.array([failed for _, _, failed in rows])

    def area(scores):
        return auroc(ScoredResponses(np.array(scores, dtype=float), failed, ~failed))

    return {
        "steps": area([steps for _, (steps, _), _ in rows]),
        "word": area([word for _, (_, word), _ in rows]),
        "both": area(cross_fit_table(rows)),
    }


def at_chance(areas):
    return all(0.45 <= area <= 0.55 for area in areas.values())


def group_rows(groups, failures):
    return [
        (number, features(broken.response), not broken.verdict.reliable)
        for number, group in enumerate(groups)
        for broken in group.responses[:4]
        if broken.verdict.reliable or broken.verdict.failure_class in failures
    ]


GAP = list(FailureClass)[:3]


@pytest.mark.parametrize("failures", [GAP, *([failure] for failure in GAP)], ids=["gap", *GAP])
@pytest.mark.parametrize("profile", PROFILES)
def test_number_of_steps_and_conclusion_word_are_at_chance(profile, failures, groups):
    rows = group_rows(groups[profile], failures)
    assert len(rows) == GROUPS * (1 + len(failures))
    areas = shortcut_aurocs(rows)
    assert at_chance(areas), areas


@pytest.mark.parametrize("profile", PROFILES)
def test_unmatched_responses_to_the_same_questions_are_not_at_chance(profile, groups):
    rows = [
        (number, features(broken.response), not broken.verdict.reliable)
        for number, group in enumerate(groups[profile])
        for plan in (FailurePlan(), FailurePlan(None, FailureClass.INCOMPLETE_REASONING))
        if (broken := break_response(group.item, plan, "unmatched"))
    ]
    areas = shortcut_aurocs(rows)
    assert not at_chance(areas)
    assert max(areas["steps"], 1 - areas["steps"]) > 0.7
    assert max(areas["both"], 1 - areas["both"]) > 0.7


@pytest.mark.parametrize("profile", PROFILES)
def test_a_step_more_in_failing_traces_is_noticed(profile, groups):
    rows = [
        (number, (steps + failed, word), failed) for number, (steps, word), failed in group_rows(groups[profile], GAP)
    ]
    assert not at_chance(shortcut_aurocs(rows))


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_one_response_to_each_question_is_at_chance_too(profile):
    # As `eclose world make` writes them: half of the questions fail, each with another failure.
    rows = []
    for number, item in enumerate(islice(make_world_items(profile, 33), 1_200)):
        plan = FailurePlan() if number % 2 else GAP_PLANS[number // 2 % 3]
        broken = break_matched_response(item, plan, "single")
        assert broken is not None
        rows.append((number // 2, features(broken.response), not broken.verdict.reliable))
    areas = shortcut_aurocs(rows)
    assert at_chance(areas), areas
