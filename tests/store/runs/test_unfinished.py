"""The note of what a run was begun with: kept until the result is written, and held against the next start."""

from __future__ import annotations

import pytest

from eclose.errors import UserError
from eclose.store.runs.step import RunStep
from eclose.store.runs.unfinished import remove_start_note, write_start_note


def stage(folder, **settings):
    source = folder / "in.jsonl"
    source.touch()
    return RunStep("ask", settings, (source,), folder / "out.jsonl")


def test_other_settings_are_refused_by_name_until_the_result_is_written(tmp_path):
    write_start_note(stage(tmp_path, model="a:1/m", order="x"))
    write_start_note(stage(tmp_path, model="a:1/m", order="x"))
    with pytest.raises(UserError, match=r"model: 'a:1/m' then, 'a:2/m' now\).*--force.*--server-name"):
        write_start_note(stage(tmp_path, model="a:2/m", order="x"))
    with pytest.raises(UserError, match="limit: None then, 3 now"):
        write_start_note(stage(tmp_path, model="a:1/m", order="x", limit=3))
    remove_start_note(stage(tmp_path, model="a:1/m", order="x"))
    write_start_note(stage(tmp_path, model="a:2/m", order="x"))


def test_other_inputs_are_refused_and_force_begins_anew(tmp_path):
    write_start_note(stage(tmp_path, model="m"))
    (tmp_path / "in.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="other inputs"):
        write_start_note(stage(tmp_path, model="m"))
    write_start_note(stage(tmp_path, model="m"), force=True)
    write_start_note(stage(tmp_path, model="m"))


def test_a_file_that_is_no_note_is_none(tmp_path):
    (tmp_path / "out.jsonl.begun.json").write_text("[]")
    write_start_note(stage(tmp_path, model="m"))
    (tmp_path / "out.jsonl.begun.json").write_text("{")
    write_start_note(stage(tmp_path, model="m"))
