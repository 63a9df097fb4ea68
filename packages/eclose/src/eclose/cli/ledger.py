"""``eclose ledger``: check a call ledger, and free what should be asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import QUARANTINED_EXIT_CODE, format_count, print_line

if TYPE_CHECKING:
    from eclose.calls.ledger_tools import LedgerDeletion

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check the ledger of model calls, and free the calls that broke off or were refused.",
)

LedgerLocation = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER", help="Folder of a run with ledger.sqlite, file of a ledger, or postgresql:// URL."
    ),
]


@app.command()
def check(
    location: LedgerLocation,
    *,
    delete_damaged: Annotated[
        bool, typer.Option("--delete-damaged", help="Delete every row that does not match its checksum.")
    ] = False,
) -> None:
    """Check every key and checksum of a ledger; exit with 3 where a row is damaged.

    The outcomes of runs with a damaged call are deleted with it. Run their command again with --force: it uses every
    reply that is still in the ledger, and sends only the deleted calls.
    """
    import asyncio

    from eclose.calls.ledger.database import describe_database_location
    from eclose.calls.ledger_tools import check_ledger, delete_calls, find_damaged_calls, find_ledger

    where = find_ledger(location)
    problems = asyncio.run(check_ledger(where))
    for problem in problems:
        print_line(problem.message)
    name = describe_database_location(where)
    if not problems:
        print_line(f"{name}: all rows match their checksums")
        return
    count = format_count(len(problems), "problem")
    if not delete_damaged:
        print_line(f"{count}. To delete the rows: eclose ledger check {name} --delete-damaged")
        raise typer.Exit(QUARANTINED_EXIT_CODE)
    damaged = find_damaged_calls(where, problems)
    asyncio.run(delete_calls(where, damaged))
    print_line(f"{count}. {_describe_deletion(damaged)} deleted")


@app.command()
def release(
    location: LedgerLocation,
    *,
    refused: Annotated[
        bool,
        typer.Option(
            "--refused",
            help="Delete the calls whose reply was refused, cut off, empty or invalid, instead: they are asked, and "
            "paid for, again.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be released or deleted; change nothing.")
    ] = False,
) -> None:
    """Count calls that broke off as not billed, so that they use no budget.

    No run may be active. With --refused, the outcomes of the runs that made the refused calls are deleted as well. Run
    their command again with --force: it uses every reply that is still in the ledger.
    """
    import asyncio

    from eclose.calls.ledger_tools import delete_calls, find_ledger, find_refused_calls, release_interrupted_calls

    where = find_ledger(location)
    if not refused:
        count = asyncio.run(release_interrupted_calls(where, dry_run=dry_run))
        print_line(f"{format_count(count, 'call')} that broke off " + ("would be released" if dry_run else "released"))
        return
    calls = find_refused_calls(where)
    if not dry_run:
        asyncio.run(delete_calls(where, calls))
    print_line(f"{_describe_deletion(calls)} " + ("would be deleted" if dry_run else "deleted"))


def _describe_deletion(deletion: LedgerDeletion) -> str:
    return f"{format_count(len(deletion.calls), 'call')} and the outcomes of {format_count(len(deletion.runs), 'run')}"
