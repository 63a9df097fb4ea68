"""A session is opened by a password, known by its token, and ends in time."""

from __future__ import annotations

import hashlib
import time
from datetime import timedelta

import pytest
from sqlalchemy import text

from eclose.calls.ledger.database import make_database_engine, open_schema
from eclose_annotate.people import passwords, people, sessions
from eclose_annotate.people.people import PersonRole, end_person_sessions
from eclose_annotate.people.sessions import (
    csrf_token_matches,
    delete_expired_sessions,
    end_login_session,
    find_login_session,
    log_in_person,
    renew_login_session,
)
from eclose_annotate.schema import ANNOTATION_SCHEMA

GOOD, OTHER = "seven lazy otters sing", "nine quick herons dance"
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def add(connection, name, now):
    return people.add_person(connection, name, PersonRole.ANNOTATOR, None, passwords.hash_password(GOOD), now)


@pytest.fixture
def ann(connection, now):
    return add(connection, "ann", now)


def count(connection):
    return connection.execute(text("SELECT count(*) FROM annotate_sessions")).scalar()


# Logging in


def test_the_right_password_opens_a_session(connection, ann, now):
    opened = log_in_person(connection, "ann", GOOD, now=now)
    assert opened.person == ann
    assert len(opened.token) == 43
    session = find_login_session(connection, opened.token, now=now)
    assert (session.person, session.csrf, session.due) == (ann, opened.csrf, False)
    assert session.token_hash == hashlib.sha256(opened.token.encode()).hexdigest()


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ann", OTHER),
        ("ann", GOOD.upper()),
        ("ann", ""),
        ("ann", "\ud800"),
        ("bob", GOOD),
        ("", GOOD),
        ("a\0nn", GOOD),
        ("ann\n", GOOD),
        ("\ud800", GOOD),
        ("ann' OR '1'='1", GOOD),
        ("x" * 10**5, GOOD),
    ],
)
def test_anything_else_opens_none(connection, ann, now, name, password):
    assert log_in_person(connection, name, password, now=now) is None
    assert count(connection) == 0


def test_capitals_of_a_name_do_not_matter(connection, ann, now):
    assert log_in_person(connection, "ANN", GOOD, now=now).person == ann


def test_every_login_has_a_new_token(connection, ann, now):
    opened = [log_in_person(connection, "ann", GOOD, now=now) for _ in range(3)]
    assert len({login.token for login in opened} | {login.csrf for login in opened}) == 6
    assert all(find_login_session(connection, login.token, now=now) for login in opened)


def test_neither_token_is_stored_or_shown(connection, ann, now):
    opened = log_in_person(connection, "ann", GOOD, now=now)
    stored = repr(connection.execute(text("SELECT * FROM annotate_sessions")).all())
    session, verified = (
        find_login_session(connection, opened.token, now=now),
        sessions.verify_login(connection, "ann", GOOD),
    )
    representation = f"{opened!r} {session!r} {verified!r}"
    assert all(secret not in stored + representation for secret in (opened.token, opened.csrf, GOOD, "argon2id"))
    assert hashlib.sha256(opened.csrf.encode()).hexdigest() in stored


def test_the_same_work_is_done_whoever_asks(connection, ann, now, monkeypatch):
    hashes = []
    real = passwords.password_matches
    monkeypatch.setattr(
        passwords, "password_matches", lambda stored, password: hashes.append(stored) or real(stored, password)
    )
    people.deactivate_person(connection, add(connection, "ina", now).id)
    for name in ("ann", "bob", "ina", "no name at all"):
        assert log_in_person(connection, name, OTHER, now=now) is None
    assert sessions.verify_login(connection, "ina", GOOD) is None
    assert len(hashes) == 5
    assert hashes[1] == hashes[3] == passwords.DUMMY_HASH
    assert passwords.DUMMY_HASH not in (hashes[0], hashes[2], hashes[4])


def test_an_older_hash_is_renewed_when_its_password_is_typed(connection, ann, now, monkeypatch):
    monkeypatch.setattr(passwords, "MEMORY_KIB", 16)
    passwords._hasher.cache_clear()
    stored = text("SELECT password FROM annotate_people")
    before = connection.execute(stored).scalar()
    assert log_in_person(connection, "ann", OTHER, now=now) is None
    assert connection.execute(stored).scalar() == before
    assert log_in_person(connection, "ann", GOOD, now=now) is not None
    after = connection.execute(stored).scalar()
    assert "m=16," in after
    assert passwords.password_matches(after, GOOD)
    assert log_in_person(connection, "ann", GOOD, now=now) is not None
    assert connection.execute(stored).scalar() == after


@pytest.mark.parametrize("change", ["deactivated", "other password"])
def test_what_changes_between_the_two_halves_counts(connection, ann, now, change):
    verified = sessions.verify_login(connection, "ann", GOOD)
    if change == "deactivated":
        people.deactivate_person(connection, ann.id)
    else:
        people.set_password(connection, ann.id, OTHER)
    assert sessions.open_login_session(connection, verified, now=now) is None
    assert count(connection) == 0


def test_others_write_while_a_password_is_verified(tmp_path, cheap, now):
    engine = make_database_engine(tmp_path / "project.db")
    with engine.begin() as connection:
        open_schema(connection, ANNOTATION_SCHEMA, "project")
        add(connection, "ann", now)
    with engine.begin() as reader:
        verified = sessions.verify_login(reader, "ann", GOOD)
        with engine.begin() as writer:
            add(writer, "bob", now)
    with engine.begin() as writer:
        assert sessions.open_login_session(writer, verified, now=now) is not None
    engine.dispose()


# How long it lasts


@pytest.mark.parametrize(("pause", "holds"), [(2 * HOUR - MINUTE, True), (2 * HOUR, False), (3 * HOUR, False)])
def test_an_idle_session_ends(connection, ann, now, pause, holds):
    token = log_in_person(connection, "ann", GOOD, now=now).token
    assert (find_login_session(connection, token, now=now + pause) is not None) is holds


def test_a_busy_session_ends_too(connection, ann, now):
    token = log_in_person(connection, "ann", GOOD, now=now).token
    for hours in range(1, 12):
        session = find_login_session(connection, token, now=now + hours * HOUR)
        renew_login_session(connection, session, now=now + hours * HOUR)
    assert find_login_session(connection, token, now=now + 12 * HOUR - MINUTE) is not None
    assert find_login_session(connection, token, now=now + 12 * HOUR) is None


def test_a_shorter_life_holds_for_open_sessions(connection, ann, now, monkeypatch):
    token = log_in_person(connection, "ann", GOOD, now=now).token
    renew_login_session(connection, find_login_session(connection, token, now=now), now=now + HOUR)
    assert find_login_session(connection, token, now=now + HOUR) is not None
    monkeypatch.setattr(sessions, "ABSOLUTE", HOUR)
    assert find_login_session(connection, token, now=now + HOUR) is None


def test_being_there_is_noted_once_a_minute(connection, ann, now):
    token = log_in_person(connection, "ann", GOOD, now=now).token
    writes = 0
    for seconds in range(0, 301, 5):
        moment = now + timedelta(seconds=seconds)
        session = find_login_session(connection, token, now=moment)
        if session.due:
            renew_login_session(connection, session, now=moment)
            writes += 1
    assert writes == 5


def test_finding_writes_nothing(tmp_path, cheap, now):
    engine = make_database_engine(tmp_path / "project.db")
    with engine.begin() as connection:
        open_schema(connection, ANNOTATION_SCHEMA, "project")
        add(connection, "ann", now)
        token = log_in_person(connection, "ann", GOOD, now=now).token
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
        assert find_login_session(connection, token, now=now + HOUR).due
        assert sessions.verify_login(connection, "ann", GOOD) is not None
        connection.exec_driver_sql("PRAGMA query_only = OFF")
    engine.dispose()


def test_touching_neither_sets_back_nor_brings_back(connection, ann, now):
    token = log_in_person(connection, "ann", GOOD, now=now).token
    session = find_login_session(connection, token, now=now)
    renew_login_session(connection, session, now=now + HOUR)
    renew_login_session(connection, session, now=now + MINUTE)
    assert find_login_session(connection, token, now=now + 3 * HOUR - MINUTE) is not None
    end_login_session(connection, token)
    renew_login_session(connection, session, now=now + 2 * HOUR)
    assert find_login_session(connection, token, now=now + 2 * HOUR) is None


# How it ends


def test_logout_ends_one_session(connection, ann, now):
    token, other = (log_in_person(connection, "ann", GOOD, now=now).token for _ in range(2))
    end_login_session(connection, token)
    assert find_login_session(connection, token, now=now) is None
    assert find_login_session(connection, other, now=now) is not None
    end_login_session(connection, token)
    assert count(connection) == 1


def test_all_sessions_of_a_person_end_but_one(connection, ann, now):
    add(connection, "bob", now)
    bobs = log_in_person(connection, "bob", GOOD, now=now).token
    tokens = [log_in_person(connection, "ann", GOOD, now=now).token for _ in range(3)]
    assert end_person_sessions(connection, ann.id, except_token=tokens[1]) == 2
    assert [find_login_session(connection, token, now=now) is not None for token in tokens] == [False, True, False]
    assert end_person_sessions(connection, ann.id) == 1
    assert find_login_session(connection, bobs, now=now) is not None


def test_an_inactive_person_has_no_session_even_if_one_was_left(connection, ann, now):
    token = log_in_person(connection, "ann", GOOD, now=now).token
    connection.execute(text("UPDATE annotate_people SET active = 0"))
    assert find_login_session(connection, token, now=now) is None


def test_sweeping_removes_what_is_over_and_nothing_else(connection, ann, now):
    over = log_in_person(connection, "ann", GOOD, now=now).token
    idle = log_in_person(connection, "ann", GOOD, now=now + 9 * HOUR).token
    live = log_in_person(connection, "ann", GOOD, now=now + 11 * HOUR).token
    assert delete_expired_sessions(connection, now + HOUR) == 0
    assert delete_expired_sessions(connection, now + 12 * HOUR) == 2
    assert [find_login_session(connection, token, now=now + 12 * HOUR) is not None for token in (over, idle, live)] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("token", ["", "x", "\0", "\ud800", "x" * 10**5])
def test_a_wrong_token_is_nothing(connection, ann, now, token):
    log_in_person(connection, "ann", GOOD, now=now)
    assert find_login_session(connection, token, now=now) is None
    end_login_session(connection, token)
    assert count(connection) == 1


def test_the_hash_of_a_token_is_no_token(connection, ann, now):
    """Who reads the database cannot get in with what is there."""
    log_in_person(connection, "ann", GOOD, now=now)
    for stored in connection.execute(text("SELECT token, csrf FROM annotate_sessions")).one():
        assert find_login_session(connection, stored, now=now) is None


# Forms


def test_a_form_belongs_to_its_session(connection, ann, now):
    login, other = (log_in_person(connection, "ann", GOOD, now=now) for _ in range(2))
    session = find_login_session(connection, login.token, now=now)
    assert csrf_token_matches(session, login.csrf)
    for candidate in (
        other.csrf,
        "",
        login.csrf[:-1],
        login.csrf + "0",
        login.token,
        session.token_hash,
        "é",
        "\ud800",
    ):
        assert not csrf_token_matches(session, candidate)


# Time tells nothing (ASVS 6.3.8)


@pytest.mark.slow
@pytest.mark.timing
def test_an_unknown_name_takes_as_long_as_a_known_one(tmp_path, now):
    engine = make_database_engine(tmp_path / "project.db")
    with engine.begin() as connection:
        open_schema(connection, ANNOTATION_SCHEMA, "project")
        add(connection, "ann", now)
        people.deactivate_person(connection, add(connection, "ina", now).id)
    # A busy machine may spoil a round; what is built in spoils them all.
    ratios = []
    for _ in range(4):
        ratios.append(max_ratio(engine, ("ann", "bob", "ina"), now))
        if ratios[-1] < 1.2:
            break
    engine.dispose()
    assert min(ratios) < 1.2


def max_ratio(engine, names, now):
    times = {name: [] for name in names}
    for _ in range(15):
        for name in names:
            with engine.begin() as connection:
                # By the processor's clock: waiting for a core is no part of the work.
                start = time.process_time()
                assert log_in_person(connection, name, OTHER, now=now) is None
                times[name].append(time.process_time() - start)
    quickest = [min(each) for each in times.values()]
    return max(quickest) / min(quickest)
