"""Objects come out of a file one by one, however it is laid out and wherever its chunks end."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.errors import RecordError, UserError
from eclose.files import json_reader
from eclose.files.json_reader import JsonStreamWindow, parse_json_object, raise_file_problems, read_json_objects

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, json_values, max_size=4)


class Trickle(io.BytesIO):
    """A stream that gives a few bytes at a time, so that every value is cut somewhere."""

    def read(self, size=-1):
        return super().read(min(size, 3) if size >= 0 else 3)


@pytest.mark.slow
@given(st.lists(json_values, max_size=6), st.booleans())
def test_a_window_finds_every_value_wherever_the_text_is_cut(values, ascii_only):
    window = JsonStreamWindow(Trickle(json.dumps(values, ensure_ascii=ascii_only).encode()))
    parsed_values = []
    assert window.skip("[")
    while window.peek() not in {"]", ""}:
        parsed_values.append(window.read_value())
        window.skip(",")
    assert parsed_values == values


@pytest.mark.slow
@given(objects)
def test_a_line_reads_as_json_does(value):
    assert parse_json_object(json.dumps(value).encode()) == value


@pytest.mark.parametrize("layout", ["lines", "array", "pretty", "wrapped"])
@pytest.mark.parametrize("packed", [False, True])
def test_layouts_are_told_apart_by_their_first_characters(tmp_path, layout, packed):
    values = [{"n": number, "text": "é" * 50_000} for number in range(5)]
    text = {
        "lines": "\n".join(map(json.dumps, values)),
        "array": json.dumps(values),
        "pretty": json.dumps(values, indent=2, ensure_ascii=False),
        "wrapped": json.dumps({"results": values}),
    }[layout]
    path = tmp_path / "file.any"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    records = list(read_json_objects(path))
    assert [record.value for record in records] == values
    assert records[1].where == ("line 2" if layout == "lines" else "record 2")


def test_line_numbers_count_blank_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('\n\n{"a": 1}\n\n{"a": 2}\n')
    assert [record.where for record in read_json_objects(path)] == ["line 3", "line 5"]


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.json: there is no such file\. Check the path"):
        read_json_objects(tmp_path / "none.json")
    with pytest.raises(UserError, match=r"is a folder\. Name a file in it"):
        read_json_objects(tmp_path)


def test_a_pipe_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"is a pipe or a device.*Save it to a file first"):
        read_json_objects(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"question,contexts\n", r"is a table of texts.*orient='records', lines=True"),
        ("a.TSV", b"", "is a table of texts"),
        ("a.jsonl", b"PK\x03\x04 and so on", r"is a zip archive\. Unpack it"),
        ("a.jsonl", b"\x28\xb5\x2f\xfd and so on", r"is packed with zstd\. Unpack it first"),
        ("a.json", b"PAR1 and so on", r"is Parquet under another name\. Let its name end in \.parquet"),
        ("a.json", b'{\n "question": {"0": "Q?"}}', r"written column by column\?.*orient='records', lines=True"),
    ],
)
def test_other_files_get_a_sentence_of_their_own(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(read_json_objects(tmp_path / name))


@pytest.mark.parametrize("packed", [False, True])
def test_the_only_list_of_an_object_holds_the_records(tmp_path, packed):
    values = [{"qid": str(number), "ctx": {"T": ["a", "b"]}, "more": [1]} for number in range(5)]
    path = tmp_path / "file.json"
    for wrapper in ({"version": "0.3", "meta": {"tags": ["a"]}, "items": values}, {"items": values, "n": 5}):
        text = json.dumps(wrapper, indent=1).encode()
        path.write_bytes(gzip.compress(text) if packed else text)
        records = list(read_json_objects(path))
        assert [record.value for record in records] == values
        assert records[1].where == "record 2"


def test_a_list_called_results_comes_before_other_lists(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"notes": [{"a": 1}], "results": [{"b": 2}], "more": []}, indent=1))
    assert [record.value for record in read_json_objects(path)] == [{"b": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n "items": [], "n": 1, "notes": []}', r"lists called 'items', 'notes', so it is open which holds the rec"),
        ('{\n "items": [], "items": []}', r"lists called 'items', 'items', so"),
        (
            '{\n "version": "1", "a": {}}',
            r"a\.json: is one object without a list of records\. Its keys: 'version', 'a'",
        ),
        ("{\n}", r"without a list of records\. Its keys: none"),
        ('{\n "items": [{}', r"is one object that is broken or cut off"),
        ('{\n "items": [{}], "n": 1', r"is one object that is broken or cut off"),
        ('{\n "items": [{}] }{', r"or something follows it"),
        ('{\n "items": [{"a": }]}', r"is not JSON \(Expecting value"),
        ('{\n "items": [{},]}', r"breaks off after record 1"),
    ],
)
def test_an_object_without_one_list_names_its_keys(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        list(read_json_objects(path))


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.touch()

    def denied(*_arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(UserError, match=r"a\.json: cannot be read \(Permission denied\)"):
        list(read_json_objects(path))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(UserError, match=r"pip install 'eclose\[parquet\]'"):
        list(read_json_objects(tmp_path / "a.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("wrapping", [("", "\n", ""), ("[", ",", "]"), ('{\n"version": 1, "items": [', ",", "]}")])
def test_memory_does_not_grow_with_the_file(tmp_path, wrapping):
    opening, separator, end = wrapping
    path = tmp_path / "big.json"
    record = json.dumps({"text": "word " * 200})
    path.write_text(opening + separator.join([record] * 8_000) + end)
    assert path.stat().st_size > 8_000_000
    tracemalloc.start()
    assert sum(1 for _ in read_json_objects(path)) == 8_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_500_000


def test_an_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("eclose.files.json_reader.RECORD_LIMIT", 100)
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n' + "x" * 200)
    records = read_json_objects(path)
    assert next(records).value == {"a": 1}
    with pytest.raises(RecordError, match=r"line 2: is longer than 100 bytes\. Put one record on each line"):
        next(records)


def test_an_endless_array_item_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_reader, "RECORD_LIMIT", 100)
    path = tmp_path / "a.json"
    path.write_text('["' + "x" * 1_000_000)
    with pytest.raises(UserError, match="breaks off after record 0"):
        list(read_json_objects(path))


def test_a_refused_item_does_not_spoil_its_neighbours(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1, "a": 2}, {"b": NaN}, {"c": 3}, 4, {"d": ' + "9" * 5000 + '}, {"e": 5}]')
    assert [record.value for record in read_json_objects(path)] == [None, None, {"c": 3}, None, None, {"e": 5}]


def test_a_file_without_problems_passes():
    raise_file_problems(Path("a.csv"), [])


def test_problems_are_told_together_without_repeating_the_file():
    with pytest.raises(UserError, match=r"^a\.csv: cannot be used as it is\. row 1: x; row 2: y; and 2 more\.$"):
        raise_file_problems(Path("a.csv"), ["a.csv row 1: x", "row 2: y", "z", "z"], most=2)
