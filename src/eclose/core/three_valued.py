"""Labels that may be unknown, and the three-valued logic that combines them.

A label is true, false or ``None``: not judged. Unknown is never read as false (Kleene's strong logic).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Label: TypeAlias = bool | None
"""True, false, or not judged."""


def negation(label: Label) -> Label:
    """Not; unknown stays unknown."""
    return None if label is None else not label


def conjunction(labels: Iterable[Label]) -> Label:
    """And: one false decides it, else one unknown leaves it open. Nothing to check holds."""
    unknown = False
    for label in labels:
        if label is False:
            return False
        unknown = unknown or label is None
    return None if unknown else True


def implication(condition: Label, consequence: Label) -> Label:
    """If-then: an unmet condition satisfies it whatever the consequence."""
    return negation(conjunction((condition, negation(consequence))))
