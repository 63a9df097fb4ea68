"""Settings of a training run: one flat list of names, the same in YAML, as flags, in Python and in ``recipe.json``."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from eclose.errors import SettingError
from eclose.files.yaml_settings import describe_unknown_setting, read_yaml_settings
from eclose.values.identity import canonical_json
from eclose_train.training.config import EClosureConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_DERIVED = frozenset({"output_dir", "local_rank", "per_device_train_batch_size"})
"""Fields of the configuration that are no settings: the folder of a run, and fields derived from others."""
RESULT_NEUTRAL_SETTINGS = frozenset(
    {
        # Memory, loading, logging, publishing, and the network between processes.
        *(
            "processes",
            "tokens_per_forward",
            "gradient_checkpointing",
            "gradient_checkpointing_kwargs",
            "activation_checkpointing",
            "activation_checkpointing_kwargs",
        ),
        *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers"),
        *("dataloader_prefetch_factor", "dataloader_multiprocessing_context", "torch_empty_cache_steps"),
        *("logging_steps", "logging_strategy", "logging_first_step", "log_level", "log_level_replica"),
        *("log_on_each_node", "report_to", "run_name", "project", "disable_tqdm", "save_total_limit"),
        *("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "skip_memory_metrics"),
        *("push_to_hub", "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push", "hub_revision"),
        *(
            "ddp_find_unused_parameters",
            "ddp_bucket_cap_mb",
            "ddp_backend",
            "ddp_timeout",
            "per_device_eval_batch_size",
        ),
    }
)
"""Settings that do not change the weights. An interrupted run may continue with other values of these."""


@dataclass(frozen=True)
class TrainedModelSettings:
    """Weights to train, and the adapter on them. Defaults are those of the paper (appendix D.4)."""

    model: str
    revision: str | None = None
    dtype: str = "auto"
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    lora_targets: str | list[str] = "all-linear"
    use_dora: bool = False
    use_rslora: bool = False
    load_in_4bit: bool = False

    def __post_init__(self) -> None:
        names = [name for name in ("use_dora", "use_rslora", "load_in_4bit") if getattr(self, name)]
        if names and not self.lora_rank:
            raise SettingError(f"{', '.join(names)}: needs an adapter, but lora_rank is 0. Set lora_rank above 0.")


MODEL_HELP = {
    "model": "A name on the hub, a folder, or a GGUF file.",
    "revision": "Commit of the model's repository; pin it so that the run can be repeated.",
    "dtype": "Precision the weights are loaded in: float32, bfloat16, or auto (the checkpoint's own, but float32 on a "
    "CPU that a short trial finds clearly faster with it).",
    "lora_rank": "Rank of the adapter; 0 trains all weights.",
    "lora_alpha": "Scale of the adapter.",
    "lora_dropout": "Dropout of the adapter; any value but 0 switches tree scoring off.",
    "lora_targets": "Layers that are adapted: all-linear, or a list of module names.",
    "use_dora": "DoRA: the adapter learns direction and magnitude of the weights separately.",
    "use_rslora": "rsLoRA: the adapter is scaled by alpha / sqrt(rank) instead of alpha / rank.",
    "load_in_4bit": "QLoRA: the frozen weights are packed to 4 bits (NF4); needs bitsandbytes.",
}


@dataclass(frozen=True)
class TrainingRecipe:
    """Settings of model and training as the user wrote them, without defaults."""

    model: TrainedModelSettings
    training: dict[str, Any]
    """Fields of ``EClosureConfig`` that the user set."""

    def config(self, output_dir: Path, **more: Any) -> EClosureConfig:
        """Build the training settings of a run in a folder."""
        return EClosureConfig(output_dir=str(output_dir), **{**self.training, **more})


def resolve_training_settings(model: TrainedModelSettings, config: EClosureConfig) -> dict[str, Any]:
    """Return every setting of a run by name, defaults included, as JSON values. Access tokens are left out."""
    names = (field.name for field in fields(config) if field.init and field.name not in _DERIVED)
    # A recipe is copied beside every adapter and published with it, so it must hold no secret.
    training = {name: getattr(config, name) for name in names if not name.endswith("_token")}
    # Through JSON and back, so that values compare equal with those read from recipe.json.
    values: dict[str, Any] = json.loads(json.dumps({**asdict(model), **training}, default=_plain_object))
    return {name: _plain_number(value) for name, value in values.items()}


def result_deciding_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine a run's result."""
    return {name: value for name, value in settings.items() if name not in RESULT_NEUTRAL_SETTINGS}


def name_planned_settings(recipe: TrainingRecipe) -> dict[str, Any]:
    """Return the result-deciding settings of a recipe for the name of a run, the same on every machine.

    Settings of this package appear with their defaults, so that a default that is written out changes nothing. Those of
    Transformers appear where they differ from the default: a later version that adds a setting keeps the name.
    """
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(EClosureConfig)
        if field.init and field.name not in _DERIVED and not field.name.endswith("_token")
    }
    own = EClosureConfig.__annotations__.keys()
    training = {
        name: recipe.training.get(name, default)
        for name, default in defaults.items()
        if name in own or recipe.training.get(name, default) != default
    }
    settings = json.loads(json.dumps({**asdict(recipe.model), **training}, default=_plain_object))
    return result_deciding_settings({name: _plain_number(value) for name, value in settings.items()})


def resolve_planned_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a plan that decide the result of training; weights, method and seed are the cell's."""
    planned = name_planned_settings(read_recipe(None, settings))
    return {name: value for name, value in planned.items() if name not in ("model", "method", "seed")}


def describe_setting_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield every setting that differs, with both values. A setting missing in ``before`` had its default."""
    defaults: dict[str, Any] = {}
    if now.keys() - before.keys():
        defaults = resolve_training_settings(TrainedModelSettings(""), EClosureConfig(output_dir="."))
    for name in sorted(now):
        old = before.get(name, defaults.get(name))
        if old != now[name]:
            yield f"{name} = {canonical_json(old)} before, {canonical_json(now[name])} now"


def _plain_object(value: Any) -> Any:
    return value.to_dict() if hasattr(value, "to_dict") else str(value)


def _plain_number(value: Any) -> Any:
    """Return integral numbers as int, so that 50.0 from a flag equals a default of 50."""
    if isinstance(value, dict):
        return {name: _plain_number(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain_number(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_recipe(path: Path | None, overrides: Mapping[str, Any]) -> TrainingRecipe:
    """Read a recipe from a YAML file and from settings that override it; raise one error with all problems."""
    settings = {**(read_yaml_settings(path, "a recipe") if path else {}), **overrides}
    # The folder of a run is an option of the command instead.
    hints = {**get_type_hints(EClosureConfig), **get_type_hints(TrainedModelSettings)}
    names = {field.name for kind in (EClosureConfig, TrainedModelSettings) for field in fields(kind) if field.init}
    hints = {name: hint for name, hint in hints.items() if name in names - {"output_dir"}}
    problems, values = [], {}
    for name, value in settings.items():
        if name not in hints:
            problems.append(describe_unknown_setting(name, hints))
            continue
        try:
            values[name] = _validate(hints[name], value)
        except ValidationError as invalid:
            problems.append(f"{name} = {value!r}: {invalid.errors()[0]['msg'].lower()}")
    if "model" not in values and not any(problem.startswith("model") for problem in problems):
        problems.append("model: is missing; name the weights to train")
    if problems:
        raise SettingError(f"{path or 'settings'}: " + "; ".join(problems))
    model = {field.name: values.pop(field.name) for field in fields(TrainedModelSettings) if field.name in values}
    return TrainingRecipe(TrainedModelSettings(**model), values)


def _validate(hint: Any, value: Any) -> Any:
    kind: TypeAdapter[Any] = TypeAdapter(hint)
    try:
        return kind.validate_python(value)
    except ValidationError:
        # YAML reads the word "no", a valid value of several settings, as false.
        if not isinstance(value, bool):
            raise
        return kind.validate_python("yes" if value else "no")


def parse_recipe_flags(words: list[str]) -> dict[str, Any]:
    """Parse ``--learning-rate 1e-4 --full-determinism`` into settings; a flag without a value is true."""
    settings: dict[str, Any] = {}
    name: str | None = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            # A flag without "=" is true until a value follows it.
            settings[name] = _value(value) if equals else True
            if equals:
                name = None
        elif name is not None:
            settings[name], name = _value(word), None
        else:
            raise SettingError(f"{word!r}: there is no setting before this value. Write --name value.")
    return settings


def _value(text: str) -> Any:
    import yaml  # noqa: PLC0415 - takes a moment to load

    try:
        # Values of flags follow the rules of a recipe file, so that both mean the same.
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
