"""People come by invitation, have one role and one pool, and stop at once when they are made inactive."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose.errors import SettingError, UserError
from eclose_annotate.people import passwords, people, sessions
from eclose_annotate.people.people import (
    AccountError,
    AnnotatorPool,
    Person,
    PersonRole,
    check_person_name,
    pool_for_role,
)

GOOD, OTHER = "seven lazy otters sing", "nine quick herons dance"
DAY = timedelta(days=1)
ADD = text("INSERT INTO annotate_people (name, role, pool, password, since) VALUES (:name, :role, :pool, 'x', '2026')")


def annotator(connection, name, now, password=GOOD):
    return people.add_person(connection, name, PersonRole.ANNOTATOR, None, passwords.hash_password(password), now)


def invited(connection, name, now, role=PersonRole.LEAD, pool=None):
    """Add a person, and return the token with which they choose a password."""
    added = people.add_person(connection, name, role, pool, people.NO_PASSWORD, now)
    return people.invite_to_reset_password(connection, added, now=now)


def everything(connection):
    """All that is stored about people, as one text."""
    tables = ("annotate_people", "annotate_invitations", "annotate_sessions")
    return repr([connection.execute(text(f"SELECT * FROM {table}")).all() for table in tables])


# Roles and pools


def test_each_role_has_its_usual_pool():
    usual = {role: pool_for_role(role) for role in PersonRole}
    assert usual == {
        PersonRole.LEAD: AnnotatorPool.NONE,
        PersonRole.SCREENER: AnnotatorPool.QUESTIONS,
        PersonRole.ANNOTATOR: AnnotatorPool.RESPONSES,
        PersonRole.ADJUDICATOR: AnnotatorPool.RESPONSES,
    }
    assert pool_for_role(PersonRole.ADJUDICATOR, AnnotatorPool.QUESTIONS) is AnnotatorPool.QUESTIONS


def test_the_database_and_the_code_allow_the_same_pools(connection, now):
    for number, (role, pool) in enumerate(product(PersonRole, AnnotatorPool)):
        row = {"name": f"n{number}", "role": role.value, "pool": pool.value}
        try:
            allowed = pool_for_role(role, pool) is pool
        except SettingError:
            allowed = False
        try:
            with connection.begin_nested():
                connection.execute(ADD, row)
            stored = True
        except IntegrityError:
            stored = False
        assert stored is allowed, (role, pool)


def test_an_impossible_pool_is_a_sentence(connection, now):
    with pytest.raises(
        SettingError, match=r"pool questions: does not fit the role annotator. Choose responses or families"
    ):
        people.add_person(connection, "ann", PersonRole.ANNOTATOR, AnnotatorPool.QUESTIONS, "x", now)
    with pytest.raises(SettingError, match="pool responses"):
        people.add_person(connection, "ann", PersonRole.LEAD, AnnotatorPool.RESPONSES, "x", now)


# Names


@pytest.mark.parametrize("name", ["a", "A1", "0", "marie.curie-67_x", "x" * 64])
def test_names_that_can_be_used(name):
    assert check_person_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".a", "-a", "_a", "a b", "a\n", "é", "x" * 65, "a/b", "<b>", "a\0", "\ud800", "１"]
)
def test_names_that_cannot(name, connection, now):
    for call in (
        lambda: check_person_name(name),
        lambda: people.add_person(connection, name, PersonRole.LEAD, None, "x", now),
    ):
        with pytest.raises(SettingError, match="is not allowed"):
            call()
    assert people.find_person(connection, name) is None


def test_names_keep_their_capitals_and_are_unique_without_them(connection, now):
    ann = annotator(connection, "Ann", now)
    for name in ("Ann", "ann", "ANN"):
        with pytest.raises(AccountError, match=f"name {name}: is taken"):
            annotator(connection, name, now)
    assert {people.find_person(connection, name) for name in ("Ann", "ann", "ANN")} == {ann}
    assert people.list_people(connection) == (ann,)


# Invitations


def test_an_invitation_is_accepted_once(connection, now):
    token = invited(connection, "ann", now, PersonRole.ADJUDICATOR, AnnotatorPool.FAMILIES)
    ann = people.find_invitation(connection, token, now=now)
    assert ann == Person(ann.id, "ann", PersonRole.ADJUDICATOR, AnnotatorPool.FAMILIES, active=True)
    assert sessions.log_in_person(connection, "ann", people.NO_PASSWORD, now=now) is None
    assert people.accept_invitation(connection, token, GOOD, now=now + DAY) == ann
    assert people.find_person(connection, "ann") == ann
    assert people.find_invitation(connection, token, now=now + DAY) is None
    with pytest.raises(AccountError, match="not valid"):
        people.accept_invitation(connection, token, OTHER, now=now + DAY)
    assert sessions.log_in_person(connection, "ann", GOOD, now=now) is not None


def test_only_the_hash_of_a_token_is_stored(connection, now):
    token = invited(connection, "ann", now)
    assert len(token) == 43
    stored = everything(connection)
    assert token not in stored
    assert hashlib.sha256(token.encode()).hexdigest() in stored
    people.accept_invitation(connection, token, GOOD, now=now)
    assert GOOD not in everything(connection)


@pytest.mark.parametrize(
    ("later", "valid"), [(7 * DAY - timedelta(seconds=1), True), (7 * DAY, False), (9 * DAY, False)]
)
def test_an_invitation_ends(connection, now, later, valid):
    token = invited(connection, "ann", now)
    assert (people.find_invitation(connection, token, now=now + later) is not None) is valid
    if valid:
        assert people.accept_invitation(connection, token, GOOD, now=now + later).name == "ann"
    else:
        with pytest.raises(AccountError, match="expired"):
            people.accept_invitation(connection, token, GOOD, now=now + later)


def test_inviting_again_replaces_the_token(connection, now):
    first = invited(connection, "ann", now)
    second = people.invite_to_reset_password(connection, people.find_person(connection, "ann"), now=now + DAY)
    assert people.find_invitation(connection, first, now=now + DAY) is None
    with pytest.raises(AccountError, match="replaced"):
        people.accept_invitation(connection, first, GOOD, now=now + DAY)
    person = people.accept_invitation(connection, second, GOOD, now=now + 8 * DAY - timedelta(seconds=1))
    assert person.name == "ann"


@pytest.mark.parametrize("token", ["", "x", "\0", "\ud800", "x" * 10**5])
def test_a_wrong_token_is_nothing(connection, now, token):
    invited(connection, "ann", now)
    assert people.find_invitation(connection, token, now=now) is None
    with pytest.raises(AccountError, match="not valid"):
        people.accept_invitation(connection, token, GOOD, now=now)


def test_a_bad_password_leaves_the_invitation_as_it_was(connection, now):
    token = invited(connection, "marie.curie", now)
    for password in ("short", "Password1234", "Marie.Curie12"):
        with pytest.raises(AccountError, match=r"[Pp]assword"):
            people.accept_invitation(connection, token, password, now=now)
    assert people.accept_invitation(connection, token, GOOD, now=now).name == "marie.curie"


def test_refused_is_something_the_caller_can_fix():
    assert issubclass(AccountError, UserError)


def test_a_time_without_a_zone_is_a_bug(connection):
    with pytest.raises(ValueError, match="time zone"):
        invited(connection, "ann", datetime(2026, 3, 1))


# Changes


def test_everybody_in_the_order_in_which_they_came(connection, now):
    annotators = [annotator(connection, name, now) for name in ("zoe", "ann", "Bob")]
    assert people.list_people(connection) == tuple(annotators)


def test_who_is_made_inactive_is_out_at_once(connection, now):
    ann, bob = (annotator(connection, name, now) for name in ("ann", "bob"))
    tokens = [sessions.log_in_person(connection, "ann", GOOD, now=now).token for _ in range(3)]
    bobs = sessions.log_in_person(connection, "bob", GOOD, now=now).token
    people.deactivate_person(connection, ann.id)
    assert people.find_person(connection, "ann") == replace(ann, active=False)
    assert [sessions.find_login_session(connection, token, now=now) for token in tokens] == [None] * 3
    assert connection.execute(text("SELECT count(*) FROM annotate_sessions")).scalar() == 1
    assert sessions.find_login_session(connection, bobs, now=now).person == bob
    assert sessions.log_in_person(connection, "ann", GOOD, now=now) is None
    people.reactivate_person(connection, ann.id)
    assert [sessions.find_login_session(connection, token, now=now) for token in tokens] == [None] * 3
    assert sessions.log_in_person(connection, "ann", GOOD, now=now).person == ann


def test_nobody_cannot_be_changed(connection, now):
    for call in (
        lambda: people.deactivate_person(connection, 99),
        lambda: people.reactivate_person(connection, 99),
        lambda: people.set_password(connection, 99, GOOD),
        lambda: people.change_password(connection, 99, GOOD, OTHER, now=now),
    ):
        with pytest.raises(AccountError):
            call()


def test_a_new_password_needs_the_current_one_and_ends_other_sessions(connection, now):
    ann = annotator(connection, "ann", now)
    here, there = (sessions.log_in_person(connection, "ann", GOOD, now=now).token for _ in range(2))
    later = now + timedelta(hours=1)
    people.change_password(connection, ann.id, GOOD, OTHER, now=later, except_token=here)
    assert sessions.find_login_session(connection, there, now=later) is None
    assert sessions.find_login_session(connection, here, now=later).due is False
    assert sessions.log_in_person(connection, "ann", GOOD, now=later) is None
    assert sessions.log_in_person(connection, "ann", OTHER, now=later) is not None


def test_without_a_session_to_spare_all_end(connection, now):
    ann = annotator(connection, "ann", now)
    token = sessions.log_in_person(connection, "ann", GOOD, now=now).token
    people.change_password(connection, ann.id, GOOD, OTHER, now=now)
    assert sessions.find_login_session(connection, token, now=now) is None


@pytest.mark.parametrize(
    ("current", "new", "told"),
    [
        (OTHER, OTHER + "!", "is wrong"),
        (GOOD, "short", "at least 12"),
        (GOOD, "1qaz2wsx3edc", "most common"),
        (GOOD, GOOD, "current"),
    ],
)
def test_a_refused_change_changes_nothing(connection, now, current, new, told):
    ann = annotator(connection, "ann", now)
    sessions.log_in_person(connection, "ann", GOOD, now=now)
    before = everything(connection)
    with pytest.raises(AccountError, match=told):
        people.change_password(connection, ann.id, current, new, now=now)
    assert everything(connection) == before


def test_the_inactive_change_nothing(connection, now):
    ann = annotator(connection, "ann", now)
    people.deactivate_person(connection, ann.id)
    with pytest.raises(AccountError, match="is wrong"):
        people.change_password(connection, ann.id, GOOD, OTHER, now=now)


def test_a_forgotten_password_is_set_by_who_runs_the_server(connection, now):
    ann = annotator(connection, "ann", now)
    token = sessions.log_in_person(connection, "ann", GOOD, now=now).token
    with pytest.raises(AccountError, match="at least 12"):
        people.set_password(connection, ann.id, "short")
    people.set_password(connection, ann.id, OTHER)
    assert sessions.find_login_session(connection, token, now=now) is None
    assert sessions.log_in_person(connection, "ann", OTHER, now=now) is not None


# Two at once


def clear(engine):
    with engine.begin() as connection:
        for table in ("annotate_sessions", "annotate_invitations", "annotate_people"):
            connection.execute(text(f"DELETE FROM {table}"))


@pytest.fixture
def shared(engine, cheap):
    yield engine
    clear(engine)


def outcomes(engine, calls):
    """What comes of calls that start at once, each in a transaction of its own."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    barrier = Barrier(len(calls))

    def run(call):
        barrier.wait()
        try:
            with engine.begin() as connection:
                return call(connection)
        except AccountError:
            return None

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_of_many_who_accept_at_once_one_does(shared, now):
    with shared.begin() as connection:
        token = invited(connection, "ann", now)
    results = outcomes(shared, [lambda c: people.accept_invitation(c, token, GOOD, now=now)] * 6)
    assert len([result for result in results if result is not None]) == 1
    with shared.begin() as connection:
        assert len(people.list_people(connection)) == 1


def test_of_many_added_at_once_under_one_name_one_is(shared, now):
    results = outcomes(shared, [lambda c: annotator(c, "ann", now)] * 6)
    assert len([result for result in results if result is not None]) == 1


def test_who_lost_a_password_is_let_in_anew_and_nobody_else_is(connection, now):
    ann = people.add_person(connection, "ann", PersonRole.ANNOTATOR, None, passwords.hash_password(GOOD), now)
    opened = sessions.log_in_person(connection, "ann", GOOD, now=now)
    token = people.invite_to_reset_password(connection, ann, now=now)
    assert sessions.find_login_session(connection, opened.token, now=now) is None
    assert sessions.log_in_person(connection, "ann", GOOD, now=now) is None
    people.accept_invitation(connection, token, OTHER, now=now)
    assert sessions.log_in_person(connection, "ann", OTHER, now=now) is not None
