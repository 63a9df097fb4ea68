"""``eclose families validate``: check families from any source against the gates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import QUARANTINED, count_progress, plural, print_table, say

if TYPE_CHECKING:
    from eclose.construction.validate_families import FamilyValidation

FAILED = 1
"""Exit code where a family does not pass."""
_EXAMPLES = 20
"""Number of problems that are printed without --all."""


def validate(
    families: Annotated[
        Path, typer.Argument(help="File of families, JSON Lines, or folder of a run.", show_default=False)
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Folder or name of the model to train, to count tokens exactly.  [default: estimate]"),
    ] = None,
    max_length: Annotated[int, typer.Option(min=1, help="Longest training path in tokens.")] = 8_192,
    everything: Annotated[bool, typer.Option("--all", help="Print every problem, not only the first 20.")] = False,
) -> None:
    """Check families for everything that code can check: their form, the edits, the shared steps, the answers, and
    whether they are short enough to train on.

    Checks that need understanding (is a step sound, does the trace answer the question) are for people: see eclose
    families audit. Exits with 1 where a family does not pass, and with 3 where a record cannot be read.
    """
    from eclose.construction.validate_families import validate_families

    validation = validate_families(families, tokenizer=tokenizer, max_length=max_length, wrap=count_progress)
    _print_validation(validation, None if everything else _EXAMPLES)
    # Unreadable records come first: a file that cannot be read says nothing about its families.
    raise typer.Exit(QUARANTINED if validation.unreadable else FAILED if validation.failed else 0)


def _print_validation(validation: FamilyValidation, limit: int | None) -> None:
    say(
        f"{validation.path}: {validation.received:,} received = {validation.passed:,} passed + "
        f"{validation.failed:,} failed + {validation.unreadable:,} unreadable"
    )
    problems = validation.problems
    if not problems:
        return
    gates = Counter(problem.gate for problem in problems)
    print_table("Problems by gate", ("gate", "problems"), [(gate, f"{count:,}") for gate, count in gates.most_common()])
    for problem in problems[:limit]:
        say(f"  {problem.where}: {problem.gate}: {problem.detail}")
    if limit is not None and len(problems) > limit:
        say(f"  and {plural(len(problems) - limit, 'more problem')}: --all prints them")
