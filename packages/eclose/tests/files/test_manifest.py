"""A manifest says what was done, and is not written when records are missing."""

from __future__ import annotations

import errno
import hashlib
from collections import Counter
from dataclasses import replace

import pytest

from eclose.errors import RecordError, UserError
from eclose.files.jsonl import ReadRecord
from eclose.files.manifest import Manifest, hash_file, hash_files, hash_work_identity, read_manifest
from eclose.files.outcome_counts import RecordCounter, RecordCounts

MANIFEST = Manifest(
    "stage", {"n": 1}, {"in": "sha256:1"}, {"out": "sha256:2"}, RecordCounts(3, 1, {"why": 1}, {"bad": 1})
)


def test_a_manifest_comes_back_as_it_was(tmp_path):
    MANIFEST.write(tmp_path / "m.json")
    assert read_manifest(tmp_path / "m.json") == MANIFEST


def test_a_manifest_with_lost_records_is_not_written(tmp_path):
    lost = replace(MANIFEST, counts=RecordCounts(3, 1, {"why": 1}))
    with pytest.raises(AssertionError, match="records are unaccounted for"):
        lost.write(tmp_path / "m.json")
    assert not (tmp_path / "m.json").exists()


def test_a_manifest_is_json_or_nothing(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(MANIFEST, settings={"rate": float("nan")}).write(tmp_path / "m.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"stage": 3}'])
def test_something_else_is_no_manifest(tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(UserError, match="not a manifest of eclose"):
        read_manifest(tmp_path / "m.json")


def test_a_tally_puts_every_record_somewhere():
    tally = RecordCounter()
    tally.add(ReadRecord("line 1", value=1, repairs=("mended",)))
    tally.add(ReadRecord("line 2", rejected="duplicate"))
    tally.add(ReadRecord("line 3", error=RecordError("wrong"), error_kind="not JSON"))
    counts = tally.counts()
    assert counts == RecordCounts(3, 1, {"duplicate": 1}, {"not JSON": 1}, {"mended": 1})
    assert counts.conserved
    assert str(counts) == (
        "3 received = 1 accepted + 1 rejected (duplicate 1) + 1 quarantined (not JSON 1); repaired: mended 1"
    )


def test_the_same_work_is_known_by_content_and_settings():
    work = hash_work_identity("stage", {"n": 1}, {"in": "sha256:1"})
    assert MANIFEST.work_id == work == hash_work_identity("stage", {"n": 1}, {"renamed": "sha256:1"})
    assert hash_work_identity("stage", {"n": 2}, {"in": "sha256:1"}) != work
    assert hash_work_identity("stage", {"n": 1}, {"in": "sha256:9"}) != work
    assert hash_work_identity("other", {"n": 1}, {"in": "sha256:1"}) != work


def test_files_of_one_name_are_both_kept(tmp_path):
    paths = [tmp_path / "a" / "x", tmp_path / "b" / "x", tmp_path / "y"]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    hashes = hash_files(paths)
    assert len(hashes) == 3
    assert hashes["y"] == hash_file(paths[2])
    assert Counter(hashes.values()) == Counter(map(hash_file, paths))


def test_error_while_reading_a_file_names_the_file(tmp_path, monkeypatch):
    (tmp_path / "in.jsonl").write_text("{}\n")

    def broken_disk(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(hashlib, "file_digest", broken_disk)
    with pytest.raises(OSError, match="Input/output error") as raised:
        hash_file(tmp_path / "in.jsonl")
    assert raised.value.filename == str(tmp_path / "in.jsonl")
