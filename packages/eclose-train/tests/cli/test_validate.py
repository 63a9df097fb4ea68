"""``eclose families validate``: every problem by its gate, counted, and an exit code to go by."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.files import jsonl
from eclose_world.make.families import make_world_families


@pytest.fixture
def families():
    return list(islice(make_world_families("short-easy", 9), 4))


def validated(path, *flags, code=0):
    result = CliRunner().invoke(app, ["families", "validate", str(path), *flags])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_good_families_pass(tmp_path, families):
    jsonl.write_records(tmp_path / "f.jsonl", families)
    assert "4 received = 4 passed + 0 failed + 0 unreadable" in validated(tmp_path / "f.jsonl")


def test_what_is_wrong_is_told_by_gate_and_place(tmp_path, families):
    first = families[0]
    edit = replace(first.question_edit, view=replace(first.question_edit.view, question=first.gold.question))
    wrong = replace(first, id="wrong", question_edit=edit)
    jsonl.write_records(tmp_path / "f.jsonl", [*families, wrong, families[1]])
    output = validated(tmp_path / "f.jsonl", code=1)
    assert "6 received = 4 passed + 2 failed + 0 unreadable" in output
    assert "question edit: the question asks the same in the same words" in output
    assert "repeated_id" in output
    assert "is the id of record 2 as well" in output


@pytest.mark.slow
def test_what_is_too_long_or_unreadable_is_told(tmp_path, families):
    jsonl.write_records(tmp_path / "f.jsonl", families[:1])
    assert "too_long" in validated(tmp_path / "f.jsonl", "--max-length", "100", code=1)
    with (tmp_path / "f.jsonl").open("a") as file:
        file.write(json.dumps({"id": "no family"}) + "\n")
    assert "1 passed + 0 failed + 1 unreadable" in validated(tmp_path / "f.jsonl", code=3)


@pytest.mark.slow
def test_a_few_problems_are_named_and_all_on_request(tmp_path, families):
    many = [replace(families[0], id=f"f{number}", evidence_edits=()) for number in range(25)]
    jsonl.write_records(tmp_path / "f.jsonl", many)
    assert "and 5 more problems" in validated(tmp_path / "f.jsonl", code=1)
    assert validated(tmp_path / "f.jsonl", "--all", code=1).count("there is no evidence edit") == 25
