"""The lead's pages: people, requests, agreement, and all labels in one file."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from tests.annotation.projects import make_project, who, work_off
from tests.annotation.web.browsing import Browser, application, hashed, with_passwords

from eclose.annotation import audit_log

PASSWORDS = []


@pytest.fixture
def project(tmp_path):
    project = make_project(tmp_path / "study")
    PASSWORDS or PASSWORDS.append(hashed())
    with_passwords(project, PASSWORDS[0])
    yield project
    project.close()


@pytest.fixture
def lead(project):
    browser = Browser(application(project), project, "lead")
    assert browser.login().headers["location"] == "/"
    assert browser.get("/").headers["location"] == "/dashboard"
    return browser


def test_agreement_is_worked_out_when_asked_for(project, lead):
    assert "Two people have not finished" in lead.get("/dashboard/agreement").text
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), aligned="no")
    page = lead.get("/dashboard/agreement").text
    assert "Alignment A" in page
    assert "undefined, unanimous" in page
    assert "/dashboard/agreement" in lead.get("/dashboard").text


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
        assert list(audit_log.verify_audit_log(connection, project.head)) == []
        assert audit_log.last_audit_event(connection) == project.head.read()


def test_somebody_new_is_invited_and_a_known_one_anew(project, lead):
    page = lead.post("/dashboard/invite", name="max", role="adjudicator", pool="").text
    token = page.split("/invitation/")[1].split("<")[0]
    max_ = Browser(application(project), project, "max")
    assert max_.get(f"/invitation/{token}").status_code == 200
    words = "several plain words"
    assert max_.client.post(f"/invitation/{token}", data={"password": words, "again": words}).status_code == 303
    assert "/invitation/" in lead.post("/dashboard/invite", name="ann", role="annotator", pool="").text
    assert lead.post("/dashboard/invite", name="zoe", role="annotator", pool="").status_code == 422
    assert lead.post("/dashboard/invite", name="no name", role="lead", pool="").status_code == 422


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
