"""Canonical values and their surface forms: dates, years, numbers, durations and names.

A value is a plain string in canonical form (a date is ``YYYY-MM-DD``, a duration is in minutes). Reading maps every
surface form to it; writing picks a surface form at random. Names are their own canonical form.
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
    """The type of a value."""

    NAME = "name"
    DATE = "date"
    YEAR = "year"
    NUMBER = "number"
    MINUTES = "minutes"


# A name starts with a capital and may hold small words; "(film)" may follow. No full stops, so sentences split.
NAME_WORD = r"[A-Z0-9À-Þ][\w'’-]*"
NAME = rf"{NAME_WORD}(?: (?:{NAME_WORD}|of|the|a|for))*(?: \([a-z ]+\))?"

PATTERNS: dict[ValueKind, str] = {
    ValueKind.NAME: NAME,
    ValueKind.DATE: rf"\d{{1,2}} (?:{_MONTH}) \d{{4}}|(?:{_MONTH}) \d{{1,2}}, \d{{4}}",
    ValueKind.YEAR: r"\d{4}",
    # With or without thousands separators.
    ValueKind.NUMBER: r"\d{1,3}(?:,\d{3})+|\d+",
    ValueKind.MINUTES: r"\d+ minutes|\d+ hours?(?: and \d+ minutes)?",
}
_FULL = {kind: re.compile(pattern) for kind, pattern in PATTERNS.items()}
_DAY_FIRST = re.compile(rf"(\d{{1,2}}) ({_MONTH}) (\d{{4}})")
_MONTH_FIRST = re.compile(rf"({_MONTH}) (\d{{1,2}}), (\d{{4}})")
_HOURS = re.compile(r"(\d+) hours?(?: and (\d+) minutes)?")
_SURNAME_FIRST = re.compile(rf"({NAME_WORD}), ({NAME_WORD}(?: [A-Z])?)")


def parse_value(kind: ValueKind, text: str) -> str | None:
    """Return the canonical value of a surface form, None where the text is not of that kind."""
    if not _FULL[kind].fullmatch(text):
        return None
    if kind is ValueKind.DATE:
        return _read_date(text)
    if kind is ValueKind.NUMBER:
        return text.replace(",", "")
    if kind is ValueKind.MINUTES:
        return _read_minutes(text)
    return text


def parse_value_of_any_kind(text: str) -> str | None:
    """Return the canonical value of a text that is a date, a duration, a number or a name, else None."""
    kinds = (ValueKind.DATE, ValueKind.MINUTES, ValueKind.NUMBER, ValueKind.NAME)
    return next((value for kind in kinds if (value := parse_value(kind, text)) is not None), None)


def _read_date(text: str) -> str:
    if matched := _DAY_FIRST.fullmatch(text):
        day, month, year = matched.groups()
    else:
        matched = _MONTH_FIRST.fullmatch(text)
        assert matched is not None
        month, day, year = matched.groups()
    return f"{year}-{MONTHS.index(month) + 1:02d}-{int(day):02d}"


def _read_minutes(text: str) -> str:
    if hours := _HOURS.fullmatch(text):
        return str(60 * int(hours[1]) + int(hours[2] or 0))
    return text.split(maxsplit=1)[0]


def draw_surface_form(kind: ValueKind, value: str, rng: Random) -> str:
    """Return one of the surface forms of a canonical value, chosen at random.

    The random stream advances by one draw whatever the value, so an edited text differs in the value alone.
    """
    first = rng.random() < 0.5
    if kind is ValueKind.DATE:
        year, month, day = value.split("-")
        name = MONTHS[int(month) - 1]
        return f"{int(day)} {name} {year}" if first else f"{name} {int(day)}, {year}"
    if kind is ValueKind.NUMBER:
        # Numbers of five digits and more always get separators.
        return f"{int(value):,}" if first or len(value) > 4 else value
    if kind is ValueKind.MINUTES:
        hours, minutes = divmod(int(value), 60)
        words = f"{hours} hour{'s' * (hours > 1)}" + (f" and {minutes} minutes" if minutes else "")
        # "2 hours and 1 minutes" is never written.
        return words if first and hours and minutes != 1 else f"{value} minutes"
    return value


def parse_answer_value(text: str) -> str:
    """Return the canonical form of an answer of unknown kind: date, duration, number, or the text itself.

    A name written surname first, as in an index, is turned round.
    """
    stripped = text.strip().rstrip(".")
    # Years need no case of their own: they read as numbers.
    for kind in (ValueKind.DATE, ValueKind.MINUTES, ValueKind.NUMBER):
        if (value := parse_value(kind, stripped)) is not None:
            return value
    if inverted := _SURNAME_FIRST.fullmatch(stripped):
        return f"{inverted[2]} {inverted[1]}"
    return stripped


def is_comparable(value: str) -> bool:
    """Return whether a value is a date, a year or a number: traces also claim dates that are none."""
    return all(part.isdecimal() for part in value.split("-"))


def extract_year(value: str) -> int:
    """Return the year of a date or of a year."""
    return int(value[:4])
