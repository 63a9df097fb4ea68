"""The judgment of one response by one judge, step by step, and the reason codes of judges.

A judgment is the opinion of one person or model. The labels after adjudication are a ``Verdict``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.values.three_valued import Label, three_valued_and, three_valued_implies
from eclose.values.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable


class LocalFailure(StrEnum):
    """The primary reason why a step is unsound; a judge names exactly one, and the paper defines no precedence.

    Examples:
        >>> LocalFailure("L2").name
        'INVALID_INFERENCE'
    """

    UNSUPPORTED_CONTENT = "L1"
    INVALID_INFERENCE = "L2"
    CONSTRAINT_OR_COMPUTATION = "L3"
    FALSE_COVERAGE = "L4"
    OTHER = "L5"


class Ineligibility(StrEnum):
    """The primary reason why a question cannot be used to study reasoning.

    Examples:
        >>> Ineligibility("N4").name
        'ILL_POSED'
    """

    MISSING_EVIDENCE = "N1"
    MISSING_LINK = "N2"
    UNDERDETERMINED = "N3"
    ILL_POSED = "N4"
    INCOMPATIBLE_REFERENCE = "N5"


# An ill-posed question makes the other four codes meaningless, so it precedes them (appendix A.3.1).
INELIGIBILITY_PRECEDENCE = (
    Ineligibility.ILL_POSED,
    Ineligibility.MISSING_EVIDENCE,
    Ineligibility.MISSING_LINK,
    Ineligibility.UNDERDETERMINED,
    Ineligibility.INCOMPATIBLE_REFERENCE,
)


def primary_ineligibility(codes: Iterable[Ineligibility]) -> Ineligibility | None:
    """Return the code to report where several apply; None where none applies."""
    return min(codes, key=INELIGIBILITY_PRECEDENCE.index, default=None)


@dataclass(frozen=True, slots=True)
class QuestionScreening:
    """The screening of a question by one judge, who has seen no response to it."""

    id: str
    """Id of the question."""
    judge: str
    eligible: Label = None
    """Whether the question can be used to study reasoning; None where the judge gave no usable reply."""
    code: Ineligibility | None = None
    """Why an ineligible question is ineligible."""
    reason: str | None = None
    """Reason in the judge's words, or why the label is missing."""


@dataclass(frozen=True, slots=True)
class StepSupport:
    """The support of a step: a passage, and a quotation from it."""

    passage_index: int
    """Counted from zero, in the order of the instance."""
    quote: str


@dataclass(frozen=True, slots=True)
class StepJudgment:
    """The judgment of one step: whether it is substantive, and if so whether it is sound.

    Examples:
        >>> StepJudgment(substantive=True, sound=False, failure=LocalFailure.INVALID_INFERENCE).failure.value
        'L2'
    """

    substantive: Label
    """Whether the step carries reasoning that must hold."""
    sound: Label = None
    """None for a step that is not substantive."""
    failure: LocalFailure | None = None
    support: StepSupport | None = None
    reason: str | None = None
    """Reason in the judge's words."""


@dataclass(frozen=True, slots=True)
class OwnLabel:
    """The label of a response by a criterion of the user's own."""

    label: str | None = None
    """None where the judge gave no usable reply, or where there is nothing to decide on."""
    holds: Label = None
    """Whether it is the first label of the criterion, whose share reports give."""
    reason: str | None = None
    """Reason in the judge's words, or why the label is missing."""
    votes: tuple[str | None, ...] = ()
    """Labels of a judge that was asked several times, in order."""


class PassageUse(StrEnum):
    """What a passage is to its question."""

    NEEDED = "needed"
    NOT_NEEDED = "not needed"
    CONTRADICTS = "contradicts"


@dataclass(frozen=True, slots=True)
class PassageLabel:
    """The label of one passage."""

    use: PassageUse
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ReferenceClaim:
    """A claim of the reference answer, and whether the passages support it."""

    claim: str
    supported: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PassageLabels:
    """What each passage is to the question, and which claims of the reference the passages support.

    Examples:
        >>> uses = (PassageUse.NOT_NEEDED, PassageUse.NEEDED, PassageUse.NEEDED)
        >>> round(PassageLabels(tuple(map(PassageLabel, uses))).precision, 3)
        0.583
    """

    labels: tuple[PassageLabel, ...] = ()
    """In the order of the instance; empty without a usable reply."""
    claims: tuple[ReferenceClaim, ...] = ()
    """Empty without a reference."""
    unjudged: str | None = None
    """Why there are no labels."""

    @property
    def precision(self) -> float | None:
        """Context precision as in RAGAS: the mean, over needed passages, of the share of needed ones up to it.

        Zero where no passage is needed; None without labels.
        """
        if not self.labels:
            return None
        needed = [label.use is PassageUse.NEEDED for label in self.labels]
        shares = [sum(needed[:rank]) / rank for rank, is_needed in enumerate(needed, start=1) if is_needed]
        return sum(shares) / len(shares) if shares else 0.0

    @property
    def recall(self) -> float | None:
        """Context recall as in RAGAS: the share of the claims of the reference that the passages support."""
        return sum(claim.supported for claim in self.claims) / len(self.claims) if self.claims else None


PEOPLE_JUDGE = "people"
"""Judge name of labels that people settled."""
WHOLE_TRACE_REASON = "one decision for the whole trace"
"""Reason of every step where one label was given for all steps together."""
NO_TRACE_REASON = "there is no trace"
NO_ANSWER_REASON = "no answer was submitted"
NO_CLAIM_REASON = "no step of the trace claims anything"
"""Reason where every step is an announcement or the like, and the response was not asked for steps."""
UNSPLIT_ANSWER_REASON = "reasoning and answer are not told apart in the last message"
UNREAD_REASONS = frozenset({NO_TRACE_REASON, NO_CLAIM_REASON, UNSPLIT_ANSWER_REASON})
"""Reasons of labels that are missing because the trace, or its end, is not known."""
NO_REFERENCE_REASON = "there is no reference answer"
REFERENCE_FREE_REASON = "judged without the reference"
REPETITIONS_DISAGREE_REASON = "the repetitions disagree"
NEVER_ASKED_REASONS = frozenset({NO_REFERENCE_REASON, REFERENCE_FREE_REASON})
"""Reasons for a missing label that are no failure of the judge: the label was not requested."""


MAX_UNJUDGED_SHARE = 0.2
"""Largest share of responses without a label for which a rate is still reported."""


def missing_reason_kind(reason: str) -> str:
    """Return the kind of a reason for a missing label, without the details after the colon."""
    return reason.partition(": ")[0]


class Criterion(StrEnum):
    """The five criteria by which a judge labels a response."""

    LOCAL_SOUNDNESS = "L"
    ALIGNMENT = "A"
    CLOSURE = "C"
    COMPLETENESS = "K"
    CORRECTNESS = "Acc"


UNREAD_TRACES = (
    (Criterion.LOCAL_SOUNDNESS, NO_TRACE_REASON),
    (Criterion.LOCAL_SOUNDNESS, NO_CLAIM_REASON),
    (Criterion.CLOSURE, UNSPLIT_ANSWER_REASON),
)
"""The first criterion that each of ``UNREAD_REASONS`` leaves without a label: one for each response."""
EVIDENCE = "evidence"
"""Name of the sixth label beside the five criteria: whether the passages settle the question."""
PASSAGES = "passages"
"""Name of the labels of single passages, which are given on request."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """The judgment of one response by one judge.

    Examples:
        >>> steps = (StepJudgment(substantive=True, sound=True), StepJudgment(substantive=False))
        >>> judgment = Judgment("r1", "openai/gpt-5-mini", steps, aligned=True, closed=False)
        >>> judgment.locally_sound, judgment.verdict.in_gap
        (True, True)
    """

    response_id: str
    judge: str
    steps: tuple[StepJudgment, ...]
    aligned: Label = None
    closed: Label = None
    complete: Label = None
    correct: Label = None
    unjudged: Mapping[Criterion, str] = field(default_factory=dict)
    """Reason for every missing label, by criterion."""
    reasons: Mapping[Criterion, str] = field(default_factory=dict)
    """Reason for a label in the judge's words, by criterion."""
    pursued: str | None = None
    """Question that the trace answers, in the judge's words."""
    established: str | None = None
    """Answer that the trace establishes, in the judge's words."""
    answer_step: int | None = None
    """Number of the step that the judge took for the answer of a reply that does not mark it; closure and completeness
    are then about the others."""
    evidence_sufficient: Label = None
    """Whether the passages settle the question, independently of the response."""
    missing_evidence: str | None = None
    """Information that the passages lack, in the judge's words."""
    evidence_unjudged: str | None = None
    """Why there is no label on the evidence; None where there is one, and in files that record no reason."""
    votes: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    """Labels of a judge that was asked several times, in order, by criterion and ``evidence``."""
    abstained: bool = False
    """Whether the response says that it found no answer, by its words; no judge is asked. False in files of earlier
    versions."""
    own: Mapping[str, OwnLabel] = field(default_factory=dict)
    """Labels by the criteria of the user's own, by name."""
    passages: PassageLabels | None = None
    """Labels of the passages; None where they were not asked for."""

    def label(self, name: str) -> Label:
        """Return the label of a criterion, or of ``evidence``."""
        # L is derived from the steps, so labels are read from the verdict.
        return self.evidence_sufficient if name == EVIDENCE else getattr(self.verdict, _FIELDS[Criterion(name)])

    @property
    def missing_reasons(self) -> dict[str, str]:
        """Recorded reason for every missing label, by criterion, ``evidence``, ``criterion_NAME`` and ``passages``."""
        evidence = {} if self.evidence_unjudged is None else {EVIDENCE: self.evidence_unjudged}
        own = {f"criterion_{name}": row.reason or "" for name, row in self.own.items() if row.label is None}
        passages = {} if self.passages is None or self.passages.unjudged is None else {PASSAGES: self.passages.unjudged}
        return evidence | {criterion.value: reason for criterion, reason in self.unjudged.items()} | own | passages

    @property
    def stepwise(self) -> bool:
        """Whether each step has a label of its own."""
        return all(step.reason != WHOLE_TRACE_REASON for step in self.steps)

    @property
    def locally_sound(self) -> Label:
        """L: whether every substantive step is sound; true for a trace without substantive steps."""
        if Criterion.LOCAL_SOUNDNESS in self.unjudged:
            return None
        # The product over substantive steps in the definition of L (section 3.1); an empty product is 1.
        return three_valued_and(three_valued_implies(step.substantive, step.sound) for step in self.steps)

    def withhold_hollow_trace(self) -> Judgment:
        """Return the judgment without L, A, C and K where no step claims anything, so that the trace is unknown.

        For responses in other layouts than the protocol's: what they wrote before their answer need not be a trace.
        """
        if not self.steps or any(step.substantive is not False for step in self.steps):
            return self
        withheld = dict.fromkeys(tuple(Criterion)[:4], NO_CLAIM_REASON)
        unjudged = {**self.unjudged, **withheld}
        return replace(
            self,
            aligned=None,
            closed=None,
            complete=None,
            unjudged={criterion: unjudged[criterion] for criterion in Criterion if criterion in unjudged},
            reasons={name: reason for name, reason in self.reasons.items() if name not in withheld},
        )

    @property
    def verdict(self) -> Verdict:
        """The five labels of this judge."""
        return Verdict(
            locally_sound=self.locally_sound,
            aligned=self.aligned,
            closed=self.closed,
            complete=self.complete,
            correct=self.correct,
            abstained=self.abstained,
        )


_FIELDS = {
    Criterion.LOCAL_SOUNDNESS: "locally_sound",
    Criterion.ALIGNMENT: "aligned",
    Criterion.CLOSURE: "closed",
    Criterion.COMPLETENESS: "complete",
    Criterion.CORRECTNESS: "correct",
}
