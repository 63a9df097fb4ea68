"""Changes of people in a running project: release a case, hand over tasks, add people.

A task never changes its person. It is withdrawn, with its drafts and submissions, and the successor gets a task of
their own, so that the work of a leaver is neither shown to others nor lost. Queries about work in progress read the
view ``annotate_current_tasks``, which leaves withdrawn tasks out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from eclose.annotation.setup import InvitedPerson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from eclose.annotation.project import AnnotationProject


class CrewRole(StrEnum):
    """Role of a person who joins a running project."""

    ANNOTATOR = "annotator"
    ADJUDICATOR = "adjudicator"
    SCREENER = "screener"
    SCREENING_ADJUDICATOR = "screening-adjudicator"


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError
