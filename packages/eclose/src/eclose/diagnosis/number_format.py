"""Number formats of all reports and commands: ``46.3 % [40.9, 51.9]``, ``+4.2``, ``2,000 responses``.

Values are rates between 0 and 1 and are printed in percent with one decimal. The texts are plain: each output format
escapes them itself. Importing this module loads no numerical library, so commands can use it at start-up.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eclose.diagnosis.show_invisible import reveal_invisible_chars

if TYPE_CHECKING:
    from eclose.stats.intervals import Interval
    from eclose.values.three_valued import Label

DASH = "–"
"""Stands for an undefined value or a missing label in reports."""
NO_BREAK = "\u00a0"


def to_one_line(text: str) -> str:
    """Return the text on a single line, with invisible characters made visible."""
    return " ".join(reveal_invisible_chars(text).split())


def format_percent(value: float | None, undefined: str = DASH, *, decimals: int = 1) -> str:
    """Return ``46.3``; ``undefined`` where there is no value."""
    return undefined if value is None else f"{100 * value:.{decimals}f}"


def format_percent_interval(interval: Interval | None, undefined: str = "", *, decimals: int = 1) -> str:
    """Return ``[40.9, 51.9]``; ``undefined`` where there is no interval."""
    if interval is None:
        return undefined
    return "[" + ", ".join(format_percent(end, decimals=decimals) for end in interval) + "]"


def format_score(value: float | None, undefined: str = DASH) -> str:
    """Return ``0.918`` for a score or an AUROC; ``undefined`` where there is no value."""
    return undefined if value is None else f"{value:.3f}"


def format_score_interval(interval: Interval | None, undefined: str = "") -> str:
    """Return ``[0.910, 0.925]``; ``undefined`` where there is no interval."""
    return undefined if interval is None else f"[{format_score(interval.low)}, {format_score(interval.high)}]"


def format_percent_span(bounds: Interval | None, undefined: str = DASH) -> str:
    """Return ``22.2 to 33.3``, or one number where both ends are printed alike."""
    if bounds is None:
        return undefined
    low, high = format_percent(bounds.low), format_percent(bounds.high)
    return low if low == high else f"{low} to {high}"


def format_percent_between(bounds: Interval) -> str:
    """Return ``between 22.2 % and 33.3 %``, or one number where both ends are printed alike."""
    low, high = format_percent(bounds.low), format_percent(bounds.high)
    return f"{low} %" if low == high else f"between {low} % and {high} %"


def format_percent_about(bounds: Interval) -> str:
    """Return ``about 18 %`` where the ends are at most a point apart, else as ``format_percent_between``."""
    if bounds.high - bounds.low > 0.01 or format_percent(bounds.low) == format_percent(bounds.high):
        return format_percent_between(bounds)
    whole = round(50 * (bounds.low + bounds.high))
    # "About 0 %" would read as none, and "about 100 %" as all.
    return {0: "under 1 %", 100: "over 99 %"}.get(whole, f"about {whole} %")


def format_percent_with_interval(value: float | None, interval: Interval | None, undefined: str = "undefined") -> str:
    """Return ``46.3 % [40.9, 51.9]``; without brackets where there is no interval."""
    return undefined if value is None else f"{format_percent(value)} % {format_percent_interval(interval)}".rstrip()


def format_signed_percent(value: float | None, *, decimals: int = 1) -> str:
    """Return ``+4.2`` or ``−4.2`` for a difference; a value that rounds to zero has no sign."""
    if value is None:
        return DASH
    # Rounded first: -0.0004 would otherwise print as a negative zero.
    rounded = f"{100 * value:+.{decimals}f}"
    return rounded.lstrip("+-") if float(rounded) == 0 else rounded.replace("-", "−")


def format_signed_interval(interval: Interval | None, *, decimals: int = 1) -> str:
    """Return ``[−1.3, +9.7]``; empty where there is no interval."""
    if interval is None:
        return ""
    return "[" + ", ".join(format_signed_percent(end, decimals=decimals) for end in interval) + "]"


def format_count(count: int, noun: str, several: str | None = None) -> str:
    """Return ``1 response``, ``2,000 responses``, ``3 families``."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def format_binary_label(label: Label) -> str:
    """Return ``1``, ``0``, or a dash for an unjudged label."""
    return DASH if label is None else str(int(label))


# A blank before a unit, after "n", between the ends of an interval, and between a percentage and its interval.
_UNIT = re.compile(r"(?<=\d) (?=%|points\b)|(?<=\bn) (?=\d)|(?<=\d,) (?=[−+\d.]+\\?\])|(?<=%) (?=\\?\[)")


def add_no_break_spaces(text: str) -> str:
    """Return the text with no-break spaces between numbers and units, and within intervals."""
    return _UNIT.sub(NO_BREAK, text)
