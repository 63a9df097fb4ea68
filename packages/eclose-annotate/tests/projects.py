"""A small project out of the world, and people who fill in forms."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain

from sqlalchemy import text

from eclose_annotate import queues, submissions
from eclose_annotate.choices import ScreeningMode
from eclose_annotate.family_audit.material import AUDIT_MARKS
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.labelling import undo
from eclose_annotate.material_store import add_questions, add_responses
from eclose_annotate.people import people
from eclose_annotate.people.people import AnnotatorPool, Person, PersonRole
from eclose_annotate.project import AnnotationProject, AnnotationProjectSettings, create_annotation_project
from eclose_annotate.tasks import assign_questions_to_screeners, assign_responses_to_annotators
from eclose_world.demo import make_demo_cases

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)


def material(questions=4):
    """Instances and responses: two systems answer each question."""
    cases = list(make_demo_cases(questions))
    return [pair[0].instance for pair in cases], [case.response for case in chain.from_iterable(cases)]


def make_project(
    folder,
    *,
    questions=4,
    annotators=("ann", "bob", "cyd", "dan"),
    adjudicators=("eve",),
    screeners=(),
    database=None,
    kind=AnnotationTaskKind.RESPONSE,
    per_response=2,
    **settings,
) -> AnnotationProject:
    # Most tests are not about screening and begin to annotate at once.
    settings.setdefault("screening", ScreeningMode.ADVISORY)
    project = create_annotation_project(folder, AnnotationProjectSettings("study", **settings), database)
    instances, responses = material(questions)
    with project.writing() as connection:
        add_questions(connection, instances)
        add_responses(connection, responses)
        join(connection, "lead", PersonRole.LEAD)
        working = [join(connection, name, PersonRole.ANNOTATOR) for name in annotators]
        for name in adjudicators:
            join(connection, name, PersonRole.ADJUDICATOR)
        if annotators:
            assign_responses_to_annotators(connection, working, project.settings, per_response=per_response, kind=kind)
        if screeners:
            screening = [join(connection, name, PersonRole.SCREENER) for name in screeners]
            join(connection, "sol", PersonRole.ADJUDICATOR, AnnotatorPool.QUESTIONS)
            assign_questions_to_screeners(connection, screening, project.settings)
    return project


def join(connection, name, role, pool=None) -> Person:
    return people.add_person(connection, name, role, pool, "no password", NOW)


def who(project, name) -> Person:
    with project.reading() as connection:
        person = people.find_person(connection, name)
    assert person is not None
    return person


def next_sheet(project, person) -> submissions.TaskPageContent | None:
    with project.writing() as connection:
        task = queues.take_next_task(connection, person)
        return None if task is None else submissions.open_task_page(connection, project, person, task)


YES = {
    "S": {"eligible": "yes"},
    "A": {"substantive": "yes", "sound": "yes"},
    "B": {"aligned": "yes", "locally_sound": "yes"},
    "C": {"closed": "yes"},
    "D": {"correct": "yes", "complete": "yes"},
    "F": {name: "yes" for names in AUDIT_MARKS.values() for name in names},
}


def filled(sheet, **other):
    """Yes to all that is asked, but for some fields of every entry."""
    names = {field.name for field in sheet.form.fields}
    entry = {name: value for name, value in {**YES[sheet.form.name], **other}.items() if name in names}
    return tuple(dict(entry) for _ in range(sheet.steps or 1))


def submit(project, person, sheet, entries=None) -> submissions.PassSubmissionResult:
    form_entries = filled(sheet) if entries is None else entries
    return submissions.submit_pass_and_commit(project, person, sheet.task, sheet.form.name, form_entries, sheet.key)


def choose_key(project, task, name, key) -> str:
    """Let the server have opened a pass with this key, as its page would carry it; return the key."""
    with project.writing() as connection:
        passes = connection.execute(_PASSES, {"task": task, "name": name}).scalar_one_or_none()
        if passes is not None and name and name in passes:
            values = {"task": task, "number": passes.index(name) + 1, "key": key}
            submissions.issue_pass_key(connection, task, values["number"])
            connection.execute(_CHOOSE, values)
    return key


# Of a submitted pass, the key stays.
_PASSES = text(
    "SELECT passes FROM annotate_tasks WHERE id = :task"
    " AND NOT EXISTS (SELECT 1 FROM annotate_submissions WHERE task = :task AND pass = :name)"
)
_CHOOSE = text("UPDATE annotate_openings SET key = :key WHERE task = :task AND number = :number")


def work_off(project, person, **other) -> int:
    """Finish all tasks of a person; how many passes that were."""
    passes = 0
    while (sheet := next_sheet(project, person)) is not None:
        outcome = submit(project, person, sheet, filled(sheet, **other))
        assert outcome.receipt is not None, outcome
        passes += 1
    return passes


def undo_last(project, name, entries) -> submissions.PassSubmissionResult:
    """Undo the last pass of a person, and submit it with other entries."""
    person = who(project, name)
    with project.writing() as connection:
        reopening = undo.undo_last_pass(connection, person, *undo.find_undoable_pass(connection, person))
        return undo.submit_pass_amendment(connection, project, person, reopening, entries)
