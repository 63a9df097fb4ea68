"""From a source to its family by scripted models: what is accepted, what is not, and what is told of it."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from dataclasses import replace

import pytest

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import FinishReason, Reply, TokenUsage
from eclose.calls.record_loop import RecordRejection
from eclose.errors import SettingError
from eclose.files.jsonl import decode_core_value, encode_json_line
from eclose.prompts.material_json import parse_material
from eclose.values.family import Family
from eclose.values.instance import Instance
from eclose.values.judgment import NO_REFERENCE_REASON
from eclose_train.construction.candidates import FailedSource, FamilyDraft
from eclose_train.construction.lengths import make_estimating_counter
from eclose_train.construction.questions import ROLE_MATERIAL_TYPES, ConstructionRole
from eclose_train.construction.roles import ConstructionTeam
from eclose_train.construction.settings import ConstructSettings
from eclose_train.construction.stages import (
    INCOMPARABLE,
    assemble_family,
    build_evidence_edits,
    build_question_edit,
    build_target_response,
    reverify_family,
    screen_source,
)
from tests.construction.test_candidates import QUESTION, SOURCE, TARGET, VARIATION, step
from tests.construction.test_check_replies import good, mapped


def sound(role, steps):
    reply = good(role)
    entry = reply["soundness"]["steps"][0]
    reply["soundness"]["steps"] = [{**entry, "id": number + 1, "sound": True} for number in range(steps)]
    if role is ConstructionRole.VERIFY_TARGET:
        for number, (passages, premises) in enumerate((((0,), ()), ((2,), ()), ((), (1, 2))), start=1):
            mapped(reply, passages, premises, step=number)
    return reply


ANOTHER = deepcopy(VARIATION) | {
    "passage": 0, "claim": "Blue Harbour is a 1994 film directed by Ana Ruiz.", "first": 1, "answer": "Chile",
    "keep": [], "replacements": [{"old": "Ana Ruiz", "new": "Bo Lund"}],
    "steps": [step("Blue Harbour was directed by Bo Lund.", [0]), step("So it is Chile.", (), [1])],
}  # fmt: skip
REPLIES = {
    ConstructionRole.SCREEN_SEED: good(ConstructionRole.SCREEN_SEED) | {"support": [2, 0]},
    ConstructionRole.CONSTRUCT_TARGET: TARGET,
    ConstructionRole.VERIFY_TARGET: sound(ConstructionRole.VERIFY_TARGET, 3),
    ConstructionRole.CONSTRUCT_EVIDENCE: {"plan": "", "variations": [VARIATION], "complete": True},
    ConstructionRole.SCREEN_EVIDENCE: good(ConstructionRole.SCREEN_EVIDENCE),
    ConstructionRole.VERIFY_EVIDENCE: sound(ConstructionRole.VERIFY_EVIDENCE, 3),
    ConstructionRole.CONSTRUCT_QUESTION: QUESTION,
    ConstructionRole.SCREEN_QUESTION: good(ConstructionRole.SCREEN_QUESTION),
    ConstructionRole.VERIFY_QUESTION: sound(ConstructionRole.VERIFY_QUESTION, 2),
}


class Script:
    """Says for each role what it is told to, one after the other; the last is said again and again."""

    def __init__(self, name, **replies):
        self.name = name
        self.replies = {role: [reply] for role, reply in REPLIES.items()} | {
            ConstructionRole[role]: reply for role, reply in replies.items()
        }
        self.asked = []

    async def complete(self, request):
        role = ConstructionRole(request.schema.name)
        reply = self.replies[role][min(len(self.shown(role)), len(self.replies[role]) - 1)]
        self.asked.append(request)
        if isinstance(reply, Exception):
            raise reply
        return Reply(json.dumps(reply), FinishReason.STOP, TokenUsage(1, 1))

    def shown(self, role):
        """What a role was shown, each time."""
        requests = [request for request in self.asked if request.schema.name == role]
        return [parse_material(ROLE_MATERIAL_TYPES[role], request.messages[-1]["content"]) for request in requests]


def built(source=SOURCE, settings=None, **replies):
    """The draft as far as it gets, and the script."""
    script = Script("house/model", **replies)
    team = ConstructionTeam(script, script, settings or ConstructSettings())

    async def run():
        draft = await screen_source(source, team, make_estimating_counter())
        for part in (build_target_response, build_evidence_edits, build_question_edit):
            if isinstance(draft, FamilyDraft):
                draft = await part(draft, team)
        return draft

    return asyncio.run(run()), script


def packed(draft, script, settings=None):
    return assemble_family(
        draft, ConstructionTeam(script, script, settings or ConstructSettings()), make_estimating_counter()
    )


def checked_again(family, script, **more):
    team = ConstructionTeam(script, script, ConstructSettings(), **more)
    return asyncio.run(reverify_family(family, team))


def refused(source=SOURCE, settings=None, **replies):
    rejection, script = built(source, settings, **replies)
    assert isinstance(rejection, RecordRejection), rejection
    return rejection, script


def test_a_source_becomes_a_family_with_all_that_was_said_of_it():
    draft, script = built()
    family = packed(draft, script)
    assert isinstance(family, Family)
    assert [finding.role for finding in family.findings] == VERDICTS
    assert {finding.judge for finding in family.findings} == {"house/model"}
    assert draft.attempts == {"target": 1, "evidence": 1, "question": 1}
    assert [request.schema.name for request in script.asked] == list(ConstructionRole)
    assert decode_core_value(FamilyDraft, json.loads(encode_json_line(draft))) == draft
    assert family.provenance.attempts == draft.attempts
    assert (family.provenance.constructor, family.provenance.reverifier) == ("house/model", None)
    assert decode_core_value(Family, json.loads(encode_json_line(family))) == family


def test_each_is_shown_what_came_before_it():
    _, script = built()
    (check,) = script.shown(ConstructionRole.VERIFY_EVIDENCE)
    assert (check.first, check.edited.index, check.edited_answer) == (2, 2, "Iquique")
    assert [step.text for step in check.edited_steps][:1] == [step.text for step in check.steps][:1]
    (brief,) = script.shown(ConstructionRole.CONSTRUCT_EVIDENCE)
    assert (brief.wanted, brief.support, brief.objection) == (2, (0, 2), None)


VERDICTS = [
    ConstructionRole.SCREEN_SEED,
    ConstructionRole.VERIFY_TARGET,
    ConstructionRole.SCREEN_EVIDENCE,
    ConstructionRole.VERIFY_EVIDENCE,
    ConstructionRole.SCREEN_QUESTION,
    ConstructionRole.VERIFY_QUESTION,
]
AGAINST = {
    ConstructionRole.SCREEN_SEED: {"unique": False},
    ConstructionRole.VERIFY_TARGET: {"closure": {"reason": "gap", "closed": False}},
    ConstructionRole.SCREEN_EVIDENCE: {"original_after": True},
    ConstructionRole.VERIFY_EVIDENCE: {"alignment": {"reason": "elsewhere", "aligned": False}},
    ConstructionRole.SCREEN_QUESTION: {"degenerate": True},
    ConstructionRole.VERIFY_QUESTION: {"closure": {"reason": "gap", "closed": False}},
}


@pytest.mark.parametrize("role", VERDICTS)
def test_whoever_objects_ends_it_with_stage_reason_and_what_was_said(role):
    reply = REPLIES[role] | AGAINST[role]
    rejection, script = refused(**{role.name: [reply]})
    name = next(iter(AGAINST[role]))
    assert rejection.reason.startswith(f"{role}: {name}")
    (setback,) = rejection.value.setbacks
    assert (setback.stage, setback.finding.said) == (role, reply)
    assert script.asked[-1].schema.name == role
    assert decode_core_value(FailedSource, json.loads(encode_json_line(rejection.value))) == rejection.value


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ({"CONSTRUCT_TARGET": [TARGET | {"answer": "Lima"}]}, "gates: gold_answer"),
        ({"CONSTRUCT_TARGET": [TARGET | {"complete": False}]}, "construct_target: incomplete"),
        ({"CONSTRUCT_EVIDENCE": [{"plan": "", "variations": [], "complete": True}]}, "code: no variation"),
        ({"CONSTRUCT_QUESTION": [QUESTION | {"answer": "Arica"}]}, "gates: no_answer_leak"),
        ({"CONSTRUCT_QUESTION": [QUESTION | {"question": SOURCE.question}]}, "gates: question_changed"),
    ],
)
def test_code_refuses_what_needs_no_judge_and_asks_nobody_about_it(replies, reason):
    rejection, script = refused(**replies)
    assert rejection.reason == reason
    assert ConstructionRole(script.asked[-1].schema.name).constructs


def test_a_source_without_an_answer_is_not_asked_about():
    rejection, script = refused(Instance("q", "Why?", SOURCE.evidence))
    assert (rejection.reason, script.asked) == (NO_REFERENCE_REASON, [])


def test_a_good_variation_is_enough_and_the_others_are_left():
    wrong = VARIATION | {"claim": "Nothing of this stands there."}
    both = {"plan": "", "variations": [wrong, VARIATION], "complete": True}
    draft, _ = built(CONSTRUCT_EVIDENCE=[both])
    assert [edit.view.answer for edit in draft.evidence_edits] == ["Iquique"]
    assert [str(setback) for setback in draft.setbacks] == ["code: claim_not_found"]


def test_a_variation_that_cannot_be_read_spoils_no_other():
    nowhere = VARIATION | {"passage": 9}
    draft, script = built(CONSTRUCT_EVIDENCE=[{"plan": "", "variations": [nowhere, VARIATION], "complete": True}])
    assert [edit.view.answer for edit in draft.evidence_edits] == ["Iquique"]
    assert [str(setback) for setback in draft.setbacks] == ["code: no such passage"]
    assert any("no such passage" in setback for setback in packed(draft, script).provenance.setbacks)


def test_a_reference_that_could_never_match_is_not_asked_about():
    rejection, script = refused(replace(SOURCE, reference_answer="Москва"))
    assert (rejection.reason, script.asked) == (INCOMPARABLE, [])


def test_no_more_variations_than_wanted_and_none_twice():
    three = {"plan": "", "variations": [VARIATION, VARIATION, ANOTHER], "complete": True}
    draft, script = built(CONSTRUCT_EVIDENCE=[three])
    assert len(draft.evidence_edits) == 1
    assert len(script.shown(ConstructionRole.SCREEN_EVIDENCE)) == 1


def test_two_good_variations_are_both_kept():
    both = {"plan": "", "variations": [VARIATION, ANOTHER], "complete": True}
    verified = [sound(ConstructionRole.VERIFY_EVIDENCE, 3), sound(ConstructionRole.VERIFY_EVIDENCE, 2)]
    draft, script = built(CONSTRUCT_EVIDENCE=[both], VERIFY_EVIDENCE=verified)
    assert [edit.passage_id for edit in draft.evidence_edits] == ["c", "a"]
    assert len(draft.findings) == 1 + 1 + 2 * 2 + 2
    assert isinstance(packed(draft, script), Family)


def test_a_second_attempt_is_told_what_was_said_against_the_first():
    objecting = REPLIES[ConstructionRole.VERIFY_TARGET] | AGAINST[ConstructionRole.VERIFY_TARGET]
    twice = ConstructSettings(attempts=2)
    draft, script = built(settings=twice, VERIFY_TARGET=[objecting, REPLIES[ConstructionRole.VERIFY_TARGET]])
    assert isinstance(draft, FamilyDraft)
    assert draft.attempts["target"] == 2
    first, second = script.shown(ConstructionRole.CONSTRUCT_TARGET)
    assert first.objection is None
    assert "gap" in second.objection
    rejection, script = refused(settings=twice, VERIFY_TARGET=[objecting])
    assert len(rejection.value.setbacks) == 2
    assert {
        request.replica for request in script.asked if request.schema.name == ConstructionRole.CONSTRUCT_TARGET
    } == {0, 1}


def test_a_reply_that_is_none_is_asked_for_again_and_then_told():
    nowhere = TARGET | {"steps": [step("x", [9])]}
    draft, _ = built(CONSTRUCT_TARGET=[nowhere, TARGET])
    assert isinstance(draft, FamilyDraft)
    rejection, _ = refused(CONSTRUCT_TARGET=[nowhere])
    assert rejection.reason == "construct_target: no such passage"
    rejection, script = refused(SCREEN_SEED=[REPLIES[ConstructionRole.SCREEN_SEED] | {"support": [0, 99]}])
    assert (rejection.reason, len(script.asked)) == ("screen_seed: no such passage", 2)
    rejection, _ = refused(SCREEN_QUESTION=[CallFailure(CallFailureKind.REFUSAL, "no")])
    assert rejection.reason == "screen_question: refusal"
    with pytest.raises(CallFailure):
        built(SCREEN_QUESTION=[CallFailure(CallFailureKind.TIMEOUT, "slow")])


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"attempts": 4}, {"edits": 0}, {"replies": 0}])
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(SettingError):
        ConstructSettings(**wrong)


def test_a_run_is_known_by_its_settings_and_texts():
    assert ConstructSettings().identity["guidelines"].keys() == set(ConstructionRole)
    assert ConstructSettings(edits=3).identity != ConstructSettings().identity


def test_what_is_longer_than_a_path_may_be_is_left_out_before_anybody_is_paid_and_after():
    short = ConstructSettings(max_length=10)
    rejection, script = refused(settings=short)
    assert (rejection.reason, script.asked) == ("length: too long", [])
    draft, script = built()
    longest = make_estimating_counter().count_family(draft.family(None))
    assert isinstance(packed(draft, script, ConstructSettings(max_length=longest)), Family)
    rejection = packed(draft, script, ConstructSettings(max_length=longest - 1))
    assert rejection.reason == "length: too long"


def test_a_finished_family_is_before_every_check_once_more_by_replies_drawn_anew():
    draft, script = built()
    family = packed(draft, script)
    other = Script("other/model")
    again = checked_again(family, script, reverifier=other)
    assert [request.schema.name for request in other.asked] == VERDICTS
    assert {(request.replica, request.decoding.temperature) for request in other.asked} == {(1, 0.7)}
    assert {request.replica for request in script.asked} == {0}
    assert again.findings[: len(family.findings)] == family.findings
    assert [(finding.role, finding.judge, finding.again) for finding in again.findings[len(family.findings) :]] == [
        (role, "other/model", True) for role in VERDICTS
    ]
    assert (again.provenance.verifier, again.provenance.reverifier) == ("house/model", "other/model")
    assert (again.gold, again.evidence_edits, again.question_edit) == (
        family.gold,
        family.evidence_edits,
        family.question_edit,
    )


@pytest.mark.parametrize("role", VERDICTS)
def test_whoever_objects_the_second_time_is_heard(role):
    draft, script = built()
    family = packed(draft, script)
    rejection = checked_again(family, Script("house/model", **{role.name: [REPLIES[role] | AGAINST[role]]}))
    assert rejection.reason.startswith(f"{role}: ")
    assert rejection.value.setbacks[-1].finding.again


def test_an_edit_that_does_not_hold_the_second_time_is_left_out_alone():
    both = {"plan": "", "variations": [VARIATION, ANOTHER], "complete": True}
    verified = [sound(ConstructionRole.VERIFY_EVIDENCE, 3), sound(ConstructionRole.VERIFY_EVIDENCE, 2)]
    draft, script = built(CONSTRUCT_EVIDENCE=[both], VERIFY_EVIDENCE=verified)
    family = packed(draft, script)
    good_one = REPLIES[ConstructionRole.SCREEN_EVIDENCE]
    objecting = Script(
        "m",
        SCREEN_EVIDENCE=[good_one | AGAINST[ConstructionRole.SCREEN_EVIDENCE], good_one],
        VERIFY_EVIDENCE=verified[1:],
    )
    again = checked_again(family, objecting)
    assert [edit.view.answer for edit in again.evidence_edits] == ["Chile"]
    assert [finding.edit for finding in again.findings if finding.role == ConstructionRole.VERIFY_EVIDENCE] == [0, 0]
    assert len([finding for finding in again.findings if finding.role == ConstructionRole.SCREEN_EVIDENCE]) == 2
    assert any("original_after" in setback for setback in again.provenance.setbacks)


def test_a_target_with_a_step_outside_the_support_is_not_accepted():
    """By the constructor's own map the gates refuse it, by the verifier's map its finding does."""
    steps = [step("Blue Harbour was directed by Ana Ruiz.", [0]), step("Arica is a port.", [1]), *TARGET["steps"][1:2]]
    rejection, script = refused(CONSTRUCT_TARGET=[TARGET | {"steps": steps}])
    assert rejection.reason == "gates: identifier_membership"
    assert not script.shown(ConstructionRole.VERIFY_TARGET)
    reply = mapped(deepcopy(REPLIES[ConstructionRole.VERIFY_TARGET]), [1], [], step=2)
    rejection, _ = refused(VERIFY_TARGET=[reply])
    assert rejection.reason == "verify_target: grounding.support_map"
