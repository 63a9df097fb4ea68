"""Five attempts a minute, then ever longer waits, for the account and for the address."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.annotation.accounts.login_attempts import LoginAttemptCounter, LoginAttemptLimits
from eclose.errors import SettingError


class Clock:
    def __init__(self) -> None:
        self.time = 1_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def attempts(clock):
    return LoginAttemptCounter(clock=clock)


def elsewhere():
    """Another address every time."""
    return (f"10.0.{number // 250}.{number % 250}" for number in range(10**6))


def test_an_account_has_five_a_minute_from_wherever(attempts, clock):
    addresses = elsewhere()
    assert [attempts.admit("ann", next(addresses)) for _ in range(7)] == [0, 0, 0, 0, 0, 60, 60]
    assert attempts.admit("bob", next(addresses)) == 0
    clock.time += 59.5
    assert attempts.admit("ann", next(addresses)) == 1
    clock.time += 0.5
    assert attempts.admit("ann", next(addresses)) == 0


def test_an_address_has_five_a_minute_under_whatever_name(attempts):
    assert [attempts.admit(f"name-{number}", "10.0.0.1") for number in range(7)] == [0, 0, 0, 0, 0, 60, 60]
    assert attempts.admit("name-0", "10.0.0.2") == 0


def test_who_tries_slowly_enough_never_waits(attempts, clock):
    for _ in range(50):
        assert attempts.admit("ann", "10.0.0.1") == 0
        clock.time += 15.1


def test_the_wait_grows_and_has_an_end(attempts, clock):
    waits = []
    for _ in range(5):
        attempts.admit("ann", "10.0.0.1")
    for _ in range(6):
        waits.append(attempts.admit("ann", "10.0.0.1"))
        clock.time += waits[-1]
        assert attempts.admit("ann", "10.0.0.1") == 0
    assert waits == [60, 120, 240, 300, 300, 300]


def test_a_long_silence_is_forgiven(attempts, clock):
    for _ in range(5):
        attempts.admit("ann", "10.0.0.1")
    clock.time += 60 + 299
    assert attempts.admit("ann", "10.0.0.1") == 0
    assert attempts.admit("ann", "10.0.0.1") == 120
    clock.time += 120 + 300
    assert [attempts.admit("ann", "10.0.0.1") for _ in range(6)] == [0, 0, 0, 0, 0, 60]


def test_asking_while_waiting_makes_it_no_longer(attempts, clock):
    for _ in range(5):
        attempts.admit("ann", "10.0.0.1")
    for _ in range(480):
        attempts.admit("ann", "10.0.0.1")
        clock.time += 0.125
    assert attempts.admit("ann", "10.0.0.1") == 0


def test_what_has_to_wait_counts_for_nobody_else(attempts):
    addresses = elsewhere()
    for _ in range(5):
        attempts.admit("ann", next(addresses))
    for _ in range(20):
        assert attempts.admit("ann", "10.9.9.9") == 60
    assert attempts.admit("bob", "10.9.9.9") == 0


def test_success_clears_the_account_and_not_the_address(attempts):
    for _ in range(4):
        attempts.admit("ann", "10.0.0.1")
    attempts.admit("ann", "10.0.0.2")
    attempts.record_success("ann", "10.0.0.2")
    assert attempts.admit("ann", "10.0.0.3") == 0
    assert attempts.admit("bob", "10.0.0.1") == 0
    assert attempts.admit("eve", "10.0.0.1") == 60


def test_a_team_behind_one_address_gets_in(attempts):
    for number in range(30):
        assert attempts.admit(f"name-{number}", "10.0.0.1") == 0
        attempts.record_success(f"name-{number}", "10.0.0.1")


def test_own_successes_between_guesses_buy_no_guesses(attempts, clock):
    """Who has an account cannot wash an address clean with it."""
    guesses = 0
    for _ in range(600):
        guesses += attempts.admit(f"victim-{guesses}", "10.0.0.1") == 0
        if attempts.admit("mallory", "10.0.0.1") == 0:
            attempts.record_success("mallory", "10.0.0.1")
        clock.time += 0.5
    # Five at once; after 60 seconds one more, after 120 more the next; 300 seconds in all.
    assert guesses == 5 + 2


def test_a_success_after_a_strike_leaves_the_strike(attempts, clock):
    for number in range(5):
        attempts.admit(f"victim-{number}", "10.0.0.1")
    clock.time += 60
    assert attempts.admit("ann", "10.0.0.1") == 0
    attempts.record_success("ann", "10.0.0.1")
    assert attempts.admit("victim-9", "10.0.0.1") == 0
    assert attempts.admit("victim-9", "10.0.0.1") == 120


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2001:db8::1", "2001:db8::ffff:1"),
        ("2001:DB8:0:0::1", "2001:db8::2"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("fe80::1%eth0", "fe80::2%eth1"),
    ],
)
def test_addresses_of_one_hand_count_together(attempts, one, other):
    assert [attempts.admit(f"name-{number}", one) for number in range(5)] == [0] * 5
    assert attempts.admit("else", other) == 60


def test_addresses_of_several_hands_do_not(attempts):
    for number in range(5):
        attempts.admit(f"name-{number}", "2001:db8::1")
    assert attempts.admit("else", "2001:db8:0:1::1") == 0
    assert attempts.admit("else", "a unix socket") == 0


def test_capitals_make_no_other_account(attempts):
    addresses = elsewhere()
    for name in ("ann", "Ann", "ANN", "aNN", "anN"):
        attempts.admit(name, next(addresses))
    assert attempts.admit("ann", next(addresses)) == 60


def test_memory_is_bounded(clock):
    attempts = LoginAttemptCounter(LoginAttemptLimits(capacity=100), clock)
    addresses = elsewhere()
    for number in range(1_000):
        attempts.admit(f"{number}" + "x" * 10_000, next(addresses))
    assert (len(attempts._accounts), len(attempts._addresses)) == (100, 100)
    assert max(map(len, attempts._accounts)) <= 65


def test_who_tried_last_is_remembered_longest(clock):
    attempts = LoginAttemptCounter(LoginAttemptLimits(capacity=3), clock)
    addresses = elsewhere()
    for number in range(4):
        attempts.admit("ann", next(addresses))
        attempts.admit(f"other-{number}", next(addresses))
    attempts.admit("ann", next(addresses))
    assert attempts.admit("ann", next(addresses)) == 60


def test_many_at_once_get_no_more():
    attempts = LoginAttemptCounter(clock=Clock())
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: attempts.admit("ann", "10.0.0.1"), range(500)))
    assert answers.count(0) == 5


@given(st.lists(st.tuples(st.floats(0, 40), st.booleans()), max_size=60))
def test_no_minute_has_more_than_five_failures(steps):
    clock = Clock()
    attempts, failed = LoginAttemptCounter(clock=clock), []
    for pause, right in steps:
        clock.time += pause
        if attempts.admit("ann" if right else f"name-{len(failed)}", "10.0.0.1") == 0:
            if right:
                attempts.record_success("ann", "10.0.0.1")
            else:
                failed.append(clock.time)
    assert all(later - earlier >= 59.999 for earlier, later in zip(failed, failed[5:], strict=False))


@pytest.mark.parametrize("wrong", [{"free": 0}, {"capacity": 0}, {"window": 0.0}, {"window": 400.0}])
def test_limits_that_cannot_work_are_refused(wrong):
    with pytest.raises(SettingError, match="attempts"):
        LoginAttemptLimits(**wrong)
