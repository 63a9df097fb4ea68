"""Changes of people in a running project: release a case, hand over tasks, add people.

A task never changes its person. It is withdrawn, with its drafts and submissions, and the successor gets a task of
their own, so that the work of a leaver is neither shown to others nor lost. Queries about work in progress read the
view ``annotate_current_tasks``, which leaves withdrawn tasks out.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Row, text

from eclose.annotation import audit_log, queues
from eclose.annotation.accounts import people
from eclose.annotation.accounts.people import AnnotatorPool, Person, PersonRole
from eclose.annotation.assignment.assign import AssignmentItem, order_annotator_queue
from eclose.annotation.assignment.choices import CrewRole
from eclose.annotation.create_tasks import describe_system
from eclose.annotation.setup import InvitedPerson
from eclose.core.identity import hash_sort_key
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
    """Tasks that the person had begun; their drafts and submissions are kept apart."""
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
    """Flagged responses that had no adjudicator and are now in the queue of adjudication."""


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
            cases = [taken.case for taken in list_taken_cases(connection) if taken.adjudicator == person]
            for case in cases:
                _release(connection, case, actor, reason)
            result = Reassignment(person, {}, 0, len(cases))
        else:
            result = _reassign(connection, project, leaver, to, actor, reason)
    return result


def add_people(project: AnnotationProject, names: Sequence[str], role: CrewRole | str, *, actor: str) -> AddedPeople:
    """Invite people into a running project; new annotators take over an equal share of the tasks that are not begun.

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
        moves = _plan_shares(connection, project, added_people) if person_role is PersonRole.ANNOTATOR else []
        detail = {"people": {person.name: person.role for person in added_people}, "pool": pool}
        _move_tasks(connection, project, moves, actor, "added people", detail)
        queued = queues.queue_flagged_responses(connection, project) if pool is AnnotatorPool.RESPONSES else 0
    loads = Counter(successor.name for _, successor in moves)
    return AddedPeople(tuple(invitees), {person.name: loads[person.name] for person in added_people}, queued)


@dataclass(frozen=True, slots=True)
class _OpenTask:
    """An unfinished task that may go to another person."""

    row: Row[Any]
    """Columns of annotate_tasks, and "owner"."""
    item: AssignmentItem
    started: bool
    """Whether the person has submitted a pass or saved a draft."""


_Move = tuple[_OpenTask, Person]


class _Crew:
    """The people of one role and pool, with the rules that decide who may get a task."""

    def __init__(self, connection: Connection, role: PersonRole, pool: AnnotatorPool) -> None:
        everyone = [person for person in people.list_people(connection) if (person.role, person.pool) == (role, pool)]
        self.people = {person.id: person for person in everyone}
        values = {"role": role, "pool": pool}
        self.open: defaultdict[int, list[_OpenTask]] = defaultdict(list)
        for row in connection.execute(_OPEN_TASKS, values):
            self.open[row.person].append(_open_task(row))
        self.loads = Counter({number: len(self.open[number]) for number in self.people})
        self.systems = Counter((number, task.item.system) for number, tasks in self.open.items() for task in tasks)
        # Pairs of person and subject, and of person and question that the person may not meet again.
        self.subjects, self.questions = set[tuple[int, str]](), set[tuple[int, int]]()
        for row in connection.execute(_MET, values):
            if row.withdrawn is None:
                self.subjects.add((row.person, row.subject))
            if row.apart is not None:
                self.questions.add((row.person, row.apart))

    def allows(self, task: _OpenTask, person: Person) -> bool:
        """Return whether a person may get a task: another subject, and another question where these are kept apart."""
        row = task.row
        return (person.id, row.subject) not in self.subjects and (person.id, row.apart) not in self.questions

    def move(self, task: _OpenTask, person: Person) -> None:
        """Count a task for its new person."""
        row = task.row
        for counts, number in ((-1, row.person), (1, person.id)):
            self.loads[number] += counts
            self.systems[number, task.item.system] += counts
        self.subjects ^= {(row.person, row.subject), (person.id, row.subject)}
        if row.apart is not None:
            self.questions.add((person.id, row.apart))
            # A person who has begun a task has seen its question.
            if not task.started:
                self.questions.discard((row.person, row.apart))


def _reassign(
    connection: Connection,
    project: AnnotationProject,
    leaver: Person,
    to: Sequence[str] | None,
    actor: str,
    reason: str,
) -> Reassignment:
    crew = _Crew(connection, leaver.role, leaver.pool)
    successors = _find_successors(connection, crew, leaver, to)
    moves: list[_Move] = []
    stuck = 0
    for task in crew.open[leaver.id]:
        allowed = [person for person in successors if crew.allows(task, person)]
        if not allowed:
            stuck += 1
            continue
        # The person with the fewest open tasks, then with the fewest of this system.
        chosen = min(allowed, key=lambda person: _burden(crew, task, person, project.settings.seed))
        crew.move(task, chosen)
        moves.append((task, chosen))
    if stuck:
        raise UserError(
            f"{stuck:,} of {len(moves) + stuck:,} tasks of {leaver.name} fit none of the others, who have the same"
            " question or response already. Add people first: eclose annotate add-people FOLDER NAMES --role"
            f" {leaver.role}, then reassign with --to NAMES."
        )
    _move_tasks(connection, project, moves, actor, "reassigned", {"person": leaver.name, "reason": reason})
    started = sum(task.started for task, _ in moves)
    return Reassignment(leaver.name, dict(Counter(person.name for _, person in moves)), started)


def _burden(crew: _Crew, task: _OpenTask, person: Person, seed: int) -> tuple[int, int, str]:
    tie = hash_sort_key("successor", seed, task.row.subject, person.name)
    return crew.loads[person.id], crew.systems[person.id, task.item.system], tie


def _find_successors(connection: Connection, crew: _Crew, leaver: Person, to: Sequence[str] | None) -> list[Person]:
    if to is None:
        return [person for person in crew.people.values() if person.active and person.id != leaver.id]
    successors = [_find_person(connection, name) for name in dict.fromkeys(to)]
    for person in successors:
        if person.id not in crew.people or person.id == leaver.id or not person.active:
            raise UserError(
                f"{person.name}: cannot take over from {leaver.name}. Name active people who are {leaver.role} of"
                f" {leaver.pool} as well."
            )
    return successors


def _plan_shares(connection: Connection, project: AnnotationProject, newcomers: Sequence[Person]) -> list[_Move]:
    """Plan which tasks that are not begun go to new annotators, until loads are equal or no more tasks fit."""
    crew = _Crew(connection, newcomers[0].role, newcomers[0].pool)
    seed = project.settings.seed
    given = {
        number: sorted(
            (task for task in tasks if not task.started),
            key=lambda task: hash_sort_key("share", seed, task.row.subject, task.row.owner),
        )
        for number, tasks in crew.open.items()
    }
    moves: list[_Move] = []
    waiting = list(newcomers)
    while waiting:
        newcomer = min(waiting, key=lambda person: (crew.loads[person.id], hash_sort_key("share", seed, person.name)))
        task = _choose_share(crew, given, newcomer)
        if task is None:
            waiting.remove(newcomer)
            continue
        given[task.row.person].remove(task)
        crew.move(task, newcomer)
        moves.append((task, newcomer))
    return moves


def _choose_share(crew: _Crew, given: Mapping[int, Sequence[_OpenTask]], newcomer: Person) -> _OpenTask | None:
    """Return a task for a newcomer: of an inactive person, else of the one with the most; None where none is due."""
    owners = sorted(given, key=lambda number: (crew.people[number].active, -crew.loads[number], number))
    for number in owners:
        due = not crew.people[number].active or crew.loads[number] - crew.loads[newcomer.id] > 1
        allowed = [task for task in given[number] if crew.allows(task, newcomer)] if due else []
        if allowed:
            return min(allowed, key=lambda task: crew.systems[newcomer.id, task.item.system])
    return None


def _move_tasks(
    connection: Connection,
    project: AnnotationProject,
    moves: Sequence[_Move],
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
        # Its question may be given to the person again where the task was not begun.
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
    """Give the unfinished tasks of a person places without gaps: those that are begun, then the others at random."""
    # The order depends on person and question alone, so tasks that were there before keep their order.
    tasks = [_open_task(row) for row in connection.execute(_OPEN_TASKS_OF, {"person": person})]
    begun = [task.row.id for task in tasks if task.started]
    by_key = {task.item.id: task.row.id for task in tasks if not task.started}
    items = [task.item for task in tasks if not task.started]
    name = tasks[0].row.owner if tasks else ""
    order = [*begun, *(by_key[item.id] for item in order_annotator_queue(items, name, seed=seed))]
    done = queues.count_finished_tasks(connection, person)
    # First out of the way, since no two tasks of a person have the same place.
    connection.execute(_SHIFT, {"person": person, "done": done, "by": queues.FREE_PLACE})
    if order:
        places = [{"task": task, "place": done + number} for number, task in enumerate(order, start=1)]
        connection.execute(_SET_PLACE, places)


def _open_task(row: Row[Any]) -> _OpenTask:
    key = json.loads(row.key)
    item = AssignmentItem(str(key), str(json.loads(row.question_key)), describe_system(row.origin or "{}"))
    return _OpenTask(row, item, bool(row.started))


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
