"""Rendering of material as one JSON object for a prompt, and parsing it back.

Texts stay string values inside that object, so instructions in a passage cannot leave their field.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eclose.values.instance import Passage
    from eclose.values.response import Trace


@dataclass(frozen=True, slots=True)
class DisclosedPassage:
    """A passage by its index; its id is withheld, because an id may reveal more than the text."""

    index: int
    """Counted from zero."""
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class DisclosedStep:
    """A step, or a statement made from steps, by its number."""

    id: int
    """Counted from one."""
    text: str


def disclose_passages(evidence: tuple[Passage, ...]) -> tuple[DisclosedPassage, ...]:
    """Return the passages in order, numbered from 0."""
    return tuple(DisclosedPassage(index, passage.title, passage.text) for index, passage in enumerate(evidence))


def disclose_steps(trace: Trace) -> tuple[DisclosedStep, ...]:
    """Return the steps in order, numbered from 1."""
    return tuple(DisclosedStep(number, step.text) for number, step in enumerate(trace.steps, start=1))


def render_material(material: Any) -> str:
    """Return a material dataclass as one JSON object, with a line for each field, passage and step."""
    return render_members({field.name: getattr(material, field.name) for field in fields(material)})


def render_members(members: Mapping[str, object]) -> str:
    """Return named values as one JSON object, as ``render_material`` writes the fields of a dataclass."""
    lines = (f'"{name}": {_render_value(value)}' for name, value in members.items())
    return "{\n " + ",\n ".join(lines) + "\n}"


def _render_value(value: object) -> str:
    # Passages, steps and aliases take a line each; numbers, single passages and empty tuples stay on one line.
    if not isinstance(value, tuple) or not value or isinstance(value[0], int):
        return _to_json(value)
    return _render_cached(value) if isinstance(value[0], DisclosedPassage | DisclosedStep) else _render_array(value)


# Passages repeat over the questions and responses of an instance, and steps over the questions of a response.
@lru_cache(maxsize=256)
def _render_cached(value: tuple[DisclosedPassage | DisclosedStep, ...]) -> str:
    return _render_array(value)


def _render_array(value: Iterable[object]) -> str:
    return "[\n  " + ",\n  ".join(map(_to_json, value)) + "\n ]"


def _to_dict(value: DisclosedPassage | DisclosedStep) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


# Built once: ``json.dumps`` with these options would build an encoder for every call.
_to_json = json.JSONEncoder(ensure_ascii=False, default=_to_dict).encode


def _parse_passages(value: Any) -> tuple[DisclosedPassage, ...]:
    return tuple(DisclosedPassage(**passage) for passage in value)


def _parse_steps(value: Any) -> tuple[DisclosedStep, ...]:
    return tuple(DisclosedStep(**step) for step in value)


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "evidence": _parse_passages,
    "edited": lambda value: DisclosedPassage(**value),
    "steps": _parse_steps,
    "earlier_steps": _parse_steps,
    "edited_steps": _parse_steps,
    "statements": _parse_steps,
    "claims": _parse_steps,
    "aliases": tuple,
    "support": tuple,
}


def parse_material(kind: type[Any], content: str) -> Any:
    """Return the material that was rendered as ``content``; raise ValueError where it is not of this kind."""
    try:
        members = json.loads(content)
        return kind(**{name: _PARSERS.get(name, lambda value: value)(value) for name, value in members.items()})
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the content is not a {kind.__name__}: {error}") from None
