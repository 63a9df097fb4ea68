"""A person's way through the pages, and the ways that are not theirs."""

from __future__ import annotations

import html
import re

import pytest
from sqlalchemy import event

from eclose_annotate.choices import ScreeningMode
from eclose_annotate.labelling import undo
from tests.projects import make_project, who, work_off
from tests.web.browsing import Browser, application, hashed, with_passwords

PASSWORDS = []


@pytest.fixture
def project(tmp_path):
    project = make_project(tmp_path / "study", screeners=("sue", "sam"))
    PASSWORDS or PASSWORDS.append(hashed())
    with_passwords(project, PASSWORDS[0])
    yield project
    project.close()


@pytest.fixture
def enter(project):
    app = application(project)

    def enter(name):
        browser = Browser(app, project, name)
        assert browser.login().status_code == 303
        return browser

    return enter


def ticked(page):
    """How many choices are made on a page."""
    return len(re.findall(r'<input type="radio" name="\d[^>]* checked', page.text))


@pytest.mark.slow
def test_one_task_from_login_to_receipt(project, enter):
    ann = enter("ann")
    home = ann.get("/")
    address = ann.task()
    assert (home.status_code, address in home.text) == (200, True)
    for name in "ABC":
        answer = ann.submit(address)
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, address)
        assert name + " ·" not in ann.get(answer.headers["location"]).text
    answer = ann.submit(address)
    where, _, receipt = answer.headers["location"].partition("?receipt=")
    # No page between two tasks: the next one is shown, with the receipt of this one in a corner.
    assert where == ann.task() != address
    following = ann.get(answer.headers["location"]).text
    assert receipt in following
    assert "last pass of the previous task recorded" in following
    assert ann.get(address).status_code == 404
    assert receipt in ann.get("/finished").text


def test_new_page_needs_one_connection_at_a_time(project, enter):
    ann, pool, in_use = enter("ann"), project.engine.pool, []
    address = ann.task()
    event.listen(pool, "checkout", lambda *_: in_use.append(pool.checkedout()))
    assert ann.get(address).status_code == 200
    assert max(in_use) == 1


@pytest.mark.slow
def test_page_with_problems_keeps_what_was_filled_in(enter):
    ann = enter("ann")
    address = ann.task()
    action, fields = ann.form(address)
    fields.pop("1.sound")
    answer = ann.client.post(action, data=fields)
    assert answer.status_code == 422
    assert ticked(answer) == len(fields) - 2


@pytest.mark.slow
@pytest.mark.parametrize("extra", [{"1.aligned": "yes"}, {"99.sound": "yes"}, {"role": "lead"}, {"1.sound.x": "yes"}])
def test_fields_that_are_not_asked_are_refused(enter, extra):
    ann = enter("ann")
    address = ann.task()
    assert ann.submit(address, **extra).status_code == 422
    assert ann.submit(address).status_code == 303


@pytest.mark.slow
def test_foreign_and_unknown_tasks_answer_the_same(enter):
    ann, bob = enter("ann"), enter("bob")
    address = ann.task()
    answers = [
        bob.get(address),
        bob.get("/tasks/nothing"),
        bob.post(f"{address}/A", **{"key": "k", "1.sound": "yes"}),
        bob.post("/tasks/nothing/A", **{"key": "k", "1.sound": "yes"}),
        bob.post(f"{address}/A/draft", **{"1.sound": "yes"}),
        bob.post(f"{address}/A/undo"),
    ]
    assert [answer.status_code for answer in answers] == [404] * 6
    assert len({answer.text for answer in answers}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name, status", [("B", 409), ("C", 409), ("D", 409), ("S", 404), ("AB", 404)])
def test_passes_cannot_be_skipped(enter, name, status):
    ann = enter("ann")
    address = ann.task()
    assert ann.post(f"{address}/{name}", **{"key": "k", "1.aligned": "yes"}).status_code == status
    assert ann.sheet(address).form.name == "A"


@pytest.mark.slow
def test_closed_pass_stays_closed_and_repeated_click_is_one(enter):
    ann = enter("ann")
    address = ann.task()
    action, fields = ann.form(address)
    first, again = ann.client.post(action, data=fields), ann.client.post(action, data=fields)
    assert first.headers["location"] == again.headers["location"]
    assert ann.client.post(action, data=fields | {"key": "other"}).status_code == 409


@pytest.mark.slow
def test_draft_comes_back(enter):
    ann = enter("ann")
    address = ann.task()
    action, fields = ann.form(address)
    draft = {name: value for name, value in fields.items() if not name.startswith("2.")}
    assert ann.client.post(f"{action}/draft", data=draft).status_code == 204
    assert ticked(ann.get(address)) == len(draft) - 2
    assert ann.client.post(f"{address}/B/draft", data=draft).status_code in (409, 422)


@pytest.mark.slow
def test_adjudicator_takes_what_waits(project, enter):
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    eve = enter("eve")
    assert eve.post("/take").headers["location"] == "/"
    work_off(project, who(project, "dan"), closed="no")
    overview = eve.get("/").text
    assert 'action="/take"' in overview
    assert "annotators differed or whose labels contradict each other" in overview
    assert "Your label is final" in overview
    assert "annotators differed" not in enter("ann").get("/").text
    address = eve.task()
    assert eve.get(address).status_code == 200
    assert eve.post("/take").headers["location"] == address
    answers = [eve.submit(address) for _ in range(4)]
    assert {answer.status_code for answer in answers} == {303}
    # After the last pass the next case opens, as with annotators, until none is left.
    cases = {address}
    while (address := answers[-1].headers["location"].partition("?")[0]) != "/":
        assert address not in cases
        cases.add(address)
        answers = [eve.submit(address) for _ in range(4)]
    assert len(cases) == 4
    assert "All tasks are finished" in eve.get("/").text


def undoable(page):
    """The address at which the last pass can be undone, by a page."""
    match = re.search(r'id="withdraw" action="([^"]+)"', page.text)
    return match and match[1]


@pytest.mark.slow
def test_pass_can_be_undone_until_the_next_disclosure(project, enter):
    ann = enter("ann")
    address = ann.task()
    where = ann.submit(address).headers["location"]
    # After A the whole reasoning is shown, which has been seen before.
    assert undoable(ann.get(where)) == f"{address}/A/undo"
    opened = ann.post(f"{address}/A/undo").headers["location"]
    with project.reading() as connection:
        sheet = undo.open_pass_amendment(connection, project, ann.person, opened.rpartition("/")[2])
    assert ticked(ann.get(opened)) == 2 * sheet.steps
    assert ann.post(f"{address}/A/undo").headers["location"] == opened
    # Left open, it is found again on the overview and in the list.
    question = sheet.material.question
    link = f'<a href="{opened}">Pass A of task 1</a>: <span class="words">{question}</span>'
    assert link in html.unescape(ann.get("/").text)
    assert f'href="{opened}"' in ann.get("/finished").text
    assert question in html.unescape(ann.get("/finished").text)
    fields = {f"{n}.substantive": "no" for n in range(1, sheet.steps + 1)}
    assert ann.post(opened, key="k", **{**fields, "1.substantive": "perhaps"}).status_code == 422
    assert ann.post(opened, key="k", **fields).status_code == 303
    assert ann.post(opened, key="k", **fields).status_code == 404
    for name in "BC":
        where = ann.submit(address).headers["location"]
        assert undoable(ann.get(where)) is None, name
        assert ann.post(f"{address}/{name}/undo").status_code == 404
        assert ann.post(f"{address}/A/undo").status_code == 404
    where = ann.submit(address).headers["location"]
    assert undoable(ann.get(where)) == f"{address}/D/undo"
    opened = ann.post(f"{address}/D/undo").headers["location"]
    response = ann.post(opened, key="k", **{"1.correct": "no", "1.complete": "no"})
    assert response.headers["location"].partition("?")[0] == ann.task()
    assert "not correct, not complete" in ann.get("/finished").text


def test_guideline_is_that_of_the_own_work(enter):
    expected = {"ann": ("A", "B", "C", "D"), "sue": ("S",), "lead": ("A", "B", "C", "D", "S")}
    for name, passes in expected.items():
        page = enter(name).get("/guideline")
        assert page.status_code == 200
        assert tuple(re.findall(r'<section class="panel" id="(\w)"', page.text)) == passes


def test_practice_tells_the_right_label_and_its_reason(enter):
    ann, lead = enter("ann"), enter("lead")
    assert "/training" in ann.get("/").text
    page = ann.get("/training").text
    (item,) = re.findall(r'action="/training/(\w+)"', page)
    assert ann.post(f"/training/{item}", label="perhaps").status_code == 404
    assert ann.post("/training/usable", label="yes").status_code == 404
    answer = ann.post(f"/training/{item}", label="yes")
    assert "Not right." in answer.text
    assert "a tautology" in answer.text
    assert f'action="/training/{item}"' not in ann.get("/training").text
    assert re.search(r">ann</th><td[^>]*>1 of 7</td><td[^>]*>0<", lead.get("/training").text)


@pytest.mark.slow
def test_tasks_that_wait_for_screening_are_named_and_cannot_be_taken(tmp_path):
    project = make_project(tmp_path / "study", screeners=("sue", "sam"), screening=ScreeningMode.REQUIRED)
    PASSWORDS or PASSWORDS.append(hashed())
    with_passwords(project, PASSWORDS[0])
    ann = Browser(application(project), project, "ann")
    assert ann.login().status_code == 303
    home = ann.get("/").text
    assert "4 of your tasks open when their questions have been screened" in home
    assert "Take the next case" not in home
    for name in ("sue", "sam"):
        work_off(project, who(project, name))
    assert ann.task() in ann.get("/").text
    project.close()
