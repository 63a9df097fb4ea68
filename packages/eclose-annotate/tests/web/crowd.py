"""Everybody before one application: who asks, with which cookie, and what the application says."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlencode

from starlette.datastructures import Headers

from eclose_annotate.web.app import build_annotation_app
from eclose_annotate.web.dependencies import AnnotationServerState
from tests.web.canaries import NOBODY, Study

FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass
class Answer:
    """What the application said."""

    status_code: int
    headers: Headers
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()


class Crowd:
    """Everybody before one application, and whoever has no account. Asks it directly: a socket has its own tests."""

    def __init__(self, one: Study, app, runner: asyncio.Runner, *, cookie: str = "eclose") -> None:
        self.study, self.app, self._runner, self._cookie = one, app, runner, cookie

    def get(self, nick: str, path: str, **headers: str) -> Answer:
        return self.ask("GET", nick, path, b"", headers)

    def post(self, nick: str, path: str, fields=(), *, csrf: str | None = "own", **headers: str) -> Answer:
        """Send a form: with the session's own token, with another text in its place, or without (None)."""
        form = dict(fields)
        if csrf is not None:
            form = {"csrf": self.study.csrf(nick) if csrf == "own" else csrf, **form}
        return self.ask("POST", nick, path, urlencode(form, errors="surrogatepass").encode(), FORM | headers)

    def ask(self, method: str, nick: str, path: str, body: bytes = b"", headers=()) -> Answer:
        """Ask for anything; a header that is None is left out."""
        fields = {"host": "127.0.0.1", "sec-fetch-site": "same-origin", "content-length": str(len(body))}
        if nick != NOBODY:
            fields["cookie"] = f"{self._cookie}={self.study.keys[nick]}"
        fields |= dict(headers)
        sent = [(name.encode(), value.encode("latin-1")) for name, value in fields.items() if value is not None]
        return self._runner.run(asked(self.app, method, path, sent, [body]))


async def asked(app, method: str, path: str, headers, body: list[bytes], client=("127.0.0.1", 50000)) -> Answer:
    """One request as a server hands it to the application."""
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(where),
        "raw_path": where.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": client,
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    pending, messages = list(body), []

    async def receive():
        if not pending:
            # Whoever waits for the other side to go waits until it has answered.
            await asyncio.Event().wait()
        part = pending.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(pending)}

    async def send(message):
        messages.append(message)

    # A bug is answered, and then raised for the server's log.
    with suppress(Exception):
        await app(scope, receive, send)
    if not messages:
        return Answer(0, Headers(), b"")
    content = b"".join(message.get("body", b"") for message in messages[1:])
    return Answer(messages[0]["status"], Headers(raw=messages[0]["headers"]), content)


@contextmanager
def crowd(one: Study, **house):
    """Everybody, before an application in this process."""
    state = AnnotationServerState(one.project, **house)
    with asyncio.Runner() as runner:
        yield Crowd(one, build_annotation_app(state, hosts=("127.0.0.1",)), runner, cookie=state.cookie)


def routes(app) -> list[tuple[str, str]]:
    """Every method and path of the application, asked of the application itself."""
    inner = app._app
    addresses = [(method.upper(), path) for path, methods in inner.openapi()["paths"].items() for method in methods]
    hidden = [
        route
        for part in inner.routes
        for route in getattr(getattr(part, "original_router", None), "routes", ())
        if not route.include_in_schema
    ]
    others = {getattr(part, "path", None) for part in inner.routes if not hasattr(part, "original_router")}
    assert not hidden, "a route that is not listed is not looked at"
    assert others == {"/static"}, f"looked at nowhere: {others}"
    return addresses
