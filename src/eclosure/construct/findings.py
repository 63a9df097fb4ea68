"""What a screen or a verifier said -> whether a candidate is accepted, and what speaks against it.

The conditions V of appendix B as a table: every judgement stands for itself, and all of them must come out as wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eclosure.core.family import Finding
from eclosure.protocol.construction import Role
from eclosure.protocol.structured import UnreadableReplyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
SOUNDNESS = "soundness"
"""Comes on top for those who judge steps: every one of them must be sound."""
MINIMUM_SUPPORT = 2


def find(role: Role, judge: str, said: Mapping[str, Any], *, steps: int | None = None) -> Finding:
    """Hold a reply against what is wanted. ``steps`` is how many were to be judged, where steps were."""
    return Finding(role, judge, said, (*_unsound(said, steps), *_unwanted(role, said), *_unfit(role, said)))


def objection(finding: Finding) -> str:
    """For whoever may try once more: the judgements that speak against it, with the reasons given."""
    told = ((name, _reason(finding.said, name)) for name in finding.objections)
    return "; ".join(f"{name}: {reason}" if reason else name for name, reason in told)


def _unwanted(role: Role, said: Mapping[str, Any]) -> Iterator[str]:
    for name, wanted in WANTED[role].items():
        value: Any = said
        for part in name.split("."):
            value = value[part]
        if value is not wanted:
            yield name


def _unfit(role: Role, said: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a source itself, and support that is none."""
    if role is Role.SCREEN_SEED:
        if said["defect"] is not None:
            yield str(said["defect"])
        if len(set(said["support"])) < MINIMUM_SUPPORT:
            yield "support"
    if role is Role.VERIFY_TARGET and said["grounding"]["outside"] and said["grounding"]["grounded"]:
        raise UnreadableReplyError("contradictory grounding", "steps outside the support, and yet grounded in it.")


def _unsound(said: Mapping[str, Any], steps: int | None) -> Iterator[str]:
    if steps is None:
        return
    entries: Sequence[Mapping[str, Any]] = said[SOUNDNESS]["steps"]
    told = sorted(entry["id"] for entry in entries)
    if told != list(range(1, steps + 1)):
        raise UnreadableReplyError("wrong step ids", f"asked about {steps} steps, told about {told}.")
    if any(not entry["sound"] for entry in entries):
        yield SOUNDNESS


def _reason(said: Mapping[str, Any], name: str) -> str:
    """The reason that goes with a judgement: its part's own, or that of the whole."""
    if name == SOUNDNESS:
        broken = (entry for entry in said[SOUNDNESS]["steps"] if not entry["sound"])
        return ", ".join(f"step {entry['id']}: {entry['reason']}" for entry in broken)
    part = said.get(name.partition(".")[0])
    return str((part if isinstance(part, Mapping) else said).get("reason", ""))
