"""The user's own columns: which of a row are kept with its response, and what they leave as it is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eclose.files.jsonl import DUPLICATE, decode_core_value, encode_json_line
from eclose.files.tables import fit_column_type, infer_column_types, name_own_columns
from eclose.judging.judge_response import build_judge_requests
from eclose.judging.settings import JudgeSettings
from eclose.readers.conversion import COLUMN_LONG, MAX_COLUMN_LENGTH
from eclose.readers.import_settings import ImportSettings
from eclose.readers.load import scan_cases
from eclose.values.response import Response

ROW = {"id": "a", "user_input": "Where?", "retrieved_contexts": ["In Lund."], "response": "Lund", "reference": "Lund"}
OWN = {"customer": "Acme", "priority": 2, "paid": True, "tags": ["x", "y"]}
MESSAGES = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Lund."}]
DOCUMENT = {"page_content": "In Lund."}


def read(tmp_path, *rows, **settings):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [response for _, response in scan_cases(path, settings=ImportSettings(**settings))]


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        {"query_id": "7", "query": "Where?", "retrieved_context": [{"text": "In Lund."}], "response": "Lund"},
        {"input": "Where?", "retrieval_context": ["In Lund."], "actual_output": "Lund", "expected_output": "Lund"},
        {"messages": MESSAGES, "documents": [DOCUMENT], "ground_truth": "Lund", "model": "m"},
        {"request": {"messages": MESSAGES[:1]}, "response": {"choices": [{"message": MESSAGES[1]}], "model": "m"},
         "documents": [DOCUMENT], "id": "b"},
        {"question": "Where?", "retriever": {"documents": [{"content": "In Lund."}]}, "llm": {"replies": ["Lund."]}},
        {"question": "Where?", "trajectory": {"thought_0": "I look.", "tool_name_0": "search", "tool_args_0": {},
         "observation_0": "In Lund."}, "answer": "Lund"},
        {"input": "Where?", "context": [DOCUMENT], "answer": "Lund", "question_id": "q"},
    ],
)  # fmt: skip
def test_columns_that_no_field_is_read_from_are_kept_with_the_response(tmp_path, row):
    (response,) = read(tmp_path, {**OWN, **row, "unset": None})
    assert response.value.columns == OWN
    assert decode_core_value(Response, json.loads(encode_json_line(response.value))) == response.value


def test_of_mapped_rows_the_keys_without_a_path_are_kept(tmp_path):
    row = {"in": {"q": "Where?", "more": 1}, "docs": ["In Lund."], "out": "Lund", **OWN}
    (response,) = read(tmp_path, row, columns={"question": "in.q", "documents": "docs[*]", "answer": "out"})
    assert response.value.columns == OWN


def test_the_second_name_of_a_field_is_a_column_of_the_users_own(tmp_path):
    (response,) = read(tmp_path, ROW | {"trace_id": "t-1", "ground_truth": "Malmö"})
    assert response.value.columns == {"trace_id": "t-1", "ground_truth": "Malmö"}


def test_a_trace_under_two_names_is_no_column_of_the_users_own(tmp_path):
    (response,) = read(tmp_path, ROW | {"reasoning": "It is in Lund.", "reasoning_content": "It is in Lund."})
    assert response.value.columns == {}


def test_a_state_that_is_a_text_is_kept_and_one_with_messages_is_not(tmp_path):
    row = {"messages": MESSAGES, "documents": [DOCUMENT], "state": "CA"}
    assert read(tmp_path, row)[0].value.columns == {"state": "CA"}
    assert read(tmp_path, {"state": row | {"thread": 1}, "city": "Lund"})[0].value.columns == {"city": "Lund"}


def test_a_long_value_is_left_out_and_counted(tmp_path):
    limit = MAX_COLUMN_LENGTH
    row = ROW | {"short": "x" * limit, "long": "x" * (limit + 1), "nested": {"deep": ["x" * limit]}}
    (response,) = read(tmp_path, row)
    assert response.value.columns == {"short": "x" * limit}
    assert COLUMN_LONG in response.repairs
    assert COLUMN_LONG not in read(tmp_path, ROW | OWN)[0].repairs


def test_a_response_repeated_with_another_column_is_still_a_duplicate(tmp_path):
    first, second = read(tmp_path, ROW | {"row": 1}, ROW | {"row": 2})
    assert first.value.columns == {"row": 1}
    assert second.rejected == DUPLICATE


def test_ids_prompts_and_files_without_columns_are_as_before(tmp_path):
    (plain,), (with_columns,) = read(tmp_path, ROW), read(tmp_path, ROW | OWN)
    assert replace(with_columns.value, columns={}) == plain.value
    assert b"columns" not in encode_json_line(plain.value)
    assert hash(plain.value) == hash(with_columns.value)
    (question, _), *_ = scan_cases(tmp_path / "rows.jsonl")
    pair = (plain.value, with_columns.value)
    requests = [list(build_judge_requests(question.value, response, JudgeSettings())) for response in pair]
    assert requests[0] == requests[1]


def test_a_name_that_a_table_has_itself_gets_a_prefix():
    rows = [{"Cost": 1, "cost": 2, "city": 3}, {"own_cost": 4}]
    assert name_own_columns(rows, ["cost", "judge"]) == {
        "Cost": "own_Cost", "cost": "own_own_cost", "city": "city", "own_cost": "own_own_own_cost",
    }  # fmt: skip


def test_a_column_has_the_type_that_holds_all_of_its_values():
    rows = [
        {"flag": True, "count": 1, "mixed": 1, "large": 2**63, "parts": [1], "text": None},
        {"flag": None, "count": 2.5, "mixed": False, "text": "a"},
    ]
    types = infer_column_types(rows)
    assert types == {"flag": bool, "count": float, "mixed": str, "large": str, "parts": str, "text": str}
    assert infer_column_types(rows[1:], infer_column_types(rows[:1])) == types
    assert [fit_column_type(rows[0][name], kind) for name, kind in types.items()] == [
        True, 1.0, "1", "9223372036854775808", "[1]", None,
    ]  # fmt: skip
