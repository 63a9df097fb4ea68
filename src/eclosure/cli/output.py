"""How commands print: tables for people on a terminal, plain aligned text for files and pipes.

Off a terminal there are no colour codes, no boxes and no progress lines.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

T = TypeVar("T")


_NUMERIC = re.compile(r"-?$|\d")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; columns of numbers are aligned right, others left."""
    lines = [tuple(row) for row in rows]
    right = [all(map(_NUMERIC.match, cells)) for cells in zip(*lines, strict=True)] or [False] * len(columns)
    if sys.stdout.isatty():
        _print_rich(title, columns, lines, right)
    else:
        _print_plain(title, columns, lines, right)


def _print_plain(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    typer.echo(title)
    for row in (columns, *rows):
        cells = (
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        )
        typer.echo("  ".join(cells).rstrip())


def _print_rich(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for column, flush in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if flush else "left")
    for row in rows:
        table.add_row(*map(Text, row))  # as text: a cell such as "4 [4-4]" is no markup
    Console().print(table)


def counted(records: Iterable[T], label: str) -> Iterator[T]:
    """Pass records on; on a terminal, say on standard error how many there were so far."""
    if not sys.stderr.isatty():
        yield from records
        return
    from rich.console import Console

    with Console(stderr=True).status(label) as status:
        for number, record in enumerate(records, start=1):
            if number % 1000 == 0:
                status.update(f"{label}: {number:,} records")
            yield record
