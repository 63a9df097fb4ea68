"""The grid of an experiment: which runs there should be, and which responses of them are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.values.response import UNTUNED_METHOD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose_train.pooling import ExperimentUnit

REFERENCE_METHOD = "E-Closure"
"""The method whose gains over the others are reported."""

METHOD_NAMES = {
    UNTUNED_METHOD: "Backbone",
    "sft": "SFT",
    "cf_sft": "CF-SFT",
    "rm": "RM",
    "e_closure": REFERENCE_METHOD,
    "e_closure-S": "w/o S",
    "e_closure-T": "w/o T",
    "e_closure-C": "w/o C",
    "e_closure-one_sided": "One-sided",
}
"""Names of the methods in tables, by their names in recipes."""


def name_method(method: str) -> str:
    """Return the name of a method in tables; methods of others keep theirs."""
    return METHOD_NAMES.get(method, method)


@dataclass(frozen=True, slots=True)
class ExperimentGrid:
    """Methods, backbones, seeds and benchmarks of an experiment, in the order of the tables."""

    methods: tuple[str, ...]
    backbones: tuple[str, ...]
    seeds: tuple[int, ...]
    benchmarks: Mapping[str, int]
    """Number of questions by benchmark."""

    def seeds_of(self, method: str) -> tuple[int | None, ...]:
        """Return the seeds of a method: none for the untuned backbone."""
        return (None,) if method == name_method(UNTUNED_METHOD) else self.seeds

    def count_responses(self, method: str) -> int:
        """Return the number of responses that a method should have on all backbones and with all seeds."""
        return sum(self.benchmarks.values()) * len(self.backbones) * len(self.seeds_of(method))

    @property
    def settings(self) -> list[tuple[str, str]]:
        """Every backbone with every benchmark."""
        return [(backbone, benchmark) for backbone in self.backbones for benchmark in self.benchmarks]

    @property
    def runs(self) -> Iterator[tuple[str, str, int | None]]:
        """Every method, backbone and seed."""
        for method in self.methods:
            for backbone in self.backbones:
                for seed in self.seeds_of(method):
                    yield method, backbone, seed


@dataclass(frozen=True, slots=True)
class MissingResponses:
    """A run that lacks responses."""

    method: str
    backbone: str
    seed: int | None
    benchmarks: Mapping[str, int]
    """Number of missing responses by benchmark."""
    expected: int
    """Number of responses that the run should have."""

    def __str__(self) -> str:
        run = f"{self.method} on {self.backbone}" + ("" if self.seed is None else f", seed {self.seed}")
        missing = sum(self.benchmarks.values())
        if missing == self.expected:
            return f"{run}: all {self.expected:,} are missing"
        parts = ", ".join(f"{count:,} of {benchmark}" for benchmark, count in self.benchmarks.items())
        return f"{run}: {missing:,} of {self.expected:,} are missing ({parts})"


def derive_grid(units: Sequence[ExperimentUnit]) -> ExperimentGrid:
    """Return the product of everything that occurs, in order of appearance; seeds are sorted."""
    questions = dict.fromkeys((unit.benchmark, unit.question) for unit in units)
    return ExperimentGrid(
        tuple(dict.fromkeys(unit.method for unit in units)),
        tuple(dict.fromkeys(unit.backbone for unit in units)),
        tuple(sorted({unit.seed for unit in units if unit.seed is not None})),
        dict(Counter(benchmark for benchmark, _ in questions)),
    )


def find_missing_responses(units: Sequence[ExperimentUnit], grid: ExperimentGrid) -> tuple[MissingResponses, ...]:
    """Return the runs of the grid that lack responses.

    Raises:
        UserError: A response is outside the grid, or a question has several responses of one run.
    """
    _refuse_repeated(units)
    _refuse_unplanned(units, grid)
    present = Counter((unit.method, unit.backbone, unit.seed, unit.benchmark) for unit in units)
    holes = []
    for run in grid.runs:
        missing = {benchmark: size - present[*run, benchmark] for benchmark, size in grid.benchmarks.items()}
        if any(missing.values()):
            lacking = {benchmark: count for benchmark, count in missing.items() if count}
            holes.append(MissingResponses(*run, lacking, sum(grid.benchmarks.values())))
    return tuple(holes)


def _refuse_repeated(units: Sequence[ExperimentUnit]) -> None:
    repeated = [unit for unit, count in Counter(units).items() if count > 1]
    if repeated:
        unit = repeated[0]
        raise UserError(
            f"{len(repeated):,} questions have several responses of one run, such as {unit.question} of "
            f"{unit.benchmark} by {unit.method} on {unit.backbone}, seed {unit.seed}. Keep one response of each run."
        )


def _refuse_unplanned(units: Sequence[ExperimentUnit], grid: ExperimentGrid) -> None:
    """Raise where responses belong to no run of the grid, or a benchmark has more questions than planned."""
    runs = set(grid.runs)
    unplanned = Counter(
        f"{unit.method} on {unit.backbone}, seed {unit.seed}, {unit.benchmark}"
        for unit in units
        if (unit.method, unit.backbone, unit.seed) not in runs or unit.benchmark not in grid.benchmarks
    )
    if unplanned:
        listing = "; ".join(f"{run}: {count:,}" for run, count in unplanned.items())
        raise UserError(
            f"responses are not in the plan of the experiment: {listing}. Extend the plan or leave them out."
        )
    for benchmark, count in derive_grid(units).benchmarks.items():
        if count > grid.benchmarks[benchmark]:
            raise UserError(
                f"{benchmark}: the runs answer {count:,} questions, the plan has {grid.benchmarks[benchmark]:,}. "
                "Evaluate all runs on the same questions."
            )
