"""What is covered: every printed number is derived, given, or listed with the reason why it cannot be derived.

``python -m tests.paper.ledger`` prints the account, table by table.
"""

from __future__ import annotations

import sys
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from .derivations import MODULES
from .printed import Cell, Derivation, Kind, Resolver, cells, rules

if TYPE_CHECKING:
    from collections.abc import Iterator

GIVEN, NOT_DERIVABLE = "given", "not_derivable"
COLUMNS = (*Kind, GIVEN, NOT_DERIVABLE)


def resolvers() -> dict[str, Resolver]:
    """How the cells of each table follow."""
    named = list(chain.from_iterable(module.RESOLVERS.items() for module in MODULES))
    assert len(dict(named)) == len(named), "two modules claim one table"
    return dict(named)


def derivations() -> Iterator[tuple[Cell, Derivation]]:
    """Every number that follows from others, with how."""
    by_table = resolvers()
    for cell in cells().values():
        if cell.table in by_table and (derivation := by_table[cell.table](cell)):
            yield cell, derivation


def matches(rule: dict[str, str], cell: Cell) -> bool:
    """Whether a line of ``given.csv`` or ``not_derivable.csv`` speaks of a cell; ``;`` separates patterns."""
    return cell.table == rule["table"] and all(
        any(fnmatchcase(name, pattern) for pattern in rule[patterns].split(";"))
        for name, patterns in ((cell.row, "rows"), (cell.column, "columns"))
    )


@cache
def account() -> dict[str, Counter[str]]:
    """How many numbers of each table are covered in which way."""
    claims = {(cell.table, cell.row, cell.column): derivation.kind for cell, derivation in derivations()}
    listed = [(kind, rule) for kind in (GIVEN, NOT_DERIVABLE) for rule in rules(kind)]
    tables: dict[str, Counter[str]] = {}
    for name, cell in cells().items():
        ways = [claims[name]] if name in claims else []
        ways += [kind for kind, rule in listed if matches(rule, cell)]
        assert len(ways) == 1, f"{cell} is accounted for {len(ways)} times: {ways}"
        tables.setdefault(cell.table, Counter())[ways[0]] += 1
    return tables


def total() -> Counter[str]:
    return sum(account().values(), Counter())


def report() -> str:
    """The account as a table."""
    lines = [("table", *COLUMNS, "printed")]
    for table, counts in (*account().items(), ("all", total())):
        lines.append((table, *(str(counts[kind] or "") for kind in COLUMNS), str(counts.total())))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) if i == 0 else text.rjust(width) for i, (text, width) in enumerate(pairs))
        for pairs in (list(zip(line, widths, strict=True)) for line in lines)
    )


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
