"""Names and sentences for metrics, labels, failure classes and reasons, as all reports print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.diagnose import EvidenceSufficiency
from eclose.diagnosis.label_table import TraceStratum
from eclose.diagnosis.number_format import format_count, format_percent
from eclose.diagnosis.shown_rate import ShownRate
from eclose.metrics.rates import Metric
from eclose.values.judgment import EVIDENCE, NO_CLAIM_REASON, UNSPLIT_ANSWER_REASON, Criterion, LocalFailure
from eclose.values.verdict import AbstentionOutcome, FailureClass, FailureKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.diagnosis.diagnose import Diagnosis

METRIC_WORDS: dict[Metric, tuple[str, str]] = {
    Metric.ACCURACY: ("accuracy", "The submitted answer is correct."),
    Metric.LOCAL_SOUNDNESS_RATE: ("local soundness", "Every step holds, taken by itself."),
    Metric.ALIGNMENT_RATE: ("alignment", "The reasoning pursues the question that was asked."),
    Metric.CLOSURE_RATE: ("closure", "The reasoning establishes the answer that was submitted."),
    Metric.COMPLETENESS_RATE: ("completeness", "The reasoning establishes the reference answer."),
    Metric.GLOBAL_SUFFICIENCY_RATE: ("global sufficiency", "The whole holds: aligned and closed (A and C)."),
    Metric.TRACE_RELIABILITY_RATE: ("reliability", "Every step holds, and so does the whole (L, A and C)."),
    Metric.GAP_RATE: ("the local-global gap", "Every step holds, and the whole does not."),
    Metric.GAP_SHARE: ("share of the gap", "Of the responses whose whole does not hold, those in the gap."),
    Metric.GAP_RISK: (
        "risk of the gap",
        "Of the wrong answers, those in the gap: no check of single steps finds them.",
    ),
    Metric.GAP_AMONG_SOUND: (
        "the gap among sound responses",
        "Of the responses in which every step holds, those in the gap.",
    ),
}
"""Name and meaning of each metric."""


FAILURE_WORDS: dict[FailureClass, tuple[str, str]] = {
    FailureClass.PATH_DEVIATION: ("path deviation", "pursue another question than the one asked"),
    FailureClass.INCOMPLETE_REASONING: ("incomplete reasoning", "do not establish the reference answer"),
    FailureClass.ANSWER_DECOUPLING: ("answer decoupling", "establish the reference answer, and submit another"),
    FailureClass.CLOSURE_FAILURE: (
        "closure failure",
        "do not establish their answer; without a reference it is not known which of the two",
    ),
    FailureClass.UNDETERMINED: ("undetermined", "do not establish their answer; what they pursue was not judged"),
}
"""Name of each failure class, and what such responses do."""


KIND_WORDS: dict[FailureKind, str] = {
    FailureKind.RETRIEVAL: "the passages do not settle the question",
    FailureKind.ABSTAINED: "no answer is found, and the passages may hold it",
    FailureKind.UNSOUND: "a step does not hold",
    FailureKind.PATH: "another question is pursued than the one asked",
    FailureKind.INCOMPLETE: "the reference answer is not established",
    FailureKind.DECOUPLING: "the reference answer is established, and another is submitted",
    FailureKind.CLOSURE: "the submitted answer is not established",
}
"""What is wrong with the responses of each kind."""


CODE_WORDS: dict[LocalFailure, tuple[str, str]] = {
    LocalFailure.UNSUPPORTED_CONTENT: ("unsupported content", "The step states what no passage says."),
    LocalFailure.INVALID_INFERENCE: ("invalid inference", "The step does not follow from what precedes it."),
    LocalFailure.CONSTRAINT_OR_COMPUTATION: (
        "constraint or computation",
        "A condition, a comparison or a calculation is wrong.",
    ),
    LocalFailure.FALSE_COVERAGE: ("false coverage", "The step says the passages lack what they do tell."),
    LocalFailure.OTHER: ("other", "The step does not hold for another reason."),
}


CRITERION_WORDS: dict[Criterion, str] = {
    Criterion.LOCAL_SOUNDNESS: "every step holds",
    Criterion.ALIGNMENT: "pursues the question",
    Criterion.CLOSURE: "establishes the submitted answer",
    Criterion.COMPLETENESS: "establishes the reference answer",
    Criterion.CORRECTNESS: "the answer is correct",
}


LABEL_WORDS: dict[str, str] = {
    **{criterion.value: words for criterion, words in CRITERION_WORDS.items()},
    EVIDENCE: "the passages settle the question",
}
"""Meaning of each label of a judge, by its name in files."""


EVIDENCE_WORDS: dict[EvidenceSufficiency, str] = {
    EvidenceSufficiency.SUFFICIENT: "the passages settle the question",
    EvidenceSufficiency.INSUFFICIENT: "the passages do not settle the question",
    EvidenceSufficiency.UNJUDGED: "not judged whether they do",
}

EVIDENCE_UNCHECKED = "This decision of the judge has not been compared with people."
"""Stands beside every figure by sufficiency of the evidence, also in a validated report: verdicts do not label it."""


REASON_WORDS = {
    "invalid": "the reply does not have the requested form",
    "refusal": "the judge refused to answer",
    "length": "the reply was cut off at the token limit (max_tokens)",
    "empty": "the reply was empty",
    "too_long": "the question does not fit into the judge's context",
    "verdict before reason": "the reply decides before it gives its reason, against the order of its schema",
    "wrong step ids": "the reply is about other steps than those of the trace",
    "quote not found": "a quote of the reply does not stand in its passage",
    "no such passage": "the reply cites a passage that does not exist",
}
"""Explanation of each kind of reason for a missing label."""


_LONG_PASSAGES = 8_000
"""Tokens of passages from which they decide what judging costs."""


def explain_missing_label(reason: str) -> str:
    """Return the explanation of a missing label; a reason of another kind is returned as it is."""
    return REASON_WORDS.get(reason, reason)


def describe_missing_traces(missing: int, responses: int) -> tuple[str, ...]:
    """Return what responses without a trace mean and how to get traces; empty where every response has one."""
    if not missing:
        return ()
    share = f"{missing:,} of {format_count(responses, 'response')} ({format_percent(missing / responses)} %)"
    return (
        f"{share} {'has' if missing == 1 else 'have'} no trace, so only "
        "their evidence and their answer are judged, and LSR, TRR and LGG have no value: tell the model to reason "
        'in numbered lines and to end with "Final answer: ...".',
    )


def describe_abstentions(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return how many responses abstain, and how many of them were right to; empty where none does."""
    outcomes = diagnosis.abstentions
    if not outcomes:
        return ()
    return (
        f"{format_count(sum(outcomes.values()), 'response')} with an abstention, which is never reliable: "
        f"{outcomes[AbstentionOutcome.RIGHT]:,} right (the passages do not settle the question), "
        f"{outcomes[AbstentionOutcome.WRONG]:,} wrong (they do), "
        f"{outcomes[AbstentionOutcome.UNKNOWN]:,} unknown (that was not judged).",
    )


def describe_long_passages(tokens: float) -> tuple[str, ...]:
    """Return which calls read the passages of a question, given their mean length; empty where they are short."""
    if tokens < _LONG_PASSAGES:
        return ()
    return (
        f"The passages of a question have about {round(tokens, -2):,.0f} tokens, and two calls a response read all of "
        "them: whether they settle the question, and whether each step is sound. --dry-run shows the cost.",
    )


def describe_unread_traces(unread: Mapping[str, int], responses: int) -> tuple[str, ...]:
    """Return what it means where a trace claims nothing, and where its end is not told apart from the answer."""
    sentences = []
    if hollow := unread.get(NO_CLAIM_REASON):
        sentences.append(
            f"In {hollow:,} of {format_count(responses, 'response')} no step claims anything: the trace is unknown, "
            "so they are neither reliable nor in the gap."
        )
    if unsplit := unread.get(UNSPLIT_ANSWER_REASON):
        sentences.append(
            f"In {unsplit:,} of {format_count(responses, 'response')} reasoning and answer are not told apart in the "
            'last message, so C and K are not judged: tell the model to end with a line "Final answer: ...".'
        )
    return tuple(sentences)


def describe_strata(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return what unstated traces mean for closure, and which responses are reported apart."""
    sentences = []
    if diagnosis.stratum is TraceStratum.PROSE:
        sentences.append(
            f"The steps of {format_count(diagnosis.prose_traces, 'response')} are sentences of the reply itself: C "
            "(closure) is not comparable with that of stated steps, so read L and A."
        )
    elif diagnosis.stratum is TraceStratum.HIDDEN:
        sentences.append("The traces are hidden thinking, which the answer need not rest on: read L and A.")
    for stratum, group in diagnosis.apart.items():
        figures = (
            f"{metric} {ShownRate.of_group(group, metric).figure}"
            for metric in (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE)
        )
        sentences.append(
            f"Not counted in these rates: {format_count(group.responses, 'response')} with {stratum} traces "
            f"({', '.join(figures)}), whose rates are not comparable. --origin {stratum} reports them."
        )
    return tuple(sentences)


def name_response_group(group: tuple[str, ...]) -> str:
    """Return the name of a group of responses."""
    return " · ".join(group) if group else "all responses"
