"""What an adapter says it was trained with, so that it is asked the same way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECIPE = "recipe.json"


def read_recipe(folder: Path) -> dict[str, Any]:
    """The settings an adapter was trained with: beside its weights, or in the folder of its run."""
    from eclose.errors import UserError

    for place in (folder, folder.resolve().parent):
        path = place / RECIPE
        if not path.is_file():
            continue
        try:
            found = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise UserError(
                f"{path}: is not JSON ({error}). Mend it, or move it away and give the settings."
            ) from error
        if not isinstance(found, dict):
            raise UserError(f"{path}: is no recipe. Move it away and give the settings as flags.")
        return found
    return {}


def agreed(name: str, given: Any, recipes: dict[str, dict[str, Any]], same: Any = lambda one, two: one == two) -> Any:
    """The one value that flag and recipes have in common; None when nobody says anything."""
    from eclose.errors import SettingError

    said = [(f"--{name}", given)] if given is not None else []
    said += [
        (f"the recipe of {folder}", recipe[name]) for folder, recipe in recipes.items() if recipe.get(name) is not None
    ]
    for who, value in said[1:]:
        first, wanted = said[0]
        if not same(wanted, value):
            raise SettingError(
                f"{name}: {first} says {wanted}, {who} says {value}. A model is asked as it was trained: "
                + ("leave the flag out." if given is not None else "test these adapters one by one.")
            )
    return said[0][1] if said else None


def same_model(one: str, two: str) -> bool:
    """Whether two names lead to the same weights; a copy on another machine keeps the last part of its name."""
    return Path(one).name == Path(two).name or Path(one).resolve() == Path(two).resolve()
