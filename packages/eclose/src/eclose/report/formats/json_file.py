"""The diagnosis as one JSON object: every count and every rate with its interval and bounds, under stable keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from eclose.diagnosis.diagnose import EvidenceSufficiency
from eclose.diagnosis.shown_rate import ShownRate, is_too_little_judged
from eclose.metrics.summary import INTERVAL_METHOD
from eclose.report.context import ReportContext
from eclose.report.explorer import name_response_class
from eclose.report.headline import build_report_headline
from eclose.stats.intervals import Estimate, Interval
from eclose.stats.rates import Rate

if TYPE_CHECKING:
    from eclose.diagnosis.compare import RateDifference, UnsharedResponseCounts
    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.metrics.judge_against_people import LabelAgreementRow
    from eclose.metrics.rates import Metric
    from eclose.metrics.repeats import LabelFlipCounts
    from eclose.metrics.summary import GroupRates
    from eclose.report.context import BaseComparison
    from eclose.report.document import ReportTable


def render_diagnosis_json(diagnosis: Diagnosis, context: ReportContext | None = None) -> str:
    """Return one JSON object in ASCII, with a final line break."""
    return dump_json(_diagnosis_to_dict(diagnosis, context or ReportContext()))


def dump_json(data: Mapping[str, Any]) -> str:
    """Return a report as JSON in ASCII, with a final line break; NaN and infinity are refused, as they are no JSON."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _diagnosis_to_dict(diagnosis: Diagnosis, context: ReportContext) -> dict[str, Any]:
    return {
        # The keys are a public format: add keys, never rename them.
        "format": "eclose-diagnosis-1",
        "title": context.title,
        "about": dict(context.about),
        "stale": list(context.stale),
        "selected": list(context.selected),
        "provenance": None if context.checked is None else "checked" if context.checked else "unchecked",
        "judges": list(diagnosis.judges),
        "headline": [
            {
                "kind": statement.kind,
                "figure": str(statement.figure),
                "lead": statement.lead,
                "whose": statement.whose,
                "responses": statement.count,
                "detail": statement.detail,
            }
            for statement in build_report_headline(diagnosis, context)
        ],
        "validation": context.validation,
        "validated": context.validated,
        "settled_by_people": context.settled_by_people,
        "corrected": to_plain(context.corrected),
        "agreement": [_agreement(row, stratified=context.stratified) for row in context.agreement],
        "responses": diagnosis.overall.responses,
        "questions": diagnosis.overall.questions,
        "without_trace": diagnosis.without_trace,
        "unread_traces": diagnosis.unread_traces,
        "prose_traces": diagnosis.prose_traces,
        **_readings(diagnosis),
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
        "local_failures": to_plain(diagnosis.local_failures),
        "matching": asdict(diagnosis.matching),
        "alias_matching": asdict(diagnosis.alias_matching),
        "correct_but_insufficient": diagnosis.correct_but_insufficient,
        "incorrect_but_sufficient": diagnosis.incorrect_but_sufficient,
        "inconsistent": diagnosis.inconsistent,
        **({"requested": to_plain(diagnosis.requested)} if diagnosis.requested else {}),
        **({"abstentions": to_plain(diagnosis.abstentions)} if diagnosis.abstentions else {}),
        "unjudged": to_plain(diagnosis.unjudged),
        "flips": {name: _flips(counts) for name, counts in diagnosis.flips.items()},
        "same_family": [{"judge": judge, "model": model} for judge, model in diagnosis.same_family_pairs],
        "left_out": [{"response": response, "reason": reason} for response, reason in context.left_out],
        "rejected": to_plain(context.rejected),
        "comparison": None if context.base is None else _comparison(context.base),
    }


def _readings(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "stratum": diagnosis.stratum.value,
        "apart": {str(stratum): _group(summary) for stratum, summary in diagnosis.apart.items()},
        "readings": [
            {"status": str(status), "origin": origin, "rule": rule, "responses": count}
            for (status, origin, rule), count in diagnosis.readings.items()
        ],
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
        "failures": to_plain(parts.failures),
        "gap_failures": to_plain(parts.gap_failures),
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
        "groups": [
            {
                "benchmark": group.group[0] if group.group else None,
                "questions": group.questions,
                "responses": group.run_responses,
                "responses_there": group.base_responses,
                "differences": {metric.value: _difference(rate) for metric, rate in group.differences.items()},
            }
            for group in comparison.groups
        ],
        "pairs": comparison.paired,
        "transitions": [
            {"before": name_response_class(old), "after": name_response_class(new), "responses": count}
            for (old, new), count in comparison.transitions.items()
        ],
        "changed": [
            {
                "benchmark": pair.run.benchmark,
                "question": pair.run.instance_id,
                "response": pair.run.response_id,
                "response_there": pair.base.response_id,
                "before": name_response_class(pair.classes[0]),
                "after": name_response_class(pair.classes[1]),
            }
            for pair in comparison.changed
        ],
    }


def _unshared(counts: UnsharedResponseCounts) -> dict[str, int]:
    return {"questions": counts.questions, "responses": counts.responses, "without_partner": counts.unpaired}


def _difference(difference: RateDifference) -> dict[str, Any]:
    return {
        "here": rate_to_dict(difference.run),
        "there": rate_to_dict(difference.base),
        **estimate_to_dict(difference.estimate),
        "constant": difference.constant,
        "bounds": _ends(difference.bounds),
    }


def to_plain(value: Any) -> Any:
    """Return a value of a report as JSON holds it: records as objects by field, rates and estimates by their keys."""
    if isinstance(value, Estimate):
        return estimate_to_dict(value)
    if isinstance(value, Rate):
        return rate_to_dict(value)
    if isinstance(value, Interval):
        return _ends(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, tuple):
        return [to_plain(entry) for entry in value]
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    return value


def table_to_dict(table: ReportTable) -> dict[str, Any]:
    """Return a table as it is printed: a text for each cell, with its details behind it."""
    rows = [[" ".join((cell.text, *cell.details)).strip() for cell in row] for row in table.rows]
    return {"key": table.key, "title": table.title, "heads": list(table.heads), "rows": rows, "note": table.note}


def rate_to_dict(rate: Rate) -> dict[str, Any]:
    """Return a rate as plain values for JSON."""
    return {"hits": rate.hits, "n": rate.n, "unjudged": rate.unjudged, "value": rate.value}


def estimate_to_dict(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate as plain values for JSON; undefined ones are null."""
    return {"value": estimate.value, "interval": _ends(estimate.interval), "undefined": estimate.undefined}


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
