"""How material is shown to a model: one JSON object, and back out of it.

Whatever a text says, it stays a string value inside that object. What a value holds is all that is shown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eclose.core.instance import Passage
    from eclose.core.response import Trace


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage by its place. Its id is ours and might say more than it should."""

    index: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step by its number."""

    id: int
    text: str


def shown_passages(evidence: tuple[Passage, ...]) -> tuple[ShownPassage, ...]:
    """Passages in their given order, by their index."""
    return tuple(ShownPassage(index, passage.title, passage.text) for index, passage in enumerate(evidence))


def shown_steps(trace: Trace) -> tuple[ShownStep, ...]:
    """Steps in order, numbered from 1."""
    return tuple(ShownStep(number, step.text) for number, step in enumerate(trace.steps, start=1))


def material_json(shown: Any) -> str:
    """A value of shown things as one JSON object: a line for each part, and for each passage and step."""
    parts = (f'"{one.name}": {_lines(getattr(shown, one.name))}' for one in fields(shown))
    return "{\n " + ",\n ".join(parts) + "\n}"


def _lines(value: object) -> str:
    if not isinstance(value, tuple) or not value or isinstance(value[0], int):
        return _json(value)
    return _shown(value) if isinstance(value[0], ShownPassage | ShownStep) else _array(value)


# The same passages are shown with several questions and many responses, the same steps with several questions.
@lru_cache(maxsize=256)
def _shown(value: tuple[ShownPassage | ShownStep, ...]) -> str:
    return _array(value)


def _array(value: Iterable[object]) -> str:
    return "[\n  " + ",\n  ".join(map(_json, value)) + "\n ]"


def _parts(value: ShownPassage | ShownStep) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


_json = json.JSONEncoder(ensure_ascii=False, default=_parts).encode


def _passages(told: Any) -> tuple[ShownPassage, ...]:
    return tuple(ShownPassage(**passage) for passage in told)


def _steps(told: Any) -> tuple[ShownStep, ...]:
    return tuple(ShownStep(**step) for step in told)


_READ: Mapping[str, Callable[[Any], Any]] = {
    "evidence": _passages,
    "edited": lambda told: ShownPassage(**told),
    "steps": _steps,
    "edited_steps": _steps,
    "aliases": tuple,
    "support": tuple,
}


def read_material(kind: type[Any], content: str) -> Any:
    """The value back out of what was rendered from it; ValueError where it is not one of this kind."""
    try:
        told = json.loads(content)
        return kind(**{name: _READ[name](value) if name in _READ else value for name, value in told.items()})
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"this is not the material of {kind.__name__.lower()}: {error}") from None
