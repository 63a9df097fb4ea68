"""The world's constructor: what it builds holds, and what it spoils on purpose is refused by somebody."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache

import pytest

from eclose.errors import SettingError
from eclose.prompts.material_json import disclose_passages
from eclose_train.construction import questions as shown
from eclose_train.construction.candidates import FamilyDraft
from eclose_train.construction.lengths import make_estimating_counter
from eclose_train.construction.questions import ConstructionRole
from eclose_train.construction.roles import ConstructionTeam
from eclose_train.construction.settings import ConstructSettings
from eclose_train.construction.stages import (
    build_evidence_edits,
    build_question_edit,
    build_target_response,
    screen_source,
)
from eclose_world.faulty.bad_constructor_replies import REPLY_DEFECTS
from eclose_world.make.instances import make_world_item
from eclose_world.oracle.family_conditions import find_family_defects
from eclose_world.roles.constructor import register_constructor_handlers
from eclose_world.server.chat_requests import HandlerRegistry
from tests.building import funnel, through, world_model

PROFILES = ("2wiki", "musique", "hotpot")
PART = {
    ConstructionRole.CONSTRUCT_TARGET: build_target_response,
    ConstructionRole.CONSTRUCT_EVIDENCE: build_evidence_edits,
    ConstructionRole.CONSTRUCT_QUESTION: build_question_edit,
}


@pytest.mark.slow
@pytest.mark.parametrize("count", [15, pytest.param(60, marks=pytest.mark.study)])
@pytest.mark.parametrize("profile", PROFILES)
def test_everything_it_builds_is_right_and_most_sources_give_a_family(profile, count):
    sources = [make_world_item(profile, 17, index).instance for index in range(count)]
    families, reasons = funnel(sources, world_model())
    assert [find_family_defects(family) for family in families] == [()] * len(families)
    assert len(families) >= 0.6 * count
    # It offers what it has checked itself, so nobody has to object.
    assert set(reasons) <= {"construct_evidence: incomplete", "construct_question: incomplete"}


@pytest.mark.slow
def test_short_contexts_do_as_well():
    sources = [
        make_world_item(profile, 17, index).instance for profile in ("short-easy", "short-hard") for index in range(20)
    ]
    families, _ = funnel(sources, world_model())
    assert [find_family_defects(family) for family in families] == [()] * len(families)
    assert len(families) >= 30


@pytest.mark.slow
def test_a_variation_begins_at_either_end_and_no_two_change_the_same():
    sources = [make_world_item("musique", 17, index).instance for index in range(12)]
    families, _ = funnel(sources, world_model())
    both = [family.evidence_edits for family in families if len(family.evidence_edits) == 2]
    assert len(both) > 6
    assert all(edit.intervention.claim != other.intervention.claim for edit, other in both)
    assert any(edit.first_affected_step != other.first_affected_step for edit, other in both)


@pytest.mark.slow
def test_steps_are_one_claim_each_and_do_not_speak_of_passages():
    families, _ = funnel([make_world_item("2wiki", 17, index).instance for index in range(20)], world_model())
    texts = [text for family in families for view in family.views for text in view.trace.texts]
    assert len(texts) > 200
    assert not [text for text in texts if "passage" in text.lower() or "; " in text or "[" in text]


def test_the_same_request_gets_the_same_reply_and_an_objection_another():
    source = make_world_item("2wiki", 17, 3).instance
    brief = shown.TargetWritingMaterial(
        source.question, disclose_passages(source.evidence), _support(source), source.reference_answer
    )
    model = world_model()
    first, again, revised = (ask(model, material) for material in (brief, brief, replace(brief, objection="no")))
    assert first == again
    assert first["steps"] != revised["steps"]


def _support(source):
    return tuple(int(passage_id) for passage_id in source.support_ids)


def ask(model, material):
    question = shown.build_construction_prompt(material)
    asyncio.run(through(model, question))
    return model.said[-1][1]


def test_where_nothing_can_be_built_it_says_so():
    source = make_world_item("2wiki", 17, 3).instance
    passages, support = disclose_passages(source.evidence), _support(source)
    brief = shown.TargetWritingMaterial(source.question, passages, support, source.reference_answer)
    for spoilt, why in (
        (replace(brief, question="Why though?"), "cannot be read"),
        (replace(brief, reference="Nobody"), "do not lead to the reference"),
        (replace(brief, support=support[:1]), "no single answer"),
    ):
        reply = ask(world_model(), spoilt)
        assert (reply["complete"], reply["steps"]) == (False, [])
        assert why in reply["plan"]
    edits = shown.EvidenceEditWritingMaterial("Why though?", passages, support, (), "x", 2)
    assert ask(world_model(), edits) == {"plan": "The question cannot be read.", "variations": [], "complete": False}
    reply = ask(world_model(), shown.QuestionEditMaterial("Why though?", passages, support, (), "x"))
    assert (reply["complete"], reply["question"]) == (False, "")


# Planted defects.


@cache
def drafts():
    """Sources with everything that comes before each part, built right."""
    drafts_by_role = {role: [] for role in PART}
    for profile in PROFILES:
        for index in range(10):
            team = ConstructionTeam(world_model(), world_model(), ConstructSettings())
            draft = asyncio.run(_screened(make_world_item(profile, 23, index).instance, team))
            for role, part in PART.items():
                if isinstance(draft, FamilyDraft):
                    drafts_by_role[role].append(draft)
                    draft = asyncio.run(part(draft, team))
    return drafts_by_role


async def _screened(source, team):
    return await screen_source(source, team, make_estimating_counter())


FIRST = {
    "wrong_answer": {"gates: gold_answer"},
    "decoupled_answer": {"verify_target: soundness"},
    "unsound_step": {"verify_target: soundness"},
    "skipped_step": {"verify_target: closure.closed"},
    "outside_step": {"verify_target: grounding.grounded"},
    "other_target": {"verify_target: alignment.aligned"},
    "outside_support": {"gates: edit_in_support"},
    "answer_unchanged": {"screen_evidence: edited_after"},
    "second_claim": {"screen_evidence: localized"},
    "stale_step": {"verify_evidence: soundness"},
    "first_too_early": {"verify_evidence: switching.original_after"},
    "first_too_late": {"verify_evidence: soundness", "gates: first_divergence"},
    "old_answer": {"gates: answer_changed"},
    "held_before": {"screen_evidence: original_after", "gates: answer_changed"},
    "two_answers": {"screen_evidence: localized"},
    "same_question": {"screen_question: changed"},
    "answer_named": {"gates: no_answer_leak"},
    "same_answer": {"gates: answer_changed"},
    "old_trace": {"verify_question: alignment.edited"},
    "single_step": {"screen_question: several_steps", "screen_question: natural", "gates: answer_changed"},
    "unwarranted": {"screen_question: edited_warranted", "gates: no_answer_leak"},
    "ambiguous": {"screen_question: edited_warranted", "screen_question: edited_unique"},
}
"""Who refuses each kind first."""


def test_every_kind_of_defect_has_its_catcher_written_down():
    assert set(FIRST) == {kind for kinds in REPLY_DEFECTS.values() for kind in kinds}


@pytest.mark.slow
@pytest.mark.parametrize(("role", "kind"), [(role, kind) for role, kinds in REPLY_DEFECTS.items() for kind in kinds])
def test_a_planted_defect_gets_through_nowhere(role, kind):
    planted, reasons = 0, set()
    for draft in drafts()[role]:
        replies = []
        for defect in (None, kind):
            model = world_model(defect=defect)
            outcome = asyncio.run(PART[role](draft, ConstructionTeam(model, model, ConstructSettings())))
            replies.append(next(reply for name, reply in model.said if name == role))
        if replies[0] == replies[1]:
            continue  # this one does not admit it
        planted += 1
        assert not isinstance(outcome, FamilyDraft), (kind, draft.source.id)
        reasons.add(outcome.reason)
    assert planted >= 5
    assert reasons <= FIRST[kind]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_defects_are_planted_at_the_rate_it_is_told(rate):
    """A call in which no kind is possible stays as it is; there are none among targets."""
    spoilt = total = 0
    for draft in drafts()[ConstructionRole.CONSTRUCT_TARGET]:
        source = draft.source
        for objection in range(8):
            brief = shown.TargetWritingMaterial(
                source.question,
                disclose_passages(source.evidence),
                _support(source),
                source.reference_answer,
                str(objection),
            )
            good, maybe = (ask(world_model(constructor_noise=noise), brief) for noise in (0.0, rate))
            spoilt += good != maybe
            total += 1
    assert abs(spoilt / total - rate) < 4 * (rate * (1 - rate) / total) ** 0.5


@pytest.mark.slow
def test_with_noise_a_second_attempt_may_succeed_and_nothing_wrong_comes_out():
    sources = [make_world_item("2wiki", 31, index).instance for index in range(25)]
    noisy = world_model(constructor_noise=0.5)
    once, reasons = funnel(sources, noisy)
    thrice, _ = funnel(sources, noisy, ConstructSettings(attempts=3))
    assert len(once) < len(thrice)
    assert reasons
    assert [find_family_defects(family) for family in thrice] == [()] * len(thrice)


@pytest.mark.slow
def test_a_verifier_that_errs_lets_wrong_families_through():
    """Or the oracle would have nothing to find."""
    sources = [make_world_item("short-easy", 31, index).instance for index in range(40)]
    model = world_model(constructor_noise=0.5, verifier_noise=0.3)
    families, _ = funnel(sources, model, ConstructSettings(attempts=3, reverify=False))
    assert any(find_family_defects(family) for family in families)


@pytest.mark.parametrize("wrong", [{"noise": 1.5}, {"noise": -0.1}, {"defect": "spilt coffee"}])
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(SettingError):
        register_constructor_handlers(HandlerRegistry(), **wrong)
