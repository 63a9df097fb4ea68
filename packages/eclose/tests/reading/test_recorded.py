"""Texts, columns and logs become responses: what is trace and what is answer is read, never guessed in silence."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.errors import RecordError
from eclose.reading import recorded
from eclose.reading.recorded import build_response, list_notes, read_columns
from eclose.reading.response import ToolOutput, read_response
from eclose.values.response import MissingAnswerReason, ResponseSource, Trace

STEPS = ("Ada Rowe built the bridge.", "She was born in Lund.")
PROSE = " ".join(STEPS)
NUMBERED = "1. Ada Rowe built the bridge.\n2. She was born in Lund.\n"
LOG = "Thought: who?\nAction: search[x]\nObservation: Ada built it.\nAnswer: no\nThought: Ada.\n"


def respond(text):
    return build_response(read_response(text), "q", text)


def respond_beside(trace, answer):
    return build_response(read_columns(answer, trace), "q", trace, answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (f"{NUMBERED}Final answer: Lund", "Lund"),
        (f"{PROSE}\nFinal answer: Lund", "Lund"),
        (f"{PROSE}\nAnswer: Lund", "Lund"),
        (f"{PROSE}\n\n**Answer:** Lund", "Lund"),
        (f"{PROSE}\n**Answer: Lund**", "Lund"),
        (f"{PROSE}\n### Final Answer: Lund, Sweden.", "Lund, Sweden."),
        (f"<think>{PROSE}</think>\nLund", "Lund"),
        (f"<think>\n{NUMBERED}</think>\n\nFinal answer: Lund", "Lund"),
        (f"{PROSE}</think>Lund", "Lund"),
    ],
)
def test_text_that_says_which_part_is_the_answer_is_split_there(text, answer):
    response = respond(text)
    assert (response.trace.texts, response.answer, response.answer_lines) == (STEPS, answer, 1)


def test_first_line_of_the_protocol_counts_and_comes_before_any_other():
    response = respond("One.\nFinal answer: a\nTwo.\nFinal answer: b")
    assert (response.answer, response.answer_lines) == ("a", 2)
    assert list_notes(read_response("One.\nFinal answer: a\nTwo.")) == (recorded.TEXT_BEHIND_NOTE,)
    assert respond("One.\nAnswer: a\nTwo.\nFinal answer: b").answer == "b"
    # Outside the protocol the last word counts.
    assert respond("Answer: a\nIt is two.\nAnswer: b").answer == "b"


def test_answer_below_its_line_is_taken():
    assert respond("One.\n**Final answer:**\n\nLund,\nSweden\n").answer == "Lund,\nSweden"
    assert respond("One.\nFinal answer:\n").incomplete is MissingAnswerReason.EMPTY_ANSWER


@pytest.mark.parametrize(
    "last", ["So the answer is: Lund.", "The final answer is Lund", "Therefore, the answer is **Lund**."]
)
def test_sentence_that_names_the_answer_is_no_step(last):
    response = respond(f"{PROSE} {last}")
    assert (response.trace.texts, response.answer, response.answer_lines) == (STEPS, "Lund", 1)
    assert [part.role for part in response.reading.left_out] == ["names answer"]


@pytest.mark.parametrize("text", ["Lund", "She was born in Lund."])
def test_one_sentence_is_an_answer_alone(text):
    response = respond(text)
    assert (response.trace, response.answer, response.answer_lines) == (Trace(()), text, 0)


@pytest.mark.parametrize("text", [PROSE, NUMBERED.strip()])
def test_answer_that_is_not_told_apart_is_the_whole_reply_and_that_is_noted(text):
    reading = read_response(text)
    response = respond(text)
    assert (response.trace.texts, response.answer, response.answer_lines) == (STEPS, text, 0)
    assert recorded.ALL_ANSWER_NOTE in list_notes(reading)
    assert response.reading.origin == "prose"


def test_visible_trace_comes_before_thinking():
    text = f"<think>Hm. So what? It is old.</think>\n{NUMBERED}Final answer: Lund"
    assert respond(text).trace.texts == STEPS
    assert list_notes(read_response(text)) == (recorded.THINKING_LEFT_OUT_NOTE,)


def test_thinking_without_a_word_after_it_has_no_answer():
    assert respond(f"<think>{PROSE}</think>\n").answer is None


def test_last_answer_line_of_a_log_counts():
    reading = read_response(f"{LOG}Final Answer: Ada")
    assert (reading.steps, reading.answer) == (("Ada.",), "Ada")
    assert reading.evidence == (ToolOutput("Ada built it."),)
    assert read_response(f"{LOG}Answer: Ada").answer == "Ada"


def test_log_without_an_answer_has_none():
    reading = read_response("Thought: who?\nObservation: Ada built it.")
    assert (reading.steps, reading.answer) == ((), None)
    assert list_notes(reading) == (recorded.ANNOUNCEMENTS_LEFT_OUT_NOTE,)


@pytest.mark.parametrize(
    "trace",
    [
        PROSE,
        NUMBERED,
        f"<think>{NUMBERED}</think>",
        list(STEPS),
        [{"text": STEPS[0]}, {"step": STEPS[1]}],
        [{"content": STEPS[0]}, STEPS[1]],
        [{"thought": PROSE, "action": "search"}, {"action": "finish"}],
        [{"role": "assistant", "content": PROSE}, {"type": "ai", "content": None, "tool_calls": []}],
    ],
)
def test_trace_of_its_own_is_read_in_any_shape(trace):
    response = respond_beside(trace, "Lund is it. Yes.")
    assert (response.trace.texts, response.answer, response.answer_lines) == (STEPS, "Lund is it. Yes.", 1)
    assert response.completion is None
    assert response.id.startswith("q-")
    assert response.id != respond_beside(trace, "Malmö").id


def test_id_and_source_may_be_given():
    response = build_response(read_columns("Lund", PROSE), "q", "Lund", id="r1", source=ResponseSource("m"))
    assert (response.id, response.source) == ("r1", ResponseSource("m"))


def test_text_that_holds_trace_and_answer_is_kept():
    text = f"{PROSE}\nAnswer: Lund"
    response = respond(text)
    assert (response.trace.texts, response.answer, response.completion) == (STEPS, "Lund", text)


def test_answer_line_within_the_trace_is_no_step():
    reading = read_columns("In Lund.", f"{PROSE}\nFinal answer: Lund")
    assert (reading.steps, reading.answer) == (STEPS, "In Lund.")


@pytest.mark.parametrize("trace", ["  ", [], [{"text": " "}]])
def test_blank_trace_is_none(trace):
    reading, alone = read_columns(PROSE, trace), read_response(PROSE)
    assert (reading.steps, reading.answer, reading.located) == (alone.steps, alone.answer, alone.located)


def test_answer_may_have_its_line_and_the_same_trace_but_no_other():
    assert read_columns(f"{NUMBERED}Final answer: Lund", PROSE).answer == "Lund"
    assert read_columns("Final answer: Lund", PROSE).answer == "Lund"
    with pytest.raises(RecordError, match="another before the answer line of the response"):
        read_columns("It rained.\nFinal answer: Lund", PROSE)


def test_list_may_be_without_an_answer():
    reading = read_columns(None, list(STEPS))
    assert (reading.steps, reading.answer) == (STEPS, None)


@pytest.mark.parametrize(
    ("trace", "problem"),
    [
        ([1], r"trace\[0\]: is not a text; write a text, or an object"),
        ([{"text": "a"}, {"body": "b"}], r"trace\[1\]: has no text"),
        ([{"text": 1}], r"trace\[0\]\.text: should be a text"),
        ([{"role": "user", "content": "Hi"}], r"trace\[0\]: is a message of the user"),
    ],
)
def test_what_is_no_trace_is_refused(trace, problem):
    with pytest.raises(RecordError, match=problem):
        read_columns("Lund", trace)


def test_what_tools_told_an_agent_is_evidence():
    items = [
        {"thought": "It has a builder. Who?", "action": "search", "observation": "Ada built it."},
        {"role": "tool", "content": "She was born in Lund."},
        {"type": "observation", "text": " "},
    ]
    reading = read_columns("Lund", items)
    assert reading.steps == ("It has a builder.",)
    assert [output.value for output in reading.evidence] == ["Ada built it.", "She was born in Lund."]


PREAMBLE = "I need the data sheet. Let me search for it."
CALL = [{"role": "assistant", "content": PREAMBLE}, {"role": "tool", "content": "Ada built it."}]
FOUND = {"role": "assistant", "content": "It has a builder."}


def read_agent(items, last):
    return read_columns(last, None, {"messages": [{"role": "user", "content": "Whose is it?"}, *items]})


def test_last_message_of_an_agent_continues_its_trace():
    reading = read_agent([FOUND, CALL[1]], "So it was Ada.\nFinal answer: Ada")
    assert (reading.steps, reading.answer) == (("It has a builder.", "So it was Ada."), "Ada")
    assert read_agent([FOUND, CALL[1]], " ").answer is None


def test_trace_of_announcements_alone_is_unknown():
    for reading in (read_agent(CALL, "Ada"), read_columns("Ada", CALL), read_columns("Ada", PREAMBLE)):
        assert (reading.steps, reading.answer, reading.trace) == ((), "Ada", "unknown")


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (f"{PREAMBLE} Ada built it.\nAnswer: Ada", ("Ada built it.",)),
        (f"<think>{PREAMBLE} Ada built it.</think>\nFinal answer: Ada", ("Ada built it.",)),
        (f"<think>{PREAMBLE} Ada built it.</think>\nAda", ("Ada built it.",)),
        (f"{PREAMBLE} Ada built it. So the answer is Ada.", ("Ada built it.",)),
        (f"Thought: {PREAMBLE}\nObservation: x\nThought: Ada built it.\nFinal answer: Ada", ("Ada built it.",)),
        # Steps that the producer marked, and lines before the protocol's answer line, are the judge's to read.
        ("1. I will search.\n2. Ada built it.\nAnswer: Ada", ("I will search.", "Ada built it.")),
        ("I will search.\nAda built it.\nFinal answer: Ada", ("I will search.", "Ada built it.")),
    ],
)
def test_announcement_is_a_step_only_where_steps_are_marked(text, steps):
    reading = read_response(text)
    assert (reading.steps, reading.answer) == (steps, "Ada")


@pytest.mark.parametrize(
    ("items", "last", "marked"),
    [
        ([*CALL, FOUND], "Ada", True),
        ([FOUND, *CALL], "Ada", False),
        # Which of two full sentences is the answer, only the question could tell.
        ([FOUND, *CALL], "Ada built it. It is hers.", False),
        ([FOUND, *CALL], "Ada built it. So it is hers.", True),
        ([FOUND, *CALL], "Ada built it.\nFinal answer: Ada", True),
    ],
)
def test_closure_of_an_agent_is_asked_only_where_a_claim_precedes_its_answer(items, last, marked):
    reading = read_agent(items, last)
    assert reading.steps
    assert bool(recorded.count_answer_lines(reading)) is marked


def test_abstention_stays_the_submitted_text_and_is_recorded_as_one():
    response = respond("The plan names Ada. I cannot answer the question.")
    assert (response.trace.texts, response.reading.status) == (("The plan names Ada.",), "abstained")
    assert response.answer == "The plan names Ada. I cannot answer the question."


LINES = ["Ada.", "she left", "Answer: x", "Final answer:", "1. One.", "Thought: a", "", "Observation: b", "<think>"]


@given(st.lists(st.sampled_from([*LINES, "</think>", "So the answer is y."]), max_size=8))
def test_every_text_can_be_read_and_nothing_is_made_up(lines):
    text = "\n".join(lines)
    reading = read_response(text)
    evidence = [output.value for output in reading.evidence]
    for piece in (*reading.steps, *evidence):
        assert " ".join(piece.split()) in " ".join(text.split())
    # An answer that is not told apart is the reply without what was thought in between.
    visible = re.sub(r"<think>.*?(?:</think>|$)", " ", text, flags=re.DOTALL)
    whole, visible_text, answer = (
        " ".join(part.replace("</think>", " ").split()) for part in (text, visible, reading.answer or "")
    )
    assert answer in whole or answer in visible_text
