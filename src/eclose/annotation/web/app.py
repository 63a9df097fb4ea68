"""The application: its pages, its guard, and what it answers when something goes wrong."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles

from eclose.annotation.audit_log import now
from eclose.annotation.web import annotator, auth, lead
from eclose.annotation.web.dependencies import LoginNeeded
from eclose.annotation.web.pages import page
from eclose.annotation.web.security import Guard

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp

    from eclose.annotation.web.dependencies import House

_LOG = logging.getLogger(__name__)


def build(house: House, *, hosts: Collection[str]) -> ASGIApp:
    """The server's application. It answers to these names alone."""
    # No page that tells what there is, and no schema: this is not an interface for programs.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.house = house
    for part in (auth, annotator, lead):
        app.include_router(part.router)
    app.mount("/static", StaticFiles(packages=[("eclose.annotation.web", "static")]))
    app.add_exception_handler(LoginNeeded, _to_login)
    app.add_exception_handler(HTTPException, _told)
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _broken)
    return Guard(app, hosts=hosts, tls=house.tls)


def _to_login(request: Request, _error: Exception) -> Response:
    """A page sends people to the door; what a script asks for says no, lest it take the door for an answer."""
    if request.headers.get("hx-request"):
        return Response(status_code=401)
    return RedirectResponse("/login", status_code=303)


def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    route = request.scope.get("route")
    if route is not None:
        # By the pattern of its address: an address itself may hold a token.
        who = getattr(request.state, "person", "nobody")
        _LOG.warning("%s: %s for %s at %s %s", now(), error.status_code, who, request.method, route.path)
    words = {"Not Found": "There is nothing here.", "Method Not Allowed": "This is not done here."}
    return _page(request, error.status_code, words.get(error.detail, error.detail))


def _misread(request: Request, _error: Exception) -> Response:
    return _page(request, 422, "This request cannot be read.")


def _gone(_request: Request, _error: Exception) -> Response:
    """A browser went away in the middle of a form. Nobody reads the answer, and it is no fault to be logged."""
    return Response(status_code=400)


def _broken(request: Request, error: Exception) -> Response:
    """A bug: the log has it, the page does not."""
    _LOG.error("a page could not be made", exc_info=error)
    return _page(request, 500, "Something went wrong here. What you submitted before is safe; try again.")


def _page(request: Request, status: int, message: str) -> HTMLResponse:
    name = request.app.state.house.project.settings.name
    words = page("error.html", project=name, person=None, csrf=None, status=status, message=message, back="/")
    return HTMLResponse(words, status)
