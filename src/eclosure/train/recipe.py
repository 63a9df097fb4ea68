"""A recipe: one flat list of settings, the same names in YAML, as flags and in Python."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from eclosure.errors import SettingError, UserError
from eclosure.store.jsonfile import require_file
from eclosure.train.config import EClosureConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class ModelSettings:
    """Which weights are trained, and which part of them. Defaults are the paper's."""

    model: str
    revision: str | None = None
    dtype: str = "auto"
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    lora_targets: str | list[str] = "all-linear"


MODEL_HELP = {
    "model": "A name on the hub, a folder, or a GGUF file.",
    "revision": "A commit of the model's repository; pin it for a result that can be had again.",
    "dtype": "Precision the weights are loaded in: float32, bfloat16, or auto (the checkpoint's own, but float32 on a "
    "CPU that a short trial finds clearly faster with it).",
    "lora_rank": "Rank of the adapter; 0 trains all weights.",
    "lora_alpha": "Scale of the adapter.",
    "lora_dropout": "Anything but 0 would be shared where tokens are, so trees are not used then.",
    "lora_targets": "Which layers are adapted: all-linear, or a list of module names.",
}


@dataclass(frozen=True)
class Recipe:
    """Model settings, and those of training."""

    model: ModelSettings
    training: dict[str, Any]
    """Fields of ``EClosureConfig`` that are not left at their default."""

    def config(self, output_dir: Path, **more: Any) -> EClosureConfig:
        """The training settings for one run."""
        return EClosureConfig(output_dir=str(output_dir), **{**self.training, **more})

    def plain(self) -> dict[str, Any]:
        """One flat mapping, as a file of it would be."""
        return {**{field.name: getattr(self.model, field.name) for field in fields(self.model)}, **self.training}


def read_recipe(path: Path | None, overrides: Mapping[str, Any]) -> Recipe:
    """A recipe from a YAML file and what is said otherwise; everything that is wrong is reported at once."""
    settings = {**(_yaml(path) if path else {}), **overrides}
    hints = _hints()
    problems, values = [], {}
    for name, value in settings.items():
        if name not in hints:
            problems.append(_unknown(name, hints))
            continue
        try:
            values[name] = _validated(hints[name], value)
        except ValidationError as invalid:
            problems.append(f"{name} = {value!r}: {invalid.errors()[0]['msg'].lower()}")
    if "model" not in values and not any(problem.startswith("model") for problem in problems):
        problems.append("model: is missing; name the weights to train")
    if problems:
        raise SettingError(f"{path or 'settings'}: " + "; ".join(problems))
    ours = {field.name for field in fields(ModelSettings)}
    return Recipe(
        ModelSettings(**{name: value for name, value in values.items() if name in ours}),
        {name: value for name, value in values.items() if name not in ours},
    )


def _validated(hint: Any, value: Any) -> Any:
    kind: TypeAdapter[Any] = TypeAdapter(hint)
    try:
        return kind.validate_python(value)
    except ValidationError:
        # YAML reads the word "no", which several settings take, as false.
        if not isinstance(value, bool):
            raise
        return kind.validate_python("yes" if value else "no")


def flags(words: list[str]) -> dict[str, Any]:
    """``--learning-rate 1e-4 --full-determinism`` as settings; a flag without a value is true."""
    found: dict[str, Any] = {}
    waiting: str | None = None
    for word in words:
        if word.startswith("--"):
            waiting, equals, given = word[2:].partition("=")
            waiting = waiting.replace("-", "_")
            found[waiting] = _value(given) if equals else True
            if equals:
                waiting = None
        elif waiting is not None:
            found[waiting], waiting = _value(word), None
        else:
            raise SettingError(f"{word!r}: no setting precedes this value. Write --name value.")
    return found


def _value(text: str) -> Any:
    import yaml  # noqa: PLC0415 - comes with the train extra

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _yaml(path: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415

    require_file(path)
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise UserError(f"{path}: a recipe is a list of `name: value` lines.")
    return found


def _hints() -> dict[str, Any]:
    """The type of every setting. Where the run lies is the command's to say."""
    hints = {**get_type_hints(EClosureConfig), **get_type_hints(ModelSettings)}
    names = {field.name for kind in (EClosureConfig, ModelSettings) for field in fields(kind) if field.init}
    return {name: hint for name, hint in hints.items() if name in names - {"output_dir"}}


def _unknown(name: str, hints: Mapping[str, Any]) -> str:
    near = get_close_matches(name, hints, n=1)
    return f"{name}: no such setting" + (f"; did you mean {near[0]}?" if near else "")
