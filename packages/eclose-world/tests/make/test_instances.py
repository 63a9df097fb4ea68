"""Items are functions of profile, seed and number; every one is usable; a profile looks like its benchmark."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import islice, pairwise
from random import Random
from statistics import median

import pytest

from eclose.errors import SettingError
from eclose.files.jsonl import check_core_rules, decode_core_value, encode_json_line
from eclose.values.answers import normalize_answer
from eclose.values.identity import content_hash
from eclose.values.instance import Instance
from eclose.values.verdict import Verdict
from eclose_world.faulty.broken_responses import FAILURE_PLANS, break_response
from eclose_world.language import relations as rel
from eclose_world.language.passages import parse_passage_facts, write_entity_passage
from eclose_world.language.questions import LookupQuestion, parse_question
from eclose_world.language.scene_facts import QuestionScene
from eclose_world.make import instances
from eclose_world.make.instances import find_benchmark_profile, make_world_item, make_world_items
from eclose_world.make.shapes import (
    BENCHMARK_PROFILES,
    QuestionPlan,
    draw_relation_path,
    plan_chain_question,
    plan_same_value_question,
    plan_year_span_question,
)
from eclose_world.make.solve import solve_question
from eclose_world.oracle.answer_equality import is_same_answer
from eclose_world.oracle.evidence import EvidenceFacts
from eclose_world.oracle.judge import judge_by_oracle

FINGERPRINTS = """
import sys
from eclose.values.identity import content_hash
from eclose.files.jsonl import encode_json_line
from eclose_world.make.instances import make_world_item
from eclose_world.faulty.broken_responses import FAILURE_PLANS, break_response
for name in sys.argv[1:]:
    profile, index = name.split("/")
    item = make_world_item(profile, 5, int(index))
    broken = [break_response(item, plan, "s") for plan in FAILURE_PLANS]
    parts = [encode_json_line(item.instance).decode(), item.response.completion]
    parts += [one.response.completion for one in broken if one is not None]
    print(name, content_hash(parts))
"""
NAMES = [f"{profile}/{index}" for profile in BENCHMARK_PROFILES for index in (0, 1, 2, 7)]


def fingerprint(name):
    profile, index = name.split("/")
    item = make_world_item(profile, 5, int(index))
    broken = [break_response(item, plan, "s") for plan in FAILURE_PLANS]
    parts = [encode_json_line(item.instance).decode(), item.response.completion]
    return content_hash(parts + [response.response.completion for response in broken if response is not None])


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_items_and_broken_responses_are_the_same_in_every_process(hash_seed):
    order = Random(hash_seed).sample(NAMES, len(NAMES))
    process = subprocess.run(
        [sys.executable, "-c", FINGERPRINTS, *order],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    there = dict(line.split() for line in process.stdout.splitlines())
    assert there == {name: fingerprint(name) for name in NAMES}


def test_an_item_does_not_depend_on_those_before_it():
    stream = [item.instance for item in islice(make_world_items("2wiki", 8), 12)]
    assert [make_world_item("2wiki", 8, index).instance for index in reversed(range(12))] == stream[::-1]
    assert next(make_world_items("2wiki", 8, start=5)).instance == stream[5]
    assert len({instance.question for instance in stream}) == 12


def test_seeds_and_profiles_give_other_items():
    questions = {
        make_world_item(profile, seed, 0).instance.question for profile in BENCHMARK_PROFILES for seed in range(4)
    }
    assert len(questions) == 12


def test_every_instance_is_a_good_record(items):
    for item in items:
        check_core_rules(item.instance)
        assert decode_core_value(Instance, json.loads(encode_json_line(item.instance))) == item.instance


@pytest.mark.slow
def test_every_question_reads_back_and_has_one_answer(items):
    for item in items:
        read = parse_question(item.instance.question)
        evidence = EvidenceFacts(item.instance.evidence)
        assert type(read) is type(item.target)
        (way,) = evidence.find_answers(read)
        assert way.value == item.solution.answer
        assert item.instance.support_ids == tuple(str(index) for index in sorted(way.support))
        assert len(way.support) >= 2
        assert all(is_same_answer(accepted, way.value) or evidence.same_entity(accepted, way.value)
                   for accepted in item.instance.accepted_answers)  # fmt: skip
        assert evidence.unread == []


def test_every_passage_can_be_made_again(items):
    for item in items[::5]:
        for index, entity in enumerate(item.entities):
            assert item.write_passage(index, entity) == item.instance.evidence[index]


def test_without_its_support_a_question_has_no_such_answer(items):
    for item in items[::3]:
        for needed in item.solution.support:
            rest = [passage for index, passage in enumerate(item.instance.evidence) if index != needed]
            assert all(way.value != item.solution.answer for way in EvidenceFacts(rest).find_answers(item.target))


@pytest.mark.slow
def test_the_reliable_response_is_reliable(items):
    for item in items:
        judgment = judge_by_oracle(item.instance, item.response)
        assert judgment.verdict == Verdict(*[True] * 5), item.response.completion
        assert judgment.unjudged == {}
        assert item.response.instance_id == item.instance.id


# Words of context and passages per question: the medians of the three benchmarks.
SIZES = {"2wiki": (470, 10), "musique": (1671, 20), "hotpot": (897, 10)}


@pytest.mark.parametrize("profile", BENCHMARK_PROFILES)
def test_a_profile_is_as_large_as_its_benchmark(profile, items):
    own = [item.instance for item in items if item.instance.benchmark == f"world-{profile}"]
    words, passages = SIZES[profile]
    assert median(instance.context_words for instance in own) == pytest.approx(words, rel=0.15)
    assert {len(instance.evidence) for instance in own} == {passages}


@pytest.mark.parametrize("profile", BENCHMARK_PROFILES)
def test_a_profile_asks_all_its_kinds_of_questions(profile, items):
    kinds = {item.instance.kind for item in items if item.instance.benchmark == f"world-{profile}"}
    assert kinds == {kind for kind, _, _ in BENCHMARK_PROFILES[profile].shapes}


def test_there_is_something_to_mislead(items):
    # Namesakes, titles used twice, other names, older values: each in a good share of the items.
    def share(has):
        return sum(map(has, items)) / len(items)

    names = [[entity.name for entity in item.entities] for item in items]
    assert sum(len(set(name)) < len(name) for name in names) / len(items) > 0.1
    assert share(lambda item: any(entity.alias for entity in item.entities)) > 0.03
    assert share(lambda item: any(s.era for entity in item.entities for s in entity.statements)) > 0.3


def test_aliases_are_other_forms_of_the_answer(items):
    dated = [item for item in items if item.solution.answer.count("-") == 2 and isinstance(item.target, LookupQuestion)]
    assert dated
    for item in dated:
        assert len(item.instance.aliases) == 1
        assert item.instance.reference_answer not in item.instance.aliases


def test_a_person_may_be_answered_by_the_other_name(items):
    item = next(item for item in items if any(entity.alias for entity in item.entities))
    person = next(entity for entity in item.entities if entity.alias)
    target = parse_question("Who directed Paper Lighthouse?")
    assert instances._aliases(target, person.name, person.name, item.entities) == (person.alias,)
    assert instances._aliases(target, person.alias, person.alias, item.entities) == (person.name,)


def test_an_unknown_profile_is_refused():
    with pytest.raises(
        SettingError, match=r"unknown profile 'squad' \(--profile\)\. Choose from: 2wiki, musique, hotpot"
    ):
        find_benchmark_profile("squad")


def test_giving_up_is_loud(monkeypatch):
    monkeypatch.setattr(instances, "_try_scene", lambda *_: None)
    with pytest.raises(AssertionError, match="no usable scene in 50 attempts for 2wiki 1 2"):
        make_world_item("2wiki", 1, 2)


@pytest.mark.slow
def test_a_scene_that_cannot_be_read_is_not_used(monkeypatch):
    def strange(entity, index, *, seed, words):
        passage = write_entity_passage(entity, index, seed=seed, words=words)
        return replace(passage, text=f"{passage.text} Pigs have been seen to fly.")

    monkeypatch.setattr(instances, "write_entity_passage", strange)
    with pytest.raises(AssertionError, match="no usable scene"):
        make_world_item("2wiki", 1, 0)


@pytest.mark.slow
def test_a_question_one_passage_answers_is_not_used(monkeypatch):
    def lone(scene):
        film = scene.add_entity(rel.FILM)
        film.state(rel.RELEASED, "1971")
        return QuestionPlan(LookupQuestion(instances.parse_question(f"When did {film.name} come out?").phrase), (film,))

    profile = find_benchmark_profile("2wiki")
    monkeypatch.setattr(
        instances, "BENCHMARK_PROFILES", {"2wiki": profile.__class__("2wiki", 10, 35, 0.5, (("lone", 1.0, lone),))}
    )
    with pytest.raises(AssertionError, match="no usable scene"):
        make_world_item("2wiki", 1, 0)


@pytest.mark.parametrize("kind", [rel.FILM, rel.CITY, rel.COMPANY, rel.AWARD])
def test_a_scene_gives_every_name_once(kind):
    scene = QuestionScene(Random(1))
    names = [scene.draw_name(kind) for _ in range(300)]
    # An answer is compared without its articles.
    assert len({normalize_answer(name) for name in names}) == 300


def test_a_scene_gives_every_surname_once():
    scene = QuestionScene(Random(1))
    assert len({scene.draw_name(rel.PERSON).split()[-1] for _ in range(80)}) == 80


@pytest.mark.parametrize(("parent", "woman"), [(rel.FATHER, False), (rel.MOTHER, True)])
def test_fathers_are_men_and_mothers_are_women(parent, woman):
    scene = QuestionScene(Random(2))
    parents = [scene.add_entity(rel.PERSON, scene.draw_name(rel.PERSON, parent)) for _ in range(20)]
    assert {person.woman for person in parents} == {woman}


def test_a_fact_is_stated_once():
    scene = QuestionScene(Random(2))
    entity = scene.add_entity(rel.FILM)
    entity.state(rel.RELEASED, "1971")
    entity.state(rel.RELEASED, "1971")
    entity.state(rel.RELEASED, "1950", era=1950)
    assert len(entity.statements) == 2
    assert entity.value(rel.RELEASED) == "1971"
    assert entity.value(rel.DIRECTOR) is None


def test_walks_lead_where_the_next_relation_begins():
    scene = QuestionScene(Random(3))
    for start in (rel.FILM, rel.BOOK, rel.SONG, rel.COMPANY, rel.PERSON):
        for hops in (1, 2, 3, 4):
            for _ in range(60):
                path = draw_relation_path(scene, start, hops)
                assert len(path) == hops
                assert path[0].subject == start
                assert all(first.object == second.subject for first, second in pairwise(path))
                assert (rel.CAPITAL, rel.LIES_IN) not in set(pairwise(path))


@pytest.mark.parametrize(
    "shape", [plan_same_value_question, plan_year_span_question, lambda scene: plan_chain_question(scene, 4)]
)
def test_shapes_hold_what_their_question_needs(shape):
    for seed in range(30):
        scene = QuestionScene(Random(seed))
        plot = shape(scene)
        passages = [write_entity_passage(e, i, seed=f"{seed}/{i}", words=20) for i, e in enumerate(scene.entities)]
        assert all(parse_passage_facts(passage.title, passage.text).unread == () for passage in passages)
        answers = EvidenceFacts(passages).find_answers(plot.target)
        assert answers
        assert len(answers) == 1 or solve_question(plot.target, EvidenceFacts(passages)) is None
