"""``eclose annotate audit`` as whoever leads an audit meets it."""

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import UserError
from eclose.files.jsonl import write_records
from eclose_annotate.family_audit.sample import DEVELOPMENT, TRAINING, read_audit_key
from tests.family_audit.auditing import corpus

runner = CliRunner()
YES = {"gold": ("correct", "supported", "aligned", "closed"), "evidence": ("isolated", "trace_switches",
       "answer_switches"), "question": ("valid", "trace_switches")}  # fmt: skip


def run(*arguments):
    result = runner.invoke(app, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.output


def lines(output):
    return [" ".join(line.split()) for line in output.splitlines()]


@pytest.fixture
def built(tmp_path):
    """A run of construct, as far as an audit looks at it."""
    for split, name in ((TRAINING, "train"), (DEVELOPMENT, "development")):
        families = [record.value for part, record in corpus({"A": (12, 2), "B": (12, 0)}) if part == split]
        write_records(tmp_path / "run" / f"{name}.jsonl", families)
    return tmp_path / "run"


@pytest.fixture
def audit(built, tmp_path):
    run("annotate", "audit", "sample", built, "--out", tmp_path / "audit", "-n", 20)
    return tmp_path / "audit"


def answer(path, to=None, failing=()):
    """Everything yes, as a person would fill it in, but for gold.closed of some."""
    forms = [json.loads(line) for line in path.read_text().splitlines()]
    for form in forms:
        for part, marks in YES.items():
            form[part] = dict.fromkeys(marks, True)
        form["gold"]["closed"] = form["id"] not in failing
    (to or path).write_text("".join(json.dumps(form) + "\n" for form in forms))


def report(folder, *more, endings=("jsonl", "jsonl")):
    forms = (folder / f"forms-{number}.{ending}" for number, ending in enumerate(endings, start=1))
    return run("annotate", "audit", "report", folder, *forms, *more), json.loads(
        (folder / "audit-report.json").read_text()
    )


@pytest.mark.slow
def test_a_sample_says_what_it_drew_and_where_there_was_less(built, tmp_path):
    output = run("annotate", "audit", "sample", built, "--out", tmp_path / "audit", "-n", 20)
    rows = lines(output)
    for row in ("A training 12 9 9", "A development 2 1 1", "B training 12 9 9", "B development 0 1 0"):
        assert row in rows
    assert "B, development: 1 were requested, and there are only 0" in rows
    assert "drawn in total: 19 of 20" in rows
    assert sorted(path.name for path in (tmp_path / "audit").iterdir()) == [
        "audit.json", "audit_family.md", "forms-1.jsonl", "forms-2.jsonl",
    ]  # fmt: skip


@pytest.mark.slow
def test_again_gives_the_same_bytes_and_leaves_forms_alone(built, tmp_path):
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        run("annotate", "audit", "sample", built, "--out", folder, "-n", 10)
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes()
    answer(folders[0] / "forms-1.jsonl")
    filled = (folders[0] / "forms-1.jsonl").read_bytes()
    assert "forms-1.jsonl: exists, left as it is" in run(
        "annotate", "audit", "sample", built, "--out", folders[0], "-n", 10
    )
    assert (folders[0] / "forms-1.jsonl").read_bytes() == filled
    with pytest.raises(UserError, match="another draw"):
        run("annotate", "audit", "sample", built, "--out", folders[0], "-n", 12)


@pytest.mark.slow
def test_a_file_of_families_is_one_stratum_a_dataset(tmp_path):
    run("world", "make", "--families", 5, "--out", tmp_path)
    output = run("annotate", "audit", "sample", tmp_path / "families.jsonl", "--out", tmp_path / "audit", "-n", 4)
    assert any(line.endswith("all 5 4 4") for line in lines(output))


@pytest.mark.slow
def test_all_pass(audit):
    for number in (1, 2):
        answer(audit / f"forms-{number}.jsonl")
    output, summary = report(audit)
    rows = lines(output)
    assert "1 and 2 Family 19 19 100.0 1.000" in rows
    assert any(line.startswith("A 10 100.0 % [72.2, 100.0]") for line in rows)
    assert any(line.startswith("corpus-weighted 19 100.0 % [100.0, 100.0]") for line in rows)
    assert "resampling shows no spread" in output
    assert summary["weighted"]["Family"]["constant"]
    assert not (audit / "disagreements.jsonl").exists()


@pytest.mark.slow
def test_disagreements_go_to_a_third_person_and_come_back(audit):
    key = read_audit_key(audit)
    first, second = key.items[:2]
    answer(audit / "forms-1.jsonl", failing={first.forms[0], second.forms[0]})
    answer(audit / "forms-2.jsonl")
    output, summary = report(audit)
    assert "people disagree on 2 of 19 families; 0 settled" in output
    assert "open: 80.0 to 100.0" in output
    assert summary["datasets"]["A"]["Family"]["value"] is None
    blank = audit / "disagreements.jsonl"
    forms = [json.loads(line) for line in blank.read_text().splitlines()]
    assert {form["id"] for form in forms} == {first.forms[2], second.forms[2]}
    assert all(form["gold"] == dict.fromkeys(YES["gold"]) for form in forms)
    assert first.family_id not in blank.read_text()
    # Filled in where it lies: reporting again must not blank it.
    answer(blank, failing={first.forms[2]})
    filled = blank.read_bytes()
    output, summary = report(audit, "--adjudicated", blank)
    assert blank.read_bytes() == filled
    assert "people disagree on 2 of 19 families; 2 settled" in output
    assert "has answers, left as it is" in output
    assert summary["failing"] == {first.family_id: ["Gold"]}
    assert summary["datasets"]["A"]["Family"]["value"] == 0.9


@pytest.mark.slow
def test_forms_begun_by_a_third_person_stay_though_more_is_disputed(audit):
    first, second = read_audit_key(audit).items[:2]
    answer(audit / "forms-1.jsonl", failing={first.forms[0]})
    answer(audit / "forms-2.jsonl")
    report(audit)
    answer(audit / "disagreements.jsonl")
    answer(audit / "forms-1.jsonl", failing={first.forms[0], second.forms[0]})
    assert "left as it is; it lacks 1 of them" in report(audit)[0]


@pytest.mark.slow
def test_what_was_not_answered_is_named(audit):
    answer(audit / "forms-1.jsonl")
    output, _ = report(audit)
    first = json.loads((audit / "forms-2.jsonl").read_text().splitlines()[0])["id"]
    assert f"annotator 2, blank: {first}" in output
    assert "and 9 more" in output
    assert "answers are missing for 19 families; the rates stay open" in output
    assert "1 and 2 Family 0 0 - -" in lines(output)


@pytest.mark.slow
def test_a_table_filled_in_a_spreadsheet(built, tmp_path):
    folder = tmp_path / "audit"
    run("annotate", "audit", "sample", built, "--out", folder, "-n", 20, "--format", "csv")
    item = read_audit_key(folder).items[0]
    for number in (1, 2):
        path = folder / f"forms-{number}.csv"
        rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"), newline="")))
        for row in rows:
            row |= {f"{part}.{mark}": "yes" for part, marks in YES.items() for mark in marks}
            if row["id"] == item.forms[0]:
                row["question.valid"] = "No"
        text = io.StringIO()
        table = csv.DictWriter(text, list(rows[0]), delimiter=";")
        table.writeheader()
        table.writerows(reversed(rows))
        path.write_text(text.getvalue(), "utf-8")
    _, summary = report(folder, endings=("csv", "csv"))
    assert summary["disputed"] == [item.family_id]
    # The third person gets a table, too.
    assert (folder / "disagreements.csv").read_bytes().startswith(b'\xef\xbb\xbf"id"')
    assert "corpus-weighted" in report(folder, "--resamples", 100, endings=("csv", "csv"))[0]


def test_one_annotator(built, tmp_path):
    run("annotate", "audit", "sample", built, "--out", tmp_path / "a", "-n", 4, "--annotators", 1)
    answer(tmp_path / "a" / "forms-1.jsonl")
    assert "agreement is undefined: there is one annotator" in report(tmp_path / "a", endings=("jsonl",))[0]


@pytest.mark.slow
def test_another_guideline_is_said(audit):
    for number in (1, 2):
        answer(audit / f"forms-{number}.jsonl")
    key = json.loads((audit / "audit.json").read_text())
    (audit / "audit.json").write_text(json.dumps(key | {"guideline": "sha256:0"}))
    assert "the guideline that was handed out is not the one of this version" in report(audit)[0]


def test_the_help_says_which_format_is_for_whom():
    help_text = " ".join(run("annotate", "audit", "sample", "--help").split())
    assert "csv for people who fill in the forms in a spreadsheet" in help_text
    assert "jsonl for a tool of your own" in help_text
