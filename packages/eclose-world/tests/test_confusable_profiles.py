"""The confusable profiles: two relations of close meaning in every question's passages, as exact as the rest."""

from collections import Counter
from itertools import islice
from statistics import median

import pytest

from eclose.values.family_rules import check_family
from eclose.values.instance import Instance
from eclose.values.response import Response
from eclose.values.verdict import Verdict
from eclose_world.language import relations as rel
from eclose_world.language.questions import ComparisonQuestion, LookupQuestion, SameValueQuestion, parse_question
from eclose_world.make.confusable_shapes import CONFUSABLE_BENCHMARK_PROFILES, list_near_targets
from eclose_world.make.families import FamilyFunnel, make_world_families
from eclose_world.make.instances import make_world_item
from eclose_world.make.shapes import BENCHMARK_PROFILES, SHORT_BENCHMARK_PROFILES
from eclose_world.make.solve import solve_question
from eclose_world.oracle.evidence import parse_evidence_facts
from eclose_world.oracle.judge import judge_by_oracle

PROFILES = tuple(CONFUSABLE_BENCHMARK_PROFILES)
COUNT = 60
SEED = 2027


@pytest.fixture(scope="module")
def items():
    return {profile: [make_world_item(profile, SEED, index) for index in range(COUNT)] for profile in PROFILES}


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_the_passages_answer_a_near_question_otherwise(profile, items):
    answered = 0
    for item in items[profile]:
        evidence = parse_evidence_facts(item.instance.evidence)
        solutions = [solve_question(target, evidence) for target in item.plot.near]
        answered += any(solution and solution.answer != item.solution.answer for solution in solutions)
    assert answered == COUNT


@pytest.mark.parametrize("profile", PROFILES)
def test_a_choice_turns_round_when_the_near_relation_is_compared(profile, items):
    choices = [item for item in items[profile] if isinstance(item.target, ComparisonQuestion)]
    assert len(choices) >= 10
    for item in choices:
        near, reverse = item.plot.near
        assert near.attribute is rel.NEAR_RELATIONS[item.target.attribute]
        evidence = parse_evidence_facts(item.instance.evidence)
        assert solve_question(near, evidence).answer == solve_question(reverse, evidence).answer
        assert solve_question(near, evidence).answer != item.solution.answer


@pytest.mark.slow
def test_every_near_relation_is_asked_for_somewhere():
    counts = Counter()
    for profile in PROFILES:
        for index in range(250):
            target = make_world_item(profile, 8, index).target
            if isinstance(target, LookupQuestion):
                counts.update(target.phrase.path)
            else:
                counts[target.attribute if isinstance(target, ComparisonQuestion) else target.relation] += 1
    assert set(rel.NEAR_RELATIONS) | {rel.CHILD} <= set(counts)


@pytest.mark.parametrize("profile", PROFILES)
def test_all_kinds_of_questions_are_asked_about_as_often_as_said(profile, items):
    kinds = Counter(item.instance.kind for item in items[profile])
    for kind, weight, _ in CONFUSABLE_BENCHMARK_PROFILES[profile].shapes:
        assert kinds[kind] / COUNT == pytest.approx(weight, abs=0.16)


def test_short_contexts_are_short(items):
    assert median(item.instance.context_words for item in items["confusable-short"]) <= 150
    assert {len(item.instance.evidence) for item in items["confusable-short"]} == {6}
    assert {len(item.instance.evidence) for item in items["confusable-long"]} == {10}


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_yes_and_no_and_both_options_are_answers(profile):
    answers = Counter()
    for index in range(150):
        item = make_world_item(profile, 4, index)
        if isinstance(item.target, SameValueQuestion):
            answers[item.solution.answer] += 1
        elif isinstance(item.target, ComparisonQuestion):
            answers[item.target.options.index(item.solution.answer)] += 1
    assert min(answers["yes"], answers["no"]) >= 2
    assert 0.3 <= answers[0] / (answers[0] + answers[1]) <= 0.7


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_families_are_made_from_nearly_every_source_and_every_view_is_reliable(profile):
    funnel = FamilyFunnel()
    families = list(islice(make_world_families(profile, SEED, funnel), COUNT))
    assert funnel.families >= 0.85 * funnel.sources
    near = 0
    for family in families:
        assert check_family(family) == ()
        for view in family.views:
            instance = Instance("i", view.question, view.evidence, view.answer)
            judgment = judge_by_oracle(instance, Response("r", "i", view.trace, view.answer))
            assert judgment.verdict == Verdict(*[True] * 5), view
        other = parse_question(family.question_edit.view.question)
        near += other in list_near_targets(parse_question(family.gold.question))
    # The question edit is what teaches a verifier one relation from the other.
    assert near >= 0.7 * COUNT


@pytest.mark.parametrize("profile", [*BENCHMARK_PROFILES, *SHORT_BENCHMARK_PROFILES])
def test_other_profiles_state_no_rare_relation(profile):
    for index in range(4):
        item = make_world_item(profile, 6, index)
        evidence = parse_evidence_facts(item.instance.evidence)
        assert not set(evidence.list_relations()) & set(rel.RARE_RELATIONS)
        assert item.plot.near == ()
