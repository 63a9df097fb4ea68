"""The pages of one person without a lead: labels are seen and corrected, and the session is ended."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from eclose_annotate.cli import label
from eclose_annotate.labelling.sample import (
    LABELLER_NAME,
    begin_label_project,
    draw_label_sample,
    read_labelled_verdicts,
)
from eclose_annotate.web import serve
from eclose_annotate.web.app import build_annotation_app
from eclose_annotate.web.dependencies import AnnotationServerState
from tests.projects import NOW, material, next_sheet, submit, who, work_off
from tests.web.browsing import ORIGIN, SAME, Browser


@pytest.fixture
def project(tmp_path):
    questions, responses = material(3)
    sample = draw_label_sample([response.id for response in responses], [], n=3, seed=3)
    instances = {question.id: question for question in questions}
    project = begin_label_project(tmp_path / "run" / "labels", instances, responses, sample, NOW)
    yield project
    project.close()


@pytest.fixture
def state(project):
    return AnnotationServerState(project, single=who(project, LABELLER_NAME))


@pytest.fixture
def me(project, state):
    browser = Browser(build_annotation_app(state, hosts=("127.0.0.1",)), project, LABELLER_NAME)
    assert browser.get(f"/open/{state.entry_tokens.issue()}").headers["location"] == "/"
    return browser


def correct(me, action):
    """Open a correction from the page of labels, and say no where yes was said."""
    opened = me.post(action)
    assert opened.status_code == 303, opened.text
    address = opened.headers["location"]
    page = me.get(address).text
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.partition('id="form"')[2]))
    names = dict.fromkeys(re.findall(r'type="radio" name="([^"]+)"', page))
    return me.client.post(address, data=fields | dict.fromkeys(names, "no"))


def test_a_slip_is_corrected_and_the_first_label_stays_in_the_log(project, me):
    person = who(project, LABELLER_NAME)
    while (sheet := next_sheet(project, person)) is not None:
        submit(project, person, sheet)
    assert {row.verdict.aligned for row in read_labelled_verdicts(project)} == {True}
    page = me.get("/labels").text
    actions = re.findall(r'action="(/labels/[^"]+/B/correct)"', page)
    assert len(actions) == 3
    assert correct(me, actions[0]).headers["location"].startswith("/labels?receipt=")
    assert sorted(row.verdict.aligned for row in read_labelled_verdicts(project)) == [False, True, True]
    with project.reading() as connection:
        task = actions[0].split("/")[2]
        query = text("SELECT action FROM annotate_events WHERE task = :task ORDER BY seq")
        events = connection.execute(query, {"task": task}).scalars().all()
    assert events[-2:] == ["opened to correct", "amended"]
    assert "changed later" in me.get("/labels").text
    assert correct(me, actions[0]).headers["location"].startswith("/labels")


def test_questions_and_labels_are_in_sight(project, me):
    person = who(project, LABELLER_NAME)
    assert "Nothing yet" in me.get("/labels").text
    sheet = next_sheet(project, person)
    submit(project, person, sheet)
    page = me.get("/labels").text
    assert sheet.material.question in page
    assert me.get("/finished").headers["location"] == "/labels"


def test_an_opened_correction_is_opened_once(project, me):
    person = who(project, LABELLER_NAME)
    submit(project, person, next_sheet(project, person))
    action = re.search(r'action="(/labels/[^"]+/correct)"', me.get("/labels").text)[1]
    assert me.post(action).headers["location"] == me.post(action).headers["location"]
    assert "open for correction" in me.get("/").text
    assert me.post("/labels/unknown/B/correct").status_code == 404


def test_there_is_no_lead_to_ask(project, me):
    person = who(project, LABELLER_NAME)
    sheet = next_sheet(project, person)
    submit(project, person, sheet)
    for path in ("/", "/labels"):
        page = me.get(path).text
        assert "lead" not in page.lower()
        assert "Log out" not in page


def test_the_session_ends_on_the_page(project, state, me):
    assert "Begin" in me.get("/").text
    assert "/labels/finish" not in me.get("/").text
    work_off(project, who(project, LABELLER_NAME))
    page = me.get("/").text
    assert "All responses of the sample are labelled" in page
    assert not state.finished.is_set()
    assert "The labels are written" in me.post("/labels/finish").text
    assert state.finished.is_set()


def test_steps_are_numbered_as_in_the_report(project, me):
    person = who(project, LABELLER_NAME)
    lengths = []
    while (sheet := next_sheet(project, person)) is not None:
        page = me.get(f"/tasks/{sheet.task}").text
        numbers = re.findall(r'<li><span class="number">(\d+)</span>', page)
        assert numbers == [str(number) for number in range(1, len(sheet.material.steps) + 1)]
        lengths.append(len(numbers))
        submit(project, person, sheet)
    assert max(lengths) > 1


def test_the_browser_is_opened_without_the_token_on_its_command_line(project, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(serve.webbrowser, "open", opened.append)
    monkeypatch.setattr(serve, "serve_annotation", lambda _state, *, ready, **_: ready(ORIGIN))
    label._serve(project, 0, browser=True)
    page = project.folder / serve.BROWSER_FILE
    assert opened == [page.resolve().as_uri()]
    # The link that is printed is another one: each works once.
    tokens = [re.search(r"/open/([\w-]{43})", output)[1] for output in (page.read_text(), capsys.readouterr().out)]
    assert len(set(tokens)) == 2


def test_servers_with_accounts_have_no_such_pages(project):
    state = AnnotationServerState(project)
    client = TestClient(build_annotation_app(state, hosts=("127.0.0.1",)), base_url=ORIGIN, headers=SAME)
    assert client.get("/labels", follow_redirects=False).headers["location"] == "/login"
