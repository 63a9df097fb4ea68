"""The ASGI application: routes, static files, error pages and security middleware."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from eclose_annotate.events import current_timestamp
from eclose_annotate.web import annotator, auth, lead
from eclose_annotate.web.dependencies import ExplainedHTTPError, LoginNeededError
from eclose_annotate.web.pages import render_annotation_page
from eclose_annotate.web.security import STATIC_PATH, SecurityMiddleware
from eclose_annotate.web.static_files import StaticFileApp

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp

    from eclose_annotate.web.dependencies import AnnotationServerState

_LOG = logging.getLogger(__name__)


def build_annotation_app(state: AnnotationServerState, *, hosts: Collection[str]) -> ASGIApp:
    """Build the application, which answers only to these host names."""
    # No API documentation: the pages are not an interface for programs.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.server = state
    # Plain functions run in a thread pool, so blocking database calls do not stop the event loop.
    for part in (auth, annotator, lead):
        app.include_router(part.router)
    app.mount(STATIC_PATH.rstrip("/"), StaticFileApp())
    app.add_exception_handler(LoginNeededError, _redirect_to_login)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(ClientDisconnect, _disconnected)
    app.add_exception_handler(Exception, _internal_error)
    # Outermost: also around the error handlers.
    return SecurityMiddleware(app, hosts=hosts, tls=state.tls)


def _redirect_to_login(request: Request, _error: Exception) -> Response:
    """Redirect page requests to /login; answer htmx requests with 401, which must not swap in the login page."""
    if request.headers.get("hx-request"):
        return Response(status_code=401)
    return RedirectResponse("/login", status_code=303)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    route = request.scope.get("route")
    if route is not None:
        # The pattern of the route, since the URL itself may hold a token.
        who = getattr(request.state, "person", "anonymous")
        _LOG.warning("%s: %s for %s at %s %s", current_timestamp(), error.status_code, who, request.method, route.path)
    messages = {"Not Found": "There is nothing here.", "Method Not Allowed": "This method is not allowed here."}
    texts = error.texts if isinstance(error, ExplainedHTTPError) else {}
    return _error_page(request, error.status_code, messages.get(error.detail, error.detail), **texts)


def _invalid_request(request: Request, _error: Exception) -> Response:
    return _error_page(request, 422, "This request cannot be read.")


def _disconnected(_request: Request, _error: Exception) -> Response:
    """Answer a browser that disconnected while sending a form; this is not an error to log."""
    return Response(status_code=400)


def _internal_error(request: Request, error: Exception) -> Response:
    """Log an unexpected error; the page does not reveal it."""
    _LOG.error("a page could not be rendered", exc_info=error)
    return _error_page(request, 500, "Something went wrong on the server. Submitted passes are safe; try again.")


def _error_page(request: Request, status: int, message: str, **texts: str) -> HTMLResponse:
    context = {
        "project": request.app.state.server.project.settings.name,
        "person": None,
        "csrf": None,
        "back": "/",
        **texts,
    }
    return HTMLResponse(render_annotation_page("error.html", **context, status=status, message=message), status)
