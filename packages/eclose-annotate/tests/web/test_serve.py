"""The server as ``serve_annotation`` runs it: its names, its limits, its links, and clients behind a proxy."""

from __future__ import annotations

import http.client
import re
import socket
from contextlib import contextmanager
from queue import Queue
from threading import Event, Thread
from urllib.parse import urlencode, urlsplit

import pytest

from eclose.errors import UserError
from eclose_annotate.web import serve
from eclose_annotate.web.connections import ConnectionLimits
from eclose_annotate.web.dependencies import AnnotationServerState
from tests.web.crowd import FORM
from tests.web.test_wire import closed
from tests.web.trying import PASSWORD, give_passwords

PUBLIC = "https://annotate.example.org"
HOME, STRANGER = "198.51.100.7", "203.0.113.9"
HASTY = ConnectionLimits(header_seconds=0.3, body_seconds=0.5, incomplete=5)


@pytest.fixture
def running(one, monkeypatch):
    """Return a context manager that runs the server of the study and yields its port."""
    monkeypatch.setattr(serve, "_POLL", 0.02)
    monkeypatch.setattr(serve, "_LINGER", 0.0)
    ports, ready, open_socket = Queue(), Queue(), serve._listen

    # The URL that a server reports may be that of a proxy, so the port is read from the socket.
    @contextmanager
    def listen(port):
        with open_socket(port) as listener:
            ports.put(listener.getsockname()[1])
            yield listener

    monkeypatch.setattr(serve, "_listen", listen)

    @contextmanager
    def run(**settings):
        event = Event()
        options = {"port": 0, "is_finished": event.is_set, "ready": ready.put, **settings}
        state = AnnotationServerState(one.project)
        thread = Thread(target=serve.serve_annotation, args=(state,), kwargs=options, daemon=True)
        thread.start()
        try:
            ready.get(timeout=20)  # the port opens before the lock is taken
            yield ports.get(timeout=20)
        finally:
            event.set()
            thread.join(20)
        assert not thread.is_alive()

    return run


def ask(port, method, path, fields=None, **headers):
    """Send a request; return status and text of the answer."""
    connection = http.client.HTTPConnection(serve.LOOPBACK, port, timeout=20)
    body = None if fields is None else urlencode(fields)
    connection.request(method, path, body, {"sec-fetch-site": "same-origin", **(FORM if body else {}), **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def log_in(port, one, nick, password=PASSWORD, **headers):
    return ask(port, "POST", "/login", {"csrf": "", "name": one.names[nick], "password": password}, **headers)[0]


def test_the_server_answers_to_its_own_port_alone(running):
    with running() as port:
        names = (f"127.0.0.1:{port}", f"localhost:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", "attacker.example")
        assert [ask(port, "GET", "/login", host=name)[0] for name in names] == [200, 200, 421, 421, 421]


def test_half_a_request_is_closed_by_the_limits_of_the_server(running):
    with running(limits=HASTY) as port, socket.create_connection((serve.LOOPBACK, port), timeout=5) as slow:
        slow.sendall(b"GET /login HTT")
        assert closed(slow)


def test_second_server_of_a_project_is_refused(one, running):
    with running(), pytest.raises(UserError, match=r"process \d+ .*annotation server.* is writing to it"):
        serve.serve_annotation(AnnotationServerState(one.project), port=0, is_finished=lambda: True)


@pytest.mark.parametrize("public_url", [None, PUBLIC])
def test_links_of_the_dashboard_name_the_server(one, running, public_url):
    with running(public_url=public_url) as port:
        url = public_url or f"http://127.0.0.1:{port}"
        cookie = f"__Host-eclose={one.keys['lea']}" if public_url else f"eclose-{port}={one.keys['lea']}"
        fields = {"csrf": one.csrf("lea"), "names": "zoe", "role": "adjudicator"}
        headers = {"host": urlsplit(url).netloc, "cookie": cookie}
        status, page = ask(port, "POST", "/dashboard/invite", fields, **headers)
    assert status == 200
    assert re.findall(r"(\S+)/invitation/[\w-]{43}", re.sub(r"<[^>]+>", " ", page)) == [url]


@pytest.mark.slow
def test_guesses_of_a_stranger_behind_the_proxy_delay_only_the_stranger(one, running):
    give_passwords(one, "lea")
    with running(public_url=PUBLIC) as port:
        proxied = {"host": "annotate.example.org", "x-forwarded-proto": "https"}
        guesses = [log_in(port, one, "lea", "wrong", **proxied, **{"x-forwarded-for": STRANGER}) for _ in range(6)]
        own = log_in(port, one, "lea", **proxied, **{"x-forwarded-for": HOME})
    assert guesses == [401] * 5 + [429]
    assert own == 303


def test_without_a_proxy_a_client_cannot_name_its_own_address(one, running):
    with running() as port:
        named = [{"x-forwarded-for": f"203.0.113.{number}"} for number in range(6)]
        assert [log_in(port, one, "lea", "wrong", **header) for header in named] == [401] * 5 + [429]
