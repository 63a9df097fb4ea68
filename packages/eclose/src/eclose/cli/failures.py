"""``eclose failures``: the responses of judged runs that need mending, as a list or a table."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import AllowStale, OriginOption, escape_invisible, format_count, print_line, print_table
from eclose.report.formats.file_formats import FailureFormat
from eclose.values.verdict import FailureKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.report.failures import FailureList

_SHOWN, _SHOWN_OF_ONE = 2, 10
"""Responses of each kind that are printed, and of a single kind."""


def failures(
    runs: Annotated[list[Path], typer.Argument(help="Folders of judged runs, or tables of their labels.")],
    *,
    kind: Annotated[FailureKind | None, typer.Option(help="Only the responses of this kind.")] = None,
    to: Annotated[FailureFormat | None, typer.Option("--to", help="Format of the list.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File of the list.  [default: the standard output]")
    ] = None,
    origin: OriginOption = None,
    allow_stale: AllowStale = False,
) -> None:
    """List the responses that need mending: what is wrong with each, in which step, and what the judge says.

    Each unreliable response has one kind, the first of these that applies: the passages do not settle the question
    (retrieval), the answer is an abstention although they do (abstained), a step does not hold (unsound), another
    question is pursued (path), the reference answer is not established (incomplete), or it is established and another
    one submitted (decoupling); without a reference the last two are not told apart (closure).

    Without --to and --out, the kinds and the worst responses of each are printed. The rows of a list hold ids, your own
    columns, question, answers, labels, steps and sentences of every unreliable response.
    """
    from eclose.api.results import find_report_page, list_run_caveats
    from eclose.diagnosis.label_table import TraceStratum
    from eclose.diagnosis.run_counts import count_runs
    from eclose.readers.judged_run import copy_unfinished_run
    from eclose.report.failures import FailureList, find_failure_format, write_failures

    form = find_failure_format(to, out)
    with TemporaryDirectory(prefix="eclose-") as scratch:
        copies = [copy_unfinished_run(run, Path(scratch, str(number))) for number, run in enumerate(runs)]
        paths = [run if copy is None else copy[0] for run, copy in zip(runs, copies, strict=True)]
        counted = count_runs(paths, allow_stale=allow_stale, stratum=None if origin is None else TraceStratum(origin))
        notices = [*(copy[1] for copy in copies if copy is not None), *list_run_caveats(counted.caveats)]
        if counted.whole is not None:
            others = format_count(len(counted.whole) - len(counted.labels), "response")
            notices.append(f"{others} with traces of another origin are listed with --origin alone.")
        for notice in notices:
            # A list on the standard output is read by a program.
            typer.echo(escape_invisible(notice), err=form is not None and out is None)
        listed = FailureList(counted, kind, find_report_page(runs[0]))
        if form is None:
            _print_list(listed, runs, kind)
            return
        written = write_failures(listed, form, out)
        if out is not None:
            print_line(f"{out}: {format_count(written, 'response')}")


def _print_list(listed: FailureList, runs: Sequence[Path], kind: FailureKind | None) -> None:
    from eclose.report.failures import list_failure_lines, name_failure_row, summarize_failures
    from eclose.report.wording import KIND_WORDS

    title, *others = summarize_failures(listed)
    if listed.counts:
        cells = [[each, f"{count:,}", KIND_WORDS[each]] for each, count in listed.counts.items()]
        print_table(title, ["kind", "n", "what is wrong"], cells)
    else:
        print_line(title)
    for sentence in others:
        print_line(sentence)
    if not listed:
        if kind is not None and listed.counts:
            print_line(f"No response is of the kind {kind}.")
        return
    for each, rows in listed.list_worst(_SHOWN if kind is None else _SHOWN_OF_ONE).items():
        count = listed.counts[each]
        more = f" (the worst {len(rows)} of {count:,})" if count > len(rows) else ""
        print_line("")
        print_line(f"{each}: {KIND_WORDS[each]}{more}")
        for row in rows:
            print_line(f"  {name_failure_row(row, listed)}")
            for name, text in list_failure_lines(row):
                _print_field(name, text)
    print_line("")
    names = " ".join(map(str, runs))
    print_line(f"All of them, with every field: eclose failures {names} --out failures.csv")


def _print_field(name: str, text: str) -> None:
    """Print a name and a text; on a terminal, lines that do not fit are broken between words."""
    head = f"    {name:<10}"
    content = escape_invisible(" ".join(text.split()))
    if not sys.stdout.isatty():
        typer.echo(head + content)
        return
    width = shutil.get_terminal_size().columns
    typer.echo(textwrap.fill(content, width, initial_indent=head, subsequent_indent=" " * len(head)))
