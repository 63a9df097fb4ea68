"""``eclose families show``: print families, or write them as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    escape_invisible,
    format_count,
    print_line,
    print_table,
    show_record_count,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.values.family import Family
    from eclose_train.families.families_by_id import FamilySelection

LIMIT = 50


def show(
    families: Annotated[
        str, typer.Argument(help="File of families, JSON Lines or Parquet, or folder of a run or dataset.")
    ],
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of families or of their sources.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every passage, not only those that answers rest on.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="HTML file to write instead of printing.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of families without an ID, the first by id.")] = LIMIT,
    hub: Annotated[
        bool, typer.Option("--hub", help="Fetch families from a hub: hf://datasets/OWNER/NAME[@REVISION].")
    ] = False,
) -> None:
    """Show families: their views side by side, the changes, and the findings of models.

    Words that differ from Gold are marked, [-gone-] and {+new+} or in colour. Passages that an answer rests on and
    changed passages come first. Each step names what it rests on, each finding its reason.

    Without an ID, the families are listed, and --html writes the first of them.
    """
    from eclose_train.families.families_by_id import pick_families_by_id

    if html is not None:
        # Checked before anything is read: `show families.jsonl --html families.jsonl` would destroy the data.
        _refuse_input(html, Path(families))
    selection = pick_families_by_id(families, ids or (), limit=limit, hub=hub, wrap=show_record_count)
    if html is not None:
        _write_page(selection, html, _describe_count(len(selection.families)) if ids else _describe_first(selection))
    elif ids:
        _print_families(selection.families, everything=everything)
    else:
        _print_list(selection)
    if selection.unreadable:
        count = format_count(len(selection.unreadable), "record")
        print_line(f"{count} could not be read, such as {selection.unreadable[0]}")
    raise typer.Exit(QUARANTINED_EXIT_CODE if selection.unreadable else 0)


def _refuse_input(out: Path, families: Path) -> None:
    from eclose.errors import UserError
    from eclose.files.run_folder import FAMILIES_FILE

    path = families / FAMILIES_FILE if families.is_dir() else families
    # samefile also finds links and other spellings of the same path.
    if out.exists() and path.exists() and out.samefile(path):
        raise UserError(f"{out}: is the file of families itself. Name another file for the page.")


def _print_families(families: Sequence[Family], *, everything: bool) -> None:
    from eclose_train.cli.lines import print_family
    from eclose_train.construction.view import make_family_display

    for number, family in enumerate(families):
        if number:
            typer.echo("\n" + "-" * 80 + "\n")
        print_family(make_family_display(family), everything=everything)


def _print_list(selection: FamilySelection) -> None:
    rows = [(family.id, _shorten(family.gold.question)) for family in selection.families]
    print_table(_describe_first(selection), ("id", "question"), rows)
    example = escape_invisible(selection.families[0].id)
    print_line(f"To see a family: eclose families show {selection.path} {example}")


def _shorten(question: str, width: int = 60) -> str:
    """Return the question on one line; on a terminal only its beginning, so that each family takes one line."""
    line = " ".join(question.split())
    if not sys.stdout.isatty() or len(line) <= width:
        return line
    return line[: width - 1].rstrip() + "…"


def _describe_first(selection: FamilySelection) -> str:
    count, total = len(selection.families), selection.total
    return _describe_count(count) if count == total else f"the first {count:,} of {total:,} families by id"


def _describe_count(count: int) -> str:
    return format_count(count, "family", "families")


def _write_page(selection: FamilySelection, out: Path, description: str) -> None:
    from eclose.files.atomic import AtomicFile
    from eclose_train.construction.view import make_family_display, render_family_page

    displays = [make_family_display(family) for family in selection.families]
    with AtomicFile(out) as file:
        file.write(render_family_page(displays, name=str(selection.path), selection=description).encode())
    print_line(f"{out}: {description}")
