"""Records by their place in a file: the same values as reading it through, every line accounted for."""

import gzip
import json
import pickle

import pytest

from eclose.errors import RecordError, UserError
from eclose.files.jsonl import encode_json_line, read_records, write_records
from eclose.files.record_file import index_jsonl_file
from eclose.values.instance import Instance, Passage

INSTANCES = [
    Instance(f"id-{number}", "Q?", (Passage("0", "T", "text " * number + "ünï\u2028code"),)) for number in range(1, 8)
]


@pytest.fixture
def path(tmp_path):
    write_records(tmp_path / "records.jsonl", INSTANCES)
    return tmp_path / "records.jsonl"


def test_records_are_those_of_the_file(path):
    index, tally, left_out = index_jsonl_file(path, Instance)
    assert [index[number] for number in range(len(index))] == list(read_records(path, Instance)) == INSTANCES
    assert index[-1] == INSTANCES[-1]
    assert index.ids == [instance.id for instance in INSTANCES]
    assert left_out == []
    assert tally.counts().accepted == len(index) == 7


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n \n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [True, False])
def test_any_layout_of_lines(tmp_path, ending, mark, last):
    path = tmp_path / "records.jsonl"
    text = ending.join(encode_json_line(instance).decode() for instance in INSTANCES) + (ending if last else "")
    path.write_bytes(mark + text.encode())
    index, tally, _ = index_jsonl_file(path, Instance)
    assert [index[number] for number in range(len(index))] == INSTANCES
    assert tally.received == 7


def test_every_line_is_accounted_for(tmp_path):
    path = tmp_path / "records.jsonl"
    lines = [encode_json_line(instance).decode() for instance in INSTANCES]
    other = encode_json_line(Instance("id-1", "Another?", INSTANCES[0].evidence)).decode()
    path.write_text("\n".join([lines[0], "{no", lines[1], lines[0], '{"id": 7}', other, lines[2], "[1]"]) + "\n")
    index, tally, left_out = index_jsonl_file(
        path, Instance, lambda value: "not wanted" if value.id == "id-3" else None
    )
    counts = tally.counts()
    assert counts.conserved
    assert (counts.received, counts.accepted) == (8, 2)
    assert counts.rejected == {"duplicate": 1, "not wanted": 1}
    assert counts.quarantined == {"not JSON": 2, "wrong record": 1, "id used twice": 1}
    assert index.ids == ["id-1", "id-2"]
    assert [index[0], index[1]] == INSTANCES[:2]
    assert [record.where for record in left_out] == [f"line {number}" for number in (2, 4, 5, 6, 7, 8)]
    assert all(record.value is None for record in left_out), "what is left out must not be held in memory"
    assert [record.rejected for record in left_out] == [None, "duplicate", None, None, "not wanted", None]
    assert "the id 'id-1' was used in line 1 for other content" in str(left_out[3].error)
    assert str(path) in str(left_out[0].error)


def test_an_index_travels_to_other_processes(path):
    index, *_ = index_jsonl_file(path, Instance)
    assert pickle.loads(pickle.dumps(index))[3] == INSTANCES[3]


def test_a_file_that_changes_is_noticed(path):
    index, *_ = index_jsonl_file(path, Instance)
    write_records(path, INSTANCES[::-1])
    with pytest.raises(RecordError, match=r"records\.jsonl 'id-(1|2|3)'"):
        [index[number] for number in range(3)]


def test_another_record_in_the_same_place_is_noticed(tmp_path):
    path = tmp_path / "records.jsonl"
    evidence = INSTANCES[0].evidence
    write_records(path, [Instance("a", "Q?", evidence)])
    index, *_ = index_jsonl_file(path, Instance)
    write_records(path, [Instance("b", "Q?", evidence)])
    with pytest.raises(RecordError, match="'a': was changed in the file"):
        index[0]


def test_other_content_under_the_same_id_in_the_same_place_is_noticed(tmp_path):
    path = tmp_path / "records.jsonl"
    write_records(path, [Instance("a", "Who?", INSTANCES[0].evidence)])
    index, *_ = index_jsonl_file(path, Instance)
    write_records(path, [Instance("a", "How?", INSTANCES[0].evidence)])
    with pytest.raises(RecordError, match="'a': was changed in the file"):
        index[0]


def test_the_same_record_in_another_spelling_is_a_duplicate(tmp_path):
    path = tmp_path / "records.jsonl"
    line = encode_json_line(INSTANCES[0])
    path.write_bytes(line + b"\n" + json.dumps(json.loads(line), sort_keys=True, indent=None).encode() + b"\n")
    index, tally, _ = index_jsonl_file(path, Instance)
    assert (len(index), tally.counts().rejected) == (1, {"duplicate": 1})


def test_packed_and_missing_files_are_sentences(tmp_path):
    packed = tmp_path / "records.jsonl.gz"
    with gzip.open(packed, "wb") as file:
        file.write(encode_json_line(INSTANCES[0]))
    with pytest.raises(UserError, match=r"is packed.*Unpack it first"):
        index_jsonl_file(packed, Instance)
    with pytest.raises(UserError, match="there is no such file"):
        index_jsonl_file(tmp_path / "nowhere.jsonl", Instance)
    with pytest.raises(UserError, match="is a folder"):
        index_jsonl_file(tmp_path, Instance)
