"""Steps of creating a project: add material, invite people, assign tasks. All run in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from eclose.errors import SettingError
from eclose.files.jsonl import read_records
from eclose.values.response import Response
from eclose_annotate import events, queues
from eclose_annotate import tasks as create_tasks
from eclose_annotate.assignment.assign import AssignmentPlan
from eclose_annotate.choices import InvitedRole
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.labelling.sample import LabelSample, draw_label_sample
from eclose_annotate.material_store import add_questions, add_responses
from eclose_annotate.people import people
from eclose_annotate.people.people import AnnotatorPool, Person, PersonRole
from eclose_annotate.project import LEAD_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sqlalchemy import Connection

    from eclose.values.instance import Instance
    from eclose_annotate.project import AnnotationProject, AnnotationProjectSettings


@dataclass(frozen=True, slots=True)
class AnnotationCrew:
    """The people of a project, by name and function."""

    annotators: Sequence[str] = ()
    adjudicators: Sequence[str] = ()
    screeners: Sequence[str] = ()
    screening_adjudicators: Sequence[str] = ()
    leads: Sequence[str] = ()
    per_response: int = 2
    """Number of annotators of each response."""
    kind: AnnotationTaskKind = AnnotationTaskKind.RESPONSE


class InvitedPerson(NamedTuple):
    """An invited person with the token of the invitation."""

    person: Person
    token: str
    """Secret of the invitation link. Only its hash is stored."""


@dataclass(frozen=True, slots=True)
class ProjectStaffing:
    """The people and assignments of a new project."""

    invitees: tuple[InvitedPerson, ...]
    assignments: tuple[tuple[AnnotationTaskKind, AssignmentPlan], ...]


def add_project_material(
    connection: Connection,
    instances: Iterable[Instance],
    responses: Iterable[Response],
    sample: LabelSample | None = None,
) -> tuple[int, int]:
    """Add questions and responses; return the number of each.

    With a sample, only its responses and their questions are added, and the audit log says how many it was drawn of.
    """
    detail = {}
    if sample is not None:
        chosen = set(sample.chosen)
        # Responses first: they name the questions of the sample.
        responses = [response for response in responses if response.id in chosen]
        question_ids = {response.instance_id for response in responses}
        instances = (instance for instance in instances if instance.id in question_ids)
        detail = {"drawn_of": len(sample.strata)}
    counts = add_questions(connection, instances), add_responses(connection, responses)
    events.append_audit_event(
        connection, LEAD_NAME, "filled", detail={"questions": counts[0], "responses": counts[1], **detail}
    )
    return counts


def draw_project_sample(responses: Path, n: int, seed: int) -> LabelSample:
    """Draw ``n`` responses of a file with equal probability, or all where it has fewer.

    The judge's labels play no part, as they do in ``eclose label``: the labels of a project carry no weights.
    """
    ids = [response.id for response in read_records(responses, Response)]
    return draw_label_sample(ids, (), n=min(n, len(ids)), seed=seed)


def invite_and_assign_crew(
    connection: Connection, settings: AnnotationProjectSettings, crew: AnnotationCrew
) -> ProjectStaffing:
    """Invite all people of the crew, and assign tasks to its screeners and annotators."""
    invitees = tuple(_invite_crew(connection, crew))
    screeners = [invitee.person for invitee in invitees if invitee.person.role is PersonRole.SCREENER]
    annotators = [invitee.person for invitee in invitees if invitee.person.role is PersonRole.ANNOTATOR]
    assignments: list[tuple[AnnotationTaskKind, AssignmentPlan]] = []
    if screeners:
        assignments.append(
            (AnnotationTaskKind.SCREENING, create_tasks.assign_questions_to_screeners(connection, screeners, settings))
        )
    if annotators and crew.kind is AnnotationTaskKind.FAMILY:
        assignments.append((crew.kind, create_tasks.assign_families_to_auditors(connection, annotators, settings)))
    elif annotators:
        assignment = create_tasks.assign_responses_to_annotators(
            connection, annotators, settings, per_response=crew.per_response, kind=crew.kind
        )
        assignments.append((crew.kind, assignment))
    names = {invitee.person.name: invitee.person.role for invitee in invitees}
    tasks = {kind: len(assignment.tasks) for kind, assignment in assignments}
    events.append_audit_event(connection, LEAD_NAME, "assigned", detail={"people": names, "tasks": tasks})
    return ProjectStaffing(invitees, tuple(assignments))


def _invite_crew(connection: Connection, crew: AnnotationCrew) -> Iterable[InvitedPerson]:
    pool = create_tasks.POOL_BY_TASK_KIND[crew.kind]
    # Adjudicators of responses or families share the pool of the annotators.
    groups = (
        (crew.leads, PersonRole.LEAD, AnnotatorPool.NONE),
        (crew.screeners, PersonRole.SCREENER, AnnotatorPool.QUESTIONS),
        (crew.screening_adjudicators, PersonRole.ADJUDICATOR, AnnotatorPool.QUESTIONS),
        (crew.annotators, PersonRole.ANNOTATOR, pool),
        (crew.adjudicators, PersonRole.ADJUDICATOR, pool),
    )
    names = [name for members, _, _ in groups for name in members]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SettingError(
            f"{', '.join(sorted(twice))}: is named for two roles. Screeners know the reference answers, so name others."
        )
    if alike := {name for name in names if [other.lower() for other in names].count(name.lower()) > 1}:
        raise SettingError(f"{', '.join(sorted(alike))}: differ in case only, which a login ignores. Name them apart.")
    for members, role, role_pool in groups:
        for name in members:
            yield add_invited_person(connection, name, role, role_pool)


def add_invited_person(
    connection: Connection, name: str, role: PersonRole, pool: AnnotatorPool | None, *, by: str = LEAD_NAME
) -> InvitedPerson:
    """Add a person who chooses a password with the invitation."""
    now = datetime.now(UTC)
    person = people.add_person(connection, name, role, pool, people.NO_PASSWORD, now, by=by)
    return InvitedPerson(person, people.invite_to_reset_password(connection, person, now=now))


def issue_or_renew_invitation(
    connection: Connection, project: AnnotationProject, name: str, role: str | None = None, *, by: str = LEAD_NAME
) -> InvitedPerson:
    """Issue a new invitation to an existing person, or add and invite a new lead or adjudicator."""
    person = people.find_person(connection, name)
    if person is None:
        # People with tasks of their own join by an assignment alone, or take over those of a person who leaves.
        if role not in list(InvitedRole):
            raise SettingError(
                f"{name}: is not in the project. Add a lead or an adjudicator with --role; an annotator or screener"
                " takes over from a person who leaves: eclose annotate reassign FOLDER PERSON --new NAME."
            )
        added = add_invited_person(connection, name, *_role_and_pool(connection, InvitedRole(role)), by=by)
        queue_for_new_adjudicator(connection, project, added.person)
    else:
        added = InvitedPerson(person, people.invite_to_reset_password(connection, person, now=datetime.now(UTC)))
    detail = {"name": added.person.name, "role": added.person.role}
    events.append_audit_event(connection, by, "invited", detail=detail)
    return added


def _role_and_pool(connection: Connection, role: InvitedRole) -> tuple[PersonRole, AnnotatorPool]:
    if role is InvitedRole.LEAD:
        return PersonRole.LEAD, AnnotatorPool.NONE
    if role is InvitedRole.SCREENING_ADJUDICATOR:
        return PersonRole.ADJUDICATOR, AnnotatorPool.QUESTIONS
    has_families = connection.execute(_COUNT_FAMILIES).scalar_one() > 0
    return PersonRole.ADJUDICATOR, AnnotatorPool.FAMILIES if has_families else AnnotatorPool.RESPONSES


def queue_for_new_adjudicator(connection: Connection, project: AnnotationProject, person: Person) -> None:
    """Queue the responses with inconsistent labels that had no adjudicator before."""
    if person.role is PersonRole.ADJUDICATOR and person.pool is AnnotatorPool.RESPONSES:
        queues.queue_flagged_responses(connection, project)


_COUNT_FAMILIES = text("SELECT count(*) FROM annotate_families")
