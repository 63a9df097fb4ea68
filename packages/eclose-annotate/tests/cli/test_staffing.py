"""``eclose annotate reassign``, and what ``status`` says about people."""

from __future__ import annotations

import json
import re

import pytest

from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records, write_records
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose_annotate.people import people
from eclose_annotate.project import open_annotation_project
from eclose_annotate.results.final_labels import SettledLabel
from tests.cli.test_annotate import run
from tests.generating import recipe
from tests.projects import material, next_sheet, submit, who, work_off


@pytest.fixture
def source(tmp_path):
    instances, responses = material(6)
    write_records(tmp_path / "run" / INSTANCES_FILE, instances)
    write_records(tmp_path / "run" / RESPONSES_FILE, responses)
    return tmp_path / "run"


def begin(tmp_path, source, *words):
    code, output = run("init", tmp_path / "study", source, "--annotators", "ann,bob,cyd,dan", *words)
    assert code == 0, output
    return tmp_path / "study"


@pytest.mark.slow
def test_a_person_who_leaves_is_replaced(tmp_path, source):
    folder = begin(tmp_path, source, "--adjudicators", "eve")
    with pytest.raises(UserError, match="6 of 6 tasks of ann fit none"):
        run("reassign", folder, "ann", "--reason", "left")
    command = ("reassign", folder, "Ann", "--new", "zoe, yan", "--reason", "left")
    code, output = run(*command, *recipe(tmp_path, public_url="https://labels.example.org"))
    assert (code, "6 tasks of ann handed over\n  yan: 3\n  zoe: 3\n" in output) == (0, True)
    links = re.findall(r"^(\w+) \(annotator\): https://labels.example.org/invitation/\S{43}$", output, re.M)
    assert links == ["zoe", "yan"]
    assert re.search(r"ann +annotator +invited +0 +0", run("status", folder)[1])


@pytest.mark.slow
def test_a_third_label_on_half_of_the_responses_comes_from_a_second_project(tmp_path, source):
    """The commands of the guide; ``sed`` sets the number of people of each response to 0."""
    study = begin(tmp_path, source)
    third = tmp_path / "third"
    assert run("init", third, source, "--n", "6", "--per-response", "1", "--annotators", "fay,gus")[0] == 0
    rows = []
    for folder, names in ((study, ("ann", "bob", "cyd", "dan")), (third, ("fay", "gus"))):
        project = open_annotation_project(folder)
        for name in names:
            work_off(project, who(project, name))
        project.close()
        out = tmp_path / f"{folder.name}-labels"
        assert run("export", folder, "--out", out, "--names")[0] == 0
        rows.append((out / "annotations.jsonl").read_text())
    labels = tmp_path / "all.jsonl"
    labels.write_text(re.sub(r'"asked":\d*', '"asked":0', "".join(rows)))
    code, output = run("import", labels, "--run", source, "--per-response", "2", "--out", tmp_path / "both")
    assert (code, "12 responses = 12 settled" in output) == (0, True)
    annotators = [len(label.annotators) for label in read_records(tmp_path / "both" / "labels.jsonl", SettledLabel)]
    assert sorted(annotators) == [2] * 6 + [3] * 6


@pytest.mark.slow
def test_a_case_of_an_inactive_adjudicator_is_named_and_handed_over(tmp_path, source):
    folder = begin(tmp_path, source, "--adjudicators", "eve")
    project = open_annotation_project(folder)
    for name in ("ann", "bob", "cyd", "dan"):
        work_off(project, who(project, name), closed="no" if name == "dan" else "yes")
    eve = who(project, "eve")
    submit(project, eve, next_sheet(project, eve))
    with project.writing() as connection:
        people.deactivate_person(connection, eve.id)
    project.close()
    assert "A case waits for eve, who is inactive: eclose annotate reassign" in run("status", folder)[1]
    code, output = run("reassign", folder, "Eve", "--new", "gus", "--reason", "left")
    assert (code, output.splitlines()[0]) == (0, "1 case of eve back in the queue")
    assert "gus (adjudicator): http://127.0.0.1:8300/invitation/" in output
    assert "A case waits" not in run("status", folder)[1]


def test_flags_without_an_adjudicator_are_named(tmp_path, source):
    folder = begin(tmp_path, source, "--per-response", "1")
    project = open_annotation_project(folder)
    work_off(project, who(project, "ann"), correct="no")
    project.close()
    assert "3 responses with inconsistent labels and no adjudicator: eclose annotate invite" in run("status", folder)[
        1
    ].replace("\n", " ")
    assert run("invite", folder, "gus", "--role", "adjudicator")[0] == 0
    assert "inconsistent labels" not in run("status", folder)[1]
    assert re.search(r"^gus +adjudicator +invited +0 +3$", run("status", folder)[1], re.M)


@pytest.mark.parametrize("mode, tasks", [("required", 0), ("advisory", 6)])
def test_screening_decides_unless_it_is_advisory(tmp_path, source, mode, tasks):
    folder = begin(tmp_path, source, "--screeners", "sue,sam", *recipe(tmp_path, screening=mode))
    project = open_annotation_project(folder)
    for name in ("sue", "sam"):
        work_off(project, who(project, name), eligible="no", code="N4")
    assert work_off(project, who(project, "ann")) == 4 * tasks
    project.close()
    assert ("Screening: 6 ineligible (N4)" in run("status", folder)[1]) == (mode == "required")
    code, output = run("export", folder, "--out", tmp_path / "out")
    # Advisory: ann has finished her part of six responses, and the others are open.
    counts = {
        "required": "12 responses = 0 settled, 12 ineligible (N4)",
        "advisory": "12 responses = 0 settled, 12 open (1 of 2 have finished: 6, no annotator has finished: 6)",
    }
    assert (code, counts[mode] in output.replace("\n", " ")) == (0, True)


def test_a_setting_that_is_edited_is_refused(tmp_path, source):
    folder = begin(tmp_path, source)
    path = folder / "project.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "labels_to_adjudicator": True}))
    with pytest.raises(UserError, match=r"project.json: was edited.*labels_to_adjudicator is false"):
        run("status", folder)
    path.write_text(json.dumps(fields))
    assert run("status", folder)[0] == 0


def test_errors_name_the_question_and_the_option(tmp_path, source):
    question = material(6)[0][0].id
    with pytest.raises(
        SettingError, match=rf"question '{question}' has 2 responses.*--per-response.*--share-questions"
    ):
        run("init", tmp_path / "other", source, "--annotators", "ann,bob,cyd")
    with pytest.raises(SettingError, match="--per-response 5: is not possible with 2 annotators"):
        run("init", tmp_path / "other", source, "--annotators", "ann,bob", "--per-response", "5")
