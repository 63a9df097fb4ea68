"""Training settings of an adapter, read from its ``recipe.json``, so that it is prompted the way it was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ADAPTER_RECIPE_FILE = "recipe.json"


def read_adapter_recipe(folder: Path) -> dict[str, Any]:
    """Return the recipe beside an adapter's weights or in the folder of its run; empty where there is none."""
    # Training writes the recipe into the folder of the run and beside every adapter in it.
    for parent in (folder, folder.resolve().parent):
        path = parent / ADAPTER_RECIPE_FILE
        if not path.is_file():
            continue
        try:
            recipe = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise UserError(
                f"{path}: is not JSON ({error}). Repair it, or move it away and give the settings."
            ) from error
        if not isinstance(recipe, dict):
            raise UserError(f"{path}: is not a recipe. Move it away and give the settings as flags.")
        return recipe
    return {}


def find_adapter_recipes(adapter: Path | None, recipe: Path | None) -> dict[str, dict[str, Any]]:
    """Return the recipe of an adapter by the path it was read from; empty without an adapter.

    Args:
        adapter: Folder of an adapter that is loaded in this process.
        recipe: For a served adapter: its ``recipe.json``, or the folder of its training run.

    Raises:
        SettingError: Both are given.
        UserError: There is no ``recipe.json``.
    """
    if adapter is not None and recipe is not None:
        raise SettingError("--adapter and --adapter-recipe: an adapter that is loaded here has its recipe beside it.")
    if adapter is not None:
        return {str(adapter): read_adapter_recipe(adapter)}
    if recipe is None:
        return {}
    content = read_adapter_recipe(recipe.parent if recipe.name == ADAPTER_RECIPE_FILE else recipe)
    if not content:
        raise UserError(
            f"{recipe}: there is no {ADAPTER_RECIPE_FILE} here. Name that file, or the folder of the training run."
        )
    return {str(recipe): content}


def agree_on_recipe_setting(
    name: str,
    flag: Any,
    recipes: Mapping[str, Mapping[str, Any]],
    same: Callable[[Any, Any], bool] = lambda first, second: first == second,
) -> Any:
    """Return the value that the flag and all recipes agree on; None where none of them has one.

    Raises:
        SettingError: Two of them differ.
    """
    # The flag comes first: the message then names it as the value to take back.
    values = [(f"--{name}", flag)] if flag is not None else []
    values += [
        (f"the recipe of {folder}", recipe[name]) for folder, recipe in recipes.items() if recipe.get(name) is not None
    ]
    for origin, value in values[1:]:
        first_origin, first_value = values[0]
        if not same(first_value, value):
            raise SettingError(
                f"{name}: {first_origin} says {first_value}, {origin} says {value}. An adapter is prompted as it was "
                "trained: " + ("leave the flag out." if flag is not None else "test these adapters one by one.")
            )
    return values[0][1] if values else None


def same_weights(first: str, second: str) -> bool:
    """Return whether two names lead to the same weights; a copy on another machine keeps the last part of its name."""
    return Path(first).name == Path(second).name or Path(first).resolve() == Path(second).resolve()
