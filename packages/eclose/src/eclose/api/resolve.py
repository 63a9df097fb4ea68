"""Models and settings of calls, as every verb takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eclose.calls.client import CallSettings
from eclose.calls.inspect_model import INSPECT_PREFIX, InspectModelRef
from eclose.calls.resolve import ModelRef, find_model_ref

if TYPE_CHECKING:
    from eclose.calls.http.endpoint import ServerAddress


def resolve(name: str | ModelRef, base_url: str | ServerAddress | None = None, *, keyless: bool = False) -> ModelRef:
    """Find a model by name, for several verbs to share.

    Args:
        name: ``provider/model``, a base URL, a folder of weights, ``vllm:NAME``, ``transformers:NAME``, or
            ``inspect/PROVIDER/MODEL``.
        base_url: Address of an OpenAI-compatible server.
        keyless: Whether nothing will be sent, so that no API key is needed.

    Returns:
        A reference that every verb takes in place of a name.

    Raises:
        SettingError: The provider is unknown or its key is missing.

    Examples:
        >>> eclose.resolve("http://127.0.0.1:8000/v1").route.base_url
        'http://127.0.0.1:8000/v1'
    """
    if not isinstance(name, str):
        return name
    if name.startswith(INSPECT_PREFIX):
        url, server = (base_url, None) if isinstance(base_url, str | None) else (base_url.url, base_url.name)
        return InspectModelRef(name.removeprefix(INSPECT_PREFIX), url, server=server)
    return find_model_ref(name, base_url=base_url, keyless=keyless)


def add_budget(calls: CallSettings | None, budget: float | None) -> CallSettings:
    """Return the settings of calls, the default ones for None, with the budget where one is given."""
    calls = calls or CallSettings()
    return calls if budget is None else replace(calls, budget=budget)
