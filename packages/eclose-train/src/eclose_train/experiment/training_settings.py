"""Settings of training in a plan: their check, their resolved values, and the sequences that an objective scores.

Imports torch, since the settings are fields of Transformers' ``TrainingArguments``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError
from eclose.files.yaml_settings import describe_unknown_setting
from eclose_train.likelihood.family_scores import anchor_score_name
from eclose_train.training.objective import TrainingMethod, build_objective
from eclose_train.training.recipe import name_planned_settings, read_recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def list_training_problems(
    methods: Mapping[str, Iterable[str]], training: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield every problem of methods and of training settings.

    Args:
        methods: Names of methods by their key in the plan.
        training: Settings of training by their key in the plan.
    """
    known = tuple(TrainingMethod)
    for key, names in methods.items():
        for name in names:
            if name not in known:
                yield f"{key}: " + describe_unknown_setting(name, known).replace("setting", "method")
    for key, settings in training.items():
        for name, value in settings.items():
            try:
                # One setting at a time: the message of a recipe names no key of the plan.
                read_recipe(None, {"model": "", name: value})
            except SettingError as error:
                yield f"{key}.{str(error).removeprefix('settings: ')}"


def resolve_planned_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide the result of training, without weights, method and seed.

    Settings that write out a default resolve to the same values as settings that leave it out.
    """
    resolved = name_planned_settings(read_recipe(None, settings))
    # Weights are identified by their content, method and seed by the cell.
    return {name: value for name, value in resolved.items() if name not in ("model", "method", "seed")}


def count_objective_sequences(method: str) -> int:
    """Return the number of sequences that an objective scores for each family: 1 for SFT, 15 for E-Closure."""
    objective = build_objective(TrainingMethod(method))
    # A response margin also compares anchors, which are scored once.
    names = {anchor_score_name(kind) for kind in objective.anchors}
    return len(names | {name for term in objective.terms for name in (term.preferred, term.dispreferred)})
