"""The world's model behind detectors: exact without noise, wrong at a known rate with it."""

from __future__ import annotations

from itertools import islice

import pytest

from eclose.errors import SettingError
from eclose.prompts.detector_questions import (
    CLAIM_QUESTIONS,
    STATEMENT_QUESTIONS,
    build_alignment_messages,
    build_extraction_prompt,
    build_verification_prompt,
    disclose_response,
)
from eclose.prompts.disclosure import disclose_for_alignment
from eclose.values.instance import Passage
from eclose.values.response import Trace
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.language.questions import ComparisonQuestion
from eclose_world.make.instances import make_world_items
from eclose_world.roles.detector import decide_support
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.chat_requests import BadRequest, ChatRequest


def ask(prompt, registry=None):
    schema = {"name": prompt.name, "schema": dict(prompt.schema)}
    body = {
        "model": "world",
        "messages": list(prompt.messages),
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    reply = (registry or build_world_handlers()).handler(prompt.name)(ChatRequest.of(body))
    return None if reply.refusal else reply.content


def ask_alignment(instance, response, registry=None, *, logprobs=True):
    messages = build_alignment_messages(disclose_for_alignment(instance, response))
    body = {"model": "world", "messages": list(messages), "logprobs": logprobs}
    return (registry or build_world_handlers()).handler(None)(ChatRequest.of(body))


def plant(profile, count, *plans):
    for item in islice(make_world_items(profile, 5), count):
        for plan in plans or (FailurePlan(), *FAILURE_PLANS):
            if (broken := break_response(item, plan, "x")) is not None:
                yield item.instance, broken


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["hotpot", "2wiki", "musique"])
def test_statements_are_supported_exactly_where_steps_are_sound_and_the_answer_correct(profile):
    undecided = 0
    for instance, broken in plant(profile, 4):
        extraction = ask(build_extraction_prompt(STATEMENT_QUESTIONS, disclose_response(instance, broken.response)))
        reply = ask(build_verification_prompt(STATEMENT_QUESTIONS, instance, extraction["statements"]))
        if reply is None:
            undecided += 1
            continue
        labels = [entry["supported"] for entry in reply["statements"].values()]
        assert labels == [step.sound is not False for step in broken.steps] + [broken.verdict.correct]
    assert undecided == 0


def test_a_claim_is_what_a_step_asserts():
    for instance, broken in plant("2wiki", 6, FailurePlan()):
        reply = ask(build_extraction_prompt(CLAIM_QUESTIONS, disclose_response(instance, broken.response)))
        texts = broken.response.trace.texts
        *claims, answer = reply["claims"]
        assert claims == [text for text, step in zip(texts, broken.steps, strict=True) if step.substantive]
        assert answer.startswith(f'The answer to the question "{instance.question}" is ')


def test_yes_is_likely_exactly_where_a_trace_is_aligned():
    for instance, broken in plant("2wiki", 4):
        reply = ask_alignment(instance, broken.response)
        assert reply.first_token == pytest.approx(
            {"Yes": 0.9, "No": 0.1} if broken.verdict.aligned else {"Yes": 0.1, "No": 0.9}
        )
        assert reply.text == ("Yes" if broken.verdict.aligned else "No")


def test_a_text_outside_the_grammar_is_not_decided():
    passages = (Passage("0", "t", "x"),)
    assert decide_support(passages, ["Furiously."]) == [None]
    assert decide_support(passages, ['The answer to the question "Furiously?" is x.']) == [None]


def test_an_abstention_is_supported_where_the_passages_give_no_answer():
    ((instance, _),) = plant("short-easy", 1, FailurePlan())
    statement = f'The answer to the question "{instance.question}" is not determined.'
    assert decide_support(instance.evidence, [statement]) == [False]
    assert decide_support((Passage("0", "Nothing", "Nothing of use."),), [statement]) == [True]


def test_plain_text_without_log_probabilities_is_a_question_as_before():
    ((instance, broken),) = plant("short-easy", 1, FailurePlan())
    with pytest.raises(BadRequest, match="not a question with passages"):
        ask_alignment(instance, broken.response, logprobs=False)


@pytest.mark.slow
def test_noise_turns_decisions_around_at_its_rate():
    noisy = build_world_handlers(detector_noise=0.3, seed=1)
    decisions, aligned = [], []
    for instance, broken in plant("2wiki", 12, FailurePlan(), *FAILURE_PLANS[:13]):
        statements = [*broken.response.trace.texts]
        prompt = build_verification_prompt(STATEMENT_QUESTIONS, instance, statements)
        exact, errs = (ask(prompt, registry)["statements"] for registry in (None, noisy))
        assert ask(prompt, noisy)["statements"] == errs
        decisions += [exact[key]["supported"] != errs[key]["supported"] for key in exact]
        pair = (ask_alignment(instance, broken.response, registry).text for registry in (None, noisy))
        aligned.append(len(set(pair)) == 2)
    # Four standard errors of a rate of 0.3.
    for errors in (decisions, aligned):
        assert abs(sum(errors) / len(errors) - 0.3) < 4 * (0.21 / len(errors)) ** 0.5
        assert len(errors) > 100


@pytest.mark.parametrize("noise", [-0.1, 1.1])
def test_a_rate_outside_0_to_1_is_refused(noise):
    with pytest.raises(SettingError, match="detector_noise"):
        build_world_handlers(detector_noise=noise)


def test_pronouns_refer_to_earlier_statements():
    ((instance, broken),) = plant("short-easy", 1, FailurePlan())
    labels = decide_support(instance.evidence, Trace.of(*broken.response.trace.texts).texts)
    assert labels == [True] * len(labels)


def test_a_choice_is_made_among_the_options_of_the_question():
    """A trace that only names the older of two is decided by the question that the answer's statement repeats."""
    items = (item for item in make_world_items("2wiki", 5) if isinstance(item.target, ComparisonQuestion))
    for item in islice(items, 5):
        broken = break_response(item, FailurePlan(), "x")
        choice = broken.response.trace.texts[-1]
        answer = f'The answer to the question "{item.instance.question}" is {broken.response.answer}.'
        assert decide_support(item.instance.evidence, [choice, answer]) == [True, True]
        assert decide_support(item.instance.evidence, [choice]) == [False]
