"""What a screen or a verifier said -> whether a candidate is accepted, and what speaks against it.

What is wanted stands in ``protocol.acceptance``; every judgement stands for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eclosure.core.family import Finding
from eclosure.core.gates import MINIMUM_SUPPORT
from eclosure.protocol.acceptance import SOUNDNESS, unwanted
from eclosure.protocol.construction import Role
from eclosure.protocol.structured import UnreadableReplyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def find(
    role: Role, judge: str, said: Mapping[str, Any], *, passages: int, steps: int | None = None, again: bool = False
) -> Finding:
    """Hold a reply against what is wanted: so many passages were shown, and so many steps, where steps were judged."""
    if wrong := [index for index in _named(said) if not 0 <= index < passages]:
        raise UnreadableReplyError("no such passage", f"there are no passages {wrong} among {passages}.")
    objections = (*_unsound(said, steps), *unwanted(role, said), *_unfit(role, said))
    return Finding(role, judge, said, objections, again)


def _named(said: Mapping[str, Any]) -> Iterator[int]:
    """Every passage that a reply names: as a source's support, and for a step."""
    yield from said.get("support", ())
    for entry in said.get(SOUNDNESS, {}).get("steps", ()):
        yield from entry.get("passages", ())


def objection(finding: Finding) -> str:
    """For whoever may try once more: the judgements that speak against it, with the reasons given."""
    told = ((name, _reason(finding.said, name)) for name in finding.objections)
    return "; ".join(f"{name}: {reason}" if reason else name for name, reason in told)


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
