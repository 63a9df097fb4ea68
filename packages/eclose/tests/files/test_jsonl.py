"""Values come back from disk as they were, and files appear whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eclose.errors import RecordError, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.json_reader import parse_json_object
from eclose.files.jsonl import (
    ReadRecord,
    check_core_rules,
    decode_core_value,
    encode_json_line,
    read_records,
    scan_records,
    unwrap_records,
    write_records,
)
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Judgment, LocalFailure, StepJudgment
from eclose.values.response import Response, ResponseSource, Trace
from eclose.values.verdict import SettledVerdict, Verdict

# Anything a file can hold: right-to-left marks, combining characters, private use, line separators, emoji.
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
filled = text.filter(lambda value: value.strip() != "")
INSTANCE = Instance("1", "Q?", (Passage("0", "T", "text"),))


@st.composite
def instances(draw):
    ids = draw(st.lists(filled, min_size=1, max_size=4, unique=True))
    return Instance(
        id=draw(filled),
        question=draw(filled),
        evidence=tuple(Passage(id_, draw(text), draw(filled)) for id_ in ids),
        reference_answer=draw(st.none() | filled),
        aliases=tuple(draw(st.lists(filled, max_size=2))),
        benchmark=draw(st.none() | text),
        support_ids=draw(st.none() | st.lists(st.sampled_from(ids), max_size=3).map(tuple)),
        kind=draw(st.none() | text),
        hops=draw(st.none() | st.integers(1, 9)),
    )


@pytest.mark.slow
@given(instances())
def test_instances_come_back_as_they_were(instance):
    line = encode_json_line(instance)
    assert b"\n" not in line
    assert decode_core_value(Instance, json.loads(line)) == instance


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(instances(), max_size=4))
def test_files_of_instances_come_back_as_they_were(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("records") / "a.jsonl"
    assert write_records(path, written) == len(written)
    assert list(read_records(path, Instance)) == written


def test_responses_and_verdicts_come_back_as_they_were():
    response = Response(
        "r", "1", Trace.of("a", "b"), "A", ResponseSource("m", "SFT", 42), "1. a\n2. b\nFinal answer: A"
    )
    verdict = SettledVerdict("r", "1", Verdict(True, None, False), "B", ResponseSource("m"))
    for value in (response, verdict):
        assert decode_core_value(type(value), json.loads(encode_json_line(value))) == value


def test_verdicts_may_be_written_with_the_letters_of_the_paper():
    record = {"response_id": "r", "instance_id": "1", "verdict": {"L": 1, "A": True, "C": 0, "K": None}}
    assert decode_core_value(SettledVerdict, record).verdict == Verdict(True, True, False)
    with pytest.raises(RecordError, match="under its name and under its letter"):
        decode_core_value(SettledVerdict, {**record, "verdict": {"L": 1, "locally_sound": True}})
    with pytest.raises(RecordError, match=r"verdict\.locally_sound: should be a valid boolean"):
        decode_core_value(SettledVerdict, {**record, "verdict": {"L": 2}})


def test_rules_hold_for_values_made_in_code_too():
    check_core_rules(INSTANCE)
    with pytest.raises(RecordError, match=r"evidence\[0\]\.id: is empty; evidence\[0\]\.text: is empty"):
        check_core_rules(Instance("1", "Q?", (Passage("", "T", " "),)))
    with pytest.raises(RecordError, match="answer: is empty"):
        check_core_rules(Response("r", "1", Trace(()), " "))


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (StepJudgment(True, True, LocalFailure("L1")), "failure L1 is given for a step that is not unsound"),
        (StepJudgment(False, True), "soundness is given for a step that is not substantive"),
    ],
)
def test_judgments_do_not_contradict_themselves(step, problem):
    with pytest.raises(RecordError, match=problem):
        check_core_rules(Judgment("r", "judge", steps=(step,)))


@pytest.mark.parametrize("depth", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_record_may_be_deeper_than_the_stack(depth):
    nested = []
    for _ in range(depth):
        nested = [nested]
    with pytest.raises(RecordError, match="is nested too deeply"):
        decode_core_value(Instance, {"id": nested})


def test_scan_keeps_going_where_read_stops(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode_json_line(INSTANCE) + b"\n{\n" + b'{"id": 1}\n')
    kinds = [(record.value is not None, record.error_kind) for record in scan_records(path, Instance)]
    assert kinds == [(True, "unreadable"), (False, "not JSON"), (False, "wrong record")]
    with pytest.raises(RecordError, match=r"a\.jsonl line 2: is not JSON"):
        list(read_records(path, Instance))


def test_values_pass_over_what_was_set_aside():
    assert list(unwrap_records([ReadRecord("line 1", rejected="duplicate"), ReadRecord("line 2", value=7)])) == [7]


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    path = tmp_path / "deep" / "a.jsonl"
    with AtomicFile(path) as file:
        file.write(b"half")
        assert not path.exists()
    assert path.read_bytes() == b"half"


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"old")

    def values_then_failure():
        yield INSTANCE
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_records(path, values_then_failure())
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]


def test_a_failure_at_the_very_end_leaves_nothing_either(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for name in ("a.jsonl", "a.jsonl.gz"):
        with pytest.raises(UserError, match=rf"{name}: cannot be written here \(No space left on device\)\. Choose"):
            write_records(tmp_path / name, [INSTANCE])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.slow
def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path, name):
    """In a process of its own, whose files may have a hundred bytes: what is buffered cannot be written out either."""
    code = (
        "import resource, signal, sys; from eclose.files.atomic import AtomicFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try:\n"
        "    with AtomicFile(sys.argv[1]) as file:\n"
        "        for number in range(100_000): file.write(str(number**5).encode())\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / name)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert result.stdout.startswith(f"UserError {tmp_path / name}: cannot be written here (File too large).")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "record", "message"),
    [
        (
            SettledVerdict,
            {"id": "r", "instance_id": "i", "trace": {"steps": []}},
            "looks like a response, not a verdict",
        ),
        (Response, {"id": "i", "question": "Q?", "evidence": []}, "looks like an instance, not a response"),
        (Instance, {"response_id": "r", "instance_id": "i", "verdict": {}}, "looks like a verdict, not an instance"),
        (Response, {"response_id": "r", "judge": "me", "steps": []}, "looks like a judgment, not a response"),
        (Instance, {"id": "f", "source": {}, "gold": {}}, "looks like a family, not an instance"),
        (SettledVerdict, {"response_id": "r", "verdict": 3, "trace": 1}, "verdict: should be"),
        (SettledVerdict, {"something": "else"}, "response_id: is missing"),
    ],
)
def test_the_wrong_file_is_recognised(kind, record, message):
    with pytest.raises(RecordError, match=message):
        decode_core_value(kind, record)


def test_packed_files_of_equal_content_are_equal(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_records(tmp_path / name, [INSTANCE] * 3)
    packed = (tmp_path / "a.jsonl.gz").read_bytes()
    assert packed == (tmp_path / "b.jsonl.gz").read_bytes()
    assert packed[4:8] == b"\0\0\0\0"  # no time of writing
    assert gzip.decompress(packed).count(b"\n") == 3


def test_new_files_have_the_usual_permissions(tmp_path):
    usual = tmp_path / "usual"
    usual.touch()
    write_records(tmp_path / "a.jsonl", [])
    assert (tmp_path / "a.jsonl").stat().st_mode == usual.stat().st_mode


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match=r"is a folder\. Name a file to write"):
        AtomicFile(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written here"):
        AtomicFile(tmp_path / "file" / "a.jsonl")


def test_an_object_of_many_keys_with_the_last_repeated_is_refused_in_linear_time():
    line = json.dumps({f"k{number}": 1 for number in range(20_000)})[:-1] + ', "k19999": 2}'
    started = time.process_time()
    with pytest.raises(RecordError, match="the key 'k19999' twice"):
        parse_json_object(line.encode())
    assert time.process_time() - started < 0.5
