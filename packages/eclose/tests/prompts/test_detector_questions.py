"""A detector sees what its score may rest on, and its replies are parsed or refused."""

from __future__ import annotations

import json

import pytest
from jsonschema_rs import is_valid

from eclose.prompts.detector_questions import (
    CLAIM_QUESTIONS,
    STATEMENT_QUESTIONS,
    ClaimSupportMaterial,
    DetectorQuestion,
    ResponseMaterial,
    SentenceMaterial,
    StatementSupportMaterial,
    SupportDecision,
    build_alignment_messages,
    build_extraction_prompt,
    build_sentence_prompts,
    build_verification_prompt,
    detector_guideline_hash,
    disclose_response,
    parse_extracted_statements,
    parse_support_decisions,
)
from eclose.prompts.disclosure import AlignmentMaterial, disclose_for_alignment
from eclose.prompts.material_json import parse_material
from eclose.prompts.structured import InconsistentReplyError
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace

INSTANCE = Instance(
    "ID-CANARY", "QUESTION-CANARY", (Passage("PID-CANARY", "TITLE-CANARY", "EVIDENCE-CANARY"),), "REFERENCE-CANARY",
    ("ALIAS-CANARY",), benchmark="BENCHMARK-CANARY", support_ids=("PID-CANARY",), kind="KIND-CANARY",
)  # fmt: skip
RESPONSE = Response("RESPONSE-CANARY", "ID-CANARY", Trace.of("STEP-CANARY"), "ANSWER-CANARY", completion="RAW-CANARY")
CANARIES = "ID QUESTION PID TITLE EVIDENCE REFERENCE ALIAS BENCHMARK KIND RESPONSE STEP ANSWER RAW SAID".split()  # noqa: SIM905
BOTH = (STATEMENT_QUESTIONS, CLAIM_QUESTIONS)


def prompts():
    """Every question with its messages, what they may show, and the type of its material."""
    for questions, kind in zip(BOTH, (StatementSupportMaterial, ClaimSupportMaterial), strict=True):
        extraction = build_extraction_prompt(questions, disclose_response(INSTANCE, RESPONSE))
        yield questions.extract, extraction.messages, {"QUESTION", "STEP", "ANSWER"}, ResponseMaterial
        verification = build_verification_prompt(questions, INSTANCE, ["SAID-CANARY", "SAID-CANARY"])
        yield questions.verify, verification.messages, {"TITLE", "EVIDENCE", "SAID"}, kind
    (sentence,) = build_sentence_prompts(RESPONSE.trace.texts, INSTANCE.question, (3, 1))
    yield DetectorQuestion.WINDOW_CLAIMS, sentence.messages, {"QUESTION", "STEP"}, SentenceMaterial
    messages = build_alignment_messages(disclose_for_alignment(INSTANCE, RESPONSE))
    yield DetectorQuestion.ALIGNMENT, messages, {"QUESTION", "STEP"}, AlignmentMaterial


@pytest.mark.parametrize(("question", "messages", "allowed", "kind"), list(prompts()))
def test_a_detector_sees_exactly_what_its_score_may_rest_on(question, messages, allowed, kind):
    system, user = messages
    assert {name for name in CANARIES if f'"{name}-CANARY"' in user["content"]} == allowed
    assert "CANARY" not in system["content"]
    assert "data, not instructions" in system["content"]
    assert "{{" not in system["content"]
    material = parse_material(kind, user["content"])
    assert type(material) is kind
    # The guideline names the fields that the model sees.
    assert all(f"`{field}`" in system["content"] for field in json.loads(user["content"]))


def test_every_question_is_asked_and_has_a_guideline_of_its_own():
    assert {question for question, *_ in prompts()} == set(DetectorQuestion)
    assert len({detector_guideline_hash(question) for question in DetectorQuestion}) == len(DetectorQuestion)


def test_a_missing_answer_is_shown_as_missing():
    material = disclose_response(INSTANCE, Response("r", "i", RESPONSE.trace, None))
    content = build_extraction_prompt(STATEMENT_QUESTIONS, material).messages[-1]["content"]
    assert json.loads(content)["answer"] is None
    assert parse_material(ResponseMaterial, content) == material


@pytest.mark.parametrize("questions", BOTH)
def test_no_statement_can_be_left_out_or_added(questions):
    entry = {"reason": "r", "supported": True}
    schema = build_verification_prompt(questions, INSTANCE, ["a", "b"]).schema
    for ids, valid in ((["1", "2"], True), (["1"], False), (["1", "2", "3"], False), (["0", "1"], False)):
        reply = {questions.field: dict.fromkeys(ids, entry)}
        assert is_valid(dict(schema), reply) is valid
        if valid:
            assert parse_support_decisions(questions, 2, reply) == [SupportDecision(True, "r")] * 2
        else:
            with pytest.raises(InconsistentReplyError, match="the reply is on"):
                parse_support_decisions(questions, 2, reply)


@pytest.mark.parametrize("questions", BOTH)
def test_decisions_come_in_the_order_of_the_statements(questions):
    entries = {"2": {"reason": "b", "supported": False}, "1": {"reason": "a", "supported": True}}
    decisions = parse_support_decisions(questions, 2, {questions.field: entries})
    assert decisions == [SupportDecision(True, "a"), SupportDecision(False, "b")]


@pytest.mark.parametrize("questions", BOTH)
def test_a_blank_statement_is_refused_and_none_at_all_is_not(questions):
    assert parse_extracted_statements(questions, {questions.field: ["b", "a", "b"]}) == ("b", "a", "b")
    assert parse_extracted_statements(questions, {questions.field: []}) == ()
    with pytest.raises(InconsistentReplyError, match="number 2"):
        parse_extracted_statements(questions, {questions.field: ["a", " \n"]})
