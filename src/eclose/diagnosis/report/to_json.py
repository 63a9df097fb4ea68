"""A diagnosis as one JSON value: every count, every rate with its interval and bounds, under keys that stay."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from eclose.diagnosis.diagnose import Evidence
from eclose.diagnosis.report.context import ReportContext
from eclose.diagnosis.report.filters import class_name
from eclose.diagnosis.report.format import RateStatus, agreement_of, rate_status
from eclose.diagnosis.report.headline import headline_items
from eclose.metrics.summary import INTERVAL_METHOD
from eclose.stats.intervals import Estimate

if TYPE_CHECKING:
    from eclose.diagnosis.compare import GroupComparison, RateDifference, ResponsePair, UnsharedCounts
    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.diagnosis.report.context import BaseComparison
    from eclose.diagnosis.report.headline import HeadlineItem
    from eclose.metrics.judge_agreement import LabelRow
    from eclose.metrics.rates import Metric
    from eclose.metrics.repeat_consistency import FlipCounts
    from eclose.metrics.summary import GroupSummary
    from eclose.stats.intervals import Interval
    from eclose.stats.rates import Rate

FORMAT = "eclose-diagnosis-1"


def render_json(diagnosis: Diagnosis, notes: ReportContext | None = None) -> str:
    """One JSON object, in ASCII, with a line break at its end."""
    return json.dumps(to_plain(diagnosis, notes or ReportContext()), indent=1) + "\n"


def to_plain(diagnosis: Diagnosis, notes: ReportContext) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "format": FORMAT,
        "title": notes.title,
        "about": dict(notes.about),
        "stale": list(notes.stale),
        "provenance": None if notes.checked is None else "checked" if notes.checked else "unchecked",
        "judges": list(diagnosis.judges),
        "headline": [_headline(statement) for statement in headline_items(diagnosis, notes)],
        "validation": notes.validation,
        "validated": notes.validated,
        "corrected": None
        if notes.corrected is None
        else {metric.value: _estimate(estimate) for metric, estimate in notes.corrected.items()},
        "agreement": [_agreement(row) for row in notes.agreement],
        "responses": diagnosis.overall.responses,
        "questions": diagnosis.overall.questions,
        "groups": [_group(summary, *summary.group) for summary in diagnosis.groups],
        "by_model": [_group(summary, model=summary.group[0]) for summary in diagnosis.by_model],
        "by_dataset": [_group(summary, summary.group[0]) for summary in diagnosis.by_dataset],
        "by_evidence": {
            str(kind): _group(diagnosis.by_evidence[kind]) for kind in Evidence if kind in diagnosis.by_evidence
        },
        "joint": [
            {"L": labels[0], "A": labels[1], "C": labels[2], "responses": count}
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
        "flips": {name: _flips(one) for name, one in diagnosis.flips.items()},
        "same_family": [{"judge": judge, "model": model} for judge, model in diagnosis.kin],
        "left_out": [{"response": one, "reason": reason} for one, reason in notes.left_out],
        "rejected": {name: dict(reasons) for name, reasons in notes.rejected.items()},
        "comparison": None if notes.against is None else _comparison(notes.against),
    }


def _headline(statement: HeadlineItem) -> dict[str, Any]:
    return {
        "kind": statement.kind,
        "figure": str(statement.figure),
        "lead": statement.lead,
        "whose": statement.whose,
        "responses": statement.count,
        "detail": statement.detail,
    }


def _agreement(row: LabelRow) -> dict[str, Any]:
    return {
        "label": row.label.value,
        "labelled": row.labelled,
        "n": row.n,
        **_estimate(agreement_of(row)),
        "misses": row.misses,
        "false_alarms": row.false_alarms,
        "kappa": _estimate(row.scores.kappa),
    }


def _flips(one: FlipCounts) -> dict[str, Any]:
    return {
        "responses": one.responses,
        "flipped": one.flipped,
        "value": one.rate,
        "interval": _ends(one.interval),
        "pairs": one.pairs,
        "differing": one.differing,
        "pair_rate": one.pair_rate,
    }


def _group(summary: GroupSummary, benchmark: str | None = None, model: str | None = None) -> dict[str, Any]:
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


def _rate(summary: GroupSummary, metric: Metric) -> dict[str, Any]:
    """A rate; ``value`` is null where too little was judged, and ``of_judged`` is the rate of what was."""
    rate, interval = summary.rates[metric], summary.estimates[metric].interval
    told = rate_status(rate)
    return {
        "hits": rate.hits,
        "n": rate.n,
        "unjudged": rate.unjudged,
        **_estimate(summary.estimates[metric] if told is not RateStatus.TOO_LITTLE else Estimate(None, None)),
        "method": None if interval is None else INTERVAL_METHOD,
        "bounds": _ends(rate.bounds),
        "reading": str(told),
        "of_judged": _estimate(summary.estimates[metric]),
        "wilson": _ends(rate.wilson),
    }


def _comparison(against: BaseComparison) -> dict[str, Any]:
    found = against.comparison
    return {
        "against": against.name,
        "cautions": list(against.cautions),
        "only_here": _alone(found.run_alone),
        "only_there": _alone(found.base_alone),
        "groups": [_compared(group) for group in found.groups],
        "pairs": len(found.pairs),
        "transitions": [
            {"before": class_name(old), "after": class_name(new), "responses": count}
            for (old, new), count in found.transitions.items()
        ],
        "changed": [_changed(pair) for pair in found.changed],
    }


def _alone(alone: UnsharedCounts) -> dict[str, int]:
    return {
        "questions": alone.questions,
        "responses": alone.responses,
        "without_partner": alone.unpaired,
    }


def _compared(group: GroupComparison) -> dict[str, Any]:
    return {
        "benchmark": group.group[0] if group.group else None,
        "questions": group.questions,
        "responses": group.run_responses,
        "responses_there": group.base_responses,
        "differences": {metric.value: _difference(one) for metric, one in group.differences.items()},
    }


def _difference(one: RateDifference) -> dict[str, Any]:
    return {
        "here": _counts(one.run),
        "there": _counts(one.base),
        **_estimate(one.estimate),
        "constant": one.constant,
        "bounds": _ends(one.bounds),
    }


def _counts(rate: Rate) -> dict[str, Any]:
    return {"hits": rate.hits, "n": rate.n, "unjudged": rate.unjudged, "value": rate.value}


def _changed(pair: ResponsePair) -> dict[str, Any]:
    before, after = pair.kinds
    return {
        "benchmark": pair.run.benchmark,
        "question": pair.run.instance_id,
        "response": pair.run.response_id,
        "response_there": pair.base.response_id,
        "before": class_name(before),
        "after": class_name(after),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "interval": _ends(estimate.interval), "undefined": estimate.undefined}


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
