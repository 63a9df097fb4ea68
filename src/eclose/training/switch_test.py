"""Do preferences follow the evidence, the question and the trace? The switch test of appendix D.7.

Families and a model give twelve scores, six margins, and for each dependency whether the preference holds under the
original input (O), under the counterfactual one (CF), and under both (SW). No response is generated and nobody judges.
A score that is no number leaves its comparison unjudged, with the reason; it is never a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from eclose.core.edges import COMPARISONS, Direction, Edge
from eclose.core.edit_selection import select_fixed_edit
from eclose.core.response import Source
from eclose.core.three_valued import conjunction
from eclose.errors import UserError
from eclose.likelihood.family_scores import FamilyScores, side_name
from eclose.likelihood.render import TOO_LONG, PathTooLongError
from eclose.stats.arrays import codes
from eclose.stats.bootstrap import SettingTable, bootstrap_settings, shared_questions
from eclose.stats.intervals import Estimate
from eclose.stats.rates import Rate, mean
from eclose.stats.resampling import Strata
from eclose.store.records.jsonl import ReadRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.core.family import EvidenceEdit, Family
    from eclose.core.three_valued import Label
    from eclose.likelihood.exactness_check import ScoringChoice
    from eclose.likelihood.render import Renderer
    from eclose.likelihood.spans import SpanScore

BACKBONE = "backbone"
"""The name of a model as it is, beside adapters on it."""
_WINDOW = 32
"""Families rendered ahead, for the budget to be filled from."""


def margin_name(edge: Edge, direction: Direction) -> str:
    """``S.o``, ``S.c``, ... ``C.c``."""
    return f"{edge.value}.{direction.value}"


@dataclass(frozen=True, slots=True)
class FamilySwitch:
    """What one model prefers in one family."""

    family_id: str
    benchmark: str | None
    passage_id: str
    """The edited passage; where a family has several edits, the same one for every model."""
    scores: Mapping[str, float | None]
    """Mean log-likelihoods by side: ``S.o+`` is the preferred step under the original evidence."""
    margins: Mapping[str, float | None]
    """Preferred minus dispreferred, ``S.o`` to ``C.c``; None where a score is no number."""
    unjudged: Mapping[str, str] = field(default_factory=dict)
    """Why a margin is missing."""
    system: str = BACKBONE
    """The adapter by the name it was given, or the backbone."""
    model: str | None = None
    """Name of the backbone; None in rows written before it was kept."""
    method: str | None = None
    """Training method of an adapter; None for the backbone as it is."""
    seed: int | None = None
    """Training seed of an adapter, where it is known."""

    @classmethod
    def of(
        cls,
        family: Family,
        edit: EvidenceEdit,
        values: Mapping[str, float],
        system: str,
        source: Source | None = None,
    ) -> FamilySwitch:
        """Return the margins that follow from twelve scores."""
        margins: dict[str, float | None] = {}
        unjudged = {}
        for comparison in COMPARISONS:
            name = margin_name(comparison.edge, comparison.direction)
            sides = [side_name(comparison.edge, comparison.direction, preferred=wanted) for wanted in (True, False)]
            strange = [f"{side} is {values[side]}" for side in sides if not isfinite(values[side])]
            margins[name] = None if strange else values[sides[0]] - values[sides[1]]
            if strange:
                unjudged[name] = ", ".join(strange)
        return cls(
            family.id,
            family.source.benchmark,
            edit.passage_id,
            {name: value if isfinite(value) else None for name, value in values.items()},
            margins,
            unjudged,
            system,
            *((source.model, source.method, source.seed) if source else ()),
        )

    @property
    def source(self) -> Source | None:
        """Backbone, method and seed; None in rows written before they were kept."""
        return None if self.model is None else Source(self.model, self.method, self.seed)

    def holds(self, edge: Edge, direction: Direction) -> Label:
        """Whether the preference follows this input. A tie fails (appendix D.7.1)."""
        margin = self.margins[margin_name(edge, direction)]
        return None if margin is None else margin > 0

    def switched(self, edge: Edge) -> Label:
        """Whether the preference follows the input both ways."""
        return conjunction(self.holds(edge, direction) for direction in Direction)


class _Packed(NamedTuple):
    family: Family
    edit: EvidenceEdit
    scores: list[SpanScore]


def score_switches(
    families: Iterable[ReadRecord[Family]],
    model: Any,
    renderer: Renderer,
    choice: ScoringChoice,
    *,
    tokens_per_forward: int = 16_384,
    system: str = BACKBONE,
    source: Source | None = None,
) -> Iterator[ReadRecord[FamilySwitch]]:
    """Each family's margins, in order. What came without a family goes on as it is; what does not fit is set aside."""
    families = iter(families)
    while window := [_packed(record, renderer) for record in islice(families, _WINDOW)]:
        ready = [record.value.scores for record in window if record.value is not None]
        values = _scored(model, ready, choice, tokens_per_forward)
        for record in window:
            if record.value is None:
                yield cast("ReadRecord[FamilySwitch]", record)
            else:
                family, edit, _ = record.value
                yield ReadRecord(record.where, value=FamilySwitch.of(family, edit, next(values), system, source))


def _packed(record: ReadRecord[Family], renderer: Renderer) -> ReadRecord[_Packed]:
    if record.value is None:
        return cast("ReadRecord[_Packed]", record)
    edit = select_fixed_edit(record.value)
    try:
        scores = FamilyScores(record.value, edit, renderer).comparisons()
    except PathTooLongError:
        return ReadRecord(record.where, rejected=TOO_LONG)
    return ReadRecord(record.where, value=_Packed(record.value, edit, scores))


def _scored(
    model: Any, families: Sequence[list[SpanScore]], choice: ScoringChoice, budget: int
) -> Iterator[dict[str, float]]:
    """The scores of each family by name, as many families in one forward as the budget has tokens for."""
    from eclose.likelihood.score import limit_tokens, mean_logprobs, pack_forests  # noqa: PLC0415 - reading needs no torch

    for forest in pack_forests(families, limit_tokens(budget, choice.backend)):
        scores = [score for number in forest for score in families[number]]
        with _evaluating(model):
            values = iter(mean_logprobs(model, scores, choice.strategy, choice.backend).tolist())
        for number in forest:
            yield {score.name: next(values) for score in families[number]}


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    import torch  # noqa: PLC0415

    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def default_device() -> str:
    """A GPU if there is one."""
    import torch  # noqa: PLC0415

    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, slots=True)
class EdgeRates:
    """How often the preference follows one dependency's input, and by how much on average."""

    original: Rate
    counterfactual: Rate
    switched: Rate
    margins: Mapping[Direction, float | None]
    """Means over the families whose margin is known."""


@dataclass(frozen=True, slots=True)
class SwitchRates:
    """One model's rates on one benchmark, or on all families together."""

    system: str
    benchmark: str | None
    """None for all families together."""
    families: int
    edges: Mapping[Edge, EdgeRates]
    source: Source | None = None
    """Backbone, method and seed, where the rows name them."""


UNKNOWN = "unknown"
"""Stands for the benchmark of a family that names none."""


def switch_rates(rows: Sequence[FamilySwitch]) -> list[SwitchRates]:
    """For each model, in order of appearance: every benchmark by name, then all families together."""
    groups: dict[str, dict[str, list[FamilySwitch]]] = {}
    for row in rows:
        groups.setdefault(row.system, {}).setdefault(row.benchmark or UNKNOWN, []).append(row)
    found = []
    for system, benchmarks in groups.items():
        found += [_rates(system, name, members) for name, members in sorted(benchmarks.items())]
        found.append(_rates(system, None, [row for members in benchmarks.values() for row in members]))
    return found


def _rates(system: str, benchmark: str | None, rows: Sequence[FamilySwitch]) -> SwitchRates:
    return SwitchRates(system, benchmark, len(rows), {edge: _edge_rates(edge, rows) for edge in Edge}, rows[0].source)


def _edge_rates(edge: Edge, rows: Sequence[FamilySwitch]) -> EdgeRates:
    margins = {
        direction: [value for row in rows if (value := row.margins[margin_name(edge, direction)]) is not None]
        for direction in Direction
    }
    return EdgeRates(
        Rate.of(row.holds(edge, Direction.ORIGINAL) for row in rows),
        Rate.of(row.holds(edge, Direction.COUNTERFACTUAL) for row in rows),
        Rate.of(row.switched(edge) for row in rows),
        {direction: mean(values) for direction, values in margins.items()},
    )


@dataclass(frozen=True, slots=True)
class Contrast:
    """A model's switch rate, benchmarks of equal weight, and how far it lies above the first model's."""

    rate: Estimate
    gain: Estimate | None
    """Paired by family; None for the first model itself."""


def contrasts(
    rows: Sequence[FamilySwitch], *, rng: np.random.Generator, resamples: int = 10_000
) -> dict[str, dict[Edge, Contrast]]:
    """Every model beside the first: families resampled within benchmarks, the same draws for all models (D.7)."""
    systems, benchmarks, table = _paired(rows)
    design = shared_questions(benchmarks, backbones=1, seeds=1)
    replicates = bootstrap_settings(table, design, rng=rng, resamples=resamples)

    def contrast(place: int, which: int) -> Contrast:
        column = place * len(Edge) + which
        return Contrast(replicates.estimate(column), replicates.difference(column, which) if place else None)

    return {
        system: {edge: contrast(place, which) for which, edge in enumerate(Edge)}
        for place, system in enumerate(systems)
    }


def _paired(rows: Sequence[FamilySwitch]) -> tuple[list[str], Strata, SettingTable]:
    """The models, the benchmark of each family, and a column for every edge of every model."""
    system, systems = codes([row.system for row in rows])
    family, families = codes([(row.benchmark, row.family_id) for row in rows])
    shape = (len(families), len(systems), len(Edge))
    hits, counted, filled = np.zeros(shape), np.zeros(shape), np.zeros(shape[:2], np.intp)
    for at, row in zip(zip(family, system, strict=True), rows, strict=True):
        labels = [row.switched(edge) for edge in Edge]
        hits[at] = [label is True for label in labels]
        counted[at] = [label is not None for label in labels]
        filled[at] += 1
    if wrong := int((filled != 1).sum()):
        raise UserError(
            f"a paired comparison needs every family once for every model; {wrong} of {filled.size} places have none "
            "or several. Test all models on the same families."
        )
    flat = (1, 1, len(families), -1)
    benchmark, _ = codes([name for name, _ in families])
    return systems, Strata(benchmark), SettingTable(hits.reshape(flat), counted.reshape(flat))
