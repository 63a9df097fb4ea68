"""Pages of annotators, screeners and adjudicators: overview, open pass, completed tasks, amendments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy.exc import IntegrityError

from eclose.annotation import queues, reopening, submissions
from eclose.annotation.accounts.people import PersonRole
from eclose.annotation.submissions import PassSubmissionResult, SubmissionRefusal
from eclose.annotation.web.dependencies import (
    LoggedInVisit,
    check_csrf_token,
    not_found_error,
    parse_form_entries,
    parse_web_form,
    require_annotator,
    require_login,
    take_form_fields,
)
from eclose.annotation.web.pages import render_annotation_page

if TYPE_CHECKING:
    from eclose.annotation.forms import FormEntry
    from eclose.annotation.submissions import TaskPageContent

router = APIRouter()
Fields = Annotated[dict[str, str], Depends(parse_web_form)]
Worker = Annotated[LoggedInVisit, Depends(require_annotator)]

_CLOSED = "This pass is closed: it was submitted before, an earlier pass is still open, or its page was not opened."


@router.get("/")
def show_annotator_home(visit: Annotated[LoggedInVisit, Depends(require_login)], receipt: str = "") -> Response:
    """Show progress and the next task."""
    if visit.person.role is PersonRole.LEAD:
        return RedirectResponse("/dashboard", status_code=303)
    with visit.project.reading() as connection:
        task = queues.find_next_task(connection, visit.person)
        progress = queues.read_task_progress(connection, visit.person)
        html = render_annotation_page(
            "home.html",
            **visit.context,
            progress=progress,
            next_url=None if task is None else f"/tasks/{task}",
            # Without a next task, the rest of the total are subjects that wait for an adjudicator.
            take=task is None and progress.total > progress.finished,
            receipt=_receipt(receipt),
            amendable=reopening.list_granted_reopenings(connection, visit.person),
        )
    return HTMLResponse(html)


@router.post("/take")
def claim_adjudication_task(visit: Worker, fields: Fields) -> Response:
    """Assign the next waiting subject to an adjudicator."""
    take_form_fields(check_csrf_token(visit, fields))
    # Each conflict means that another adjudicator got a subject; after three, the page shows the queue again.
    for _ in range(3):
        try:
            with visit.project.writing() as connection:
                task = queues.take_next_task(connection, visit.person)
        except IntegrityError:
            # Another adjudicator has just taken the same subject.
            continue
        return RedirectResponse("/" if task is None else f"/tasks/{task}", status_code=303)
    return RedirectResponse("/", status_code=303)


@router.get("/tasks/{task}")
def show_task_page(visit: Worker, task: str, receipt: str = "") -> Response:
    """Show the open pass of a task."""
    with visit.project.reading() as connection:
        sheet = submissions.open_task_page(connection, visit.project, visit.person, task)
    if sheet is None:
        raise not_found_error()
    return HTMLResponse(_render_work(visit, sheet, sheet.draft, receipt=_receipt(receipt)))


@router.post("/tasks/{task}/{name}")
def post_pass_form(visit: Worker, task: str, name: str, fields: Fields) -> Response:
    """Submit a pass; the receipt appears only after the commit."""
    key, entries = _form(visit, task, name, fields)
    outcome = submissions.submit_pass_and_commit(visit.project, visit.person, task, name, entries, key)
    if outcome.receipt is not None:
        path = "/" if outcome.finished else f"/tasks/{task}"
        return RedirectResponse(f"{path}?receipt={outcome.receipt}", status_code=303)
    if outcome.refusal is SubmissionRefusal.UNKNOWN:
        raise not_found_error()
    if outcome.refusal is SubmissionRefusal.CLOSED:
        return _closed_page(visit)
    # An invalid form is shown again with its entries and problems.
    with visit.project.reading() as connection:
        sheet = submissions.open_task_page(connection, visit.project, visit.person, task)
    return _closed_page(visit) if sheet is None else HTMLResponse(_render_work(visit, sheet, entries, outcome), 422)


@router.post("/tasks/{task}/{name}/draft")
def post_pass_draft(visit: Worker, task: str, name: str, fields: Fields) -> Response:
    """Save a draft of the open pass."""
    _, entries = _form(visit, task, name, fields)
    with visit.project.writing() as connection:
        saved = submissions.save_pass_draft(connection, visit.person, task, name, entries)
    # 204 leaves the page as it is; 409 tells its script that the pass was closed meanwhile.
    return Response(status_code=204 if saved else 409)


@router.post("/tasks/{task}/{name}/reopen")
def post_reopen_request(visit: Worker, task: str, name: str, fields: Fields) -> Response:
    """Ask the lead for permission to change a submitted pass."""
    (reason,) = take_form_fields(check_csrf_token(visit, fields), "reason")
    with visit.project.writing() as connection:
        event = reopening.request_reopening(connection, visit.person, task, name, reason)
    if event is None:
        raise not_found_error()
    visit.project.head.advance(event)
    return RedirectResponse("/finished", status_code=303)


@router.get("/finished")
def show_completed_tasks(visit: Worker) -> HTMLResponse:
    """Show the latest tasks with their receipts."""
    with visit.project.reading() as connection:
        html = render_annotation_page(
            "finished.html", **visit.context, tasks=queues.list_completed_tasks(connection, visit.person)
        )
    return HTMLResponse(html)


@router.get("/amend/{request_id}")
def show_amendment_form(visit: Worker, request_id: str) -> HTMLResponse:
    """Show a submitted pass that may be changed."""
    with visit.project.reading() as connection:
        sheet = reopening.open_pass_amendment(connection, visit.project, visit.person, request_id)
    if sheet is None:
        raise not_found_error()
    return HTMLResponse(_render_amendment(visit, sheet, sheet.draft, request_id))


@router.post("/amend/{request_id}")
def post_amendment_form(visit: Worker, request_id: str, fields: Fields) -> Response:
    """Submit an amended pass."""
    with visit.project.reading() as connection:
        sheet = reopening.open_pass_amendment(connection, visit.project, visit.person, request_id)
    if sheet is None:
        raise not_found_error()
    key, entries = _split(check_csrf_token(visit, fields), sheet.steps or 1)
    try:
        with visit.project.writing() as connection:
            outcome = reopening.submit_pass_amendment(connection, visit.project, visit.person, request_id, entries, key)
    except IntegrityError:
        return _closed_page(visit)
    if outcome.event is None:
        return HTMLResponse(_render_amendment(visit, sheet, entries, request_id, outcome), 422)
    visit.project.head.advance(outcome.event)
    return RedirectResponse(f"/?receipt={outcome.receipt}", status_code=303)


def _form(visit: LoggedInVisit, task: str, name: str, fields: dict[str, str]) -> tuple[str, tuple[FormEntry, ...]]:
    """Return key and entries of a form; the task, not the form, determines the number of entries."""
    fields = check_csrf_token(visit, fields)
    with visit.project.reading() as connection:
        count = submissions.count_form_entries(connection, visit.person, task, name)
    if count is None:
        raise not_found_error()
    return _split(fields, count)


def _split(fields: dict[str, str], count: int) -> tuple[str, tuple[FormEntry, ...]]:
    # The column of the key holds 64 characters.
    key = fields.pop("key", "")
    return key[:64], parse_form_entries(fields, count)


def _render_work(
    visit: LoggedInVisit,
    sheet: TaskPageContent,
    entries: tuple[FormEntry, ...],
    outcome: PassSubmissionResult | None = None,
    *,
    receipt: str | None = None,
) -> str:
    problems = () if outcome is None else outcome.problems
    return render_annotation_page(
        "work.html", **visit.context, sheet=sheet, entries=entries, problems=problems, receipt=receipt
    )


def _render_amendment(
    visit: LoggedInVisit,
    sheet: TaskPageContent,
    entries: tuple[FormEntry, ...],
    request_id: str,
    outcome: PassSubmissionResult | None = None,
) -> str:
    problems = () if outcome is None else outcome.problems
    action = f"/amend/{request_id}"
    return render_annotation_page(
        "amend.html", **visit.context, sheet=sheet, entries=entries, problems=problems, action=action
    )


def _closed_page(visit: LoggedInVisit) -> HTMLResponse:
    return HTMLResponse(
        render_annotation_page("error.html", **visit.context, status=409, message=_CLOSED, back="/"), 409
    )


def _receipt(text: str) -> str | None:
    """Return the receipt of a URL if it is well-formed: no other text of a URL may appear on a page."""
    number, _, letters = text.partition("-")
    valid = number.isascii() and number.isdigit() and len(number) <= 20 and len(letters) == 12 and letters.isalnum()
    return text if valid and letters.isascii() else None
