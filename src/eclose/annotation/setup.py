"""Begin a project: put the material in, take people on, and give out the work, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from eclose.annotation import audit_log, create_tasks
from eclose.annotation.accounts import people
from eclose.annotation.accounts.people import Person, Pool, Role
from eclose.annotation.assignment.assign import Assignment
from eclose.annotation.family_audit import FormIds, add_families
from eclose.annotation.forms import Kind
from eclose.annotation.material import add_questions, add_responses
from eclose.annotation.project import LEAD
from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from eclose.annotation.project import Settings
    from eclose.core.instance import Instance
    from eclose.core.response import Response
    from eclose.protocol.auditing import ShownFamily


@dataclass(frozen=True, slots=True)
class Crew:
    """Who takes part, by name."""

    annotators: Sequence[str] = ()
    adjudicators: Sequence[str] = ()
    screeners: Sequence[str] = ()
    screening_adjudicators: Sequence[str] = ()
    leads: Sequence[str] = ()
    per_response: int = 2
    """How many annotators label a response."""
    kind: Kind = Kind.RESPONSE


class Taken(NamedTuple):
    """Somebody who was taken on, and how they get in."""

    person: Person
    token: str
    """Of the invitation; told once."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What was done."""

    taken: tuple[Taken, ...]
    assignments: tuple[tuple[Kind, Assignment], ...]


def fill(connection: Connection, instances: Iterable[Instance], responses: Iterable[Response]) -> tuple[int, int]:
    """Put questions and responses in; how many of each."""
    counts = add_questions(connection, instances), add_responses(connection, responses)
    audit_log.append(connection, LEAD, "filled", detail={"questions": counts[0], "responses": counts[1]})
    return counts


def fill_with_families(connection: Connection, families: Iterable[tuple[FormIds, ShownFamily]]) -> int:
    """Put in the families of an audit; how many."""
    count = add_families(connection, families)
    audit_log.append(connection, LEAD, "filled", detail={"families": count})
    return count


def take_on(connection: Connection, settings: Settings, crew: Crew) -> Begun:
    """Invite everybody, and give those who label their tasks. The names are known from then on."""
    taken = tuple(_invited(connection, crew))
    screeners = [one.person for one in taken if one.person.role is Role.SCREENER]
    annotators = [one.person for one in taken if one.person.role is Role.ANNOTATOR]
    made: list[tuple[Kind, Assignment]] = []
    if screeners:
        made.append((Kind.SCREENING, create_tasks.give_questions(connection, screeners, settings)))
    if annotators and crew.kind is Kind.FAMILY:
        made.append((crew.kind, create_tasks.give_families(connection, annotators, settings)))
    elif annotators:
        given = create_tasks.give_responses(
            connection, annotators, settings, per_response=crew.per_response, kind=crew.kind
        )
        made.append((crew.kind, given))
    names = {one.person.name: one.person.role for one in taken}
    tasks = {kind: len(one.tasks) for kind, one in made}
    audit_log.append(connection, LEAD, "assigned", detail={"people": names, "tasks": tasks})
    return Begun(taken, tuple(made))


def _invited(connection: Connection, crew: Crew) -> Iterable[Taken]:
    now = datetime.now(UTC)
    pool = create_tasks.POOLS[crew.kind]
    wanted = (
        (crew.leads, Role.LEAD, Pool.NONE),
        (crew.screeners, Role.SCREENER, Pool.QUESTIONS),
        (crew.screening_adjudicators, Role.ADJUDICATOR, Pool.QUESTIONS),
        (crew.annotators, Role.ANNOTATOR, pool),
        (crew.adjudicators, Role.ADJUDICATOR, pool),
    )
    names = [name for some, _, _ in wanted for name in some]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SettingError(
            f"{', '.join(sorted(twice))}: has two roles. Screeners know the references; keep them apart."
        )
    for some, role, chosen in wanted:
        for name in some:
            person = people.add(connection, name, role, chosen, people.NO_PASSWORD, now)
            yield Taken(person, people.invite_known(connection, person, now=now))


def invite_anew(
    connection: Connection, name: str, role: str | None = None, pool: Pool | None = None, *, by: str = LEAD
) -> Taken:
    """Another invitation: for somebody who is known in the role they have, else for a new lead or adjudicator."""
    now = datetime.now(UTC)
    person = people.person(connection, name)
    if person is None:
        if role not in (Role.LEAD, Role.ADJUDICATOR):
            raise SettingError(
                f"{name}: is not known. Name a role, lead or adjudicator; who labels is named to assign."
            )
        person = people.add(connection, name, Role(role), pool, people.NO_PASSWORD, now)
    token = people.invite_known(connection, person, now=now)
    audit_log.append(connection, by, "invited", detail={"name": name, "role": person.role})
    return Taken(person, token)
