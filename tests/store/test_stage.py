"""A finished stage is not done again, and nothing is overwritten unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eclosure.core.instance import Instance, Passage
from eclosure.errors import RecordError, SettingError, UserError
from eclosure.store.records import ReadRecord
from eclosure.store.stage import Stage, beside

GOOD = ReadRecord("line 1", Instance("1", "Q?", (Passage("0", "", "x"),)))
BAD = ReadRecord("line 2", error=RecordError("is wrong", path="in", record="line 2"), error_kind="wrong record")


@pytest.fixture
def stage(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("input")
    return Stage("test", {"n": 1}, (source,), tmp_path / "out.jsonl")


def names(stage):
    return sorted(path.name for path in stage.out.parent.iterdir())


@pytest.mark.parametrize(
    ("name", "manifest"),
    [("a.jsonl", "a.manifest.json"), ("a.b.jsonl.gz", "a.b.manifest.json"), ("plain", "plain.manifest.json")],
)
def test_companions_share_the_stem(name, manifest):
    assert beside(Path("x") / name, "manifest.json") == Path("x") / manifest


def test_writes_the_accepted_the_refused_and_the_manifest(stage):
    counts = stage.write([GOOD, BAD])
    assert names(stage) == ["in.jsonl", "out.jsonl", "out.manifest.json", "out.quarantined.jsonl"]
    assert json.loads(stage.quarantine_path.read_text()) == {"where": "line 2", "error": "in line 2: is wrong"}
    manifest = stage.finished()
    assert manifest.counts == counts
    assert set(manifest.outputs) == {"out.jsonl", "out.quarantined.jsonl"}


def test_without_refused_records_there_is_no_quarantine(stage):
    stage.write([GOOD, BAD])
    stage.write([GOOD])
    assert names(stage) == ["in.jsonl", "out.jsonl", "out.manifest.json"]


def test_a_failure_leaves_nothing_behind(stage):
    def failing():
        yield GOOD
        yield BAD
        raise UserError("breaks off")

    with pytest.raises(UserError, match="breaks off"):
        stage.write(failing())
    assert names(stage) == ["in.jsonl"]
    assert stage.finished() is None


def test_other_work_is_not_overwritten(stage):
    stage.write([GOOD])
    other = Stage("test", {"n": 2}, stage.inputs, stage.out)
    with pytest.raises(UserError, match=r"made from other inputs or with other settings.*--force"):
        other.finished()
    assert other.finished(force=True) is None
    stage.inputs[0].write_text("changed")
    with pytest.raises(UserError, match="made from other inputs"):
        stage.finished()


def test_a_file_of_unknown_origin_is_not_overwritten(stage):
    stage.out.write_text("mine")
    with pytest.raises(UserError, match="has no manifest"):
        stage.finished()


def test_an_edited_result_is_not_overwritten(stage):
    stage.write([GOOD])
    stage.out.write_text("edited")
    with pytest.raises(UserError, match="was changed after it was written"):
        stage.finished()


def test_an_input_is_never_the_output(stage):
    loop = Stage("test", {}, stage.inputs, stage.inputs[0])
    for force in (False, True):
        with pytest.raises(SettingError, match="is also an input"):
            loop.finished(force=force)
