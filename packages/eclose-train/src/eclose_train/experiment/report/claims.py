"""The paper's claims, checked against the results of an experiment.

A claim consists of comparisons, each a difference that should be positive. It holds where the intervals of all of them
lie above zero, and does not hold where one lies below. Otherwise the experiment cannot tell. That a thing exists is
shown by a case of it, so such a claim holds with the first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.metrics.rates import Metric
from eclose.stats.intervals import Estimate
from eclose.values.response import UNTUNED_METHOD
from eclose_train.experiment.report.grid import REFERENCE_METHOD, name_method
from eclose_train.experiment.report.main_results import SwitchResults, name_switch_column
from eclose_train.experiment.report.outcomes import COUNTERFACTUAL, ORIGINAL, ComparedRates
from eclose_train.families.comparisons import Edge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eclose_train.experiment.report.main_results import AblationResults, MainResults
    from eclose_train.experiment.report.outcomes import RateKey

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
