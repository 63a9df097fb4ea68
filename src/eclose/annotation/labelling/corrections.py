"""Corrections of one's own labels in a project without a lead: the first label is kept, and the log names both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from eclose.annotation import reopening

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from eclose.annotation.accounts.people import Person
    from eclose.annotation.audit_log import AuditEventRef

SELF_CORRECTION = "corrected by the labeller"
"""Reason that is stored with a correction."""


def open_own_correction(
    connection: Connection, person: Person, task: str, name: str
) -> tuple[str, AuditEventRef | None] | None:
    """Return the id under which a person may correct a submitted pass, and the event of opening it.

    A correction that was opened before and not used is opened again, without an event. None where the pass is not
    submitted, or not the person's own.
    """
    values = {"task": task, "pass": name, "person": person.id}
    if (unused := connection.execute(_UNUSED, values).scalar_one_or_none()) is not None:
        return unused, None
    if reopening.request_reopening(connection, person, task, name, SELF_CORRECTION) is None:
        return None
    request = connection.execute(_ASKED, values).scalar_one()
    # There is no lead: the labeller decides, and the log says so.
    return request, reopening.decide_reopen_request(connection, person, request, grant=True)


_REQUEST = (
    "SELECT r.id FROM annotate_reopenings r JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
    " JOIN annotate_tasks t ON t.id = r.task WHERE r.task = :task AND s.pass = :pass AND t.person = :person"
)
_ASKED = text(f"{_REQUEST} AND r.decision IS NULL")
_UNUSED = text(
    f"{_REQUEST} AND r.decision = 'granted'"
    " AND NOT EXISTS (SELECT 1 FROM annotate_amendments a WHERE a.reopening = r.id)"
)
