"""The world's judge, from what any judge is shown, says what was planted; and errs as often as it is told to."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import jsonschema_rs
import pytest

from eclose.errors import SettingError
from eclose.prompts import disclosure
from eclose.prompts.judge_questions import JudgeQuestion, build_judge_prompt, parse_step_judgments
from eclose.values.judgment import LocalFailure
from eclose.values.response import Trace
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.chat_requests import ChatRequest

LABELS = {
    JudgeQuestion.ALIGNMENT: (disclosure.disclose_for_alignment, "aligned"),
    JudgeQuestion.CLOSURE: (disclosure.disclose_for_closure, "closed"),
    JudgeQuestion.COMPLETENESS: (disclosure.disclose_for_completeness, "complete"),
    JudgeQuestion.CORRECTNESS: (disclosure.disclose_for_correctness, "correct"),
}


def planted(count):
    for item in islice(make_world_items("2wiki", 7), count):
        for plan in (FailurePlan(), *FAILURE_PLANS):
            broken = break_response(item, plan, "x")
            if broken is not None:
                yield item.instance, broken


def answer(registry, material):
    """The reply over the wire's own forms, checked against the schema."""
    question = build_judge_prompt(material)
    body = {
        "model": "world",
        "messages": list(question.messages),
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": question.name, "schema": dict(question.schema), "strict": True},
        },
    }
    request = ChatRequest.of(body)
    return registry.handler(request.schema_name)(request)


def said(registry, material):
    return answer(registry, material).content


@pytest.mark.slow
def test_every_planted_label_is_recovered_from_what_is_disclosed():
    registry = build_world_handlers()
    count = 0
    for instance, broken in planted(8):
        material = disclosure.disclose_for_soundness(instance, broken.response)
        reply = said(registry, material)
        jsonschema_rs.validate(dict(build_judge_prompt(material).schema), reply)
        steps = parse_step_judgments(material, reply)
        assert [(step.substantive, step.sound, step.failure) for step in steps] == [
            (step.substantive, step.sound, step.failure) for step in broken.steps
        ]
        for disclose, label in LABELS.values():
            material = disclose(instance, broken.response)
            reply = said(registry, material)
            jsonschema_rs.validate(dict(build_judge_prompt(material).schema), reply)
            assert reply[label] == getattr(broken.verdict, label)
        count += 1
    assert count > 150


def test_questions_of_the_world_are_sufficient_and_eligible_and_stripped_ones_are_not():
    registry = build_world_handlers()
    for item in islice(make_world_items("2wiki", 7), 8):
        instance = item.instance
        assert said(registry, disclosure.disclose_for_sufficiency(instance))["sufficient"] is True
        assert said(registry, disclosure.disclose_for_eligibility(instance))["eligible"] is True
        support = set(instance.support_ids)
        stripped = replace(instance, evidence=tuple(entry for entry in instance.evidence if entry.id not in support))
        assert said(registry, disclosure.disclose_for_sufficiency(stripped))["sufficient"] is False
        assert said(registry, disclosure.disclose_for_eligibility(stripped))["code"] == "N1"
        assert (
            said(registry, disclosure.disclose_for_eligibility(replace(instance, question="Why though?")))["code"]
            == "N4"
        )
        wrong = replace(instance, reference_answer="Atlantis", aliases=())
        assert said(registry, disclosure.disclose_for_eligibility(wrong))["code"] == "N5"


def test_what_it_cannot_read_it_refuses_with_the_reason():
    instance, broken = next(planted(1))
    registry = build_world_handlers()
    material = disclosure.disclose_for_alignment(instance, broken.response)
    assert answer(registry, replace(material, question="Why though?")).refusal == "cannot read the question"
    mumbled = replace(broken.response, trace=Trace.of(*broken.response.trace.texts, "Hm, well."))
    number = len(mumbled.trace.steps)
    for disclose in (disclosure.disclose_for_soundness, disclosure.disclose_for_alignment):
        assert answer(registry, disclose(instance, mumbled)).refusal == f"cannot read step {number}"


@pytest.mark.slow
def test_it_errs_at_the_rate_it_is_told_and_always_on_the_same_cases():
    exact, noisy, again = (
        build_world_handlers(),
        build_world_handlers(judge_noise=0.2),
        build_world_handlers(judge_noise=0.2),
    )
    cases = list(planted(12))
    for question, (disclose, label) in LABELS.items():
        materials = [disclose(instance, broken.response) for instance, broken in cases]
        wrong = [said(noisy, material)[label] != said(exact, material)[label] for material in materials]
        assert wrong == [said(again, material)[label] != said(exact, material)[label] for material in materials], (
            question
        )
        assert 0.1 < sum(wrong) / len(wrong) < 0.3


def test_erring_on_soundness_turns_the_whole_response_round():
    exact, noisy = build_world_handlers(), build_world_handlers(judge_noise=1.0)
    for instance, broken in islice(planted(2), 40):
        material = disclosure.disclose_for_soundness(instance, broken.response)
        right, wrong = (parse_step_judgments(material, said(registry, material)) for registry in (exact, noisy))
        if any(step.substantive for step in right):
            assert all(step.sound is not False for step in right) != all(step.sound is not False for step in wrong)
        assert {step.failure for step in wrong} <= {None, LocalFailure.OTHER}


def test_a_rate_that_is_none_is_refused():
    with pytest.raises(SettingError):
        build_world_handlers(judge_noise=1.5)
