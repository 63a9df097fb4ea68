"""A printed number, how it follows from others, and when the two agree.

Every number of the paper is a ``Cell``: a table, a row, a column and the digits as printed. A ``Derivation`` says
how the number follows from others and how strong that is; ``verify`` compares. Percentages are turned back into
whole counts first, so that rounding is never passed on.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import cache
from numbers import Real
from pathlib import Path
from typing import NamedTuple, TypeAlias

FIXTURES = Path(__file__).parents[3] / "eclose" / "tests" / "fixtures" / "paper"
FLOAT_NOISE = Fraction(1, 10**9)
"""Our functions give floats. A tie at half a unit agrees either way and must not be lost to their last bit."""

BACKBONES = ("Qwen3-8B", "Qwen3-32B", "Ministral-3-8B")
METHODS = ("Backbone", "SFT", "CF-SFT", "RM", "E-Closure")

WIDE_FILES = {
    "appendix_seeds": ("per_seed_results", ("backbone", "dataset", "method", "seed")),
    "appendix_ablation_seeds": ("ablation_per_seed", ("variant", "seed")),
    "appendix_intervention_settings": ("switch_rates_by_setting", ("backbone", "dataset", "method")),
}
"""Tables kept one line a row: the file, and the columns that name a row. All their figures have two decimals."""


class Span(NamedTuple):
    """Every value between two ends is feasible."""

    low: Real | Fraction
    high: Real | Fraction


@dataclass(frozen=True)
class Cell:
    """One printed number."""

    table: str
    row: str
    column: str
    printed: str

    @property
    def value(self) -> Fraction:
        return Fraction(self.printed)

    @property
    def unit(self) -> Fraction:
        """One in the last printed digit; nothing for a fraction, which is exact."""
        decimals = len(self.printed.partition(".")[2])
        return Fraction(0) if "/" in self.printed else Fraction(1, 10**decimals)

    def agrees(self, value: Real | Fraction, units: Fraction = Fraction(1, 2)) -> bool:
        """Whether a value lies within so many units of what is printed."""
        return abs(Fraction(value) - self.value) <= units * self.unit + FLOAT_NOISE

    @property
    def span(self) -> Span:
        """What may have been rounded to what is printed."""
        return Span(self.value - self.unit / 2, self.value + self.unit / 2)

    def count(self, n: int) -> int:
        """The one whole number of cases that is this percentage of n."""
        nearest = round(self.value * n / 100)
        fitting = [k for k in (nearest - 1, nearest, nearest + 1) if self.agrees(Fraction(100 * k, n))]
        assert len(fitting) == 1, f"{self} of {n} could be {fitting or 'no whole number'}"
        return fitting[0]


def _read(name: str) -> list[dict[str, str]]:
    with (FIXTURES / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _wide_cells(table: str) -> Iterable[Cell]:
    name, key = WIDE_FILES[table]
    for line in _read(name):
        row = " | ".join(line.pop(column) for column in key)
        line.pop("n", None)
        yield from (Cell(table, row, column, f"{Decimal(text):.2f}") for column, text in line.items())


@cache
def cells() -> dict[tuple[str, str, str], Cell]:
    """Every number, by table, row and column. Numbers in the text stand in tables of one column."""
    listed = [Cell(line["table"], line["row"], line["column"], line["printed"]) for line in _read("tables")]
    listed += [Cell(f"text: {line['section']}", line["statement"], "", line["printed"]) for line in _read("text")]
    for table in WIDE_FILES:
        listed += _wide_cells(table)
    named = {(cell.table, cell.row, cell.column): cell for cell in listed}
    assert len(named) == len(listed), "a cell is named twice"
    return named


def cell(table: str, row: str, column: str = "") -> Cell:
    return cells()[table, row, column]


def number(table: str, row: str, column: str = "") -> Fraction:
    """A printed number as it stands."""
    return cell(table, row, column).value


def whole(table: str, row: str, column: str = "") -> int:
    """A printed count."""
    value = number(table, row, column)
    assert value.denominator == 1
    return int(value)


def said(statement: str, section: str) -> int:
    """A count the text gives."""
    return whole(f"text: {section}", statement)


DATASETS = {name: said(f"retained of {name}", "screening") for name in ("2WikiMultiHopQA", "MuSiQue", "HotpotQA")}
"""Retained questions."""
QUESTIONS = sum(DATASETS.values())
RESPONSES = QUESTIONS * len(BACKBONES)
"""Of the diagnostic study."""


def rules(name: str) -> list[dict[str, str]]:
    """The lists of what is not derived: ``given`` and ``not_derivable``."""
    return _read(name)


class Kind(StrEnum):
    """How a printed number is covered."""

    DERIVED = "derived"
    """It follows, to the printed digit."""
    REESTIMATED = "re-estimated"
    """A bootstrap end: our resamples are not theirs, so it may be two units off."""
    SPREAD = "within spread"
    """A bootstrap end of few cases, noisier than two units: it lies among the ends that twenty streams give."""
    CONSISTENT = "consistent"
    """The rest of the paper leaves several values open, and this is one of them."""
    CONTRADICTION = "contradiction"
    """It should follow and does not; what follows instead is recorded."""


Value: TypeAlias = Real | Fraction | Iterable[Real | Fraction] | Span


@dataclass(frozen=True)
class Derivation:
    """How a number follows from others."""

    kind: Kind
    compute: Callable[[], Value]
    """The value in the printed unit; for several feasible values, all of them."""
    instead: str = ""
    """Of a contradiction: what follows."""


def derived(compute: Callable[[], Value]) -> Derivation:
    """It follows; where several values are feasible, each of them must agree."""
    return Derivation(Kind.DERIVED, compute)


def reestimated(compute: Callable[[], Value]) -> Derivation:
    return Derivation(Kind.REESTIMATED, compute)


def within_spread(compute: Callable[[], Span]) -> Derivation:
    return Derivation(Kind.SPREAD, compute)


def consistent(compute: Callable[[], Value]) -> Derivation:
    """One of the feasible values, or one within a span, must agree."""
    return Derivation(Kind.CONSISTENT, compute)


def contradiction(compute: Callable[[], Value], *, instead: str) -> Derivation:
    return Derivation(Kind.CONTRADICTION, compute, instead)


Resolver: TypeAlias = Callable[[Cell], Derivation | None]
"""How the cells of a table follow; None for a cell that does not."""


def statements(derivations: dict[str, Derivation]) -> Resolver:
    """Numbers in the text, by what they say."""
    return lambda cell: derivations.get(cell.row)


def percent(value: float | Fraction | None) -> float | Fraction:
    """A share as the paper prints it."""
    assert value is not None
    return 100 * value


def verify(cell: Cell, derivation: Derivation) -> None:
    """Fail unless the printed number is covered as the derivation claims."""
    result = derivation.compute()
    values = list(result) if isinstance(result, Iterable) else [result]
    assert values, f"nothing is feasible for {cell}"
    printed_text = f"{cell} against {sorted({round(float(value), 6) for value in values})}"
    match derivation.kind:
        case Kind.DERIVED:
            assert all(map(cell.agrees, values)), printed_text
        case Kind.REESTIMATED:
            assert all(cell.agrees(value, units=Fraction(2)) for value in values), printed_text
        case Kind.CONSISTENT | Kind.SPREAD:
            within = isinstance(result, Span) and result.low <= cell.value <= result.high
            assert within or any(map(cell.agrees, values)), printed_text
        case Kind.CONTRADICTION:
            recorded = Cell(cell.table, cell.row, cell.column, derivation.instead)
            assert all(map(recorded.agrees, values)), f"no longer {derivation.instead}: {printed_text}"
            assert not any(map(cell.agrees, values)), f"no contradiction any more: {printed_text}"
