"""Sentences of a report for readers who do not know the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from eclose.diagnosis.diagnose import EvidenceSufficiency
from eclose.diagnosis.number_format import format_count, format_percent_span
from eclose.diagnosis.shown_rate import RateText, ShownRate, format_rate_value, is_too_little_judged
from eclose.metrics.judge_against_people import DIRECT_LABELS, JudgedLabel
from eclose.metrics.rates import Metric
from eclose.report.wording import (
    EVIDENCE_UNCHECKED,
    EVIDENCE_WORDS,
    LABEL_WORDS,
    describe_missing_traces,
    describe_strata,
    describe_unread_traces,
    explain_missing_label,
)
from eclose.values.judgment import EVIDENCE, MAX_UNJUDGED_SHARE, NEVER_ASKED_REASONS, UNREAD_REASONS, Criterion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.report.context import ReportContext

_FEW_QUESTIONS = 20
"""With fewer questions an interval over questions is only a rough hint."""


def describe_evidence_sufficiency(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return whether the passages answer the questions; failures of retrieval are not failures of reasoning."""
    summaries = diagnosis.by_evidence
    lacking, unjudged = summaries.get(EvidenceSufficiency.INSUFFICIENT), summaries.get(EvidenceSufficiency.UNJUDGED)
    sentences = []
    # No judge was asked about the evidence.
    if set(summaries) == {EvidenceSufficiency.UNJUDGED}:
        return (
            "Whether the passages settle the questions was not judged, so failures of retrieval are not separated.",
        )
    if lacking is None:
        sentences.append("Wherever it was judged, the passages settle the question.")
    else:
        sentences.append(
            f"For {lacking.questions:,} of {format_count(diagnosis.overall.questions, 'question')} "
            f"({format_count(lacking.responses, 'response')}) the passages do not settle the question: "
            "that is a failure of retrieval, not of reasoning"
            + (", so the report also gives TRR and LGG apart." if list_rates_by_evidence(diagnosis) else ".")
        )
    if unjudged is not None:
        sentences.append(f"For {format_count(unjudged.responses, 'response')} this was not judged.")
    return (*sentences, EVIDENCE_UNCHECKED)


def list_rates_by_evidence(diagnosis: Diagnosis) -> tuple[tuple[str, str, str, str], ...]:
    """Return, for each kind of evidence and for all responses, their number and the judge's TRR and LGG."""
    # With one kind of evidence the list would repeat the headline.
    if len(diagnosis.by_evidence) < 2:
        return ()
    groups = [(f"Where {_EVIDENCE_LEADS[kind]}", group) for kind, group in diagnosis.by_evidence.items()]
    metrics = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE)
    if all(is_too_little_judged(diagnosis.overall.rates[metric]) for metric in metrics):
        return ()
    return tuple(
        (
            name,
            format_count(group.responses, "response"),
            str(ShownRate.of_group(group, Metric.TRACE_RELIABILITY_RATE).figure),
            str(ShownRate.of_group(group, Metric.GAP_RATE).figure),
        )
        for name, group in (*groups, ("All together", diagnosis.overall))
    )


EVIDENCE_NOTE = (
    "These are the judge's own figures, not corrected: labels of people correct only the rates of all responses."
)
_EVIDENCE_LEADS = {**EVIDENCE_WORDS, EvidenceSufficiency.UNJUDGED: "this was not judged"}


def list_judge_agreement(context: ReportContext) -> dict[JudgedLabel, RateText]:
    """Return the agreement of the judge with people on each label it gives, where both labelled responses."""
    return {
        row.label: format_rate_value(*row.agreement[:2])
        for row in context.agreement
        if row.label in DIRECT_LABELS and row.n
    }


def describe_judge_agreement(context: ReportContext) -> tuple[str, ...]:
    """Return a sentence on the label with the least agreement, and one on all labels."""
    if not (figures := list_judge_agreement(context)):
        return ()
    rows = [row for row in context.agreement if row.label in figures]
    # Ties are resolved by the name of the label, so the sentence is stable.
    worst = min(rows, key=lambda row: (row.agreement.value or 0, row.label))
    label = f"{worst.label} ({LABEL_WORDS[worst.label]})"
    least = f"It agrees with them least about {label}: {figures[worst.label]} of {format_count(worst.n, 'response')}."
    return least, f"Agreement by label: {'; '.join(f'{name} {figure}' for name, figure in figures.items())}."


def describe_judge_flips(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return how consistent the judge is, where it was asked more than once."""
    repeated = {name: counts for name, counts in diagnosis.flips.items() if counts.responses}
    if not repeated:
        return ()
    if not any(counts.flipped for counts in repeated.values()):
        return ("The judge was asked more than once and said the same each time.",)
    name, worst = max(repeated.items(), key=lambda item: item[1].rate or 0)
    share = f"{worst.flipped:,} of {format_count(worst.responses, 'response')}"
    figure = format_rate_value(worst.rate, worst.interval)
    label = LABEL_WORDS[name] if name == EVIDENCE else f"{name} ({LABEL_WORDS[name]})"
    return (
        f"The judge was asked more than once. It is least steady about {label}: {share} got both answers, {figure}.",
    )


class ReportCaution(NamedTuple):
    """A sentence to read before trusting a figure, and where a page shows what it is about."""

    text: str
    show: str
    """Filter of the explorer, or id of a part of the page."""


def list_report_cautions(diagnosis: Diagnosis, context: ReportContext) -> tuple[str, ...]:
    """Return what a reader must know before trusting a figure."""
    return tuple(caution.text for caution in list_linked_cautions(diagnosis, context))


def list_linked_cautions(diagnosis: Diagnosis, context: ReportContext) -> tuple[ReportCaution, ...]:
    """Return the cautions with links to what they are about."""
    return tuple(_cautions(diagnosis, context))


def encode_address(text: str) -> str:
    """Return a name as part of an address; a lone surrogate, which no address can hold, becomes a question mark."""
    return quote(text, safe="", errors="replace")


_CHAIN = (Criterion.LOCAL_SOUNDNESS, Criterion.ALIGNMENT, Criterion.CLOSURE)
"""The labels that decide whether a response is reliable."""


def _unjudged_cautions(diagnosis: Diagnosis) -> Iterator[ReportCaution]:
    """Yield a sentence for each label of the headline that is missing too often, with the reasons."""
    total = diagnosis.overall.responses
    for criterion in _CHAIN:
        reasons = {
            reason: count
            for reason, count in diagnosis.unjudged.get(criterion, {}).items()
            # A label that no judge was asked for is not missing; unread traces have a sentence of their own.
            if reason not in NEVER_ASKED_REASONS | UNREAD_REASONS
        }
        missing = sum(reasons.values())
        if missing > MAX_UNJUDGED_SHARE * total:
            explanation = "; ".join(f"{explain_missing_label(reason)} ({count:,})" for reason, count in reasons.items())
            label = f"{criterion.value} ({LABEL_WORDS[criterion.value]})"
            share = f"{missing:,} of {format_count(total, 'response')}"
            text = f"Too little judged: {label} has no label for {share}: {explanation}."
            yield ReportCaution(text, f"unjudged={criterion.value}")


def describe_few_questions(questions: int, noun: str = "questions") -> tuple[str, ...]:
    """Return a caution on intervals over few questions; nothing where there are enough."""
    if questions >= _FEW_QUESTIONS:
        return ()
    return (f"Fewer than {_FEW_QUESTIONS} {noun}: take the intervals as a rough hint, not as 95 %.",)


def list_sample_cautions(diagnosis: Diagnosis, context: ReportContext) -> Iterator[ReportCaution]:
    """Yield that there are few questions, and what became of responses without a judgment."""
    for text in describe_few_questions(diagnosis.overall.questions):
        yield ReportCaution(text, "table-metrics")
    for reason, count in context.left_out_by_reason.items():
        yield ReportCaution(f"{format_count(count, 'response')} left out: {reason}.", "table-left-out")
    if context.left_out:
        yield ReportCaution(_bound_with_left_out(diagnosis, len(context.left_out)), "table-left-out")


def _bound_with_left_out(diagnosis: Diagnosis, left_out: int) -> str:
    """Return where TRR and LGG lie among all responses, whatever those without a judgment turn out to be."""
    spans = []
    for metric in (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE):
        rate = diagnosis.overall.rates[metric]
        bounds = replace(rate, unjudged=rate.unjudged + left_out).bounds
        spans.append(f"{metric} as judged is {format_percent_span(bounds)} %")
    total = format_count(diagnosis.overall.responses + left_out, "response")
    return f"Among all {total}, whatever those left out are, {' and '.join(spans)}."


def _cautions(diagnosis: Diagnosis, context: ReportContext) -> Iterator[ReportCaution]:
    for text in describe_missing_traces(diagnosis.without_trace, diagnosis.overall.responses):
        yield ReportCaution(text, f"unjudged={Criterion.ALIGNMENT.value}")
    for text in describe_unread_traces(diagnosis.unread_traces, diagnosis.overall.responses):
        yield ReportCaution(text, f"unjudged={Criterion.CLOSURE.value}")
    for text in describe_strata(diagnosis):
        yield ReportCaution(text, "table-metrics")
    yield from _unjudged_cautions(diagnosis)
    yield from list_sample_cautions(diagnosis, context)
    if diagnosis.inconsistent:
        yield ReportCaution(
            f"{format_count(diagnosis.inconsistent, 'response')} reliable by every label and yet wrong: "
            "a label or the reference must be wrong.",
            "look=inconsistent",
        )
    # One sentence per judge, in order, with all models of its family.
    for judge in dict.fromkeys(judge for judge, _ in diagnosis.same_family_pairs):
        models = [model for name, model in diagnosis.same_family_pairs if name == judge]
        yield ReportCaution(
            f"By their names, the judge {judge} is of the family of {' and '.join(models)}, whose responses it judges, "
            "and a judge may favour its family. Use a judge of another family, or label some responses yourself.",
            f"model={encode_address(models[0])}",
        )
