"""Passwords that others try first are refused; the rest are kept so that trying is dear."""

from __future__ import annotations

import statistics
import sys
import time

import pytest

from eclose.errors import UserError
from eclose_annotate.people import passwords
from eclose_annotate.people.passwords import (
    common_passwords,
    hash_password,
    password_matches,
    password_needs_rehash,
    password_problems,
)

GOOD = "seven lazy otters sing"


@pytest.mark.slow
def test_a_hash_matches_its_password_alone():
    stored = hash_password(GOOD)
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert password_matches(stored, GOOD)
    assert not password_matches(stored, GOOD + " ")
    assert not password_matches(stored, GOOD.upper())
    assert hash_password(GOOD) != stored


@pytest.mark.parametrize(
    "password", ["ключ от всех дверей", "a\0b then more", "😀" * 5 + "hello there", "half \ud800 of one"]
)
def test_any_characters_will_do_and_none_is_cut_off(password):
    assert password_problems(password, "ann") == ()
    stored = hash_password(password)
    assert password_matches(stored, password)
    assert not password_matches(stored, password[:-1])
    assert not password_matches(stored, password.partition("\0")[0] + "!")


@pytest.mark.parametrize("stored", ["", "plain text", "$argon2id$v=19$m=8,t=1,p=1$AAAA"])
def test_a_damaged_hash_matches_nothing(stored):
    assert not password_matches(stored, "")
    assert not password_matches(stored, stored)


def test_what_is_compared_for_unknown_names_costs_what_a_real_one_does():
    assert not password_needs_rehash(passwords.DUMMY_HASH)
    assert not any(password_matches(passwords.DUMMY_HASH, guess) for guess in ("", "password", GOOD))


def test_a_hash_of_other_settings_is_due_for_renewal(cheap):
    weak = hash_password(GOOD)
    assert not password_needs_rehash(weak)
    passwords._hasher.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "MEMORY_KIB", 16)
        assert password_needs_rehash(weak)
        assert password_matches(weak, GOOD)


@pytest.mark.parametrize(
    ("length", "told"), [(11, "at least 12"), (12, None), (13, None), (256, None), (257, "at most 256")]
)
def test_lengths(length, told):
    letters = "".join(chr(ord("a") + number * number % 23) + chr(ord("a") + number % 19) for number in range(200))
    problems = password_problems(letters[:length], "ann")
    assert problems == () if told is None else (len(problems) == 1 and told in problems[0])


def test_the_least_length_is_a_setting():
    assert password_problems("gx7 kelp", "ann", shortest=8) == ()
    assert password_problems("gx7 kel", "ann", shortest=8) != ()


@pytest.mark.parametrize(
    "password",
    [
        "1qaz2wsx3edc",  # on the list
        "1QAZ2wsx3EDC",
        "Password1234",  # on the list with a little around it
        "!!!baseball!!",
        "passwordpassword",
        "Qwerty!Qwerty!",
        "abcabcabcabcab",
        "111111111111111",
        "           " * 2,
        "eclose202611",
        "Annotator-2026!",
    ],
)
def test_what_others_try_first_is_refused(password):
    problems = password_problems(password, "ann")
    assert len(problems) == 1
    assert "most common ones" in problems[0]


@pytest.mark.parametrize(
    "password", ["890123456789", "cdefghijklmnop", "qwertyuiopasdf", "fdsapoiuytrewq", "UIOPASDFGHJK"]
)
def test_rows_of_keys_are_refused(password):
    assert password_problems(password, "ann") != ()


@pytest.mark.parametrize(
    "password", ["Marie.Curie-67", "marie.curie-67", "67-MARIE.CURIE-67", "marie.curie-67marie.curie-67"]
)
def test_the_name_is_refused(password):
    assert any("must not be the name" in problem for problem in password_problems(password, "marie.curie-67")), password


@pytest.mark.parametrize(
    "password",
    [
        GOOD,
        "correct horse battery staple",
        "83619205748261947",  # digits alone are no fault
        "monkey 83619205",  # more than half of it has to be guessed
        "dragon ate my password",
        "marie.curie-67 likes tea",
    ],
)
def test_others_will_do(password):
    assert password_problems(password, "marie.curie-67") == ()


def test_the_list_is_in_small_letters_and_long_enough():
    listed = common_passwords()
    assert len(listed) >= 10_000
    assert sum(len(password) >= 8 for password in listed) >= 3_000
    assert all(password == password.casefold() for password in listed)
    assert {"password", "12345678", "iloveyou"} <= listed


def test_all_of_the_list_is_refused_with_a_year_behind_it():
    """ASVS 6.2.4 asks for 3,000 that are long enough to be chosen here."""
    refused = {f"{password}{year}" for password in common_passwords() if password.isalpha() for year in (2025, 2026)}
    refused = {password for password in refused if len(password) >= passwords.SHORTEST}
    assert len(refused) >= 3_000
    assert [password for password in refused if not password_problems(password, "ann")] == []


def test_all_that_is_wrong_is_said_at_once():
    assert len(password_problems("Password", "ann")) == 2


@pytest.mark.timing
def test_a_very_long_password_takes_no_longer():
    start = time.perf_counter()
    assert len(password_problems("ab" * 10**6, "ann")) == 1
    assert time.perf_counter() - start < 1


def test_without_argon2_the_message_says_what_to_install(monkeypatch):
    passwords._hasher.cache_clear()
    monkeypatch.setitem(sys.modules, "argon2", None)
    for call in (
        lambda: hash_password(GOOD),
        lambda: password_matches(passwords.DUMMY_HASH, GOOD),
        lambda: password_needs_rehash(passwords.DUMMY_HASH),
    ):
        with pytest.raises(UserError, match=r"pip install 'eclose\[annotate\]'"):
            call()


@pytest.mark.slow
@pytest.mark.timing
def test_a_guess_costs_more_than_a_few_milliseconds():
    times = []
    for _ in range(5):
        start = time.perf_counter()
        password_matches(passwords.DUMMY_HASH, GOOD)
        times.append(time.perf_counter() - start)
    assert statistics.median(times) > 0.005
