"""What tests of security share: a password for some, a login, one address of every route, and all that is kept."""

from __future__ import annotations

from functools import cache

from sqlalchemy import text

from eclose_annotate.people import passwords, people
from tests.web.canaries import NOBODY
from tests.web.sweeps import Sweep

PASSWORD = "correct horse battery staple"


@cache
def password_hash():
    """Hashing is slow on purpose: once is enough."""
    return passwords.hash_password(PASSWORD)


def give_passwords(one, *nicks):
    with one.project.writing() as connection:
        for nick in nicks:
            person = people.find_person(connection, one.names[nick])
            connection.execute(people._SET_PASSWORD, {"id": person.id, "password": password_hash()})


def login(everybody, nick, password=PASSWORD, **headers):
    form = {"name": everybody.study.names.get(nick, nick), "password": password}
    return everybody.post(NOBODY, "/login", form, csrf="", **headers)


def every_address(everybody, nick="ann"):
    """One address of every route."""
    sweep = Sweep(everybody.study, everybody, thorough=False)
    return [(method, template, next(iter(sweep.filled(template, nick)))) for method, template in sweep.routes]


def state(one):
    """All that is in the database, but for when somebody was seen."""
    with one.project.reading() as connection:
        names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")).scalars()
        tables = {name: [tuple(row) for row in connection.execute(text(f"SELECT * FROM {name}"))] for name in names}
    tables["annotate_sessions"] = len(tables["annotate_sessions"])
    # That a pass was opened is recorded.
    tables.pop("annotate_openings")
    return tables
