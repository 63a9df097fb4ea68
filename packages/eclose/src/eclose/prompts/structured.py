"""Prompts with a structured reply, and builders for the JSON Schema of the reply.

Schemas use only the part of JSON Schema that strict structured output supports at every provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.errors import EcloseError
from eclose.prompts.locked_texts import PromptMessage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import StrEnum


@dataclass(frozen=True)
class PromptWithSchema:
    """A rendered prompt with the schema of its reply."""

    name: str
    """Name of the schema."""
    messages: tuple[PromptMessage, ...]
    guideline: str
    """Hash of everything in the messages but the material."""
    schema: Mapping[str, Any]
    """JSON Schema of the reply."""


class InconsistentReplyError(EcloseError):
    """A reply that matches the schema but contradicts the material of its prompt."""

    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        """Short name of the problem, by which reports count."""
        super().__init__(problem)


TEXT_SCHEMA = {"type": "string"}
BOOLEAN_SCHEMA = {"type": "boolean"}
INTEGER_SCHEMA = {"type": "integer"}


def object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties, in this order."""
    # Strict structured output demands that all properties are required; optional values are nullable instead.
    return {
        "type": "object",
        "properties": {name: dict(schema) for name, schema in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def nullable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a value or null."""
    return {"anyOf": [dict(schema), {"type": "null"}]}


def array_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an array."""
    return {"type": "array", "items": dict(schema)}


def enum_schema(words: Iterable[str]) -> dict[str, Any]:
    """Return the schema of a string that is one of the words."""
    return {"type": "string", "enum": [str(word) for word in words]}


def inline_schema_definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with every reference replaced by its definition, for back ends without ``$ref``."""

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        if (name := node.get("$ref")) is not None:
            return inline(schema["$defs"][name.removeprefix("#/$defs/")])
        return {key: inline(value) for key, value in node.items() if key != "$defs"}

    inlined: dict[str, Any] = inline(schema)
    return inlined


def nullable_enum_schema(codes: Iterable[StrEnum]) -> dict[str, Any]:
    """Return the schema of one of the codes or null."""
    return nullable_schema(enum_schema(codes))
