"""Criteria of a user's own, which a judge decides beside the locked ones."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eclose.errors import SettingError

SEEN_PARTS = ("question", "passages", "trace", "answer", "reference")
"""What a criterion may be decided on, in the order in which a judge is shown it."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class OwnCriterion:
    """A question about each response, with the labels to choose from; no rate of the paper depends on it.

    Attributes:
        name: Short name: small letters, digits and underscores. Tables call its column ``criterion_NAME``.
        question: What is to be decided, in full. It enters the prompt, and so the identity of the run.
        labels: Labels to choose from. Reports give the share of the first one.
        sees: What the judge is shown: some of ``question``, ``passages``, ``trace``, ``answer`` and ``reference``.

    Raises:
        SettingError: The name is no such name, the question is blank, there are fewer than two labels, or ``sees``
            names nothing or something else.

    Examples:
        >>> OwnCriterion("tone", "Is the answer polite?", labels=("polite", "rude")).sees
        ('question', 'answer')
    """

    name: str
    question: str
    labels: tuple[str, ...] = ("yes", "no")
    sees: tuple[str, ...] = ("question", "answer")

    def __post_init__(self) -> None:
        # A recipe gives lists.
        object.__setattr__(self, "labels", tuple(self.labels))
        if not _NAME.fullmatch(self.name):
            raise SettingError(f"criterion {self.name!r}: a name has small letters, digits and underscores.")
        if not self.question.strip():
            raise SettingError(f"criterion {self.name}: the question is empty.")
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < 2 or not all(map(str.strip, self.labels)):
            raise SettingError(f"criterion {self.name}: labels are at least two different texts.")
        if not self.sees or not set(self.sees) <= set(SEEN_PARTS):
            raise SettingError(f"criterion {self.name}: sees names some of {', '.join(SEEN_PARTS)}.")
        # The order of the prompt, whatever the order here.
        object.__setattr__(self, "sees", tuple(part for part in SEEN_PARTS if part in self.sees))
