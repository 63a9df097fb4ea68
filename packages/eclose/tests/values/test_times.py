"""Moments in the notations of logs and stores."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from eclose.values.times import normalize_time, to_datetime, to_microseconds

TEN = "2026-11-20T10:00:00Z"
SECONDS = 1_795_168_800


@pytest.mark.parametrize(
    "value",
    [
        TEN,
        "2026-11-20T10:00:00+00:00",
        "2026-11-20T11:00:00+01:00",
        "2026-11-20 10:00:00",
        "2026-11-20 10:00:00 UTC",
        " 2026-11-20T10:00 ",
        SECONDS,
        float(SECONDS),
        SECONDS * 10**3,
        SECONDS * 10**6,
        SECONDS * 10**9,
        f"{SECONDS * 10**9:020}",
        str(SECONDS),
        datetime(2026, 11, 20, 10),
        datetime(2026, 11, 20, 11, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_moment_in_any_notation_is_one_text_in_utc(value):
    assert normalize_time(value) == TEN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2026-11-20", "2026-11-20T00:00:00Z"),
        ("20261120", "2026-11-20T00:00:00Z"),
        (SECONDS + 0.25, "2026-11-20T10:00:00.250000Z"),
        (SECONDS * 10**9 + 123_456_789, "2026-11-20T10:00:00.123456Z"),
        ("2026-11-20T10:00:00.123456789Z", "2026-11-20T10:00:00.123456Z"),
    ],
)
def test_a_day_and_a_fraction_of_a_second_are_kept_to_the_microsecond(value, text):
    assert normalize_time(value) == text


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", "last week", "0001-01-01T00:00:00+05:00", "000002", 1.83, 0, -SECONDS, 10**9 - 1, 10**20),
        *(float("inf"), float("nan"), True, [TEN]),
    ],
)
def test_what_is_no_moment_has_no_time(value):
    assert normalize_time(value) is None


def test_microseconds_are_those_since_1970_and_turn_back():
    assert to_microseconds(TEN) == SECONDS * 10**6
    assert to_datetime(SECONDS * 10**6) == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert (to_microseconds(None), to_microseconds("last week")) == (None, None)
