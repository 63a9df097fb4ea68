"""What a report is made from: verdicts, answer matches, switch scores, times and recipes of the runs of an experiment.

Runs that were judged by different evaluators or under different guidelines are refused, since their rates cannot be
compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from eclose.errors import UserError
from eclose.values.response import ResponseSource
from eclose.values.three_valued import Label
from eclose.values.verdict import SettledVerdict
from eclose_train.experiment.report.grid import ExperimentGrid
from eclose_train.experiment.report.people import AuditLabels, EvaluatorLabels
from eclose_train.training.switch_test import FamilySwitchScores


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProvenance:
    """How a run was made and judged, None where that is not recorded. All runs of a report must agree."""

    evaluator: str | None = None
    effort: str | None = None
    """Reasoning effort of the evaluator."""
    guidelines: str | None = None
    """Hash of the judging guidelines."""
    prompt: str | None = None
    """Hash of the prompt that responses were generated with."""
    pool: str | None = None
    """Hash of the evaluation questions."""
    families: str | None = None
    """Hash of the families of training and development."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTime:
    """Time of one training run."""

    backbone: str
    method: str
    seed: int
    seconds: float
    """Wall-clock time of all sessions together."""
    processes: int = 1
    """Devices that worked at the same time."""
    device: str = ""


@dataclass(frozen=True, kw_only=True)
class ExperimentResults:
    """The results of the runs of an experiment."""

    verdicts: Sequence[SettledVerdict]
    """Responses of the main comparison; the source names backbone, method and seed."""
    label_source: str
    """A sentence on who labelled the responses."""
    validation: str | None = None
    """A sentence on a validation of the evaluator that was made elsewhere."""
    matches: Mapping[str, Label] = field(default_factory=dict)
    """Whether the answer of a response matches the reference, by response id."""
    ablations: Sequence[SettledVerdict] = ()
    """Responses of the ablated variants; the full method is taken from ``verdicts`` unless it is here too."""
    switches: Sequence[FamilySwitchScores] = ()
    """Scores of the switch test, one row per family and model."""
    times: Sequence[TrainingTime] = ()
    recipes: Mapping[ResponseSource, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of each training run, by its backbone, method and seed."""
    evaluator: EvaluatorLabels | None = None
    """Labels of people, where the evaluator is validated."""
    audit: AuditLabels | None = None
    """Labels of people, where results were audited."""
    provenance: Mapping[str, RunProvenance] = field(default_factory=dict)
    """How each run was made and judged, by a name of the run."""
    grid: ExperimentGrid | None = None
    """The planned main comparison; by default the product of all methods, backbones, seeds and questions that occur."""
    ablation_grid: ExperimentGrid | None = None
    """The planned ablations; by default the product of everything that occurs."""
    unfinished: Sequence[str] = ()
    """Sentences on parts of the study without any result."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Responses that are not among the verdicts, by reason."""


def refuse_mixed_runs(runs: Mapping[str, RunProvenance]) -> RunProvenance:
    """Return what all runs have in common.

    Raises:
        UserError: Runs differ in their evaluator, guidelines, prompt, pool or families; every difference is named.
    """
    common: dict[str, str | None] = {}
    problems = []
    for name in (entry.name for entry in fields(RunProvenance)):
        # The first run of each value is its example in the message.
        examples: dict[str, str] = {}
        for run, provenance in runs.items():
            if (value := getattr(provenance, name)) is not None:
                examples.setdefault(value, run)
        if len(examples) > 1:
            problems.append(f"{name}: " + ", ".join(f"{value} ({run})" for value, run in examples.items()))
        common[name] = next(iter(examples), None)
    if problems:
        raise UserError(
            f"the runs cannot be reported together, because they differ in {'; '.join(problems)}. "
            "Judge all runs alike, or report them apart."
        )
    return RunProvenance(**common)
