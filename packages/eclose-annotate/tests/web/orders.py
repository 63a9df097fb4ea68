"""Random requests by everybody at once, in every order, each held against what must come of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from eclose_annotate import submissions
from eclose_annotate.people import people
from tests.projects import choose_key
from tests.web.canaries import CREW, NOBODY, Scan, Study, study
from tests.web.crowd import Crowd, crowd
from tests.web.truth import Form, Truth, fill, spoil

if TYPE_CHECKING:
    from pathlib import Path

WORKERS = tuple(nick for nick in CREW if nick != "lea")
PAGES = (
    "/",
    "/finished",
    "/account",
    "/dashboard",
    "/login",
    "/nothing",
    "/static/annotate.css",
    "/tasks/",
    "/static/",
)


@dataclass
class Tally:
    """What happened over all orders."""

    orders: int = 0
    requests: int = 0
    pages: int = 0
    size: int = 0
    answers: Counter = field(default_factory=Counter)
    accepted: int = 0
    advances: list[str] = field(default_factory=list)
    """Rows that should not be there, or are missing."""
    disclosures: list[str] = field(default_factory=list)
    access: list[str] = field(default_factory=list)
    """Answers that are not what must be answered."""

    @property
    def wins(self) -> int:
        return len(self.advances) + len(self.disclosures) + len(self.access)


class Order:
    """One order of requests."""

    def __init__(self, one: Study, everybody: Crowd, tally: Tally, seed: int) -> None:
        self.study, self.crowd, self.tally = one, everybody, tally
        self.rng = Random(f"order {seed}")
        self.truth, self.scan = Truth(one), Scan(one.canaries)
        self.sent: list[tuple[str, str, str, Form, str]] = []
        """Forms that were submitted once: by whom, of what, and with which key."""

    def begin(self) -> None:
        """Begin somewhere: some have done much already, so that every later state is met too."""
        most = self.rng.choice((0, 2, 5, 8))
        for nick in WORKERS:
            person = self._person(nick)
            for _ in range(self.rng.randint(most // 2, most)):
                task = self._next(nick)
                if task is None:
                    break
                name = self.truth.open_pass(nick, task)
                form, key = self._fill(task, name), choose_key(self.study.project, task, name, self._key())
                submissions.submit_pass_and_commit(self.study.project, person, task, name, form.entries, key)
                self.truth.submitted(nick, task, name, form, key)
                self.sent.append((nick, task, name, form, key))

    def _person(self, nick: str):
        with self.study.project.reading() as connection:
            return people.find_person(connection, self.study.names[nick])

    def run(self, requests: int) -> None:
        self.begin()
        for _ in range(requests):
            self._step()
            self.tally.requests += 1
            if (rows := self.study.rows()) != (expected := self.truth.rows()):
                self.tally.advances.append(f"the database has {set(rows) ^ set(expected)}")
                break
        self.tally.orders += 1
        self.tally.pages += self.scan.pages
        self.tally.size += self.scan.size
        self.tally.disclosures += self.scan.leaks
        self.tally.accepted += len(self.truth.rows())

    def _step(self) -> None:
        ways = {
            self.work: 12,
            self.open: 4,
            self.submit_anything: 5,
            self.draft: 3,
            self.replay: 4,
            self.two_tabs: 2,
            self.look_around: 3,
            self.take: 3,
            self.undo: 6,
            self.change: 3,
        }
        self.rng.choices(list(ways), list(ways.values()))[0]()

    # --- what people do ----------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Submit the open pass as it should be."""
        nick = self._somebody(WORKERS)
        task = self._next(nick)
        if task is None:
            return self.take()
        name = self.truth.open_pass(nick, task)
        self._open(nick, task)
        return self._submit(nick, task, name, self._fill(task, name), self._key())

    def open(self) -> None:
        """Open the task whose turn it is, one's own before or after its turn, or any other."""
        nick = self._anybody()
        own = self._next(nick) if self.rng.random() < 0.4 else self._any_own(nick)
        self._open(nick, own or self._any_task())

    def _any_own(self, nick: str) -> str | None:
        own = [task.id for task in self.truth.tasks.values() if task.nick == nick]
        return self.rng.choice(own) if own and self.rng.random() < 0.5 else None

    def _open(self, nick: str, task: str) -> None:
        may = self.truth.may_see(nick, f"/tasks/{task}")
        self._check(self.crowd.get(nick, f"/tasks/{task}"), self.truth.opened(nick, task), may, f"{nick} opens {task}")

    def submit_anything(self) -> None:
        nick = self._anybody()
        task = self._any_own(nick) or self._any_task()
        task = (self._next(nick) if self.rng.random() < 0.5 else None) or task
        name = self.rng.choice((*"ABCDSF", "AB", "", "a", "%41", "../A"))
        if self.rng.random() < 0.4:
            name = self.truth.open_pass(nick, task) or name
        form = self._fill(task, name)
        if self.rng.random() < 0.5:
            form = spoil(self.rng, form)
        self._submit(nick, task, name, form, self._key(), csrf=self.rng.random() < 0.8)

    def draft(self) -> None:
        nick = self._somebody(WORKERS)
        task = self._next(nick) if self.rng.random() < 0.6 else self._any_task()
        task = task or self._any_task()
        name = self.rng.choice("ABCDSF")
        if self.rng.random() < 0.6:
            name = self.truth.open_pass(nick, task) or name
        form = self._fill(task, name)
        if self.rng.random() < 0.3:
            form = spoil(self.rng, form)
        csrf = self.rng.random() < 0.8
        path = f"/tasks/{task}/{name}/draft"
        expected = self.truth.drafted(nick, task, name, form, csrf=csrf)
        answer = self.crowd.post(nick, path, {"key": "k", **form.fields}, csrf="own" if csrf else "other")
        self._check(answer, expected, self._own(nick), f"{nick} drafts {path}")

    def replay(self) -> None:
        """Send what was sent before, once more, by whoever it was or by another."""
        if not self.sent:
            return self.open()
        nick, task, name, form, key = self.rng.choice(self.sent)
        if self.rng.random() < 0.4:
            nick = self._anybody()
        if self.rng.random() < 0.3:
            key = self._key()
        return self._submit(nick, task, name, form, key)

    def two_tabs(self) -> None:
        """The same pass from two tabs, decided differently."""
        nick = self._somebody(WORKERS)
        task = self._next(nick)
        if task is None:
            return
        name = self.truth.open_pass(nick, task)
        for _ in range(2):
            self._submit(nick, task, name, self._fill(task, name), self._key())

    def look_around(self) -> None:
        nick, path = self._anybody(), self.rng.choice(PAGES)
        answer = self.crowd.get(nick, path)
        expected = answer.status_code
        if path == "/dashboard":
            expected = {"lea": 200, NOBODY: 303}.get(nick, 404)
        self._check(answer, expected, self.truth.may_see(nick, path), f"{nick} looks at {path}")

    def take(self) -> None:
        nick, csrf = self._anybody(), self.rng.random() < 0.9
        if self.rng.random() < 0.7:
            nick = self._somebody(("eve", "sol", "fin"))
        answer = self.crowd.post(nick, "/take", csrf="own" if csrf else None)
        expected = {NOBODY: 303, "lea": 404}.get(nick, 303 if csrf else 403)
        self._check(answer, expected, self._own(nick), f"{nick} takes")
        self._know_taken(nick, answer)

    def _know_taken(self, nick: str, answer) -> None:
        """Take note of a case that an adjudicator was given."""
        task_id = answer.headers.get("location", "").partition("?")[0].removeprefix("/tasks/")
        task = next((task for task in self.study.tasks() if task.id == task_id), None)
        if task is not None and task_id not in self.truth.tasks:
            if (wrong := self.truth.took(nick, task)) is not None:
                self.tally.advances.append(wrong)
            self.truth.know(task)

    def undo(self) -> None:
        nick, csrf = self._anybody(), self.rng.random() < 0.9
        if self.truth.last and self.rng.random() < 0.8:
            owner, (task, name) = self.rng.choice(list(self.truth.last.items()))
            nick = owner if self.rng.random() < 0.7 else nick
        else:
            task, name = self._any_task(), self.rng.choice("ABCDSF")
        expected = self.truth.undone(nick, task, name, csrf=csrf)
        answer = self.crowd.post(nick, f"/tasks/{task}/{name}/undo", csrf="own" if csrf else "x")
        self._check(answer, expected, self._own(nick), f"{nick} undoes {task} {name}")
        self.truth.note_leaves()

    def change(self) -> None:
        """Open what may be changed, and perhaps change it."""
        leave = self._any_leave()
        old_pass = self.truth.leaves.get(leave)
        nick = self._anybody() if old_pass is None or self.rng.random() < 0.4 else self.truth.tasks[old_pass.task].nick
        may = self.truth.may_see(nick, f"/amend/{leave}")
        usable = self.truth.leave(nick, leave)
        expected = 303 if nick == NOBODY else 200 if usable is not None else 404
        self._check(self.crowd.get(nick, f"/amend/{leave}"), expected, may, f"{nick} looks at the change {leave}")
        name = self.rng.choice("ABCD") if old_pass is None else old_pass.name
        form = self._fill(self._any_task() if old_pass is None else old_pass.task, name)
        if self.rng.random() < 0.4:
            form = spoil(self.rng, form)
        csrf = self.rng.random() < 0.8
        expected = self.truth.changed(nick, leave, form, csrf=csrf)
        answer = self.crowd.post(
            nick, f"/amend/{leave}", {"key": self._key(), **form.fields}, csrf="own" if csrf else ""
        )
        self._check(answer, expected, may, f"{nick} changes {leave}")

    # --- how ---------------------------------------------------------------------------------------------------------

    def _submit(self, nick: str, task: str, name: str, form: Form, key: str, *, csrf: bool = True) -> None:
        # A page with what is wrong shows the pass that is open, before and after: nothing has changed.
        may = self.truth.may_see(nick, f"/tasks/{task}")
        named = {"%41": "A"}.get(name, name)
        choose_key(self.study.project, task, named, key)
        expected = self.truth.submitted(nick, task, named, form, key, csrf=csrf)
        if "/" in name or not name:
            expected = None
        path = f"/tasks/{task}/{name}"
        answer = self.crowd.post(nick, path, {"key": key, **form.fields}, csrf="own" if csrf else "0" * 64)
        self._check(answer, expected, may if answer.status_code == 422 else self._own(nick), f"{nick} submits {path}")
        if answer.status_code == 303 and nick != NOBODY:
            self.sent.append((nick, task, named, form, key))
            self._know_taken(nick, answer)

    def _check(self, answer, wanted: int | None, may: set[str], what: str) -> None:
        self.tally.answers[answer.status_code] += 1
        self.scan.look(answer, may, f"{answer.status_code}: {what}")
        allowed = (303, 307, 404, 405) if wanted is None else (wanted,)
        if answer.status_code not in allowed:
            self.tally.access.append(f"{what}: {answer.status_code}, and not {wanted}")

    def _own(self, nick: str) -> set[str]:
        return self.truth.may_see(nick, "/")

    def _somebody(self, nicks) -> str:
        return self.rng.choice(nicks)

    def _anybody(self) -> str:
        return self.rng.choice((*CREW, NOBODY))

    def _any_task(self) -> str:
        return self.rng.choice((*self.truth.tasks, "nothing"))

    def _any_leave(self) -> str:
        return self.rng.choice((*self.truth.leaves, *self.truth.leaves, "nothing"))

    def _next(self, nick: str) -> str | None:
        return next((task for task in self.truth.tasks if self.truth.open_pass(nick, task) is not None), None)

    def _key(self) -> str:
        return f"{self.rng.randrange(10**12)}"

    def _fill(self, task: str, name: str | None) -> Form:
        task_row = self.truth.tasks.get(task) or next(iter(self.truth.tasks.values()))
        usual = name if name in ("A", "B", "C", "D", "S", "F") else {"%41": "A"}.get(name, "B")
        return fill(self.rng, task_row, usual, unanswered=self.study.unanswered in task_row.owners)


def run_orders(folder: Path, seeds, requests: int) -> Tally:
    """So many orders of so many requests, each in a project of its own; every third shows less, or more."""
    tally = Tally()
    for seed in seeds:
        settings = ({}, {"hide_evidence": True}, {"labels_to_adjudicator": True})[seed % 3]
        with study(folder / f"order-{seed}", questions=4, **settings) as small_study, crowd(small_study) as everybody:
            Order(small_study, everybody, tally, seed).run(requests)
    return tally
