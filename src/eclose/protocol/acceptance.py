"""What must be said of a candidate that is accepted: the conditions V of appendix B as a table.

Every judgement stands for itself, and all of them must come out as wanted. Names are those of the replies, parts and
fields joined by a dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.protocol.construction import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SOUNDNESS = "soundness"
"""Comes on top for those who judge steps: every one of them must be sound."""

WANTED: Mapping[Role, Mapping[str, bool]] = {
    Role.SCREEN_SEED: {"warranted": True, "unique": True, "elsewhere": False},
    Role.VERIFY_TARGET: {"alignment.aligned": True, "closure.closed": True, "grounding.grounded": True},
    Role.SCREEN_EVIDENCE: {
        "localized": True,
        "coherent": True,
        "edited_after": True,
        "unique_after": True,
        "original_after": False,
        "edited_before": False,
        "same_kind": True,
    },
    Role.VERIFY_EVIDENCE: {
        "prefix.before": True,
        "prefix.after": True,
        "switching.original_before": True,
        "switching.original_after": False,
        "switching.edited_before": False,
        "switching.edited_after": True,
        "alignment.aligned": True,
        "closure.original": True,
        "closure.edited": True,
        "closure.original_to_edited": False,
        "closure.edited_to_original": False,
    },
    Role.SCREEN_QUESTION: {
        "changed": True,
        "edited_warranted": True,
        "edited_unique": True,
        "original_fits_edited": False,
        "edited_fits_original": False,
        "natural": True,
        "several_steps": True,
        "degenerate": False,
    },
    Role.VERIFY_QUESTION: {
        "alignment.original": True,
        "alignment.edited": True,
        "alignment.edited_to_original": False,
        "alignment.original_to_edited": False,
        "closure.closed": True,
    },
}
"""What must be said of a candidate that is accepted, judgement by judgement."""


def unwanted(role: Role, said: Mapping[str, Any]) -> Iterator[str]:
    """The judgements of a reply that do not come out as wanted."""
    for name, wanted in WANTED[role].items():
        value: Any = said
        for part in name.split("."):
            value = value[part]
        if value is not wanted:
            yield name
