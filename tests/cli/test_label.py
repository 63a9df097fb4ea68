"""Labelling responses of one's own: what is drawn, what is written, and to which files the labels belong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from tests.annotation.projects import who, work_off
from typer.testing import CliRunner

from eclose.annotation.label_sample import LABELLER_NAME
from eclose.cli import label
from eclose.cli.main import app
from eclose.core.response import Response
from eclose.demo import DemoRun
from eclose.errors import UserError
from eclose.store.records import jsonl
from eclose.store.runs.manifest import hash_files, read_manifest


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "run"
    DemoRun(folder, questions=8).write()
    return folder


@pytest.fixture
def run(demo, tmp_path, monkeypatch):
    """A judged run; the person in the browser says yes to everything."""
    monkeypatch.setattr(label, "_serve", lambda project, *_, **__: work_off(project, who(project, LABELLER_NAME)))
    return shutil.copytree(demo, tmp_path / "run")


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    error = result.exception if isinstance(result.exception, UserError) else None
    assert (result.exit_code if error is None else error.exit_code) == code, (result.output, result.exception)
    return " ".join(f"{result.output} {error or ''}".split())


def replace_answers(run):
    responses = [
        replace(response, answer="WRONG") for response in jsonl.read_records(run / "responses.jsonl", Response)
    ]
    jsonl.write_records(run / "responses.jsonl", responses)


def test_labels_name_the_files_they_are_of(run):
    output = command("label", run, "--n", "10", "--no-browser")
    assert "10 of 10 responses labelled" in output
    verdicts = run / "labels" / "verdicts.jsonl"
    manifest = read_manifest(run / "labels" / "verdicts.jsonl.manifest.json")
    assert manifest.inputs == hash_files([run / "instances.jsonl", run / "responses.jsonl"])
    assert (manifest.counts.accepted, manifest.settings["n"]) == (10, 10)
    assert (run / "validation.json").is_file()
    command("metrics", verdicts)
    replace_answers(run)
    changed = "responses.jsonl is not the file that verdicts.jsonl was made from"
    assert changed in command("metrics", verdicts, code=2)
    assert f"STALE: {changed}" in command("metrics", verdicts, "--allow-stale")


def test_labels_of_replaced_responses_are_not_gone_on_with(run):
    command("label", run, "--n", "10", "--no-browser")
    replace_answers(run)
    assert "is not the file that judgments.jsonl was made from" in command("label", run, "--n", "10", code=2)
    output = command("label", run, "--n", "10", "--no-browser", "--allow-stale", code=2)
    assert "have changed since labelling began" in output


def test_responses_that_are_replaced_while_they_are_labelled_get_no_verdicts(run, monkeypatch):
    def work(project, *_, **__):
        work_off(project, who(project, LABELLER_NAME))
        replace_answers(run)

    monkeypatch.setattr(label, "_serve", work)
    assert "was changed" in command("label", run, "--n", "10", "--no-browser", code=2)
    assert not (run / "labels" / "verdicts.jsonl").exists()


def test_stale_judgments_may_be_labelled_and_are_told(run):
    replace_answers(run)
    output = command("label", run, "--n", "10", "--no-browser", "--allow-stale")
    assert "STALE: responses.jsonl" in output
    assert json.loads((run / "validation.json").read_text())["stale"]


def test_a_run_that_is_not_judged_is_labelled_without_what_cannot_be_shown(run):
    (run / "judgments.jsonl").unlink()
    (run / "judgments.jsonl.manifest.json").unlink()
    lines = (run / "responses.jsonl").read_bytes().splitlines(keepends=True)
    stray = jsonl.encode_json_line(
        replace(next(jsonl.read_records(run / "responses.jsonl", Response)), id="s", instance_id="x")
    )
    (run / "responses.jsonl").write_bytes(b"".join([*lines, lines[0], stray + b"\n", b"{\n"]))
    output = command("label", run, "--n", "5", "--no-browser")
    assert "responses.jsonl: 2 not used (duplicate 1, not JSON 1)" in output
    assert "2 responses cannot be labelled" in output
    assert f"5 responses of {len(lines)}" in output
    assert "The run is not judged" in output
