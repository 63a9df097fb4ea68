"""What agents of real packages export is read whole: the question, every passage, each claim, and the answer."""

from __future__ import annotations

from eclose.reading.response import read_response


def test_result_of_a_tool_that_takes_the_answer_ends_no_trace():
    messages = [
        {"role": "assistant", "tool_calls": [{"name": "search", "arguments": {"query": "Ada"}}]},
        {"role": "tool", "name": "search", "content": "Ada was born in Lund."},
        {
            "role": "assistant",
            "content": "Ada was born in Lund.",
            "tool_calls": [{"name": "final_result", "arguments": {"city": "Lund"}}],
        },
        {"role": "tool", "name": "final_result", "content": "Final result processed."},
    ]
    reading = read_response(messages)
    assert reading.answer == "Lund"
    assert not reading.ends_in_result


def test_answer_of_an_agent_that_calls_tools_is_in_its_last_call():
    call = {"function": {"name": "final_answer", "arguments": {"answer": "Lund"}}}
    step = {"step_number": 1, "model_output": "Ada was born in Lund.", "tool_calls": [call], "is_final_answer": True}
    reading = read_response({"steps": [{"task": "Where?"}, {**step, "action_output": None, "observations": "Lund"}]})
    assert (reading.steps, reading.answer) == (("Ada was born in Lund.",), "Lund")


def test_crew_that_is_told_to_call_the_next_tool_keeps_what_the_tools_returned():
    log = "Thought: {}\nAction: search\nAction Input: {{}}\nObservation: {}"
    messages = [
        {"role": "user", "content": "Current Task: Where was the designer born?"},
        {"role": "assistant", "content": log.format("Let me search.", "Ada designed it.")},
        {"role": "user", "content": "Analyze the tool result."},
        {"role": "assistant", "content": log.format("Ada designed it.", "Ada was born in Lund.")},
        {"role": "user", "content": "Analyze the tool result."},
    ]
    reading = read_response({"raw": "Lund", "tasks_output": [{"messages": []}, {"messages": messages}]})
    assert (reading.steps, reading.answer) == (("Ada designed it.",), "Lund")
    assert [output.value for output in reading.evidence] == ["Ada designed it.", "Ada was born in Lund."]
