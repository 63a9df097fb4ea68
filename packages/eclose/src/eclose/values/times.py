"""Moments as texts and as numbers: ISO 8601 in UTC, and microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_SECOND = 10**9
"""Seconds of September 2001. A smaller number is a duration or a step, not a moment."""
_UNITS_PER_SECOND = (1, 10**3, 10**6, 10**9)
_SPAN = 100
"""A unit is taken where the number, in it, is less than this many times ``_FIRST_SECOND``: before the year 5138."""


def normalize_time(value: object) -> str | None:
    """Return a moment as ISO 8601 in UTC; None where the value cannot be read as one.

    Args:
        value: An ISO date and time, where one without an offset is in UTC; a date; or seconds, milliseconds,
            microseconds or nanoseconds since 1970, as a number or as digits. Numbers before September 2001 are refused,
            since a column of that name may hold durations.

    Examples:
        >>> normalize_time("2026-11-20T11:00:00+01:00")
        '2026-11-20T10:00:00Z'
        >>> normalize_time(1795168800000)
        '2026-11-20T10:00:00Z'
    """
    moment = _read_moment(value)
    if moment is None:
        return None
    # datetime drops the fraction where it is zero.
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def to_microseconds(time: str | None) -> int | None:
    """Return microseconds since 1970 of a time; None where there is none or it cannot be read.

    >>> to_microseconds("1970-01-01T00:00:01Z")
    1000000
    """
    moment = None if time is None else _read_moment(time)
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def to_datetime(microseconds: int) -> datetime:
    """Return the moment that is some microseconds after 1970, in UTC."""
    return _EPOCH + microseconds * _MICROSECOND


def _read_moment(value: object) -> datetime | None:
    try:
        if isinstance(value, datetime):
            moment = value
        elif isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        elif not isinstance(value, str) or (value.strip().isdecimal() and float(value) >= _FIRST_SECOND):
            return _read_number(float(value) if isinstance(value, float) else int(value))
        else:
            moment = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
        # Without an offset, and not ``astimezone``, which would take the time zone of the machine.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _read_number(number: float) -> datetime | None:
    """Return a moment from the number of some unit since 1970, the unit by the size of the number."""
    for units in _UNITS_PER_SECOND:
        if _FIRST_SECOND * units <= number < _FIRST_SECOND * units * _SPAN:
            # In whole microseconds where the number is whole: a float of seconds has no more.
            return to_datetime(number * 10**6 // units if isinstance(number, int) else round(number / units * 10**6))
    return None
