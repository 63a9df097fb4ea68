"""Hostile text in every field that material brings or people fill in: it stays text, in a browser too."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from eclose.prompts.material_json import DisclosedPassage, DisclosedStep
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, ResponseSource, Trace
from eclose_annotate.choices import ScreeningMode
from eclose_annotate.family_audit.material import AuditorMaterial
from eclose_annotate.material_store import add_questions, add_responses
from eclose_annotate.people import people, sessions
from eclose_annotate.project import AnnotationProjectSettings, create_annotation_project
from eclose_annotate.tasks import assign_questions_to_screeners, assign_responses_to_annotators
from tests.projects import choose_key
from tests.report.hostile import PAYLOADS
from tests.web.canaries import _ADD_FAMILY, _ADD_TASK, CREW, Study
from tests.web.crowd import FORM, crowd
from tests.web.doubles import HOST, served
from tests.web.truth import FAMILY

WATCH = """
window.pwned = []; window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective, event.blockedURI));
"""


def family_of(texts) -> AuditorMaterial:
    # Half a character and NUL are in no record that can be read, and a family is read as one.
    texts = [text for text in texts if "\0" not in text and text.isprintable() | text.isascii()]
    whole = "\n".join(texts)
    passages = tuple(DisclosedPassage(index, text, text) for index, text in enumerate(texts))
    steps = tuple(DisclosedStep(number, text) for number, text in enumerate(texts, 1))
    changed = DisclosedPassage(0, texts[1], whole)
    last = (changed, steps[::-1], texts[0], whole, steps, whole)
    return AuditorMaterial(whole, whole, tuple(texts), passages, steps, whole, *last)


@contextmanager
def study_of(folder, texts):
    """A project in which every text is one of these, and mostly all of them."""
    whole = "\n".join(texts)
    evidence = tuple(Passage(f"{number}", text, text) for number, text in enumerate(texts))
    instance = Instance(whole, whole, evidence, whole, tuple(texts), benchmark=whole)
    response = Response(whole, whole, Trace.of(*texts), whole, ResponseSource(whole, method=whole), completion=whole)
    project = create_annotation_project(folder, AnnotationProjectSettings(whole, screening=ScreeningMode.ADVISORY))
    now, keys, there = datetime.now(UTC), {}, {}
    with project.writing() as connection:
        add_questions(connection, [instance])
        add_responses(connection, [response])
        for nick, (role, pool) in CREW.items():
            there[nick] = people.add_person(connection, nick, role, pool, "no password", now)
            verified = sessions.VerifiedLogin(there[nick], "no password", None)
            keys[nick] = sessions.open_login_session(connection, verified, now=now).token
        assign_responses_to_annotators(connection, [there["ann"], there["bob"]], project.settings)
        assign_questions_to_screeners(connection, [there["sue"], there["sam"]], project.settings)
        connection.execute(_ADD_FAMILY, {"key": json.dumps(whole), "shown": json.dumps(asdict(family_of(texts)))})
        row = {"id": "family-of-fay", "subject": "family 1", "family": 1, "person": there["fay"].id}
        connection.execute(_ADD_TASK, row)
    try:
        yield Study(project, None, {nick: nick for nick in CREW}, keys, "", "")
    finally:
        project.close()


def pages_of(everybody, texts):
    """Every page that shows such texts, by who sees it: those of work, of changes, of problems, of the lead."""
    study, steps = everybody.study, range(1, len(texts) + 1)
    own = {name: task for task, name in _tasks(study)}
    forms = {
        "A": {f"{n}.{name}": "yes" for n in steps for name in ("substantive", "sound")},
        "B": {"1.aligned": "yes"},
        "C": {"1.closed": "yes"},
        "D": {"1.correct": "yes", "1.complete": "yes"},
    }
    for name, form in forms.items():
        yield "ann", everybody.get("ann", f"/tasks/{own['ann']}")
        yield "ann", everybody.post("ann", f"/tasks/{own['ann']}/{name}", {"key": "k", "1.zz": texts[0]})
        key = choose_key(study.project, own["ann"], name, f"key of {name}")
        assert everybody.post("ann", f"/tasks/{own['ann']}/{name}", {"key": texts[0][:60], **form}).status_code == 409
        assert everybody.post("ann", f"/tasks/{own['ann']}/{name}", {"key": key, **form}).status_code == 303
        if name in "AD":
            yield "ann", everybody.get("ann", undo(everybody, own["ann"], name))
    yield "lea", everybody.get("lea", "/dashboard")
    yield "sue", everybody.get("sue", f"/tasks/{own['sue']}")
    yield "fay", everybody.get("fay", f"/tasks/{own['fay']}")
    yield "fay", everybody.post("fay", f"/tasks/{own['fay']}/F", {"key": "k", f"1.{FAMILY[0]}": texts[0]})
    yield "ann", everybody.get("ann", "/finished")
    yield "ann", everybody.get("ann", "/account")
    yield "ann", everybody.get("ann", f"/tasks/{'%3Cscript%3E'}")
    for text in texts[:40:4]:
        yield "lea", everybody.post("lea", "/dashboard/invite", {"names": text, "role": text})
        yield "ann", everybody.post("nobody", "/login", {"name": text, "password": text}, csrf="")


def undo(everybody, task, name):
    """Undo the last pass of ann, and return the address at which it can be changed."""
    answer = everybody.post("ann", f"/tasks/{task}/{name}/undo")
    assert answer.status_code == 303
    return answer.headers["location"]


def _tasks(one):
    with one.project.reading() as connection:
        return connection.exec_driver_sql(
            "SELECT t.id, p.name FROM annotate_tasks t JOIN annotate_people p ON p.id = t.person"
        ).all()


class Shape(HTMLParser):
    """The tags of a page with the names of their attributes, and the addresses in them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.addresses = set(), set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add((tag, *sorted(name for name, _ in attrs)))
        self.addresses |= {value for name, value in attrs if name in ("href", "src", "action", "hx-post", "formaction")}


@pytest.mark.slow
def test_every_text_stays_text(tmp_path):
    """A page of hostile texts is made of the same tags as a page of plain ones, and leads nowhere else."""
    plain = [f"plain words {number}" for number in range(len(PAYLOADS))]
    shapes = []
    for name, texts in (("hostile", PAYLOADS), ("plain", plain)):
        with study_of(tmp_path / name, texts) as study, crowd(study) as everybody:
            answers = [answer for _, answer in pages_of(everybody, texts)]
        assert all(answer.status_code < 500 for answer in answers)
        shapes.append([Shape(answer.text) for answer in answers])
    for hostile, harmless in zip(*shapes, strict=True):
        # What differs between two texts of a family is marked, and that depends on the texts.
        assert hostile.tags ^ harmless.tags <= {("ins",), ("del",)}
        assert all(address.startswith(("/", "#")) for address in hostile.addresses)


def without_policy(app):
    """The application as a browser that knows no policy would meet it."""

    async def stripped(scope, receive, send):
        async def pass_on(message):
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0] != b"content-security-policy"]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, pass_on)

    return stripped


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("policy", [True, False], ids=["with policy", "without policy"])
def test_nothing_runs_in_a_browser(browser, tmp_path, policy):
    """Every page of work, every change and the lead's page, over a socket: no script runs, nothing is fetched."""
    with (
        study_of(tmp_path / "study", PAYLOADS) as study,
        served(study.project, wrap=(lambda app: app) if policy else without_policy) as port,
    ):
        visits = [visit(browser, study, port, nick, path) for nick, path in walked(study, port)]
    assert len(visits) >= 12
    assert [outcome for outcome in visits if outcome != ([], [], [])] == []


def walked(one, port):
    """Everybody's addresses, one after the other, while the work goes on."""
    own = {name: task for task, name in _tasks(one)}
    yield "sue", f"/tasks/{own['sue']}"
    yield "fay", f"/tasks/{own['fay']}"
    steps = range(1, len(PAYLOADS) + 1)
    forms = (
        ("A", {f"{n}.{name}": "yes" for n in steps for name in ("substantive", "sound")}),
        ("B", {"1.aligned": "yes"}),
        ("C", {"1.closed": "yes"}),
        ("D", {"1.correct": "yes", "1.complete": "yes"}),
    )
    for name, form in forms:
        yield "ann", f"/tasks/{own['ann']}"
        choose_key(one.project, own["ann"], name, "k")
        assert post(one, port, "ann", f"/tasks/{own['ann']}/{name}", {"key": "k", **form}) == 303
        if name in "AD":
            assert post(one, port, "ann", f"/tasks/{own['ann']}/{name}/undo", {}) == 303
    yield "lea", "/dashboard"
    with one.project.reading() as connection:
        opened = connection.exec_driver_sql("SELECT id FROM annotate_reopenings").scalars().all()
    yield from (("ann", f"/amend/{reopening}") for reopening in opened)
    yield from (
        ("ann", path) for path in ("/", "/finished", "/account", "/tasks/%3Cimg%20src=x%20onerror=pwned.push(1)%3E")
    )


def post(one, port, nick, path, fields):
    """Send a form over the socket: what it is answered with."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    body = urlencode({"csrf": one.csrf(nick), **fields}, errors="replace")
    connection.request("POST", path, body, {"cookie": f"eclose={one.keys[nick]}", **FORM})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def visit(browser, one, port, nick, path):
    """What a page runs, what of it the policy refuses, and what it asks of others."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(WATCH)
    context.add_cookies([{"name": "eclose", "value": one.keys[nick], "domain": HOST, "path": "/"}])
    origin, heard = f"http://{HOST}:{port}", []
    tab = context.new_page()
    tab.on("pageerror", lambda error: heard.append(f"error {error}"))
    tab.on("dialog", lambda dialog: (heard.append("dialog"), dialog.dismiss()))
    tab.on("request", lambda request: request.url.startswith(origin) or heard.append(request.url))
    tab.on("popup", lambda _: heard.append("popup"))
    answer = tab.goto(origin + path)
    assert answer.status == (404 if "onerror" in path else 200)
    # Whatever waits for a hand or a key.
    tab.keyboard.press("j")
    tab.keyboard.press("f")
    tab.mouse.move(400, 400)
    outcome = tab.evaluate("pwned"), tab.evaluate("violations"), heard
    context.close()
    return outcome
