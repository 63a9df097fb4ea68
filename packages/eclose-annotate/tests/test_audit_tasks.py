"""An audit of families on the server, from the sample to the report."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import write_records
from eclose_annotate.family_audit.material import AuditorMaterial
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.project import open_annotation_project
from tests.family_audit.auditing import world
from tests.projects import filled, next_sheet, submit, who


def run(*words):
    result = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def audit(tmp_path):
    write_records(tmp_path / "families.jsonl", world())
    run("annotate", "audit", "sample", tmp_path / "families.jsonl", "--out", tmp_path / "audit", "--n", "4")
    return tmp_path / "audit"


def look(project, name, **other):
    person, questions = who(project, name), []
    while (sheet := next_sheet(project, person)) is not None:
        assert (sheet.kind, sheet.form.name, type(sheet.material)) == (AnnotationTaskKind.FAMILY, "F", AuditorMaterial)
        questions.append(sheet.material.question)
        assert submit(project, person, sheet, filled(sheet, **other)).receipt
    return questions


@pytest.mark.slow
def test_an_audit_from_the_sample_to_the_report(tmp_path, audit):
    output = run(
        "annotate", "init", tmp_path / "study", "--audit", audit, "--annotators", "ann,bob", "--adjudicators", "eve"
    )
    assert "4 families" in output
    assert "family: 8 tasks, 4 for each of 2" in output
    project = open_annotation_project(tmp_path / "study")
    first, second = look(project, "ann"), look(project, "bob", **{"gold.closed": "no"})
    third = look(project, "eve")
    project.close()
    assert sorted(first) == sorted(second) == sorted(third)
    out = tmp_path / "out"
    assert re.findall(r"forms-\d.jsonl: 4 forms", run("annotate", "export", tmp_path / "study", "--out", out))
    forms = sorted(out.iterdir())
    assert [path.name for path in forms] == ["forms-1.jsonl", "forms-2.jsonl", "forms-3.jsonl"]
    report = run("annotate", "audit", "report", audit, *forms[:2], "--adjudicated", forms[2])
    assert "people disagree on 4 of 4 families; 4 settled" in report
    run("annotate", "export", tmp_path / "study", "--out", out)
    forms[0].write_text("other forms\n")
    with pytest.raises(UserError, match="never overwritten"):
        run("annotate", "export", tmp_path / "study", "--out", out)
    assert forms[0].read_text() == "other forms\n"


def test_only_a_different_decision_on_the_family_goes_to_the_third_person(tmp_path, audit):
    run("annotate", "init", tmp_path / "study", "--audit", audit, "--annotators", "ann,bob", "--adjudicators", "eve")
    project = open_annotation_project(tmp_path / "study")
    # Both fail every family, for different marks: the decision is the same.
    look(project, "ann", **{"gold.aligned": "no"})
    look(project, "bob", **{"gold.closed": "no"})
    assert look(project, "eve") == []
    project.close()


def test_forms_are_for_so_many(tmp_path, audit):
    with pytest.raises(SettingError, match="forms for 2 annotators, and 3 are named"):
        run("annotate", "init", tmp_path / "study", "--audit", audit, "--annotators", "ann,bob,cyd")
    with pytest.raises(SettingError, match="a project of families has no responses"):
        run("annotate", "init", tmp_path / "study", audit, "--audit", audit, "--annotators", "ann,bob")
    with pytest.raises(SettingError, match="name the responses"):
        run("annotate", "init", tmp_path / "study")
