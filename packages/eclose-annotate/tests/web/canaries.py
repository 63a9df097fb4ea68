"""A project in which whatever can be hidden is a token, and a scan that finds tokens however they are written.

What a page may show is worked out here from the paper's table of passes, not asked of the code that is tested.
"""

from __future__ import annotations

import atexit
import base64
import html
import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import NamedTuple
from urllib.parse import unquote_plus

from sqlalchemy import event, text

from eclose.calls.ledger.database import make_database_engine
from eclose.prompts.material_json import DisclosedPassage, DisclosedStep
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, ResponseSource, Trace
from eclose_annotate.family_audit.material import AuditorMaterial
from eclose_annotate.material_store import add_questions, add_responses
from eclose_annotate.people import people, sessions
from eclose_annotate.people.people import AnnotatorPool, PersonRole
from eclose_annotate.project import (
    DATABASE_FILE,
    AnnotationProject,
    AnnotationProjectSettings,
    ScreeningMode,
    create_annotation_project,
)
from eclose_annotate.tasks import assign_questions_to_screeners, assign_responses_to_annotators

TOKEN = re.compile(r"zq[0-9a-z]{14}qz")
NUMBER = re.compile(r"7391[0-9]{8}1937")
"""Of what can only be a number."""

_TRACE = frozenset({"question", "title", "passage", "step"})
SHOWN = {
    "S": frozenset({"question", "title", "passage", "reference", "alias"}),
    "A": _TRACE,
    "B": _TRACE,
    "C": _TRACE | {"answer"},
    "D": _TRACE | {"answer", "reference", "alias"},
    "F": frozenset({"family"}),
}
"""What each pass may show of its task."""
NEVER = frozenset({"question id", "response id", "family id", "benchmark", "model", "method", "seed"})
"""What no page shows to anybody, and the database has."""
NOWHERE = frozenset({"passage id", "completion", "question type"})
"""What a record holds and the database does not: which passages support the answer, and what was said of it."""

CREW = {
    "lea": (PersonRole.LEAD, AnnotatorPool.NONE),
    **dict.fromkeys(("ann", "bob", "cyd", "dan"), (PersonRole.ANNOTATOR, AnnotatorPool.RESPONSES)),
    "eve": (PersonRole.ADJUDICATOR, AnnotatorPool.RESPONSES),
    **dict.fromkeys(("sue", "sam"), (PersonRole.SCREENER, AnnotatorPool.QUESTIONS)),
    "sol": (PersonRole.ADJUDICATOR, AnnotatorPool.QUESTIONS),
    **dict.fromkeys(("fay", "flo"), (PersonRole.ANNOTATOR, AnnotatorPool.FAMILIES)),
    "fin": (PersonRole.ADJUDICATOR, AnnotatorPool.FAMILIES),
}
NOBODY = "nobody"


class Canary(NamedTuple):
    """What a token stands for."""

    kind: str
    of: str
    """The question, response, family or person it belongs to."""


class Canaries:
    """Hands out tokens, and remembers what they stand for."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"canaries {seed}")
        self.known: dict[str, Canary] = {}

    def token(self, kind: str, of: str) -> str:
        letters = "".join(self._rng.choices("0123456789abcdefghijklmnoprstuvwxy", k=14))
        self.known[f"zq{letters}qz"] = Canary(kind, of)
        return f"zq{letters}qz"

    def number(self, kind: str, of: str) -> int:
        number = int(f"7391{self._rng.randrange(10**8):08d}1937")
        self.known[str(number)] = Canary(kind, of)
        return number

    def words(self, kind: str, of: str) -> str:
        return f"Some words, {self.token(kind, of)}, and more of them."

    def of(self, kinds, *owners: str) -> set[str]:
        """The tokens of some kinds that belong to one of the owners."""
        return {token for token, canary in self.known.items() if canary.kind in kinds and canary.of in owners}

    def kinds(self, kinds) -> set[str]:
        return {token for token, canary in self.known.items() if canary.kind in kinds}


def _instance(canaries: Canaries, name: str) -> Instance:
    passages = tuple(
        Passage(canaries.token("passage id", name), canaries.words("title", name), canaries.words("passage", name))
        for _ in range(2)
    )
    return Instance(
        canaries.token("question id", name),
        canaries.words("question", name),
        passages,
        canaries.words("reference", name),
        (canaries.words("alias", name), canaries.words("alias", name)),
        benchmark=canaries.token("benchmark", name),
        support_ids=(passages[0].id,),
        kind=canaries.token("question type", name),
    )


def _response(canaries: Canaries, name: str, instance: Instance, *, answered: bool) -> Response:
    source = ResponseSource(
        canaries.token("model", name), method=canaries.token("method", name), seed=canaries.number("seed", name)
    )
    return Response(
        canaries.token("response id", name),
        instance.id,
        Trace.of(canaries.words("step", name), canaries.words("step", name)),
        canaries.words("answer", name) if answered else None,
        source,
        completion=canaries.words("completion", name),
    )


def _family(canaries: Canaries, name: str) -> AuditorMaterial:
    def words() -> str:
        return canaries.words("family", name)

    def steps() -> tuple[DisclosedStep, ...]:
        return DisclosedStep(1, words()), DisclosedStep(2, words())

    passages = tuple(DisclosedPassage(index, words(), words()) for index in range(2))
    changed = DisclosedPassage(1, words(), words())
    return AuditorMaterial(
        words(), words(), (words(),), passages, steps(), words(), changed, steps(), words(), words(), steps(), words()
    )


class Task(NamedTuple):
    """A task as this module knows it: whose it is, and of what."""

    id: str
    kind: str
    nick: str
    place: int
    owners: tuple[str, ...]
    """What its tokens belong to: its question and its response, or its family."""
    subject: str
    passes: str


@dataclass
class Study:
    """A project full of tokens, and everybody's way in."""

    project: AnnotationProject
    canaries: Canaries
    names: dict[str, str]
    keys: dict[str, str]
    """The tokens of sessions."""
    invited: str
    """The token of an invitation that waits."""
    unanswered: str
    """The response without an answer."""
    by_key: dict[str, str] = field(default_factory=dict)
    """What the ids in the database are called here."""

    def nick(self, name: str) -> str:
        return next(nick for nick, username in self.names.items() if username == name)

    def tasks(self) -> list[Task]:
        """All that were given out so far."""
        with self.project.reading() as connection:
            return [self._task(row) for row in connection.execute(_TASKS)]

    def _task(self, row) -> Task:
        keys = [self.by_key[json.loads(key)] for key in (row.question, row.response, row.family) if key is not None]
        passes = {"screening": "S", "family": "F"}.get(row.kind, "ABD" if self.unanswered in keys else "ABCD")
        return Task(row.id, row.kind, self.nick(row.name), row.place, tuple(keys), row.subject, passes)

    def may_show(self, task: Task, name: str) -> set[str]:
        """The tokens that a page of this pass may show."""
        kinds = SHOWN[name]
        if self.project.settings.hide_evidence and name in "BCD":
            kinds -= {"title", "passage"}
        return self.canaries.of(kinds, *task.owners)

    def rows(self) -> list[tuple]:
        """All that was submitted and changed, as the database has it."""
        with self.project.reading() as connection:
            return sorted(tuple(row) for row in connection.execute(_ROWS))

    def family_question(self) -> set[str]:
        """The tokens of the question of the family."""
        with self.project.reading() as connection:
            material = connection.execute(text("SELECT shown FROM annotate_families")).scalar_one()
        return tokens_in(json.loads(material)["question"].encode())

    def csrf(self, nick: str) -> str:
        return "" if nick == NOBODY else sessions._csrf(self.keys[nick])


_TASKS = text(
    "SELECT t.id, t.kind, t.place, t.subject, p.name, q.key AS question, r.key AS response, f.key AS family"
    " FROM annotate_tasks t JOIN annotate_people p ON p.id = t.person LEFT JOIN annotate_questions q ON"
    " q.id = t.question LEFT JOIN annotate_responses r ON r.id = t.response"
    " LEFT JOIN annotate_families f ON f.id = t.family ORDER BY t.person, t.place"
)
_ROWS = text(
    "SELECT task, pass, entries, 'submitted' FROM annotate_submissions UNION ALL"
    " SELECT r.task, s.pass, a.entries, 'amended' FROM annotate_amendments a JOIN annotate_reopenings r"
    " ON r.id = a.reopening JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
)
_ADD_FAMILY = text("INSERT INTO annotate_families (key, shown) VALUES (:key, :shown) RETURNING id")
_ADD_TASK = text(
    "INSERT INTO annotate_tasks (id, kind, subject, family, person, role, pool, place, passes)"
    " VALUES (:id, 'family', :subject, :family, :person, 'annotator', 'families', 1, 'F')"
)


def _fill(project: AnnotationProject, canaries: Canaries, questions: int) -> dict[str, str]:
    """Two responses to every question, the last of them without an answer, and a family."""
    instances = [_instance(canaries, f"q{number}") for number in range(questions)]
    responses = [
        _response(canaries, f"q{number}/r{which}", instance, answered=(number, which) != (questions - 1, 1))
        for number, instance in enumerate(instances)
        for which in range(2)
    ]
    with project.writing() as connection:
        add_questions(connection, instances)
        add_responses(connection, responses)
        material = asdict(_family(canaries, "f0"))
        row = {"key": json.dumps(canaries.token("family id", "f0")), "shown": json.dumps(material)}
        connection.execute(_ADD_FAMILY, row)
    owners = {token: canary.of for token, canary in canaries.known.items()}
    return {key: owners[key] for key in canaries.kinds({"question id", "response id", "family id"})}


def _people(project: AnnotationProject, canaries: Canaries) -> tuple[dict[str, str], dict[str, str], str]:
    """Everybody with their work and a session; their names, the sessions' tokens, and an invitation that waits."""
    now, names, keys, there = datetime.now(UTC), {}, {}, {}
    with project.writing() as connection:
        for nick, (role, pool) in CREW.items():
            names[nick] = canaries.token("name", nick)
            there[nick] = people.add_person(connection, names[nick], role, pool, "no password", now)
            opened = sessions.open_login_session(
                connection, sessions.VerifiedLogin(there[nick], "no password", None), now=now
            )
            keys[nick] = opened.token
        assign_responses_to_annotators(
            connection, [there[nick] for nick in ("ann", "bob", "cyd", "dan")], project.settings
        )
        assign_questions_to_screeners(connection, [there[nick] for nick in ("sue", "sam")], project.settings)
        for nick in ("fay", "flo"):
            row = {"id": f"family-of-{nick}", "subject": "family 1", "family": 1, "person": there[nick].id}
            connection.execute(_ADD_TASK, row)
        newcomer = canaries.token("name", "newcomer")
        added = people.add_person(connection, newcomer, PersonRole.ADJUDICATOR, None, people.NO_PASSWORD, now)
        invited = people.invite_to_reset_password(connection, added, now=now)
    return names, keys, invited


@cache
def _template(seed: int, questions: int, settings: tuple) -> tuple[Path, tuple]:
    """A project that is made once and copied for everybody who needs one."""
    folder = Path(mkdtemp(prefix="canaries"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    canaries = Canaries(seed)
    # Screening does not decide here, so that all people can work at once.
    settings = (("screening", ScreeningMode.ADVISORY), *settings)
    project = create_annotation_project(
        folder / "study", AnnotationProjectSettings(canaries.token("project", "all"), **dict(settings))
    )
    by_key = _fill(project, canaries, questions)
    names, keys, invited = _people(project, canaries)
    project.close()
    return folder / "study", (project.settings, canaries, names, keys, invited, f"q{questions - 1}/r1", by_key)


@contextmanager
def study(folder: Path, *, seed: int = 1, questions: int = 2, **settings):
    """A project full of tokens, in a folder of its own."""
    template, parts = _template(seed, questions, tuple(sorted(settings.items())))
    shutil.copytree(template, folder)
    project = AnnotationProject(folder, parts[0], make_database_engine(folder / DATABASE_FILE, connections=8))
    _in_no_hurry_to_the_disk(project)
    try:
        # A test may log somebody in anew: what is shared is copied.
        yield Study(project, *(dict(part) if isinstance(part, dict) else part for part in parts[1:]))
    finally:
        project.close()


def _in_no_hurry_to_the_disk(project: AnnotationProject) -> None:
    """What survives a power cut is tested elsewhere; thousands of requests need not wait for it."""

    @event.listens_for(project.engine, "connect")
    def hurry(connection, _record):
        connection.execute("PRAGMA synchronous = OFF")


def views(data: bytes):
    """A text as it stands, and as it would read without its clothes: escapes, tags, encodings."""
    plain = data.decode("utf-8", "replace")
    small = plain.casefold()
    yield small
    yield html.unescape(unquote_plus(small))
    yield unquote_plus(html.unescape(small))
    yield re.sub(r"<[^>]*>", "", small)
    yield re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), small)
    for run in re.findall(r"[A-Za-z0-9+/_-]{20,}", plain):
        for start in range(4):
            yield from _decoded(run[start:])
    for run in re.findall(r"(?:[0-9a-f]{2}){16,}", small):
        yield bytes.fromhex(run).decode("latin-1").casefold()


def _decoded(run: str):
    whole = run[: len(run) // 4 * 4].replace("-", "+").replace("_", "/")
    yield base64.b64decode(whole, validate=False).decode("latin-1").casefold()


def tokens_in(data: bytes) -> set[str]:
    """The tokens in a text, however they are written."""
    tokens = set()
    for view in views(data):
        tokens.update(TOKEN.findall(view), NUMBER.findall(view))
    return tokens


def bytes_of(answer) -> bytes:
    """All of an answer: status, headers and body."""
    head = b"".join(b"%b: %b\n" % pair for pair in answer.headers.raw)
    return b"%d\n%b\n%b" % (answer.status_code, head, answer.content)


@dataclass
class Scan:
    """What was looked at, and what was found where it must not be."""

    canaries: Canaries
    pages: int = 0
    size: int = 0
    leaks: list[str] = field(default_factory=list)
    met: dict[str, set[str]] = field(default_factory=dict)
    """By kind of token: the places where it was shown."""

    def look(self, answer, allowed: set[str], where: str) -> None:
        data = bytes_of(answer)
        self.pages, self.size = self.pages + 1, self.size + len(data)
        if answer.headers.get("content-encoding"):
            self.leaks.append(f"{where}: what is packed cannot be looked at")
        for token in tokens_in(data):
            canary = self.canaries.known.get(token, Canary("unknown token", token))
            if token in allowed:
                self.met.setdefault(canary.kind, set()).add(where.partition(":")[0])
            else:
                self.leaks.append(f"{where}: {canary.kind} of {canary.of}")
