"""Agreement of the annotators: whatever tables of two judges the printed row allows.

A binary row prints n, how common the majority label is, and raw agreement; the text adds the number of disagreements
for four judgments. That leaves a few feasible tables. A number on which all of them agree is derived; one on which
they differ is consistent when a single table gives every number of the row. Specific agreement may use alpha, too.
"""

from __future__ import annotations

from functools import cache, partial
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

from eclose.stats.coefficients import majority_prevalence, pair_alpha, raw_agreement, specific_agreement
from eclose.stats.rates import Rate

from ..printed import (
    BACKBONES,
    QUESTIONS,
    RESPONSES,
    Cell,
    Derivation,
    Resolver,
    Span,
    cell,
    consistent,
    derived,
    number,
    percent,
    said,
    statements,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from eclose.stats.arrays import Floats

TABLE = "annotation_agreement"
DISAGREEMENTS = {
    "Alignment A": "alignment",
    "Closure C": "closure",
    "Answer correctness": "correctness",
    "Completeness K": "completeness",
}
"""The judgments of a whole response: each disagreement is a response the text counts."""
DIRECT = ("Substantive status", "Step soundness", *DISAGREEMENTS)
DERIVED_LABELS = ("Local soundness L", "Global sufficiency G", "LGG indicator")
BINARY = (*DIRECT, *DERIVED_LABELS)
SPECIFIC = ("specific majority", "specific minority")
STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "maj": lambda tables: 100 * majority_prevalence.over(tables),
    "raw": lambda tables: 100 * raw_agreement.over(tables),
    "alpha": pair_alpha.over,
    # In the tables below the minority label comes first.
    "specific majority": specific_agreement(1).over,
    "specific minority": specific_agreement(0).over,
}
_said = partial(said, section="annotation")


def whole_numbers(span: Span, n: int) -> range:
    """The counts of n that a printed percentage allows."""
    return range(ceil(span.low * n / 100), floor(span.high * n / 100) + 1)


@cache
def feasible(row: str) -> Floats:
    """Every table with the printed n, prevalence and raw agreement, and the number of disagreements if it is known."""
    n = whole(TABLE, row, "n")
    disputed = whole_numbers(Span(*(100 - end for end in reversed(cell(TABLE, row, "raw").span))), n)
    if row in DISAGREEMENTS:
        disputed = range(_said(DISAGREEMENTS[row]), _said(DISAGREEMENTS[row]) + 1)
    # Twice the cases both give the majority label, and once each disputed one, make up its share of 2n labels.
    labels = whole_numbers(cell(TABLE, row, "maj").span, 2 * n)
    return np.array(
        [
            [[n - d - (m - d) // 2, d], [0, (m - d) // 2]]
            for d in disputed
            for m in labels
            if (m - d) % 2 == 0 and (m - d) // 2 + d <= n
        ],
        float,
    )


def fitting(row: str, *columns: str) -> Floats:
    """The feasible tables that give what is printed in these columns."""
    tables = feasible(row)
    for column in columns:
        values = STATISTICS[column](tables)
        tables = tables[[cell(TABLE, row, column).agrees(value) for value in values]]
    return tables


LEAVES_ALPHA_OPEN = set(BINARY) - {"Answer correctness"}
LEAVES_SPECIFIC_OPEN = {
    ("Substantive status", "specific majority"),
    ("Substantive status", "specific minority"),
    ("Step soundness", "specific minority"),
    ("Global sufficiency G", "specific minority"),
}
"""Where feasible tables differ in what they give."""


def agreement(cell: Cell) -> Derivation | None:
    row, column = cell.row, cell.column
    if column == "n":
        return derived(lambda: QUESTIONS * len(BACKBONES)) if cell.printed == str(RESPONSES) else None
    if column == "raw" and row in DISAGREEMENTS:
        return derived(lambda: STATISTICS["raw"](feasible(row)))
    if row not in BINARY or column not in {"alpha", *SPECIFIC}:
        return None
    if column == "alpha" and row not in LEAVES_ALPHA_OPEN:
        return derived(lambda: STATISTICS["alpha"](feasible(row)))
    if column in SPECIFIC and (row, column) not in LEAVES_SPECIFIC_OPEN:
        return derived(lambda: STATISTICS[column](fitting(row, "alpha")))
    others = [name for name in STATISTICS if name != column]
    return consistent(lambda: STATISTICS[column](fitting(row, *others)))


def extreme(which: Callable[[list[Fraction]], Fraction], column: str, rows: tuple[str, ...]) -> Derivation:
    return derived(lambda: which([number(TABLE, row, column) for row in rows]))


def share(statement: str) -> Derivation:
    return derived(lambda: percent(Rate(_said(statement), RESPONSES).value))


COUNTED = (
    "adjudicated",
    "soundness",
    "local-failure reason",
    "substantive status",
    "completeness",
    "alignment",
    "closure",
    "correctness",
    "consistency check",
)
TEXT = {
    "responses": derived(lambda: QUESTIONS * len(BACKBONES)),
    "lowest raw agreement of binary labels": extreme(min, "raw", DIRECT),
    "highest raw agreement of binary labels": extreme(max, "raw", DIRECT),
    "lowest alpha of binary labels": extreme(min, "alpha", DIRECT),
    "highest alpha of binary labels": extreme(max, "alpha", DIRECT),
    "lowest minority agreement": extreme(min, "specific minority", BINARY),
    "highest minority agreement": extreme(max, "specific minority", BINARY),
    "adjudicated": derived(lambda: _said("label disagreements") + _said("consistency check only")),
    "merged without adjudication": derived(lambda: RESPONSES - _said("adjudicated")),
    **{f"{statement} share": share(statement) for statement in COUNTED},
}

RESOLVERS: dict[str, Resolver] = {TABLE: agreement, "text: annotation": statements(TEXT)}
