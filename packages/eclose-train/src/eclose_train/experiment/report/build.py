"""The report of an experiment, computed from its results, with the paper's claims checked against them.

A claim consists of comparisons, each a difference that should be positive. It holds where the intervals of all of them
lie above zero, and does not hold where one lies below. Otherwise the experiment cannot tell. That a thing exists is
shown by a case of it, so such a claim holds with the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.metrics.rates import Metric
from eclose.stats.intervals import Estimate
from eclose.values.response import UNTUNED_METHOD
from eclose_train.experiment.plan import BootstrapDraws, BootstrapPlan
from eclose_train.experiment.report.grid import REFERENCE_METHOD, name_method
from eclose_train.experiment.report.inputs import RunProvenance, refuse_mixed_runs
from eclose_train.experiment.report.main_results import (
    AblationResults,
    MainResults,
    SwitchResults,
    name_switch_column,
    summarize_ablations,
    summarize_main_results,
    summarize_switches,
)
from eclose_train.experiment.report.outcomes import (
    COUNTERFACTUAL,
    ORIGINAL,
    ComparedRates,
    tabulate_responses,
    tabulate_switches,
)
from eclose_train.experiment.report.people import AuditResults, EvaluatorResults, summarize_audit, summarize_evaluator
from eclose_train.experiment.report.training import TrainingCost, list_used_settings, summarize_training_cost
from eclose_train.families.comparisons import Edge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eclose_train.experiment.report.inputs import ExperimentResults
    from eclose_train.experiment.report.outcomes import RateKey
    from eclose_train.pooling import ExperimentUnit

UNTUNED = name_method(UNTUNED_METHOD)
SUPERVISED = (name_method("sft"), name_method("cf_sft"))
MARGINS_ALONE = name_method("rm")
ONE_SIDED = name_method("e_closure-one_sided")


class ClaimOutcome(StrEnum):
    """Outcome of checking a claim against an experiment."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "cannot tell"


@dataclass(frozen=True)
class ClaimComparison:
    """A difference of two rates, positive where the claim is right."""

    name: str
    """Metric and the two methods, such as ``LSR: SFT - Backbone``."""
    difference: Estimate
    n: int
    """Number of judged responses or families of the method with fewer of them."""
    by_witness: bool = False
    """Whether one case decides, since the claim is that there are any."""

    @property
    def outcome(self) -> ClaimOutcome:
        """Outcome by the interval: above zero, below zero, or containing it; a case that exists needs none."""
        if self.by_witness:
            return ClaimOutcome.HOLDS if self.difference.value else ClaimOutcome.OPEN
        interval = self.difference.interval
        if interval is None or interval.low <= 0 <= interval.high:
            return ClaimOutcome.OPEN
        return ClaimOutcome.HOLDS if interval.low > 0 else ClaimOutcome.FAILS


@dataclass(frozen=True)
class Claim:
    """A claim of the paper with the comparisons that decide it."""

    title: str
    comparisons: tuple[ClaimComparison, ...]
    """Comparisons of the claim; empty where the experiment lacks the methods."""

    @property
    def outcome(self) -> ClaimOutcome:
        """Outcome of all comparisons: each holds, one fails, or neither."""
        outcomes = [comparison.outcome for comparison in self.comparisons]
        if ClaimOutcome.FAILS in outcomes:
            return ClaimOutcome.FAILS
        return ClaimOutcome.HOLDS if outcomes and set(outcomes) == {ClaimOutcome.HOLDS} else ClaimOutcome.OPEN


def check_claims(
    main: MainResults,
    ablations: Iterable[AblationResults],
    switches: SwitchResults | None,
) -> tuple[Claim, ...]:
    """Check the claims of the paper's section 5 that an experiment can decide."""
    responses = main.compared
    preferences = ComparedRates({}) if switches is None else switches.compared
    others = [name for name in main.outcomes.grid.methods if name != REFERENCE_METHOD]
    ablated = list(ablations)
    on_original, on_counterfactual = f"{Edge.CLOSURE} {ORIGINAL}", f"{Edge.CLOSURE} {COUNTERFACTUAL}"
    return (
        Claim("The untuned backbones have a local-global gap.", tuple(_find_gap(responses))),
        Claim(
            "Supervised fine-tuning raises local soundness.",
            _compare_methods(responses, Metric.LOCAL_SOUNDNESS_RATE, SUPERVISED, [UNTUNED]),
        ),
        Claim(
            "Supervised fine-tuning lowers closure.",
            _compare_methods(responses, Metric.CLOSURE_RATE, [UNTUNED], SUPERVISED),
        ),
        Claim(
            f"{REFERENCE_METHOD} has the highest trace reliability.",
            _compare_methods(responses, Metric.TRACE_RELIABILITY_RATE, [REFERENCE_METHOD], others),
        ),
        Claim(
            f"{REFERENCE_METHOD} has the smallest gap of all tuned methods.",
            _compare_methods(
                responses, Metric.GAP_RATE, [method for method in others if method != UNTUNED], [REFERENCE_METHOD]
            ),
        ),
        Claim(
            f"{MARGINS_ALONE} fails on C under counterfactual inputs.",
            _compare(preferences, (MARGINS_ALONE, on_original), (MARGINS_ALONE, on_counterfactual))
            + _compare(preferences, (REFERENCE_METHOD, on_counterfactual), (MARGINS_ALONE, on_counterfactual)),
        ),
        Claim(
            f"T is the edge on which {REFERENCE_METHOD} is weakest.",
            _compare(preferences, _reference_switch(Edge.SUPPORT), _reference_switch(Edge.ALIGNMENT))
            + _compare(preferences, _reference_switch(Edge.CLOSURE), _reference_switch(Edge.ALIGNMENT)),
        ),
        Claim(
            "Every edge that is left out lowers trace reliability.",
            tuple(_compare_ablations(ablated, lambda variant: variant != ONE_SIDED)),
        ),
        Claim(
            "Two-sided margins are more reliable than one-sided ones.",
            tuple(_compare_ablations(ablated, lambda variant: variant == ONE_SIDED)),
        ),
    )


def _reference_switch(edge: Edge) -> RateKey:
    return REFERENCE_METHOD, name_switch_column(edge)


def _find_gap(responses: ComparedRates) -> Iterator[ClaimComparison]:
    if (key := (UNTUNED, Metric.GAP_RATE)) in responses:
        rate = responses.rate(key)
        yield ClaimComparison(
            name=f"{Metric.GAP_RATE}: {UNTUNED}",
            difference=Estimate(rate.value, rate.interval, rate.undefined),
            n=rate.n,
            by_witness=True,
        )


def _compare_methods(
    responses: ComparedRates, metric: Metric, firsts: Iterable[str], seconds: Iterable[str]
) -> tuple[ClaimComparison, ...]:
    seconds = list(seconds)
    return tuple(
        comparison
        for first in firsts
        for second in seconds
        for comparison in _compare(responses, (first, metric), (second, metric))
    )


def _compare(compared: ComparedRates, first: RateKey, second: RateKey) -> tuple[ClaimComparison, ...]:
    """Return the comparison of two rates; an empty tuple where the experiment lacks one of them."""
    if first not in compared or second not in compared:
        return ()
    names = (first[0], second[0]) if first[1] == second[1] else (" ".join(first), " ".join(second))
    column = f"{first[1]}: " if first[1] == second[1] else ""
    rates = compared.rate(first), compared.rate(second)
    name, difference = f"{column}{names[0]} - {names[1]}", compared.subtract(first, second)
    if any(rate.shown is None for rate in rates):
        # The responses without a label may differ from the others, so an interval of the others decides nothing.
        name, difference = f"{name} (too few responses judged)", Estimate(difference.value, None)
    return (ClaimComparison(name, difference, min(rate.n for rate in rates)),)


def _compare_ablations(
    ablations: Iterable[AblationResults], chosen: Callable[[str], bool]
) -> Iterator[ClaimComparison]:
    """Yield the gain in trace reliability over each chosen variant; the paper's variants have a target metric."""
    metric = Metric.TRACE_RELIABILITY_RATE
    for results in ablations:
        for gain in results.gains:
            if gain.metric is not None and chosen(gain.variant):
                yield ClaimComparison(
                    name=f"{metric}: {REFERENCE_METHOD} - {gain.variant}",
                    difference=gain.reliability_gain,
                    n=results.rates[gain.variant][metric].n,
                )


@dataclass(frozen=True)
class ExperimentReport:
    """Everything that the tables, figures and files of an experiment show."""

    main: MainResults
    ablations: tuple[AblationResults, ...]
    switches: SwitchResults | None
    variant_switches: tuple[SwitchResults, ...]
    """Switch rates of ablated variants beside the full method, one entry per backbone."""
    evaluator: EvaluatorResults | None
    audit: AuditResults | None
    cost: TrainingCost | None
    used_settings: dict[str, dict[str, tuple[str, ...]]]
    """Runs by value of every setting that is reported."""
    provenance: RunProvenance
    label_source: str
    validation: str | None
    matched: bool
    """Whether answer matches are known."""
    unfinished: tuple[str, ...]
    """Sentences on parts of the study without any result."""
    left_out: dict[str, int]
    bootstrap: BootstrapPlan

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, checked against these results."""
        return check_claims(self.main, self.ablations, self.switches)

    @property
    def missing(self) -> tuple[str, ...]:
        """A sentence for every run that lacks responses or families; empty where all grids are complete."""
        return tuple(self._list_missing())

    def _list_missing(self) -> Iterator[str]:
        yield from (f"Responses of {run}." for run in self.main.outcomes.missing)
        for ablation in self.ablations:
            yield from (f"Ablations: responses of {run}." for run in ablation.outcomes.missing)
        for switches in filter(None, (self.switches, *self.variant_switches)):
            yield from (f"Switch test: families of {run}." for run in switches.outcomes.missing)
        yield from self.unfinished

    @property
    def labels(self) -> str:
        """Source of the labels: evaluator, effort, guidelines and validation."""
        parts = [self.label_source]
        recorded = [
            f"{name} {value}"
            for name, value in (
                ("evaluator", self.provenance.evaluator),
                ("effort", self.provenance.effort),
                ("guidelines", self.provenance.guidelines),
            )
            if value is not None
        ]
        if recorded:
            parts.append(f"({', '.join(recorded)})")
        return " ".join(parts) + f" {self.validation or 'The labels were not validated against people.'}"


def build_experiment_report(results: ExperimentResults, bootstrap: BootstrapPlan | None = None) -> ExperimentReport:
    """Compute all rates, gains and intervals of an experiment.

    Args:
        results: Verdicts, matches, switch scores, times and recipes of its runs.
        bootstrap: Resamples and seeds of the intervals; those of the paper by default.

    Raises:
        UserError: There is no verdict, runs were judged by different evaluators, or responses belong to no run.
    """
    bootstrap = bootstrap or BootstrapPlan()
    if not results.verdicts:
        raise UserError("there is nothing to report: no response has a verdict. Judge the runs first.")
    provenance = refuse_mixed_runs(results.provenance)
    outcomes = tabulate_responses(results.verdicts, results.matches, results.grid)
    evaluator = summarize_evaluator(results.evaluator, bootstrap.judge) if results.evaluator else None
    switches, variant_switches = _summarize_all_switches(results, outcomes.grid.methods, bootstrap.switches)
    return ExperimentReport(
        main=summarize_main_results(outcomes, bootstrap.main),
        ablations=tuple(summarize_ablations(results, bootstrap.ablations)),
        switches=switches,
        variant_switches=variant_switches,
        evaluator=evaluator,
        audit=summarize_audit(results.audit, bootstrap.audit) if results.audit else None,
        cost=summarize_training_cost(results.times) if results.times else None,
        used_settings=list_used_settings(results.recipes),
        provenance=provenance,
        label_source=results.label_source,
        validation=evaluator.sentence if evaluator else results.validation,
        matched=bool(results.matches),
        unfinished=tuple(results.unfinished),
        left_out=dict(results.left_out),
        bootstrap=bootstrap,
    )


def _summarize_all_switches(
    results: ExperimentResults, methods: tuple[str, ...], draws: BootstrapDraws
) -> tuple[SwitchResults | None, tuple[SwitchResults, ...]]:
    """Return the switch rates of the main methods, and those of the variants of each backbone."""
    if not results.switches:
        return None, ()
    table = tabulate_switches(results.switches, methods)
    main = table.select(lambda unit: unit.method in methods, [name for name in table.grid.methods if name in methods])
    if results.grid is not None and main.units:
        # Runs are those of the plan, also where none of a method is finished; families are those that were scored.
        main = main.expect(replace(results.grid, benchmarks=main.grid.benchmarks))
    # Variants were trained on some backbones only, so they are compared there and not in the main grid.
    variants = [method for method in table.grid.methods if method not in methods]
    compared = {*variants, REFERENCE_METHOD}
    backbones = dict.fromkeys(unit.backbone for unit in table.units if unit.method in variants)
    groups = [table.select(partial(_is_compared, backbone, compared)) for backbone in backbones]
    return (
        summarize_switches(main, draws) if main.units else None,
        tuple(summarize_switches(group, draws) for group in groups),
    )


def _is_compared(backbone: str, methods: set[str], unit: ExperimentUnit) -> bool:
    return unit.backbone == backbone and unit.method in methods
