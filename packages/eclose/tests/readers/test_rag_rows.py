"""Traces in other tools' files: in a column, in the response, or in what an agent did."""

from __future__ import annotations

import json

import pytest

from eclose.errors import RecordError
from eclose.readers import conversion
from eclose.readers import rag_rows as rag_eval_formats
from eclose.readers.layouts import RecordLayout
from eclose.readers.load import scan_instances, scan_recorded_responses
from eclose.reading import recorded
from eclose.values.response import MissingAnswerReason, Trace

STEPS = ("Ada Rowe built the bridge.", "She was born in Lund.")
PROSE = " ".join(STEPS)
ROWS = {
    RecordLayout.RAGAS: {
        "user_input": "Where?",
        "retrieved_contexts": ["one"],
        "response": "Lund",
        "reference": "Lund",
    },
    RecordLayout.DEEPEVAL: {"input": "Where?", "retrieval_context": ["one"], "actual_output": "Lund"},
    RecordLayout.RAGCHECKER: {
        "query_id": "7",
        "query": "Where?",
        "retrieved_context": [{"text": "one"}],
        "response": "Lund",
    },
}
RAGAS = ROWS[RecordLayout.RAGAS]
DEEPEVAL = ROWS[RecordLayout.DEEPEVAL]


def convert(record, layout=RecordLayout.RAGAS):
    return rag_eval_formats.convert_tool_record(record, layout)


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("layout", ROWS)
@pytest.mark.parametrize("name", rag_eval_formats.TRACE_COLUMNS)
@pytest.mark.parametrize(
    "trace",
    [PROSE, "1. Ada Rowe built the bridge.\n2. She was born in Lund.", list(STEPS), [{"text": s} for s in STEPS]],
)
def test_a_column_for_the_trace_in_every_layout_and_shape(layout, name, trace):
    converted = convert({**ROWS[layout], name: trace}, layout)
    assert (converted.response.trace.texts, converted.response.answer) == (STEPS, "Lund")
    assert converted.response.answer_lines == 1
    assert converted.notes == ()
    assert [passage.text for passage in converted.instance.evidence] == ["one"]


@pytest.mark.parametrize("trace", [None, "", [], " ", 5, True, 0.5])
def test_an_empty_column_or_a_count_of_steps_is_no_trace(trace):
    response = convert({**RAGAS, "steps": trace}).response
    assert (response.trace, response.answer, response.answer_lines) == (Trace(()), "Lund", 0)


def test_a_trace_may_be_there_without_a_response():
    response = convert({**RAGAS, "response": None, "reasoning": f"{PROSE}\nFinal answer: Lund"}).response
    assert (response.trace.texts, response.answer) == (STEPS, "Lund")
    response = convert({**RAGAS, "response": "", "reasoning": list(STEPS)}).response
    assert (response.trace.texts, response.incomplete) == (STEPS, MissingAnswerReason.NO_ANSWER_LINE)


def test_prose_before_an_answer_line_is_cut_into_sentences():
    response = convert({**RAGAS, "response": f"{PROSE}\nAnswer: Lund"}).response
    assert (response.trace.texts, response.answer) == (STEPS, "Lund")


def test_prose_without_an_answer_line_is_counted_with_the_responses_alone(tmp_path):
    path = lines(tmp_path / "a.jsonl", {**RAGAS, "response": PROSE}, {**RAGAS, "user_input": "Who?"})
    assert [record.repairs for record in scan_instances(path)] == [("id derived from content",)] * 2
    first, second = scan_recorded_responses(path)
    assert first.repairs == ("id derived from content", recorded.PROSE_TRACE_NOTE, recorded.ALL_ANSWER_NOTE)
    assert (first.value.trace.texts, first.value.answer) == (STEPS, PROSE)
    assert second.repairs == ("id derived from content",)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"reasoning": {"text": "a"}}, "^reasoning: should be a text, or a list of texts or of objects with a text"),
        ({"reasoning": [1]}, r"^reasoning\[0\]: is not a text"),
        ({"steps": [{"body": "a"}]}, r"^steps\[0\]: has no text"),
        ({"steps": ["a"], "reasoning": "b"}, "^reasoning and steps: each could be the trace. Keep one"),
        (
            {"trace": "It rained.", "response": "It snowed.\nFinal answer: x"},
            "^trace: there is a trace here, and another",
        ),
        ({"response": None, "multi_responses": ["a", "b"]}, "^multi_responses: holds several responses"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(record, problem):
    with pytest.raises(RecordError, match=problem):
        convert({**RAGAS, **record})


def test_the_same_trace_under_two_names_is_one():
    assert convert({**RAGAS, "steps": list(STEPS), "trace": list(STEPS)}).response.trace.texts == STEPS


LOG = "Thought: who?\nAction: search[x]\nObservation: {}\nThought: Ada.\nFinal Answer: Ada"


def test_observations_of_a_log_become_evidence(tmp_path):
    converted = convert({**RAGAS, "id": "q1", "response": LOG.format("Ada built it.")})
    assert [(passage.title, passage.text) for passage in converted.instance.evidence] == [
        ("", "one"),
        ("Observation 1 of the agent", "Ada built it."),
    ]
    assert converted.repairs == (conversion.OBSERVATIONS_ADDED,)
    assert converted.response.trace.texts == ("Ada.",)
    assert converted.response.instance_id == converted.instance.id
    path = lines(
        tmp_path / "a.jsonl",
        *({**RAGAS, "id": "q1", "response": LOG.format(observation)} for observation in ("a", "b", "a")),
    )
    records = list(scan_recorded_responses(path))
    assert [record.rejected for record in records] == [None, None, "duplicate"]
    assert len({record.value.instance_id for record in records if record.value}) == 2
    assert [record.rejected for record in scan_instances(path)] == [None, None, "duplicate"]


def test_observations_that_were_retrieved_anyway_change_nothing():
    converted = convert({**RAGAS, "id": "q1", "response": LOG.format("one")})
    assert (converted.instance.id, len(converted.instance.evidence), converted.repairs) == ("q1", 1, ())


def test_trajectories_that_end_in_one_answer_stay_apart(tmp_path):
    path = lines(tmp_path / "a.jsonl", *({**RAGAS, "id": "1", "trace": [step]} for step in (*STEPS, STEPS[0])))
    records = list(scan_recorded_responses(path))
    assert [record.rejected for record in records] == [None, None, "duplicate"]
    assert {record.value.instance_id for record in records if record.value} == {"1"}
    assert len({record.value.id for record in records if record.value}) == 2


@pytest.mark.parametrize("camel", [False, True])
def test_what_tools_returned_is_evidence_and_why_they_were_called_is_the_trace(camel):
    calls = [
        {
            "name": "search",
            "reasoning": "It has a builder. Who is it? I'll search.",
            "output": "Ada built it.",
            "inputParameters": {},
        },
        {"name": "age", "output": {"years": 3}},
        {"name": "noop"},
    ]
    record = {"input": "Who?", "actual_output": "Ada did it. Yes.", "tools_called": calls, "retrieval_context": None}
    if camel:
        record = {"input": "Who?", "actualOutput": "Ada did it. Yes.", "toolsCalled": calls}
    converted = convert(record, RecordLayout.DEEPEVAL)
    assert [passage.text for passage in converted.instance.evidence] == ["Ada built it.", '{"years": 3}']
    assert converted.response.trace.texts == ("It has a builder.", "Ada did it.", "Yes.")
    assert converted.response.answer == "Ada did it. Yes."
    assert recorded.ANNOUNCEMENTS_LEFT_OUT_NOTE in converted.notes


def test_a_trace_beside_tools_without_reasons_is_the_trace():
    calls = [{"name": "search", "output": "Ada built it."}]
    converted = convert({**DEEPEVAL, "tools_called": calls, "reasoning": PROSE}, RecordLayout.DEEPEVAL)
    assert converted.response.trace.texts == STEPS
    assert [passage.text for passage in converted.instance.evidence] == ["one", "Ada built it."]
    calls = [{"name": "search", "reasoning": "I search."}]
    with pytest.raises(RecordError, match=r"^reasoning: holds a trace, and the agent's messages hold another"):
        convert({**DEEPEVAL, "tools_called": calls, "reasoning": PROSE}, RecordLayout.DEEPEVAL)


@pytest.mark.parametrize("called", [None, []])
def test_no_call_is_no_agent(called):
    converted = convert({**DEEPEVAL, "tools_called": called}, RecordLayout.DEEPEVAL)
    assert (converted.response.answer, converted.response.trace) == ("Lund", Trace(()))


TALK = [
    {"type": "human", "content": "Who built it?"},
    {"type": "ai", "content": "I look it up.", "tool_calls": [{"name": "search", "args": {}}]},
    {"type": "tool", "content": "Ada built it."},
    {"type": "ai", "content": "", "tool_calls": [{"name": "search", "args": {}}]},
    {"type": "tool", "content": "It stands."},
    {"type": "ai", "content": "Ada built it. It stands."},
]


def test_a_conversation_with_tools_is_one_question(tmp_path):
    path = lines(tmp_path / "a.jsonl", {"user_input": TALK, "reference": "Ada"})
    (instance,) = (record.value for record in scan_instances(path))
    (response,) = (record.value for record in scan_recorded_responses(path))
    assert (instance.question, instance.reference_answer) == ("Who built it?", "Ada")
    assert [passage.text for passage in instance.evidence] == ["Ada built it.", "It stands."]
    assert (response.trace.texts, response.answer) == (("Ada built it.", "It stands."), "Ada built it. It stands.")
    assert response.answer_lines == 0
    assert response.instance_id == instance.id


def test_a_conversation_may_have_passages_and_a_response_beside_it():
    converted = convert({"user_input": TALK, "contexts": ["one"], "response": "Ada"})
    assert [passage.text for passage in converted.instance.evidence] == ["one", "Ada built it.", "It stands."]
    assert converted.response.trace.texts == ("Ada built it.", "It stands.")
    assert converted.response.answer == "Ada"


def test_a_conversation_that_ends_without_a_word_has_no_answer():
    response = convert({"user_input": TALK[:3]}).response
    assert (response.trace.texts, response.incomplete) == ((), MissingAnswerReason.NO_ANSWER_LINE)
    assert convert({"user_input": [TALK[0]], "retrieved_contexts": ["one"]}).response is None


def test_trajectories_of_one_question_stay_apart_by_what_was_said():
    other = [TALK[0], {"type": "ai", "content": "I know."}, *TALK[2:]]
    first, two = (convert({"user_input": talk, "id": "q"}) for talk in (TALK, other))
    assert first.instance == two.instance
    assert first.response.id != two.response.id
