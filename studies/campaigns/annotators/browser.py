"""Minimal browser of a simulated annotator: one connection, one cookie, and the time of every request."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

PASSWORD = "nine lanterns beside a quiet harbour"
LOST = (OSError, HTTPException)
"""Errors of a broken connection."""

_FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
_NAMED = re.compile(r'<(?:script src|link rel="(?:icon|stylesheet)" href)="(/static/[^"]+)"')
# What is read of a page of work: the question, the trace as a whole where it is shown, and the one large form; nothing
# of passages and guidelines.
_PARTS = (('<div class="asked"', "</div>"), ('<section class="reasoning', "</section>"), ('<form id="form"', "</form>"))
_OPTIONAL_PART = '<section class="reasoning'


class Answer(NamedTuple):
    """Answer of the server."""

    status: int
    location: str | None
    text: str


class RequestTiming(NamedTuple):
    """Timed request: its purpose, when it was sent, how long it took, and the status of its answer."""

    kind: str
    at: float
    seconds: float
    status: int


@dataclass
class Form:
    """Form of a page."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    """Hidden fields, and choices made before."""
    choices: dict[str, list[str]] = field(default_factory=dict)
    """Values by the name of the radio buttons."""


class Reader(HTMLParser):
    """Parser of a page: its forms, and the texts that are to be labelled."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.words: list[str] = []
        """In their order: the question, then steps or the whole trace, then answers."""
        self._open = False
        for part in _parts(text):
            self.feed(part)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(attributes.get("action", "")))
        elif tag == "input" and self.forms and "name" in attributes:
            self._input(attributes, self.forms[-1])
        if "words" in attributes.get("class", "").split():
            self.words.append("")
            self._open = True

    def _input(self, attributes: dict[str, str], form: Form) -> None:
        name, value = attributes["name"], attributes.get("value", "")
        if attributes.get("type") == "radio":
            form.choices.setdefault(name, []).append(value)
        if attributes.get("type") != "radio" or "checked" in attributes:
            form.fields[name] = value

    def handle_endtag(self, tag: str) -> None:
        if tag in ("p", "span"):
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.words[-1] += data


def _parts(text: str) -> list[str]:
    """Return the parts of a labelling page that are parsed; of any other page the whole text."""
    parts = []
    for start, end in _PARTS:
        if (at := text.find(start)) < 0:
            if start == _OPTIONAL_PART:
                continue
            return [text]
        parts.append(text[at : text.index(end, at) + len(end)])
    return parts


class Browser:
    """Browser of one person."""

    def __init__(self, origin: str, *, static: bool = False, timeout: float = 60.0) -> None:
        where = urlsplit(origin)
        assert where.hostname is not None
        self._connection = HTTPConnection(where.hostname, where.port, timeout=timeout)
        self._static = static
        """Whether it fetches scripts and styles with every page, as it must where nothing may be kept."""
        self._cookie: str | None = None
        self.timings: list[RequestTiming] = []

    def get(self, path: str, kind: str) -> Answer:
        answer = self._ask("GET", path, kind)
        if self._static:
            for named in _NAMED.findall(answer.text):
                self._ask("GET", named, "static")
        return answer

    def post(self, path: str, fields: dict[str, str], kind: str) -> Answer:
        return self._ask("POST", path, kind, urlencode(fields).encode())

    def join(self, link: str) -> None:
        """Accept an invitation with a password."""
        path = urlsplit(link).path
        form = next(candidate for candidate in Reader(self.get(path, "enter").text).forms if candidate.action == path)
        answer = self.post(path, {"password": PASSWORD, "again": PASSWORD}, "enter")
        assert form.fields.keys() >= {"password", "again"}
        assert (answer.status, answer.location) == (303, "/"), answer.text

    def log_in(self, name: str) -> None:
        """Log in by name and password."""
        form = next(
            candidate for candidate in Reader(self.get("/login", "enter").text).forms if candidate.action == "/login"
        )
        assert form.fields.keys() >= {"name", "password"}
        answer = self.post("/login", {"name": name, "password": PASSWORD}, "enter")
        assert (answer.status, answer.location) == (303, "/"), answer.text

    def close(self) -> None:
        self._connection.close()

    def _ask(self, method: str, path: str, kind: str, body: bytes | None = None) -> Answer:
        headers = dict(_FORM_HEADERS) if body is not None else {}
        if self._cookie is not None:
            headers["Cookie"] = self._cookie
        began = time.perf_counter()
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            read = response.read()
        except LOST:
            # The connection cannot be used again; the next request opens another.
            self._connection.close()
            raise
        self.timings.append(RequestTiming(kind, began, time.perf_counter() - began, response.status))
        if (cookie := response.getheader("Set-Cookie")) is not None:
            self._cookie = cookie.partition(";")[0]
        return Answer(response.status, response.getheader("Location"), read.decode())
