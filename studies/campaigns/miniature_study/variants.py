"""E-Closure with other settings of training, to see which of them decides its rates in the miniature study.

One backbone and one seed each, with the questions and the judge of the study: enough to see a large effect, and too
little for an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eclose_train.experiment.folder import init_experiment
from eclose_train.experiment.results import report_experiment
from eclose_train.experiment.run import run_experiment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eclose_train.experiment.cells import ExperimentRun, StageTask
    from eclose_train.experiment.plan import Plan

METHOD = "e_closure"
REPORT_PREFIX = "variant-"


@dataclass(frozen=True)
class Variant:
    """A change of the settings of training."""

    setting: str
    """What it changes, in words."""
    title: str
    training: dict[str, Any]


VARIANTS = {
    "longer": Variant("number of updates", "two epochs instead of one", {"num_train_epochs": 2}),
    "heavier": Variant("weight of the margins", "margin weight 4 instead of 1", {"margin_weight": 4.0}),
}


def run_variant(
    plan: Plan,
    name: str,
    out: Path,
    *,
    wait: float,
    on_stage: Callable[[StageTask, int, int], None],
    on_result: Callable[[StageTask, str | None], None],
) -> ExperimentRun:
    """Train, judge and test a variant on the backbone of the ablations with the first seed, and report it.

    Args:
        plan: Plan of the study.
        name: Name of the variant.
        out: Folder of the study.
        wait: Seconds to wait for another process on the same folder.
        on_stage: Called before each stage.
        on_result: Called after each stage, with its problem.

    Returns:
        The finished, failed and waiting stages.
    """
    backbone = next(backbone for backbone in plan.backbones if backbone.name == plan.ablation_backbone)
    plan = replace(
        plan,
        backbones=[backbone],
        methods=[METHOD],
        ablations=[],
        ablation_backbone=None,
        switch_ablations=False,
        seeds=plan.seeds[:1],
        training={**plan.training, **VARIANTS[name].training},
        runs=[],
    )
    experiment = init_experiment(plan, out / "variants" / name)
    # The study has answers of the untuned backbone.
    result = run_experiment(experiment, [f"method={METHOD}"], wait=wait, on_stage=on_stage, on_result=on_result)
    report_experiment(experiment, out / f"{REPORT_PREFIX}{name}")
    return result
