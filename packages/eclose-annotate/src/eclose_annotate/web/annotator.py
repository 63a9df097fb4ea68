"""Pages of annotators, screeners and adjudicators: overview, guideline, open pass, own labels, undo.

On the server of ``eclose label``, with a single user and no lead, that user corrects any pass and ends the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose_annotate import queues, submissions
from eclose_annotate.forms import PASSES_BY_TASK_KIND, AnnotationTaskKind
from eclose_annotate.labelling import undo
from eclose_annotate.people.people import AnnotatorPool, PersonRole
from eclose_annotate.submissions import PassSubmissionResult, SubmissionRefusal
from eclose_annotate.web import practice as training
from eclose_annotate.web.dependencies import (
    LoggedInVisit,
    check_csrf_token,
    not_found_error,
    parse_form_entries,
    parse_web_form,
    require_annotator,
    require_login,
    take_form_fields,
)
from eclose_annotate.web.field_texts import FIELD_TEXTS
from eclose_annotate.web.pages import render_annotation_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from eclose_annotate.forms import AnnotationPass, FormEntry
    from eclose_annotate.people.people import Person
    from eclose_annotate.submissions import TaskPageContent
    from eclose_annotate.web.practice import TrainingItem, TrainingProgress

router = APIRouter()
Fields = Annotated[dict[str, str], Depends(parse_web_form)]
Worker = Annotated[LoggedInVisit, Depends(require_annotator)]

_CLOSED = "This pass is closed: it was submitted before, an earlier pass is still open, or its page was not opened."


@router.get("/")
def show_annotator_home(visit: Annotated[LoggedInVisit, Depends(require_login)], receipt: str = "") -> Response:
    """Show progress and the next task."""
    if visit.person.role is PersonRole.LEAD:
        return RedirectResponse("/dashboard", status_code=303)
    if visit.state.single is not None:
        return _labeller_home(visit, _receipt(receipt))
    with visit.project.reading() as connection:
        task = queues.find_next_task(connection, visit.person.id)
        progress = queues.read_task_progress(connection, visit.person)
        html = render_annotation_page(
            "home.html",
            **visit.context,
            progress=progress,
            next_url=None if task is None else f"/tasks/{task}",
            take=task is None and queues.count_awaiting_adjudication(connection, visit.person) > 0,
            awaiting_screening=queues.count_awaiting_screening(connection, visit.person),
            receipt=_receipt(receipt),
            undo=_undo_url(connection, visit) if receipt else None,
            amendable=undo.list_reopened_passes(connection, visit.person),
            guidelines=_guidelines(connection, visit.person),
            practised=len(training.read_training_answers(connection, visit.person)),
            must_practise=training.needs_practice(connection, visit.person, visit.project.settings.practice),
            examples=len(training.list_training_items(visit.person, visit.project.settings.practice)),
        )
    return HTMLResponse(html)


@router.get("/guideline")
def show_guideline(visit: Annotated[LoggedInVisit, Depends(require_login)]) -> HTMLResponse:
    """Show the guideline of all passes that the person works on; the lead sees those of the whole project."""
    with visit.project.reading() as connection:
        guidelines = _guidelines(connection, visit.person)
    return HTMLResponse(render_annotation_page("guideline.html", **visit.context, guidelines=guidelines))


@router.get("/training")
def show_training(visit: Annotated[LoggedInVisit, Depends(require_login)]) -> HTMLResponse:
    """Show the next practice example; the lead sees how people did."""
    with visit.project.reading() as connection:
        answers = training.read_training_answers(connection, visit.person)
        results = training.list_training_progress(connection) if visit.person.role is PersonRole.LEAD else ()
    items = training.list_training_items(visit.person, visit.project.settings.practice)
    item = next((item for item in items if item.id not in answers), None)
    return _training_page(visit, item, answers, results=results)


@router.post("/training/{item}")
def post_training_answer(visit: Worker, item: str, fields: Fields) -> HTMLResponse:
    """Store the first answer to a practice example, and show the right one with its reason."""
    (label,) = take_form_fields(check_csrf_token(visit, fields), "label")
    items = training.list_training_items(visit.person, visit.project.settings.practice)
    example = next((each for each in items if each.id == item), None)
    if example is None or label not in {choice.value for choice in FIELD_TEXTS[example.field].choices}:
        raise not_found_error()
    with visit.project.writing() as connection:
        training.answer_training_item(connection, visit.person, example, label)
        answers = training.read_training_answers(connection, visit.person)
    return _training_page(visit, example, answers, label=label)


@router.post("/take")
def claim_adjudication_task(visit: Worker, fields: Fields) -> Response:
    """Assign the next waiting subject to an adjudicator."""
    take_form_fields(check_csrf_token(visit, fields))
    with visit.project.reading() as connection:
        if training.needs_practice(connection, visit.person, visit.project.settings.practice):
            return RedirectResponse("/training", status_code=303)
    return RedirectResponse(_take_next_path(visit), status_code=303)


@router.get("/tasks/{task}")
def show_task_page(visit: Worker, task: str, receipt: str = "") -> Response:
    """Show the open pass of a task; where practice is required, not before the examples are answered."""
    with visit.project.reading() as connection:
        if training.needs_practice(connection, visit.person, visit.project.settings.practice):
            return RedirectResponse("/training", status_code=303)
        sheet = submissions.open_task_page(connection, visit.project, visit.person, task)
        undo = _undo_url(connection, visit) if receipt else None
    if (sheet := _add_key(visit, sheet)) is None:
        raise not_found_error()
    return _sheet_page(visit, sheet, sheet.draft, receipt=_receipt(receipt), undo=undo)


def _add_key(visit: LoggedInVisit, sheet: TaskPageContent | None) -> TaskPageContent | None:
    """Return the page of a task with the key of its form, which the first look at a pass writes.

    Called without a connection: where many people open pages at once, each would hold one and wait for a second one.
    """
    if sheet is None or sheet.key:
        return sheet
    with visit.project.writing() as connection:
        return submissions.add_pass_key(connection, visit.person, sheet)


@router.post("/tasks/{task}/{name}")
def post_pass_form(visit: Worker, task: str, name: str, fields: Fields) -> Response:
    """Submit a pass; the receipt appears only after the commit."""
    key, entries = _form(visit, task, name, fields)
    outcome = submissions.submit_pass_and_commit(visit.project, visit.person, task, name, entries, key)
    if outcome.receipt is not None:
        path = _take_next_path(visit) if outcome.finished else f"/tasks/{task}"
        return RedirectResponse(f"{path}?receipt={outcome.receipt}", status_code=303)
    if outcome.refusal is SubmissionRefusal.UNKNOWN:
        raise not_found_error()
    if outcome.refusal is SubmissionRefusal.CLOSED:
        return _closed_page(visit)
    # An invalid form is shown again with its entries and problems.
    with visit.project.reading() as connection:
        sheet = submissions.open_task_page(connection, visit.project, visit.person, task)
    sheet = _add_key(visit, sheet)
    return _closed_page(visit) if sheet is None else _sheet_page(visit, sheet, entries, outcome)


@router.post("/tasks/{task}/{name}/draft")
def post_pass_draft(visit: Worker, task: str, name: str, fields: Fields) -> Response:
    """Save a draft of the open pass."""
    _, entries = _form(visit, task, name, fields)
    with visit.project.writing() as connection:
        saved = submissions.save_pass_draft(connection, visit.person, task, name, entries)
    # 204 leaves the page as it is; 409 tells its script that the pass was closed meanwhile.
    return Response(status_code=204 if saved else 409)


@router.post("/tasks/{task}/{name}/undo")
def post_undo(visit: Worker, task: str, name: str, fields: Fields) -> Response:
    """Open the person's last pass again, if nothing was disclosed since."""
    return _open_amendment(visit, task, name, fields, undo.undo_last_pass)


def _open_amendment(
    visit: LoggedInVisit,
    task: str,
    name: str,
    fields: dict[str, str],
    reopen: Callable[[Connection, Person, str, str], str | None],
) -> Response:
    """Open a submitted pass for a change, and lead to its form."""
    take_form_fields(check_csrf_token(visit, fields))
    with visit.project.writing() as connection:
        reopening = reopen(connection, visit.person, task, name)
    if reopening is None:
        raise not_found_error()
    return RedirectResponse(f"/amend/{reopening}", status_code=303)


@router.get("/finished")
def show_completed_tasks(visit: Worker) -> Response:
    """Show the latest tasks with their questions and the person's own labels."""
    if visit.state.single is not None:
        return RedirectResponse("/labels", status_code=303)
    with visit.project.reading() as connection:
        html = render_annotation_page(
            "finished.html",
            **visit.context,
            tasks=undo.list_own_tasks(connection, visit.person),
        )
    return HTMLResponse(html)


@router.get("/amend/{reopening}")
def show_amendment_form(visit: Worker, reopening: str) -> HTMLResponse:
    """Show a submitted pass that may be changed."""
    with visit.project.reading() as connection:
        sheet = undo.open_pass_amendment(connection, visit.project, visit.person, reopening)
    if sheet is None:
        raise not_found_error()
    return _amendment_page(visit, sheet, sheet.draft, reopening)


@router.post("/amend/{reopening}")
def post_amendment_form(visit: Worker, reopening: str, fields: Fields) -> Response:
    """Submit an amended pass."""
    with visit.project.reading() as connection:
        sheet = undo.open_pass_amendment(connection, visit.project, visit.person, reopening)
    if sheet is None:
        raise not_found_error()
    _, entries = _split(check_csrf_token(visit, fields), sheet.steps or 1)
    try:
        with visit.project.writing() as connection:
            outcome = undo.submit_pass_amendment(connection, visit.project, visit.person, reopening, entries)
    except IntegrityError:
        return _closed_page(visit)
    if outcome.receipt is None:
        return _amendment_page(visit, sheet, entries, reopening, outcome)
    path = _next_path(visit) if visit.state.single is None else "/labels"
    return RedirectResponse(f"{path}?receipt={outcome.receipt}", status_code=303)


def require_single_user(visit: Worker) -> LoggedInVisit:
    """Return the visit of the single user; answer 404 on servers with accounts, where a submitted pass is closed."""
    if visit.state.single is None:
        raise not_found_error()
    return visit


Labeller = Annotated[LoggedInVisit, Depends(require_single_user)]


@router.get("/labels")
def show_own_labels(visit: Labeller) -> HTMLResponse:
    """Show the labels so far, with the question of each."""
    with visit.project.reading() as connection:
        progress = queues.read_task_progress(connection, visit.person)
        tasks = undo.list_own_tasks(connection, visit.person, most=progress.total)
    return HTMLResponse(render_annotation_page("finished.html", **visit.context, tasks=tasks))


@router.post("/labels/{task}/{name}/correct")
def post_own_correction(visit: Labeller, task: str, name: str, fields: Fields) -> Response:
    """Open a submitted pass for correction."""
    return _open_amendment(visit, task, name, fields, undo.reopen_own_pass)


@router.post("/labels/finish")
def post_finish(visit: Labeller, fields: Fields) -> HTMLResponse:
    """End the session: the command that started the server writes the labels."""
    take_form_fields(check_csrf_token(visit, fields))
    page = _labeller_home(visit, ended=True)
    visit.state.finished.set()
    return page


def _labeller_home(visit: LoggedInVisit, receipt: str | None = None, *, ended: bool = False) -> HTMLResponse:
    """Show progress, the next response, and the way to one's labels and to the end."""
    with visit.project.reading() as connection:
        task = queues.find_next_task(connection, visit.person.id)
        html = render_annotation_page(
            "label_home.html",
            **visit.context,
            progress=queues.read_task_progress(connection, visit.person),
            next_url=None if task is None else f"/tasks/{task}",
            receipt=receipt,
            opened=bool(undo.list_reopened_passes(connection, visit.person)),
            ended=ended,
        )
    return HTMLResponse(html)


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


def _sheet_page(
    visit: LoggedInVisit,
    sheet: TaskPageContent,
    entries: tuple[FormEntry, ...],
    outcome: PassSubmissionResult | None = None,
    *,
    template: str = "work.html",
    **values: str | None,
) -> HTMLResponse:
    """Show a pass with its entries, and the problems of a refused submission."""
    html = render_annotation_page(
        template,
        **visit.context,
        sheet=sheet,
        entries=entries,
        problems=() if outcome is None else outcome.problems,
        **{"receipt": None, "undo": None, **values},
    )
    return HTMLResponse(html, 200 if outcome is None else 422)


def _amendment_page(
    visit: LoggedInVisit,
    sheet: TaskPageContent,
    entries: tuple[FormEntry, ...],
    reopening: str,
    outcome: PassSubmissionResult | None = None,
) -> HTMLResponse:
    return _sheet_page(visit, sheet, entries, outcome, template="amend.html", action=f"/amend/{reopening}")


def _training_page(
    visit: LoggedInVisit,
    item: TrainingItem | None,
    answers: dict[str, str],
    *,
    label: str | None = None,
    results: tuple[TrainingProgress, ...] = (),
) -> HTMLResponse:
    """Render a practice example, with the given answer and the reason of the right one where there is an answer."""
    items = training.list_training_items(visit.person, visit.project.settings.practice)
    html = render_annotation_page(
        "training.html",
        **visit.context,
        item=item,
        label=label,
        answered=len(answers),
        correct=sum(answers.get(each.id) == each.label for each in items),
        total=len(items),
        results=results,
    )
    return HTMLResponse(html)


def _take_next_path(visit: LoggedInVisit) -> str:
    """Return the path of the person's next task, which an adjudicator takes from the queue; else of the overview."""
    if visit.person.role is not PersonRole.ADJUDICATOR:
        return _next_path(visit)
    # Each conflict means that another adjudicator has just taken the same subject; after three, the overview follows.
    for _ in range(3):
        try:
            with visit.project.writing() as connection:
                task = queues.take_next_task(connection, visit.person)
        except IntegrityError:
            continue
        return "/" if task is None else f"/tasks/{task}"
    return "/"


def _next_path(visit: LoggedInVisit) -> str:
    """Return the path of the person's next task; that of the overview where there is none."""
    with visit.project.reading() as connection:
        task = queues.find_next_task(connection, visit.person.id)
    return "/" if task is None else f"/tasks/{task}"


def _undo_url(connection: Connection, visit: LoggedInVisit) -> str | None:
    last = undo.find_undoable_pass(connection, visit.person)
    return None if last is None else f"/tasks/{last[0]}/{last[1]}/undo"


def _guidelines(connection: Connection, person: Person) -> tuple[tuple[AnnotationTaskKind, AnnotationPass], ...]:
    """Return the passes that a person works on, or all of the project for the lead."""
    everything = person.pool is AnnotatorPool.NONE
    kinds = connection.execute(_KINDS, {"pool": person.pool, "everything": everything}).scalars().all()
    return tuple((kind, form) for kind in map(AnnotationTaskKind, sorted(kinds)) for form in PASSES_BY_TASK_KIND[kind])


def _closed_page(visit: LoggedInVisit) -> HTMLResponse:
    return HTMLResponse(
        render_annotation_page("error.html", **visit.context, status=409, message=_CLOSED, back="/"), 409
    )


def _receipt(value: str) -> str | None:
    """Return the receipt of a URL if it is well-formed: no other text of a URL may appear on a page."""
    number, _, letters = value.partition("-")
    valid = number.isascii() and number.isdigit() and len(number) <= 20 and len(letters) == 12 and letters.isalnum()
    return value if valid and letters.isascii() else None


_KINDS = text("SELECT DISTINCT kind FROM annotate_tasks WHERE :everything OR pool = :pool")
