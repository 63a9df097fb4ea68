"""One spelling for every value: dates, years, numbers and durations, and the several ways a text writes each.

A value in the world is a plain string in canonical form. Reading maps any surface form to it; writing picks a
surface form at random. Names are their own canonical form.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

MONTHS = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)
_MONTH = "|".join(MONTHS)


class ValueKind(StrEnum):
    """What sort of thing a value is."""

    NAME = "name"
    DATE = "date"
    YEAR = "year"
    NUMBER = "number"
    MINUTES = "minutes"


# A name starts with a capital and may hold small words; "(film)" may follow. No full stops, so sentences split.
_WORD = r"[A-Z0-9À-Þ][\w'’-]*"
NAME = rf"{_WORD}(?: (?:{_WORD}|of|the|a|for))*(?: \([a-z ]+\))?"

PATTERNS: dict[ValueKind, str] = {
    ValueKind.NAME: NAME,
    ValueKind.DATE: rf"\d{{1,2}} (?:{_MONTH}) \d{{4}}|(?:{_MONTH}) \d{{1,2}}, \d{{4}}",
    ValueKind.YEAR: r"\d{4}",
    ValueKind.NUMBER: r"\d{1,3}(?:,\d{3})+|\d+",
    ValueKind.MINUTES: r"\d+ minutes|\d+ hours?(?: and \d+ minutes)?",
}
_FULL = {kind: re.compile(pattern) for kind, pattern in PATTERNS.items()}
_DAY_FIRST = re.compile(rf"(\d{{1,2}}) ({_MONTH}) (\d{{4}})")
_MONTH_FIRST = re.compile(rf"({_MONTH}) (\d{{1,2}}), (\d{{4}})")
_HOURS = re.compile(r"(\d+) hours?(?: and (\d+) minutes)?")
_SURNAME_FIRST = re.compile(rf"({_WORD}), ({_WORD}(?: [A-Z])?)")


def read_value(kind: ValueKind, text: str) -> str | None:
    """The canonical value of a surface form; None when the text is not of that kind."""
    if not _FULL[kind].fullmatch(text):
        return None
    if kind is ValueKind.DATE:
        return _read_date(text)
    if kind is ValueKind.NUMBER:
        return text.replace(",", "")
    if kind is ValueKind.MINUTES:
        return _read_minutes(text)
    return text


def _read_date(text: str) -> str:
    if found := _DAY_FIRST.fullmatch(text):
        day, month, year = found.groups()
    else:
        found = _MONTH_FIRST.fullmatch(text)
        assert found is not None
        month, day, year = found.groups()
    return f"{year}-{MONTHS.index(month) + 1:02d}-{int(day):02d}"


def _read_minutes(text: str) -> str:
    if found := _HOURS.fullmatch(text):
        return str(60 * int(found[1]) + int(found[2] or 0))
    return text.split(maxsplit=1)[0]


def write_value(kind: ValueKind, value: str, rng: Random) -> str:
    """One of the surface forms of a canonical value.

    The random stream advances the same way whatever the value: an edited text differs in the value alone.
    """
    first = rng.random() < 0.5
    if kind is ValueKind.DATE:
        year, month, day = value.split("-")
        name = MONTHS[int(month) - 1]
        return f"{int(day)} {name} {year}" if first else f"{name} {int(day)}, {year}"
    if kind is ValueKind.NUMBER:
        return f"{int(value):,}" if first or len(value) > 4 else value
    if kind is ValueKind.MINUTES:
        hours, minutes = divmod(int(value), 60)
        long = f"{hours} hour{'s' * (hours > 1)}" + (f" and {minutes} minutes" if minutes else "")
        return long if first and hours and minutes != 1 else f"{value} minutes"
    return value


def read_answer_value(text: str) -> str:
    """The canonical form of an answer whose kind nobody says: a date, a duration, a number, or the text itself.

    A name that is written surname first, as in an index, is turned round.
    """
    stripped = text.strip().rstrip(".")
    for kind in (ValueKind.DATE, ValueKind.MINUTES, ValueKind.NUMBER):
        if (value := read_value(kind, stripped)) is not None:
            return value
    if found := _SURNAME_FIRST.fullmatch(stripped):
        return f"{found[2]} {found[1]}"
    return stripped


def read_year(value: str) -> int:
    """The year of a date or a year."""
    return int(value[:4])
