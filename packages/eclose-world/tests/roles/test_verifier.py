"""The world's verifier: every field for itself, from what is shown; and errs on as many candidates as it is told to."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import jsonschema_rs
import pytest

from eclose.errors import SettingError
from eclose.prompts.material_json import disclose_passages, disclose_steps
from eclose.values.response import Trace
from eclose_train.construction import questions as shown
from eclose_train.construction.questions import (
    ACCEPTANCE_CONDITIONS,
    ROLE_REPLY_SCHEMAS,
    SOUNDNESS_JUDGEMENT,
    ConstructionRole,
    build_construction_prompt,
)
from eclose_train.construction.roles import SUPPORT_MAP, parse_check_reply
from eclose_world.make.families import make_world_families
from eclose_world.roles.judge import CANNOT_READ
from eclose_world.roles.verifier import register_verifier_handlers
from eclose_world.server.chat_requests import BadRequest, ChatRequest, HandlerRegistry

CHECKS = tuple(role for role in ConstructionRole if not role.constructs)


def verifier(**settings):
    registry = HandlerRegistry()
    register_verifier_handlers(registry, **settings)
    return registry


EXACT = verifier()


def said(registry, material, seed=None):
    """The reply over the wire's own forms."""
    question = build_construction_prompt(material)
    schema = {"name": question.name, "schema": dict(question.schema), "strict": True}
    body = {
        "model": "world",
        "messages": list(question.messages),
        "response_format": {"type": "json_schema", "json_schema": schema},
        "seed": seed,
    }
    request = ChatRequest.of(body)
    reply = registry.handler(request.schema_name)(request)
    return reply.refusal or reply.content


def materials(family):
    """What the six of them are shown of a family."""
    source, gold, edit, asked_ = family.source, family.gold, family.evidence_edits[0], family.question_edit.view
    passages, steps = disclose_passages(gold.evidence), disclose_steps(gold.trace)
    index = int(edit.passage_id)
    edited = disclose_passages(edit.view.evidence)[index]
    support = tuple(int(passage_id) for passage_id in gold.support_ids)
    new_steps, first = disclose_steps(edit.view.trace), edit.first_affected_step + 1
    return {
        ConstructionRole.SCREEN_SEED: shown.SourceScreenMaterial(
            source.question, passages, source.reference_answer, source.aliases
        ),
        ConstructionRole.VERIFY_TARGET: shown.TargetCheckMaterial(gold.question, passages, support, steps, gold.answer),
        ConstructionRole.SCREEN_EVIDENCE: shown.EvidenceScreenMaterial(
            gold.question, passages, edited, gold.answer, edit.view.answer
        ),
        ConstructionRole.VERIFY_EVIDENCE: shown.EvidenceCheckMaterial(
            gold.question, passages, edited, steps, gold.answer, new_steps, edit.view.answer, first
        ),
        ConstructionRole.SCREEN_QUESTION: shown.QuestionScreenMaterial(
            gold.question, asked_.question, passages, gold.answer, asked_.answer
        ),
        ConstructionRole.VERIFY_QUESTION: shown.QuestionCheckMaterial(
            gold.question, asked_.question, passages, steps, gold.answer, disclose_steps(asked_.trace), asked_.answer
        ),
    }


@pytest.fixture(scope="module")
def families():
    return [
        family for profile in ("2wiki", "musique", "hotpot") for family in islice(make_world_families(profile, 8), 20)
    ]


def steps_of(material):
    steps = getattr(material, "edited_steps", getattr(material, "steps", None))
    return None if steps is None else len(steps)


def finding(material, reply):
    role = ConstructionRole(build_construction_prompt(material).name)
    jsonschema_rs.validate(dict(ROLE_REPLY_SCHEMAS[role]), reply)
    support = material.support if role is ConstructionRole.VERIFY_TARGET else ()
    return parse_check_reply(
        role, "world", reply, passages=len(material.evidence), steps=steps_of(material), support=support
    )


def objections(material, registry=EXACT, seed=None):
    return finding(material, said(registry, material, seed)).objections


@pytest.mark.slow
def test_nothing_speaks_against_a_correct_family(families):
    for family in families:
        assert {role: objections(material) for role, material in materials(family).items()} == dict.fromkeys(CHECKS, ())


@pytest.mark.slow
def test_the_support_is_the_one_that_is_needed(families):
    for family in families:
        reply = said(EXACT, materials(family)[ConstructionRole.SCREEN_SEED])
        assert tuple(map(str, reply["support"])) == family.gold.support_ids


@pytest.mark.slow
def test_steps_are_mapped_to_the_passages_that_warrant_them(families):
    for family in families:
        reply = said(EXACT, materials(family)[ConstructionRole.VERIFY_TARGET])
        mapped = {str(passage) for step in reply[SOUNDNESS_JUDGEMENT]["steps"] for passage in step["passages"]}
        # Two facts on one line are mapped to the passage of the first.
        assert mapped <= set(family.gold.support_ids)
        assert mapped
        assert all(step["passages"] or step["premises"] for step in reply[SOUNDNESS_JUDGEMENT]["steps"])


@pytest.mark.slow
def test_a_target_is_judged_in_four_ways_that_do_not_follow_from_each_other(families):
    for family in families:
        check = materials(family)[ConstructionRole.VERIFY_TARGET]
        new, asked_ = family.evidence_edits[0].view, family.question_edit.view
        assert objections(replace(check, answer=new.answer)) == ("closure.closed",)
        assert objections(replace(check, support=check.support[:1])) == ("grounding.grounded", SUPPORT_MAP)
        aside = objections(replace(check, steps=disclose_steps(asked_.trace), answer=asked_.answer))
        assert "alignment.aligned" in aside
        assert SOUNDNESS_JUDGEMENT not in aside
        assert "closure.closed" not in aside
        unsound = objections(replace(check, steps=disclose_steps(new.trace), answer=new.answer))
        assert unsound[0] == SOUNDNESS_JUDGEMENT
        assert not {"alignment.aligned", "closure.closed"} & set(unsound)


def test_an_edit_is_judged_from_the_passages_alone(families):
    for family in families:
        screen = materials(family)[ConstructionRole.SCREEN_EVIDENCE]
        before = family.gold.evidence[screen.edited.index]
        unedited = replace(screen.edited, text=before.text)
        assert set(objections(replace(screen, edited=unedited))) == {
            "localized", "edited_after", "unique_after", "original_after",
        }  # fmt: skip
        same = set(objections(replace(screen, edited_answer=screen.answer)))
        assert {"edited_after", "unique_after", "edited_before"} <= same


@pytest.mark.slow
def test_switching_is_judged_where_it_is_said_to_be(families):
    for family in families:
        check = materials(family)[ConstructionRole.VERIFY_EVIDENCE]
        late = objections(replace(check, first=check.first + 1))
        assert "prefix.after" in late
        stale = (*check.edited_steps[:-1], check.steps[-1])
        if check.first < len(check.steps) == len(check.edited_steps):
            assert SOUNDNESS_JUDGEMENT in objections(replace(check, edited_steps=stale))
        crossed = objections(replace(check, edited_answer=check.answer))
        assert set(crossed) == {"closure.edited", "closure.original_to_edited"}


@pytest.mark.slow
def test_a_question_is_judged_with_its_own_answer_and_trace(families):
    for family in families:
        screen, check = (
            materials(family)[role] for role in (ConstructionRole.SCREEN_QUESTION, ConstructionRole.VERIFY_QUESTION)
        )
        same = set(objections(replace(screen, edited_question=screen.question)))
        assert {"changed", "original_fits_edited", "edited_warranted"} <= same
        old = set(objections(replace(check, edited_steps=check.steps)))
        assert {"alignment.edited", "alignment.edited_to_original"} <= old
        assert SOUNDNESS_JUDGEMENT not in old


def test_what_it_cannot_read_it_does_not_judge(families):
    family = families[0]
    for role, material in materials(family).items():
        reply = said(EXACT, replace(material, question="Why though?"))
        if role is ConstructionRole.SCREEN_SEED:
            assert (reply["defect"], reply["warranted"], reply["support"]) == ("malformed", False, [])
        else:
            assert reply == CANNOT_READ
    mumbled = disclose_steps(Trace.of("Hm, well."))
    assert said(EXACT, replace(materials(family)[ConstructionRole.VERIFY_TARGET], steps=mumbled)) == CANNOT_READ


def test_what_is_no_material_is_refused(families):
    check = materials(families[0])[ConstructionRole.VERIFY_TARGET]
    with pytest.raises(BadRequest, match="no passages"):
        said(EXACT, replace(check, support=(0, 99)))


# To err.


def bad_ones(family):
    """Candidates that are not to be accepted."""
    by_role = materials(family)
    return {
        ConstructionRole.SCREEN_SEED: replace(by_role[ConstructionRole.SCREEN_SEED], reference="Nobody", aliases=()),
        ConstructionRole.VERIFY_TARGET: replace(
            by_role[ConstructionRole.VERIFY_TARGET], support=by_role[ConstructionRole.VERIFY_TARGET].support[:1]
        ),
        ConstructionRole.SCREEN_EVIDENCE: replace(
            by_role[ConstructionRole.SCREEN_EVIDENCE], edited_answer=family.gold.answer
        ),
        ConstructionRole.VERIFY_EVIDENCE: replace(
            by_role[ConstructionRole.VERIFY_EVIDENCE], edited_answer=family.gold.answer
        ),
        ConstructionRole.SCREEN_QUESTION: replace(
            by_role[ConstructionRole.SCREEN_QUESTION], edited_question=family.gold.question
        ),
        ConstructionRole.VERIFY_QUESTION: replace(
            by_role[ConstructionRole.VERIFY_QUESTION], edited_steps=by_role[ConstructionRole.VERIFY_QUESTION].steps
        ),
    }


@pytest.mark.slow
def test_whoever_always_errs_sees_one_thing_wrong_with_the_good_and_nothing_with_the_bad(families):
    wrong = verifier(noise=1.0)
    drawn = set()
    for family in families:
        for role, material in materials(family).items():
            (name,) = objections(material, wrong)
            drawn.add((role, name))
        for material in bad_ones(family).values():
            assert objections(material)
            assert objections(material, wrong) == ()
    assert drawn >= {(role, name) for role, names in ACCEPTANCE_CONDITIONS.items() for name in names}
    assert {role for role, name in drawn if name == SOUNDNESS_JUDGEMENT} == {
        role for role in CHECKS if SOUNDNESS_JUDGEMENT in ROLE_REPLY_SCHEMAS[role]["properties"]
    }


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_it_errs_at_the_rate_it_is_told(families, rate):
    noisy, again, other = verifier(noise=rate), verifier(noise=rate), verifier(noise=rate, seed=1)
    shown_all = [material for family in families for material in materials(family).values()]
    wrong = [bool(objections(material, noisy)) for material in shown_all]
    assert wrong == [bool(objections(material, again)) for material in shown_all]
    assert wrong != [bool(objections(material, other)) for material in shown_all]
    assert wrong != [bool(objections(material, noisy, seed=5)) for material in shown_all]
    # Four standard deviations of a binomial of 360.
    assert abs(sum(wrong) / len(wrong) - rate) < 4 * (rate * (1 - rate) / len(wrong)) ** 0.5


def test_noise_leaves_what_cannot_be_read():
    family = next(make_world_families("2wiki", 8))
    check = replace(materials(family)[ConstructionRole.VERIFY_TARGET], question="Why though?")
    assert said(verifier(noise=1.0), check) == CANNOT_READ


def test_a_rate_that_is_none_is_refused():
    with pytest.raises(SettingError):
        verifier(noise=1.5)
