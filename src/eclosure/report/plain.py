"""A diagnosis as one JSON value: every count, every rate with its interval and bounds, under keys that stay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from eclosure.diagnose import Evidence
from eclosure.report.notes import Notes

if TYPE_CHECKING:
    from eclosure.diagnose import Diagnosis
    from eclosure.metrics.rates import Metric
    from eclosure.metrics.summary import GroupSummary
    from eclosure.stats.intervals import Estimate, Interval

FORMAT = "eclosure-diagnosis-1"


def diagnosis_json(diagnosis: Diagnosis, notes: Notes | None = None) -> str:
    """One JSON object, in ASCII, with a line break at its end."""
    return json.dumps(plain(diagnosis, notes or Notes()), indent=1) + "\n"


def plain(diagnosis: Diagnosis, notes: Notes) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "format": FORMAT,
        "title": notes.title,
        "about": dict(notes.about),
        "judges": list(diagnosis.judges),
        "validation": notes.validation,
        "corrected": None
        if notes.corrected is None
        else {metric.value: _estimate(estimate) for metric, estimate in notes.corrected.items()},
        "responses": diagnosis.overall.responses,
        "questions": diagnosis.overall.questions,
        "groups": [_group(summary) for summary in diagnosis.groups],
        "by_evidence": {
            str(kind): _group(diagnosis.by_evidence[kind]) for kind in Evidence if kind in diagnosis.by_evidence
        },
        "joint": [
            {"L": labels[0], "A": labels[1], "C": labels[2], "responses": count}
            for labels, count in sorted(diagnosis.joint.items(), key=str)
        ],
        "local_failures": {code.value: count for code, count in diagnosis.local_failures.items()},
        "matching": {name: getattr(diagnosis.matching, name) for name in type(diagnosis.matching).__slots__},
        "correct_but_insufficient": diagnosis.correct_but_insufficient,
        "incorrect_but_sufficient": diagnosis.incorrect_but_sufficient,
        "inconsistent": diagnosis.inconsistent,
        "unjudged": {criterion.value: dict(reasons) for criterion, reasons in diagnosis.unjudged.items()},
        "left_out": [{"response": one, "reason": reason} for one, reason in notes.left_out],
    }


def _group(summary: GroupSummary) -> dict[str, Any]:
    parts = summary.composition
    benchmark, model = (*summary.group, None, None)[:2]
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
    rate, method = summary.rates[metric], summary.methods[metric]
    return {
        "hits": rate.hits,
        "n": rate.n,
        "unjudged": rate.unjudged,
        **_estimate(summary.estimates[metric]),
        "method": None if method is None else str(method),
        "bounds": _ends(rate.bounds),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "interval": _ends(estimate.interval), "undefined": estimate.undefined}


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
