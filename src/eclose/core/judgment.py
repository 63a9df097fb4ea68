"""What one judge said of one response, step by step, and the reason codes a judge may give.

A judgment is one opinion, of a person or a model. What is settled after adjudication is a ``Verdict``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.core.three_valued import Label, conjunction, implication
from eclose.core.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable


class LocalFailure(StrEnum):
    """The primary reason why a step is unsound. The judge names one; the paper ranks none above another."""

    UNSUPPORTED_CONTENT = "L1"
    INVALID_INFERENCE = "L2"
    CONSTRAINT_OR_COMPUTATION = "L3"
    FALSE_COVERAGE = "L4"
    OTHER = "L5"


class Ineligibility(StrEnum):
    """The primary reason why a question cannot be used to study reasoning."""

    MISSING_EVIDENCE = "N1"
    MISSING_LINK = "N2"
    UNDERDETERMINED = "N3"
    ILL_POSED = "N4"
    INCOMPATIBLE_REFERENCE = "N5"


# An ill-posed question makes the other four unanswerable, so it is asked first (appendix A.3.1).
INELIGIBILITY_PRECEDENCE = (
    Ineligibility.ILL_POSED,
    Ineligibility.MISSING_EVIDENCE,
    Ineligibility.MISSING_LINK,
    Ineligibility.UNDERDETERMINED,
    Ineligibility.INCOMPATIBLE_REFERENCE,
)


def primary_ineligibility(applying: Iterable[Ineligibility]) -> Ineligibility | None:
    """The one reason to report when several apply; None when none does."""
    return min(applying, key=INELIGIBILITY_PRECEDENCE.index, default=None)


@dataclass(frozen=True, slots=True)
class Screening:
    """What one judge said of a question, before any response was seen."""

    id: str
    """The question's."""
    judge: str
    eligible: Label = None
    """Whether the question can be used to study reasoning; None where the judge could not be brought to say."""
    code: Ineligibility | None = None
    """Why it cannot."""
    reason: str | None = None
    """In the judge's words; or why there is no label."""


@dataclass(frozen=True, slots=True)
class Support:
    """Where a step finds its support: a passage by its index, and words that stand in it."""

    passage_index: int
    quote: str


@dataclass(frozen=True, slots=True)
class StepJudgment:
    """One step: does it carry the reasoning, and does it hold?"""

    substantive: Label
    sound: Label = None
    """Stays None for a step that is not substantive: the question does not arise."""
    failure: LocalFailure | None = None
    support: Support | None = None
    reason: str | None = None
    """In the judge's words."""


WHOLE_TRACE = "one decision for the whole trace"
"""Why there is nothing about single steps: all of them were judged as if they were one."""
NO_TRACE = "there is no trace"
NO_ANSWER = "no answer was submitted"
NO_REFERENCE = "there is no reference answer"
REFERENCE_FREE = "judged without the reference"
REPETITIONS_DISAGREE = "the repetitions disagree"
NEVER_ASKED = frozenset({NO_REFERENCE, REFERENCE_FREE})
"""Why a criterion has no label though no judge failed: nobody wanted one."""


MAX_UNJUDGED_SHARE = 0.2
"""Largest share of responses without a label for which a rate is still given; beyond it, too little was judged."""


def reason_kind(reason: str) -> str:
    """Return the kind of a reason for a missing label: what stands before the details."""
    return reason.partition(": ")[0]


class Criterion(StrEnum):
    """The five things a judge decides of a response."""

    LOCAL_SOUNDNESS = "L"
    ALIGNMENT = "A"
    CLOSURE = "C"
    COMPLETENESS = "K"
    CORRECTNESS = "Acc"


EVIDENCE = "evidence"
"""What is decided beside the five: whether the passages settle the question."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """What one judge said of one response."""

    response_id: str
    judge: str
    steps: tuple[StepJudgment, ...]
    aligned: Label = None
    closed: Label = None
    complete: Label = None
    correct: Label = None
    unjudged: Mapping[Criterion, str] = field(default_factory=dict)
    """Why a criterion has no label."""
    reasons: Mapping[Criterion, str] = field(default_factory=dict)
    """Why a criterion has the label it has, in the judge's words."""
    pursued: str | None = None
    """The question that the trace really answers, in the judge's words."""
    established: str | None = None
    """The answer that the trace really establishes, in the judge's words."""
    evidence_sufficient: Label = None
    """Whether the passages settle the question, whatever was made of them."""
    missing_evidence: str | None = None
    """What they do not tell, in the judge's words."""
    votes: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    """Of a judge that was asked several times: what it said each time, by criterion and ``evidence``."""

    def label(self, name: str) -> Label:
        """One of the five labels by its criterion, or ``evidence``."""
        return self.evidence_sufficient if name == EVIDENCE else getattr(self.verdict, _FIELDS[Criterion(name)])

    @property
    def stepwise(self) -> bool:
        """Whether each step was judged by itself, and not all of them together."""
        return all(step.reason != WHOLE_TRACE for step in self.steps)

    @property
    def locally_sound(self) -> Label:
        """L: every substantive step is sound. A trace without one is sound by the empty product."""
        if Criterion.LOCAL_SOUNDNESS in self.unjudged:
            return None
        return conjunction(implication(step.substantive, step.sound) for step in self.steps)

    @property
    def verdict(self) -> Verdict:
        """The five labels, as this judge sees them."""
        return Verdict(
            locally_sound=self.locally_sound,
            aligned=self.aligned,
            closed=self.closed,
            complete=self.complete,
            correct=self.correct,
        )


_FIELDS = {
    Criterion.LOCAL_SOUNDNESS: "locally_sound",
    Criterion.ALIGNMENT: "aligned",
    Criterion.CLOSURE: "closed",
    Criterion.COMPLETENESS: "complete",
    Criterion.CORRECTNESS: "correct",
}
