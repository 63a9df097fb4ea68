"""Recipes: files of options by name, and of the settings that few need, which are no flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption


def recipe_key(flag: str, **settings: Any) -> Any:
    """Return a setting that a recipe names without the dashes; ``read_recipe_keys`` takes its flag away."""
    return typer.Option(flag, hidden=True, **settings)


class RecipeKey(TyperOption):
    """A setting that is given in a recipe or in the environment, and not as a flag."""

    def add_to_parser(self, _parser: Any, _context: Any) -> None:
        """Leave the flag out."""


def read_recipe_keys(command: Any) -> None:
    """Take their flags from the settings of a command, and of those below it, that are for recipes."""
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            # Typer makes the options itself, and lets no class be named for them.
            parameter.__class__, parameter.opts = RecipeKey, [_key(parameter.opts[0])]
    for child in getattr(command, "commands", {}).values():
        read_recipe_keys(child)


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _read_recipe(context: typer.Context, path: Path | None) -> Path | None:
    """Take the values of a recipe where neither a flag nor the environment gives one."""
    if path is None:
        return None
    from eclose.errors import SettingError
    from eclose.store.records.yaml_settings import describe_unknown_setting, read_yaml_settings

    options = [parameter for parameter in context.command.params if parameter.param_type_name == "option"]
    names = {_key(flag): option.name for option in options for flag in option.opts if option.name != "recipe"}
    settings = read_yaml_settings(path, "a recipe")
    for key in settings.keys() - names:
        raise SettingError(f"{path}: {describe_unknown_setting(key, names)}")
    context.default_map = {names[key]: value for key, value in settings.items()}
    return path


Recipe = Annotated[
    Path | None,
    typer.Option(
        "--recipe",
        help="File of settings (YAML): options by name, such as max_tokens, and more; flags take precedence.",
        callback=_read_recipe,
        is_eager=True,
        dir_okay=False,
        show_default=False,
    ),
]
