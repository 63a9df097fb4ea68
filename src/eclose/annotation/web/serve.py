"""Run the server: one process that listens on the loopback address; other machines reach it through a proxy."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eclose.annotation.web.app import build_annotation_app
from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import uvicorn

    from eclose.annotation.web.dependencies import AnnotationServerState

LOOPBACK = "127.0.0.1"
_LOCAL_NAMES = ("127.0.0.1", "localhost")
_POLL, _LINGER = 1.0, 3.0
"""Seconds between checks whether all is finished, and between that and the end."""


def build_server_url(public_url: str | None, port: int) -> str:
    """Return the URL of the server without a trailing slash; raise where ``public_url`` is not the URL of a host."""
    if public_url is None:
        return f"http://{LOOPBACK}:{port}"
    parts = urlsplit(public_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise SettingError(
            f"--public-url {public_url}: is not the URL of a server. Write it like https://annotate.example.org"
        )
    return f"{parts.scheme}://{parts.netloc}"


def serve_annotation(
    state: AnnotationServerState,
    *,
    port: int,
    public_url: str | None = None,
    ready: Callable[[str], None] = lambda _url: None,
    is_finished: Callable[[], bool] | None = None,
) -> None:
    """Serve until interrupted, or until ``is_finished`` returns True. ``ready`` gets the URL when the port is open."""
    import uvicorn  # noqa: PLC0415 - a second to load

    with _listen(port) as listener:
        url = build_server_url(public_url, listener.getsockname()[1])
        hosts = _LOCAL_NAMES if public_url is None else (*_LOCAL_NAMES, urlsplit(url).hostname or "")
        config = uvicorn.Config(
            build_annotation_app(replace(state, tls=url.startswith("https")), hosts=hosts),
            log_level="warning",
            # URLs hold the tokens of invitations, which must not be logged.
            access_log=False,
            server_header=False,
            # Only a proxy may state the address of the client.
            proxy_headers=public_url is not None,
            forwarded_allow_ips=LOOPBACK,
            timeout_keep_alive=30,
            # Further requests get 503 instead of filling the memory.
            limit_concurrency=500,
        )
        server = uvicorn.Server(config)
        if is_finished is not None:
            Thread(target=_stop_when, args=(is_finished, server), daemon=True).start()
        ready(url)
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            # The normal way to stop; uvicorn has completed the open requests.
            return


def _stop_when(is_finished: Callable[[], bool], server: uvicorn.Server) -> None:
    while not is_finished():
        sleep(_POLL)
    # Time for the browser to load the last page.
    sleep(_LINGER)
    server.should_exit = True


@contextmanager
def _listen(port: int) -> Iterator[socket.socket]:
    # With the protocol stated, asyncio sets TCP_NODELAY; without, small packets wait 40 ms with every page.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        # A restarted server can use its port at once.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            raise UserError(f"port {port}: cannot be used ({error.strerror}). Choose another with --port.") from error
        # Bound and listening before ready() prints the URL: the first request cannot come too early.
        listener.listen(128)
        yield listener
