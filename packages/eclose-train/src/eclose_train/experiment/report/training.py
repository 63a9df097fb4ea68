"""Cost and settings of the training runs (appendix D.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.stats.rates import mean_or_none, sample_sd_or_none
from eclose.values.identity import canonical_json
from eclose_train.experiment.report.grid import name_method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.values.response import ResponseSource
    from eclose_train.experiment.report.inputs import TrainingTime

REPORTED_SETTINGS = (
    "lora_targets",
    "lora_rank",
    "lora_alpha",
    "lora_dropout",
    "dtype",
    "gradient_checkpointing",
    "bf16",
    "families_per_update",
    "num_train_epochs",
    "optim",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "weight_decay",
    "max_grad_norm",
    "max_length",
    "margin_weight",
    "target_margin",
    "smoothing",
)
"""Names in recipes of the settings in the paper's table. Other settings are listed only where runs differ."""
_IDENTITY = frozenset(
    {"model", "revision", "method", "seed", "run_name", "data_seed", "inputs", "work", "output_dir", "logging_dir"}
)
"""Settings that identify a run and are not hyperparameters."""


@dataclass(frozen=True, slots=True)
class TrainingHours:
    """Hours of a method on a backbone, over its seeds."""

    mean: float | None
    sd: float | None
    """Sample standard deviation; None for a single run."""
    runs: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """Hours by method and backbone, and device hours of all runs together."""

    hours: Mapping[tuple[str, str], TrainingHours]
    methods: tuple[str, ...]
    backbones: tuple[str, ...]
    device_hours: float
    """Sum over runs of hours times processes."""
    runs: int


def summarize_training_cost(times: Sequence[TrainingTime]) -> TrainingCost:
    """Compute mean and spread of the hours of every method and backbone."""
    groups: defaultdict[tuple[str, str], list[TrainingTime]] = defaultdict(list)
    for time in times:
        groups[name_method(time.method), time.backbone].append(time)
    hours = {}
    for group, members in groups.items():
        values = [time.seconds / 3600 for time in members]
        devices = tuple(dict.fromkeys(f"{time.processes} x {time.device or 'unnamed device'}" for time in members))
        hours[group] = TrainingHours(mean_or_none(values), sample_sd_or_none(values), len(values), devices)
    return TrainingCost(
        hours,
        tuple(dict.fromkeys(method for method, _ in groups)),
        tuple(dict.fromkeys(backbone for _, backbone in groups)),
        sum(time.seconds * time.processes for time in times) / 3600,
        len(times),
    )


def list_used_settings(recipes: Mapping[ResponseSource, Mapping[str, Any]]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the runs that used each value of the settings of the paper's table, and of all in which runs differ."""
    names = dict.fromkeys(name for recipe in recipes.values() for name in recipe if name not in _IDENTITY)
    used = {}
    for name in (*REPORTED_SETTINGS, *(name for name in names if name not in REPORTED_SETTINGS)):
        if name not in names:
            continue
        values: defaultdict[str, list[ResponseSource]] = defaultdict(list)
        for source, recipe in recipes.items():
            values[_write_setting(recipe[name]) if name in recipe else "not recorded"].append(source)
        if name in REPORTED_SETTINGS or len(values) > 1:
            used[name] = {value: _name_runs(runs, recipes) for value, runs in values.items()}
    return used


def _write_setting(value: object) -> str:
    """Return a value of a recipe as text: names without quotes, lists without brackets."""
    if isinstance(value, list):
        return ", ".join(map(_write_setting, value))
    return value if isinstance(value, str) else canonical_json(value)


def _name_runs(runs: Sequence[ResponseSource], recipes: Mapping[ResponseSource, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the shortest description of some runs: their backbones, their methods, or the list of the runs."""
    for name in ("model", "method"):
        values = {getattr(run, name) for run in runs}
        if all(run in runs for run in recipes if getattr(run, name) in values):
            return tuple(
                dict.fromkeys(name_method(getattr(run, name) or "") for run in runs),
            )
    return tuple(f"{name_method(run.method or '')} on {run.model}, seed {run.seed}" for run in runs)
