"""``eclosure ledger``: check a call ledger, read its calls, and delete what should be asked again."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from eclosure.cli.output import QUARANTINED, plural, printable, say

if TYPE_CHECKING:
    from pathlib import Path

    from eclosure.chat.ledger_tools import CallFilter, CallView

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check the ledger of model calls, read its requests and replies, and prune what should be asked again.",
)

Place = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        help="A run's folder with ledger.sqlite in it, a ledger's file, or a postgresql:// URL.",
        show_default=False,
    ),
]
Key = Annotated[
    str | None, typer.Option(help="The key of a call (sha256:...), or the beginning of one.", show_default=False)
]
Record = Annotated[str | None, typer.Option(help="The id of the record a call was made for.", show_default=False)]
StageName = Annotated[
    str | None, typer.Option("--stage", help="The stage a call was made in, such as judge.", show_default=False)
]
Kind = Annotated[
    str | None,
    typer.Option(
        help="answered, refused, unanswered or damaged; or why a reply was refused: refusal, length, empty, invalid.",
        show_default=False,
    ),
]
Reason = Annotated[
    str | None, typer.Option(help="A part of the sentence that says why a reply was refused.", show_default=False)
]


@app.command()
def verify(place: Place) -> None:
    """Compute every key and checksum of a ledger again; exits with 3 when something is damaged."""
    where = _where(place)
    import asyncio

    from eclosure.chat.ledger_tools import verify_ledger
    from eclosure.store.database import shown

    problems = asyncio.run(verify_ledger(where))
    for problem in problems:
        say(problem)
    if problems:
        say(f"{plural(len(problems), 'problem')}. To delete them: eclosure ledger prune {shown(where)} --damaged")
        raise typer.Exit(QUARANTINED)
    say(f"{shown(where)}: every row fits its checksum")


@app.command()
def show(
    place: Place,
    *,
    key: Key = None,
    record: Record = None,
    stage: StageName = None,
    kind: Kind = None,
    reason: Reason = None,
    limit: Annotated[int, typer.Option(min=0, help="Calls to print at most; 0 for all.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Print calls with their request, their reply, and why the reply was refused. Changes nothing."""
    where = _where(place)
    from eclosure.chat.ledger_tools import CallFilter, find_calls

    wanted = CallFilter(key=key, record=record, stage=stage, kind=kind, reason=reason)
    calls = find_calls(where, wanted)
    printed = 0
    for view in islice(calls, limit or None):
        printed += 1
        if as_json:
            typer.echo(json.dumps(view.as_json()))
        else:
            _print_call(view)
    if not as_json:
        more = printed == limit and next(calls, None) is not None
        say(f"{plural(printed, 'call')} printed" + (f"; there are more: raise --limit {limit}" if more else ""))


def _print_call(view: CallView) -> None:
    reason = "" if view.problem is None else f": {view.problem}"
    say(f"{view.stored.key} {view.kind or view.state}{reason}")
    settled = view.stored.settled
    if settled is not None:
        say(
            f"  {view.model}: {settled.usage[0]:,} tokens read, {settled.usage[1]:,} written, "
            f"{settled.cost / 1_000_000:.6f} charged"
        )
    else:
        say(f"  {view.model}")
    for purpose in view.stored.purposes:
        outcome = purpose.outcome or "not done"
        reason = "" if purpose.reason is None else f" ({purpose.reason})"
        say(f"  for {purpose.stage} of {purpose.record_id}: {outcome}{reason}")
    if view.unjudged:
        say("  labels missing: " + ", ".join(f"{name} ({reason})" for name, reason in view.unjudged.items()))
    for message in (view.stored.request or {}).get("messages") or ():
        _print_text(str(message.get("role")), str(message.get("content")))
    if view.text is not None:
        _print_text("reply", view.text)
    say("")


def _print_text(title: str, text: str) -> None:
    """Print a text of any length under a title, one line for each of its lines."""
    say(f"  {title}")
    for line in text.split("\n"):
        typer.echo(f"    {printable(line)}")


@app.command()
def prune(
    place: Place,
    *,
    key: Key = None,
    record: Record = None,
    stage: StageName = None,
    kind: Kind = None,
    reason: Reason = None,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Delete every row that does not fit its checksum.")
    ] = False,
    orphans: Annotated[
        bool,
        typer.Option(
            "--orphans",
            help="Count calls that broke off as not billed, so that they use up no budget. No run may be under way.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be deleted; delete nothing.")] = False,
) -> None:
    """Delete calls with their replies, so that they are sent, and paid, again when they are needed.

    What the runs that made these calls had concluded is forgotten too. Run their command again with --force: it takes
    every reply that is still in the ledger, and sends only what was deleted.
    """
    where = _where(place)
    import asyncio

    from eclosure.chat.ledger_tools import CallFilter, release_orphans
    from eclosure.errors import SettingError

    wanted = CallFilter(key=key, record=record, stage=stage, kind=kind, reason=reason)
    if orphans:
        if damaged or not wanted.empty:
            raise SettingError("--orphans releases the calls of all runs that broke off. Leave the other options out.")
        count = asyncio.run(release_orphans(where, dry_run=dry_run))
        say(f"{plural(count, 'call')} that broke off " + ("would be released" if dry_run else "released"))
        return
    _prune(where, wanted, damaged=damaged, dry_run=dry_run)


def _prune(where: Path | str, wanted: CallFilter, *, damaged: bool, dry_run: bool) -> None:
    import asyncio

    from eclosure.chat.ledger_tools import plan_prune, prune_ledger

    plan = plan_prune(where, wanted, damaged=damaged)
    deleted = f"{plural(len(plan.calls), 'call')} and the outcomes of {plural(len(plan.runs), 'run')}"
    if dry_run:
        say(f"{deleted} would be deleted")
        return
    rows = asyncio.run(prune_ledger(where, plan))
    say(f"{deleted} deleted ({plural(rows, 'row')})")
    if plan.calls or plan.runs:
        say("  to ask again, run the same command with --force: replies still in the ledger are not paid again")


def _where(place: str) -> Path | str:
    """Return the ledger at a place; called before anything that needs what only its extra installs."""
    from eclosure.errors import UserError

    try:
        from eclosure.store.ledger_reading import ledger_at
    except ImportError as missing:
        raise UserError("reading a ledger needs sqlalchemy. Run: pip install 'eclosure[chat]'") from missing
    return ledger_at(place)
