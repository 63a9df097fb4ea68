"""An export is whole, is what other commands read, and is never written over."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace

import pytest

from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records
from eclose.files.manifest import hash_file, read_manifest
from eclose.readers.judged_run import read_judged_cases
from eclose.values.judgment import Judgment, QuestionScreening
from eclose.values.response import ResponseSource
from eclose.values.verdict import SettledVerdict
from eclose_annotate.annotations import Annotation, AnnotationSet, PassTime
from eclose_annotate.choices import LabelExportFormat
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.material_store import read_stored_material
from eclose_annotate.read import read_annotations
from eclose_annotate.results.export_files import export_annotations
from eclose_annotate.results.flat_tables import LABEL_COLUMNS
from tests.results.records import L1, SOUND, annotation, grouped, grouped_questions, screening
from tests.results.studies import study

ROWS = (
    annotation("r1", "A1"), annotation("r1", "A2"),
    annotation("r2", "A1", [L1, SOUND]), annotation("r2", "A2", [SOUND, SOUND], "1011"),
    annotation("r2", "A7", [SOUND, SOUND], "1011", adjudicates=True, reference_seen_before=True),
    annotation("r3", "A1"), annotation("r3", "A2", labels="0111"), annotation("r4", "A1"),
    Annotation("r5", "q5", AnnotationTaskKind.RESPONSE, 2),
)  # fmt: skip
SCREENED = (screening("q1", "S1"), screening("q1", "S2"), screening("q2", "S1", "N1"), screening("q2", "S2"))
ANNOTATED = AnnotationSet(grouped(*ROWS), grouped_questions(SCREENED))
OPEN = {"waits for adjudication": 1, "1 of 2 have finished": 1, "no annotator has finished": 1}


def write(out, found=ANNOTATED, **settings):
    return export_annotations(found, out, stage="annotate export", settings={}, **settings)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "deep" / "out"


def test_what_holds_is_written_as_judgments_verdicts_and_labels(out):
    write(out, judge="panel")
    judgments = list(read_records(out / "judgments.jsonl", Judgment))
    assert [(judgment.response_id, judgment.judge) for judgment in judgments] == [("r1", "panel"), ("r2", "panel")]
    verdicts = list(read_records(out / "verdicts.jsonl", SettledVerdict))
    assert [verdict.verdict for verdict in verdicts] == [judgment.verdict for judgment in judgments]
    assert (verdicts[0].instance_id, verdicts[0].benchmark, verdicts[0].source) == (
        "q of r1",
        "B",
        ResponseSource("m", "SFT", 7),
    )
    first, second = lines(out / "labels.jsonl")
    assert (first["origin"], first["annotators"]) == ("agreed", ["A1", "A2"])
    assert (second["origin"], second["adjudicator"], second["triggers"]) == (
        "adjudicated",
        "A7",
        ["soundness", "closure"],
    )
    assert second["labels"] == {"L": True, "A": True, "C": False, "K": True, "Acc": True}
    assert (second["derived"]["in_gap"], second["derived"]["failure_class"]) == (True, "answer_decoupling")
    assert second["changed"] == {"L": [False, True], "C": [True, False]}
    assert second["reference_seen_before"] is True


def test_what_does_not_hold_is_listed_and_counts_add_up(out):
    result = write(out)
    rows = lines(out / "open.jsonl")
    assert [(row.get("response_id"), row["reason"]) for row in rows] == [
        ("r3", "waits for adjudication"), ("r4", "1 of 2 have finished"), ("r5", "no annotator has finished"),
        (None, "waits for adjudication"),
    ]  # fmt: skip
    counts = result.manifest.counts
    assert (counts.received, counts.accepted, counts.rejected) == (5, 2, OPEN)
    assert result.manifest.funnel["questions"].accepted == 1


def test_everybody_s_own_word_is_there(out):
    write(out)
    assert len(lines(out / "annotations.jsonl")) == len(ROWS)
    assert lines(out / "annotations.jsonl")[-1] == {
        "response_id": "r5",
        "question_id": "q5",
        "kind": "response",
        "asked": 2,
    }
    assert len(lines(out / "screening-annotations.jsonl")) == 4


def test_times_of_passes_are_there_with_a_mark_on_fast_ones(out):
    opened, submitted = "2026-03-01T08:00:00.000+00:00", "2026-03-01T08:00:01.500+00:00"
    times = (PassTime("q1", "r1", "A1", False, "B", opened, submitted, 1.5, 1, True),)
    write(out, ANNOTATED._replace(times=times))
    assert tuple(read_records(out / "times.jsonl", PassTime)) == times


def test_screening_is_in_the_layout_of_screen(out):
    write(out)
    (record,) = read_records(out / "screening.jsonl", QuestionScreening)
    assert record == QuestionScreening("q1", "people", True)


def test_the_manifest_names_every_file_by_its_hash(out):
    write(out)
    manifest = read_manifest(out / "manifest.json")
    files = {path.name: hash_file(path) for path in out.iterdir() if path.name != "manifest.json"}
    assert manifest.outputs == files
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_the_same_again_is_nothing_to_do_and_others_are_refused(out):
    assert not write(out).again
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert write(out).again
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
    with pytest.raises(UserError, match="other labels"):
        write(out, AnnotationSet(grouped(*ROWS[:2])))
    with pytest.raises(UserError, match="labels or formats"):
        write(out, formats=[LabelExportFormat.CSV])
    (out / "labels.jsonl").write_text("changed")
    with pytest.raises(UserError, match=r"labels\.jsonl was changed"):
        write(out)
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_folder_of_somebody_else_s_is_left_alone(out):
    out.mkdir(parents=True)
    write(out)
    for path in out.iterdir():
        path.unlink()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds no export"):
        write(out)
    assert (out / "notes.txt").read_text() == "mine"
    with pytest.raises(SettingError, match="is a file"):
        write(out / "notes.txt")


def test_after_an_error_there_is_nothing(out, monkeypatch):
    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eclose_annotate.results.export_files._write_tables", broken)
    with pytest.raises(UserError, match="No space left"):
        write(out)
    assert list(out.parent.iterdir()) == []


def test_nothing_given_out_is_nothing_to_export(out):
    with pytest.raises(UserError, match="nothing to export"):
        write(out, AnnotationSet())


HOSTILE = ["=HYPERLINK(1)", "+x", "-x", "@x", "\tx", "\rx", "\nx", "＝x", "＋x", "－x", "＠x", "  =x"]


def test_no_cell_of_a_table_is_a_formula(out):
    rows = [annotation(text, who, question=text, benchmark=text, source=ResponseSource(text, text, -1))
            for text in HOSTILE for who in ("=A1", "@A2")]  # fmt: skip
    screens = [screening(text, who, benchmark=text) for text in HOSTILE for who in ("=S1", "@S2")]
    write(out, AnnotationSet(grouped(*rows), grouped_questions(screens)), formats=[LabelExportFormat.CSV])
    names = {path.stem for path in out.glob("*.csv")}
    assert names == {"labels", "annotations", "steps", "screening", "screening-annotations"}
    for path in out.glob("*.csv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = list(csv.DictReader(file))
        assert reader
        for row in reader:
            for name, cell in row.items():
                assert name == "seed" or not cell.lstrip(" ").startswith(
                    ("=", "+", "-", "@", "\t", "\r", "\n", *"＝＋－＠")
                )
            assert row.get("seed", "-1") == "-1"


def test_tables_tell_labels_and_steps(out):
    second = replace(ROWS[1], judgment=replace(ROWS[1].judgment, closed=False))
    write(out, AnnotationSet(grouped(ROWS[0], second, *ROWS[2:])), formats=[LabelExportFormat.CSV])
    with (out / "annotations.csv").open(encoding="utf-8-sig") as file:
        reader = list(csv.DictReader(file))
    assert [row["closed"] for row in reader if row["response_id"] == "r1"] == ["yes", "no"]
    assert (reader[-1]["response_id"], reader[-1]["annotator"], reader[-1]["closed"]) == ("r5", "", "")
    with (out / "steps.csv").open(encoding="utf-8-sig") as file:
        steps = list(csv.DictReader(file))
    assert ("r2", "A1", "1", "no", "L1") in {
        (row["response_id"], row["annotator"], row["step"], row["sound"], row["failure"]) for row in steps
    }


def test_parquet_tells_what_the_tables_tell(out, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write(out, formats=[LabelExportFormat.PARQUET])
    labels = parquet.read_table(out / "labels.parquet").to_pylist()
    assert [(row["response_id"], *(row[name] for name in LABEL_COLUMNS)) for row in labels] == [
        ("r1", True, True, True, True, True), ("r2", True, True, False, True, True),
    ]  # fmt: skip
    assert labels[0]["seed"] == 7
    annotations = parquet.read_table(out / "annotations.parquet").to_pylist()
    assert len(annotations) == len(ROWS)
    assert annotations[-1]["annotator"] is None
    write(tmp_path / "again", formats=[LabelExportFormat.PARQUET])
    assert read_manifest(out / "manifest.json").outputs == read_manifest(tmp_path / "again" / "manifest.json").outputs


def test_parquet_without_its_library_says_what_to_install(out, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"eclose\[parquet\]"):
        write(out, formats=[LabelExportFormat.PARQUET])
    assert not out.exists()


@pytest.mark.slow
def test_the_export_of_a_project_is_a_run_that_diagnose_reads(out, tmp_path):
    project = study(tmp_path / "study")
    with project.reading() as connection:
        write(out, read_annotations(connection), material=read_stored_material(connection))
    project.close()
    read_records = read_judged_cases(out)
    cases, left_out = read_records.cases, read_records.left_out
    assert (read_records.checked, read_records.stale) == (True, ())
    settled = lines(out / "labels.jsonl")
    assert [case.response.id for case in cases] == [row["response_id"] for row in settled]
    assert {reason for _, reason in left_out} == {"it was not judged"}
    assert len(left_out) == len([line for line in lines(out / "open.jsonl") if "response_id" in line])
    for case, row in zip(cases, settled, strict=True):
        assert case.verdict.closed is row["labels"]["C"]
