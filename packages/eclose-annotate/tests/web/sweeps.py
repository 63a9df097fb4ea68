"""Every page of the application at every point of the work, before everybody: what is on it is looked at."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import product
from random import Random
from typing import TYPE_CHECKING

from tests.projects import choose_key
from tests.web.canaries import CREW, NOBODY, Scan, Study
from tests.web.crowd import Crowd, routes
from tests.web.truth import ASKED, Form, Truth, fill, spoil

if TYPE_CHECKING:
    from collections.abc import Iterable

STATIC = tuple(f"/static/{path.name}" for path in (files("eclose_annotate.web") / "static").iterdir())
ELSEWHERE = ("/nothing", "/static/nothing", "/static/../app.py", "/static/%2e%2e/app.py", "/tasks", "/openapi.json")
ROLES = ("ann", "sue", "fay", "eve", "sol", "fin", "lea", NOBODY)
"""One of each kind."""


class Sweep:
    """Looks at everything again and again while people work."""

    def __init__(self, one: Study, everybody: Crowd, *, thorough: bool) -> None:
        self.study, self.crowd, self.thorough = one, everybody, thorough
        self.truth, self.scan, self.rng = Truth(one), Scan(one.canaries), Random(5)
        self.routes = routes(everybody.app)
        self.broken: list[str] = []
        """Answers that say there is a bug, and requests that changed what they must not."""

    def run(self) -> None:
        """Everybody works, pass by pass, and after each the whole is looked at."""
        self.everything()
        first = [nick for nick in CREW if nick not in ("lea", "eve", "sol", "fin")]
        stage = 0
        # Everybody does one pass, also where the first of them has done one.
        while sum(self.work(nick) for nick in first):
            stage += 1
            self.everything(posts=self.thorough or stage == 3)
        for nick in ("eve", "sol", "fin"):
            while self.take(nick):
                while self.work(nick):
                    self.everything((nick, "ann", "lea", NOBODY) if self.thorough else (nick, NOBODY), posts=False)
                if not self.thorough:
                    break

    # --- somebody works ----------------------------------------------------------------------------------------------

    def work(self, nick: str) -> bool:
        """Do the open pass, with all that can be done on the way; False where nothing is open."""
        passes = [(task, name) for task in self.truth.tasks if (name := self.truth.open_pass(nick, task)) is not None]
        if not passes:
            return False
        task, name = passes[0]
        form = self._form(nick, task, name)
        path, may = f"/tasks/{task}/{name}", self.truth.may_see(nick, f"/tasks/{task}")
        self._look(self.crowd.get(nick, f"/tasks/{task}"), may, f"{name}: {nick} opens", 200)
        self._look(self.crowd.post(nick, f"{path}/draft", form.fields), set(), f"{name}: {nick} drafts", 204)
        self._look(self.crowd.get(nick, f"/tasks/{task}"), may, f"{name}: {nick} opens the draft", 200)
        wrong = {"key": "k", **spoil(Random(0), form).fields}
        self._look(self.crowd.post(nick, path, wrong), may, f"{name}: {nick} submits what is wrong", 422)
        key = choose_key(self.study.project, task, name, f"{task}{name}")
        answer = self.crowd.post(nick, path, {"key": key, **form.fields})
        self._look(answer, self._own(nick), f"page: {nick} submits {name}", 303)
        self.truth.submitted(nick, task, name, form, f"{task}{name}")
        where = answer.headers["location"]
        self._know_taken(where)
        # After the last pass the next task is shown at once.
        now = self.truth.open_pass(nick, where.partition("?")[0].removeprefix("/tasks/")) or "page"
        self._look(self.crowd.get(nick, where), self.truth.may_see(nick, where), f"{now}: {nick} goes on", 200)
        self.change(nick, task, name)
        return True

    def _form(self, nick: str, task: str, name: str) -> Form:
        """A form decided by chance; screeners and auditors differ, so that an adjudicator has work of each kind."""
        if name in "SF":
            say = "yes" if nick in ("sue", "fay") else "no"
            entry = {field: say for field in ASKED[name] if field != "code"}
            return Form([entry | ({"code": "N1"} if name == "S" and say == "no" else {})])
        owners = self.truth.tasks[task].owners
        return fill(self.rng, self.truth.tasks[task], name, unanswered=self.study.unanswered in owners)

    def take(self, nick: str) -> bool:
        answer = self.crowd.post(nick, "/take")
        self._look(answer, self._own(nick), f"page: {nick} takes", 303)
        where = answer.headers["location"]
        self._know_taken(where)
        return where != "/"

    def _know_taken(self, where: str) -> None:
        """Take note of a case that an adjudicator was given."""
        task = where.partition("?")[0].removeprefix("/tasks/")
        if task not in self.truth.tasks and "/" not in task:
            self.truth.know(next(candidate for candidate in self.study.tasks() if candidate.id == task))

    def change(self, nick: str, task: str, name: str) -> None:
        """Undo what was just submitted where nothing was disclosed since, and change it."""
        status = self.truth.undone(nick, task, name)
        self._look(self.crowd.post(nick, f"/tasks/{task}/{name}/undo"), self._own(nick), f"page: {nick} undoes", status)
        if status != 303:
            return
        before = set(self.truth.leaves)
        self.truth.note_leaves()
        (leave,) = set(self.truth.leaves) - before
        form = self._form(nick, task, name)
        may = self.truth.may_see(nick, f"/amend/{leave}")
        self._look(self.crowd.get(nick, f"/amend/{leave}"), may, f"{name}: {nick} opens the change", 200)
        wrong = {"key": "k", **spoil(Random(0), form).fields}
        self._look(self.crowd.post(nick, f"/amend/{leave}", wrong), may, f"{name}: {nick} changes wrongly", 422)
        answer = self.crowd.post(nick, f"/amend/{leave}", {"key": "k", **form.fields})
        self._look(answer, self._own(nick), f"page: {nick} changes", 303)
        self.truth.changed(nick, leave, form)

    # --- everything is looked at -------------------------------------------------------------------------------------

    def everything(self, nicks: Iterable[str] = (), *, posts: bool = True) -> None:
        before = self.study.rows()
        for nick in nicks or ((*CREW, NOBODY) if self.thorough else ROLES):
            for method, template in self.routes:
                for path in self.filled(template, nick) if posts or method == "GET" else ():
                    self.ask(nick, method, path)
            for path in (*STATIC, *ELSEWHERE) if self.thorough or nick == NOBODY else ELSEWHERE[:2]:
                self.ask(nick, "GET", path)
            for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"):
                self._look(self.crowd.ask(method, nick, "/finished"), self._own(nick), f"page: {nick} {method}")
        if self.study.rows() != before:
            self.broken.append("something was submitted by looking around")

    def ask(self, nick: str, method: str, path: str) -> None:
        what = f"{nick} {method} {path}"
        if method == "GET":
            task = path.removeprefix("/tasks/")
            name = self.truth.open_pass(nick, task) or "page"
            self._look(self.crowd.get(nick, path), self.truth.may_see(nick, path), f"{name}: {what}")
            return
        # Without its token, and with a field too many: neither may do anything.
        forms = [(None, {}), ("own", {"zz": "1"})]
        for csrf, fields in forms if self.thorough else forms[1:]:
            answer = self.crowd.post(nick, path, fields, csrf=csrf)
            self._look(answer, self._own(nick), f"page: {what}")
            if answer.status_code < 400 and (nick != NOBODY or answer.headers.get("location") != "/login"):
                self.broken.append(f"{what} was done: {answer.status_code}")

    def filled(self, template: str, nick: str) -> Iterable[str]:
        """The addresses of a route, with all that could stand in its places; in a quick look a few of each."""
        places = re.findall(r"{(\w+)}", template)
        choices = [self._choices(position, template, nick) for position in places]
        for values in product(*choices):
            path = template
            for placeholder, value in zip(places, values, strict=True):
                path = path.replace(f"{{{placeholder}}}", value)
            yield path

    def _choices(self, place: str, template: str, nick: str) -> list[str]:
        choices = {
            "task": self._tasks(nick),
            "name": [self.study.names["bob"], "nobody"] if "people" in template else list("ABCDSFZ"),
            "reopening": [*list(self.truth.leaves)[-3:], "nothing"],
            "token": [self.study.invited, "nothing"],
            "item": ["tautology", "nothing"],
            "door": ["nothing"],
            "change": ["deactivate", "end", "promote"],
            "file": ["labels.jsonl", "nothing"],
        }
        assert place in choices, f"say in {__name__} what can stand for {{{place}}} in {template}"
        values = choices[place]
        if place == "task" or len(values) <= 2:
            return values
        # All tasks at every look, and a few of the rest: it is looked at often.
        return self.rng.sample(values, 2)

    def _tasks(self, nick: str) -> list[str]:
        """One's own, and others'."""
        if self.thorough:
            return [*self.truth.tasks, "nothing"]
        own = [task.id for task in self.truth.tasks.values() if task.nick == nick]
        others = [task.id for task in self.truth.tasks.values() if task.nick != nick]
        return [*own[:2], *self.rng.sample(others, 2), "nothing"]

    def _own(self, nick: str) -> set[str]:
        return self.truth.may_see(nick, "/")

    def _look(self, answer, may: set[str], where: str, wanted: int | None = None) -> None:
        self.scan.look(answer, may, where)
        if answer.status_code >= 500 or (wanted is not None and answer.status_code != wanted):
            self.broken.append(f"{where}: {answer.status_code}, and not {wanted}")
