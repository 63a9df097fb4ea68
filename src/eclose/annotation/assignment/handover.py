"""Plans of handing tasks over in a running project: who gets which task. ``staffing`` carries the plans out.

The rules of the first assignment hold: no person gets a subject twice, nor a question twice unless they are shared.
Gold items are left out of all plans, since every annotator has them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Row, text

from eclose.annotation.accounts import people
from eclose.annotation.assignment.assign import AssignmentItem
from eclose.annotation.material_store import describe_system
from eclose.core.identity import hash_sort_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from eclose.annotation.accounts.people import AnnotatorPool, Person, PersonRole


@dataclass(frozen=True, slots=True)
class OpenTask:
    """An unfinished task that may go to another person."""

    row: Row[Any]
    """Columns of annotate_tasks, and "owner"."""
    item: AssignmentItem
    started: bool
    """Whether the person has submitted a pass or saved a draft."""


class TaskMove(NamedTuple):
    """A task and the person who takes it over."""

    task: OpenTask
    successor: Person


def read_open_tasks(connection: Connection, person_id: int) -> list[OpenTask]:
    """Return the unfinished tasks of a person in the order of the queue, gold items included."""
    return [_open_task(row) for row in connection.execute(_OPEN_TASKS_OF, {"person": person_id})]


class PoolWorkload:
    """The people of one role and pool with their open tasks, and the rules that decide who may get a task."""

    def __init__(self, connection: Connection, role: PersonRole, pool: AnnotatorPool) -> None:
        members = (person for person in people.list_people(connection) if (person.role, person.pool) == (role, pool))
        self.people = {person.id: person for person in members}
        values = {"role": role, "pool": pool}
        self.open: defaultdict[int, list[OpenTask]] = defaultdict(list)
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

    def allows(self, task: OpenTask, person: Person) -> bool:
        """Return whether a person may get a task: another subject, and another question unless questions are shared."""
        row = task.row
        return (person.id, row.subject) not in self.subjects and (person.id, row.apart) not in self.questions

    def move(self, task: OpenTask, person: Person) -> None:
        """Count a task for its new person."""
        row = task.row
        for change, number in ((-1, row.person), (1, person.id)):
            self.loads[number] += change
            self.systems[number, task.item.system] += change
        self.subjects ^= {(row.person, row.subject), (person.id, row.subject)}
        if row.apart is not None:
            self.questions.add((person.id, row.apart))
            # A person who has started a task has seen its question.
            if not task.started:
                self.questions.discard((row.person, row.apart))


def plan_reassignment(
    workload: PoolWorkload, leaver: Person, successors: Sequence[Person], seed: int
) -> tuple[list[TaskMove], int]:
    """Plan who takes over the open tasks of a person; return the moves and the number of tasks that fit no successor.

    Each task goes to the person with the fewest open tasks, then to the one with the fewest of the same system.
    """
    moves: list[TaskMove] = []
    stuck = 0
    for task in workload.open[leaver.id]:
        allowed = [person for person in successors if workload.allows(task, person)]
        # Every successor has met this question already.
        if not allowed:
            stuck += 1
            continue
        successor = min(allowed, key=lambda person: _burden(workload, task, person, seed))
        workload.move(task, successor)
        moves.append(TaskMove(task, successor))
    return moves, stuck


def _burden(workload: PoolWorkload, task: OpenTask, person: Person, seed: int) -> tuple[int, int, str]:
    tie = hash_sort_key("successor", seed, task.row.subject, person.name)
    return workload.loads[person.id], workload.systems[person.id, task.item.system], tie


def plan_equal_shares(connection: Connection, newcomers: Sequence[Person], seed: int) -> list[TaskMove]:
    """Plan which tasks that are not started go to new annotators, until loads are equal or no more tasks fit."""
    workload = PoolWorkload(connection, newcomers[0].role, newcomers[0].pool)
    available = {
        number: sorted(
            (task for task in tasks if not task.started),
            key=lambda task: hash_sort_key("share", seed, task.row.subject, task.row.owner),
        )
        for number, tasks in workload.open.items()
    }
    moves: list[TaskMove] = []
    waiting = list(newcomers)
    # One task at a time to the newcomer with the fewest, so that all newcomers fill up together.
    while waiting:
        newcomer = min(
            waiting, key=lambda person: (workload.loads[person.id], hash_sort_key("share", seed, person.name))
        )
        task = _choose_share(workload, available, newcomer)
        if task is None:
            waiting.remove(newcomer)
            continue
        available[task.row.person].remove(task)
        workload.move(task, newcomer)
        moves.append(TaskMove(task, newcomer))
    return moves


def _choose_share(
    workload: PoolWorkload, available: Mapping[int, Sequence[OpenTask]], newcomer: Person
) -> OpenTask | None:
    """Return a task for a newcomer: of an inactive person, else of the one with the most; None where none is due."""
    owners = sorted(available, key=lambda number: (workload.people[number].active, -workload.loads[number], number))
    for number in owners:
        due = not workload.people[number].active or workload.loads[number] - workload.loads[newcomer.id] > 1
        allowed = [task for task in available[number] if workload.allows(task, newcomer)] if due else []
        if allowed:
            return min(allowed, key=lambda task: workload.systems[newcomer.id, task.item.system])
    return None


def _open_task(row: Row[Any]) -> OpenTask:
    key = json.loads(row.key)
    item = AssignmentItem(str(key), str(json.loads(row.question_key)), describe_system(row.origin or "{}"))
    return OpenTask(row, item, bool(row.started))


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
    " AND NOT EXISTS (SELECT 1 FROM annotate_gold g WHERE g.response = t.response) ORDER BY t.person, t.place"
)
_OPEN_TASKS_OF = text(f"{_OPEN} AND t.person = :person ORDER BY t.place")
_MET = text("SELECT person, subject, apart, withdrawn FROM annotate_tasks WHERE role = :role AND pool = :pool")
