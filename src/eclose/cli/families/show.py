"""``eclose families show``: a family for people, on the terminal or as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import QUARANTINED, count_progress, plural, print_table, printable, say
from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.core.family import Family
    from eclose.errors import RecordError

LIMIT = 50
_NEAREST = 3


class Found:
    """What was found in a file of families."""

    def __init__(self) -> None:
        self.families: list[Family] = []
        self.total = 0
        """How many families there are in all."""
        self.unreadable: list[RecordError] = []


def show(
    families: Annotated[
        Path, typer.Argument(help="Families, one JSON object a line, or the folder of a run.", show_default=False)
    ],
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Of families or of their sources.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Print every passage, not only those that matter.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page instead of printing.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Without an ID: how many families, by their ids.")] = LIMIT,
) -> None:
    """Show families: their views beside each other, what was changed, and what was said of them.

    Words that differ from Gold are marked, [-gone-] and {+new+} or in colour. Passages that an answer rests on, or that
    were changed, come first. Each step says what it rests on, each judgement why it came out as it did.

    Without an ID, the families are listed, and --html writes the first of them.
    """
    path = _file(families)
    if html is not None:
        _refuse_own_input(html, path)
    found = _find(path, ids) if ids else _first(path, limit)
    if html is not None:
        _write_page(found, html, path, _families(len(found.families)) if ids else _first_told(found))
    elif ids:
        _print(found.families, everything=everything)
    else:
        _list(found, path)
    if found.unreadable:
        count = plural(len(found.unreadable), "record")
        say(f"{count} could not be read, such as {found.unreadable[0]}")
    raise typer.Exit(QUARANTINED if found.unreadable else 0)


def _file(given: Path) -> Path:
    from eclose.store.runs.folder import FAMILIES

    if not given.is_dir():
        return given
    path = given / FAMILIES
    if not path.exists():
        raise UserError(f"{given}: there is no {FAMILIES} in this folder. Name a file of families.")
    return path


def _refuse_own_input(out: Path, path: Path) -> None:
    if out.exists() and path.exists() and out.samefile(path):
        raise UserError(f"{out}: is the file of families itself. Name another file for the page.")


def _read(path: Path, found: Found) -> Iterator[Family]:
    """Every family, also one that fails a gate: whoever looks for it wants to see why."""
    from eclose.core.family import Family
    from eclose.store.records.jsonl import scan_records

    for record in count_progress(scan_records(path, Family), f"reading {path.name}"):
        if record.error is not None:
            found.unreadable.append(record.error)
        if record.value is not None:
            found.total += 1
            yield record.value
    if not found.total:
        why = f": {found.unreadable[0]}" if found.unreadable else ""
        raise UserError(f"{path}: there is no family in this file{why}")


def _first(path: Path, limit: int) -> Found:
    from heapq import nsmallest

    found = Found()
    found.families = nsmallest(limit, _read(path, found), key=lambda family: family.id)
    return found


def _find(path: Path, ids: Sequence[str]) -> Found:
    """The families with these ids, in the order asked for; a family's own id goes before that of its source."""
    found = Found()
    wanted = set(ids)
    own: dict[str, list[Family]] = {}
    by_source: dict[str, list[Family]] = {}
    known: dict[str, None] = {}
    for family in _read(path, found):
        known |= {family.id: None, family.source.id: None}
        if family.id in wanted:
            own.setdefault(family.id, []).append(family)
        if family.source.id in wanted:
            by_source.setdefault(family.source.id, []).append(family)
    if unknown := [id_ for id_ in ids if id_ not in known]:
        raise UserError(" ".join(_unknown(path, id_, list(known)) for id_ in unknown))
    found.families = [family for id_ in dict.fromkeys(ids) for family in own.get(id_) or by_source[id_]]
    return found


def _unknown(path: Path, wanted: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(wanted, known, n=_NEAREST, cutoff=0)
    return f"{path}: no family and no source has the id {wanted!r}. Nearest: {', '.join(near)}."


def _print(families: Sequence[Family], *, everything: bool) -> None:
    from eclose.cli.families.lines import print_family
    from eclose.diagnosis.report.families.view import make_family_display

    for number, family in enumerate(families):
        if number:
            typer.echo("\n" + "-" * 80 + "\n")
        print_family(make_family_display(family), everything=everything)


def _list(found: Found, path: Path) -> None:
    rows = [(family.id, _one_line(family.gold.question)) for family in found.families]
    print_table(_first_told(found), ("id", "question"), rows)
    say(f"To see one: eclose families show {path} {printable(found.families[0].id)}")


def _one_line(question: str, width: int = 60) -> str:
    """The question on a line; on a terminal only its beginning, so that families stand one below the other."""
    line = " ".join(question.split())
    if not sys.stdout.isatty() or len(line) <= width:
        return line
    return line[: width - 1].rstrip() + "…"


def _first_told(found: Found) -> str:
    shown, total = len(found.families), found.total
    return _families(shown) if shown == total else f"the first {shown:,} of {total:,} families by id"


def _families(count: int) -> str:
    return "1 family" if count == 1 else f"{count:,} families"


def _write_page(found: Found, out: Path, path: Path, told: str) -> None:
    from eclose.diagnosis.report.families.page import render_family_page
    from eclose.diagnosis.report.families.view import make_family_display
    from eclose.store.records.atomic import AtomicFile

    shown = [make_family_display(family) for family in found.families]
    with AtomicFile(out) as file:
        file.write(render_family_page(shown, name=str(path), selection=told).encode())
    say(f"{out}: {told}")
