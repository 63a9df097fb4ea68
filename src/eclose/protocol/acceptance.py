"""The acceptance conditions V of appendix B: the value that each judgement must have for a candidate to be accepted.

All conditions of a role must hold. A condition is named by its field in the reply, with nested fields joined by a dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.protocol.construction import ConstructionRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SOUNDNESS_JUDGEMENT = "soundness"
"""Name of a further condition for roles that judge steps: every step must be sound."""

ACCEPTANCE_CONDITIONS: Mapping[ConstructionRole, Mapping[str, bool]] = {
    # Appendix B.2. "elsewhere": passages outside the support warrant the answer too, so editing the support would not
    # change it.
    ConstructionRole.SCREEN_SEED: {"warranted": True, "unique": True, "elsewhere": False},
    ConstructionRole.VERIFY_TARGET: {"alignment.aligned": True, "closure.closed": True, "grounding.grounded": True},
    # Appendix B.4. Before the edit only the original answer is warranted, after it only the edited one.
    ConstructionRole.SCREEN_EVIDENCE: {
        "localized": True,
        "coherent": True,
        "edited_after": True,
        "unique_after": True,
        "original_after": False,
        "edited_before": False,
        "same_kind": True,
    },
    # Appendix B.4. Steps before the first affected one hold in both contexts; that step holds only in its own context.
    # Each trace establishes its own answer and not the other one.
    ConstructionRole.VERIFY_EVIDENCE: {
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
    # Appendix B.5. The same evidence answers both questions, and neither answer fits the other question.
    ConstructionRole.SCREEN_QUESTION: {
        "changed": True,
        "edited_warranted": True,
        "edited_unique": True,
        "original_fits_edited": False,
        "edited_fits_original": False,
        "natural": True,
        "several_steps": True,
        "degenerate": False,
    },
    # Appendix B.5. Each trace pursues its own question and not the other one.
    ConstructionRole.VERIFY_QUESTION: {
        "alignment.original": True,
        "alignment.edited": True,
        "alignment.edited_to_original": False,
        "alignment.original_to_edited": False,
        "closure.closed": True,
    },
}
"""Required value of every judgement, by role and name."""


def find_objections(role: ConstructionRole, reply: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the judgements in a reply that differ from the required value."""
    for name, required in ACCEPTANCE_CONDITIONS[role].items():
        value: Any = reply
        for key in name.split("."):
            value = value[key]
        if value is not required:
            yield name
