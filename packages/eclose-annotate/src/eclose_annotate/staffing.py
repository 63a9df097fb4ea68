"""Replacing a person who leaves a running project: colleagues, or new people, take over the unfinished tasks.

A task never changes its person. It is withdrawn, with its drafts and submissions, and the successor gets a task of
their own, so that the work of a leaver is neither shown to others nor lost. Queries about work in progress read the
view ``annotate_current_tasks``, which leaves withdrawn tasks out. The rules of the first assignment hold: no person
gets a subject twice, nor a question twice unless they are shared.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Row, text

from eclose.errors import SettingError, UserError
from eclose.values.identity import hash_sort_key
from eclose_annotate import events, queues
from eclose_annotate.assignment.assign import AssignmentItem, order_annotator_queue
from eclose_annotate.material_store import describe_system
from eclose_annotate.people import people
from eclose_annotate.people.people import Person, PersonRole
from eclose_annotate.setup import InvitedPerson, add_invited_person, queue_for_new_adjudicator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from eclose_annotate.project import AnnotationProject


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Tasks that went from one person to others."""

    person: str
    tasks: Mapping[str, int]
    """Number of tasks by the name of the new person."""
    started: int
    """Tasks that the person had started; their drafts and submissions are kept separately."""
    released: int = 0
    """Cases that went back to the queue of adjudication."""
    invitees: tuple[InvitedPerson, ...] = ()
    """New people, each with the token of their invitation, which is not stored."""

    @property
    def total(self) -> int:
        """Number of tasks handed over."""
        return sum(self.tasks.values())


class _OpenTask(NamedTuple):
    """An unfinished task that may go to another person."""

    row: Row[Any]
    """Columns of annotate_tasks, and "owner"."""
    item: AssignmentItem
    started: bool
    """Whether the person has submitted a pass or saved a draft."""


def reassign_tasks(
    project: AnnotationProject,
    person: str,
    *,
    to: Sequence[str] | None = None,
    new: Sequence[str] = (),
    actor: str,
    reason: str,
) -> Reassignment:
    """Hand all unfinished tasks of a person over to others; release the cases of an adjudicator.

    Args:
        project: The project.
        person: Name of the person who leaves.
        to: Names of the successors; by default the new people, or all others of the same role and pool.
        new: Names of new people, who are invited with the role of the person who leaves and are successors too.
        actor: Name of the person who reassigns, for the audit log.
        reason: Reason, for the audit log.

    Raises:
        UserError: A task fits none of the successors, a new name is taken or not allowed, or there is no reason.
            Nothing is changed then.
    """
    if not reason.strip():
        raise SettingError("--reason: is empty. It is written to the audit log.")
    with project.writing() as connection:
        leaver = _find_person(connection, person)
        if leaver.role is PersonRole.LEAD:
            raise UserError(f"{person}: is a lead, who has no tasks.")
        invitees = tuple(add_invited_person(connection, name, leaver.role, leaver.pool, by=actor) for name in new)
        if leaver.role is PersonRole.ADJUDICATOR:
            cases = [task.row.id for task in _read_open_tasks(connection, leaver.id)]
            for case in cases:
                _withdraw(connection, case, leaver.id, None)
                events.append_audit_event(connection, actor, "released", task=case, detail={"reason": reason})
            _order_queue(connection, leaver.id, 0)
            if invitees:
                queue_for_new_adjudicator(connection, project, invitees[0].person)
            return Reassignment(leaver.name, {}, 0, len(cases), invitees)
        successors = _find_successors(connection, leaver, to, [invitee.person for invitee in invitees])
        moves = _plan_moves(connection, leaver, successors, project.settings.seed)
        detail = {"person": leaver.name, "reason": reason}
        _move_tasks(connection, project.settings.seed, moves, actor, detail)
    tasks = Counter(successor.name for _, successor in moves)
    return Reassignment(leaver.name, dict(tasks), sum(task.started for task, _ in moves), 0, invitees)


def _find_person(connection: Connection, name: str) -> Person:
    person = people.find_person(connection, name)
    if person is None:
        raise UserError(f"{name}: is not in the project. See the names with: eclose annotate status")
    return person


def _find_successors(
    connection: Connection, leaver: Person, to: Sequence[str] | None, new: Sequence[Person]
) -> list[Person]:
    colleagues = {
        person.id: person
        for person in people.list_people(connection)
        if (person.role, person.pool) == (leaver.role, leaver.pool) and person.active and person.id != leaver.id
    }
    if to is None:
        return list(new or colleagues.values())
    successors = [_find_person(connection, name) for name in {name.lower(): name for name in to}.values()]
    for person in successors:
        if person.id not in colleagues:
            raise UserError(
                f"{person.name}: cannot take over from {leaver.name}. Name active people who are {leaver.role} of"
                f" {leaver.pool} as well."
            )
    return [*successors, *new]


def _plan_moves(
    connection: Connection, leaver: Person, successors: Sequence[Person], seed: int
) -> list[tuple[_OpenTask, Person]]:
    """Plan who takes over each open task: the person with the fewest open tasks, then with the fewest of its system."""
    values = {"role": leaver.role, "pool": leaver.pool}
    tasks = [_open_task(row) for row in connection.execute(_OPEN_TASKS, values)]
    loads = Counter(task.row.person for task in tasks)
    systems = Counter((task.row.person, task.item.system) for task in tasks)
    # Pairs of person and subject, and of person and question that the person may not meet again.
    subjects, questions = set[tuple[int, str]](), set[tuple[int, int]]()
    for row in connection.execute(_MET, values):
        if row.withdrawn is None:
            subjects.add((row.person, row.subject))
        if row.apart is not None:
            questions.add((row.person, row.apart))
    moves: list[tuple[_OpenTask, Person]] = []
    leaving = [task for task in tasks if task.row.person == leaver.id]
    for row, item, started in leaving:
        ranked = [
            (
                loads[person.id],
                systems[person.id, item.system],
                hash_sort_key("successor", seed, row.subject, person.name),
                person,
            )
            for person in successors
            if (person.id, row.subject) not in subjects and (person.id, row.apart) not in questions
        ]
        # Otherwise every successor has met this question already.
        if ranked:
            successor = min(ranked, key=lambda entry: entry[:3])[3]
            loads[successor.id] += 1
            systems[successor.id, item.system] += 1
            subjects.add((successor.id, row.subject))
            if row.apart is not None:
                questions.add((successor.id, row.apart))
            moves.append((_OpenTask(row, item, started), successor))
    if stuck := len(leaving) - len(moves):
        raise UserError(
            f"{stuck:,} of {len(leaving):,} tasks of {leaver.name} fit none of the others, who have the same question"
            f" or response already. Invite a new {leaver.role} who takes over, with --new NAME."
        )
    return moves


def _move_tasks(
    connection: Connection, seed: int, moves: Sequence[tuple[_OpenTask, Person]], actor: str, detail: Mapping[str, Any]
) -> None:
    """Withdraw tasks and give new ones to the successors, and record both in one event."""
    # A person who gets a task back continues it, under its old id.
    earlier = {(row.person, row.subject): row.id for row in connection.execute(_WITHDRAWN_TASKS)}
    handed_over = {}
    for task, _ in moves:
        # Its question may be given to the person again where the task was not started.
        _withdraw(connection, task.row.id, task.row.person, task.row.apart if task.started else None)
    for task, successor in moves:
        earlier_task = earlier.get((successor.id, task.row.subject))
        columns = {name: getattr(task.row, name) for name in _COPIED_COLUMNS}
        columns |= {"id": earlier_task or secrets.token_urlsafe(16), "person": successor.id}
        columns |= {"role": successor.role, "pool": successor.pool}
        columns["place"] = queues.last_place(connection, successor.id) + 1
        connection.execute(_GIVE if earlier_task is None else _GIVE_BACK, columns)
        handed_over[task.row.id] = {"task": columns["id"], "to": successor.name}
    for person_id in {task.row.person for task, _ in moves} | {successor.id for _, successor in moves}:
        _order_queue(connection, person_id, seed)
    events.append_audit_event(connection, actor, "reassigned", detail={**detail, "tasks": handed_over})


def _withdraw(connection: Connection, task: str, person: int, apart: int | None) -> None:
    """Take a task away from its person. Withdrawn tasks have negative places, which no queue uses."""
    free = min(0, int(connection.execute(_FIRST_PLACE, {"person": person}).scalar_one())) - 1
    values = {"task": task, "at": events.current_timestamp(), "place": free, "apart": apart}
    connection.execute(_WITHDRAW, values)


def _order_queue(connection: Connection, person: int, seed: int) -> None:
    """Give the unfinished tasks of a person places without gaps: those that are started, then the others at random."""
    # The order depends on person and question alone, so tasks that were there before keep their order.
    tasks = _read_open_tasks(connection, person)
    started = [task.row.id for task in tasks if task.started]
    by_key = {task.item.id: task.row.id for task in tasks if not task.started}
    items = [task.item for task in tasks if not task.started]
    name = tasks[0].row.owner if tasks else ""
    order = [*started, *(by_key[item.id] for item in order_annotator_queue(items, name, seed=seed))]
    finished = queues.count_finished_tasks(connection, person)
    # First out of the way, since no two tasks of a person have the same place.
    connection.execute(_SHIFT, {"person": person, "done": finished, "by": queues.FREE_PLACE})
    if order:
        places = [{"task": task, "place": finished + number} for number, task in enumerate(order, start=1)]
        connection.execute(_SET_PLACE, places)


def _read_open_tasks(connection: Connection, person_id: int) -> list[_OpenTask]:
    """Return the unfinished tasks of a person in the order of the queue."""
    return [_open_task(row) for row in connection.execute(_OPEN_TASKS_OF, {"person": person_id})]


def _open_task(row: Row[Any]) -> _OpenTask:
    key = json.loads(row.key)
    item = AssignmentItem(str(key), str(json.loads(row.question_key)), describe_system(row.origin or "{}"))
    return _OpenTask(row, item, bool(row.started))


# Unfinished tasks with the keys by which queues are ordered. "started" covers submitted passes and drafts.
_OPEN = (
    "SELECT t.id, t.kind, t.subject, t.question, t.response, t.family, t.person, t.apart, t.passes, t.unasked,"
    " p.name AS owner, coalesce(r.key, q.key, f.key) AS key, coalesce(q.key, f.key) AS question_key, o.origin,"
    " (EXISTS (SELECT 1 FROM annotate_submissions s WHERE s.task = t.id)"
    " OR EXISTS (SELECT 1 FROM annotate_drafts d WHERE d.task = t.id)) AS started"
    " FROM annotate_tasks t JOIN annotate_people p ON p.id = t.person"
    " LEFT JOIN annotate_cursors c ON c.person = t.person LEFT JOIN annotate_questions q ON q.id = t.question"
    " LEFT JOIN annotate_responses r ON r.id = t.response LEFT JOIN annotate_families f ON f.id = t.family"
    " LEFT JOIN annotate_response_origins o ON o.response = t.response"
    " WHERE t.withdrawn IS NULL AND t.place > coalesce(c.done, 0)"
)
# Tasks of ineligible questions stay where they are.
_OPEN_TASKS = text(
    f"{_OPEN} AND t.role = :role AND t.pool = :pool AND t.id IN (SELECT id FROM annotate_current_tasks)"
    " ORDER BY t.person, t.place"
)
_OPEN_TASKS_OF = text(f"{_OPEN} AND t.person = :person ORDER BY t.place")
_MET = text("SELECT person, subject, apart, withdrawn FROM annotate_tasks WHERE role = :role AND pool = :pool")
_COPIED_COLUMNS = ("kind", "subject", "question", "response", "family", "apart", "passes", "unasked")
_WITHDRAWN_TASKS = text("SELECT id, person, subject FROM annotate_tasks WHERE withdrawn IS NOT NULL")
_FIRST_PLACE = text("SELECT min(place) FROM annotate_tasks WHERE person = :person")
_WITHDRAW = text("UPDATE annotate_tasks SET withdrawn = :at, place = :place, apart = :apart WHERE id = :task")
_GIVE = text(
    "INSERT INTO annotate_tasks"
    " (id, kind, subject, question, response, family, person, role, pool, place, apart, passes, unasked)"
    " VALUES (:id, :kind, :subject, :question, :response, :family, :person, :role, :pool, :place, :apart, :passes,"
    " :unasked)"
)
_GIVE_BACK = text("UPDATE annotate_tasks SET withdrawn = NULL, place = :place, apart = :apart WHERE id = :id")
_SHIFT = text(
    "UPDATE annotate_tasks SET place = place + :by WHERE person = :person AND place > :done AND withdrawn IS NULL"
)
_SET_PLACE = text("UPDATE annotate_tasks SET place = :place WHERE id = :task")
