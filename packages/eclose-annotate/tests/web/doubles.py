"""Two submissions of one pass at the same moment, over a socket, by threads."""

from __future__ import annotations

import http.client
import socket
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from time import sleep
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import uvicorn

from eclose_annotate.web.app import build_annotation_app
from eclose_annotate.web.connections import ConnectionLimits, limited_protocol
from eclose_annotate.web.dependencies import AnnotationServerState
from tests.projects import choose_key
from tests.web.crowd import FORM
from tests.web.truth import Truth, fill

if TYPE_CHECKING:
    from tests.web.canaries import Study

HOST = "127.0.0.1"


@contextmanager
def served(project, *, log_level: str = "warning", wrap=lambda app: app, limits=None, **house):
    """The port of a server as people meet it, with the settings that ``serve`` gives it."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(128)
        hosts = (HOST, f"{HOST}:{listener.getsockname()[1]}")
        config = uvicorn.Config(
            wrap(build_annotation_app(AnnotationServerState(project, **house), hosts=hosts)),
            http=limited_protocol(limits or ConnectionLimits()),
            log_level=log_level,
            access_log=False,
            server_header=False,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            sleep(0.01)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


@dataclass
class Doubles:
    """What came of it."""

    rows: int = 0
    answers: Counter = field(default_factory=Counter)
    wins: list[str] = field(default_factory=list)


def run_doubles(one: Study, times: int) -> Doubles:
    """Submit the open passes of everybody in turn, each twice at the same moment."""
    tally, truth, rng = Doubles(), Truth(one), Random(7)
    with served(one.project) as port:
        for number in range(times):
            nick, task = _open(truth)
            name = truth.open_pass(nick, task)
            unanswered = one.unanswered in truth.tasks[task].owners
            form = fill(rng, truth.tasks[task], name, unanswered=unanswered)
            other = form
            # Another opinion: an equal form with the same key would get the same receipt.
            while number % 3 == 2 and other.entries == form.entries:
                other = fill(rng, truth.tasks[task], name, unanswered=unanswered)
            keys = ("k", "other") if number % 3 == 1 else ("k", "k")
            choose_key(one.project, task, name, "k")
            answers = _at_once(one, port, nick, f"/tasks/{task}/{name}", list(zip((form, other), keys, strict=True)))
            _note(tally, answers, same=number % 3 == 0)
            rows = [row for row in one.rows() if row[:2] == (task, name)]
            tally.rows += len(rows)
            if len(rows) != 1:
                tally.wins.append(f"{len(rows)} rows of {task} {name}")
            truth.submitted(nick, task, name, form, "k")
    return tally


def _open(truth: Truth) -> tuple[str, str]:
    return next(
        (task.nick, task.id) for task in truth.tasks.values() if truth.open_pass(task.nick, task.id) is not None
    )


def _note(found: Doubles, said, *, same: bool) -> None:
    found.answers[tuple(sorted(status for status, _ in said))] += 1
    accepted = {where for status, where in said if status == 303}
    if len(accepted) != 1 or (not same and [status for status, _ in said].count(303) != 1):
        found.wins.append(f"both hold: {said}")


def _at_once(one: Study, port: int, nick: str, path: str, forms) -> list[tuple[int, str]]:
    """Send both when both are ready; what each was answered."""
    start, answers = threading.Barrier(len(forms)), []

    def send(form, key):
        body = urlencode({"csrf": one.csrf(nick), "key": key, **form.fields})
        connection = http.client.HTTPConnection(HOST, port, timeout=30)
        connection.connect()
        start.wait()
        connection.request("POST", path, body, {"cookie": f"eclose={one.keys[nick]}", **FORM})
        answer = connection.getresponse()
        answer.read()
        answers.append((answer.status, answer.headers.get("location", "")))
        connection.close()

    threads = [threading.Thread(target=send, args=pair) for pair in forms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
