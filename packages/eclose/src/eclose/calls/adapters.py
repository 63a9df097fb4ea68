"""Training settings of an adapter, read from its ``recipe.json``, so that it is prompted the way it was trained."""

from __future__ import annotations

import json
import secrets
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import Decoding, Request
from eclose.errors import SettingError, UserError
from eclose.prompts.response_prompt import ResponsePrompt, load_demonstrations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose.calls.model import ChatModel, Reply


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

    ``adapter`` is a folder that is loaded in this process, ``recipe`` the ``recipe.json`` of a served adapter or the
    folder of its training run.
    """
    if adapter is not None and recipe is not None:
        raise SettingError("--adapter and adapter_recipe: an adapter that is loaded here has its recipe beside it.")
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
    given: Any,
    recipes: Mapping[str, Mapping[str, Any]],
    same: Callable[[Any, Any], bool] = lambda first, second: first == second,
) -> Any:
    """Return the value that the caller and all recipes agree on; None where none of them has one.

    Raises:
        SettingError: Two of them differ.
    """
    # The caller's value comes first: the message then names it as the one to take back.
    values = [("the command", given)] if given is not None else []
    values += [
        (f"the recipe of {folder}", recipe[name]) for folder, recipe in recipes.items() if recipe.get(name) is not None
    ]
    for origin, value in values[1:]:
        first_origin, first_value = values[0]
        if not same(first_value, value):
            raise SettingError(
                f"{name}: {first_origin} says {first_value}, {origin} says {value}. An adapter is prompted as it was "
                "trained: " + ("leave it out." if given is not None else "test these adapters one by one.")
            )
    return values[0][1] if values else None


def same_weights(first: str, second: str) -> bool:
    """Return whether two names lead to the same weights; a copy on another machine keeps the last part of its name."""
    return Path(first).name == Path(second).name or Path(first).resolve() == Path(second).resolve()


# Check that a served adapter changes the replies of its base model.
#
# Some servers accept the name of an adapter and answer with the base model. Replies to one short prompt are compared by
# text and by log-probabilities.


# Enough tokens to show a difference; the three probes are paid for like any other call.
PROBE_TOKENS = 16
_UNABLE = frozenset({CallFailureKind.INVALID, CallFailureKind.PERMANENT})
"""Failures of servers that cannot report log-probabilities."""


async def refuse_ineffective_adapter(adapted: ChatModel, base: ChatModel) -> None:
    """Raise where the adapter differs from its base no more than the base differs from itself. Sends three new calls.

    Where the base itself replies in two ways to the same prompt, nothing can be told, and the adapter is accepted.
    """
    # The base is asked first and last: prefix caches and batching move a server's own log-probabilities a little,
    # and that difference is the noise an adapter has to exceed.
    first, changed, last = await _probe(base), await _probe(adapted), await _probe(base)
    noise = _distance(first, last)
    if noise < inf and _distance(first, changed) <= noise:
        raise UserError(
            f"{adapted.name}: replies exactly like {base.name}, so the server does not apply the adapter. "
            "Start the server with the adapter, or leave out base_model to use the model as it is."
        )


def _distance(reply: Reply, other: Reply) -> float:
    if reply.text != other.text:
        return inf
    pairs = zip(reply.logprobs or (), other.logprobs or (), strict=False)
    return max((abs(token.logprob - other_token.logprob) for token, other_token in pairs), default=0.0)


async def _probe(model: ChatModel) -> Reply:
    """Return the first ``PROBE_TOKENS`` of a reply, with log-probabilities where the server reports them."""
    try:
        return await _reply(model, top_logprobs=1)
    except CallFailure as failure:
        if failure.kind not in _UNABLE:
            raise
        # Without log-probabilities the texts are compared alone: an adapter that changes none of the words is refused.
        return await _reply(model, top_logprobs=None)


async def _reply(model: ChatModel, top_logprobs: int | None) -> Reply:
    example = load_demonstrations()[0]
    request = Request(
        tuple(ResponsePrompt(0).messages(example.question, example.evidence)),
        Decoding(max_tokens=PROBE_TOKENS, top_logprobs=top_logprobs),
        # A random replica makes a new call each time: a cached reply says nothing about the server running now.
        replica=secrets.randbits(31),
    )
    try:
        return await model.complete(request)
    except CallFailure as failure:
        # A reply cut off at PROBE_TOKENS is the expected outcome.
        if failure.kind is CallFailureKind.LENGTH and failure.reply is not None:
            return failure.reply
        raise
