"""Printing of commands: framed tables on a terminal, plain aligned text in files and pipes, summaries of runs.

Off a terminal there are no colour codes, frames or progress lines. All text from a file passes ``escape_invisible``
first: a title or an id must not be able to move the cursor or rename the window.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import typer

from eclose.cli.shared.recipe import recipe_key
from eclose.diagnosis import number_format as format_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eclose.calls.run import RunResult
    from eclose.files.outcome_counts import RecordCounts
    from eclose.files.step import PipelineStep

T = TypeVar("T")
Lines: TypeAlias = "list[tuple[str, ...]]"

QUARANTINED_EXIT_CODE = 3
"""Exit code of a command that finished and could not read some records."""

AllowStale = Annotated[
    bool,
    typer.Option(
        "--allow-stale", help="Use judgments although the files they were made from have changed; every output says so."
    ),
]
OriginOption = Annotated[
    Literal["stated", "prose", "hidden"] | None,
    typer.Option(
        "--origin",
        help="Traces that are rated: stated as such, prose of the reply itself, or hidden thinking.  [default: stated]",
    ),
]
ReplaceValidation = Annotated[
    bool,
    typer.Option(
        "--replace-validation", help="Replace a validation of the same judge with more labels, or more of a criterion."
    ),
]
OtherBenchmark = Annotated[bool, recipe_key()]

# An empty cell and a hyphen count as numbers, so that an undefined value does not align its column left.
_NUMERIC = re.compile(r"\[?[-−+]?(?:\d|\s|$)")
_GAP = 2


def escape_invisible(text: object) -> str:
    """Return the text with control and other invisible characters written as escapes."""
    return "".join(
        # No-break and ideographic spaces are not printable to Python, and harmless in names and titles.
        character
        if character.isprintable() or character in "\u00a0\u3000"
        else character.encode("unicode_escape").decode()
        for character in str(text)
    )


def print_line(text: object) -> None:
    """Print a line, made printable."""
    typer.echo(escape_invisible(text))


format_count = format_numbers.format_count
# A hyphen stands for an undefined value on a terminal.
format_percent = partial(format_numbers.format_percent, undefined="-")
format_percent_interval = partial(format_numbers.format_percent_interval, undefined="-")
format_percent_span = partial(format_numbers.format_percent_span, undefined="-")
format_percent_with_interval = partial(format_numbers.format_percent_with_interval, undefined="-")


def print_text_block(title: str, text: str) -> None:
    """Print a text of any length under a title, one line for each of its lines."""
    print_line(f"  {title}")
    for line in text.split("\n"):
        typer.echo(f"    {escape_invisible(line)}")


def print_step_result(
    stage: PipelineStep, counts: RecordCounts, *, again: bool, doubt: str = "is this the right file"
) -> None:
    """Print what a step wrote and its counts; ask ``doubt`` where no record could be read."""
    print_line(f"{stage.out}: {counts}" + (" (done before, nothing to do)" if again else ""))
    if counts.rejected and stage.explains_rejected:
        print_line(f"  rejected records, with reasons: {stage.rejected_path}")
    if counts.quarantined:
        print_line(f"  records that could not be read, with reasons: {stage.quarantine_path}")
        # All records unreadable: most likely the wrong file or layout, not a broken file.
        if not counts.accepted:
            print_line(f"  no record could be read: {doubt}?")


def print_run_summary(result: RunResult, remark: str | None = None, *, accepted: str = "accepted") -> None:
    """Print the counts of a model run, its rejected and quarantined files, and its calls, tokens and cost.

    ``accepted`` is the word for the records with a result.
    """
    from eclose.calls.prices import USD, format_money

    # From the manifest, also for a run that was done before: the summary is the same both times.
    manifest, stage = result.manifest, result.stage
    equation = manifest.counts.format_equation(accepted)
    print_line(f"{stage.out}: {equation}" + (" (done before, nothing to do)" if result.again else ""))
    for name, counts in manifest.funnel.items():
        # A stage that lost no record says nothing that the line above does not.
        if counts.accepted == counts.received and not counts.repaired:
            continue
        # Other stages read or screen records, and those that pass are accepted.
        print_line(f"  {name}: {counts.format_equation(accepted if name == stage.name else 'accepted')}")
    if remark is not None:
        print_line(f"  {remark}")
    if manifest.counts.rejected and stage.rejected_path.is_file():
        print_line(f"  rejected records, with reasons: {stage.rejected_path}")
    if manifest.counts.quarantined:
        print_line(f"  failed records, with reasons: {stage.quarantine_path}; --retry processes them again")
    # The sums of all processes and attempts of this run, from its ledger.
    calls = manifest.calls
    cost = f", {format_money(calls['cost'], calls.get('currency', USD))} spent" if calls["cost"] else ""
    unsettled = (
        f"; {format_count(calls['unsettled'], 'call')} broken off, possibly billed" if calls["unsettled"] else ""
    )
    # Manifests of earlier versions have no such count.
    cached = f" ({calls['cached_tokens']:,} from the provider's cache)" if calls.get("cached_tokens") else ""
    print_line(
        f"  {'0 calls now, before: ' if result.again else ''}{format_count(calls['replies'], 'call')}, "
        f"{calls['prompt_tokens']:,} tokens read{cached}, {calls['completion_tokens']:,} written{cost}{unsettled}"
    )


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; columns of numbers are aligned right, others left. No cell is ever cut.

    On a terminal, a table too wide for a frame is printed without one. A table that is still too wide is transposed,
    a few rows at a time.
    """
    lines: Lines = [tuple(map(escape_invisible, row)) for row in rows]
    if not sys.stdout.isatty():
        _print_plain(title, columns, lines)
        return
    from rich.console import Console

    width = Console().width
    natural = sum(_widths(columns, lines))
    # A frame takes three columns for each column of the table, and one more.
    if natural + 3 * len(columns) + 1 <= width:
        _print_rich(title, columns, lines)
    elif natural + _GAP * (len(columns) - 1) <= width or not lines:
        _print_plain(title, columns, lines)
    else:
        _print_transposed(title, columns, lines, width)


def _widths(columns: Sequence[str], lines: Lines) -> list[int]:
    return [max(map(_display_width, cells)) for cells in zip(columns, *lines, strict=True)]


def _display_width(text: str) -> int:
    """Return the columns a text takes on a terminal: a Chinese character takes two, a combining accent none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _pad(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - _display_width(text))
    return blanks + text if right else text + blanks


def _numeric_columns(columns: Sequence[str], lines: Lines) -> list[bool]:
    return [all(map(_NUMERIC.match, cells)) for cells in zip(*lines, strict=True)] or [False] * len(columns)


def _print_plain(title: str, columns: Sequence[str], lines: Lines, right: Sequence[bool] | None = None) -> None:
    widths = _widths(columns, lines)
    flush = right or _numeric_columns(columns, lines)
    typer.echo(title)
    for row in (columns, *lines):
        cells = (_pad(cell, width, right=end) for cell, width, end in zip(row, widths, flush, strict=True))
        typer.echo((" " * _GAP).join(cells).rstrip())


def _print_transposed(title: str, columns: Sequence[str], lines: Lines, width: int) -> None:
    """Print columns as lines, with as many rows side by side as fit, and at least one."""
    room = width - max(map(_display_width, columns))
    start = 0
    while start < len(lines):
        end, used = start, 0
        # A single row may be wider than the terminal; it is printed all the same, since no cell is cut.
        while end < len(lines) and (used := used + _GAP + max(map(_display_width, lines[end]))) <= room:
            end += 1
        block = lines[start : max(end, start + 1)]
        head, *transposed = zip(columns, *block, strict=True)
        _print_plain(title if start == 0 else "", head, transposed, [False, *[True] * len(block)])
        start += len(block)


def _print_rich(title: str, columns: Sequence[str], lines: Lines) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    typer.echo(title)  # not the table's own, which would be folded to the width of a narrow table
    table = Table()
    for column, flush in zip(columns, _numeric_columns(columns, lines), strict=True):
        table.add_column(Text(column), justify="right" if flush else "left", overflow="fold")
    for row in lines:
        table.add_row(*map(Text, row))  # as text: a cell such as "4 [4, 4]" is no markup
    Console().print(table)


@contextmanager
def show_status(label: str) -> Iterator[Callable[[str], None]]:
    """Show a line on standard error while the block lasts, on a terminal alone; yield what replaces its text."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(escape_invisible(label))) as status:
        yield lambda text: status.update(Text(escape_invisible(text)))


def show_record_count(records: Iterable[T], label: str) -> Iterator[T]:
    """Yield the records; on a terminal, show on standard error how many there were so far."""
    with show_status(label) as show:
        for number, record in enumerate(records, start=1):
            if number % 1000 == 0:
                show(f"{label}: {number:,} records")
            yield record
