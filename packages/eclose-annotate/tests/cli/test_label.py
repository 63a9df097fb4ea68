"""Labelling responses of one's own: what is drawn, what is written, and to which files the labels belong."""

from __future__ import annotations

import json
import re
import shutil
import socket
from dataclasses import replace
from functools import partial

import pytest
from typer.testing import CliRunner

from eclose.cli import diagnose
from eclose.cli.main import app
from eclose.errors import UserError
from eclose.files import jsonl
from eclose.files.manifest import hash_files, read_manifest
from eclose.judging import validate as validate_judges
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict
from eclose_annotate import queues
from eclose_annotate.cli import label
from eclose_annotate.labelling.sample import LABELLER_NAME
from eclose_world.demo import write_demo_files
from tests.projects import who, work_off


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "run"
    write_demo_files(folder, questions=8)
    return folder


@pytest.fixture
def run(demo, tmp_path, monkeypatch):
    """A judged run; the person in the browser says yes to everything."""
    monkeypatch.setattr(label, "_serve", lambda project, *_, **__: work_off(project, who(project, LABELLER_NAME)))
    # The intervals of agreement take seconds, and no test here is about them.
    monkeypatch.setattr(validate_judges, "validate_run", partial(validate_judges.validate_run, resamples=50))
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


def test_a_port_in_use_is_named_before_a_sample_is_drawn(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"port {port}: cannot be used" in command("label", run, "--port", port, "--no-browser", code=2)
    assert not (run / "labels").exists()


@pytest.mark.slow
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


@pytest.mark.slow
def test_labels_of_replaced_responses_are_not_gone_on_with(run):
    command("label", run, "--n", "10", "--no-browser")
    replace_answers(run)
    assert "is not the file that judgments.jsonl was made from" in command("label", run, "--n", "10", code=2)
    output = command("label", run, "--n", "10", "--no-browser", "--allow-stale", code=2)
    assert "have changed since labelling began" in output


@pytest.mark.slow
def test_responses_that_are_replaced_while_they_are_labelled_get_no_verdicts(run, monkeypatch):
    def work(project, *_, **__):
        work_off(project, who(project, LABELLER_NAME))
        replace_answers(run)

    monkeypatch.setattr(label, "_serve", work)
    assert "was changed" in command("label", run, "--n", "10", "--no-browser", code=2)
    assert not (run / "labels" / "verdicts.jsonl").exists()


@pytest.mark.slow
def test_stale_judgments_may_be_labelled_and_are_told(run):
    replace_answers(run)
    output = command("label", run, "--n", "10", "--no-browser", "--allow-stale")
    assert "STALE: responses.jsonl" in output
    assert json.loads((run / "validation.json").read_text())["stale"]


@pytest.mark.slow
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
    assert "is not judged: responses are drawn with equal probability" in output
    assert "eclose metrics" in output


@pytest.fixture(scope="module")
def larger_demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "run"
    write_demo_files(folder, questions=30)
    return folder


@pytest.fixture
def larger_run(larger_demo, run, tmp_path):
    """A judged run of 60 responses; the fixture ``run`` replaces the browser."""
    return shutil.copytree(larger_demo, tmp_path / "larger")


def labelled(run):
    return {row.response_id for row in jsonl.read_records(run / "labels" / "verdicts.jsonl", SettledVerdict)}


@pytest.mark.slow
def test_a_sample_grows_and_keeps_its_labels(run, monkeypatch):
    command("label", run, "--n", "8", "--no-browser")
    first = labelled(run)
    served = []

    def work(project, *_, **__):
        person = who(project, LABELLER_NAME)
        with project.reading() as connection:
            served.append(queues.read_task_progress(connection, person)[:2])
        work_off(project, person)

    monkeypatch.setattr(label, "_serve", work)
    output = command("label", run, "--n", "14", "--no-browser")
    assert "14 of 14 responses labelled" in output
    assert served == [(8, 14)]
    assert len(first) == 8
    assert first < labelled(run)
    assert "14 of 14 responses labelled" in command("label", run, "--no-browser")
    assert served[1:] == [(14, 14)]
    assert "--n 8 cannot make it smaller" in command("label", run, "--n", "8", "--no-browser", code=2)


@pytest.mark.slow
def test_options_of_an_existing_sample_are_kept_or_refused(run):
    command("label", run, "--n", "6", "--seed", "7", "--no-browser")
    assert "was started without --steps" in command("label", run, "--steps", "--no-browser", code=2)
    assert "another seed" in command("label", run, "--seed", "8", "--no-browser", code=2)
    command("label", run, "--no-steps", "--no-browser")
    settings = read_manifest(run / "labels" / "verdicts.jsonl.manifest.json").settings
    assert settings == {"n": 6, "seed": 7, "steps": False}


@pytest.mark.slow
def test_corrected_rates_are_printed_by_label_and_by_diagnose(larger_run, monkeypatch):
    monkeypatch.setattr(diagnose, "write_and_print_report", lambda *_: None)
    output = command("label", larger_run, "--n", "36", "--no-browser")
    assert "corrected by your 36 labels rate to the judge corrected" in output
    assert "misses are those of the sample, which was drawn by the judge's labels" in output
    assert "exact 95 % interval" not in output
    rate = output.split("corrected by your 36 labels")[1].split("TRR ")[1]
    judged, corrected = re.findall(r"([\d.]+) %", rate)[:2]
    assert judged != corrected
    printed = command("diagnose", larger_run)
    heads, row = printed.split(" TRR ")[:2]
    assert " corrected " in heads
    assert row.startswith(f"{judged} %")
    assert f" {corrected} % [" in row.split(" LGG ")[0]


@pytest.mark.slow
def test_few_labels_name_the_command_that_adds_more(larger_run, run):
    output = command("label", larger_run, "--n", "10", "--no-browser")
    assert f"eclose label {larger_run} --n 30" in output
    assert "corrected by your" not in output
    assert "this run has fewer responses" in command("label", run, "--n", "6", "--no-browser")


@pytest.mark.slow
def test_a_validation_from_more_labels_is_kept_unless_replaced(run):
    assert "is kept" not in command("label", run, "--n", "14", "--no-browser")
    shutil.move(run / "labels", run / "first")
    validation = (run / "validation.json").read_bytes()
    output = command("label", run, "--n", "6", "--no-browser")
    assert "validation.json rests on 14 labels; this sample has 6 responses" in output
    assert (run / "validation.json").read_bytes() == validation
    assert json.loads((run / "labels" / "validation.json").read_text())["labelled"] == 6
    assert "--validation" in output
    command("label", run, "--no-browser", "--replace-validation")
    assert json.loads((run / "validation.json").read_text())["labelled"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked_before_a_validation_is_replaced(run, monkeypatch, answer):
    command("label", run, "--n", "14", "--no-browser")
    shutil.move(run / "labels", run / "first")
    questions = []
    monkeypatch.setattr(label, "is_terminal", lambda: True)
    monkeypatch.setattr(label.typer, "confirm", lambda text, **_: questions.append(text) or answer)
    command("label", run, "--n", "6", "--no-browser")
    assert len(questions) == 1
    assert json.loads((run / "validation.json").read_text())["labelled"] == (6 if answer else 14)


def test_verdicts_without_judgments_are_explained(run):
    (run / "judgments.jsonl").rename(run / "verdicts.jsonl")
    (run / "judgments.jsonl.manifest.json").unlink()
    output = command("label", run, "--n", "5", "--no-browser")
    assert "has verdicts.jsonl but no judgments.jsonl" in output
    assert f"eclose judge {run} --judge MODEL" in output
