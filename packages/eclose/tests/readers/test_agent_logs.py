"""One question a record; whatever else a conversation is, it is refused in a sentence."""

from __future__ import annotations

import pytest

from eclose.errors import RecordError
from eclose.readers.agent_logs import is_message_list, parse_agent_conversation, parse_deepeval_tool_calls
from eclose.readers.layouts import RecordLayout, detect_record_layout

ASKED = {"role": "user", "content": "Who?"}
SAID = {"role": "assistant", "content": "Ada."}


def test_roles_have_the_names_of_other_tools_too():
    found = parse_agent_conversation([{"role": "system", "content": "Be brief."}, ASKED, SAID], "user_input")
    assert (found.question, found.items, found.last) == ("Who?", [], "Ada.")


@pytest.mark.parametrize("value", [None, "Who?", [], ["Who?"], [ASKED, "Ada"]])
def test_what_is_no_conversation(value):
    assert not is_message_list(value)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([ASKED, SAID, ASKED, SAID], "^messages: holds 2 messages of a person, and one question is judged at a time"),
        ([SAID], "^messages: holds 0 messages of a person"),
        ([SAID, ASKED], "^messages: its first message should be the question"),
        ([ASKED, {"type": "image"}], r"^messages\[1\]: its type should be human, ai or tool"),
        ([{"type": "human", "content": ["a"]}], r"^messages\[0\]\.content: should be a text"),
    ],
)
def test_what_is_more_or_less_than_one_question_is_refused(messages, problem):
    with pytest.raises(RecordError, match=problem):
        parse_agent_conversation(messages, "messages")


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        ("search", "^tools_called: should be a list of objects"),
        (["search"], "^tools_called: should be a list of objects"),
        ([{"name": "a", "reasoning": 1}], r"^tools_called\[0\]\.reasoning: should be a text"),
    ],
)
def test_what_are_no_calls_is_refused(calls, problem):
    with pytest.raises(RecordError, match=problem):
        parse_deepeval_tool_calls(calls, "tools_called")


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
