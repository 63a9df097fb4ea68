"""The diagnosis as one JSON object: every count and every rate with its interval and bounds, under stable keys."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from eclose.diagnosis.diagnose import EvidenceSufficiency
from eclose.diagnosis.shown_rate import ShownRate, is_too_little_judged
from eclose.metrics.summary import INTERVAL_METHOD
from eclose.report.context import ReportContext
from eclose.report.explorer import name_response_class
from eclose.report.headline import build_report_headline
from eclose.stats.intervals import Estimate

if TYPE_CHECKING:
    from eclose.diagnosis.compare import GroupRateComparison, RateDifference, ResponsePair, UnsharedResponseCounts
    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.metrics.judge_against_people import LabelAgreementRow
    from eclose.metrics.rates import Metric
    from eclose.metrics.repeats import LabelFlipCounts
    from eclose.metrics.summary import GroupRates
    from eclose.report.context import BaseComparison
    from eclose.report.headline import HeadlineStatement
    from eclose.stats.intervals import Interval
    from eclose.stats.rates import Rate

DIAGNOSIS_FORMAT = "eclose-diagnosis-1"


def render_diagnosis_json(diagnosis: Diagnosis, context: ReportContext | None = None) -> str:
    """Return one JSON object in ASCII, with a final line break."""
    return json.dumps(_diagnosis_to_dict(diagnosis, context or ReportContext()), indent=1) + "\n"


def _diagnosis_to_dict(diagnosis: Diagnosis, context: ReportContext) -> dict[str, Any]:
    return {
        # The keys are a public format: add keys, never rename them.
        "format": DIAGNOSIS_FORMAT,
        "title": context.title,
        "about": dict(context.about),
        "stale": list(context.stale),
        "selected": list(context.selected),
        "provenance": None if context.checked is None else "checked" if context.checked else "unchecked",
        "judges": list(diagnosis.judges),
        "headline": [_headline(statement) for statement in build_report_headline(diagnosis, context)],
        "validation": context.validation,
        "validated": context.validated,
        "settled_by_people": context.settled_by_people,
        "corrected": None
        if context.corrected is None
        else {metric.value: estimate_to_dict(estimate) for metric, estimate in context.corrected.items()},
        "agreement": [_agreement(row, stratified=context.stratified) for row in context.agreement],
        "responses": diagnosis.overall.responses,
        "questions": diagnosis.overall.questions,
        "without_trace": diagnosis.without_trace,
        "unread_traces": diagnosis.unread_traces,
        "prose_traces": diagnosis.prose_traces,
        "groups": [_group(summary, *summary.group) for summary in diagnosis.groups],
        "by_model": [_group(summary, model=summary.group[0]) for summary in diagnosis.by_model],
        "by_dataset": [_group(summary, summary.group[0]) for summary in diagnosis.by_dataset],
        "by_evidence": {
            str(kind): _group(diagnosis.by_evidence[kind])
            for kind in EvidenceSufficiency
            if kind in diagnosis.by_evidence
        },
        "joint": [
            {"L": labels[0], "A": labels[1], "C": labels[2], "responses": count}
            # By text, because None cannot be compared with True and False.
            for labels, count in sorted(diagnosis.joint.items(), key=str)
        ],
        "violations": asdict(diagnosis.violations),
        "local_failures": {code.value: count for code, count in diagnosis.local_failures.items()},
        "matching": asdict(diagnosis.matching),
        "alias_matching": asdict(diagnosis.alias_matching),
        "correct_but_insufficient": diagnosis.correct_but_insufficient,
        "incorrect_but_sufficient": diagnosis.incorrect_but_sufficient,
        "inconsistent": diagnosis.inconsistent,
        "unjudged": {criterion.value: dict(reasons) for criterion, reasons in diagnosis.unjudged.items()},
        "flips": {name: _flips(counts) for name, counts in diagnosis.flips.items()},
        "same_family": [{"judge": judge, "model": model} for judge, model in diagnosis.same_family_pairs],
        "left_out": [{"response": response, "reason": reason} for response, reason in context.left_out],
        "rejected": {name: dict(reasons) for name, reasons in context.rejected.items()},
        "comparison": None if context.base is None else _comparison(context.base),
    }


def _headline(statement: HeadlineStatement) -> dict[str, Any]:
    return {
        "kind": statement.kind,
        "figure": str(statement.figure),
        "lead": statement.lead,
        "whose": statement.whose,
        "responses": statement.count,
        "detail": statement.detail,
    }


def _agreement(row: LabelAgreementRow, *, stratified: bool) -> dict[str, Any]:
    return {
        "label": row.label.value,
        "labelled": row.labelled,
        "n": row.n,
        **estimate_to_dict(row.agreement),
        "misses": row.misses,
        # Of a sample drawn by the judge's labels the interval would say nothing about the run.
        "missed": estimate_to_dict(Estimate(row.missed.value, None) if stratified else row.missed),
        "false_alarms": row.false_alarms,
        "kappa": estimate_to_dict(row.scores.kappa),
    }


def _flips(counts: LabelFlipCounts) -> dict[str, Any]:
    return {
        "responses": counts.responses,
        "flipped": counts.flipped,
        "value": counts.rate,
        "interval": _ends(counts.interval),
        "pairs": counts.pairs,
        "differing": counts.differing,
        "pair_rate": counts.pair_rate,
    }


def _group(summary: GroupRates, benchmark: str | None = None, model: str | None = None) -> dict[str, Any]:
    parts = summary.composition
    return {
        "benchmark": benchmark,
        "model": model,
        "responses": summary.responses,
        "questions": summary.questions,
        "rates": {metric.value: _rate(summary, metric) for metric in summary.rates},
        "trace_groups": {str(group or "undecided"): count for group, count in parts.groups.items()},
        "failures": {str(failure): count for failure, count in parts.failures.items()},
        "gap_failures": {str(failure): count for failure, count in parts.gap_failures.items()},
    }


def _rate(summary: GroupRates, metric: Metric) -> dict[str, Any]:
    """Return a rate; ``value`` is null where too little was judged, and ``of_judged`` is the rate of the judged."""
    shown_rate = ShownRate.of_group(summary, metric)
    rate, estimate = shown_rate.rate, shown_rate.estimate
    return {
        "hits": rate.hits,
        "n": rate.n,
        "unjudged": rate.unjudged,
        # A reader that takes only `value` must not get a rate of too few labels.
        **estimate_to_dict(Estimate(None, None) if is_too_little_judged(rate) else estimate),
        "method": None if estimate.interval is None else INTERVAL_METHOD,
        "bounds": _ends(rate.bounds),
        "reading": str(shown_rate.status),
        "of_judged": estimate_to_dict(estimate),
        "wilson": _ends(rate.wilson),
    }


def _comparison(base: BaseComparison) -> dict[str, Any]:
    comparison = base.comparison
    return {
        "against": base.name,
        "cautions": list(base.cautions),
        "only_here": _unshared(comparison.run_alone),
        "only_there": _unshared(comparison.base_alone),
        "groups": [_compared(group) for group in comparison.groups],
        "pairs": comparison.paired,
        "transitions": [
            {"before": name_response_class(old), "after": name_response_class(new), "responses": count}
            for (old, new), count in comparison.transitions.items()
        ],
        "changed": [_changed(pair) for pair in comparison.changed],
    }


def _unshared(counts: UnsharedResponseCounts) -> dict[str, int]:
    return {
        "questions": counts.questions,
        "responses": counts.responses,
        "without_partner": counts.unpaired,
    }


def _compared(group: GroupRateComparison) -> dict[str, Any]:
    return {
        "benchmark": group.group[0] if group.group else None,
        "questions": group.questions,
        "responses": group.run_responses,
        "responses_there": group.base_responses,
        "differences": {metric.value: _difference(rate) for metric, rate in group.differences.items()},
    }


def _difference(difference: RateDifference) -> dict[str, Any]:
    return {
        "here": _counts(difference.run),
        "there": _counts(difference.base),
        **estimate_to_dict(difference.estimate),
        "constant": difference.constant,
        "bounds": _ends(difference.bounds),
    }


def _counts(rate: Rate) -> dict[str, Any]:
    return {"hits": rate.hits, "n": rate.n, "unjudged": rate.unjudged, "value": rate.value}


def _changed(pair: ResponsePair) -> dict[str, Any]:
    before, after = pair.classes
    return {
        "benchmark": pair.run.benchmark,
        "question": pair.run.instance_id,
        "response": pair.run.response_id,
        "response_there": pair.base.response_id,
        "before": name_response_class(before),
        "after": name_response_class(after),
    }


def estimate_to_dict(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate as plain values for JSON; undefined ones are null."""
    return {"value": estimate.value, "interval": _ends(estimate.interval), "undefined": estimate.undefined}


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
