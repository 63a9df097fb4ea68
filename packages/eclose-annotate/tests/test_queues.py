"""Whose turn it is, and what goes to adjudication."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text

from eclose_annotate import queues
from eclose_annotate.adjudication import LabelOrigin
from eclose_annotate.annotations import AWAITING_SCREENING
from eclose_annotate.choices import ScreeningMode
from eclose_annotate.material_store import read_stored_material
from eclose_annotate.read import read_annotations
from eclose_annotate.results.agreement_report import agreement_to_json, build_agreement_report
from eclose_annotate.results.export_files import export_annotations
from eclose_annotate.results.export_project import load_annotations
from eclose_annotate.web import dashboard
from tests.calls.ledger.postgres import DATABASES, fresh_database
from tests.projects import filled, make_project, material, next_sheet, submit, undo_last, who, work_off


@pytest.fixture(params=DATABASES)
def project(request, tmp_path):
    project = make_project(
        tmp_path / "study", database=None if request.param == "sqlite" else fresh_database(), screeners=("sue", "sam")
    )
    yield project
    project.close()


def disputes(project):
    with project.reading() as connection:
        rows = connection.execute(text("SELECT subject, triggers FROM annotate_adjudications"))
        return {subject: json.loads(triggers) for subject, triggers in rows}


def labelled(project):
    with project.reading() as connection:
        return read_annotations(connection).responses


@pytest.mark.slow
def test_those_who_agree_need_nobody(project):
    for name in ("ann", "bob", "cyd", "dan"):
        work_off(project, who(project, name))
    assert disputes(project) == {}
    assert {response.final.origin for response in labelled(project)} == {LabelOrigin.AGREED}
    with project.reading() as connection:
        assert queues.read_task_progress(connection, who(project, "eve")).total == 0


@pytest.mark.slow
def test_any_difference_goes_to_adjudication_when_all_have_finished(project):
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    finished = {response.response_id for response in labelled(project) if len(response.annotations) == 2}
    assert disputes(project) == {}
    work_off(project, who(project, "dan"), closed="no")
    disagreements = disputes(project)
    assert set(map(tuple, disagreements.values())) == {("closure",)}
    assert len(disagreements) == 8 - len(finished)
    assert [response.final is None for response in labelled(project)].count(True) == len(disagreements)


@pytest.mark.slow
def test_adjudicator_walks_the_same_passes_and_settles(project):
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), aligned="no")
    eve = who(project, "eve")
    waiting = len(disputes(project))
    with project.reading() as connection:
        assert queues.find_next_task(connection, eve.id) is None
        assert (
            queues.count_awaiting_adjudication(connection, eve)
            == waiting
            == queues.read_task_progress(connection, eve).total
        )
    sheet = next_sheet(project, eve)
    assert (sheet.form.name, sheet.others) == ("A", ())
    assert next_sheet(project, eve).task == sheet.task
    work_off(project, eve, aligned="no")
    settled = [response.final for response in labelled(project)]
    assert [label.origin for label in settled].count(LabelOrigin.ADJUDICATED) == waiting
    assert all(label.judgment.aligned is False for label in settled if label.origin is LabelOrigin.ADJUDICATED)
    assert all(label.triggers == ("alignment",) for label in settled if label.origin is LabelOrigin.ADJUDICATED)
    with project.reading() as connection:
        (row,) = [row for row in dashboard.read_dashboard_queues(connection) if row.kind == "response"]
    assert row == ("response", 8, 8, 0, waiting, 8)


@pytest.mark.slow
def test_questions_not_met_before_come_first_and_a_second_meeting_is_noted(project):
    for name in ("ann", "bob", "cyd", "dan"):
        work_off(project, who(project, name), correct="yes" if name in ("ann", "bob") else "no")
    work_off(project, who(project, "eve"))
    reference_seen_befores = [row.adjudication.reference_seen_before for row in labelled(project) if row.adjudication]
    questions = [row.question_id for row in labelled(project) if row.adjudication]
    assert reference_seen_befores.count(True) == len(questions) - len(set(questions))
    with project.reading() as connection:
        order = connection.execute(text("SELECT detail FROM annotate_events WHERE action = 'took' ORDER BY seq"))
        met = [json.loads(detail)["reference_seen_before"] for detail in order.scalars()]
    assert met == sorted(met)


def test_screening_reason_alone_goes_to_adjudication(project):
    work_off(project, who(project, "sue"), eligible="no", code="N1")
    work_off(project, who(project, "sam"), eligible="no", code="N4")
    assert set(map(tuple, disputes(project).values())) == {("reason",)}
    sol = who(project, "sol")
    sheet = next_sheet(project, sol)
    assert {entries[0]["code"] for entries in sheet.others} == {"N1", "N4"}
    work_off(project, sol, eligible="no", code="N1")
    with project.reading() as connection:
        settled = [question.final for question in read_annotations(connection).questions]
    assert {label.code for label in settled} == {"N1"}
    assert next_sheet(project, who(project, "eve")) is None


@pytest.mark.slow
def test_labels_of_others_are_shown_where_the_project_says_so(tmp_path):
    project = make_project(tmp_path / "study", labels_to_adjudicator=True)
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), aligned="no", closed="no", complete="no", correct="no")
    eve, orders = who(project, "eve"), {}
    while (sheet := next_sheet(project, eve)) is not None:
        names = {field.name for field in sheet.form.fields}
        assert all(set(entry) <= names for form in sheet.others for entry in form)
        if sheet.form.name != "A":
            orders.setdefault(sheet.task, set()).add(tuple("no" in form[0].values() for form in sheet.others))
        submit(project, eve, sheet)
    # "First" is the same person in every pass of a case.
    assert {len(order) for order in orders.values()} == {1}
    assert set().union(*orders.values()) <= {(True, False), (False, True)}
    assert len(orders) == 4
    project.close()


def test_pace_is_known_from_the_second_task_on(project):
    ann = who(project, "ann")
    for finished in range(3):
        with project.reading() as connection:
            progress = queues.read_task_progress(connection, ann)
        assert (progress.finished, progress.total) == (finished, 4)
        assert (progress.seconds_each is None) == (finished < 2)
        while (sheet := next_sheet(project, ann)) and sheet.form.name != "D":
            submit(project, ann, sheet)
        submit(project, ann, sheet, filled(sheet))


@pytest.fixture(params=DATABASES)
def gated(request, tmp_path):
    """A project in which screening decides; sam finds every other question ill-posed."""
    project = make_project(
        tmp_path / "study",
        database=None if request.param == "sqlite" else fresh_database(),
        screeners=("sue", "sam"),
        screening=ScreeningMode.REQUIRED,
    )
    yield project
    project.close()


def progress(project, name):
    with project.reading() as connection:
        person = who(project, name)
        return queues.read_task_progress(connection, person)[:2], queues.count_awaiting_screening(connection, person)


def test_tasks_open_when_their_question_is_settled_as_eligible(gated):
    ann, sue, sam = (who(gated, name) for name in ("ann", "sue", "sam"))
    assert next_sheet(gated, ann) is None
    assert progress(gated, "ann") == ((0, 4), 4)
    work_off(gated, sue)
    assert next_sheet(gated, ann) is None
    eligible_questions = set()
    for number in range(4):
        sheet = next_sheet(gated, sam)
        no = ({"eligible": "no", "code": "N4"},)
        submit(gated, sam, sheet, no if number % 2 else filled(sheet))
        eligible_questions |= set() if number % 2 else {sheet.material.question}
    # The disputed questions wait for the screeners' adjudicator.
    assert progress(gated, "ann") == ((0, 4), 2)
    work_off(gated, who(gated, "sol"), eligible="no", code="N4")
    assert progress(gated, "ann") == ((0, 2), 0)
    questions = set()
    while (sheet := next_sheet(gated, ann)) is not None:
        questions.add(sheet.material.question)
        submit(gated, ann, sheet)
    assert questions == eligible_questions
    assert progress(gated, "ann") == ((2, 2), 0)


@pytest.mark.slow
def test_ineligible_questions_leave_labels_rates_and_queues(gated, tmp_path):
    ineligible = {instance.question for instance in material()[0][:1]}
    for name in ("sue", "sam"):
        person = who(gated, name)
        while (sheet := next_sheet(gated, person)) is not None:
            no = ({"eligible": "no", "code": "N4"},)
            submit(gated, person, sheet, no if sheet.material.question in ineligible else filled(sheet))
    for name in ("ann", "bob", "cyd", "dan"):
        work_off(gated, who(gated, name), closed="no" if name == "dan" else "yes")
    work_off(gated, who(gated, "eve"))
    with gated.reading() as connection:
        annotations = read_annotations(connection)
        rows = {row.kind: row for row in dashboard.read_dashboard_queues(connection)}
    report = agreement_to_json(build_agreement_report(annotations, resamples=100))
    outcomes, counts = report["screening"]["outcomes"], report["responses"]
    assert outcomes["ineligible"] == outcomes["reasons"]["N4"] == 1
    assert outcomes["eligible"] + outcomes["ineligible"] + outcomes["open"] == outcomes["questions"] == 4
    eligible = 2 * outcomes["eligible"]
    assert (counts["responses"], counts["compared"], counts["ineligible"]) == (eligible, eligible, 8 - eligible)
    assert (rows["response"].total, rows["response"].settled) == (eligible, eligible)
    export = export_annotations(
        annotations, tmp_path / "out", stage="annotate export", settings={}, material=_material(gated)
    )
    funnel = export.manifest.funnel["responses"]
    assert (funnel.received, funnel.accepted, dict(funnel.rejected)) == (
        8, eligible, {"ineligible (N4)": 8 - eligible},
    )  # fmt: skip
    lines = {path.name: len(path.read_text().splitlines()) for path in (tmp_path / "out").glob("*.jsonl")}
    assert lines["labels.jsonl"] == lines["judgments.jsonl"] == lines["verdicts.jsonl"] == eligible
    assert (lines["responses.jsonl"], lines["ineligible.jsonl"], lines["open.jsonl"]) == (eligible, 8 - eligible, 0)
    # The export read again gives the same report.
    again = agreement_to_json(build_agreement_report(load_annotations(tmp_path / "out"), resamples=100))
    assert again == report


def _material(project):
    with project.reading() as connection:
        return read_stored_material(connection)


def test_undone_screening_closes_the_question_until_the_adjudicator_has_decided(gated):
    for name in ("sue", "sam"):
        work_off(gated, who(gated, name))
    assert progress(gated, "ann") == ((0, 4), 0)
    undo_last(gated, "sue", ({"eligible": "no", "code": "N2"},))
    with gated.reading() as connection:
        waiting = [response.open_reason for response in read_annotations(connection).responses].count(
            AWAITING_SCREENING
        )
    assert waiting == 2
    work_off(gated, who(gated, "sol"))
    with gated.reading() as connection:
        assert AWAITING_SCREENING not in [response.open_reason for response in read_annotations(connection).responses]


def test_a_begun_task_stays_the_open_one_when_an_earlier_one_opens(gated):
    ann, sue, sam = (who(gated, name) for name in ("ann", "sue", "sam"))
    work_off(gated, sue)
    with gated.reading() as connection:
        first = connection.execute(
            text(
                "SELECT q.question FROM annotate_tasks t JOIN annotate_questions q ON q.id = t.question"
                " WHERE t.person = :person AND t.place = 1"
            ),
            {"person": ann.id},
        ).scalar_one()
    # Sam settles all questions but that of the first task of ann.
    while (sheet := next_sheet(gated, sam)) is not None:
        eligible = sheet.material.question != json.loads(first)
        submit(gated, sam, sheet, filled(sheet) if eligible else ({"eligible": "no", "code": "N1"},))
    begun = next_sheet(gated, ann)
    submit(gated, ann, begun)
    work_off(gated, who(gated, "sol"))
    assert progress(gated, "ann") == ((0, 4), 0)
    assert (next_sheet(gated, ann).task, next_sheet(gated, ann).form.name) == (begun.task, "B")
    assert work_off(gated, ann) == 4 * 4 - 1


def test_flag_of_a_single_annotator_goes_to_the_adjudicator(tmp_path):
    project = make_project(tmp_path / "study", annotators=("ann", "bob"), per_response=1, questions=1)
    for name in ("ann", "bob"):
        work_off(project, who(project, name), correct="no")
    assert set(map(tuple, disputes(project).values())) == {("inconsistent",)}
    assert {row.open_reason for row in labelled(project)} == {"waits for adjudication"}
    work_off(project, who(project, "eve"), correct="no", closed="no")
    assert {(row.final.origin, row.final.judgment.closed) for row in labelled(project)} == {("adjudicated", False)}
    project.close()
