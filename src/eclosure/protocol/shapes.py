"""Shapes of structured replies, in the part of JSON Schema that strict structured output takes everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from enum import StrEnum

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


def code_or_null(codes: Iterable[StrEnum]) -> dict[str, Any]:
    """One of a few codes, or null."""
    return or_null({"type": "string", "enum": [code.value for code in codes]})
