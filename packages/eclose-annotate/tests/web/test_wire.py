"""A server on a socket: bodies that dawdle, lie or never end, and headers that are too long."""

from __future__ import annotations

import http.client
import socket
from contextlib import ExitStack, suppress
from time import perf_counter, sleep

import pytest

from eclose_annotate.web.connections import ConnectionLimits
from tests.web.canaries import study
from tests.web.crowd import FORM
from tests.web.doubles import HOST, served


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    with study(tmp_path_factory.mktemp("wire") / "study") as small_study:
        yield small_study


@pytest.fixture(scope="module")
def port(one):
    with served(one.project) as tcp_port:
        yield tcp_port


def raw(port, data, *, wait=5.0):
    """What a server says to some bytes, until it has nothing more to say."""
    with socket.create_connection((HOST, port), timeout=wait) as connection:
        connection.sendall(data)
        response = b""
        try:
            while part := connection.recv(65536):
                response += part
                if b"\r\n\r\n" in response:
                    break
        except (TimeoutError, ConnectionError):
            pass
    return response


def head(one, nick="eve", path="/take", **headers):
    fields = {"Host": HOST, "Cookie": f"eclose={one.keys[nick]}", "Content-Type": FORM["content-type"], **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def alive(port):
    connection = http.client.HTTPConnection(HOST, port, timeout=20)
    connection.request("GET", "/login")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status == 200


def test_a_body_in_pieces_of_unknown_length_is_refused(one, port):
    body = f"csrf={one.csrf('eve')}".encode()
    pieces = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert raw(port, head(one, **{"Transfer-Encoding": "chunked"}) + pieces).startswith(b"HTTP/1.1 413")
    # A made-up length beside the pieces does not make the length known.
    both = head(one, **{"Transfer-Encoding": "chunked", "Content-Length": "5"}) + pieces
    assert raw(port, both).startswith(b"HTTP/1.1 400")
    assert alive(port)


def test_two_lengths_are_refused_and_what_follows_is_not_answered(one, port):
    """Otherwise a proxy that reads the other length would take a part of the body for the request of another person."""
    inner = b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    both = head(one, **{"Transfer-Encoding": "chunked", "Content-Length": "5"}) + b"0\r\n\r\n" + inner
    answer = until_closed(port, both)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1 ") == 1


def until_closed(port, data, *, wait=5.0):
    """All bytes until the server closes the connection."""
    with socket.create_connection((HOST, port), timeout=wait) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture(scope="module")
def hasty(one):
    """The port of a server with small limits."""
    with served(one.project, limits=ConnectionLimits(header_seconds=0.3, body_seconds=0.5, incomplete=5)) as tcp_port:
        yield tcp_port


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /login HTT", b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\nX: 1\r\n", "body"],
    ids=["nothing", "first line", "headers", "body"],
)
def test_half_a_request_is_closed_after_some_time(one, hasty, begun):
    data = head(one, **{"Content-Length": "100"}) + b"csrf=" if begun == "body" else begun
    start = perf_counter()
    with socket.create_connection((HOST, hasty), timeout=5) as slow:
        slow.sendall(data)
        assert closed(slow)
    assert 0.2 < perf_counter() - start < 4


def test_half_a_request_on_a_used_connection_is_closed_after_some_time(hasty):
    with socket.create_connection((HOST, hasty), timeout=5) as slow:
        slow.sendall(b"HEAD /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert slow.recv(65536).startswith(b"HTTP/1.1 200")
        slow.sendall(b"GET /login HTT")
        assert closed(slow)


def test_a_drop_at_a_time_does_not_prolong_a_request(hasty):
    with socket.create_connection((HOST, hasty), timeout=5) as slow:
        slow.sendall(b"GET /login HTTP/1.1\r\n")
        start = perf_counter()
        with suppress(ConnectionError):
            while perf_counter() - start < 4:
                slow.sendall(b"X: 1\r\n")
                sleep(0.05)
        assert perf_counter() - start < 3


@pytest.mark.parametrize("what", ["headers", "body"])
def test_many_half_requests_shut_nobody_out(one, what):
    """Twenty times as many as there is room for, with time limits that do not help."""
    with served(one.project, limits=ConnectionLimits(60, 60, incomplete=5)) as roomy, ExitStack() as stack:
        data = b"GET /login HTTP/1.1\r\n" if what == "headers" else head(one, **{"Content-Length": "100"}) + b"csrf="
        begun = [stack.enter_context(socket.create_connection((HOST, roomy), timeout=5)) for _ in range(100)]
        for connection in begun:
            connection.sendall(data)
        start = perf_counter()
        assert all(alive(roomy) for _ in range(5))
        assert perf_counter() - start < 10
        # The oldest are closed for the new ones, so that their number does not grow.
        assert sum(not closed(connection, wait=0.2) for connection in begun) <= 5


def closed(connection, *, wait=None):
    """Whether the server closes a connection without a word; where a wait is named, within these seconds."""
    if wait is not None:
        connection.settimeout(wait)
    try:
        return connection.recv(65536) == b""
    except TimeoutError:
        if wait is None:
            raise
        return False
    except ConnectionError:
        return True


def test_a_body_that_dawdles_keeps_nobody_waiting(one, port):
    with socket.create_connection((HOST, port), timeout=5) as slow:
        slow.sendall(head(one, **{"Content-Length": "100"}) + b"csrf=")
        start = perf_counter()
        assert all(alive(port) for _ in range(5))
        assert perf_counter() - start < 30
    assert alive(port)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: attacker.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET http://attacker.example/ HTTP/1.1\r\nHost: attacker.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request_of_ours_are_refused(port, data):
    response = raw(port, data, wait=2.0)
    assert response == b"" or response.split(b" ")[1][:1] == b"4"
    assert alive(port)


def test_the_server_does_not_say_what_it_is(port):
    response = raw(port, b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").lower()
    assert b"\r\nserver:" not in response
    assert b"uvicorn" not in response
    assert b"python" not in response
