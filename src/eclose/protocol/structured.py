"""A question to a model with a structured reply: what is sent, the shape of the answer, and an answer that is none.

Shapes keep to the part of JSON Schema that strict structured output takes everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.errors import EcloseError
from eclose.protocol.prompts import Message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import StrEnum


@dataclass(frozen=True)
class Asked:
    """One question, fully rendered."""

    name: str
    """What the shape of the reply is called."""
    messages: tuple[Message, ...]
    guideline: str
    """The hash of everything that is told apart from the material."""
    schema: Mapping[str, Any]
    """The shape the reply must have."""


class UnreadableReplyError(EcloseError):
    """A reply of the right shape that is no answer to what was asked."""

    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        """One of a few, counted."""
        super().__init__(problem)


TEXT = {"type": "string"}
BOOLEAN = {"type": "boolean"}
INTEGER = {"type": "integer"}


def shape(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object: every property is required and there are no others. Reasons are put first, to be given first."""
    return {
        "type": "object",
        "properties": {name: dict(schema) for name, schema in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The value, or null."""
    return {"anyOf": [dict(schema), {"type": "null"}]}


def listed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Any number of them."""
    return {"type": "array", "items": dict(schema)}


def one_of(words: Iterable[str]) -> dict[str, Any]:
    """One of a few words."""
    return {"type": "string", "enum": [str(word) for word in words]}


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same shape with every definition told where it is meant, for those who know no references."""

    def told(part: Any) -> Any:
        if isinstance(part, list):
            return [told(one) for one in part]
        if not isinstance(part, Mapping):
            return part
        if (name := part.get("$ref")) is not None:
            return told(schema["$defs"][name.removeprefix("#/$defs/")])
        return {key: told(value) for key, value in part.items() if key != "$defs"}

    made: dict[str, Any] = told(schema)
    return made


def code_or_null(codes: Iterable[StrEnum]) -> dict[str, Any]:
    """One of a few codes, or null."""
    return or_null(one_of(codes))
