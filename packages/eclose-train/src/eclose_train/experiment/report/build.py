"""The report of an experiment, computed from its results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose_train.experiment.plan import BootstrapDraws, BootstrapPlan
from eclose_train.experiment.report.audit import AuditResults, summarize_audit
from eclose_train.experiment.report.claims import Claim, check_claims
from eclose_train.experiment.report.evaluator import EvaluatorResults, summarize_evaluator
from eclose_train.experiment.report.grid import REFERENCE_METHOD
from eclose_train.experiment.report.inputs import RunProvenance, refuse_mixed_runs
from eclose_train.experiment.report.main_results import (
    AblationResults,
    MainResults,
    SwitchResults,
    summarize_ablations,
    summarize_main_results,
    summarize_switches,
)
from eclose_train.experiment.report.outcomes import tabulate_responses, tabulate_switches
from eclose_train.experiment.report.training import TrainingCost, list_used_settings, summarize_training_cost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose_train.experiment.report.inputs import ExperimentResults
    from eclose_train.pooling import ExperimentUnit


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
