"""Rows of the benchmark, and reading of records: the output of scripts and commands, kept line by line.

A record is a text file in ``docs/records`` whose name begins with its kind, such as ``judge_real.txt`` or
``judge_real-NAME.txt``. Lines that begin with ``$`` are the commands. A record may name what its tables do not, in
lines such as ``# hardware: one A100``; the keys are those of ``HEADERS``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from pages import ROOT
from pydantic import ConfigDict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADERS = ("dataset", "hardware", "licence", "origin", "split", "system")
MEASURED_ON = "two processor cores, no GPU"
"""Hardware of records that do not name theirs; all of them were made on one machine."""

Unit: TypeAlias = Literal["share", "%", "count"]
SystemKind: TypeAlias = Literal["detector", "control", "judge", "model"]
Origin: TypeAlias = Literal["world", "real"]

_ESTIMATE = re.compile(r"(-?[\d.]+)(?: %)?(?: \[\s*(-?[\d.]+)(?:,\s*|-)(-?[\d.]+)\])?")
_UNDEFINED = re.compile(r"-(?: \[-\])?")
# Digits within a word, such as those of a hash or of a model's name, are no number.
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)")


@dataclass(frozen=True)
class BenchmarkMetric:
    """Value with its 95 % interval, as a line of the record prints it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    """What was measured."""
    unit: Unit
    """Unit of the value and of both bounds."""
    value: float | None
    """The value; null where it is undefined."""
    low: float | None
    """Lower bound of the interval; null where the record has none."""
    high: float | None
    """Upper bound of the interval; null where the record has none."""
    line: int
    """Line of the record that has the value and the bounds, counted from 1."""
    n: int | None = None
    """Number behind this value where it is not that of the row."""


@dataclass(frozen=True)
class BenchmarkRow:
    """Result of a system on a dataset, and where it comes from."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    kind: SystemKind
    """Detector, control (a detector of form or single words alone), judge or small model."""
    system: str
    """Name of the system as the record prints it."""
    variant: str
    """Settings that tell rows of a system apart; may be empty."""
    dataset: str
    """Name of the dataset."""
    origin: Origin
    """Whether the texts are of the synthetic world or real."""
    split: str
    """Part of the dataset that was scored."""
    licence: str
    """Licences of the texts."""
    n: int
    """Number of responses, or of sources or answers where the metrics count those."""
    metrics: tuple[BenchmarkMetric, ...]
    """Values of the same run."""
    command: str
    """Command that printed the values."""
    record: str
    """Path of the record in the repository."""
    hardware: str
    """What the command ran on."""
    date: str = ""
    """Day on which the lines entered the repository."""
    commit: str = ""
    """Commit in which the lines entered the repository."""

    @property
    def key(self) -> tuple[str, ...]:
        """What no two rows have in common."""
        return self.kind, self.system, self.variant, self.dataset, self.split


@dataclass(frozen=True)
class RecordLine:
    """Line of a record with its number and the command above it."""

    number: int
    text: str
    command: str

    @property
    def cells(self) -> list[str]:
        """Cells of a line of a table in Markdown, without the space around them."""
        return [cell.strip() for cell in self.text.strip().strip("|").split("|")]


@dataclass(frozen=True)
class Record:
    """A record: its lines and what its head names."""

    path: str
    lines: tuple[RecordLine, ...]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def hardware(self) -> str:
        """What the commands ran on."""
        return self.headers.get("hardware", MEASURED_ON)


def read_record(path: Path) -> Record:
    """Read a record; the parts of a command that continues over lines are joined."""
    lines = tuple(_read_lines(path))
    matches = [re.fullmatch(rf"# ({'|'.join(HEADERS)}): (.+)", line.text) for line in lines]
    return Record(
        path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name,
        lines,
        {match[1]: match[2].strip() for match in matches if match},
    )


def _read_lines(path: Path) -> Iterator[RecordLine]:
    command, continues = "", False
    for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
        if continues or text.startswith("$ "):
            part = text.removeprefix("$ ").rstrip("\\").strip()
            command, continues = f"{command} {part}" if continues else part, text.endswith("\\")
        # What follows a command on its line after two spaces is a remark.
        yield RecordLine(number, text.replace("\u00a0", " "), re.split(r"\s{2,}#\s", command)[0])


def find_numbers(text: str) -> set[float]:
    """Return the numbers of a text without their signs: a hyphen may also separate the bounds of an interval."""
    return {float(number.replace(",", "")) for number in _NUMBER.findall(text)}


def parse_count(text: str) -> int:
    """Parse a number such as ``3,000``."""
    return int(text.replace(",", ""))


def parse_metric(name: str, unit: Unit, cell: str, line: RecordLine, n: int | None = None) -> BenchmarkMetric:
    """Parse a cell such as ``0.959 [0.950, 0.968]``; a hyphen is an undefined value.

    Raises:
        ValueError: The cell is neither.
    """
    if _UNDEFINED.fullmatch(cell.strip()):
        return BenchmarkMetric(name, unit, None, None, None, line.number, n)
    match = _ESTIMATE.fullmatch(cell.strip())
    if match is None:
        raise ValueError(f"line {line.number}: {cell!r} is no value with an interval")
    value, low, high = (None if part is None else float(part) for part in match.groups())
    return BenchmarkMetric(name, unit, value, low, high, line.number, n)
