"""Serve the page of a run on this machine: read only, on the loopback address, at an address with a secret."""

from __future__ import annotations

import secrets
import socket
from threading import Thread
from typing import TYPE_CHECKING

from eclose.diagnosis.report.view.query import ResponseQuery, ViewIndex
from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = "127.0.0.1"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Keys of the address that are not facets, as the page sends them.
_OTHER_KEYS = frozenset({"first", "r", "q", "passages", "sort", "score", "min", "max"})


def import_server() -> None:
    """Import the libraries of the server; raise ImportError where the extra is not installed."""
    import starlette  # noqa: F401, PLC0415
    import uvicorn  # noqa: F401, PLC0415


def build_view_app(index: ViewIndex, token: str, hosts: tuple[str, ...] = (LOOPBACK, "localhost")) -> Starlette:
    """Return the web application: the page, pages of the list, and blocks of details, below a secret path.

    Other users of the machine can reach the port, so that every address begins with the token.
    """
    from starlette.applications import Starlette  # noqa: PLC0415 - an extra
    from starlette.middleware import Middleware  # noqa: PLC0415
    from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: PLC0415
    from starlette.responses import HTMLResponse, JSONResponse, Response  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    # Plain functions run in threads, so that a search does not hold up the page.
    def page(_: Request) -> Response:
        return HTMLResponse(index.read_fact("page"), headers=_HEADERS)

    def rows(request: Request) -> Response:
        parameters = request.query_params
        try:
            query, first = parse_response_query(parameters), int(parameters.get("first", "0"))
        except ValueError:
            return Response("The address is not one of this page.", 400, _HEADERS)
        return JSONResponse(index.read_page(query, first, response_id=parameters.get("r")), headers=_HEADERS)

    def block(request: Request) -> Response:
        data = index.read_block(request.path_params["name"])
        if data is None:
            return Response("There is no such block.", 404, _HEADERS)
        return Response(data, media_type="application/octet-stream", headers=_HEADERS)

    routes = [
        Route(f"/{token}/", page),
        Route(f"/{token}/rows", rows),
        Route(f"/{token}/block/{{name}}", block),
    ]
    # A page of another site that gives its own name this address sends that name.
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))])


def parse_response_query(parameters: Mapping[str, str]) -> ResponseQuery:
    """Return the query of an address; raise ValueError where a bound is not a number."""
    lowest, highest = (float(parameters[name]) if parameters.get(name) else None for name in ("min", "max"))
    return ResponseQuery(
        choices={name: value for name, value in parameters.items() if name not in _OTHER_KEYS},
        search=parameters.get("q", ""),
        in_passages=bool(parameters.get("passages")),
        sort=parameters.get("sort", "worst"),
        score=parameters.get("score", ""),
        lowest=lowest,
        highest=highest,
    )


class RunView:
    """A running server of a page; a context manager that ends it.

    Attributes:
        url: Address of the page, with its secret.
    """

    def __init__(self, url: str, server: uvicorn.Server, thread: Thread, index: ViewIndex) -> None:
        """Hold a server that runs in a thread."""
        self.url = url
        self._server, self._thread, self._index = server, thread, index

    def wait(self) -> None:
        """Wait until the server ends, by ``close`` or by an interrupt."""
        # With a limit: a thread that is waited for without one takes no Ctrl+C on some systems.
        while self._thread.is_alive():
            self._thread.join(0.5)

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        # Requests under way are finished, none takes longer.
        self._thread.join(10)
        self._index.close()

    def __enter__(self) -> RunView:
        """Return the view."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the server."""
        self.close()


def serve_view(index: ViewIndex, port: int = 0) -> RunView:
    """Start a server of an index in a thread, and return it once it listens.

    Args:
        index: The index of a run, with its page.
        port: Port on this machine; 0 takes any free one.

    Raises:
        UserError: The port is in use.
    """
    import uvicorn  # noqa: PLC0415 - an extra

    # With the protocol stated, asyncio sets TCP_NODELAY; without, small packets wait 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise UserError(f"port {port}: cannot be used ({error.strerror}). Choose another with --port.") from error
    listener.listen(128)
    token = secrets.token_urlsafe(24)
    config = uvicorn.Config(
        # The address holds the secret, which must not be logged.
        build_view_app(index, token), log_level="warning", access_log=False, server_header=False, proxy_headers=False
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True, name="eclose view")
    thread.start()
    return RunView(f"http://{LOOPBACK}:{listener.getsockname()[1]}/{token}/", server, thread, index)
