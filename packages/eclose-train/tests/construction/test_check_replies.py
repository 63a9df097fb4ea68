"""Every judgement counts for itself: one that does not come out as wanted is enough."""

from __future__ import annotations

from copy import deepcopy

import pytest

from eclose.prompts.structured import InconsistentReplyError
from eclose.values.family import FamilyFinding
from eclose_train.construction.questions import ACCEPTANCE_CONDITIONS, ROLE_REPLY_SCHEMAS, ConstructionRole
from eclose_train.construction.roles import describe_objections, parse_check_reply
from tests.tables import each_row

JUDGING = [role for role in ConstructionRole if not role.constructs]
WITH_STEPS = {ConstructionRole.VERIFY_TARGET, ConstructionRole.VERIFY_EVIDENCE, ConstructionRole.VERIFY_QUESTION}


def good(role):
    """A reply that lets everything pass."""
    reply = _empty(ROLE_REPLY_SCHEMAS[role])
    for name, expected in ACCEPTANCE_CONDITIONS[role].items():
        _set(reply, name, expected)
    if role in WITH_STEPS:
        entry = reply["soundness"]["steps"][0]
        reply["soundness"]["steps"] = [{**entry, "id": number, "sound": True} for number in (2, 1)]
        if role is ConstructionRole.VERIFY_TARGET:
            mapped(reply, (), (1,), step=2)
            mapped(reply, (3,), ())
    if role is ConstructionRole.SCREEN_SEED:
        reply |= {"support": [0, 3], "defect": None}
    if role is ConstructionRole.VERIFY_TARGET:
        reply["grounding"]["outside"] = []
    return reply


def mapped(reply, passages, premises, step=1):
    """Let the reply say what a step rests on."""
    entry = next(entry for entry in reply["soundness"]["steps"] if entry["id"] == step)
    entry |= {"passages": list(passages), "premises": list(premises)}
    return reply


def _empty(schema):
    match schema.get("type"):
        case "object":
            return {name: _empty(part) for name, part in schema["properties"].items()}
        case "array":
            return [_empty(schema["items"])]
        case kind:
            return {"string": "because", "boolean": None, "integer": 1, None: None}[kind]


def _set(reply, name, value):
    *parts, last = name.split(".")
    for part in parts:
        reply = reply[part]
    assert last in reply
    reply[last] = value


def found(role, reply):
    support = (0, 3) if role is ConstructionRole.VERIFY_TARGET else ()
    return parse_check_reply(
        role, "house/judge", reply, steps=2 if role in WITH_STEPS else None, passages=5, support=support
    )


@pytest.mark.parametrize("role", JUDGING)
def test_a_reply_without_objection_is_accepted(role):
    finding = found(role, good(role))
    assert (finding.accepted, finding.objections, describe_objections(finding)) == (True, (), "")


@each_row([(role, name) for role in JUDGING for name in ACCEPTANCE_CONDITIONS[role]])
def test_one_judgement_against_it_is_enough(role, name):
    reply = good(role)
    _set(reply, name, not ACCEPTANCE_CONDITIONS[role][name])
    finding = found(role, reply)
    assert (finding.accepted, finding.objections) == (False, (name,))
    assert describe_objections(finding) == f"{name}: because"


@pytest.mark.parametrize("role", sorted(WITH_STEPS))
def test_one_unsound_step_is_enough_and_is_named(role):
    reply = good(role)
    reply["soundness"]["steps"][0] |= {"sound": False, "reason": "not told"}
    finding = found(role, reply)
    assert (finding.objections, describe_objections(finding)) == (("soundness",), "soundness: step 2: not told")


@pytest.mark.parametrize("ids", [(1,), (1, 1), (1, 2, 3), (0, 1)])
def test_steps_that_were_not_asked_about_make_no_finding(ids):
    reply = good(ConstructionRole.VERIFY_QUESTION)
    entry = reply["soundness"]["steps"][0]
    reply["soundness"]["steps"] = [{**entry, "id": number} for number in ids]
    with pytest.raises(InconsistentReplyError) as refused:
        found(ConstructionRole.VERIFY_QUESTION, reply)
    assert refused.value.kind == "wrong step ids"


def test_a_defect_of_the_source_is_told_by_its_name():
    finding = found(ConstructionRole.SCREEN_SEED, good(ConstructionRole.SCREEN_SEED) | {"defect": "broken_link"})
    assert finding.objections == ("broken_link",)


@pytest.mark.parametrize("support", [[], [4], [4, 4]])
def test_one_passage_is_no_chain(support):
    assert found(
        ConstructionRole.SCREEN_SEED, good(ConstructionRole.SCREEN_SEED) | {"support": support}
    ).objections == ("support",)


def test_a_verifier_that_contradicts_itself_is_asked_again():
    reply = good(ConstructionRole.VERIFY_TARGET)
    reply["grounding"]["outside"] = [2]
    with pytest.raises(InconsistentReplyError):
        found(ConstructionRole.VERIFY_TARGET, reply)
    reply["grounding"]["grounded"] = False
    assert found(ConstructionRole.VERIFY_TARGET, reply).objections == ("grounding.grounded",)


def test_a_step_that_rests_on_passages_outside_the_support_alone_is_refused():
    """Whatever the reply says of grounding as a whole: the map of steps to passages decides (R_E, appendix B.3)."""
    finding = found(ConstructionRole.VERIFY_TARGET, mapped(good(ConstructionRole.VERIFY_TARGET), [4], []))
    assert finding.said["grounding"] == {"reason": "because", "outside": [], "grounded": True}
    assert (finding.accepted, finding.objections) == (False, ("grounding.support_map",))
    assert (
        describe_objections(finding, (0, 3))
        == "grounding.support_map: step 1 rests on passages outside the support alone"
    )
    # A fact from elsewhere is not grounded by what an earlier step adds to it.
    assert found(
        ConstructionRole.VERIFY_TARGET, mapped(good(ConstructionRole.VERIFY_TARGET), [4], [1], step=2)
    ).objections
    # A passage of the support that warrants it too is enough.
    assert found(ConstructionRole.VERIFY_TARGET, mapped(good(ConstructionRole.VERIFY_TARGET), [4, 3], [])).accepted
    # An edit of the evidence has a support of its own, so nothing is asked of its steps.
    assert found(ConstructionRole.VERIFY_EVIDENCE, good(ConstructionRole.VERIFY_EVIDENCE)).accepted


def test_a_sound_step_that_rests_on_nothing_leaves_the_map_incomplete():
    with pytest.raises(InconsistentReplyError) as refused:
        found(ConstructionRole.VERIFY_TARGET, mapped(good(ConstructionRole.VERIFY_TARGET), [], []))
    assert refused.value.kind == "incomplete support map"
    unsound = mapped(good(ConstructionRole.VERIFY_TARGET), [], [])
    next(entry for entry in unsound["soundness"]["steps"] if entry["id"] == 1)["sound"] = False
    assert found(ConstructionRole.VERIFY_TARGET, unsound).objections == ("soundness",)


@pytest.mark.parametrize("premises", [[2], [3], [0], [-1]])
def test_a_step_may_rest_on_earlier_steps_alone(premises):
    with pytest.raises(InconsistentReplyError) as refused:
        found(ConstructionRole.VERIFY_TARGET, mapped(good(ConstructionRole.VERIFY_TARGET), [3], premises, step=2))
    assert refused.value.kind == "wrong premises"


def test_steps_outside_the_support_are_steps_that_were_shown():
    reply = good(ConstructionRole.VERIFY_TARGET)
    reply["grounding"] |= {"outside": [9], "grounded": False}
    with pytest.raises(InconsistentReplyError) as refused:
        found(ConstructionRole.VERIFY_TARGET, reply)
    assert refused.value.kind == "wrong step ids"


def test_what_is_wanted_is_in_the_shape_of_the_reply_and_nothing_of_it_is_left_out():
    """A judgement that is asked for and does not count would be a gate that is always open."""
    for role in JUDGING:
        judgements = {name for name in _booleans(ROLE_REPLY_SCHEMAS[role]) if not name.startswith("soundness.")}
        assert judgements == set(ACCEPTANCE_CONDITIONS[role])


def _booleans(schema, before=""):
    for name, part in schema.get("properties", {}).items():
        if part.get("type") == "boolean":
            yield before + name
        yield from _booleans(part, f"{before}{name}.")


def test_a_finding_keeps_the_reply_as_it_came():
    reply = good(ConstructionRole.SCREEN_QUESTION)
    assert found(ConstructionRole.SCREEN_QUESTION, reply) == FamilyFinding(
        ConstructionRole.SCREEN_QUESTION, "house/judge", deepcopy(reply), ()
    )


def test_a_step_that_rests_on_no_passage_that_was_shown_is_no_reply():
    reply = good(ConstructionRole.VERIFY_TARGET)
    reply["soundness"]["steps"][0]["passages"] = [99]
    with pytest.raises(InconsistentReplyError, match=r"no passages \[99\] among 5"):
        found(ConstructionRole.VERIFY_TARGET, reply)
