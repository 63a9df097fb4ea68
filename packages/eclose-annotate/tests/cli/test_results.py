"""``eclose annotate agree``, ``export`` and ``import`` as a lead meets them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from eclose.cli.main import app as whole
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records, write_records
from eclose.files.manifest import hash_files
from eclose.files.step import companion_file_path
from eclose.prompts.judge_questions import CRITERION_QUESTIONS
from eclose.values.judgment import Judgment, QuestionScreening
from eclose.values.response import Response
from eclose_annotate.cli import results
from eclose_annotate.project import open_annotation_project
from tests.results.studies import study

runner = CliRunner()
app = typer.Typer(rich_markup_mode=None)
app.command()(results.agree)
app.command()(results.export)
app.command(name="import")(results.import_labels)


def run(*arguments, of=app):
    result = runner.invoke(of, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def lines(output):
    return [" ".join(line.split()) for line in output.splitlines()]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("projects") / "study"
    study(folder).close()
    return folder


@pytest.fixture(scope="module")
def exported(project, tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "out"
    run("export", project, "--out", out)
    return out


@pytest.mark.slow
def test_agreement_is_told_in_tables_that_name_nobody(project):
    output = run("agree", project)
    report = lines(output)
    assert report[0].startswith("Agreement on eligibility before adjudication: 4 of 4 questions")
    assert any(line.startswith("Closure C 5 ") for line in report)
    assert any("undefined, unanimous" in line for line in report)
    assert "nan" not in output.lower().split()
    assert not {"ann", "bob", "cyd", "dan", "eve"} & set(output.split())


@pytest.mark.slow
def test_a_project_and_its_export_give_the_same_report(project, exported):
    of_project = json.loads(run("agree", project, "--json"))
    assert json.loads(run("agree", exported, "--json")) == of_project
    of_file = json.loads(run("agree", exported / "annotations.jsonl", "--json"))
    assert of_file == {name: of_project[name] for name in ("settings", "responses")}


@pytest.mark.parametrize(
    ("name", "part"), [("a.json", '"alpha"'), ("a.md", "| Alignment A |"), ("a.tex", "\\begin{table}")]
)
def test_the_report_is_written_in_the_form_its_name_asks_for(exported, tmp_path, name, part):
    assert f"{tmp_path / name}: written" in run("agree", exported, "--out", tmp_path / name)
    assert part in (tmp_path / name).read_text()


def test_another_ending_is_refused(exported, tmp_path):
    with pytest.raises(SettingError, match=r"end in \.json, \.md or \.tex"):
        run("agree", exported, "--out", tmp_path / "a.doc")


def test_a_folder_without_a_project_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no project"):
        run("agree", tmp_path)


def test_an_export_says_what_is_settled_and_what_is_open(project, tmp_path):
    report = lines(run("export", project, "--out", tmp_path / "out"))
    assert report[0] == "8 responses = 5 settled, 3 open (1 of 2 have finished: 3)"
    assert report[1] == "4 questions = 4 settled"
    assert "nothing to do" in run("export", project, "--out", tmp_path / "out")


@pytest.mark.slow
def test_every_new_export_is_in_the_log_once(tmp_path):
    study(tmp_path / "study").close()

    def logged():
        opened = open_annotation_project(tmp_path / "study")
        with opened.reading() as connection:
            rows = connection.exec_driver_sql("SELECT detail FROM annotate_events WHERE action = 'exported'").all()
        opened.close()
        return [json.loads(row.detail) for row in rows]

    run("export", tmp_path / "study", "--out", tmp_path / "out", "--names")
    run("export", tmp_path / "study", "--out", tmp_path / "out", "--names")
    (entry,) = logged()
    assert entry["names"] is True
    assert "labels.jsonl" in entry["files"]


@pytest.mark.slow
def test_labels_go_to_metrics_diagnose_and_validate_as_they_are(exported, tmp_path):
    assert "5 responses to" in run("metrics", exported / "verdicts.jsonl", of=whole)
    run("report", exported, "--out", tmp_path / "report", "--format", "markdown", of=whole)
    assert (tmp_path / "report" / "report.md").is_file()
    judged = tmp_path / "judged"
    write_records(judged / "judgments.jsonl", read_records(exported / "judgments.jsonl", Judgment))
    inputs = [judged / "instances.jsonl", judged / "responses.jsonl"]
    for path in inputs:
        path.write_bytes((exported / path.name).read_bytes())
    guidelines = dict.fromkeys(map(str, CRITERION_QUESTIONS.values()), "sha256:0")
    counts = {"received": 5, "accepted": 5}
    manifest = {
        "stage": "judge",
        "settings": {"guidelines": guidelines},
        "inputs": hash_files(inputs),
        "outputs": hash_files([judged / "judgments.jsonl"]),
        "counts": counts,
    }
    companion_file_path(judged / "judgments.jsonl", "manifest.json").write_text(json.dumps(manifest))
    output = run("judge", "validate", judged, "--verdicts", exported / "verdicts.jsonl", of=whole)
    assert "people: 5 of 5 responses are labelled" in output


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["people", "panel"])
def test_labels_of_people_are_not_called_a_judge(project, tmp_path, judge):
    out = tmp_path / "out"
    run("export", project, "--out", out, "--judge", judge)
    report = lines(run("diagnose", out, of=whole))
    assert any(line.startswith("rate settled by people n") for line in report)
    assert any(line.startswith("The labels were settled by people.") for line in report)
    texts = {name: (out / "report" / name).read_text() for name in ("report.md", "report.html", "tables.tex")}
    texts["terminal"] = "\n".join(report)
    gated = CliRunner().invoke(whole, ["gate", str(out), "--min-trr", "0.5", "--comment", str(tmp_path / "comment.md")])
    texts["gate"], texts["comment"] = gated.output, (tmp_path / "comment.md").read_text()
    for name, written in texts.items():
        text = " ".join(written.replace("\xa0", " ").replace("&#39;", "'").split())
        assert "ettled by people" in text, name
        for wrong in (
            "has not been validated",
            "to the judge",
            "abel a hundred",
            "not validated",
            "judge's own",
            "The judge ",
        ):
            assert wrong not in text.split("<script")[0], (name, wrong)
    assert json.loads((out / "report" / "diagnosis.json").read_text())["settled_by_people"] is True


def test_a_run_of_people_and_a_judge_is_reported_as_before(exported, tmp_path):
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name in ("instances.jsonl", "responses.jsonl"):
        (mixed / name).write_bytes((exported / name).read_bytes())
    first, *others = read_records(exported / "judgments.jsonl", Judgment)
    write_records(mixed / "judgments.jsonl", [replace(first, judge="model"), *others])
    output = run("diagnose", mixed, of=whole)
    assert "to the judge" in output
    assert "has not been validated against people" in output


def test_screening_goes_to_intersect_as_it_is(exported, tmp_path):
    # Each model's responses are a run; of the four questions the screeners kept all in the end.
    runs = []
    for model in {record.source.model for record in read_records(exported / "responses.jsonl", Response)}:
        runs.append(tmp_path / f"run{len(runs)}.jsonl")
        own = [
            record for record in read_records(exported / "responses.jsonl", Response) if record.source.model == model
        ]
        write_records(runs[-1], own)
    pool = tmp_path / "pool.jsonl"
    run("data", "intersect", *runs, "--eligible", exported / "screening.jsonl", "--out", pool, of=whole)
    pool_ids = {json.loads(line)["id"] for line in pool.read_text().splitlines()}
    screened = {
        record.id for record in read_records(exported / "screening.jsonl", QuestionScreening) if record.eligible
    }
    assert pool_ids
    assert pool_ids <= screened


def test_an_export_comes_back_as_it_was(exported, tmp_path):
    files = [exported / name for name in ("annotations.jsonl", "screening-annotations.jsonl")]
    run("import", *files, "--run", exported, "--out", tmp_path / "again")
    # Times belong to the pages of a project, and imported labels have none.
    names = {path.name for path in exported.iterdir()} - {"times.jsonl"}
    assert names == {path.name for path in (tmp_path / "again").iterdir()}
    for name in names - {"manifest.json"}:
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes()


def test_labels_of_a_spreadsheet_are_taken_in(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(
        "id,question_id,annotator,L,on_target,C,K,Acc\nr1,q1,A1,1,0,1,1,1\nr1,q1,A2,1,0,1,1,1\nr2,q1,A1,1,1,1,1,1\n"
    )
    names = ("--column", "response_id=id", "--column", "aligned=on_target")
    report = lines(run("import", path, "--out", tmp_path / "out", *names, "--format", "jsonl", "--format", "csv"))
    assert report[0] == "2 responses = 1 settled, 1 open (1 of 2 have finished: 1)"
    (label,) = map(json.loads, (tmp_path / "out" / "labels.jsonl").read_text().splitlines())
    assert (label["response_id"], label["labels"]["A"], label["origin"]) == ("r1", False, "agreed")
    assert (tmp_path / "out" / "labels.csv").is_file()
    assert report[-1] == f"{tmp_path / 'out'}: {len(list((tmp_path / 'out').iterdir()))} files"
    with pytest.raises(SettingError, match="--column aligned: write"):
        run("import", path, "--out", tmp_path / "other", "--column", "aligned")
