"""Getting in and out: passwords, sessions and invitations, and that none of their secrets is kept or logged."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from stat import S_IMODE

import pytest
from sqlalchemy import text

from eclose_annotate import events as audit_log
from eclose_annotate.people import passwords, people, sessions
from eclose_annotate.people.passwords import LoginAttemptCounter, LoginAttemptLimits
from eclose_annotate.web import serve
from tests.web.canaries import NOBODY
from tests.web.crowd import crowd
from tests.web.trying import PASSWORD, give_passwords, login, password_hash


def test_guessing_is_slowed_down_and_tells_nothing(one):
    """Wrong, unknown, kept out and not yet come: the same words, the same work, and a wait after five."""
    give_passwords(one, "ann", "bob")
    with one.project.writing() as connection:
        people.deactivate_person(connection, people.find_person(connection, one.names["bob"]).id)
        cyd = people.find_person(connection, one.names["cyd"])
        people.invite_to_reset_password(connection, cyd, now=datetime.now(UTC))
    compared = []
    with (
        crowd(one, attempts=LoginAttemptCounter(LoginAttemptLimits(address="4 per hour"))) as everybody,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(passwords, "password_matches", lambda stored, _: compared.append(stored) or False)
        answers = [login(everybody, nick) for nick in ("ann", "bob", "cyd", "nobody-at-all")]
        late = login(everybody, "dan")
    names = [*(one.names[nick] for nick in ("ann", "bob", "cyd")), "nobody-at-all"]
    pages = [answer.text.replace(name, "") for answer, name in zip(answers, names, strict=True)]
    assert {answer.status_code for answer in answers} == {401}
    assert len(set(pages)) == 1
    assert all(stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$") for stored in compared)
    assert len(compared) == 4
    assert (late.status_code, int(late.headers["retry-after"]) > 0) == (429, True)


@pytest.mark.slow
def test_right_passwords_are_never_delayed(one, everybody):
    """Ten logins from one address, after a stranger and a colleague have guessed as often as they may."""
    give_passwords(one, "ann", "lea")
    for _ in range(6):
        wrong = login(everybody, "bob", "not the password at all")
    assert wrong.status_code == 429
    assert {login(everybody, "ann").status_code for _ in range(10)} == {303}
    assert login(everybody, "lea").status_code == 303


def test_the_link_of_a_single_user_works_once(one):
    with one.project.writing() as connection:
        person = people.find_person(connection, one.names["ann"])
        connection.execute(people._SET_PASSWORD, {"id": person.id, "password": people.NO_PASSWORD})
    tokens_of_server = people.OneTimeTokens()
    first, second = tokens_of_server.issue(), tokens_of_server.issue()
    with crowd(one, single=person, entry_tokens=tokens_of_server) as everybody:
        assert everybody.ask("HEAD", NOBODY, f"/open/{first}").status_code == 405
        assert everybody.get(NOBODY, "/open/guessed").status_code == 404
        answer = everybody.get(NOBODY, f"/open/{first}")
        assert (answer.status_code, "set-cookie" in answer.headers) == (303, True)
        again = everybody.get(NOBODY, f"/open/{first}")
        assert (again.status_code, "set-cookie" in again.headers) == (404, False)
        # From a file, as label opens it: the cookie is not sent along with a redirect, so a page leads on.
        page = everybody.get(NOBODY, f"/open/{second}", **{"sec-fetch-site": "cross-site"})
        assert (page.status_code, "set-cookie" in page.headers) == (200, True)
        assert 'http-equiv="refresh" content="0; url=/"' in page.text
    with crowd(one) as everybody:
        assert everybody.get(NOBODY, f"/open/{tokens_of_server.issue()}").status_code == 404


def test_a_login_makes_a_new_session_and_ends_the_old(one, everybody):
    give_passwords(one, "ann")
    answer = login(everybody, "ann", cookie=f"eclose={one.keys['ann']}")
    assert answer.status_code == 303
    new = re.match(r"eclose=([^;]+)", answer.headers["set-cookie"])[1]
    assert new != one.keys["ann"]
    assert everybody.get("ann", "/").headers["location"] == "/login"
    one.keys["ann"] = new
    assert everybody.get("ann", "/").status_code == 200


@pytest.mark.parametrize(
    "column, ago", [("seen", timedelta(hours=2, minutes=1)), ("started", timedelta(hours=12, minutes=1))]
)
def test_a_session_ends_by_itself(one, everybody, column, ago):
    then = {"at": audit_log.format_utc_timestamp(datetime.now(UTC) - ago)}
    with one.project.writing() as connection:
        connection.execute(text(f"UPDATE annotate_sessions SET {column} = :at"), then)
    assert everybody.get("ann", "/").headers["location"] == "/login"
    assert everybody.post("eve", "/take").headers["location"] == "/login"


def test_a_session_is_ended_by_its_owner_and_by_the_lead(one, everybody):
    assert everybody.post("ann", "/logout").status_code == 303
    assert everybody.get("ann", "/").headers["location"] == "/login"
    for nick, change in (("bob", "end"), ("cyd", "deactivate")):
        assert everybody.post("lea", f"/dashboard/people/{one.names[nick]}/{change}").status_code == 303
        assert everybody.get(nick, "/").headers["location"] == "/login"
    assert everybody.get("dan", "/").status_code == 200
    assert everybody.get("dan", "/", **{"hx-request": "true"}).status_code == 200
    assert everybody.get("cyd", "/", **{"hx-request": "true"}).status_code == 401


def test_an_invitation_is_used_once(one, everybody):
    form, path = {"password": PASSWORD, "again": PASSWORD}, f"/invitation/{one.invited}"
    assert everybody.post(NOBODY, path, {"password": "short", "again": "short"}, csrf=None).status_code == 422
    assert everybody.post(NOBODY, path, {"password": PASSWORD, "again": "other"}, csrf=None).status_code == 422
    assert everybody.post(NOBODY, path, form, csrf=None).status_code == 303
    for used in (everybody.get(NOBODY, path), everybody.post(NOBODY, path, form, csrf=None)):
        assert used.status_code == 404
        assert re.search(r'href="/login"[^>]*>Already joined\? Log in', used.text)
        assert "Ask the lead of the study" in used.text


def test_who_was_kept_out_after_an_invitation_does_not_get_in(one, everybody):
    with one.project.writing() as connection:
        bob = people.find_person(connection, one.names["bob"])
        token = people.invite_to_reset_password(connection, bob, now=datetime.now(UTC))
        people.deactivate_person(connection, bob.id)
    answer = everybody.post(NOBODY, f"/invitation/{token}", {"password": PASSWORD, "again": PASSWORD}, csrf=None)
    assert (answer.status_code, answer.headers["location"], "set-cookie" in answer.headers) == (303, "/login", False)


@pytest.mark.slow
def test_a_new_password_needs_the_old_one_and_ends_other_sessions(one, everybody):
    give_passwords(one, "ann")
    with one.project.writing() as connection:
        verified = sessions.VerifiedLogin(people.find_person(connection, one.names["ann"]), password_hash(), None)
        other = sessions.open_login_session(connection, verified, now=datetime.now(UTC)).token
    new = {"password": "another horse, another staple", "again": "another horse, another staple"}
    assert everybody.post("ann", "/account", {"current": "not it at all", **new}).status_code == 422
    assert everybody.post("ann", "/account", {"current": PASSWORD, **new}).status_code == 200
    assert everybody.get("ann", "/").status_code == 200
    one.keys["ann"] = other
    assert everybody.get("ann", "/").headers["location"] == "/login"


@pytest.mark.slow
def test_no_secret_is_kept_or_logged(one, caplog):
    """Passwords, tokens of sessions, of forms and of invitations: not in a log at its loudest, not in the database."""
    mine, typed_as_name = "zebra-Quartz-9-lantern-willow", "hunter2-Moonlight-Harbour"
    with caplog.at_level(logging.DEBUG), crowd(one) as everybody:
        path = f"/invitation/{one.invited}"
        answer = everybody.post(NOBODY, path, {"password": mine, "again": mine}, csrf=None)
        token = re.match(r"eclose=([^;]+)", answer.headers["set-cookie"])[1]
        one.keys["newcomer"], one.names["newcomer"] = token, ""
        page = everybody.get("newcomer", "/account").text
        csrf = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)[1]
        login(everybody, "ann", mine)
        login(everybody, typed_as_name, mine)
        everybody.post("newcomer", "/account", {"current": "x", "password": mine + "2", "again": mine + "2"})
        everybody.post("newcomer", "/take")
        everybody.post("newcomer", "/logout")
    data = b"".join(path.read_bytes() for path in one.project.folder.iterdir() if path.is_file())
    for secret in (mine, typed_as_name, token, csrf, one.invited):
        assert secret not in caplog.text
        assert secret.encode() not in data
    with one.project.reading() as connection:
        events = connection.execute(text("SELECT actor, action FROM annotate_events")).all()
    assert {("unknown", "login refused"), (one.names["ann"], "login refused")} <= {tuple(row) for row in events}


def test_the_command_line_of_the_browser_names_a_file_and_no_token(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(serve.webbrowser, "open", opened.append)
    serve.open_in_browser("http://127.0.0.1:8300/open/sEcRet-31", tmp_path)
    page = tmp_path / serve.BROWSER_FILE
    assert opened == [page.as_uri()]
    assert "sEcRet-31" in page.read_text()
    assert S_IMODE(page.stat().st_mode) == 0o600
