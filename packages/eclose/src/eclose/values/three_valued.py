"""Labels that may be unknown, and Kleene's strong three-valued logic on them.

A label is true, false or ``None`` for not judged. Unknown is never treated as false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Label: TypeAlias = bool | None
"""True, false, or None for not judged."""


def three_valued_not(label: Label) -> Label:
    """Return the opposite label; unknown stays unknown."""
    return None if label is None else not label


def three_valued_and(labels: Iterable[Label]) -> Label:
    """Return false where a label is false, else unknown where a label is unknown, else true; true for no labels."""
    unknown = False
    for label in labels:
        # One false label decides, whatever the unknown ones are.
        if label is False:
            return False
        unknown = unknown or label is None
    return None if unknown else True


def three_valued_implies(condition: Label, consequence: Label) -> Label:
    """Return whether the condition implies the consequence; a false condition implies anything."""
    return three_valued_not(three_valued_and((condition, three_valued_not(consequence))))
