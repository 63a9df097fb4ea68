"""The short profiles: contexts a small model can learn from, answers copied or derived, as exact as the rest."""

from collections import Counter
from itertools import islice
from statistics import median
from typing import get_args

import pytest

from eclose.files.jsonl import encode_json_line
from eclose.values.family_rules import check_family
from eclose.values.instance import Instance
from eclose.values.response import Response
from eclose.values.verdict import Verdict
from eclose_world.cli import ProfileName
from eclose_world.faulty.broken_responses import FAILURE_PLANS, break_response
from eclose_world.language.questions import ComparisonQuestion, LookupQuestion, SameValueQuestion, parse_question
from eclose_world.make.confusable_shapes import CONFUSABLE_BENCHMARK_PROFILES
from eclose_world.make.families import FamilyFunnel, make_world_families
from eclose_world.make.instances import find_benchmark_profile, make_world_item
from eclose_world.make.shapes import BENCHMARK_PROFILES, SHORT_BENCHMARK_PROFILES
from eclose_world.oracle.evidence import parse_evidence_facts
from eclose_world.oracle.judge import judge_by_oracle

COUNT = 100
SEED = 2026
PASSAGES = {"short-easy": 4, "short-hard": 7}


@pytest.fixture(scope="module")
def funnels():
    return {profile: FamilyFunnel() for profile in SHORT_BENCHMARK_PROFILES}


@pytest.fixture(scope="module")
def families(funnels):
    return {
        profile: list(islice(make_world_families(profile, SEED, funnels[profile]), COUNT))
        for profile in SHORT_BENCHMARK_PROFILES
    }


@pytest.mark.slow
@pytest.mark.parametrize("profile", SHORT_BENCHMARK_PROFILES)
def test_contexts_are_short(profile, families):
    words = [family.source.context_words for family in families[profile]]
    assert 80 <= median(words) <= 125
    assert sum(count > 150 for count in words) <= 0.06 * COUNT
    assert max(words) <= 200
    assert {len(family.gold.evidence) for family in families[profile]} == {PASSAGES[profile]}


@pytest.mark.slow
@pytest.mark.parametrize("profile", SHORT_BENCHMARK_PROFILES)
def test_edits_make_no_context_longer_than_a_value(profile, families):
    for family in families[profile]:
        for edit in family.evidence_edits:
            after = sum(len(passage.text.split()) for passage in edit.view.evidence)
            # A value of at most seven words, said at most twice.
            assert abs(after - family.source.context_words) <= 14


@pytest.mark.slow
@pytest.mark.parametrize("profile", SHORT_BENCHMARK_PROFILES)
def test_nearly_every_source_becomes_a_family(profile, families, funnels):
    funnel = funnels[profile]
    assert len(families[profile]) == funnel.families == COUNT
    assert funnel.sources == funnel.families + funnel.dropped.total()
    assert funnel.families >= 0.9 * funnel.sources
    assert set(funnel.dropped) <= {"no evidence edit", "no question edit"}


@pytest.mark.slow
@pytest.mark.parametrize("profile", SHORT_BENCHMARK_PROFILES)
def test_every_gate_passes_and_every_view_is_reliable(profile, families):
    for family in families[profile]:
        assert check_family(family) == ()
        for view in family.views:
            instance = Instance("i", view.question, view.evidence, view.answer)
            judgment = judge_by_oracle(instance, Response("r", "i", view.trace, view.answer))
            assert judgment.verdict == Verdict(*[True] * 5), view
            assert judgment.unjudged == {}


@pytest.mark.parametrize("profile", SHORT_BENCHMARK_PROFILES)
def test_all_its_kinds_of_questions_are_asked_about_as_often_as_said(profile, families):
    kinds = Counter(family.source.kind for family in families[profile])
    assert set(kinds) == {kind for kind, _, _ in SHORT_BENCHMARK_PROFILES[profile].shapes}
    for kind, weight, _ in SHORT_BENCHMARK_PROFILES[profile].shapes:
        assert kinds[kind] / COUNT == pytest.approx(weight, abs=0.13)


def test_easy_answers_are_copied(families):
    for family in families["short-easy"]:
        gold = family.gold
        assert family.source.hops == 2
        assert 2 <= len(gold.trace) <= 3
        assert gold.answer in gold.trace.texts[-1]
        # Every step that rests on a passage may share a line with another; the last of them states the answer.
        last = max(number for number, node in enumerate(gold.proof) if node.passage_ids)
        assert gold.answer in gold.trace.texts[last]
        assert any(gold.answer in passage.text for passage in gold.evidence)


def test_hard_answers_are_derived_or_far_away(families):
    targets = [(family, parse_question(family.gold.question)) for family in families["short-hard"]]
    lookups = [family for family, target in targets if isinstance(target, LookupQuestion)]
    assert len(lookups) <= 0.33 * COUNT
    assert all(family.source.hops >= 3 for family in lookups)
    assert sum(len(family.gold.trace) >= 4 for family, _ in targets) >= 0.6 * COUNT


def test_hard_answers_cannot_be_guessed(families):
    targets = [(family.gold.answer, parse_question(family.gold.question)) for family in families["short-hard"]]
    firsts = [answer == target.options[0] for answer, target in targets if isinstance(target, ComparisonQuestion)]
    yes = [answer == "yes" for answer, target in targets if isinstance(target, SameValueQuestion)]
    for guesses in (firsts, yes):
        assert 0.2 <= sum(guesses) / len(guesses) <= 0.8


def test_yes_and_no_are_told_from_passages_that_look_alike():
    """Whatever the answer, one of the others has what the first has: counting how often a value is said is no way."""
    counts = Counter()
    for index in range(60):
        item = make_world_item("short-hard", SEED, index)
        if not isinstance(item.target, SameValueQuestion):
            continue
        first, _ = item.target.phrases()
        (way,) = parse_evidence_facts(item.instance.evidence).derive(first)
        holders = [entity for entity in item.entities if entity.value(item.target.relation) == way.value]
        counts[item.solution.answer, len(holders)] += 1
    assert set(counts) == {("yes", 2), ("no", 2)}


@pytest.mark.parametrize("profile", SHORT_BENCHMARK_PROFILES)
def test_what_is_not_needed_is_about_rivals(profile, families):
    kinds = {"bridge", "comparison", "bridge_comparison", "yes_no", "span"}
    for family in families[profile]:
        if family.source.kind in kinds:
            readings = parse_evidence_facts(family.gold.evidence).readings
            support = set(map(int, family.gold.support_ids))
            needed = {reading.kind for index, reading in enumerate(readings) if index in support}
            assert {reading.kind for reading in readings} == needed


@pytest.mark.slow
@pytest.mark.parametrize("profile", SHORT_BENCHMARK_PROFILES)
def test_every_planted_label_is_recovered(profile):
    for index in range(8):
        item = make_world_item(profile, 23, index)
        for plan in FAILURE_PLANS:
            broken = break_response(item, plan, "short")
            if broken is not None:
                assert judge_by_oracle(item.instance, broken.response).verdict == broken.verdict


@pytest.mark.slow
@pytest.mark.parametrize("profile", SHORT_BENCHMARK_PROFILES)
def test_a_family_depends_on_profile_seed_and_number_alone(profile, families):
    again = list(islice(make_world_families(profile, SEED), 10))
    assert [encode_json_line(family) for family in again] == [
        encode_json_line(family) for family in families[profile][:10]
    ]
    (later,) = islice(make_world_families(profile, SEED, start=3), 1)
    assert later.id == f"family-world-{profile}-{SEED}-3"
    assert later in families[profile]


@pytest.mark.slow
@pytest.mark.parametrize("profile", SHORT_BENCHMARK_PROFILES)
def test_training_and_held_out_numbers_share_no_question(profile):
    training, held_out = (
        {make_world_item(profile, SEED, index).instance.question for index in numbers}
        for numbers in (range(300), range(10_000, 10_100))
    )
    assert len(training) >= 298
    assert not training & held_out


def test_the_command_line_knows_every_profile():
    assert set(get_args(ProfileName)) == {
        *BENCHMARK_PROFILES,
        *SHORT_BENCHMARK_PROFILES,
        *CONFUSABLE_BENCHMARK_PROFILES,
    }
    assert [find_benchmark_profile(name).name for name in get_args(ProfileName)] == [*get_args(ProfileName)]
