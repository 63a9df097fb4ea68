"""Replies in objects of no known shape: found where one place can be the reply, refused where several can."""

from __future__ import annotations

import json

import pytest

from eclose.errors import RecordError
from eclose.reading.response import read_response

STEPS = ("Ada Rowe built the bridge.", "She was born in Lund.")
TEXT = f"{STEPS[0]} {STEPS[1]}\nAnswer: Lund"


@pytest.mark.parametrize(
    "reply",
    [
        {"statusCode": 200, "headers": {"type": "json"}, "body": json.dumps({"response": TEXT})},
        {"queryResult": {"fulfillmentText": TEXT, "languageCode": "en"}, "responseId": "r1"},
        {"messaging_product": "chat", "type": "text", "text": {"body": TEXT, "preview_url": False}},
        {"resourceType": "Communication", "status": "completed", "payload": [{"contentString": TEXT}]},
        {"generated_text": TEXT, "details": {"finish_reason": "eos_token", "seed": None}},
        {"Model reasoning": " ".join(STEPS), "Model answer": "Lund", "Expected": "Malmö", "Row": 3},
        [{"Role": {"Label": "user"}, "Items": [{"Text": "Where?"}]},
         {"Role": {"Label": "assistant"}, "Items": [{"Text": TEXT}]}],
        {"activities": [{"from": {"role": "user"}, "text": "Where?"}, {"from": {"role": "bot"}, "text": TEXT}]},
        {"events": [{"author": "user", "content": {"role": "user", "parts": [{"text": "Where?"}]}},
                    {"author": "guide", "content": {"role": "model", "parts": [{"text": TEXT}]}}]},
        {"object": "list", "data": [
            {"created_at": 3, "role": "assistant", "content": [{"type": "text", "text": {"value": TEXT}}]},
            {"created_at": 2, "role": "user", "content": [{"type": "text", "text": {"value": "Where was she born?"}}]},
            {"created_at": 1, "role": "assistant", "content": [{"type": "text", "text": {"value": "Ask me."}}]},
        ]},
    ],
)  # fmt: skip
def test_reply_of_an_unknown_object_is_found_where_one_place_can_hold_it(reply):
    reading = read_response(reply)
    assert (reading.steps, reading.answer) == (STEPS, "Lund")


@pytest.mark.parametrize(
    "reply",
    [
        {"first": {"text": "Lund"}, "second": {"text": "Malmö"}},
        {"queryResult": {"text": "Where?", "responseMessages": [{"text": {"text": ["In Lund."]}}]}},
        {"status": "ok", "message": "queued", "id": 7},
        {"history": [{"source": "user", "args": {"q": 1}},
                     {"source": "agent", "observation": "run", "content": "1 failed"}]},
        {"numbers": [1, 2], "names": ["a", "b"]},
    ],
)  # fmt: skip
def test_object_with_several_places_or_none_is_refused_with_its_keys(reply):
    with pytest.raises(RecordError, match=f"no known reply. Keys seen: .*{sorted(reply)[0]!r}"):
        read_response(reply)


@pytest.mark.parametrize(
    "text",
    [
        f"<|im_start|>system\nBrief.<|im_end|>\n<|im_start|>assistant\n{TEXT}<|im_end|>",
        f"<|start_header_id|>user<|end_header_id|>\n\nWhere?<|eot_id|>"
        f"<|start_header_id|>assistant<|end_header_id|>\n\n{TEXT}<|eot_id|>",
        f"<s>[INST] Where? [/INST] {TEXT}</s>",
        f"<p>{STEPS[0]}</p><p>{STEPS[1]}</p><p><b>Answer:</b> Lund</p>",
        f"Subject: Re: The bridge\n\nDear Ms Berg,\n\n{TEXT}\n\nKind regards,\nTom\nCity archive",
    ],
)
def test_template_markup_and_letter_around_a_reply_are_no_steps(text):
    reading = read_response(text)
    assert (reading.steps, reading.answer) == (STEPS, "Lund")


@pytest.mark.parametrize(
    "text",
    [
        f"Prediction(\n    reasoning={' '.join(STEPS)!r},\n    answer='Lund'\n)",
        f"```yaml\nreasoning:\n  - {STEPS[0]}\n  - {STEPS[1]}\nanswer: Lund\n```",
        json.dumps({"etapes": STEPS, "reponse": "Lund"}),
    ],
)
def test_printed_records_yaml_and_keys_without_accents_are_slots(text):
    reading = read_response(text)
    assert (reading.steps, reading.answer) == (STEPS, "Lund")


@pytest.mark.parametrize("text", ["f(x = 1) = 2", "Prediction(answer=open('x'))", "answer: [\nreasoning: {"])
def test_text_that_is_no_record_stays_text(text):
    assert read_response(text).rule not in ("record", "YAML key")


def test_last_call_with_trace_and_answer_is_the_answer():
    call = {"name": "LegalOpinion", "arguments": json.dumps({"reasoning": list(STEPS), "answer": "Lund"})}
    reading = read_response([{"role": "assistant", "content": None, "function_call": call}])
    assert (reading.steps, reading.answer) == (STEPS, "Lund")


def test_german_dates_end_no_sentence():
    reading = read_response("Das Werk entsteht ab dem 4. Juni. Der Vertrag ist vom 12. März. Also ist er gültig.")
    assert reading.steps == ("Das Werk entsteht ab dem 4. Juni.", "Der Vertrag ist vom 12. März.")
