"""The pages of whoever labels: the next task, the open pass, what was done, and what may be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy.exc import IntegrityError

from eclose.annotation import completed_tasks, queues, reopening, submissions
from eclose.annotation.accounts.people import Role
from eclose.annotation.submissions import Outcome, Refusal
from eclose.annotation.web.dependencies import Visit, checked, entries_of, not_found, only, posted, visitor, worker
from eclose.annotation.web.pages import page

if TYPE_CHECKING:
    from eclose.annotation.forms import Entry
    from eclose.annotation.submissions import Sheet

router = APIRouter()
Fields = Annotated[dict[str, str], Depends(posted)]
Worker = Annotated[Visit, Depends(worker)]

_CLOSED = "This pass is closed: it was submitted before, or its turn has not come."


@router.get("/")
def home(visit: Annotated[Visit, Depends(visitor)], receipt: str = "") -> Response:
    """Where somebody stands, and what is next."""
    if visit.person.role is Role.LEAD:
        return RedirectResponse("/dashboard", status_code=303)
    with visit.project.reading() as connection:
        task = queues.next_task(connection, visit.person)
        progress = queues.progress(connection, visit.person)
        words = page(
            "home.html",
            **visit.context,
            progress=progress,
            next_url=None if task is None else f"/tasks/{task}",
            # Beyond what is done and given there is only what waits for an adjudicator.
            take=task is None and progress.total > progress.done,
            receipt=_receipt(receipt),
            amendable=reopening.granted(connection, visit.person),
        )
    return HTMLResponse(words)


@router.post("/take")
def take(visit: Worker, fields: Fields) -> Response:
    """Give an adjudicator the next case."""
    only(checked(visit, fields))
    for _ in range(3):
        try:
            with visit.project.writing() as connection:
                task = queues.take(connection, visit.person)
        except IntegrityError:
            # Another adjudicator has just taken that one.
            continue
        return RedirectResponse("/" if task is None else f"/tasks/{task}", status_code=303)
    return RedirectResponse("/", status_code=303)


@router.get("/tasks/{task}")
def work(visit: Worker, task: str, receipt: str = "") -> Response:
    """The open pass of a task."""
    with visit.project.reading() as connection:
        found = submissions.sheet(connection, visit.project, visit.person, task)
    if found is None:
        raise not_found()
    return HTMLResponse(_work(visit, found, found.draft, receipt=_receipt(receipt)))


@router.post("/tasks/{task}/{name}")
def submit(visit: Worker, task: str, name: str, fields: Fields) -> Response:
    """Close a pass. The receipt is shown when it is on disk."""
    key, entries = _form(visit, task, name, fields)
    outcome = submissions.submit_once(visit.project, visit.person, task, name, entries, key)
    if outcome.receipt is not None:
        where = "/" if outcome.finished else f"/tasks/{task}"
        return RedirectResponse(f"{where}?receipt={outcome.receipt}", status_code=303)
    if outcome.refusal is Refusal.UNKNOWN:
        raise not_found()
    if outcome.refusal is Refusal.CLOSED:
        return _closed(visit)
    with visit.project.reading() as connection:
        found = submissions.sheet(connection, visit.project, visit.person, task)
    return _closed(visit) if found is None else HTMLResponse(_work(visit, found, entries, outcome), 422)


@router.post("/tasks/{task}/{name}/draft")
def draft(visit: Worker, task: str, name: str, fields: Fields) -> Response:
    """Keep what is filled in so far."""
    _, entries = _form(visit, task, name, fields)
    with visit.project.writing() as connection:
        kept = submissions.save_draft(connection, visit.person, task, name, entries)
    return Response(status_code=204 if kept else 409)


@router.post("/tasks/{task}/{name}/reopen")
def reopen(visit: Worker, task: str, name: str, fields: Fields) -> Response:
    """Ask the lead to change a pass that was submitted."""
    (reason,) = only(checked(visit, fields), "reason")
    with visit.project.writing() as connection:
        link = reopening.ask(connection, visit.person, task, name, reason)
    if link is None:
        raise not_found()
    visit.project.head.advance(link)
    return RedirectResponse("/finished", status_code=303)


@router.get("/finished")
def what_was_done(visit: Worker) -> HTMLResponse:
    """The last tasks with their receipts."""
    with visit.project.reading() as connection:
        words = page("finished.html", **visit.context, tasks=completed_tasks.last(connection, visit.person))
    return HTMLResponse(words)


@router.get("/amend/{request_id}")
def amendment(visit: Worker, request_id: str) -> HTMLResponse:
    """A submitted pass that may be changed."""
    with visit.project.reading() as connection:
        found = reopening.amendment(connection, visit.project, visit.person, request_id)
    if found is None:
        raise not_found()
    return HTMLResponse(_amend(visit, found, found.draft, request_id))


@router.post("/amend/{request_id}")
def amend(visit: Worker, request_id: str, fields: Fields) -> Response:
    """Put a changed form beside the old one."""
    with visit.project.reading() as connection:
        found = reopening.amendment(connection, visit.project, visit.person, request_id)
    if found is None:
        raise not_found()
    key, entries = _split(checked(visit, fields), found.steps or 1)
    try:
        with visit.project.writing() as connection:
            outcome = reopening.amend(connection, visit.project, visit.person, request_id, entries, key)
    except IntegrityError:
        return _closed(visit)
    if outcome.link is None:
        return HTMLResponse(_amend(visit, found, entries, request_id, outcome), 422)
    visit.project.head.advance(outcome.link)
    return RedirectResponse(f"/?receipt={outcome.receipt}", status_code=303)


def _form(visit: Visit, task: str, name: str, fields: dict[str, str]) -> tuple[str, tuple[Entry, ...]]:
    """The key and the entries of a form. How many entries there are is asked of the task, not of the form."""
    fields = checked(visit, fields)
    with visit.project.reading() as connection:
        count = submissions.entries_asked(connection, visit.person, task, name)
    if count is None:
        raise not_found()
    return _split(fields, count)


def _split(fields: dict[str, str], count: int) -> tuple[str, tuple[Entry, ...]]:
    key = fields.pop("key", "")
    return key[:64], entries_of(fields, count)


def _work(
    visit: Visit,
    found: Sheet,
    entries: tuple[Entry, ...],
    outcome: Outcome | None = None,
    *,
    receipt: str | None = None,
) -> str:
    problems = () if outcome is None else outcome.problems
    return page("work.html", **visit.context, sheet=found, entries=entries, problems=problems, receipt=receipt)


def _amend(
    visit: Visit, found: Sheet, entries: tuple[Entry, ...], request_id: str, outcome: Outcome | None = None
) -> str:
    problems = () if outcome is None else outcome.problems
    action = f"/amend/{request_id}"
    return page("amend.html", **visit.context, sheet=found, entries=entries, problems=problems, action=action)


def _closed(visit: Visit) -> HTMLResponse:
    return HTMLResponse(page("error.html", **visit.context, status=409, message=_CLOSED, back="/"), 409)


def _receipt(given: str) -> str | None:
    """A receipt as it came back in an address, if it has the form of one: nothing else is repeated on a page."""
    number, _, letters = given.partition("-")
    fits = number.isascii() and number.isdigit() and len(number) <= 20 and len(letters) == 12 and letters.isalnum()
    return given if fits and letters.isascii() else None
