"""The lead's pages: people, agreement, and all labels in one file."""

from __future__ import annotations

import io
import json
import re
import zipfile
from contextlib import closing

import pytest

from eclose_annotate import events as audit_log
from tests.projects import make_project, next_sheet, who, work_off
from tests.web.browsing import Browser, application, hashed, with_passwords


@pytest.fixture(scope="module")
def password():
    """The hash of everybody's password; hashing is slow on purpose."""
    return hashed()


@pytest.fixture
def project(tmp_path, password):
    project = make_project(tmp_path / "study")
    with_passwords(project, password)
    yield project
    project.close()


@pytest.fixture
def lead(project):
    browser = Browser(application(project), project, "lead")
    assert browser.login().headers["location"] == "/"
    assert browser.get("/").headers["location"] == "/dashboard"
    return browser


@pytest.mark.slow
def test_agreement_and_times_are_worked_out_when_asked_for(project, lead):
    assert "Two people have not finished" in lead.get("/dashboard/agreement").text
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), aligned="no")
    page = lead.get("/dashboard/agreement").text
    assert "Alignment A" in page
    assert "undefined, unanimous" in page
    assert "Median time" in page
    # dan agrees with no colleague about A, the others with each other: dan is the first of the table.
    by_person = page.partition('id="by-person"')[2].partition("</table>")[0]
    assert re.findall(r'scope="row">(\w+)<', by_person)[0] == "dan"
    assert by_person.count(">0 %<") == 1
    assert "/dashboard/agreement" in lead.get("/dashboard").text


@pytest.mark.slow
def test_all_labels_in_one_file_and_in_the_log(project, lead):
    for name in ("ann", "bob", "cyd", "dan"):
        work_off(project, who(project, name))
    answer = lead.post("/dashboard/export")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = archive.namelist()
        labels = [json.loads(line) for line in archive.read("labels/labels.jsonl").splitlines()]
        rows = archive.read("labels/annotations.jsonl").decode()
    assert {"labels/labels.csv", "labels/judgments.jsonl", "labels/manifest.json"} <= set(names)
    assert len(labels) == 8
    assert not [name for name in ("ann", "bob", "cyd", "dan") if f'"{name}"' in rows]
    with project.reading() as connection:
        assert audit_log.last_audit_event(connection) == project.head.read()


def people_table(page):
    rows = re.findall(r'<th scope="row">(\w+)</th>(.*?)</tr>', page.partition('class="people"')[2], re.S)
    return dict(rows)


@pytest.mark.slow
def test_finished_and_settled_are_two_numbers(project, lead):
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), aligned="no")
    page = lead.get("/dashboard").text
    finished, settled = re.findall(r"<b>(\d+) / 8</b>", page)
    assert (int(finished), int(settled)) == (8, 4)
    assert "4 finished, but not settled" in page
    # The adjudicator's own overview counts the same tasks.
    eve = Browser(application(project), project, "eve")
    eve.login()
    own = re.search(r"<b>(\d+)</b> of (\d+) finished", eve.get("/").text)
    assert own.groups() == ("0", "4")
    assert "0 / 4" in people_table(page)["eve"]
    work_off(project, who(project, "eve"))
    assert re.findall(r"<b>(\d+) / 8</b>", lead.get("/dashboard").text) == ["8", "8"]


def token_of(page):
    return page.split("/invitation/")[1].split("<")[0]


def join_with(project, name, token):
    browser = Browser(application(project), project, name)
    assert browser.get(f"/invitation/{token}").status_code == 200
    words = "several plain words"
    assert browser.client.post(f"/invitation/{token}", data={"password": words, "again": words}).status_code == 303
    return browser


@pytest.mark.slow
@pytest.mark.parametrize("screening", [False, True])
def test_every_offered_role_works_for_a_new_name(tmp_path, password, screening):
    screeners = ("sue", "sam") if screening else ()
    with closing(make_project(tmp_path / "other", screeners=screeners)) as project:
        with_passwords(project, password)
        lead = Browser(application(project), project, "lead")
        lead.login()
        roles = re.findall(r'<option value="([\w-]+)"', lead.get("/dashboard").text)
        assert len(roles) == (3 if screening else 2)
        for number, role in enumerate(roles):
            answer = lead.post("/dashboard/invite", names=f"new{number}", role=role)
            assert answer.status_code == 200, answer.text
            assert join_with(project, f"new{number}", token_of(answer.text)).get("/").status_code in (200, 303)


def test_new_people_take_over_the_tasks_of_a_leaver(project, lead):
    page = lead.post("/dashboard/people/ann/reassign", new="zoe, yan", reason="left").text
    assert page.count("/invitation/") == 2
    assert "4 tasks of ann were handed over (" in page
    assert re.search(r"(\d+) / (\d+)", people_table(page)["zoe"])[2] == "2"
    assert join_with(project, "zoe", token_of(page)).get("/").status_code == 200


def test_names_that_cannot_be_added_are_told_on_the_page(project, lead):
    answer = lead.post("/dashboard/invite", names="no/name", role="adjudicator")
    assert answer.status_code == 422
    assert 'value="no/name"' in answer.text
    assert "is in the project already" in lead.post("/dashboard/invite", names="ann, zoe", role="adjudicator").text
    assert "at least one person" in lead.post("/dashboard/invite", names=" ", role="adjudicator").text
    # Annotators join in place of a person who leaves.
    assert "takes over from a person" in lead.post("/dashboard/invite", names="zoe", role="annotator").text
    assert "zoe" not in people_table(lead.get("/dashboard").text)


@pytest.mark.slow
def test_a_known_person_keeps_the_password_until_the_lead_confirms(project, lead):
    ann = Browser(application(project), project, "ann")
    ann.login()
    page = lead.post("/dashboard/invite", names="ann", role="adjudicator").text
    assert "ends their password and sessions" in page
    assert "/invitation/" not in page
    assert ann.get("/").status_code == 200
    page = lead.post("/dashboard/people/ann/renew").text
    assert ann.get("/").headers["location"] == "/login"
    assert ann.login().status_code == 401
    join_with(project, "ann", token_of(page))


@pytest.mark.parametrize(
    ("change", "warning"),
    [("deactivate", "cannot log in again"), ("end", "logged out in every browser"), ("reassign", "unfinished tasks")],
)
def test_what_shuts_people_out_is_confirmed_first(project, lead, change, warning):
    assert f'href="/dashboard/people/ann/{change}"' in lead.get("/dashboard").text
    assert f'action="/dashboard/people/ann/{change}"' not in lead.get("/dashboard").text
    page = lead.get(f"/dashboard/people/ann/{change}").text
    assert warning in page
    assert f'action="/dashboard/people/ann/{change}"' in page
    assert lead.get(f"/dashboard/people/lead/{change}").status_code == 404


@pytest.mark.slow
def test_tasks_of_a_leaver_are_handed_over(tmp_path, password):
    with closing(make_project(tmp_path / "shared", share_questions=True)) as project:
        with_passwords(project, password)
        lead = Browser(application(project), project, "lead")
        lead.login()
        assert lead.post("/dashboard/people/ann/deactivate").status_code == 303
        assert "hand them over" in lead.get("/dashboard/people/ann/deactivate").text
        page = lead.post("/dashboard/people/ann/reassign", new="", reason="left").text
        assert re.search(r"4 tasks of ann were handed over \(\d to \w+, ", page)
        assert "reassign" not in people_table(page)["ann"]
        for name in ("bob", "cyd", "dan"):
            work_off(project, who(project, name))
        assert re.findall(r"<b>(\d+) / 8</b>", lead.get("/dashboard").text) == ["8", "8"]


def test_tasks_that_fit_no_colleague_stay_and_the_page_says_why(project, lead):
    # Every colleague has another response to each of ann's questions.
    answer = lead.post("/dashboard/people/ann/reassign", new="", reason="left", **{"to.cyd": "yes"})
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert "0 / 4" in people_table(answer.text)["ann"]


@pytest.mark.slow
def test_a_taken_case_is_handed_over(project, lead):
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), aligned="no")
    sheet = next_sheet(project, who(project, "eve"))
    assert 'href="/dashboard/people/eve/reassign"' in lead.get("/dashboard").text
    assert "The case goes back to the queue" in lead.get("/dashboard/people/eve/reassign").text
    assert lead.post("/dashboard/people/eve/reassign", new="", reason="").status_code == 422
    page = lead.post("/dashboard/people/eve/reassign", new="fay", reason="eve left").text
    assert "1 taken cases of eve are back in the queue" in page
    assert 'href="/dashboard/people/eve/reassign"' not in page
    fay = who(project, "fay")
    assert {next_sheet(project, fay).task, sheet.task} == {next_sheet(project, fay).task, sheet.task}
    assert work_off(project, fay) == 16


def test_only_the_lead_has_these_pages(project):
    ann = Browser(application(project), project, "ann")
    ann.login()
    for path in ("/dashboard", "/dashboard/agreement", "/dashboard/people/bob/deactivate"):
        assert ann.get(path).status_code == 404
    assert ann.post("/dashboard/people/bob/reassign", new="", reason="x").status_code == 404


@pytest.mark.slow
def test_who_is_kept_out_is_out_at_once(project, lead):
    ann = Browser(application(project), project, "ann")
    ann.login()
    assert ann.get("/").status_code == 200
    assert lead.post("/dashboard/people/ann/deactivate").status_code == 303
    assert ann.get("/").headers["location"] == "/login"
    assert lead.post("/dashboard/people/ann/activate").status_code == 303
    assert ann.login().headers["location"] == "/"
    assert lead.post("/dashboard/people/ann/end").status_code == 303
    assert ann.get("/").headers["location"] == "/login"
    assert lead.post("/dashboard/people/lead/deactivate").status_code == 404
    assert lead.post("/dashboard/people/nobody/end").status_code == 404
    assert lead.post("/dashboard/people/ann/remove").status_code == 404
