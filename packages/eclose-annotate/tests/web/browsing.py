"""Somebody before the server: logs in, reads pages, and sends the forms that are on them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from starlette.testclient import TestClient

from eclose_annotate import queues, submissions
from eclose_annotate.people import passwords, people
from eclose_annotate.web.app import build_annotation_app
from eclose_annotate.web.dependencies import AnnotationServerState
from tests.projects import filled

ORIGIN = "http://127.0.0.1"
PASSWORD = "correct horse battery staple"
SAME = {"sec-fetch-site": "same-origin"}


def application(project, **more):
    return build_annotation_app(AnnotationServerState(project, **more), hosts=("127.0.0.1",))


def with_passwords(project, hashed):
    """Give everybody the same password, hashed beforehand: hashing is slow on purpose."""
    with project.writing() as connection:
        for person in people.list_people(connection):
            connection.execute(people._SET_PASSWORD, {"id": person.id, "password": hashed})


def hashed():
    return passwords.hash_password(PASSWORD)


class Forms(HTMLParser):
    """The forms of a page: where they go, and what is in them already."""

    def __init__(self, html):
        super().__init__()
        self.forms = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "form":
            self.forms.append((attrs.get("action"), {}))
        elif tag == "input" and self.forms and attrs.get("type") == "hidden":
            self.forms[-1][1][attrs["name"]] = attrs["value"]


class Browser:
    """One person's browser."""

    def __init__(self, app, project, name):
        self.client = TestClient(app, base_url=ORIGIN, follow_redirects=False, headers=SAME)
        self.project, self.name = project, name
        with project.reading() as connection:
            self.person = people.find_person(connection, name)

    def login(self, password=PASSWORD):
        return self.client.post("/login", data={"name": self.name, "password": password})

    def get(self, path):
        return self.client.get(path)

    def csrf(self):
        return re.search(r'name="csrf" value="([0-9a-f]+)"', self.get("/account").text)[1]

    def post(self, path, **fields):
        return self.client.post(path, data={"csrf": self.csrf(), **fields})

    def task(self):
        """The address of the next task; an adjudicator takes one."""
        with self.project.reading() as connection:
            task = queues.find_next_task(connection, self.person.id)
        if task is None:
            where = self.post("/take").headers["location"]
            return None if where == "/" else where
        return f"/tasks/{task}"

    def sheet(self, address):
        with self.project.writing() as connection:
            return submissions.open_task_page(connection, self.project, self.person, address.rsplit("/", 1)[1])

    def form(self, address):
        """What the page's own form would send with every question answered yes."""
        page = self.get(address)
        assert page.status_code == 200, page.text
        action, hidden = next(form for form in Forms(page.text).forms if form[0] and form[0].startswith(address))
        entries = filled(self.sheet(address))
        return action, hidden | {
            f"{number}.{name}": value for number, entry in enumerate(entries, start=1) for name, value in entry.items()
        }

    def submit(self, address, **other):
        action, fields = self.form(address)
        return self.client.post(action, data=fields | other)
