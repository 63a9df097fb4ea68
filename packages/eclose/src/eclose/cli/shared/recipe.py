"""Recipes: files of options by name, and of the settings that few need, which are no flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperOption

from eclose.errors import SettingError


def recipe_key(*flag: str, **settings: Any) -> Any:
    """Return a setting that a recipe names without the dashes; ``read_recipe_keys`` takes its flag away."""
    return typer.Option(*flag, hidden=True, **settings)


class RecipeKey(TyperOption):
    """A setting that is given in a recipe or in the environment; its flag is refused."""

    flags: list[str]

    def add_to_parser(self, parser: Any, _context: Any) -> None:
        """Add the flag, so that it can be refused with the place where the setting is given."""
        for flag in self.flags:
            value = {"const": not flag.startswith("--no-")} if self.is_flag else {"nargs": self.nargs}
            action = "store_const" if self.is_flag else "append" if self.multiple else "store"
            parser.add_option(obj=self, opts=[flag], dest=self.name, action=action, **value)

    def handle_parse_result(self, ctx: Any, opts: Any, args: list[str]) -> Any:
        """Return the value of the recipe, the environment or the default; raise where the flag is given."""
        if self.name not in opts:
            return super().handle_parse_result(ctx, opts, args)
        value = opts[self.name]
        text = f"[{', '.join(value)}]" if isinstance(value, list | tuple) else str(value)
        setting = f"{self.opts[0]}: {text.lower() if self.is_flag else text}"
        raise SettingError(
            f"{self.flags[0]}: is a setting of recipes. Write `{setting}` to a file and pass --recipe FILE.yaml."
        )


def read_recipe_keys(command: Any) -> None:
    """Give ``--recipe`` to a command, and to those below it, that have settings of recipes; take the flags of these."""
    keys = [parameter for parameter in command.params if getattr(parameter, "hidden", False)]
    for parameter in keys:
        # Typer makes the options itself, and lets no class be named for them.
        parameter.__class__, parameter.flags = RecipeKey, [*parameter.opts, *parameter.secondary_opts]
        parameter.opts, parameter.secondary_opts = [_key(parameter.opts[0])], []
    if keys:
        command.params.append(_make_recipe_option(sorted(key.opts[0] for key in keys)))
    for child in getattr(command, "commands", {}).values():
        read_recipe_keys(child)


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _read_recipe(context: typer.Context, path: Path | None) -> None:
    """Take the values of a recipe where neither a flag nor the environment gives one."""
    if path is None:
        return
    from eclose.files.yaml_settings import describe_unknown_setting, read_yaml_settings

    options = [parameter for parameter in context.command.params if parameter.param_type_name == "option"]
    named = {_key(flag): option for option in options for flag in option.opts if option.name != "recipe"}
    settings = read_yaml_settings(path, "a recipe")
    for key in settings.keys() - named:
        raise SettingError(f"{path}: {describe_unknown_setting(key, named)}")
    context.default_map = {
        # One value of an option that may be repeated needs no list.
        named[key].name: [value] if named[key].multiple and not isinstance(value, list) else value
        for key, value in settings.items()
    }


def _make_recipe_option(names: list[str]) -> Any:
    """Return the option ``--recipe``, whose help names the settings that are no flags."""
    flag = typer.Option(
        None,
        "--recipe",
        help=f"File of settings (YAML): options by name, and {', '.join(names)}; flags take precedence.",
        callback=_read_recipe,
        is_eager=True,
        expose_value=False,
        dir_okay=False,
    )

    def command(recipe: Path | None = flag) -> None:
        pass

    holder = typer.Typer(add_completion=False)
    holder.command()(command)
    return typer.main.get_command(holder).params[0]
