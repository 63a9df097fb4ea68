"""Labels made elsewhere are read in whatever form people have them, and what cannot be read is told all at once."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from eclose.errors import SettingError, UserError
from eclose.files.jsonl import encode_json_line, write_records
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Criterion, LocalFailure, StepJudgment
from eclose.values.response import Response, ResponseSource, Trace
from eclose_annotate.adjudication import LabelOrigin
from eclose_annotate.annotations import AnnotationSet
from eclose_annotate.choices import LabelExportFormat
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.material_store import AnnotationMaterial
from eclose_annotate.results.import_labels import NOT_LABELLED, read_label_files, read_run_material
from tests.results.records import L1, SOUND, annotation, grouped, screening
from tests.results.test_export_files import ANNOTATED, ROWS, SCREENED, write

RUN = AnnotationMaterial(
    {"q1": Instance("q1", "Who?", (Passage("p", "T", "t"),), "Ann", benchmark="B")},
    {"r1": Response("r1", "q1", Trace.of("a"), "Ann", ResponseSource("m"))},
)


def table(path, *rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def objects(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(response="r1", annotator="A1", **more):
    return {"response_id": response, "question_id": "q1", "annotator": annotator,
            **dict.fromkeys(("locally_sound", "aligned", "closed", "complete", "correct"), "yes"), **more}  # fmt: skip


def test_a_table_is_read_and_settled(tmp_path):
    path = table(
        tmp_path / "l.csv", row(benchmark="B", model="m", seed="7"), row(annotator="A2", benchmark="B", model="m")
    )
    (response,) = read_label_files([path]).annotations.responses
    assert (response.kind, response.required, response.final.origin) == (
        AnnotationTaskKind.SHORT,
        2,
        LabelOrigin.AGREED,
    )
    assert (response.question_id, response.benchmark, response.source) == ("q1", "B", ResponseSource("m", None, 7))
    assert response.final.judgment.verdict.reliable is True


@pytest.mark.parametrize("yes,no", [("yes", "no"), ("TRUE", "False"), ("1", "0"), (" y ", "n"), ("1.0", "0.0")])
def test_labels_are_written_in_many_ways(tmp_path, yes, no):
    path = table(tmp_path / "l.csv", row(aligned=yes, closed=no))
    (response,) = read_label_files([path]).annotations.responses
    assert (response.judgments[0].aligned, response.judgments[0].closed) == (True, False)


@pytest.mark.parametrize("yes,no", [(True, False), (1, 0), (1.0, 0.0), ("yes", "no")])
def test_letters_and_json_values_are_read(tmp_path, yes, no):
    labels = {"L": yes, "A": no, "C": yes, "K": None, "Acc": no}
    path = objects(tmp_path / "l.jsonl", {"response_id": "r", "question_id": "q", "annotator": 7, **labels})
    (response,) = read_label_files([path]).annotations.responses
    verdict = response.judgments[0].verdict
    assert (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct) == (
        True, False, True, None, False,
    )  # fmt: skip
    assert response.judgments[0].unjudged == {Criterion.COMPLETENESS: NOT_LABELLED}
    assert response.annotations[0].annotator == "7"


def test_soundness_that_was_not_judged_is_unknown_and_not_true(tmp_path):
    path = table(tmp_path / "l.csv", row(locally_sound=""))
    (response,) = read_label_files([path]).annotations.responses
    assert (response.judgments[0].locally_sound, response.judgments[0].steps) == (None, ())
    assert response.final.judgment.verdict.reliable is None


def test_columns_may_have_other_names(tmp_path):
    path = table(tmp_path / "l.csv", {"id": "r", "q": "q", "who": "x", "on_target": "no"})
    names = {"response_id": "id", "question_id": "q", "annotator": "who", "aligned": "on_target"}
    (response,) = read_label_files([path], columns=names).annotations.responses
    assert (response.response_id, response.judgments[0].aligned, response.judgments[0].closed) == ("r", False, None)
    with pytest.raises(SettingError, match="unknown name targeted"):
        read_label_files([path], columns={"targeted": "x"})


def test_a_run_knows_the_question_and_where_it_comes_from(tmp_path):
    fields = row()
    del fields["question_id"]
    path = table(tmp_path / "l.csv", fields)
    (response,) = read_label_files([path], run=RUN).annotations.responses
    assert (response.question_id, response.benchmark, response.source) == ("q1", "B", ResponseSource("m"))
    with pytest.raises(UserError, match=r"l\.csv row 2: question_id: is empty; add the column, or name the run"):
        read_label_files([path])
    other = table(tmp_path / "o.csv", row("r9"), row(question_id="q7"))
    with pytest.raises(UserError, match=r"row 2: 'r9' is not a response of the run; .* row 3: 'r1' answers 'q1'"):
        read_label_files([other], run=RUN)


def test_a_run_with_two_questions_or_responses_under_one_id_is_refused(tmp_path):
    question, response = RUN.instances["q1"], RUN.responses["r1"]
    write_records(tmp_path / "responses.jsonl", [response, replace(response, answer="another")])
    write_records(tmp_path / "instances.jsonl", [question])
    with pytest.raises(UserError, match=r"responses\.jsonl line 2: the id 'r1' is another response's in line 1"):
        read_run_material(tmp_path)
    write_records(tmp_path / "responses.jsonl", [response])
    write_records(tmp_path / "instances.jsonl", [question, replace(question, question="Another?")])
    with pytest.raises(UserError, match=r"instances\.jsonl line 2: the id 'q1' is another question's in line 1"):
        read_run_material(tmp_path)


def test_people_who_are_missing_leave_a_response_open(tmp_path):
    path = table(tmp_path / "l.csv", row(), row(annotator="A2"), row("r2"))
    assert [response.open_reason for response in read_label_files([path]).annotations.responses] == [
        None,
        "1 of 2 have finished",
    ]
    first, other = read_label_files([path], per_response=1).annotations.responses
    assert (first.final.origin, other.final.origin) == (LabelOrigin.AGREED, LabelOrigin.SINGLE)
    assert (first.required, other.required) == (2, 1)
    assert read_label_files([path], per_response=3).annotations.responses[0].open_reason == "2 of 3 have finished"


def test_an_adjudicator_settles(tmp_path):
    path = table(
        tmp_path / "l.csv",
        row(adjudicates=""),
        row(annotator="A2", closed="no"),
        row(annotator="A7", adjudicates="yes"),
    )
    (response,) = read_label_files([path]).annotations.responses
    assert (response.required, response.final.origin, response.adjudication.annotator) == (
        2,
        LabelOrigin.ADJUDICATED,
        "A7",
    )


def test_one_file_for_each_person(tmp_path):
    paths = [table(tmp_path / f"{who}.csv", row(annotator=who)) for who in ("A1", "A2")]
    assert read_label_files(paths).annotations.responses[0].final.origin is LabelOrigin.AGREED


def test_everything_wrong_is_told_at_once_with_file_and_row(tmp_path):
    first = table(tmp_path / "a.csv", row(aligned="maybe"), row(""), row("r5", adjudicates="perhaps"), row("r6"))
    rows = row("r6"), row("r6", "A2", question_id="q2"), {"response_id": "r", "annotator": "x"}, row("r8", seed="x")
    second = objects(tmp_path / "b.jsonl", *rows)
    with second.open("a") as file:
        file.write("{broken\n")
    with pytest.raises(UserError) as refused:
        read_label_files([first, second])
    for part in (
        "a.csv row 2: aligned: 'maybe' is not a label",
        "a.csv row 3: response_id: is empty",
        "a.csv row 4: adjudicates: 'perhaps'",
        "b.jsonl line 1: 'r6' was labelled by A1 before",
        "b.jsonl line 2: 'r6' has another question",
        "b.jsonl line 3: has no label",
        "b.jsonl line 4: seed: 'x' is not a number",
        "b.jsonl line 5: ",
    ):
        assert part in str(refused.value)


def test_only_so_many_problems_are_told(tmp_path):
    path = table(tmp_path / "a.csv", *(row(f"r{n}", aligned=f"?{n}") for n in range(25)))
    with pytest.raises(UserError, match="and 5 more"):
        read_label_files([path])


def test_nothing_to_read_is_said(tmp_path):
    with pytest.raises(UserError, match="holds no labels"):
        read_label_files([table(tmp_path / "a.csv", {"response_id": ""})])


# Our own files.


@pytest.fixture
def exported(tmp_path):
    write(tmp_path / "out")
    return tmp_path / "out"


def test_an_export_comes_back_to_the_byte(exported, tmp_path):
    back = read_label_files([exported / "annotations.jsonl", exported / "screening-annotations.jsonl"])
    assert back.annotations == ANNOTATED
    write(tmp_path / "again", back.annotations)
    for path in exported.iterdir():
        if path.name != "manifest.json":
            assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_flat_tables_come_back_with_their_labels(tmp_path, ending):
    odd = [annotation("=r", "@A1", benchmark="-b"), annotation("=r", "@A2", labels="1011", benchmark="-b")]
    there = AnnotationSet(grouped(*ROWS, *odd), ANNOTATED.questions)
    write(tmp_path / "out", there, formats=[LabelExportFormat(ending)])
    names = ("annotations", "screening-annotations")
    back = read_label_files([tmp_path / "out" / f"{name}.{ending}" for name in names]).annotations
    assert back.questions == there.questions
    for copy, other in zip(back.responses, there.responses, strict=True):
        assert (copy.response_id, copy.question_id, copy.benchmark, copy.source, copy.required, copy.open_reason) == (
            other.response_id, other.question_id, other.benchmark, other.source, other.required, other.open_reason,
        )  # fmt: skip
        assert [judgment.verdict for judgment in copy.judgments] == [judgment.verdict for judgment in other.judgments]
        assert (copy.adjudication is None) == (other.adjudication is None)


def screening_row(**more):
    return {"question_id": "q", "annotator": "S1", "eligible": "yes", "code": "", **more}


def test_screening_may_be_made_elsewhere(tmp_path):
    path = table(tmp_path / "s.csv", screening_row(), screening_row(annotator="S2", eligible="no", code="N3"),
                 screening_row(question_id="q2"))  # fmt: skip
    first, other = read_label_files([path]).annotations.questions
    assert ([row.code for row in first.screenings], first.open_reason) == ([None, "N3"], "waits for adjudication")
    assert other.open_reason == "1 of 2 have finished"


@pytest.mark.parametrize(
    "more,problem",
    [
        ({"eligible": "no"}, "eligible: must be yes without a code, or no with a code"),
        ({"eligible": ""}, "eligible: must be yes"),
        ({"code": "N1"}, "eligible: must be yes"),
        ({"eligible": "no", "code": "N9"}, "code: 'N9' is not one of N1"),
        ({"annotator": ""}, "annotator: is empty"),
        ({"question_id": ""}, "question_id: is empty"),
        ({"eligible": "maybe"}, "eligible: 'maybe' is not a label"),
    ],
)
def test_a_screening_that_cannot_be_is_refused(tmp_path, more, problem):
    with pytest.raises(UserError) as refused:
        read_label_files([table(tmp_path / "s.csv", screening_row(**more))])
    assert problem in str(refused.value)


def damaged(one, **changes):
    return json.loads(encode_json_line(one)) | changes


@pytest.mark.parametrize(
    "rows,problem",
    [
        ([damaged(ROWS[0], annotator="A9")], "holds the labels of 'A1' for 'r1', but is the row of 'A9'"),
        ([damaged(ROWS[0], response_id="r9")], "holds the labels of 'A1' for 'r1'"),
        ([damaged(ROWS[0], annotator=None)], "an annotator without labels"),
        (
            [damaged(annotation("r", "A1", [StepJudgment(True, True, LocalFailure("L1"))]))],
            "for a step that is not unsound",
        ),
        ([damaged(ROWS[0], more=1)], "more: no such field"),
        ([damaged(ROWS[0]), damaged(ROWS[1], asked=3)], "another question, form or number of people"),
        (
            [damaged(annotation("r", "A1")), damaged(annotation("r", "A2", [SOUND, L1]))],
            "'r' has 2 steps here, and 1 in",
        ),
        ([damaged(SCREENED[0]), damaged(SCREENED[0])], "labelled by S1 before"),
        ([damaged(screening("q", "S1"), question_id="q7")], "holds the labels of 'S1' for 'q'"),
        (
            [damaged(ROWS[4]), damaged(annotation("r2", "A8", [SOUND, SOUND], adjudicates=True))],
            "by an adjudicator before",
        ),
    ],
)
def test_a_damaged_export_is_refused(tmp_path, rows, problem):
    with pytest.raises(UserError) as refused:
        read_label_files([objects(tmp_path / "annotations.jsonl", *rows)])
    assert problem in str(refused.value)


def test_a_run_s_folder_is_read_whole(tmp_path):
    write_records(tmp_path / "instances.jsonl", RUN.instances.values())
    write_records(tmp_path / "responses.jsonl", RUN.responses.values())
    assert read_run_material(tmp_path) == RUN
    write_records(tmp_path / "instances.jsonl", [])
    with pytest.raises(UserError, match="the questions of response 'r1' and 0 more are missing"):
        read_run_material(tmp_path)


def test_a_mapped_column_that_no_file_has_is_refused_with_the_columns_there(tmp_path):
    path = table(tmp_path / "l.csv", row(on_target="no"))
    with pytest.raises(SettingError, match=r"--column correct=corect: no file has a column 'corect'") as refused:
        read_label_files([path], columns={"correct": "corect"})
    assert "Columns: response_id, question_id, annotator, locally_sound" in str(refused.value)
    # Of two files one may lack it.
    other = table(tmp_path / "o.csv", {**row("r2"), "answer_correct": "no"})
    labels = read_label_files([path, other], columns={"correct": "answer_correct"}).annotations.responses
    assert [response.judgments[0].correct for response in labels] == [True, False]


def test_a_label_that_no_row_has_is_told_with_the_columns_that_were_not_used(tmp_path):
    """Two people who differed in ``on_target`` alone were imported as agreed."""
    path = tmp_path / "labels.csv"
    path.write_text("response_id,question_id,annotator,L,C,K,Acc,on_target\nr,q,Ann,1,1,1,1,1\nr,q,Ben,1,1,1,1,0\n")
    assert read_label_files([path]).notice == (
        "No row has a label for aligned. Columns not used: on_target; name a column with --column aligned=COLUMN."
    )
    assert read_label_files([path], columns={"aligned": "on_target"}).notice is None


def test_a_mapped_column_of_a_table_without_rows_is_there(tmp_path):
    empty = tmp_path / "e.csv"
    empty.write_text("response_id,annotator,corr\n")
    with pytest.raises(UserError, match="holds no labels"):
        read_label_files([empty], columns={"correct": "corr"})


def test_a_workbook_is_to_be_saved_as_csv(tmp_path):
    path = tmp_path / "labels.xlsx"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(UserError, match=r"labels\.xlsx: is a workbook\. Save the sheet as CSV UTF-8"):
        read_label_files([path])


def test_a_missing_column_is_reported_once_for_all_rows(tmp_path):
    rows = [row(f"r{number}") for number in range(100)]
    for cells in rows:
        del cells["annotator"]
    path = table(tmp_path / "l.csv", *rows)
    with pytest.raises(UserError) as refused:
        read_label_files([path])
    message = str(refused.value)
    assert message.count("annotator'") == 1, message
    assert "l.csv row 2 and 99 more rows: there is no column 'annotator'" in message
    assert "--column annotator=COLUMN" in message
    assert "--annotator NAME" in message
    assert "and 80 more" not in message


def test_a_row_that_was_left_empty_is_skipped_and_counted(tmp_path):
    """A sheet with one criterion has rows where the person was unsure."""
    path = tmp_path / "l.csv"
    path.write_text("item,question_id,Closed?\nr1,q1,y\nr2,q2,\nr3,q3,n\n")
    labels = read_label_files([path], columns={"response_id": "item", "C": "Closed?"}, annotator="mia")
    assert [row.response_id for row in labels.annotations.responses] == ["r1", "r3"]
    assert labels.skipped == 1


@pytest.mark.parametrize("cells", ["r2,q,y", "r2,q,y,n,y", "r2,q,a, b,n"])
def test_a_row_with_cells_too_few_or_too_many_is_refused(tmp_path, cells):
    path = tmp_path / "l.csv"
    path.write_text(f"response_id,question_id,aligned,closed\nr1,q,y,n\n{cells}\n")
    with pytest.raises(UserError, match=r"l\.csv row 3: has \d cells, and the header 4"):
        read_label_files([path], annotator="mia")
    path.write_text("response_id,question_id,aligned,closed\nr1,q,y,n,,\n")
    assert len(read_label_files([path], annotator="mia").annotations.responses) == 1


def test_problems_that_rows_share_are_reported_once_and_others_by_row(tmp_path):
    path = table(
        tmp_path / "l.csv", *(row(f"r{number}", closed="?") for number in range(40)), row("r77", aligned="perhaps")
    )
    with pytest.raises(UserError) as refused:
        read_label_files([path])
    assert str(refused.value).count("closed: '?'") == 1
    assert "l.csv row 2 and 39 more rows: closed: '?' is not a label" in str(refused.value)
    assert "l.csv row 42: aligned: 'perhaps' is not a label" in str(refused.value)


def test_an_annotator_may_be_named_for_files_without_the_column(tmp_path):
    cells = row()
    del cells["annotator"]
    lead, team = table(tmp_path / "lead.csv", cells), table(tmp_path / "team.csv", row(annotator="A2"))
    (response,) = read_label_files([lead, team], annotator="lead").annotations.responses
    assert sorted(str(annotation.annotator) for annotation in response.annotations) == ["A2", "lead"]
    # An empty cell of a column stays a problem of its row: the name is for files without the column.
    gap = table(tmp_path / "gap.csv", row("r2", annotator=""))
    with pytest.raises(UserError, match=r"gap\.csv row 2: annotator: is empty"):
        read_label_files([lead, gap], annotator="lead")
    with pytest.raises(SettingError, match="--annotator lead: every row names its annotator"):
        read_label_files([team], annotator="lead")
