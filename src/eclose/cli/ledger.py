"""``eclose ledger``: check a call ledger, read its calls, and delete what should be asked again."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import QUARANTINED_EXIT_CODE, format_count, print_line, print_text_block

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.calls.ledger_tools import CallDetails, CallFilter

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check the ledger of model calls, read its requests and replies, and prune what should be asked again.",
)

LedgerLocation = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        help="Folder of a run with ledger.sqlite, file of a ledger, or postgresql:// URL.",
        show_default=False,
    ),
]
Key = Annotated[str | None, typer.Option(help="Key of a call (sha256:...), or its beginning.", show_default=False)]
Record = Annotated[str | None, typer.Option(help="Id of the record that a call was made for.", show_default=False)]
StageName = Annotated[
    str | None, typer.Option("--stage", help="Step that a call was made in, such as judge.", show_default=False)
]
Kind = Annotated[
    str | None,
    typer.Option(
        help="State: answered, refused, unanswered or damaged; or why refused: refusal, length, empty, invalid.",
        show_default=False,
    ),
]
Reason = Annotated[str | None, typer.Option(help="Part of the message why a reply was refused.", show_default=False)]


@app.command()
def verify(location: LedgerLocation) -> None:
    """Check every key and checksum of a ledger; exit with 3 where a row is damaged."""
    where = _find_ledger(location)
    import asyncio

    # Imported after the ledger was found: without the extra, _find_ledger has printed the install command by now.
    from eclose.calls.ledger_tools import verify_ledger
    from eclose.store.ledger.database import describe_database_location

    problems = asyncio.run(verify_ledger(where))
    for problem in problems:
        print_line(problem)
    if problems:
        remedy = f"eclose ledger prune {describe_database_location(where)} --damaged"
        print_line(f"{format_count(len(problems), 'problem')}. To delete the rows: {remedy}")
        raise typer.Exit(QUARANTINED_EXIT_CODE)
    print_line(f"{describe_database_location(where)}: all rows match their checksums")


@app.command()
def show(
    location: LedgerLocation,
    *,
    key: Key = None,
    record: Record = None,
    stage: StageName = None,
    kind: Kind = None,
    reason: Reason = None,
    limit: Annotated[int, typer.Option(min=0, help="Most calls to print (0 = all).")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Print calls with request, reply, and the reason why a reply was refused. The ledger is not changed."""
    where = _find_ledger(location)
    from eclose.calls.ledger_tools import CallFilter, find_ledger_calls

    call_filter = CallFilter(key=key, record=record, stage=stage, kind=kind, reason=reason)
    calls = find_ledger_calls(where, call_filter)
    printed = 0
    # Calls are read one by one: a ledger may be larger than the memory.
    for view in islice(calls, limit or None):
        printed += 1
        if as_json:
            typer.echo(json.dumps(view.as_json()))
        else:
            _print_call(view)
    if not as_json:
        # One call beyond the limit is read to see whether there are more; a ledger may hold millions.
        more = printed == limit and next(calls, None) is not None
        print_line(
            f"{format_count(printed, 'call')} printed" + (f"; there are more: raise --limit {limit}" if more else "")
        )


def _print_call(view: CallDetails) -> None:
    reason = "" if view.problem is None else f": {view.problem}"
    print_line(f"{view.stored.key} {view.kind or view.state}{reason}")
    settled = view.stored.settled
    if settled is not None:
        cached = f" ({settled.cached_tokens:,} from the provider's cache)" if settled.cached_tokens else ""
        print_line(
            f"  {view.model}: {settled.usage[0]:,} tokens read{cached}, {settled.usage[1]:,} written, "
            # Costs are stored as whole millionths of the currency.
            f"{settled.cost / 1_000_000:.6f} charged"
        )
    else:
        print_line(f"  {view.model}")
    for purpose in view.stored.purposes:
        outcome = purpose.outcome or "not done"
        reason = "" if purpose.reason is None else f" ({purpose.reason})"
        print_line(f"  for {purpose.stage} of {purpose.record_id}: {outcome}{reason}")
    if view.unjudged:
        print_line("  labels missing: " + ", ".join(f"{name} ({reason})" for name, reason in view.unjudged.items()))
    for message in (view.stored.request or {}).get("messages") or ():
        print_text_block(str(message.get("role")), str(message.get("content")))
    if view.text is not None:
        print_text_block("reply", view.text)
    print_line("")


@app.command()
def prune(
    location: LedgerLocation,
    *,
    key: Key = None,
    record: Record = None,
    stage: StageName = None,
    kind: Kind = None,
    reason: Reason = None,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Delete every row that does not match its checksum.")
    ] = False,
    orphans: Annotated[
        bool,
        typer.Option(
            "--orphans",
            help="Count calls that broke off as not billed, so that they use no budget. No run may be active.",
        ),
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            help="Delete finished runs that were last worked on this long ago, such as 90d, 12h or 8w. Needs --yes.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --older-than: delete. Without it, print what would be deleted.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be deleted; delete nothing.")] = False,
) -> None:
    """Delete calls with their replies, so that they are sent, and paid for, again when needed.

    The outcomes of the runs that made these calls are deleted as well. Run their command again with --force: it uses
    every reply that is still in the ledger, and sends only the deleted calls. With --older-than, whole runs are
    deleted; their result files stay.
    """
    where = _find_ledger(location)
    import asyncio

    from eclose.calls.ledger_tools import CallFilter, release_interrupted_calls
    from eclose.errors import SettingError

    call_filter = CallFilter(key=key, record=record, stage=stage, kind=kind, reason=reason)
    if older_than is not None:
        if damaged or orphans or not call_filter.empty:
            raise SettingError("--older-than deletes whole runs. Leave the other options out.")
        _prune_old_runs(where, older_than, delete=yes and not dry_run)
        return
    if orphans:
        # Orphans are released run by run; a filter would suggest that only some of them are.
        if damaged or not call_filter.empty:
            raise SettingError("--orphans releases the calls of all runs that broke off. Leave the other options out.")
        count = asyncio.run(release_interrupted_calls(where, dry_run=dry_run))
        print_line(f"{format_count(count, 'call')} that broke off " + ("would be released" if dry_run else "released"))
        return
    _prune(where, call_filter, damaged=damaged, dry_run=dry_run)


def _prune(where: Path | str, call_filter: CallFilter, *, damaged: bool, dry_run: bool) -> None:
    import asyncio

    from eclose.calls.ledger_tools import plan_ledger_prune, prune_ledger

    plan = plan_ledger_prune(where, call_filter, damaged=damaged)
    deleted = f"{format_count(len(plan.calls), 'call')} and the outcomes of {format_count(len(plan.runs), 'run')}"
    if dry_run:
        print_line(f"{deleted} would be deleted")
        return
    rows = asyncio.run(prune_ledger(where, plan))
    print_line(f"{deleted} deleted ({format_count(rows, 'row')})")
    if plan.calls or plan.runs:
        print_line("  to ask again, run the same command with --force: replies still in the ledger are not paid again")


def _prune_old_runs(where: Path | str, older_than: str, *, delete: bool) -> None:
    """Print the runs that are old enough to delete, and delete them."""
    import asyncio

    from eclose.calls.ledger_tools import delete_ledger_runs, parse_age, plan_ledger_retention

    plan = asyncio.run(plan_ledger_retention(where, parse_age(older_than)))
    for run, reason in plan.keep:
        print_line(f"kept: {run.run}: {reason}")
    for run in plan.delete:
        usage = run.usage
        print_line(
            f"{run.run}: last worked on {run.age / 86_400:.0f} days ago, {usage.replies:,} replies,"
            f" {format_count(run.outcomes, 'outcome')}, {usage.cost / 1_000_000:.6f} charged"
        )
    runs = format_count(len(plan.delete), "run")
    if not delete:
        print_line(f"{runs} would be deleted" + ("; to delete, add --yes" if plan.delete else ""))
        return
    rows = asyncio.run(delete_ledger_runs(where, [run.run for run in plan.delete])) if plan.delete else 0
    print_line(f"{runs} deleted ({format_count(rows, 'row')})")


def _find_ledger(location: str) -> Path | str:
    """Return the path or URL of a ledger; raise with the install command where the extra is missing."""
    from eclose.errors import UserError

    try:
        from eclose.store.ledger.reader import find_ledger
    # Named here, because annotate brings sqlalchemy as well: the generic message could name the wrong extra.
    except ImportError as missing:
        raise UserError("reading a ledger needs sqlalchemy. Run: pip install 'eclose[chat]'") from missing
    return find_ledger(location)
