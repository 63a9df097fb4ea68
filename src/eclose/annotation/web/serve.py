"""Run the server: one process, on this machine alone, with a proxy before it where others are to reach it."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eclose.annotation.web.app import build
from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import uvicorn

    from eclose.annotation.web.dependencies import House

LOOPBACK = "127.0.0.1"
_LOCAL_NAMES = ("127.0.0.1", "localhost")
_LOOK_AGAIN, _LINGER = 1.0, 3.0
"""Seconds."""


def address(public_url: str | None, port: int) -> str:
    """Where people find the server, without a slash at its end."""
    if public_url is None:
        return f"http://{LOOPBACK}:{port}"
    parts = urlsplit(public_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise SettingError(f"{public_url}: is no address of a server. Write it like https://annotate.example.org")
    return f"{parts.scheme}://{parts.netloc}"


def serve(
    house: House,
    *,
    port: int,
    public_url: str | None = None,
    ready: Callable[[str], None] = lambda _url: None,
    done: Callable[[], bool] | None = None,
) -> None:
    """Answer until told to stop, or until all is done. ``ready`` is told the address, once requests are accepted."""
    import uvicorn  # noqa: PLC0415 - a second to load

    with _listening(port) as listener:
        where = address(public_url, listener.getsockname()[1])
        hosts = _LOCAL_NAMES if public_url is None else (*_LOCAL_NAMES, urlsplit(where).hostname or "")
        config = uvicorn.Config(
            build(replace(house, tls=where.startswith("https")), hosts=hosts),
            log_level="warning",
            # Addresses hold the tokens of invitations: they are in no log.
            access_log=False,
            server_header=False,
            # A proxy says for whom it asks; without one nobody is believed.
            proxy_headers=public_url is not None,
            forwarded_allow_ips=LOOPBACK,
            timeout_keep_alive=30,
            limit_concurrency=500,
        )
        server = uvicorn.Server(config)
        if done is not None:
            Thread(target=_stop_when, args=(done, server), daemon=True).start()
        ready(where)
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            # The server has answered what it had begun; that is how it is stopped.
            return


def _stop_when(done: Callable[[], bool], server: uvicorn.Server) -> None:
    while not done():
        sleep(_LOOK_AGAIN)
    # The last page is still to be shown.
    sleep(_LINGER)
    server.should_exit = True


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    # Said to be TCP, or asyncio leaves small packets to wait for each other: 40 ms with every page.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            raise UserError(f"port {port}: cannot be used ({error.strerror}). Choose another with --port.") from error
        listener.listen(128)
        yield listener
