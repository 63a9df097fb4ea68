"""A person who leaves is replaced: cases and tasks go to others, the rules hold, and nothing is lost."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest
from sqlalchemy import text

from eclose.errors import SettingError, UserError
from eclose_annotate import queues, submissions
from eclose_annotate.people import people
from eclose_annotate.people.people import PersonRole
from eclose_annotate.read import read_annotations
from eclose_annotate.setup import issue_or_renew_invitation
from eclose_annotate.staffing import reassign_tasks
from tests.calls.ledger.postgres import DATABASES, fresh_database
from tests.projects import filled, make_project, next_sheet, submit, who, work_off

WHY = {"actor": "lead", "reason": "left"}
SIX = ("ann", "bob", "cyd", "dan", "eda", "fay")


@pytest.fixture(params=DATABASES)
def database(request):
    return None if request.param == "sqlite" else fresh_database()


def tasks(project, *, everyone=False):
    """Return the tasks in force, by name."""
    where = "" if everyone else " WHERE t.withdrawn IS NULL"
    statement = text(
        "SELECT p.name, t.* FROM annotate_tasks t JOIN annotate_people p ON p.id = t.person"
        f"{where} ORDER BY p.name, t.place"
    )
    with project.reading() as connection:
        rows = connection.execute(statement).all()
    queues_by_name = defaultdict(list)
    for row in rows:
        queues_by_name[row.name].append(row)
    return queues_by_name


def check_rules(project, per_response=2):
    """Check the rules of assignment, and that places have no gaps."""
    by_name = tasks(project)
    groups = defaultdict(set)
    for name, rows in by_name.items():
        assert [row.place for row in rows] == list(range(1, len(rows) + 1))
        assert len({row.question for row in rows}) == len(rows), f"{name} meets a question twice"
        for row in rows:
            groups[row.subject].add(name)
    assert {len(names) for names in groups.values()} == {per_response}
    return {name: len(rows) for name, rows in by_name.items()}


def events(project, action):
    with project.reading() as connection:
        rows = connection.execute(text("SELECT actor, detail FROM annotate_events WHERE action = :a"), {"a": action})
        return [(actor, json.loads(detail)) for actor, detail in rows]


def disputed_study(folder, **settings):
    project = make_project(folder, annotators=("ann", "bob", "cyd", "dan"), adjudicators=("eve", "eli"), **settings)
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), closed="no")
    return project


@pytest.mark.slow
def test_a_released_case_goes_back_to_the_queue(tmp_path, database):
    project = disputed_study(tmp_path / "study", database=database)
    eve, eli = who(project, "eve"), who(project, "eli")
    sheet = next_sheet(project, eve)
    submit(project, eve, sheet)
    with project.writing() as connection:
        people.deactivate_person(connection, eve.id)
    work_off(project, eli)
    with project.reading() as connection:
        assert [response.open_reason for response in read_annotations(connection).responses].count(
            "waits for adjudication"
        ) == 1
    assert reassign_tasks(project, "eve", **WHY).released == 1
    with project.reading() as connection:
        assert submissions.open_task_page(connection, project, eve, sheet.task) is None
    assert work_off(project, eli) == 4
    with project.reading() as connection:
        annotations = read_annotations(connection, names=True)
    assert all(response.final is not None for response in annotations.responses)
    # The pass that eve had submitted is kept, and settles nothing.
    assert [(row.annotator, row.adjudicates, row.pass_name, row.submitted) for row in annotations.set_aside] == [
        ("eve", True, "A", True)
    ]
    ((actor, detail),) = events(project, "released")
    assert (actor, detail["reason"]) == ("lead", "left")
    assert reassign_tasks(project, "eve", **WHY).released == 0
    project.close()


@pytest.mark.slow
def test_an_adjudicator_who_gets_a_released_case_again_continues_it(tmp_path):
    project = disputed_study(tmp_path / "study")
    eve = who(project, "eve")
    submit(project, eve, next_sheet(project, eve))
    assert reassign_tasks(project, "eve", **WHY).released == 1
    with project.reading() as connection:
        waiting = queues.count_awaiting_adjudication(connection, eve)
    # Four passes of each case, but for the one that she had submitted.
    assert work_off(project, eve) == 4 * waiting - 1
    with project.reading() as connection:
        annotations = read_annotations(connection)
    assert (all(response.final is not None for response in annotations.responses), annotations.set_aside) == (True, ())
    project.close()


@pytest.mark.slow
def test_a_leaver_s_tasks_go_to_the_others(tmp_path, database):
    project = make_project(tmp_path / "study", questions=12, annotators=SIX, database=database)
    ann = who(project, "ann")
    for _ in range(5):
        submit(project, ann, next_sheet(project, ann))
    sheet = next_sheet(project, ann)
    assert sheet.form.name == "B"
    with project.writing() as connection:
        assert submissions.save_pass_draft(connection, ann, sheet.task, "B", filled(sheet, aligned="no"))
    before = check_rules(project)
    result = reassign_tasks(project, "ann", **WHY)
    loads = check_rules(project)
    # One task is finished; the begun one counts among those that were handed over.
    assert (loads.pop("ann"), result.total, result.started) == (1, before["ann"] - 1, 1)
    assert max(loads.values()) - min(loads.values()) <= 1
    assert Counter({name: loads[name] - before[name] for name in loads}) == Counter(result.tasks)
    with project.reading() as connection:
        assert queues.find_next_task(connection, ann.id) is None
        drafts = [(row.annotator, row.pass_name, row.submitted) for row in read_annotations(connection).set_aside]
    assert drafts == [("A1", "A", True), ("A1", "B", False)]
    # The successor of the begun task sees no entry of the leaver.
    ((actor, detail),) = events(project, "reassigned")
    assert (actor, detail["person"], detail["reason"], len(detail["tasks"])) == ("lead", "ann", "left", result.total)
    successor = detail["tasks"][sheet.task]
    person = who(project, successor["to"])
    while (page := next_sheet(project, person)).task != successor["task"]:
        submit(project, person, page)
    assert (page.form.name, page.draft) == ("A", ())
    for name in SIX:
        work_off(project, who(project, name))
    with project.reading() as connection:
        assert all(response.final is not None for response in read_annotations(connection).responses)
    project.close()


def test_tasks_that_fit_none_are_named_and_nothing_changes(tmp_path):
    # Two responses to each question take all four annotators, so none of the others can take a task over.
    project = make_project(tmp_path / "study", questions=4)
    before = tasks(project, everyone=True)
    with pytest.raises(UserError, match=r"4 of 4 tasks of ann fit none of the others.*--new NAME"):
        reassign_tasks(project, "ann", **WHY)
    assert tasks(project, everyone=True) == before
    result = reassign_tasks(project, "ann", new=["zoe"], **WHY)
    assert (result.tasks, [each.person.role for each in result.invitees]) == ({"zoe": 4}, [PersonRole.ANNOTATOR])
    loads = check_rules(project)
    assert ("ann" in loads, loads["zoe"]) == (False, 4)
    project.close()


def test_new_people_and_named_colleagues_share_the_tasks_of_a_leaver(tmp_path):
    project = make_project(tmp_path / "study", questions=21, annotators=SIX)
    before = check_rules(project)
    result = reassign_tasks(project, "ann", to=["bob"], new=["zoe", "yan"], **WHY)
    loads = check_rules(project)
    assert (set(result.tasks) <= {"bob", "zoe", "yan"}, result.total) == (True, before["ann"])
    # The newcomers have nothing yet, so they get all of it, and as many tasks of each system.
    assert {loads["zoe"], loads["yan"], loads["bob"] - before["bob"]} == {before["ann"] // 2, 0}
    with project.reading() as connection:
        origins = connection.execute(
            text(
                "SELECT o.origin FROM annotate_tasks t JOIN annotate_response_origins o ON o.response = t.response"
                " JOIN annotate_people p ON p.id = t.person WHERE p.name = 'zoe'"
            )
        )
        systems = Counter(json.loads(origin)["model"] for origin in origins.scalars())
    assert max(systems.values()) - min(systems.values()) <= 1
    project.close()


def test_a_task_comes_back_to_the_person_who_had_it(tmp_path):
    project = make_project(tmp_path / "study", annotators=("ann", "bob", "cyd"), per_response=1)
    before = {row.subject: row.id for row in tasks(project)["ann"]}
    reassign_tasks(project, "ann", **WHY)
    assert "ann" not in check_rules(project, 1)
    subjects = {row.subject for row in tasks(project)["bob"]}
    reassign_tasks(project, "bob", to=["ann"], **WHY)
    after = {row.subject: row.id for row in tasks(project)["ann"]}
    assert set(after) == subjects
    returned = subjects & set(before)
    assert {after[subject] for subject in returned} == {before[subject] for subject in returned} != set()
    check_rules(project, 1)
    project.close()


def test_a_person_who_began_a_task_does_not_get_its_question_again(tmp_path):
    project = make_project(tmp_path / "study", questions=1, annotators=("ann", "bob", "cyd"), per_response=1)
    name = next(name for name in ("ann", "bob", "cyd") if tasks(project)[name])
    other = next(each for each in ("ann", "bob", "cyd") if each != name and tasks(project)[each])
    person = who(project, name)
    sheet = next_sheet(project, person)
    with project.writing() as connection:
        submissions.save_pass_draft(connection, person, sheet.task, "A", filled(sheet))
    reassign_tasks(project, name, **WHY)
    with pytest.raises(UserError, match="fit none of the others"):
        reassign_tasks(project, other, to=[name], **WHY)
    project.close()


@pytest.mark.parametrize(
    "person, to, message",
    [
        ("nemo", None, "nemo: is not in the project"),
        ("lead", None, "is a lead"),
        ("ann", ["eve"], "eve: cannot take over from ann"),
        ("ann", ["sue"], "sue: cannot take over from ann"),
        ("ann", ["ann"], "ann: cannot take over from ann"),
    ],
)
def test_pools_stay_apart(tmp_path, person, to, message):
    project = make_project(tmp_path / "study", screeners=("sue", "sam"))
    with pytest.raises(UserError, match=message):
        reassign_tasks(project, person, to=to, **WHY)
    with pytest.raises(SettingError, match="--reason: is empty"):
        reassign_tasks(project, "ann", actor="lead", reason=" ")
    with pytest.raises(UserError, match="name ann: is taken"):
        reassign_tasks(project, "bob", new=["zoe", "ann"], **WHY)
    with project.reading() as connection:
        assert people.find_person(connection, "zoe") is None
    project.close()


def test_a_screener_is_replaced_by_a_new_one(tmp_path):
    project = make_project(tmp_path / "study", annotators=(), screeners=("sue", "sam"))
    sue = who(project, "sue")
    submit(project, sue, next_sheet(project, sue))
    assert reassign_tasks(project, "sue", new=["sid"], **WHY).tasks == {"sid": 3}
    for name in ("sam", "sid"):
        work_off(project, who(project, name))
    with project.reading() as connection:
        assert all(question.final is not None for question in read_annotations(connection).questions)
    project.close()


def test_flags_of_single_annotators_reach_an_adjudicator_who_joins_later(tmp_path):
    project = make_project(tmp_path / "study", annotators=("ann", "bob"), adjudicators=(), per_response=1, questions=2)
    for name in ("ann", "bob"):
        work_off(project, who(project, name), correct="no" if name == "ann" else "yes")
    with project.reading() as connection:
        assert len(queues.find_flagged_responses(connection)) == 2
        assert {response.open_reason for response in read_annotations(connection).responses} == {None}
    with project.writing() as connection:
        issue_or_renew_invitation(connection, project, "eve", "adjudicator")
    with project.reading() as connection:
        assert queues.find_flagged_responses(connection) == []
        assert [response.open_reason for response in read_annotations(connection).responses].count(
            "waits for adjudication"
        ) == 2
    work_off(project, who(project, "eve"))
    with project.reading() as connection:
        assert Counter(response.final.origin for response in read_annotations(connection).responses) == {
            "single": 2, "adjudicated": 2,
        }  # fmt: skip
    project.close()
