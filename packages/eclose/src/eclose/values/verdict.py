"""The five labels of a response and everything that is derived from them.

Sufficiency, the gap, the failure class and the trace group follow from the labels in three-valued logic, so a missing
label never counts as false.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from eclose.values.response import ResponseSource
from eclose.values.three_valued import Label, three_valued_and, three_valued_not


class FailureClass(StrEnum):
    """The first broken link of a response that is not globally sufficient.

    Examples:
        >>> Verdict(locally_sound=True, aligned=False, closed=True).failure_class.value
        'path_deviation'
    """

    PATH_DEVIATION = "path_deviation"
    """The trace pursues another question."""
    INCOMPLETE_REASONING = "incomplete_reasoning"
    """The trace is aligned but does not establish the reference answer."""
    ANSWER_DECOUPLING = "answer_decoupling"
    """The trace establishes the reference answer, and the submitted answer is another one."""
    CLOSURE_FAILURE = "closure_failure"
    """Aligned but not closed, and completeness was not judged: incomplete reasoning or answer decoupling."""
    UNDETERMINED = "undetermined"
    """Not closed, and alignment was not judged: the first broken link is unknown."""


class FailureKind(StrEnum):
    """What to mend of an unreliable response: the first of these that applies."""

    RETRIEVAL = "retrieval"
    """The passages do not settle the question."""
    ABSTAINED = "abstained"
    """The response says that it found no answer, and the passages are not known to lack it."""
    UNSOUND = "unsound"
    """A step does not hold."""
    PATH = "path"
    """Path deviation."""
    INCOMPLETE = "incomplete"
    """Incomplete reasoning."""
    DECOUPLING = "decoupling"
    """Answer decoupling."""
    CLOSURE = "closure"
    """The trace does not establish the answer, and the labels do not tell which link broke first."""


class TraceGroup(StrEnum):
    """The disjoint groups of responses: the three of the paper, and abstentions.

    Examples:
        >>> Verdict(locally_sound=True, aligned=True, closed=False).trace_group.value
        'gap'
    """

    RELIABLE = "reliable"
    """Locally sound and globally sufficient."""
    GAP = "gap"
    """Locally sound but globally insufficient."""
    LOCALLY_UNSOUND = "locally_unsound"
    """At least one substantive step is unsound."""
    ABSTAINED = "abstained"
    """No step is known to be unsound, and the response says that it found no answer."""


class AbstentionOutcome(StrEnum):
    """Whether a response was right to say that it found no answer, by the judge's label on the evidence."""

    RIGHT = "right"
    """The passages do not settle the question."""
    WRONG = "wrong"
    """The passages settle the question."""
    UNKNOWN = "unknown"
    """Whether they do was not judged."""

    @classmethod
    def of(cls, evidence_sufficient: Label) -> AbstentionOutcome:
        """Return the outcome of an abstention."""
        if evidence_sufficient is None:
            return cls.UNKNOWN
        return cls.WRONG if evidence_sufficient else cls.RIGHT


@dataclass(frozen=True, slots=True)
class Verdict:
    """The five labels of a response: L, A, C, K and Acc in the paper; None where a label was not judged.

    Examples:
        >>> verdict = Verdict(locally_sound=True, aligned=True, closed=False, complete=False)
        >>> verdict.in_gap, verdict.failure_class.value
        (True, 'incomplete_reasoning')
        >>> Verdict(locally_sound=True, aligned=None, closed=True).reliable is None
        True
    """

    locally_sound: Label = None
    aligned: Label = None
    closed: Label = None
    complete: Label = None
    correct: Label = None
    abstained: bool = field(default=False, repr=False, kw_only=True)
    """Whether the response says that it found no answer. It is then neither reliable nor in the gap."""

    @property
    def globally_sufficient(self) -> Label:
        """Whether the trace pursues the question and establishes the answer (G in the paper)."""
        return three_valued_and((self.aligned, self.closed))

    @property
    def reliable(self) -> Label:
        """Whether the response is locally sound and globally sufficient; the mean over responses is TRR."""
        return three_valued_and((self.locally_sound, self.globally_sufficient, not self.abstained))

    @property
    def in_gap(self) -> Label:
        """Whether the response is locally sound but globally insufficient."""
        return three_valued_and((self.locally_sound, three_valued_not(self.globally_sufficient), not self.abstained))

    @property
    def failure_class(self) -> FailureClass | None:
        """The first broken link; None unless the response answers and is known to be globally insufficient."""
        if self.abstained or self.globally_sufficient is not False:
            return None
        # The order of appendix A.3.2: A = 0 before K = 0 before K = 1.
        if self.aligned is None:
            return FailureClass.UNDETERMINED
        if not self.aligned:
            return FailureClass.PATH_DEVIATION
        if self.complete is None:
            return FailureClass.CLOSURE_FAILURE
        return FailureClass.ANSWER_DECOUPLING if self.complete else FailureClass.INCOMPLETE_REASONING

    @property
    def trace_group(self) -> TraceGroup | None:
        """The group of the response; None where the labels do not decide it."""
        if self.locally_sound is False:
            return TraceGroup.LOCALLY_UNSOUND
        if self.abstained:
            return TraceGroup.ABSTAINED
        if self.reliable:
            return TraceGroup.RELIABLE
        return TraceGroup.GAP if self.in_gap else None

    @property
    def inconsistent(self) -> bool:
        """Whether L = A = C = 1 and Acc = 0: on an eligible question one of the four labels must be wrong."""
        return bool(self.reliable) and self.correct is False


@dataclass(frozen=True, slots=True)
class SettledVerdict:
    """A verdict with the ids of its response and question: one row of a results table.

    Examples:
        >>> SettledVerdict("r1", "q1", Verdict(correct=True), benchmark="HotpotQA").verdict.correct
        True
    """

    response_id: str
    instance_id: str
    verdict: Verdict
    benchmark: str | None = None
    source: ResponseSource | None = None
