"""Run the server: one process that listens on the loopback address; other machines reach it through a proxy."""

from __future__ import annotations

import html
import json
import socket
import webbrowser
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sqlalchemy import text

from eclose.calls.ledger.database import WriterLock
from eclose.errors import SettingError, UserError
from eclose.files.atomic import AtomicFile, owner_only
from eclose.local_server import list_own_hosts
from eclose_annotate.events import LEAD_NAME, append_audit_event
from eclose_annotate.project import SETTINGS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import uvicorn
    from sqlalchemy import Connection

    from eclose_annotate.web.connections import ConnectionLimits
    from eclose_annotate.web.dependencies import AnnotationServerState

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8300
"""Fixed, because the invitation links that init prints must name the port that serve opens later."""
BROWSER_FILE = "open.html"
"""File that leads the browser to a URL with a secret."""
_POLL, _LINGER = 1.0, 3.0
"""Seconds between checks whether all is finished, and between that and the end."""


@dataclass(frozen=True, slots=True)
class AnnotationAddress:
    """The address under which people reach the server of a project."""

    port: int = DEFAULT_PORT
    public_url: str | None = None
    """URL of a proxy in front of the server."""
    insecure_http: bool = False
    """Whether ``public_url`` may be without TLS, although passwords then cross the network in clear text."""

    @property
    def url(self) -> str:
        """The URL without a trailing slash; raises where ``public_url`` is not an acceptable URL of a host."""
        return build_server_url(self.public_url, self.port, insecure_http=self.insecure_http)


def save_server_address(connection: Connection, address: AnnotationAddress) -> None:
    """Store the address with which a project was created: later invitations use it."""
    value = {"port": address.port, "public_url": address.public_url, "insecure_http": address.insecure_http}
    connection.execute(_SAVE_ADDRESS, {"value": json.dumps(value)})
    append_audit_event(connection, LEAD_NAME, "set address", detail={"url": address.url})


def read_server_address(
    connection: Connection, port: int | None, public_url: str | None, *, insecure_http: bool
) -> AnnotationAddress:
    """Return the address of a project: missing parts are those given when the project was created."""
    stored = connection.execute(_ADDRESS).scalar_one_or_none()
    address = AnnotationAddress() if stored is None else AnnotationAddress(**json.loads(stored))
    if public_url is not None:
        address = replace(address, public_url=public_url, insecure_http=insecure_http)
    return address if port is None else replace(address, port=port)


def build_server_url(public_url: str | None, port: int, *, insecure_http: bool = False) -> str:
    """Return the URL of the server without a trailing slash; raise where ``public_url`` is not an acceptable one."""
    if public_url is None:
        return f"http://{LOOPBACK}:{port}"
    parts = urlsplit(public_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise SettingError(
            f"--public-url {public_url}: is not the URL of a server. Write it like https://annotate.example.org"
        )
    if parts.scheme == "http" and parts.hostname not in (LOOPBACK, "localhost", "::1") and not insecure_http:
        raise SettingError(
            f"--public-url {public_url}: passwords and cookies would cross the network in clear text. Use https://,"
            " or set insecure_http: true in a recipe, in a network that you trust."
        )
    return f"{parts.scheme}://{parts.netloc}"


def serve_annotation(
    state: AnnotationServerState,
    *,
    port: int,
    public_url: str | None = None,
    insecure_http: bool = False,
    ready: Callable[[str], None] = lambda _url: None,
    is_finished: Callable[[], bool] | None = None,
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve until interrupted, or until ``is_finished`` returns True. ``ready`` gets the URL when the port is open."""
    import uvicorn  # noqa: PLC0415 - a second to load

    from eclose_annotate.web.app import build_annotation_app  # noqa: PLC0415 - as above
    from eclose_annotate.web.connections import ConnectionLimits, limited_protocol  # noqa: PLC0415 - as above

    with _listen(port) as listener, WriterLock(state.project.folder / SETTINGS_FILE, "annotation server"):
        url = build_server_url(public_url, listener.getsockname()[1], insecure_http=insecure_http)
        served = replace(state, tls=url.startswith("https"), url=url)
        config = uvicorn.Config(
            build_annotation_app(served, hosts=_host_names(public_url, listener.getsockname()[1])),
            http=limited_protocol(limits or ConnectionLimits()),
            log_level="warning",
            # URLs hold the tokens of invitations, which must not be logged.
            access_log=False,
            server_header=False,
            # Only a proxy may state the address of the client.
            proxy_headers=public_url is not None,
            forwarded_allow_ips=LOOPBACK,
            timeout_keep_alive=30,
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
        finally:
            (state.project.folder / BROWSER_FILE).unlink(missing_ok=True)


def open_in_browser(url: str, folder: Path) -> None:
    """Open a URL with a secret in the browser of this machine, by a file of ``folder`` that only its owner can read.

    The command line of a browser is visible to all users of the machine; it names the file, not the URL.
    """
    page = folder / BROWSER_FILE
    target = html.escape(url)
    text_of_page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={target}">\n'
    with owner_only(), AtomicFile(page) as file:
        file.write(text_of_page.encode())
    webbrowser.open(page.resolve().as_uri())


def _host_names(public_url: str | None, port: int) -> tuple[str, ...]:
    names = tuple(list_own_hosts(LOOPBACK, port))
    if public_url is None:
        return names
    parts = urlsplit(public_url)
    # A proxy may pass the host name on without the port.
    return (*names, parts.netloc, parts.hostname or "")


def _stop_when(is_finished: Callable[[], bool], server: uvicorn.Server) -> None:
    while not is_finished():
        sleep(_POLL)
    # Time for the browser to load the last page.
    sleep(_LINGER)
    server.should_exit = True


def require_free_port(port: int) -> None:
    """Raise UserError where the server could not listen at a port of this machine."""
    with _listen(port):
        pass


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


_SAVE_ADDRESS = text("INSERT INTO annotate_settings (name, value) VALUES ('address', :value)")
_ADDRESS = text("SELECT value FROM annotate_settings WHERE name = 'address'")
