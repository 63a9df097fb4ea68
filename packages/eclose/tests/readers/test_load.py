"""Files as a whole: layouts told apart, duplicates, responses, tables."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from eclose.errors import RecordError
from eclose.files.jsonl import encode_json_line, unwrap_records, write_records
from eclose.readers import benchmarks as multi_hop
from eclose.readers.import_settings import ImportSettings
from eclose.readers.layouts import BENCHMARK_LOADERS, RecordLayout, detect_record_layout
from eclose.readers.load import detect_file_layout, scan_instances, scan_recorded_responses
from eclose.readers.rag_rows import TOOL_LAYOUTS
from eclose.values.instance import Instance, Passage

ROW = {"question": "Q?", "contexts": ["one"], "answer": "R", "ground_truth": "A"}


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(
    ("record", "layout"),
    [
        ({"id": "1", "question": "?", "evidence": []}, RecordLayout.ECLOSE),
        ({"paragraphs": []}, RecordLayout.MUSIQUE),
        ({"context": [], "level": "easy", "type": "comparison"}, RecordLayout.HOTPOT),
        ({"context": [["Title", ["One.", " Two."]]], "type": "bridge"}, RecordLayout.HOTPOT),
        ({"context": {"title": ["Title"], "sentences": [["One."]]}, "type": "bridge"}, RecordLayout.HOTPOT),
        ({"context": [], "type": "bridge"}, RecordLayout.HOTPOT),
        ({"_id": "1", "context": [], "question": "?"}, RecordLayout.HOTPOT),
        ({"context": [], "type": "comparison", "evidences": []}, RecordLayout.TWO_WIKI),
        ({"context": [], "type": "inference"}, RecordLayout.TWO_WIKI),
        ({"retrieval_context": [], "context": []}, RecordLayout.DEEPEVAL),
    ],
)
def test_layouts_are_told_by_their_keys(record, layout):
    assert detect_record_layout(record) is layout


def test_the_layout_is_that_of_the_first_readable_record(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("broken\n" + json.dumps({"paragraphs": []}) + "\n")
    assert detect_file_layout(path) is RecordLayout.MUSIQUE


def test_a_file_of_one_layout_does_not_take_another(tmp_path):
    path = lines(tmp_path / "a.jsonl", ROW, {"id": "1", "question": "?", "evidence": []})
    first, second = scan_instances(path)
    assert first.value is not None
    assert "retrieved_contexts" not in str(first.error)
    assert (
        str(second.error)
        == f"{path} line 2: retrieved_contexts: is missing; write a text or {{doc_id, text}} for each passage"
    )


def test_a_named_layout_is_not_guessed(tmp_path):
    path = lines(tmp_path / "a.jsonl", ROW)
    (record,) = scan_instances(path, settings=ImportSettings(format=RecordLayout.MUSIQUE))
    assert "paragraphs: is missing" in str(record.error)


def test_a_wrapped_array_may_have_company(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps({"version": 1, "results": [ROW, {**ROW, "question": "R?"}], "metrics": {"f1": 0.5}}, indent=1)
    )
    assert [instance.question for instance in unwrap_records(scan_instances(path))] == ["Q?", "R?"]
    path.write_text(json.dumps({"results": [ROW], "metrics": {}}))
    assert len(list(unwrap_records(scan_instances(path)))) == 1


def test_a_wrapper_in_one_line_is_told_from_a_record_by_name_and_keys(tmp_path):
    rows = [{**ROW, "question": question} for question in ("Q?", "R?")]
    text = json.dumps({"version": "2.0", "meta": {}, "items": rows})
    for name, packed in (("a.json", text.encode()), ("a.json.gz", gzip.compress(text.encode()))):
        (tmp_path / name).write_bytes(packed)
        records = list(scan_instances(tmp_path / name))
        assert [(record.where, record.value.question) for record in records] == [("record 1", "Q?"), ("record 2", "R?")]
    # Several lines are several records, whatever the name.
    (tmp_path / "two.json").write_text(f"{text}\n{text}\n")
    with pytest.raises(RecordError, match="Keys seen: 'items', 'meta', 'version'"):
        list(scan_instances(tmp_path / "two.json"))
    # A line of JSON Lines is one record, as is an object with the keys of one.
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(RecordError, match="Keys seen: 'items', 'meta', 'version'"):
        list(scan_instances(tmp_path / "a.jsonl"))
    native = {"id": "q", "question": "Q?", "evidence": [{"id": "0", "title": "T", "text": "A."}]}
    (tmp_path / "one.json").write_text(json.dumps(native))
    assert [record.value.id for record in scan_instances(tmp_path / "one.json")] == ["q"]
    (tmp_path / "one.json").write_text(json.dumps({"turns": [{"input": "Q?"}]}))
    with pytest.raises(RecordError, match="is a conversation of several turns"):
        list(scan_instances(tmp_path / "one.json"))


def test_a_wrapper_in_one_line_is_mapped_by_its_items_unless_it_has_the_question(tmp_path):
    path = tmp_path / "a.json"
    record = {"id": "q1", "q": "Q?", "d": [{"text": "A."}]}
    settings = ImportSettings(columns={"id": "id", "question": "q", "documents": "d"})
    for value in (record, {"id": "museum", "items": [record]}):
        path.write_text(json.dumps(value))
        (read,) = scan_instances(path, settings=settings)
        assert read.value.id == "q1"


def test_a_parquet_table_reads_like_the_lines_it_holds(tmp_path, qa):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    source = qa / "hotpotqa_validation_hf_50.jsonl"
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert list(unwrap_records(scan_instances(tmp_path / "a.parquet"))) == list(unwrap_records(scan_instances(source)))


def test_a_parquet_table_may_hold_dates_where_we_do_not_look(tmp_path):
    from datetime import date

    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist([{**ROW, "on": date(2020, 1, 1)}]), tmp_path / "a.parquet")
    parquet.write_table(arrow.Table.from_pylist([{**ROW, "answer": date(2020, 1, 1)}]), tmp_path / "b.parquet")
    assert len(list(unwrap_records(scan_instances(tmp_path / "a.parquet")))) == 1
    with pytest.raises(RecordError, match=r"row 1: holds a value that is not JSON \(.*date"):
        list(unwrap_records(scan_instances(tmp_path / "b.parquet")))


def test_one_question_may_have_several_responses(tmp_path):
    path = lines(tmp_path / "a.jsonl", ROW, {**ROW, "answer": "S"}, ROW, {**ROW, "question": "R?", "answer": None})
    assert [record.rejected for record in scan_instances(path)] == [None, "duplicate", "duplicate", None]
    responses = list(scan_recorded_responses(path))
    assert [record.rejected for record in responses] == [None, None, "duplicate", "no response"]
    assert len({record.value.instance_id for record in responses if record.value}) == 1
    assert len({record.value.id for record in responses if record.value}) == 2


def test_a_response_to_a_question_that_cannot_be_told_apart_is_an_error(tmp_path):
    path = lines(tmp_path / "a.jsonl", {**ROW, "id": "1"}, {**ROW, "id": "1", "question": "R?", "answer": "S"})
    _, second = scan_recorded_responses(path)
    assert "the id '1' was used in line 1" in str(second.error)


def test_a_response_keeps_the_rules_too(tmp_path):
    path = lines(tmp_path / "a.jsonl", {**ROW, "answer": "a\0b"})
    assert next(scan_instances(path)).value is not None
    assert "answer: holds a NUL character" in str(next(scan_recorded_responses(path)).error)


def test_our_own_files_come_back_as_they_were(tmp_path):
    instances = [
        Instance(str(n), f"Q{n}?", (Passage("0", "", "text"),), "A", ("B",), "X", ("0",), "bridge", 2) for n in range(5)
    ]
    for name in ("a.jsonl", "a.jsonl.gz"):
        assert write_records(tmp_path / name, instances) == 5
        assert list(unwrap_records(scan_instances(tmp_path / name))) == instances


OPEN_INFERENCE = {"name": "llm", "context": {"trace_id": "1", "span_id": "2"}, "span_kind": "LLM", "attributes": {}}
TRULENS = {"input": "Where?", "output": "Arica.", "context": ["Arica is a town.", "Lima is a city."]}


def test_a_span_is_not_taken_for_hotpotqa(tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text(json.dumps(OPEN_INFERENCE) + "\n")
    assert detect_file_layout(path) is RecordLayout.OTLP


@pytest.mark.parametrize(
    ("record", "seen"),
    [
        (TRULENS, "a list whose first item is a text"),
        ({"context": "Arica is a town.", "question": "Where?"}, "a text"),
        ({"context": [{"title": "Arica", "text": "a town"}]}, "a list whose first item is an object"),
        ({"context": [["Arica", "a town"]]}, "a list whose first item is a list"),
        ({"context": None}, "nothing (null)"),
        ({"context": {}}, "an empty object"),
        ({"context": 7}, "a number"),
    ],
)
def test_another_tools_context_is_not_taken_for_hotpotqa(tmp_path, record, seen):
    path = tmp_path / "spans.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(RecordError) as refused:
        detect_file_layout(path)
    assert f"line 1: context: is {seen}, and no known layout has that" in str(refused.value)
    assert "retrieved_contexts" in str(refused.value)


def test_one_table_holds_every_benchmark():
    """A layout that is no tool's, no trace and neither ours nor a user's is a benchmark: its row is all it needs."""
    others = {RecordLayout.AUTO, RecordLayout.MAPPED, RecordLayout.ECLOSE, *TOOL_LAYOUTS}
    assert set(BENCHMARK_LOADERS) == {
        layout for layout in RecordLayout if layout not in others and layout.trace_dialect is None
    }
    converters = (multi_hop.convert_hotpot_record, multi_hop.convert_two_wiki_record, multi_hop.convert_musique_record)
    assert tuple(loader.load_converter() for loader in BENCHMARK_LOADERS.values()) == converters
    names = (multi_hop.HOTPOT_BENCHMARK, multi_hop.TWO_WIKI_BENCHMARK, multi_hop.MUSIQUE_BENCHMARK)
    assert tuple(loader.name for loader in BENCHMARK_LOADERS.values()) == names


TEN = "2026-11-20T10:00:00Z"
TIMELESS = {"question": "Where?", "contexts": ["one"], "answer": "Lund", "reference": "Lund"}
MESSAGES = [{"role": "user", "content": "Where?"}]


def scan_rows(path, *rows, **settings):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(scan_recorded_responses(path, settings=ImportSettings(**settings)))


@pytest.mark.parametrize(
    "columns",
    [
        {"timestamp": TEN},
        {"created_at": 1_795_168_800},
        {"time": "2026-11-20 11:00:00+01:00"},
        {"start_time": 1_795_168_800_000, "time": None},
    ],
)
def test_a_column_of_a_row_gives_the_time_of_its_response(tmp_path, columns):
    (plain,) = scan_rows(tmp_path / "plain.jsonl", TIMELESS)
    (record,) = scan_rows(tmp_path / "rows.jsonl", {**TIMELESS, **columns})
    # Ids and everything else stay as without a time.
    assert record.value == replace(plain.value, time=TEN)
    assert b'"time":"2026-11-20T10:00:00Z"' in encode_json_line(record.value)
    assert b"time" not in encode_json_line(plain.value)


def test_the_reply_of_a_chat_api_gives_the_time_of_its_response(tmp_path):
    reply = {"created": 1_795_168_800, "choices": [{"message": {"role": "assistant", "content": "Lund"}}]}
    (record,) = scan_rows(tmp_path / "chat.jsonl", {"messages": MESSAGES, "documents": ["one"], "response": reply})
    assert record.value.time == TEN


def test_a_mapped_path_gives_the_time_of_a_response_and_other_columns_do_not(tmp_path):
    columns = {"question": "q", "answer": "a", "documents": "d"}
    row = {"q": "Where?", "a": "Lund", "d": ["one"], "meta": {"at": TEN}, "timestamp": "2020-01-01"}
    (record,) = scan_rows(tmp_path / "rows.jsonl", row, columns={**columns, "time": "meta.at"})
    assert record.value.time == TEN
    (record,) = scan_rows(tmp_path / "rows.jsonl", row, columns=columns)
    assert record.value.time is None


@pytest.mark.parametrize(("value", "notes"), [(1.83, 1), ("soon", 1), ([7], 1), ("", 0), (None, 0)])
def test_a_time_that_cannot_be_read_is_left_out_and_noted(tmp_path, value, notes):
    (record,) = scan_rows(tmp_path / "rows.jsonl", {**TIMELESS, "time": value})
    assert record.value.time is None
    assert list(record.repairs).count("time that cannot be read left out") == notes


def test_one_response_at_two_times_is_a_duplicate(tmp_path):
    first, second = scan_rows(tmp_path / "rows.jsonl", {**TIMELESS, "time": TEN}, {**TIMELESS, "time": "2026-11-21"})
    assert (first.value.time, second.rejected) == (TEN, "duplicate")
