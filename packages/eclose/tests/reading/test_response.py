"""Containers, messages and settings: one function reads them, and says by which rule."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress

import pytest

from eclose.errors import RecordError, SettingError
from eclose.reading.languages import load_languages
from eclose.reading.recorded import build_response
from eclose.reading.response import ReadSettings, TraceMode, read_response
from eclose.values.response import Response
from eclose_world.make.instances import make_world_item
from tests.growth import grows_in_proportion
from tests.readers.read_shapes import predict

QUESTION = "Which hall is larger?"
STEPS = ("Hall A has 320 seats.", "Hall B has 410 seats.")
PROSE = " ".join(STEPS)
CONCLUDED = f"{PROSE} So Hall B is larger."
USER = {"role": "user", "content": QUESTION}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "seats", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    "response",
    [
        {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": CONCLUDED}}]},
        {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": CONCLUDED}]}]},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": CONCLUDED}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": PROSE}, {"text": " So Hall B is larger."}]}}]},
        {"output": {"message": {"role": "assistant", "content": [{"text": CONCLUDED}]}}, "stopReason": "end_turn"},
        {"model": "m", "message": {"role": "assistant", "content": CONCLUDED}, "done": True},
        [USER, {"role": "assistant", "content": CONCLUDED}],
        [{"type": "human", "content": QUESTION}, {"type": "ai", "content": CONCLUDED}],
        [{"choices": [{"delta": {"content": PROSE}}]}, {"choices": [{"delta": {"content": " So Hall B is larger."}}]}],
        [{"type": "response.output_text.delta", "delta": CONCLUDED}, {"type": "response.completed"}],
        [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": CONCLUDED}}],
        {"input": QUESTION, "output": CONCLUDED, "intermediate_steps": []},
        {"query": QUESTION, "response": CONCLUDED, "source_nodes": []},
        {"query": QUESTION, "llm": {"replies": [CONCLUDED]}},
        {"user_input": QUESTION, "response": CONCLUDED, "retrieved_contexts": []},
        {"gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": CONCLUDED}]}]},
        {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": CONCLUDED},
        {"final_output": CONCLUDED, "new_items": []},
        {"raw": CONCLUDED, "tasks_output": []},
        "<think>Hall A is old.</think>" + CONCLUDED,
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>" + CONCLUDED,
    ],
)
def test_reply_is_read_alike_in_every_container(response):
    reading = read_response(response, QUESTION)
    assert (reading.steps, reading.answer, reading.rule) == (STEPS, "So Hall B is larger.", "prose, conclusion word")


SUBMITTED = {
    "part_kind": "tool-call",
    "tool_name": "final_result",
    "args": {"steps": list(STEPS), "answer": "Hall B"},
}


@pytest.mark.parametrize(
    ("response", "origin"),
    [
        (json.dumps({"reasoning": PROSE, "answer": "Hall B"}), "structured"),
        (f"<reasoning>{PROSE}</reasoning><answer>Hall B</answer>", "structured"),
        ({"reasoning": list(STEPS), "answer": "Hall B"}, "structured"),
        ([USER, {"kind": "response", "parts": [SUBMITTED]}], "structured"),
        (f"{PROSE}\n\\boxed{{\\text{{Hall B}}}}", "marked"),
        (f"{PROSE}\n\n**Conclusion:** Hall B", "marked"),
        (f"<think>{PROSE}</think>Hall B", "hidden"),
        ({"choices": [{"message": {"role": "assistant", "content": "Hall B", "reasoning_content": PROSE}}]}, "hidden"),
        (f"Thought: {PROSE}\nAction: Finish[Hall B]", "agent"),
        (f"Hall B. {PROSE}", "prose"),
    ],
)
def test_origin_says_where_the_trace_comes_from(response, origin):
    reading = read_response(response, QUESTION)
    assert (reading.steps, reading.answer.strip("."), reading.origin) == (STEPS, "Hall B", origin)


@pytest.mark.parametrize(
    ("response", "status"),
    [
        ({"error": {"message": "x"}}, "not_a_response"),
        ({"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}}, "not_a_response"),
        ([USER], "not_a_response"),
        ("<html><body>502</body></html>", "not_a_response"),
        ([USER, CALLED], "incomplete"),
        ("Agent stopped due to iteration limit or time limit.", "incomplete"),
        (f"{STEPS[0]} Hall B has", "incomplete"),
        ("Which halls do you mean?", "abstained"),
        ("The documents do not say which hall is larger.", "abstained"),
        ('{"answer": null}', "abstained"),
        ("Hall B", "no_trace"),
    ],
)
def test_response_without_a_trace_has_its_own_status(response, status):
    reading = read_response(response, QUESTION)
    assert (reading.status, [step for step in reading.steps if step not in STEPS]) == (status, [])


def test_response_begins_behind_the_last_message_of_the_user():
    earlier = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "It was Ada. So Ada."}]
    reading = read_response([*earlier, USER, {"role": "assistant", "content": CONCLUDED}])
    assert (reading.steps, reading.question) == (STEPS, QUESTION)


def test_results_of_tools_are_evidence_under_their_names_and_errors_are_none():
    def result(name, **fields):
        return {"role": "tool", "name": name, **fields}

    failed = result("b", content='{"content": [], "isError": true}')
    messages = [USER, CALLED, result("a", content="A 320"), failed, {"role": "assistant", "content": "Hall B"}]
    reading = read_response(messages)
    assert [(output.name, output.value) for output in reading.evidence] == [("a", "A 320")]
    assert reading.steps == ()


def test_unknown_object_is_an_error_that_names_its_keys():
    with pytest.raises(RecordError, match="Keys seen: 'payload', 'verdicts'"):
        read_response({"verdicts": 1, "payload": {}})


def test_protocol_is_read_as_parse_completion_reads_it():
    for index in range(40):
        gold = make_world_item("hotpot", 7, index).response
        text = gold.completion
        assert build_response(read_response(text), gold.instance_id, text, id=gold.id, source=gold.source) == gold
        whole = Response.from_completion("r", "q", f"{text}\nMore.")
        read = build_response(read_response(f"{text}\nMore."), "q", f"{text}\nMore.", id="r")
        assert (read.trace, read.answer, read.answer_lines) == (whole.trace, whole.answer, whole.answer_lines)


def test_prose_has_no_trace_where_marked_steps_are_asked_for():
    settings = ReadSettings(TraceMode.MARKED)
    reading = read_response(CONCLUDED, QUESTION, settings)
    assert (reading.steps, reading.answer) == ((), CONCLUDED)
    assert read_response(f"1. {STEPS[0]}\nFinal answer: B", QUESTION, settings).steps == STEPS[:1]


def test_own_markers_name_the_answer_and_the_trace():
    settings = ReadSettings(answer_markers=("Urteil", "/Out[a-z]+/"), trace_markers=("Tatbestand",))
    assert read_response(f"{PROSE}\nUrteil: Hall B", settings=settings).answer == "Hall B"
    reading = read_response(f"Outcome: Hall B\nTatbestand: {PROSE}", settings=settings)
    assert (reading.answer, reading.steps) == ("Hall B", STEPS)


def test_language_may_be_named_and_must_be_known():
    text = "A hat 3. Also ist B größer."
    assert read_response(text, settings=ReadSettings(language="de")).answer == "Also ist B größer."
    with pytest.raises(SettingError, match="language: 'xx' is none of auto, ar, de"):
        ReadSettings(language="xx")


def test_own_reader_reads_instead_and_its_source_is_part_of_the_identity(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from eclose import read_response\n\ndef read(response, question):\n    return read_response(response[1:])\n"
    )
    settings = ReadSettings(reader=f"{path}:read")
    assert read_response("xHall B", settings=settings).answer == "Hall B"
    assert settings.identity["reader"].startswith("read sha256:")
    with pytest.raises(SettingError, match=r"should be FILE.py:FUNCTION"):
        read_response("x", settings=ReadSettings(reader="nowhere.py:read"))


def test_sentences_in_arguments_of_calls_are_claims_only_where_that_is_chosen():
    call = {"name": "report", "arguments": json.dumps({"text": STEPS[0], "to": "Ada"})}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [{"function": call}]},
        {"role": "tool", "content": "sent"},
        {"role": "assistant", "content": "Hall B"},
    ]
    assert read_response(messages).steps == ()
    assert read_response(messages, settings=ReadSettings(judge_arguments=True)).steps == STEPS[:1]


def test_every_language_has_every_kind_of_words():
    words = {"conclusions", "verdicts", "naming", "abstentions", "lacks", "instructions", "plans"}
    needed = {"name", "answer_markers", "trace_markers", "answer_keys", "labels"} | words
    languages = load_languages()
    assert len(languages) >= 15
    assert {code for code, language in languages.items() if needed - language.table.keys()} == set()


def test_prediction_of_a_case_says_what_was_read():
    case = {"id": "c", "input": CONCLUDED, "question": QUESTION}
    predicted = predict(case)
    assert (predicted["id"], predicted["status"], predicted["located"]) == ("c", "trace", True)
    assert predict({**case, "input": {"verdicts": 1}})["status"] == "refused"


PIECES = [
    "Hall A has 320 seats. ", "Answer: x\n", "- a\n", "1. ", "<think>", "</think>", '{"answer": ', "}", "\\boxed{",
    "Thought: x\n", "Observation: y\n", "| a | b |\n", "## h\n", "```\n", "“", "(", "So ", "？", "。", "[1] ", "\n\n",
    "let me check ", "I could not find ", "<|channel|>final<|message|>", "\x00", "é", "答案：",
]  # fmt: skip
VALUES = [None, 1, True, "", "x", CONCLUDED, [], {}, [None], {"a": 1}, {"role": "assistant", "content": 1}]
KEYS = ["role", "type", "content", "parts", "messages", "choices", "output", "tool_calls", "text", "kind", "steps"]


@pytest.mark.parametrize("seed", range(40))
def test_random_texts_are_read_and_nothing_is_made_up(seed):
    rng = random.Random(seed)
    for _ in range(10):
        text = "".join(rng.choices(PIECES, k=rng.randrange(30)))
        reading = read_response(text, QUESTION)
        flat = "".join(text.split())
        assert all("".join(step.split()) in flat for step in reading.steps if "{" not in text and "|" not in text)


@pytest.mark.parametrize("seed", range(40))
def test_random_messages_are_read_or_refused(seed):
    rng = random.Random(seed)

    def draw(depth):
        if depth > 3 or rng.random() < 0.3:
            return rng.choice([*VALUES, *rng.choices(PIECES, k=2), "user", "tool", "tool_use", "thinking", "ai"])
        if rng.random() < 0.4:
            return [draw(depth + 1) for _ in range(rng.randrange(3))]
        return {rng.choice(KEYS): draw(depth + 1) for _ in range(rng.randrange(4))}

    for _ in range(25):
        # Any other exception would be a traceback on the command line.
        with suppress(RecordError):
            read_response(draw(0) or "x", QUESTION)


@pytest.mark.timing
@pytest.mark.parametrize(
    "part",
    [
        "Hall A has 320 seats. ",
        "- a\n",
        "# h\n",
        '{"a": ',
        "\\boxed{",
        "A. ",
        "let me check ",
        "\\[\n",
        "Kind regards,\n",
    ],
)
def test_time_grows_in_proportion_to_the_length(part):
    start = time.process_time()
    read_response((part * 20_000)[:20_000], QUESTION)
    assert time.process_time() - start < 0.5
    assert grows_in_proportion(lambda text: read_response(text, QUESTION), part, 2_000)
