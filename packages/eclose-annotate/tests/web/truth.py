"""What must come of a request, worked out beside the server: whose turn it is, what is closed, what may be seen.

Knows the rules as they are told to people, and nothing of how the server keeps them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from eclose_annotate.people.people import PersonRole
from tests.web.canaries import CREW, NOBODY, Study, Task

if TYPE_CHECKING:
    from random import Random

ORDER = {"response": "ABCD", "screening": "S", "family": "F"}
STEPS = 2
FAMILY = tuple(
    f"{part}.{name}"
    for part, names in {
        "gold": ("correct", "supported", "aligned", "closed"),
        "evidence": ("isolated", "trace_switches", "answer_switches"),
        "question": ("valid", "trace_switches"),
    }.items()
    for name in names
)
ASKED = {
    "S": ("eligible", "code"),
    "A": ("substantive", "sound", "failure"),
    "B": ("aligned",),
    "C": ("closed",),
    "D": ("correct", "complete"),
    "F": FAMILY,
}
_POOLS = {"screening": "questions", "family": "families", "response": "responses"}


class Given(NamedTuple):
    """A pass that was submitted."""

    entries: list[dict[str, str]]
    key: str


@dataclass
class Leave:
    """A pass that its person undid, and whether it was changed."""

    id: str
    task: str
    name: str
    used: bool = False


@dataclass
class Truth:
    """All that the rules depend on."""

    study: Study
    tasks: dict[str, Task] = field(default_factory=dict)
    given: dict[str, dict[str, Given]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    last: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Task and pass that each person submitted last."""
    leaves: dict[str, Leave] = field(default_factory=dict)
    amended: list[tuple[str, str, list[dict[str, str]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin where nothing was done."""
        for task in self.study.tasks():
            self.know(task)

    def know(self, task: Task) -> None:
        self.tasks[task.id] = task
        self.given[task.id] = {}

    # --- what may be seen --------------------------------------------------------------------------------------------

    def open_pass(self, nick: str, task_id: str) -> str | None:
        """The pass of a task whose turn it is; None where the task is another's, or not the next, or unknown."""
        task = self.tasks.get(task_id)
        if task is None or task.nick != nick or task.place != self.done.get(nick, 0) + 1:
            return None
        return task.passes[len(self.given[task_id])]

    def may_see(self, nick: str, path: str) -> set[str]:
        """The tokens that may be in the answer to a request."""
        canaries = self.study.canaries
        tokens = canaries.kinds({"project"})
        where = [*path.partition("?")[0].split("/")[1:], ""]
        if where[0] == "invitation" and where[1] == self.study.invited:
            tokens |= canaries.of({"name"}, "newcomer")
        if nick == NOBODY:
            return tokens
        tokens |= canaries.of({"name"}, nick)
        if where[0] in ("dashboard", "training") and nick == "lea":
            tokens |= canaries.of({"name"}, *CREW, "newcomer")
        if where[0] == "finished":
            tokens |= self._questions(
                task for task, passes in self.given.items() if passes and self.tasks[task].nick == nick
            )
        if where[0] in ("", "finished"):
            # A pass that was opened again is told with its question.
            tokens |= self._questions(
                leave.task for leave in self.leaves.values() if self.leave(nick, leave.id) is not None
            )
        if where[0] == "tasks" and (name := self.open_pass(nick, where[1])) is not None:
            tokens |= self.study.may_show(self.tasks[where[1]], name)
        if where[0] == "amend" and (leave := self.leave(nick, where[1])) is not None:
            tokens |= self.study.may_show(self.tasks[leave.task], leave.name)
        return tokens

    def _questions(self, tasks) -> set[str]:
        """The tokens of the questions of some tasks."""
        owners = [self.tasks[task] for task in tasks]
        question_owners = {owner for task in owners for owner in task.owners}
        families = self.study.family_question() if any(task.kind == "family" for task in owners) else set()
        return self.study.canaries.of({"question"}, *question_owners) | families

    # --- what must be answered ---------------------------------------------------------------------------------------

    def leave(self, nick: str, leave_id: str) -> Leave | None:
        """A leave of one's own that can be used."""
        leave = self.leaves.get(leave_id)
        return leave if leave is not None and not leave.used and self.tasks[leave.task].nick == nick else None

    def opened(self, nick: str, task_id: str) -> int:
        if nick == NOBODY:
            return 303
        return 404 if nick == "lea" or self.open_pass(nick, task_id) is None else 200

    def _refused(self, nick: str, task_id: str, name: str, *, csrf: bool) -> int | None:
        """Why a form about a task is turned away whatever is in it."""
        if nick == NOBODY:
            return 303
        if nick == "lea":
            return 404
        if not csrf:
            return 403
        task = self.tasks.get(task_id)
        return 404 if task is None or task.nick != nick or name not in tuple(ORDER[task.kind]) else None

    def submitted(self, nick: str, task_id: str, name: str, form: Form, key: str, *, csrf: bool = True) -> int:
        """What a submission is answered with; what comes of it is remembered."""
        if (refused := self._refused(nick, task_id, name, csrf=csrf)) is not None:
            return refused
        if not form.readable:
            return 422
        before = self.given[task_id].get(name)
        if before is not None:
            return 303 if before == Given(form.entries, key) else 409
        if self.open_pass(nick, task_id) != name:
            return 409
        if not form.complete:
            return 422
        self.given[task_id][name] = Given(form.entries, key)
        self.last[nick] = (task_id, name)
        if len(self.given[task_id]) == len(self.tasks[task_id].passes):
            self.done[nick] = self.done.get(nick, 0) + 1
        return 303

    def drafted(self, nick: str, task_id: str, name: str, form: Form, *, csrf: bool = True) -> int:
        if (refused := self._refused(nick, task_id, name, csrf=csrf)) is not None:
            return refused
        if not form.readable:
            return 422
        return 204 if self.open_pass(nick, task_id) == name else 409

    def undone(self, nick: str, task_id: str, name: str, *, csrf: bool = True) -> int:
        """What undoing a pass is answered with. The server's own id of it is read from the database."""
        if nick in (NOBODY, "lea") or not csrf:
            return {NOBODY: 303, "lea": 404}.get(nick, 403)
        # Pass B shows the same material as pass A; the last pass of a task is followed by nothing.
        disclosed_nothing = name == "A" or (task_id in self.tasks and name == self.tasks[task_id].passes[-1])
        return 303 if self.last.get(nick) == (task_id, name) and disclosed_nothing else 404

    def note_leaves(self) -> None:
        with self.study.project.reading() as connection:
            rows = connection.execute(_LEAVES).all()
        for row in rows:
            self.leaves.setdefault(row.id, Leave(row.id, row.task, row.name))

    def changed(self, nick: str, leave_id: str, form: Form, *, csrf: bool = True) -> int:
        if nick == NOBODY:
            return 303
        leave = self.leave(nick, leave_id)
        if nick == "lea" or leave is None:
            return 404
        if not csrf:
            return 403
        if not form.readable or not form.complete:
            return 422
        leave.used = True
        self.amended.append((leave.task, leave.name, form.entries))
        return 303

    def took(self, nick: str, task: Task) -> str | None:
        """What is wrong with a case that somebody was given; None where it is theirs to take."""
        role, pool = CREW[nick]
        first = [other for other in self.tasks.values() if other.subject == task.subject]
        if role is not PersonRole.ADJUDICATOR or pool != _POOLS[task.kind] or task.nick != nick:
            return f"{nick} was given a {task.kind}"
        if any(CREW[other.nick][0] is PersonRole.ADJUDICATOR for other in first):
            return f"{task.subject} was given to two"
        if any(len(self.given[other.id]) < len(other.passes) for other in first):
            return f"{task.subject} was given away before all had finished"
        return None

    def rows(self) -> list[tuple]:
        """What the database must hold, and no more."""
        submitted = [
            (task, name, submission.entries, "submitted")
            for task, of in self.given.items()
            for name, submission in of.items()
        ]
        amended = [(*amendment, "amended") for amendment in self.amended]
        return sorted((task, name, json.dumps(entries), how) for task, name, entries, how in submitted + amended)


_LEAVES = text(
    "SELECT r.id, r.task, s.pass AS name FROM annotate_reopenings r"
    " JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
)


class Form(NamedTuple):
    """What somebody fills in."""

    entries: list[dict[str, str]]
    readable: bool = True
    """Whether its fields are those of some entry that the task has."""
    complete: bool = True
    """Whether it says all that is asked in this pass, and nothing else."""
    more: tuple[tuple[str, str], ...] = ()

    @property
    def fields(self) -> dict[str, str]:
        values = {
            f"{number}.{name}": value for number, entry in enumerate(self.entries, 1) for name, value in entry.items()
        }
        return values | dict(self.more)


def fill(rng: Random, task: Task, name: str, *, unanswered: bool = False) -> Form:
    """A form that is complete, decided by chance."""
    return Form([_entry(rng, name, unanswered) for _ in range(STEPS if name == "A" else 1)])


def _entry(rng: Random, name: str, unanswered: bool) -> dict[str, str]:
    say = {field: rng.choice(("yes", "no")) for field in ASKED[name] if field not in ("failure", "code")}
    if name == "A":
        if say["substantive"] == "no":
            del say["sound"]
        elif say["sound"] == "no":
            say["failure"] = rng.choice(("L1", "L2", "L3", "L4", "L5"))
    if name == "S" and say["eligible"] == "no":
        say["code"] = rng.choice(("N1", "N2", "N3", "N4", "N5"))
    if name == "D" and unanswered:
        del say["correct"]
    return say


def spoil(rng: Random, form: Form) -> Form:
    """A form with something wrong about it."""
    entries = [dict(entry) for entry in form.entries]
    how = rng.randrange(4)
    if how == 0:
        del entries[-1][next(iter(entries[-1]))]
        return Form(entries, complete=False)
    if how == 1:
        entries[0][next(iter(entries[0]))] = rng.choice(("perhaps", "YES", "yes ", "1", "\u200byes"))
        return Form(entries, complete=False)
    if how == 2:
        entries[0][rng.choice(("reference", "answer", "model", "pass"))] = "yes"
        return Form(entries, complete=False)
    wrong = rng.choice(("role", "person", f"{STEPS + 1}.sound", "0.sound", "task", "1.sound[]", "__proto__"))
    return Form(entries, readable=False, more=((wrong, "yes"),))
