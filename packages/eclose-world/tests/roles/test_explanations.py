"""What the judge says in words is what was planted."""

from __future__ import annotations

from itertools import islice

import pytest

from eclose.values.instance import Passage
from eclose.values.response import Trace
from eclose.values.verdict import FailureClass
from eclose_world.faulty.broken_responses import FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.answer_equality import is_correct_answer
from eclose_world.oracle.soundness import judge_step_soundness
from eclose_world.roles.explanations import describe_established_answer, describe_pursued_target, find_supporting_quote


@pytest.fixture(scope="module")
def items():
    return list(islice(make_world_items("2wiki", 5), 40))


def broken(items, failure):
    pairs = ((item, break_response(item, FailurePlan(None, failure), "t")) for item in items)
    return [(item.instance, faulty.response) for item, faulty in pairs if faulty is not None]


def test_a_reliable_response_leaves_nothing_to_tell(items):
    for item in items:
        question, response = item.instance.question, item.response
        assert describe_pursued_target(question, response.trace) is None
        assert describe_established_answer(question, response.trace, response.answer) is None


def test_a_decoupled_answer_is_told_from_the_one_that_was_established(items):
    cases = broken(items, FailureClass.ANSWER_DECOUPLING)
    assert len(cases) > 10
    for instance, response in cases:
        established = describe_established_answer(instance.question, response.trace, response.answer)
        assert is_correct_answer(established, instance.accepted_answers)


def test_reasoning_that_stops_short_establishes_nothing(items):
    cases = broken(items, FailureClass.INCOMPLETE_REASONING)
    assert len(cases) > 10
    assert {
        describe_established_answer(instance.question, response.trace, response.answer) for instance, response in cases
    } == {None}


def test_what_is_pursued_instead_is_named(items):
    cases = broken(items, FailureClass.PATH_DEVIATION)
    assert len(cases) > 10
    targets = [describe_pursued_target(instance.question, response.trace) for instance, response in cases]
    assert all(targets)
    phrases = [target for target in targets if target[0] != "“"]
    assert all(target.startswith("the ") or target[0].isupper() for target in phrases)
    assert any(target[0] == "“" for target in targets), "a comparison is named by its conclusion"


def test_a_step_is_quoted_by_the_sentence_that_bears_it_out(items):
    shorter = 0
    for item in items:
        trace, evidence = item.response.trace, item.instance.evidence
        for number, step in enumerate(judge_step_soundness(evidence, trace)[0]):
            if step.support is None:
                continue
            passage = evidence[step.support.passage_index]
            quote = find_supporting_quote(passage, trace, number)
            assert quote in passage.text
            shorter += quote != passage.text
    assert shorter > 40


def test_a_step_that_takes_more_than_a_sentence_is_quoted_by_the_passage():
    passage = Passage("0", "Ada Holt", "Ada Holt is a singer. She married Tom Reed. Ada Holt was born in Elmere.")
    trace = Trace.of("Ada Holt was married to Tom Reed.", "Ada Holt married Tom Reed; Ada Holt was born in Elmere.")
    assert find_supporting_quote(passage, trace, 0) == "She married Tom Reed."
    assert find_supporting_quote(passage, trace, 1) == passage.text


def test_what_cannot_be_read_is_not_told():
    odd = Trace.of("Hm, hm.")
    assert describe_pursued_target("Why, oh why?", odd) is None
    assert describe_established_answer("Why, oh why?", odd, "yes") is None
