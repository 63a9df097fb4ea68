"""``eclose families validate``: hold families that were made elsewhere against the gates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import QUARANTINED, count_progress, plural, print_table, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.core.family import Family
    from eclose.store.records.jsonl import ReadRecord

FAILED = 1
"""The exit code where some family does not pass."""
MOST = 20


def validate(
    families: Annotated[
        Path, typer.Argument(help="Families, one JSON object a line, or the folder of a run.", show_default=False)
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Folder or name of the model to be trained, to count its tokens.  [default: estimated]"),
    ] = None,
    max_length: Annotated[int, typer.Option(min=1, help="Longest path in tokens.")] = 8_192,
    everything: Annotated[bool, typer.Option("--all", help="Name every problem, not only the first few.")] = False,
) -> None:
    """Hold families against everything that code can check: their form, the edits, the shared steps, the answers, and
    whether they are short enough to train on.

    What needs understanding (is a step sound, does the trace answer the question) is for people: see eclose families
    audit. Exits with 1 where a family does not pass, and with 3 where a record cannot be read.
    """
    from eclose.store.runs.folder import FAMILIES

    families = families / FAMILIES if families.is_dir() else families
    problems: list[tuple[str, str, str]] = []
    tally: Counter[str] = Counter()
    for record, found in _checked(families, tokenizer, max_length):
        tally["received"] += 1
        kind = "quarantined" if record.error is not None else "failed" if found else "passed"
        tally[kind] += 1
        problems += ((record.where, gate, detail) for gate, detail in found)
    _say(families, tally, problems, problems if everything else problems[:MOST])
    raise typer.Exit(QUARANTINED if tally["quarantined"] else FAILED if tally["failed"] else 0)


def _say(
    path: Path, tally: Counter[str], problems: list[tuple[str, str, str]], shown: list[tuple[str, str, str]]
) -> None:
    say(
        f"{path}: {tally['received']:,} received = {tally['passed']:,} passed + {tally['failed']:,} failed + "
        f"{tally['quarantined']:,} unreadable"
    )
    if not problems:
        return
    gates = Counter(gate for _, gate, _ in problems)
    print_table("Problems by gate", ("gate", "problems"), [(gate, f"{count:,}") for gate, count in gates.most_common()])
    for where, gate, detail in shown:
        say(f"  {where}: {gate}: {detail}")
    if len(shown) < len(problems):
        say(f"  and {plural(len(problems) - len(shown), 'problem')} more: --all names them")


def _checked(
    path: Path, tokenizer: str | None, max_length: int
) -> Iterator[tuple[ReadRecord[Family], list[tuple[str, str]]]]:
    """Every record with what is wrong with it: gate and detail."""
    from eclose.construction.token_lengths import make_path_length
    from eclose.core.family import Family
    from eclose.core.gates import check_family
    from eclose.store.records.jsonl import encode, scan_records
    from eclose.store.records.seen_ids import SeenIds

    length, seen = make_path_length(tokenizer), SeenIds()
    for number, record in enumerate(count_progress(scan_records(path, Family), f"reading {path.name}"), start=1):
        family = record.value
        if family is None:
            yield record, [("unreadable", str(record.error or record.rejected))]
            continue
        found = [(failure.gate.value, f"{failure.where}: {failure.detail}") for failure in check_family(family)]
        if first := seen.add(family.id, encode(family), number):
            found.append(("repeated_id", f"{family.id!r} stands in record {first[0]} already"))
        if (tokens := length.count_family(family)) > max_length:
            found.append(("too_long", f"{tokens:,} tokens are more than {max_length:,}"))
        yield record, found
