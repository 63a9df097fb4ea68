"""Changes of people in a running project: release a case, hand over tasks, add people.

``assignment.handover`` plans who gets which task.

A task never changes its person. It is withdrawn, with its drafts and submissions, and the successor gets a task of
their own, so that the work of a leaver is neither shown to others nor lost. Queries about work in progress read the
view ``annotate_current_tasks``, which leaves withdrawn tasks out.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.annotation import audit_log, queues
from eclose.annotation.accounts import people
from eclose.annotation.accounts.people import AnnotatorPool, Person, PersonRole
from eclose.annotation.assignment.assign import order_annotator_queue
from eclose.annotation.assignment.choices import CrewRole
from eclose.annotation.assignment.handover import (
    PoolWorkload,
    TaskMove,
    plan_equal_shares,
    plan_reassignment,
    read_open_tasks,
)
from eclose.annotation.create_tasks import append_gold_tasks
from eclose.annotation.setup import InvitedPerson
from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from eclose.annotation.project import AnnotationProject


class TakenCase(NamedTuple):
    """A case that an adjudicator has taken and not finished."""

    case: str
    """Id, as ``release_case`` takes it."""
    adjudicator: str
    kind: str
    question: str | None
    """Text of the question; None for a family."""
    taken: str
    """Time at which the adjudicator took it."""
    submitted: int
    """Number of submitted passes."""


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

    @property
    def total(self) -> int:
        """Number of tasks handed over."""
        return sum(self.tasks.values())


@dataclass(frozen=True, slots=True)
class AddedPeople:
    """People who joined, with the tasks they got."""

    invitees: tuple[InvitedPerson, ...]
    """Each with the token of their invitation, which is not stored."""
    tasks: Mapping[str, int]
    """Number of tasks that each new person took over from others; 0 for adjudicators and screeners."""
    queued: int = 0
    """Responses with inconsistent labels that had no adjudicator and are now in the queue of adjudication."""
    gold: int = 0
    """Gold items that each new annotator got."""


def list_taken_cases(connection: Connection) -> tuple[TakenCase, ...]:
    """Return the cases that adjudicators have taken and not finished, oldest first."""
    return tuple(
        TakenCase(
            row.id,
            row.name,
            row.kind,
            None if row.question is None else json.loads(row.question),
            row.taken,
            row.submitted,
        )
        for row in connection.execute(_TAKEN_CASES)
    )


def release_case(project: AnnotationProject, case: str, *, actor: str, reason: str) -> None:
    """Return a taken case to the queue of adjudication.

    Args:
        project: The project.
        case: Id of the case, as ``list_taken_cases`` returns it.
        actor: Name of the person who releases it, for the audit log.
        reason: Reason, for the audit log.

    Raises:
        UserError: The case is unknown, finished or not taken, or there is no reason.
    """
    _check_reason(reason)
    with project.writing() as connection:
        if case not in {taken.case for taken in list_taken_cases(connection)}:
            raise UserError(f"case {case}: is not with an adjudicator. It was finished or released before.")
        _release(connection, case, actor, reason)


def reassign_tasks(
    project: AnnotationProject, person: str, *, to: Sequence[str] | None = None, actor: str, reason: str
) -> Reassignment:
    """Hand all unfinished tasks of a person over to others; release the case of an adjudicator.

    Args:
        project: The project.
        person: Name of the person who leaves.
        to: Names of the successors; all other active people of the same role and pool by default.
        actor: Name of the person who reassigns, for the audit log.
        reason: Reason, for the audit log.

    Raises:
        UserError: A task fits none of the successors, or there is no reason. Nothing is changed then.
    """
    _check_reason(reason)
    with project.writing() as connection:
        leaver = _find_person(connection, person)
        if leaver.role is PersonRole.LEAD:
            raise UserError(f"{person}: is a lead, who has no tasks.")
        if leaver.role is PersonRole.ADJUDICATOR:
            cases = [taken.case for taken in list_taken_cases(connection) if taken.adjudicator == leaver.name]
            for case in cases:
                _release(connection, case, actor, reason)
            result = Reassignment(leaver.name, {}, 0, len(cases))
        else:
            result = _reassign(connection, project, leaver, to, actor, reason)
    return result


def add_people(project: AnnotationProject, names: Sequence[str], role: CrewRole | str, *, actor: str) -> AddedPeople:
    """Invite people into a running project; new annotators take over an equal share of the tasks that are not started.

    Args:
        project: The project.
        names: Names of the new people.
        role: Their role. Screeners get tasks by ``reassign_tasks`` alone, since each screener sees every question.
        actor: Name of the person who adds them, for the audit log.

    Raises:
        UserError: A name is taken or not allowed, or the role does not fit the project.
    """
    if not names or role not in list(CrewRole):
        roles = ", ".join(CrewRole)
        raise SettingError(f"name at least one person, with one of the roles {roles}.")
    now = datetime.now(UTC)
    with project.writing() as connection:
        person_role, pool = _role_and_pool(connection, CrewRole(role))
        invitees = []
        for name in names:
            added = people.add_person(connection, name, person_role, pool, people.NO_PASSWORD, now, by=actor)
            invitees.append(InvitedPerson(added, people.invite_to_reset_password(connection, added, now=now)))
        added_people = [invitee.person for invitee in invitees]
        moves, gold = [], 0
        if person_role is PersonRole.ANNOTATOR:
            moves = plan_equal_shares(connection, added_people, project.settings.seed)
            if pool is AnnotatorPool.RESPONSES:
                gold = append_gold_tasks(connection, added_people, project.settings)
        detail = {"people": {person.name: person.role for person in added_people}, "pool": pool}
        _move_tasks(connection, project, moves, actor, "added people", detail)
        queued = queues.queue_flagged_responses(connection, project) if pool is AnnotatorPool.RESPONSES else 0
    loads = Counter(successor.name for _, successor in moves)
    tasks = {person.name: loads[person.name] for person in added_people}
    return AddedPeople(tuple(invitees), tasks, queued, gold)


def describe_idle_people(added: AddedPeople) -> str:
    """Return that there is nothing to label for new annotators, and what to do; empty where each has a task."""
    idle = [
        invitee.person.name
        for invitee in added.invitees
        if invitee.person.role is PersonRole.ANNOTATOR and not added.tasks[invitee.person.name]
    ]
    if not idle:
        return ""
    beside = " but gold items" if added.gold else ""
    return (
        f"{', '.join(idle)}: there is nothing to label{beside}, all tasks are finished or started. Hand over the"
        " unfinished tasks of a person (eclose annotate reassign FOLDER NAME --to NAMES --reason TEXT), or give more"
        " responses to the new people in a project of their own (eclose annotate init)."
    )


def _reassign(
    connection: Connection,
    project: AnnotationProject,
    leaver: Person,
    to: Sequence[str] | None,
    actor: str,
    reason: str,
) -> Reassignment:
    workload = PoolWorkload(connection, leaver.role, leaver.pool)
    successors = _find_successors(connection, workload, leaver, to)
    moves, stuck = plan_reassignment(workload, leaver, successors, project.settings.seed)
    if stuck:
        raise UserError(
            f"{stuck:,} of {len(moves) + stuck:,} tasks of {leaver.name} fit none of the others, who have the same"
            " question or response already. Add people first: eclose annotate add-people FOLDER NAMES --role"
            f" {leaver.role}, then reassign with --to NAMES."
        )
    _withdraw_gold_tasks(connection, project, leaver, actor)
    _move_tasks(connection, project, moves, actor, "reassigned", {"person": leaver.name, "reason": reason})
    started = sum(task.started for task, _ in moves)
    return Reassignment(leaver.name, dict(Counter(person.name for _, person in moves)), started)


def _find_successors(
    connection: Connection, workload: PoolWorkload, leaver: Person, to: Sequence[str] | None
) -> list[Person]:
    if to is None:
        return [person for person in workload.people.values() if person.active and person.id != leaver.id]
    successors = [_find_person(connection, name) for name in {name.lower(): name for name in to}.values()]
    for person in successors:
        if person.id not in workload.people or person.id == leaver.id or not person.active:
            raise UserError(
                f"{person.name}: cannot take over from {leaver.name}. Name active people who are {leaver.role} of"
                f" {leaver.pool} as well."
            )
    return successors


def _move_tasks(
    connection: Connection,
    project: AnnotationProject,
    moves: Sequence[TaskMove],
    actor: str,
    action: str,
    detail: Mapping[str, Any],
) -> None:
    """Withdraw tasks and give new ones to the successors, and record both in one event."""
    # A person who gets a task back continues it, under its old id.
    earlier = {(row.person, row.subject): row.id for row in connection.execute(_WITHDRAWN_TASKS)}
    ids = [earlier.get((successor.id, task.row.subject)) or secrets.token_urlsafe(16) for task, successor in moves]
    handed_over = {
        task.row.id: {"task": id_, "to": successor.name} for (task, successor), id_ in zip(moves, ids, strict=True)
    }
    for task, _ in moves:
        # Its question may be given to the person again where the task was not started.
        _withdraw(connection, task.row.id, task.row.person, task.row.apart if task.started else None)
    for (task, successor), id_ in zip(moves, ids, strict=True):
        columns = {name: getattr(task.row, name) for name in _COPIED_COLUMNS}
        columns |= {"id": id_, "person": successor.id, "role": successor.role, "pool": successor.pool}
        statement = _GIVE_BACK if (successor.id, task.row.subject) in earlier else _GIVE
        connection.execute(statement, {**columns, "place": queues.last_place(connection, successor.id) + 1})
    for number in {task.row.person for task, _ in moves} | {successor.id for _, successor in moves}:
        _order_queue(connection, number, project.settings.seed)
    rows = {audit_log.AuditedKind.TASKS: [*handed_over, *ids]}
    audit_log.append_audit_event(connection, actor, action, detail={**detail, "tasks": handed_over}, rows=rows)


def _withdraw_gold_tasks(connection: Connection, project: AnnotationProject, leaver: Person, actor: str) -> None:
    """Take the unfinished gold items of a person away. Others have them as well, so they go to no successor."""
    tasks = list(connection.execute(_OPEN_GOLD_TASKS, {"person": leaver.id}))
    for task in tasks:
        _withdraw(connection, task.id, leaver.id, task.apart)
    if tasks:
        _order_queue(connection, leaver.id, project.settings.seed)
        rows = {audit_log.AuditedKind.TASKS: [task.id for task in tasks]}
        audit_log.append_audit_event(connection, actor, "withdrew gold items", rows=rows)


def _release(connection: Connection, case: str, actor: str, reason: str) -> None:
    person = int(connection.execute(_PERSON_OF, {"task": case}).scalar_one())
    _withdraw(connection, case, person, None)
    _order_queue(connection, person, 0)
    rows = {audit_log.AuditedKind.TASKS: [case]}
    audit_log.append_audit_event(connection, actor, "released", task=case, detail={"reason": reason}, rows=rows)


def _withdraw(connection: Connection, task: str, person: int, apart: int | None) -> None:
    """Take a task away from its person. Withdrawn tasks have negative places, which no queue uses."""
    place = min(0, int(connection.execute(_FIRST_PLACE, {"person": person}).scalar_one())) - 1
    values = {"task": task, "at": audit_log.current_timestamp(), "place": place, "apart": apart}
    connection.execute(_WITHDRAW, values)


def _order_queue(connection: Connection, person: int, seed: int) -> None:
    """Give the unfinished tasks of a person places without gaps: those that are started, then the others at random."""
    # The order depends on person and question alone, so tasks that were there before keep their order.
    tasks = read_open_tasks(connection, person)
    started = [task.row.id for task in tasks if task.started]
    by_key = {task.item.id: task.row.id for task in tasks if not task.started}
    items = [task.item for task in tasks if not task.started]
    name = tasks[0].row.owner if tasks else ""
    order = [*started, *(by_key[item.id] for item in order_annotator_queue(items, name, seed=seed))]
    done = queues.count_finished_tasks(connection, person)
    # First out of the way, since no two tasks of a person have the same place.
    connection.execute(_SHIFT, {"person": person, "done": done, "by": queues.FREE_PLACE})
    if order:
        places = [{"task": task, "place": done + number} for number, task in enumerate(order, start=1)]
        connection.execute(_SET_PLACE, places)


def _role_and_pool(connection: Connection, role: CrewRole) -> tuple[PersonRole, AnnotatorPool]:
    """Return role and pool of new people; raise where the project has no such work."""
    pools = set(connection.execute(_POOLS).scalars())
    if role in (CrewRole.SCREENER, CrewRole.SCREENING_ADJUDICATOR):
        pool = AnnotatorPool.QUESTIONS
    else:
        pool = AnnotatorPool.FAMILIES if AnnotatorPool.FAMILIES in pools else AnnotatorPool.RESPONSES
    if pool not in pools:
        raise UserError(f"{role}: the project has no tasks for this role. Assign them with: eclose annotate assign")
    adjudicates = role in (CrewRole.ADJUDICATOR, CrewRole.SCREENING_ADJUDICATOR)
    return PersonRole.ADJUDICATOR if adjudicates else PersonRole(role), pool


def _find_person(connection: Connection, name: str) -> Person:
    person = people.find_person(connection, name)
    if person is None:
        raise UserError(f"{name}: is not in the project. See the names with: eclose annotate status")
    return person


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise SettingError("--reason: is empty. It is written to the audit log.")


_COPIED_COLUMNS = ("kind", "subject", "question", "response", "family", "apart", "passes", "unasked")
_TAKEN_CASES = text(
    "SELECT t.id, p.name, t.kind, q.question,"
    " (SELECT max(e.at) FROM annotate_events e WHERE e.task = t.id AND e.action = 'took') AS taken,"
    " (SELECT count(*) FROM annotate_submissions s WHERE s.task = t.id) AS submitted"
    " FROM annotate_tasks t JOIN annotate_people p ON p.id = t.person"
    " LEFT JOIN annotate_questions q ON q.id = t.question WHERE t.role = 'adjudicator' AND t.withdrawn IS NULL"
    " AND (SELECT count(*) FROM annotate_submissions s WHERE s.task = t.id) < length(t.passes) ORDER BY taken, t.id"
)
_OPEN_GOLD_TASKS = text(
    "SELECT t.id, t.apart FROM annotate_tasks t JOIN annotate_gold g ON g.response = t.response"
    " LEFT JOIN annotate_cursors c ON c.person = t.person"
    " WHERE t.person = :person AND t.withdrawn IS NULL AND t.place > coalesce(c.done, 0)"
)
_WITHDRAWN_TASKS = text("SELECT id, person, subject FROM annotate_tasks WHERE withdrawn IS NOT NULL")
_PERSON_OF = text("SELECT person FROM annotate_tasks WHERE id = :task")
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
_POOLS = text("SELECT DISTINCT pool FROM annotate_tasks")
