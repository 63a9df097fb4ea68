"""How the responses of a file were read, by the rule that decided."""

from __future__ import annotations

import json

import pytest

from eclose.errors import UserError
from eclose.files.jsonl import write_records
from eclose.readers.readings import scan_readings, show_reading, summarize_readings, write_reading_cases
from eclose.reading.recorded import build_response
from eclose.reading.response import read_response
from eclose.values.response import Response
from tests.readers.spans.files import write_lines

MARKED = "1. Ada built the bridge.\n2. She was born in Lund.\nAnswer: Lund"
PROSE = "Hall A has 320 seats. Hall B has 410 seats."
PLANS = "Let me look at the plan. I will check the data sheet. Hall A has 320 seats. So Hall A is small."


def read(number, text):
    return build_response(read_response(text), f"q{number}", text)


@pytest.fixture
def rows(tmp_path):
    texts = [MARKED, PROSE, "Lund"]
    records = [
        {"question": f"Where is {number}?", "contexts": ["A."], "response": text} for number, text in enumerate(texts)
    ]
    return write_lines(tmp_path / "rows.jsonl", *records, {"question": "Where?", "contexts": ["A."]}, {"contexts": 1})


def test_rules_are_counted_with_traces_first_and_the_first_response_as_example():
    summary = summarize_readings([read(0, "Lund"), read(1, MARKED), read(2, PROSE), read(3, PROSE), read(4, PROSE)])
    assert [(row.status.value, row.rule, row.responses, row.example.instance_id) for row in summary.rules] == [
        ("trace", "prose, answer not located", 3, "q2"),
        ("trace", "named line 'Answer'", 1, "q1"),
        ("no_trace", "one sentence", 1, "q0"),
    ]
    assert (summary.responses, summary.without_trace) == (5, 1)


def test_responses_of_the_prompt_of_eclose_need_no_summary():
    ours = [Response.from_completion("r1", "q1", "One.\nFinal answer: a"), Response.from_completion("r2", "q1", "One.")]
    summary = summarize_readings(ours)
    assert summary.in_protocol_layout
    assert [row.status.value for row in summary.rules] == ["trace", "incomplete"]
    assert not summarize_readings([*ours, read(1, PROSE)]).in_protocol_layout


def test_traces_emptied_of_announcements_unlocated_answers_and_missing_markers_are_cautions():
    assert summarize_readings([read(0, MARKED)]).cautions == ()
    (emptied,) = summarize_readings([read(0, PLANS)]).cautions
    assert emptied.startswith("1 of 1 traces lost more than half of their sentences as announcements")
    (unlocated,) = summarize_readings([read(0, PROSE), read(1, "Lund")]).cautions
    assert unlocated.startswith("In 1 of 2 responses the answer is not told apart from its explanation")
    (missing,) = summarize_readings([*(read(number, MARKED) for number in range(19)), read(19, PROSE)]).cautions
    assert missing.startswith("19 responses mark their answer and 1 do not: is a marker missing?")


def test_example_shows_answer_and_first_steps_on_one_line():
    assert show_reading(read(0, MARKED)) == "answer: Lund | Ada built the bridge. | She was born in Lund."
    assert show_reading(read(0, "A.\nB.\nC.\nFinal answer:\nx")) == "answer: x | A. | B. | (1 more)"


def test_every_record_of_a_file_is_read_or_counted_with_its_reason(rows):
    *read, without_response, unreadable = scan_readings(rows)
    assert all(record.value is not None for record in read)
    assert (len(read), without_response.rejected) == (3, "no response")
    assert unreadable.error is not None


def test_responses_of_a_run_are_read_as_they_were(rows, tmp_path):
    responses = [record.value for record in scan_readings(rows) if record.value]
    write_records(tmp_path / "run" / "responses.jsonl", responses)
    assert [record.value for record in scan_readings(tmp_path / "run")] == responses


def test_cases_to_send_hold_the_record_and_what_was_read(rows, tmp_path):
    second = [record.value for record in scan_readings(rows)][1]
    assert write_reading_cases(rows, [second.id], tmp_path / "cases.jsonl") == 1
    case = json.loads((tmp_path / "cases.jsonl").read_text())
    assert case["where"] == "line 2"
    assert case["record"]["response"] == PROSE
    assert case["response"]["reading"]["rule"] == "prose, answer not located"


def test_cases_of_an_unknown_response_are_refused(rows, tmp_path):
    with pytest.raises(UserError, match="has no response with the id 'r9'"):
        write_reading_cases(rows, ["r9"], tmp_path / "cases.jsonl")
    assert not (tmp_path / "cases.jsonl").exists()
