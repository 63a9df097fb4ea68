"""What is trace and what is answer is read, never guessed in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.errors import RecordError
from eclose.values import parse_trace
from eclose.values.instance import Instance, Passage
from eclose.values.parse_trace import (
    add_observation_passages,
    add_prose_trace,
    has_prose_trace,
    parse_agent_log,
    parse_agent_trajectory,
    parse_response,
    parse_response_text,
    parse_trace_and_answer,
)
from eclose.values.response import MissingAnswerReason, Response, ResponseSource, Trace

STEPS = ("Ada Rowe built the bridge.", "She was born in Lund.")
PROSE = " ".join(STEPS)
NUMBERED = "1. Ada Rowe built the bridge.\n2. She was born in Lund.\n"
LOG = "Thought: who?\nAction: search[x]\nObservation: Ada built it.\nAnswer: no\nThought: Ada.\n"


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
def test_a_text_that_says_which_part_is_the_answer(text, answer):
    found = parse_response_text(text)
    assert (found.trace.texts, found.answer, found.answer_lines, found.notes) == (STEPS, answer, 1, ())


def test_the_first_answer_line_counts_and_a_final_one_before_any_other():
    found = parse_response_text("One.\nFinal answer: a\nTwo.\nFinal answer: b")
    assert (found.answer, found.answer_lines, found.notes) == ("a", 2, (parse_trace.TEXT_BEHIND_NOTE,))
    assert parse_response_text("One.\nAnswer: a\nTwo.\nFinal answer: b").answer == "b"


def test_an_answer_may_stand_below_its_line():
    found = parse_response_text("One.\n**Final answer:**\n\nLund,\nSweden\n")
    assert (found.answer, found.notes) == ("Lund,\nSweden", (parse_trace.ANSWER_BELOW_NOTE,))
    assert parse_response("q", "One.\nFinal answer:\n").incomplete is MissingAnswerReason.EMPTY_ANSWER


@pytest.mark.parametrize(
    "last", ["So the answer is: Lund.", "The final answer is Lund", "Therefore, the answer is **Lund**."]
)
def test_a_last_sentence_may_name_the_answer_and_that_is_noted(last):
    found = parse_response_text(f"{PROSE} {last}")
    assert (found.trace.texts, found.answer, found.answer_lines) == (STEPS, "Lund", 1)
    assert found.notes == (parse_trace.ANSWER_SENTENCE_NOTE,)


@pytest.mark.parametrize("text", ["Lund", "The answer is Lund.", "She was born in Lund."])
def test_one_sentence_is_an_answer_alone(text):
    found = parse_response_text(text)
    assert (found.trace, found.answer, found.answer_lines, found.notes) == (Trace(()), text, 0, ())


@pytest.mark.parametrize("text", [PROSE, NUMBERED.strip(), f"The answer is Lund. {PROSE}"])
def test_several_sentences_without_an_answer_line_are_all_answer_and_that_is_noted(text):
    found = parse_response_text(text)
    assert (found.trace, found.answer, found.answer_lines) == (Trace(()), text, 0)
    assert found.notes == (parse_trace.ALL_ANSWER_NOTE,)


def test_what_is_said_comes_before_what_was_thought():
    found = parse_response_text(f"<think>Hm. So what?</think>\n{NUMBERED}Final answer: Lund")
    assert (found.trace.texts, found.notes) == (STEPS, (parse_trace.THINKING_LEFT_OUT_NOTE,))


def test_thinking_without_a_word_after_it_has_no_answer():
    assert parse_response_text(f"<think>{PROSE}</think>\n").answer is None


def test_of_a_log_the_last_answer_line_counts():
    found = parse_response_text(f"{LOG}Final Answer: Ada")
    assert (found.trace.texts, found.answer) == (("Ada.",), "Ada")
    assert found.observations == ("Ada built it.",)
    assert parse_response_text(f"{LOG}Answer: Ada").answer == "Ada"


def test_a_log_without_an_answer_has_none():
    found = parse_response_text("Thought: who?\nObservation: Ada built it.")
    assert (found.trace.texts, found.answer, found.answer_lines) == ((), None, 0)
    assert found.notes == (parse_trace.ANNOUNCEMENTS_LEFT_OUT_NOTE,)


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
def test_a_trace_of_its_own_in_any_shape(trace):
    response = parse_response("q1", trace, "Lund is it. Yes.")
    assert (response.trace.texts, response.answer, response.answer_lines) == (STEPS, "Lund is it. Yes.", 1)
    assert response.completion is None
    assert response.id.startswith("q1-")
    assert response.id != parse_response("q1", trace, "Malmö").id


def test_id_and_source_may_be_given():
    response = parse_response("q1", PROSE, "Lund", id="r1", source=ResponseSource("m"))
    assert (response.id, response.source) == ("r1", ResponseSource("m"))


def test_a_text_that_holds_both_is_kept():
    text = f"{PROSE}\nAnswer: Lund"
    response = parse_response("q1", text)
    assert (response.trace.texts, response.answer, response.completion) == (STEPS, "Lund", text)


def test_an_answer_line_within_the_trace_is_no_step():
    found = parse_trace_and_answer(f"{PROSE}\nFinal answer: Lund", "In Lund.")
    assert (found.trace.texts, found.answer, found.notes) == (STEPS, "In Lund.", (parse_trace.ANSWER_IN_TRACE_NOTE,))


def test_a_blank_trace_is_none():
    assert (
        parse_trace_and_answer("  ", PROSE)
        == parse_trace_and_answer([], PROSE)
        == parse_trace_and_answer([{"text": " "}], PROSE)
        == parse_response_text(PROSE)
    )


def test_the_answer_may_have_its_line_and_the_same_trace_but_no_other():
    assert parse_trace_and_answer(PROSE, f"{NUMBERED}Final answer: Lund").answer == "Lund"
    assert parse_trace_and_answer(PROSE, "Final answer: Lund").answer == "Lund"
    with pytest.raises(RecordError, match="another before the answer line of the response"):
        parse_trace_and_answer(PROSE, "It rained.\nFinal answer: Lund")


def test_a_list_may_be_without_an_answer():
    assert parse_trace_and_answer(list(STEPS)) == parse_trace.ParsedResponse(Trace.of(*STEPS), None)


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
        parse_trace_and_answer(trace, "Lund")


def test_what_an_agent_was_told_is_evidence():
    items = [
        {"thought": "It has a builder. Who?", "action": "search", "observation": "Ada built it."},
        {"role": "tool", "content": "She was born in Lund."},
        {"type": "observation", "text": " "},
    ]
    found = parse_trace_and_answer(items, "Lund")
    assert (found.trace.texts, found.observations) == (
        ("It has a builder.",),
        ("Ada built it.", "She was born in Lund."),
    )
    with pytest.raises(
        RecordError, match=r"2 observations, which are evidence\. Call parse_agent_log with the instance"
    ):
        parse_response("q1", items, "Lund")


def test_a_log_comes_back_with_its_instance():
    instance = Instance("q1", "Who?", (Passage("0", "", "Ada  built it."),))
    seen, response = parse_agent_log(
        instance, [{"observation": "It stands."}, {"observation": "Ada built it."}, "Ada."], "Ada"
    )
    assert [(passage.id, passage.title, passage.text) for passage in seen.evidence[1:]] == [
        ("observation-1", "Observation 1 of the agent", "It stands.")
    ]
    assert seen.id.startswith("q1-")
    assert (response.instance_id, response.trace.texts) == (seen.id, ("Ada.",))


def test_evidence_that_is_known_makes_no_other_instance():
    instance = Instance("q1", "Who?", (Passage("0", "", "Ada built it."),))
    assert add_observation_passages(instance, ["Ada\nbuilt it."]) is instance
    assert add_observation_passages(Instance("", "Who?", ()), ["a", "a "]).evidence == (
        Passage("observation-1", "Observation 1 of the agent", "a "),
    )


def test_a_trajectory_goes_on_in_its_last_message():
    items = [{"type": "ai", "content": "It has a builder."}, {"type": "tool", "content": "Ada built it."}]
    found = parse_agent_trajectory(items, "So it was Ada.\nFinal answer: Ada")
    assert (found.trace.texts, found.answer) == (("It has a builder.", "So it was Ada."), "Ada")
    assert parse_agent_trajectory(items, "It was Ada. Yes.").answer == "It was Ada. Yes."
    assert parse_agent_trajectory(items, " ").answer is None
    bare = parse_agent_trajectory(items[1:], "It was Ada. Yes.")
    assert (bare.trace, bare.observations, bare.notes) == (
        Trace(()),
        ("Ada built it.",),
        (parse_trace.ALL_ANSWER_NOTE,),
    )


LINES = ["Ada.", "she left", "Answer: x", "Final answer:", "1. One.", "Thought: a", "", "Observation: b", "<think>"]


@given(st.lists(st.sampled_from([*LINES, "</think>", "So the answer is y."]), max_size=8))
def test_every_text_can_be_read_and_nothing_is_made_up(lines):
    text = "\n".join(lines)
    found = parse_response_text(text)
    for piece in (*found.trace.texts, *found.observations, found.answer or ""):
        assert " ".join(piece.split()) in " ".join(text.split())


# --- prose ------------------------------------------------------------------------------------------------------------


def answer_without_trace(answer: str | None) -> Response:
    return Response("r", "q", Trace(()), answer)


def test_the_sentences_of_an_answer_become_its_trace():
    prose = answer_without_trace("Ada Rowe built it. She was born in Lund.")
    read = add_prose_trace(prose)
    assert read.trace.texts == ("Ada Rowe built it.", "She was born in Lund.")
    assert read.answer == prose.answer
    assert has_prose_trace(read)
    assert not has_prose_trace(prose)


def test_a_bare_answer_and_a_trace_of_its_own_stay_as_they_are():
    marked = Response("r", "q", Trace.of("Ada Rowe built it."), "Ada Rowe. She built it.")
    for response in (answer_without_trace("Lund"), answer_without_trace(None), marked):
        assert add_prose_trace(response) is response
        assert not has_prose_trace(response)


# --- announcements ----------------------------------------------------------------------------------------------------

PREAMBLE = "I need the data sheet. Let me search for it."
CALL = [{"role": "assistant", "content": PREAMBLE}, {"role": "tool", "content": "Ada built it."}]


def test_trace_of_announcements_alone_is_unknown():
    prose = "Ada built it. So it is hers."
    for parsed in (
        parse_agent_trajectory(CALL, prose),
        parse_trace_and_answer(CALL, prose),
        parse_trace_and_answer(PREAMBLE, prose),
    ):
        assert (parsed.trace.texts, parsed.answer, parsed.answer_lines) == ((), prose, 0)
        assert set(parsed.notes) == {parse_trace.ANNOUNCEMENTS_LEFT_OUT_NOTE, parse_trace.ALL_ANSWER_NOTE}


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
    parsed = parse_response_text(text)
    assert (parsed.trace.texts, parsed.answer) == (steps, "Ada")


@pytest.mark.parametrize(
    ("items", "last", "marked"),
    [
        ([*CALL, {"thought": "Ada built it."}], "Ada", True),
        ([{"thought": "It has a builder."}, *CALL], "Ada", False),
        ([{"thought": "It has a builder."}, *CALL], "Ada built it. So it is hers.", False),
        ([*CALL, {"thought": "Ada built it."}], "It is hers, as the data sheet says.", False),
        ([{"thought": "It has a builder."}, *CALL], "Ada built it.\nFinal answer: Ada", True),
        (["It has a builder.", {"type": "tool", "text": "Ada built it."}, "Ada built it."], "Ada", True),
    ],
)
def test_last_message_of_an_agent_is_marked_only_where_a_claim_precedes_a_bare_answer(items, last, marked):
    parsed = parse_agent_trajectory(items, last)
    assert parsed.trace.steps
    assert bool(parsed.answer_lines) is marked


def test_prose_of_an_agent_continues_its_trace():
    read = parse_agent_trajectory([{"thought": "It has a builder."}, *CALL], "Ada built it. So it is hers.")
    response = parse_trace.build_response(read, "q1", ["log"], read.answer)
    assert not has_prose_trace(response)
    prose = add_prose_trace(response)
    assert prose.trace.texts == ("It has a builder.", "Ada built it.", "So it is hers.")
    assert has_prose_trace(prose)
    bare = replace(response, answer="Ada")
    assert add_prose_trace(bare) is bare
