"""Pages of ``eclose label``: overview, own labels, corrections, and the end. Only on servers with a single user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from eclose.annotation import queues, undo
from eclose.annotation.web.dependencies import (
    LoggedInVisit,
    check_csrf_token,
    not_found_error,
    parse_web_form,
    require_annotator,
    take_form_fields,
)
from eclose.annotation.web.pages import render_annotation_page

if TYPE_CHECKING:
    from eclose.annotation.queues import TaskProgress

router = APIRouter(prefix="/labels")
Fields = Annotated[dict[str, str], Depends(parse_web_form)]


def require_single_user(visit: Annotated[LoggedInVisit, Depends(require_annotator)]) -> LoggedInVisit:
    """Return the visit of the single user; answer 404 on servers with accounts, where a submitted pass is closed."""
    if visit.state.single is None:
        raise not_found_error()
    return visit


Labeller = Annotated[LoggedInVisit, Depends(require_single_user)]


@router.get("")
def show_own_labels(visit: Labeller) -> HTMLResponse:
    """Show the labels so far, with the question of each."""
    with visit.project.reading() as connection:
        progress = queues.read_task_progress(connection, visit.person)
        tasks = undo.list_own_tasks(connection, visit.person, most=progress.total)
    return HTMLResponse(render_annotation_page("finished.html", **visit.context, tasks=tasks))


@router.post("/{task}/{name}/correct")
def post_own_correction(visit: Labeller, task: str, name: str, fields: Fields) -> Response:
    """Open a submitted pass for correction."""
    take_form_fields(check_csrf_token(visit, fields))
    with visit.project.writing() as connection:
        reopening = undo.reopen_own_pass(connection, visit.person, task, name)
    if reopening is None:
        raise not_found_error()
    return RedirectResponse(f"/amend/{reopening}", status_code=303)


@router.post("/finish")
def post_finish(visit: Labeller, fields: Fields) -> HTMLResponse:
    """End the session: the command that started the server writes the labels."""
    take_form_fields(check_csrf_token(visit, fields))
    with visit.project.reading() as connection:
        progress = queues.read_task_progress(connection, visit.person)
    visit.state.finished.set()
    return _overview(visit, progress, ended=True)


def show_labeller_home(visit: LoggedInVisit, receipt: str | None) -> HTMLResponse:
    """Show progress, the next response, and the way to one's labels and to the end."""
    with visit.project.reading() as connection:
        task = queues.find_next_task(connection, visit.person)
        progress = queues.read_task_progress(connection, visit.person)
        opened = undo.list_reopened_passes(connection, visit.person)
    next_url = None if task is None else f"/tasks/{task}"
    return _overview(visit, progress, next_url=next_url, receipt=receipt, opened=bool(opened))


def _overview(
    visit: LoggedInVisit,
    progress: TaskProgress,
    *,
    next_url: str | None = None,
    receipt: str | None = None,
    opened: bool = False,
    ended: bool = False,
) -> HTMLResponse:
    html = render_annotation_page(
        "label_home.html",
        **visit.context,
        progress=progress,
        next_url=next_url,
        receipt=receipt,
        opened=opened,
        ended=ended,
    )
    return HTMLResponse(html)
