"""The settled labels of a response and what follows from them.

Five labels are facts; sufficiency, the gap, the failure class and the trace group are derived, in three-valued
logic, so that what was not judged is never counted as wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eclose.core.response import Source
from eclose.core.three_valued import Label, conjunction, negation


class FailureClass(StrEnum):
    """The first broken global link."""

    PATH_DEVIATION = "path_deviation"
    INCOMPLETE_REASONING = "incomplete_reasoning"
    ANSWER_DECOUPLING = "answer_decoupling"
    CLOSURE_FAILURE = "closure_failure"
    """Aligned but not closed, and completeness was not judged: one of the two above, not known which."""
    UNDETERMINED = "undetermined"
    """Not closed, and alignment was not judged: which link broke first is not known."""


class TraceGroup(StrEnum):
    """The three disjoint groups of responses."""

    RELIABLE = "reliable"
    GAP = "gap"
    LOCALLY_UNSOUND = "locally_unsound"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The five labels of a response (L, A, C, K and Acc in the paper); None where one was not judged."""

    locally_sound: Label = None
    aligned: Label = None
    closed: Label = None
    complete: Label = None
    correct: Label = None

    @property
    def globally_sufficient(self) -> Label:
        """G: the trace pursues the question and establishes the answer."""
        return conjunction((self.aligned, self.closed))

    @property
    def reliable(self) -> Label:
        """Every step holds, and so does the whole."""
        return conjunction((self.locally_sound, self.globally_sufficient))

    @property
    def in_gap(self) -> Label:
        """Every step holds, the whole does not."""
        return conjunction((self.locally_sound, negation(self.globally_sufficient)))

    @property
    def failure_class(self) -> FailureClass | None:
        """Where the chain first breaks; None unless it is known to break."""
        if self.globally_sufficient is not False:
            return None
        if self.aligned is None:
            return FailureClass.UNDETERMINED
        if not self.aligned:
            return FailureClass.PATH_DEVIATION
        if self.complete is None:
            return FailureClass.CLOSURE_FAILURE
        return FailureClass.ANSWER_DECOUPLING if self.complete else FailureClass.INCOMPLETE_REASONING

    @property
    def trace_group(self) -> TraceGroup | None:
        """The group the response belongs to; None where the labels do not decide it."""
        if self.locally_sound is False:
            return TraceGroup.LOCALLY_UNSOUND
        if self.reliable:
            return TraceGroup.RELIABLE
        return TraceGroup.GAP if self.in_gap else None

    @property
    def inconsistent(self) -> bool:
        """L = A = C = 1 yet Acc = 0. On an eligible question one of the four must be wrong: look again."""
        return bool(self.reliable) and self.correct is False


@dataclass(frozen=True, slots=True)
class SettledVerdict:
    """A verdict with the identity of its response: one row of a results table."""

    response_id: str
    instance_id: str
    verdict: Verdict
    benchmark: str | None = None
    source: Source | None = None
