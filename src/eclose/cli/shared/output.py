"""How commands print: tables for people on a terminal, plain aligned text for files and pipes.

Off a terminal there are no colour codes, no boxes and no progress lines. Whatever comes from a file is made
printable first: a title or an id must not be able to move the cursor or rename the window.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.cases import CaseSet
    from eclose.stats.intervals import Interval
    from eclose.store.records.counts import Counts
    from eclose.store.runs.step import RunStep

T = TypeVar("T")
Lines: TypeAlias = "list[tuple[str, ...]]"

QUARANTINED = 3
"""The exit code of a command that finished and could not read some records."""

AllowStale = Annotated[
    bool,
    typer.Option(
        "--allow-stale",
        help="Use judgments that were made from other files than those that are there; every output says so.",
    ),
]

_NUMERIC = re.compile(r"\[?[-−+]?(?:\d|\s|$)")
_GAP = 2


def printable(text: object) -> str:
    """The text with everything that is no visible character or blank written as an escape."""
    return "".join(
        character if character.isprintable() or character in "\u00a0\u3000" else _escape(character)
        for character in str(text)
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def say(text: object) -> None:
    """Print a line, made printable."""
    typer.echo(printable(text))


def plural(count: int, noun: str, several: str | None = None) -> str:
    """``1 response``, ``2,000 responses``, ``3 families``."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def percent(value: float | None) -> str:
    """``46.3``; a dash for what is undefined."""
    return "-" if value is None else f"{100 * value:.1f}"


def percent_range(interval: Interval | None) -> str:
    """``[40.9, 51.9]``; a dash where there is no interval."""
    return "-" if interval is None else f"[{percent(interval.low)}, {percent(interval.high)}]"


def percent_span(bounds: Interval | None) -> str:
    """``40.9 to 51.9``, for bounds; a dash where there are none."""
    return "-" if bounds is None else f"{percent(bounds.low)} to {percent(bounds.high)}"


def figure(value: float | None, interval: Interval | None) -> str:
    """``46.3 % [40.9, 51.9]``; a dash for what is undefined."""
    if value is None:
        return "-"
    return f"{percent(value)} %" + ("" if interval is None else f" {percent_range(interval)}")


def say_written(stage: RunStep, counts: Counts, *, again: bool, doubt: str = "is this the right file") -> None:
    """What a stage wrote, where every record went, and what to doubt when no record could be read."""
    say(f"{stage.out}: {counts}" + (" (done before, nothing to do)" if again else ""))
    if counts.quarantined:
        say(f"  what could not be read, and why: {stage.quarantine_path}")
        if not counts.accepted:
            say(f"  nothing could be read: {doubt}?")


def say_notices(read: CaseSet) -> None:
    """Print what a reader of a run's rates must know first: stale files, a missing manifest, records not used."""
    for sentence in read.stale:
        say(f"STALE: {sentence}")
    for sentence in read.notices[len(read.stale) :]:
        say(sentence)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; columns of numbers are aligned right, others left. Nothing in it is ever cut.

    On a terminal, a table that is too wide for a frame does without, and one that is still too wide is turned on its
    side, a few rows at a time.
    """
    lines: Lines = [tuple(map(printable, row)) for row in rows]
    if not sys.stdout.isatty():
        _print_plain(title, columns, lines)
        return
    width = _terminal_width()
    natural = sum(_widths(columns, lines))
    if natural + 3 * len(columns) + 1 <= width:
        _print_rich(title, columns, lines)
    elif natural + _GAP * (len(columns) - 1) <= width or not lines:
        _print_plain(title, columns, lines)
    else:
        _print_turned(title, columns, lines, width)


def _widths(columns: Sequence[str], lines: Lines) -> list[int]:
    return [max(map(_cells, cells)) for cells in zip(columns, *lines, strict=True)]


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes: a Chinese character takes two, an accent of its own none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def _padded(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - _cells(text))
    return blanks + text if right else text + blanks


def _flush_right(columns: Sequence[str], lines: Lines) -> list[bool]:
    return [all(map(_NUMERIC.match, cells)) for cells in zip(*lines, strict=True)] or [False] * len(columns)


def _terminal_width() -> int:
    from rich.console import Console

    return Console().width


def _print_plain(title: str, columns: Sequence[str], lines: Lines, right: Sequence[bool] | None = None) -> None:
    widths = _widths(columns, lines)
    flush = right or _flush_right(columns, lines)
    typer.echo(title)
    for row in (columns, *lines):
        cells = (_padded(cell, width, right=end) for cell, width, end in zip(row, widths, flush, strict=True))
        typer.echo((" " * _GAP).join(cells).rstrip())


def _print_turned(title: str, columns: Sequence[str], lines: Lines, width: int) -> None:
    """Columns become lines, as many rows side by side as fit; one row always does."""
    room = width - max(map(_cells, columns))
    start = 0
    while start < len(lines):
        end, used = start, 0
        while end < len(lines) and (used := used + _GAP + max(map(_cells, lines[end]))) <= room:
            end += 1
        block = lines[start : max(end, start + 1)]
        head, *turned = zip(columns, *block, strict=True)
        _print_plain(title if start == 0 else "", head, turned, [False, *[True] * len(block)])
        start += len(block)


def _print_rich(title: str, columns: Sequence[str], lines: Lines) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    typer.echo(title)  # not the table's own, which would be folded to the width of a narrow table
    table = Table()
    for column, flush in zip(columns, _flush_right(columns, lines), strict=True):
        table.add_column(Text(column), justify="right" if flush else "left", overflow="fold")
    for row in lines:
        table.add_row(*map(Text, row))  # as text: a cell such as "4 [4, 4]" is no markup
    Console().print(table)


def counted(records: Iterable[T], label: str) -> Iterator[T]:
    """Pass records on; on a terminal, say on standard error how many there were so far."""
    if not sys.stderr.isatty():
        yield from records
        return
    from rich.console import Console
    from rich.text import Text

    label = printable(label)
    with Console(stderr=True).status(Text(label)) as status:
        for number, record in enumerate(records, start=1):
            if number % 1000 == 0:
                status.update(Text(f"{label}: {number:,} records"))
            yield record
