"""Audit of the database after kills: what labellers noted in their diaries against the recorded rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose_annotate.project import open_annotation_project

from .retrying_labeller import DIARY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sqlalchemy import Connection


@dataclass
class Audit:
    """Counts and problems of an audit."""

    acknowledged: int = 0
    retried: int = 0
    given_up: int = 0
    """Forms that were sent and never answered."""
    given_up_kept: int = 0
    lost: int = 0
    doubled: int = 0
    took: int = 0
    unfinished: int = 0
    """Tasks without a submission of every pass. Zero would mean that some kills met no load."""
    events: int = 0
    drafts: int = 0
    reopened: int = 0
    draft_loss: float = 0.0
    problems: list[str] = field(default_factory=list)


def audit(project_folder: Path, folder: Path) -> Audit:
    """Compare the diaries in ``folder`` with the rows of the project."""
    diaries = json.loads((folder / DIARY).read_text())
    project = open_annotation_project(project_folder)
    with project.reading() as connection:
        rows = {(row.task, row.name): row for row in connection.execute(_SUBMITTED)}
        result = Audit(problems=[*_unwhole(connection), *_strange(rows, diaries)])
        submissions = Counter((row.task, json.loads(row.detail)["pass"]) for row in connection.execute(_EVENTS))
        result.took = connection.execute(
            text("SELECT count(*) FROM annotate_events WHERE action = 'took'")
        ).scalar_one()
        result.unfinished = connection.execute(_LEFT).scalar_one()
        result.events = connection.execute(text("SELECT count(*) FROM annotate_events")).scalar_one()
    project.close()
    result.doubled = sum(count - 1 for count in submissions.values())
    for diary in diaries.values():
        _compare(result, diary, rows)
    if result.lost or result.doubled:
        result.problems.append(f"{result.lost} acknowledged submissions lost, {result.doubled} doubled")
    return result


def _compare(result: Audit, diary: Mapping[str, Any], rows: Mapping[tuple[str, str], Any]) -> None:
    result.drafts += diary["drafts"]
    result.reopened += diary["reopened"]
    result.draft_loss = max(result.draft_loss, diary["draft_loss"])
    result.problems += diary["problems"]
    for sent in diary["sent"]:
        row = rows.get((sent["task"], sent["name"]))
        recorded = row is not None and (row.key, json.loads(row.entries)) == (sent["key"], sent["entries"])
        if sent["receipt"] is not None:
            result.acknowledged += 1
            result.retried += sent["tries"] > 1
            result.lost += not (recorded and row is not None and sent["receipt"] == f"{row.event}-{row.event_id}")
        elif sent["status"] is None:
            result.given_up += 1
            result.given_up_kept += recorded
        elif recorded or sent["status"] != 409 or row is None:
            # A refusal is right only where another form of the same pass was recorded without an answer.
            result.problems.append(
                f"a form of pass {sent['name']} was answered with {sent['status']}, recorded: {recorded}"
            )


def _strange(rows: Mapping[tuple[str, str], Any], diaries: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for every recorded form that no labeller sent."""
    sent = {
        (form["task"], form["name"], form["key"], json.dumps(form["entries"]))
        for diary in diaries.values()
        for form in diary["sent"]
    }
    for (task, name), row in rows.items():
        if (task, name, row.key, json.dumps(json.loads(row.entries))) not in sent:
            yield f"pass {name} of a task holds a form that was never sent"


def _unwhole(connection: Connection) -> Iterator[str]:
    """Yield a problem for every submission that is recorded only in part."""
    for row in connection.execute(_CURSORS):
        if row.done != row.finished:
            yield f"a person has finished {row.finished} tasks, and the cursor says {row.done}"
    if count := connection.execute(_UNCOMPARED).scalar_one():
        yield f"{count} responses with different labels do not wait for an adjudicator"
    if count := connection.execute(_LEFT_OVER).scalar_one():
        yield f"{count} drafts of submitted passes were left"


_SUBMITTED = text(
    "SELECT s.task, s.pass AS name, s.key, s.entries, s.event, e.id AS event_id FROM annotate_submissions s"
    " JOIN annotate_events e ON e.seq = s.event"
)
_EVENTS = text("SELECT task, detail FROM annotate_events WHERE action = 'submitted'")
_CURSORS = text(
    "SELECT c.done, (SELECT count(*) FROM annotate_tasks t WHERE t.person = c.person AND length(t.passes) ="
    " (SELECT count(*) FROM annotate_submissions s WHERE s.task = t.id)) AS finished FROM annotate_cursors c"
)
# Two whose last passes are both there and whose entries differ in one of them.
_UNCOMPARED = text(
    "SELECT count(DISTINCT t.subject) FROM annotate_tasks t JOIN annotate_tasks u ON u.subject = t.subject AND"
    " u.id < t.id AND u.role <> 'adjudicator' AND t.role <> 'adjudicator'"
    " JOIN annotate_submissions a ON a.task = t.id JOIN annotate_submissions b ON b.task = u.id AND b.pass = a.pass"
    " WHERE a.entries <> b.entries"
    " AND EXISTS (SELECT 1 FROM annotate_submissions s WHERE s.task = t.id AND s.pass = 'D')"
    " AND EXISTS (SELECT 1 FROM annotate_submissions s WHERE s.task = u.id AND s.pass = 'D')"
    " AND NOT EXISTS (SELECT 1 FROM annotate_adjudications d WHERE d.subject = t.subject)"
)
_LEFT = text(
    "SELECT count(*) FROM annotate_tasks t WHERE length(t.passes) >"
    " (SELECT count(*) FROM annotate_submissions s WHERE s.task = t.id)"
)
_LEFT_OVER = text(
    "SELECT count(*) FROM annotate_drafts d JOIN annotate_submissions s ON s.task = d.task AND s.number = d.number"
)
