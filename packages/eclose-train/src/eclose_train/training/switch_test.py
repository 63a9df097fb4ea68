"""Switch test of appendix D.7: whether a model's preferences follow the evidence, the question and the trace.

A family and a model give twelve scores, six margins, and for each dependency whether the preference holds under the
original input (O), under the counterfactual one (CF), and under both (SW). No response is generated or judged. A score
that is not finite leaves its comparison unjudged, with the reason, rather than failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from eclose.errors import UserError
from eclose.files.jsonl import ReadRecord
from eclose.stats.intervals import Estimate
from eclose.stats.rates import Rate, mean_or_none
from eclose.values.family import select_fixed_edit
from eclose.values.response import UNTUNED_METHOD, ResponseSource
from eclose.values.three_valued import three_valued_and
from eclose_train.families.comparisons import ALL_COMPARISONS, Direction, Edge
from eclose_train.likelihood.family_scores import FamilyScores, comparison_side_name
from eclose_train.likelihood.render import TOO_LONG_REASON, PathTooLongError
from eclose_train.pooling import ExperimentArrays, ExperimentUnit, indicate_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

    from eclose.values.family import EvidenceEdit, Family
    from eclose.values.three_valued import Label
    from eclose_train.likelihood.exactness_check import ScoringChoice
    from eclose_train.likelihood.render import TokenPathRenderer
    from eclose_train.likelihood.spans import SpanScore

    RenderedFamily: TypeAlias = tuple[Family, EvidenceEdit, list[SpanScore]]

SWITCH_SEED = 20260915
"""Seed of the resampling in the paper (appendix D.7)."""
_WINDOW = 32
"""Families rendered at a time and grouped into forward passes."""


def margin_name(edge: Edge, direction: Direction) -> str:
    """Return the name of a margin: ``S.o``, ``S.c``, ... ``C.c``."""
    return f"{edge.value}.{direction.value}"


@dataclass(frozen=True, slots=True)
class FamilySwitchScores:
    """Scores and margins of a model on a family."""

    family_id: str
    benchmark: str | None
    passage_id: str
    """Id of the edited passage; where a family has several edits, the same one for every model."""
    scores: Mapping[str, float | None]
    """Mean log-likelihoods by side: ``S.o+`` is the preferred step under the original evidence."""
    margins: Mapping[str, float | None]
    """Preferred minus dispreferred score, ``S.o`` to ``C.c``; None where a score is not finite."""
    unjudged: Mapping[str, str] = field(default_factory=dict)
    """Reason for every missing margin."""
    system: str = UNTUNED_METHOD
    """Adapter as named by the user, or the backbone."""
    model: str | None = None
    """Name of the backbone; None in rows of earlier versions."""
    method: str | None = None
    """Training method of an adapter; None for the backbone."""
    seed: int | None = None
    """Training seed of an adapter, if its recipe has one."""

    @classmethod
    def of(
        cls,
        family: Family,
        edit: EvidenceEdit,
        values: Mapping[str, float],
        system: str,
        source: ResponseSource | None = None,
    ) -> FamilySwitchScores:
        """Compute the margins from the twelve scores of a family."""
        margins: dict[str, float | None] = {}
        unjudged = {}
        for comparison in ALL_COMPARISONS:
            edge, direction = comparison.edge, comparison.direction
            sides = [comparison_side_name(edge, direction, preferred=preferred) for preferred in (True, False)]
            problems = [f"{side} is {values[side]}" for side in sides if not isfinite(values[side])]
            name = margin_name(edge, direction)
            margins[name] = None if problems else values[sides[0]] - values[sides[1]]
            if problems:
                unjudged[name] = ", ".join(problems)
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
    def source(self) -> ResponseSource | None:
        """Backbone, method and seed; None in rows of earlier versions."""
        return None if self.model is None else ResponseSource(self.model, self.method, self.seed)

    def holds(self, edge: Edge, direction: Direction) -> Label:
        """Return whether the preference follows the input of a direction. A tie fails (appendix D.7.1)."""
        margin = self.margins[margin_name(edge, direction)]
        # The threshold is zero, not the target margin of training (appendix D.7.1).
        return None if margin is None else margin > 0

    def switched(self, edge: Edge) -> Label:
        """Return whether the preference follows the input in both directions."""
        return three_valued_and(self.holds(edge, direction) for direction in Direction)


def score_family_switches(
    families: Iterable[ReadRecord[Family]],
    model: Any,
    renderer: TokenPathRenderer,
    choice: ScoringChoice,
    *,
    tokens_per_forward: int = 16_384,
    system: str = UNTUNED_METHOD,
    source: ResponseSource | None = None,
) -> Iterator[ReadRecord[FamilySwitchScores]]:
    """Score families and yield their margins, in order; records without a family are passed on unchanged.

    The attention of the model is set according to ``choice``. Families with a longer path than the renderer's are
    rejected. ``tokens_per_forward`` changes no result.
    """
    families = iter(families)
    while window := [_render(record, renderer) for record in islice(families, _WINDOW)]:
        scores = [record.value[2] for record in window if record.value is not None]
        # One mapping per family with a value, in the order of the window.
        values = _score(model, scores, choice, tokens_per_forward)
        for record in window:
            if record.value is None:
                yield cast("ReadRecord[FamilySwitchScores]", record)
            else:
                family, edit, _ = record.value
                yield ReadRecord(record.where, value=FamilySwitchScores.of(family, edit, next(values), system, source))


def _render(record: ReadRecord[Family], renderer: TokenPathRenderer) -> ReadRecord[RenderedFamily]:
    if record.value is None:
        return cast("ReadRecord[RenderedFamily]", record)
    edit = select_fixed_edit(record.value)
    try:
        scores = FamilyScores(record.value, edit, renderer).comparisons()
    except PathTooLongError:
        return ReadRecord(record.where, rejected=TOO_LONG_REASON)
    return ReadRecord(record.where, value=(record.value, edit, scores))


def _score(
    model: Any, families: Sequence[list[SpanScore]], choice: ScoringChoice, budget: int
) -> Iterator[dict[str, float]]:
    """Yield the scores of each family by name, with as many families per forward pass as the budget allows."""
    # Imported here, so that rows can be read and summarised without torch.
    from eclose_train.likelihood.score import limit_forward_tokens, mean_logprobs, pack_family_forests  # noqa: PLC0415

    for forest in pack_family_forests(families, limit_forward_tokens(budget, choice.backend)):
        scores = [score for number in forest for score in families[number]]
        with _evaluation_mode(model):
            values = iter(mean_logprobs(model, scores, choice.strategy, choice.backend).tolist())
        for number in forest:
            yield {score.name: next(values) for score in families[number]}


@contextmanager
def _evaluation_mode(model: Any) -> Iterator[None]:
    import torch  # noqa: PLC0415

    # Scoring needs dropout off; the mode of the caller is restored.
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def default_torch_device() -> str:
    """Return ``cuda`` where a GPU is available, else ``cpu``."""
    import torch  # noqa: PLC0415

    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, slots=True)
class EdgeSwitchRates:
    """Rates of a dependency: how often the preference follows the input, and the mean margins."""

    original: Rate
    """O: the preference holds under the original input."""
    counterfactual: Rate
    """CF: the preference holds under the counterfactual input."""
    switched: Rate
    """SW: the preference holds under both."""
    margins: Mapping[Direction, float | None]
    """Mean margins over the families that have one."""


@dataclass(frozen=True, slots=True)
class SwitchRates:
    """Rates of a model on a benchmark, or on all families together."""

    system: str
    benchmark: str | None
    """None for all families together."""
    families: int
    edges: Mapping[Edge, EdgeSwitchRates]
    source: ResponseSource | None = None
    """Backbone, method and seed, where the rows name them."""


UNKNOWN = "unknown"
"""Benchmark name for families without one."""


def summarize_switch_rates(rows: Sequence[FamilySwitchScores]) -> list[SwitchRates]:
    """Compute the rates of each model in order of appearance: every benchmark by name, then all families together."""
    groups: dict[str, dict[str, list[FamilySwitchScores]]] = {}
    for row in rows:
        groups.setdefault(row.system, {}).setdefault(row.benchmark or UNKNOWN, []).append(row)
    rates = []
    for system, benchmarks in groups.items():
        rates += [_rates(system, name, members) for name, members in sorted(benchmarks.items())]
        rates.append(_rates(system, None, [row for members in benchmarks.values() for row in members]))
    return rates


def _rates(system: str, benchmark: str | None, rows: Sequence[FamilySwitchScores]) -> SwitchRates:
    return SwitchRates(system, benchmark, len(rows), {edge: _edge_rates(edge, rows) for edge in Edge}, rows[0].source)


def _edge_rates(edge: Edge, rows: Sequence[FamilySwitchScores]) -> EdgeSwitchRates:
    margins = {
        direction: [value for row in rows if (value := row.margins[margin_name(edge, direction)]) is not None]
        for direction in Direction
    }
    return EdgeSwitchRates(
        Rate.of(row.holds(edge, Direction.ORIGINAL) for row in rows),
        Rate.of(row.holds(edge, Direction.COUNTERFACTUAL) for row in rows),
        Rate.of(row.switched(edge) for row in rows),
        {direction: mean_or_none(values) for direction, values in margins.items()},
    )


@dataclass(frozen=True, slots=True)
class SwitchContrast:
    """Switch rate of a model with benchmarks weighted equally, and its gain over the first model."""

    rate: Estimate
    gain: Estimate | None
    """Difference to the first model, paired by family; None for the first model."""


def compare_switch_rates(
    rows: Sequence[FamilySwitchScores], *, rng: np.random.Generator, resamples: int = 10_000
) -> dict[str, dict[Edge, SwitchContrast]]:
    """Compare every model with the first, with intervals.

    Families are resampled within benchmarks, with the same draws for all models (appendix D.7).
    """
    systems = dict.fromkeys(row.system for row in rows)
    families = {(row.benchmark, row.family_id) for row in rows}
    counts = Counter((row.system, row.benchmark, row.family_id) for row in rows)
    pairs = len(systems) * len(families)
    if unpaired := pairs - sum(count == 1 for count in counts.values()):
        raise UserError(
            f"a paired comparison needs every family once for every model; {unpaired} of {pairs} pairs of family "
            "and model have no row or several. Test all models on the same families."
        )
    # Every model is scored on the same families, so all share the resampled ones: differences are paired.
    units = [ExperimentUnit(row.system, "", None, row.benchmark or UNKNOWN, row.family_id) for row in rows]
    return _contrast_methods(list(systems), units, rows, rng, resamples)


def _contrast_methods(
    methods: list[str],
    units: Sequence[ExperimentUnit],
    rows: Sequence[FamilySwitchScores],
    rng: np.random.Generator,
    resamples: int,
) -> dict[str, dict[Edge, SwitchContrast]]:
    """Return the switch rates of the methods with their gains over the first; draws follow the order of the rows."""
    indicators = indicate_labels([[row.switched(edge) for row in rows] for edge in Edge])
    arrays = ExperimentArrays.arrange(units, tuple(Edge), indicators)
    replicates = arrays.bootstrap_shared_questions(rng=rng, resamples=resamples)

    def contrast(method: str, edge: Edge) -> SwitchContrast:
        column, first = arrays.column(method, edge), arrays.column(methods[0], edge)
        return SwitchContrast(
            replicates.estimate(column), None if column == first else replicates.difference(column, first)
        )

    return {method: {edge: contrast(method, edge) for edge in Edge} for method in methods}


@dataclass(frozen=True, slots=True)
class PooledSwitchRates:
    """Switch rates of each method over all its backbones and training seeds."""

    backbones: tuple[str, ...]
    seeds: tuple[int, ...]
    contrasts: Mapping[str, Mapping[Edge, SwitchContrast]]
    """Rates by method with every benchmark-backbone setting of equal weight, and gains over the first method."""


def pool_switch_rates(
    rows: Sequence[FamilySwitchScores], *, rng: np.random.Generator, resamples: int = 10_000
) -> PooledSwitchRates:
    """Pool models of the same method over backbones and seeds, with the intervals of appendix D.7.

    Families are drawn within benchmarks, the same for all methods and backbones. Seeds are drawn within each backbone,
    the same for all methods and benchmarks. An untuned backbone has no seed and is unchanged by their draws.

    Raises:
        UserError: A model does not say its backbone or seed, or a method lacks a backbone, a seed or a family that
            another one has.
    """
    unknown = {row.system for row in rows if row.model is None or (row.method is not None and row.seed is None)}
    if unknown:
        raise UserError(f"backbone and training seed are not known of {', '.join(sorted(unknown))}.")
    units = [
        ExperimentUnit(row.method or UNTUNED_METHOD, row.model or "", row.seed, row.benchmark or UNKNOWN, row.family_id)
        for row in rows
    ]
    # Sorted, so that the draws do not depend on the order of the models.
    order = sorted(range(len(units)), key=lambda index: units[index].sort_key)
    contrasts = _contrast_methods(
        list(dict.fromkeys(unit.method for unit in units)),
        [units[index] for index in order],
        [rows[index] for index in order],
        rng,
        resamples,
    )
    return PooledSwitchRates(
        tuple(dict.fromkeys(unit.backbone for unit in units)),
        tuple(sorted({unit.seed for unit in units if unit.seed is not None})),
        contrasts,
    )


def has_pooled_methods(rows: Sequence[FamilySwitchScores]) -> bool:
    """Return whether some method has several models, so that there is something to pool."""
    systems = {(row.method, row.system) for row in rows}
    return len(systems) > len({method for method, _ in systems})
