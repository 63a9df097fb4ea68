"""One question a record; whatever else a conversation is, it is refused in a sentence."""

from __future__ import annotations

import pytest

from eclose.errors import RecordError
from eclose.readers.layouts import RecordLayout, detect_record_layout
from eclose.readers.rag_rows import convert_tool_record
from eclose.reading.messages import is_message_list

ASKED = {"role": "user", "content": "Who?"}
SAID = {"role": "assistant", "content": "Ada."}


@pytest.mark.parametrize("value", [None, "Who?", [], ["Who?"], [ASKED, "Ada"]])
def test_what_is_no_conversation(value):
    assert not is_message_list(value)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([SAID], "^user_input: holds 0 messages of a person"),
        ([ASKED, {"role": "robot", "content": "x"}], r"^user_input\[1\]: its type should be human, ai or tool"),
        ([{"type": "human", "content": [1]}], r"^user_input\[0\]\.content: should be a text"),
    ],
)
def test_conversation_that_cannot_be_read_is_refused(messages, problem):
    with pytest.raises(RecordError, match=problem):
        convert_tool_record({"user_input": messages, "retrieved_contexts": ["a"]}, RecordLayout.RAGAS)


def test_last_question_counts_and_earlier_turns_are_context():
    messages = [ASKED, SAID, {"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Lund."}]
    record = {"user_input": messages, "retrieved_contexts": ["a"]}
    converted = convert_tool_record(record, RecordLayout.RAGAS)
    assert (converted.instance.question, converted.response.answer) == ("Where?", "Lund.")
    assert converted.response.trace.texts == ()


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        ("search", "^tools_called: should be a list of objects"),
        (["search"], "^tools_called: should be a list of objects"),
        ([{"name": "a", "reasoning": 1}], r"^tools_called\[0\]\.reasoning: should be a text"),
    ],
)
def test_what_are_no_calls_is_refused(calls, problem):
    record = {"input": "?", "actual_output": "Ada.", "tools_called": calls}
    with pytest.raises(RecordError, match=problem):
        convert_tool_record(record, RecordLayout.DEEPEVAL)


@pytest.mark.parametrize(
    ("record", "layout"),
    [
        ({"user_input": [ASKED], "reference": "A"}, RecordLayout.RAGAS),
        ({"input": "?", "tools_called": []}, RecordLayout.DEEPEVAL),
        ({"input": "?", "toolsCalled": []}, RecordLayout.DEEPEVAL),
        ({"input": "?", "retrievalContext": []}, RecordLayout.DEEPEVAL),
    ],
)
def test_layouts_of_agents_are_told_by_their_keys(record, layout):
    assert detect_record_layout(record) is layout


def test_a_conversation_of_several_turns_is_refused_by_its_name():
    with pytest.raises(RecordError, match=r"^turns: is a conversation of several turns, and one question is judged"):
        detect_record_layout({"turns": [{"role": "user", "content": "Hi"}], "scenario": "x"})
