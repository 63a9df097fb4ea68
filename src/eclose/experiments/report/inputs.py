"""What a report is made from: verdicts, answer matches, switch scores, times and recipes of the runs of an experiment.

Runs that were judged by different evaluators or under different guidelines are refused, since their rates cannot be
compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from eclose.core.response import ResponseSource
from eclose.core.three_valued import Label
from eclose.core.verdict import SettledVerdict
from eclose.errors import UserError
from eclose.experiments.report.grid import ExperimentGrid
from eclose.training.switch_test import FamilySwitchScores

REFERENCE_METHOD = "E-Closure"
"""The method whose gains over the others are reported."""

METHOD_NAMES = {
    "sft": "SFT",
    "cf_sft": "CF-SFT",
    "rm": "RM",
    "e_closure": REFERENCE_METHOD,
    "e_closure-S": "w/o S",
    "e_closure-T": "w/o T",
    "e_closure-C": "w/o C",
    "e_closure-one_sided": "One-sided",
    "dpo": "DPO*",
    "simpo": "SimPO*",
}
"""Names of the training methods in tables, by their names in recipes."""
BASELINE_NAMES = ("DPO*", "SimPO*")
BASELINE_NOTE = "* Trained by TRL on pairs of whole responses; not a method of the paper."


def name_method(method: str) -> str:
    """Return the name of a method in tables; methods of others keep theirs."""
    return METHOD_NAMES.get(method, method)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProvenance:
    """How a run was made and judged; None where it is not recorded. Runs of one report agree in all of it."""

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
    """Who labelled the responses, in a sentence."""
    validation: str | None = None
    """How the evaluator was validated against people, in a sentence."""
    matches: Mapping[str, Label] = field(default_factory=dict)
    """Whether the answer of a response matches the reference, by response id."""
    ablations: Sequence[SettledVerdict] = ()
    """Responses of the ablated variants; the full method is taken from ``verdicts`` unless it is here too."""
    switches: Sequence[FamilySwitchScores] = ()
    """Scores of the switch test, one row per family and model."""
    times: Sequence[TrainingTime] = ()
    recipes: Mapping[ResponseSource, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of each training run, by its backbone, method and seed."""
    provenance: Mapping[str, RunProvenance] = field(default_factory=dict)
    """How each run was made and judged, by a name of the run."""
    grid: ExperimentGrid | None = None
    """The planned main comparison; by default the product of all methods, backbones, seeds and questions that occur."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Responses that are not among the verdicts, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSettings:
    """Resamples and random seeds of the intervals. Defaults are those of the paper (appendices D.2, D.6 and D.7)."""

    main_resamples: int = 5_000
    main_seed: int = 2027
    ablation_resamples: int = 10_000
    ablation_seed: int = 2031
    switch_resamples: int = 10_000
    switch_seed: int = 20260915
    reference: str = REFERENCE_METHOD
    """The method whose gains over the others are reported."""


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
