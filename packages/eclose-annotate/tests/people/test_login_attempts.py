"""Wrong passwords are limited by account and address together and by address; right ones never count."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("limits", reason="needs the annotate extra")

from eclose_annotate.people.passwords import LoginAttemptCounter, LoginAttemptLimits, LoginDelayedError

OFFICE, HOME, STRANGER = "192.0.2.1", "198.51.100.7", "203.0.113.9"
HOUR = 3600


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock


@pytest.fixture
def attempts(clock):
    return LoginAttemptCounter()


def wait(attempts, account, address, *, right=False):
    """Return the seconds to wait; 0 where the password was looked at."""
    try:
        result = attempts.attempt(account, address, lambda: True if right else None)
    except LoginDelayedError as delay:
        return delay.seconds
    assert result is (True if right else None)
    return 0


def test_five_wrong_passwords_a_minute(attempts, clock):
    assert [wait(attempts, "ann", OFFICE) for _ in range(6)] == [0, 0, 0, 0, 0, 60]
    clock.time += 59.5
    assert wait(attempts, "ann", OFFICE) == 1
    clock.time += 1
    assert wait(attempts, "ann", OFFICE, right=True) == 0


def test_right_passwords_never_count(attempts):
    assert [wait(attempts, "ann", OFFICE, right=True) for _ in range(200)] == [0] * 200


def test_ten_people_of_an_office_log_in_at_once(clock):
    # Twice as many as the office may mistype in a minute.
    attempts = LoginAttemptCounter(LoginAttemptLimits(address="5 per minute"))
    with ThreadPoolExecutor(10) as pool:
        waits = list(pool.map(lambda number: wait(attempts, f"person-{number}", OFFICE, right=True), range(10)))
    assert waits == [0] * 10


def test_typos_of_a_colleague_delay_only_the_colleague(attempts, clock):
    for _ in range(8 * 60):
        wait(attempts, "ann", OFFICE)
        assert wait(attempts, "bob", OFFICE, right=True) == 0
        clock.time += 60
    assert wait(attempts, "ann", HOME, right=True) == 0


@pytest.mark.slow
def test_an_attacker_for_eight_hours_neither_gets_far_nor_locks_the_lead_out(attempts, clock):
    """1,420 tries of the lead within 8 hours, while a stranger guesses all the time: all are let in."""
    guesses, let_in = 0, 0
    for second in range(0, 8 * HOUR, 2):
        clock.time += 2
        guesses += wait(attempts, "lead", STRANGER) == 0
        if second % 20 == 0 and let_in < 1_420:
            let_in += wait(attempts, "lead", HOME, right=True) == 0
    assert let_in == 1_420
    assert 8 * 20 <= guesses <= 9 * 20


@pytest.mark.slow
def test_many_names_from_one_address_are_limited(attempts, clock):
    guesses = 0
    for number in range(0, 8 * HOUR, 5):
        clock.time += 5
        guesses += wait(attempts, f"name-{number}", STRANGER) == 0
    assert 8 * 100 <= guesses <= 9 * 100
    assert wait(attempts, "ann", OFFICE) == 0


def test_requests_at_once_do_not_get_more_guesses(attempts):
    looked_at = []

    def guess(_number):
        try:
            attempts.attempt("ann", STRANGER, lambda: looked_at.append(time.sleep(0.002)))
        except LoginDelayedError:
            return False
        return True

    with ThreadPoolExecutor(30) as pool:
        assert sum(pool.map(guess, range(60))) == 5
    assert len(looked_at) == 5


@pytest.mark.parametrize(
    "address, same",
    [
        ("2001:db8::1", "2001:db8::ffff:1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("no address", "no address"),
    ],
)
def test_addresses_of_one_client_count_together(attempts, address, same):
    assert [wait(attempts, "ann", address) for _ in range(5)] == [0] * 5
    assert wait(attempts, "ANN", same) > 0
    assert wait(attempts, "ann", "2001:db8:0:1::1") == 0


@pytest.mark.parametrize("name", ["", "a/b", "\ud800", "\0", "x" * 1_000_000, "account"])
def test_any_text_is_a_name(attempts, name):
    assert [wait(attempts, name, STRANGER) for _ in range(6)][-1] > 0
    assert wait(attempts, "other", STRANGER) == 0


def test_an_error_is_not_counted(attempts):
    for _ in range(10):
        with pytest.raises(RuntimeError):
            attempts.attempt("ann", OFFICE, broken)
    assert wait(attempts, "ann", OFFICE) == 0


def broken():
    raise RuntimeError


def test_other_limits(clock):
    attempts = LoginAttemptCounter(LoginAttemptLimits(account="2 per day", address="3 per day"))
    assert [wait(attempts, "ann", OFFICE) for _ in range(3)] == [0, 0, 86_400]
    assert [wait(attempts, "bob", OFFICE) for _ in range(2)] == [0, 86_400]
