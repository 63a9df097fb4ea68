"""How far people agree, as Markdown and as LaTeX in the paper's layout. Names of datasets come from files: escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.report import latex as tex
from eclose.diagnosis.report import markdown as md

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.annotation.results.tables import Table


def markdown(tables: Sequence[Table]) -> str:
    """The tables, one under the other."""
    return "\n".join(line for table in tables for line in _markdown(table))


def _markdown(table: Table) -> Iterator[str]:
    yield f"## {md.escape(table.title)}\n"
    yield f"| {' | '.join(map(md.own, table.heads))} |"
    yield "|" + "|".join(" --- " for _ in table.heads) + "|"
    for row in table.rows:
        yield f"| {' | '.join(map(md.escape, row))} |"
    yield "".join(f"\n{md.own(note)}\n" for note in table.notes)


def latex(tables: Sequence[Table]) -> str:
    """The tables, each with its caption, for a document with ``booktabs`` and ``graphicx``."""
    return (
        "\n".join([tex.NEEDS, *(line for number, table in enumerate(tables) for line in _latex(table, number))]) + "\n"
    )


def _latex(table: Table, number: int) -> Iterator[str]:
    yield "\n\\begin{table}[t]\n\\centering\\small"
    yield from tex.tabular("l" + "c" * (len(table.heads) - 1))
    yield _row([rf"\textbf{{{tex.escape(head)}}}" for head in table.heads])
    yield r"\midrule"
    for row in table.rows:
        if row[0] == table.rule_before:
            yield r"\midrule"
        yield _row([tex.escape(cell) for cell in row])
    yield tex.TABULAR_END
    yield rf"\caption{{{tex.escape(' '.join((f'{table.title}.', *table.notes)))}}}"
    yield rf"\label{{tab:people-{number + 1}}}"
    yield r"\end{table}"


def _row(cells: Sequence[str]) -> str:
    # A bracket or a star at the start of a row would be read as belonging to the line break before it.
    first = f"{{{cells[0]}}}" if cells[0].startswith(("[", "*")) else cells[0]
    return " & ".join((first, *cells[1:])) + r" \\"
