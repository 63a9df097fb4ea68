"""A finished stage is not done again, and nothing is overwritten unasked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eclose.errors import RecordError, SettingError, UserError
from eclose.files.jsonl import ReadRecord
from eclose.files.step import PipelineStep, companion_file_path, refuse_shared_files, write_step_files
from eclose.values.instance import Instance, Passage

GOOD = ReadRecord("line 1", Instance("1", "Q?", (Passage("0", "", "x"),)))
BAD = ReadRecord("line 2", error=RecordError("is wrong", path="in", record="line 2"), error_kind="wrong record")


@pytest.fixture
def stage(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("input")
    return PipelineStep("test", {"n": 1}, (source,), tmp_path / "out.jsonl")


def names(stage):
    return sorted(path.name for path in stage.out.parent.iterdir())


def contents(stage):
    return {path.name: path.read_bytes() for path in stage.out.parent.iterdir()}


def failing():
    yield GOOD
    yield BAD
    raise UserError("breaks off")


def test_companions_carry_the_whole_name_so_that_no_two_files_share_them():
    outs = [Path("x") / name for name in ("a.jsonl", "a.txt", "a.jsonl.gz", "a", "b/a.jsonl")]
    assert companion_file_path(outs[0], "manifest.json") == Path("x") / "a.jsonl.manifest.json"
    assert len({companion_file_path(out, "manifest.json") for out in outs}) == len(outs)


def test_writes_the_accepted_the_refused_and_the_manifest(stage):
    counts = stage.write([GOOD, BAD])
    assert names(stage) == ["in.jsonl", "out.jsonl", "out.jsonl.manifest.json", "out.jsonl.quarantined.jsonl"]
    assert json.loads(stage.quarantine_path.read_text()) == {"where": "line 2", "error": "in line 2: is wrong"}
    manifest = stage.claim()
    assert manifest.counts == counts
    assert set(manifest.outputs) == {"out.jsonl", "out.jsonl.quarantined.jsonl"}


def test_rejected_records_are_listed_where_the_step_explains_them(stage):
    rejected = ReadRecord("line 3", rejected="not needed")
    stage.write([GOOD, rejected])
    assert not stage.rejected_path.exists()
    explaining = replace(stage, explains_rejected=True)
    explaining.write([GOOD, rejected])
    assert json.loads(stage.rejected_path.read_text()) == {"where": "line 3", "reason": "not needed"}
    assert explaining.claim().outputs.keys() == {"out.jsonl", "out.jsonl.rejected.jsonl"}
    explaining.write([GOOD])
    assert not stage.rejected_path.exists()


def test_without_refused_records_there_is_no_quarantine(stage):
    stage.write([GOOD, BAD])
    stage.write([GOOD])
    assert names(stage) == ["in.jsonl", "out.jsonl", "out.jsonl.manifest.json"]
    assert set(stage.claim().outputs) == {"out.jsonl"}


def test_a_failure_leaves_nothing_behind(stage):
    with pytest.raises(UserError, match="breaks off"):
        stage.write(failing())
    assert names(stage) == ["in.jsonl"]
    assert stage.claim() is None


def test_a_failure_leaves_an_earlier_result_as_it_was(stage):
    stage.write([GOOD, BAD])
    before = contents(stage)
    with pytest.raises(UserError, match="breaks off"):
        stage.write(failing())
    assert contents(stage) == before


def test_other_work_is_not_overwritten(stage):
    stage.write([GOOD])
    other = PipelineStep("test", {"n": 2}, stage.inputs, stage.out)
    with pytest.raises(UserError, match=r"made from other inputs or with other settings.*--force"):
        other.claim()
    assert other.claim(force=True) is None
    stage.inputs[0].write_text("changed")
    with pytest.raises(UserError, match="made from other inputs"):
        stage.claim()


def changing(stage, data):
    yield GOOD
    stage.inputs[0].write_bytes(data) if data is not None else stage.inputs[0].unlink()


@pytest.mark.parametrize(
    ("data", "problem"), [(b"other", r"was changed \(sha256:\w{8} at"), (None, "was removed while")]
)
def test_an_input_that_changes_while_it_is_read_is_refused_and_nothing_is_written(stage, data, problem):
    with pytest.raises(UserError, match=problem):
        stage.write(changing(stage, data))
    assert set(names(stage)) <= {"in.jsonl"}


def test_the_manifest_names_the_input_as_it_was_at_the_start(stage):
    stage.require_inputs()
    before = stage.input_hashes
    stage.inputs[0].write_text("changed")
    with pytest.raises(UserError, match="while it was in use"):
        stage.write([GOOD])
    stage.inputs[0].write_text("input")
    stage.write([GOOD])
    assert stage.claim().inputs == before


def test_inputs_of_one_name_are_compared_each_with_itself(tmp_path):
    paths = [tmp_path / folder / "in.jsonl" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    stage = PipelineStep("test", {}, tuple(paths), tmp_path / "out.jsonl")
    stage.require_inputs()
    stage.refuse_changed_inputs()
    paths[1].write_text("a")
    with pytest.raises(UserError, match=r"b/in.jsonl: was changed"):
        stage.refuse_changed_inputs()


def test_a_file_of_unknown_origin_is_not_overwritten(stage):
    stage.out.write_text("mine")
    with pytest.raises(UserError, match="has no manifest"):
        stage.claim()


def test_an_edited_result_is_not_overwritten(stage):
    stage.write([GOOD])
    stage.out.write_text("edited")
    with pytest.raises(UserError, match="was changed after it was written"):
        stage.claim()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("ending", ["", ".quarantined.jsonl", ".manifest.json"])
@pytest.mark.parametrize("linked", [False, True])
def test_an_input_is_never_written_to_under_any_name(tmp_path, force, ending, linked):
    source = tmp_path / f"a.jsonl{ending}"
    source.write_text("input")
    if linked:
        (tmp_path / "link").symlink_to(source)
    loop = PipelineStep("test", {}, (tmp_path / "link" if linked else source,), tmp_path / "a.jsonl")
    with pytest.raises(SettingError, match=rf"a\.jsonl{ending}: is an input and would be overwritten"):
        loop.claim(force=force)


def test_a_missing_input_and_a_folder_as_result_are_named(stage, tmp_path):
    with pytest.raises(UserError, match=r"nowhere: there is no such file"):
        PipelineStep("test", {}, (tmp_path / "nowhere",), stage.out).claim()
    for folder in (tmp_path, Path(), Path("/")):
        with pytest.raises(SettingError, match=r"is a folder\. Name a file to write"):
            PipelineStep("test", {}, stage.inputs, folder).claim()


def test_a_strangers_quarantine_file_is_left_alone(stage):
    stage.quarantine_path.write_text("mine")
    with pytest.raises(UserError, match=r"out\.jsonl\.quarantined\.jsonl: exists and is not known to belong.*--force"):
        stage.claim()
    assert stage.claim(force=True) is None
    stage.write([GOOD])  # by force, but without a record that needs the file
    assert stage.quarantine_path.read_text() == "mine"
    stage.write([GOOD, BAD])
    assert "is wrong" in stage.quarantine_path.read_text()


def test_a_strangers_manifest_is_left_alone(stage):
    other = PipelineStep("test", {}, (), stage.out.with_name("other.jsonl"))
    other.write([GOOD])
    stage.manifest_path.write_bytes(other.manifest_path.read_bytes())
    with pytest.raises(UserError, match=r"out\.jsonl\.manifest\.json: exists and is the manifest of another file"):
        stage.claim()
    stage.manifest_path.write_text("mine")
    with pytest.raises(UserError, match="not a manifest of eclose"):
        stage.claim()
    assert stage.claim(force=True) is None
    stage.quarantine_path.write_text("mine too")
    stage.write([GOOD])
    assert stage.quarantine_path.read_text() == "mine too"
    assert stage.claim() is not None


def test_a_result_that_was_taken_away_can_be_made_again(stage):
    stage.write([GOOD, BAD])
    stage.out.unlink()
    assert stage.claim() is None
    stage.write([GOOD])
    assert not stage.quarantine_path.exists()


def test_several_files_in_one_pass(stage, tmp_path):
    second = PipelineStep("second", {}, (), tmp_path / "second.jsonl")
    first, other = write_step_files([stage, second], iter([(GOOD, GOOD), (GOOD, BAD)]))
    assert (first.accepted, other.accepted, other.quarantined) == (2, 1, {"wrong record": 1})
    assert stage.claim().counts == first
    assert second.claim().counts == other


def test_several_files_appear_together_or_not_at_all(stage, tmp_path):
    second = PipelineStep("second", {}, (), tmp_path / "second.jsonl")
    with pytest.raises(UserError, match="breaks off"):
        write_step_files([stage, second], zip(failing(), failing(), strict=True))
    assert names(stage) == ["in.jsonl"]


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.manifest.json", "../{}/out.jsonl.quarantined.jsonl"])
def test_two_stages_of_one_command_do_not_share_files(stage, tmp_path, name):
    with pytest.raises(SettingError, match="both would write"):
        refuse_shared_files([stage, PipelineStep("other", {}, (), tmp_path / name.format(tmp_path.name))])
    refuse_shared_files([stage, PipelineStep("other", {}, (), tmp_path / "out.jsonl.gz")])


def started_step(folder, **settings):
    source = folder / "in.jsonl"
    source.touch()
    return PipelineStep("ask", settings, (source,), folder / "out.jsonl")


def test_other_settings_are_refused_by_name_until_the_result_is_written(tmp_path):
    started_step(tmp_path, model="a:1/m", order="x").note_start("L")
    started_step(tmp_path, model="a:1/m", order="x").note_start("L")
    with pytest.raises(UserError, match=r"model: 'a:1/m' then, 'a:2/m' now\).*--force.*ECLOSE_SERVER_NAME"):
        started_step(tmp_path, model="a:2/m", order="x").note_start("L")
    with pytest.raises(UserError, match="limit: None then, 3 now"):
        started_step(tmp_path, model="a:1/m", order="x", limit=3).note_start("L")
    started_step(tmp_path, model="a:1/m", order="x").remove_start_note()
    started_step(tmp_path, model="a:2/m", order="x").note_start("L")


def test_other_inputs_are_refused_and_force_begins_anew(tmp_path):
    started_step(tmp_path, model="m").note_start("L")
    (tmp_path / "in.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="its input has changed since"):
        started_step(tmp_path, model="m").note_start("L")
    started_step(tmp_path, model="m").note_start("L", force=True)
    started_step(tmp_path, model="m").note_start("L")


def test_a_file_that_is_no_note_is_none(tmp_path):
    (tmp_path / "out.jsonl.begun.json").write_text("[]")
    started_step(tmp_path, model="m").note_start("L")
    (tmp_path / "out.jsonl.begun.json").write_text("{")
    started_step(tmp_path, model="m").note_start("L")
