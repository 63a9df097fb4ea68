"""A comparison with a base run as sentences and tables of plain text. Each output format escapes them itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eclose.diagnosis.compare import (
    RESPONSE_CLASSES,
    GroupRateComparison,
    ResponseClass,
    ResponsePair,
    RunComparison,
    classify_response,
    compare_counted_runs,
    count_transitions,
)
from eclose.diagnosis.label_table import pair_labels
from eclose.diagnosis.number_format import (
    DASH,
    format_count,
    format_percent,
    format_signed_interval,
    format_signed_percent,
)
from eclose.diagnosis.run_counts import RunCounts, count_other_passages, refuse_reused_questions
from eclose.diagnosis.shown_rate import TOO_LITTLE_TEXT, is_too_little_judged
from eclose.metrics.rates import VERDICTS, Metric
from eclose.report.context import BaseComparison
from eclose.report.document import TABLE_METRICS, ReportTable, ReportTableCell, ReportTableRow, describe_judged
from eclose.report.explorer import describe_response_class, name_response_class
from eclose.report.sections import describe_few_questions
from eclose.report.wording import METRIC_WORDS, name_response_group
from eclose.values.verdict import TraceGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eclose.diagnosis.compare import RateDifference
    from eclose.readers.judged_run import LeftOutResponse
    from eclose.stats.rates import Rate


_PAIRS_NOT_LISTED = (
    "The runs are large: all pairs of responses are counted, and those of the listed responses are shown."
)


def compare_with_base_run(
    run: RunCounts, base: RunCounts, name: str, *, rng: np.random.Generator, resamples: int = 2_000
) -> BaseComparison:
    """Compare two judged runs; where one is large, pairs of responses are counted and not listed."""
    # One id for two questions would pair responses to different questions.
    refuse_reused_questions(run, base)
    sides = (run.labels.counted_run(), base.labels.counted_run())
    comparison = compare_counted_runs(*sides, rng=rng, resamples=resamples)
    judges = (run.labels.list_judges(), base.labels.list_judges())
    other_passages = count_other_passages(run, base)
    cautions = tuple(_list_comparison_cautions(judges, other_passages, comparison, base.caveats.left_out))
    # Where the name of a run stands before every id, none is that of a response of the base run.
    labels = replace(run.labels, ids=np.zeros_like(run.labels.ids)) if run.repeated_ids else run.labels
    rows, partners = pair_labels(labels, base.labels)
    old = base.labels.verdict[partners]
    comparison = comparison.with_transitions(count_transitions(old, labels.verdict[rows]))
    if run.sampled or base.sampled:
        cautions = (*cautions, _PAIRS_NOT_LISTED)
    else:
        cases, base_cases = run.case_set.cases, base.case_set.cases
        pairs = zip(rows.tolist(), partners.tolist(), strict=True)
        listed = tuple(ResponsePair(base_cases[partner].row, cases[row].row) for row, partner in pairs)
        comparison = replace(comparison, pairs=listed)
    verdicts = dict(zip(rows.tolist(), old.tolist(), strict=True))
    before = {
        case.response.id: classify_response(VERDICTS[verdicts[row]])
        for row, case in zip(run.shown.tolist(), run.case_set.cases, strict=True)
        if row in verdicts
    }
    return BaseComparison(name, comparison, cautions, before)


def _list_comparison_cautions(
    judges: tuple[set[str], set[str]],
    other_passages: int,
    comparison: RunComparison,
    left_out: Sequence[LeftOutResponse],
) -> Iterator[str]:
    """Yield reasons why a difference may not be one of the responses.

    Args:
        judges: Judges of the run and of the base run.
        other_passages: Number of shared questions with other passages in the base run.
        comparison: The comparison.
        left_out: Responses of the base run without a case, with the reason.
    """
    run_judges, base_judges = judges
    if run_judges != base_judges:
        yield (
            f"This run was judged by {' and '.join(sorted(run_judges))}, the other one by "
            f"{' and '.join(sorted(base_judges))}: "
            "a difference may come from the judges."
        )
    if other_passages:
        shared = "shared question has" if other_passages == 1 else "shared questions have"
        yield f"{other_passages:,} {shared} other passages in the other run: a difference may come from them."
    yield from describe_few_questions(comparison.overall.questions, "shared questions")
    for reason, count in sorted(Counter(reason for _, reason in left_out).items()):
        yield f"{format_count(count, 'response')} of the other run left out: {reason}."


HIGHLIGHTED_METRICS = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.ACCURACY)
"""The rates whose difference is stated in a sentence."""


def describe_run_comparison(base: BaseComparison) -> tuple[str, ...]:
    """Return sentences on the compared questions, the changed rates and the changed responses."""
    comparison = base.comparison
    overall = comparison.overall
    compared = (
        f"Compared on {format_count(overall.questions, 'question')} that both runs answer: "
        f"{format_count(overall.run_responses, 'response')} here, {overall.base_responses:,} there."
    )
    # Only the rates that most readers look for; the table has all of them.
    moved = (_difference_sentence(metric, overall.differences[metric]) for metric in HIGHLIGHTED_METRICS)
    return (compared, _unshared_sentence(comparison), *moved, _change_sentence(comparison))


def _unshared_sentence(comparison: RunComparison) -> str:
    parts = []
    for run_name, counts in (("this run", comparison.run_alone), ("the other run", comparison.base_alone)):
        if counts.questions:
            responses = format_count(counts.responses, "response")
            parts.append(f"{format_count(counts.questions, 'question')} ({responses}) of {run_name} only")
    return f"Not compared: {'; '.join(parts)}." if parts else "Both runs answer the same questions."


def _difference_sentence(metric: Metric, difference: RateDifference) -> str:
    name = METRIC_WORDS[metric][0]
    name = name[0].upper() + name[1:]
    estimate = difference.estimate
    if estimate.value is None or estimate.interval is None:
        lacking = [
            run for run, rate in (("this run", difference.run), ("the other run", difference.base)) if not rate.n
        ]
        return f"{name} ({metric.value}): not defined in {' and '.join(lacking)}, so there is no difference."
    if is_too_little_judged(difference.run, difference.base):
        return f"{name} ({metric.value}): too little judged to compare{_open_difference(difference)}."
    # Percentage points, since a relative change of a small rate misleads.
    figure = f"{format_signed_percent(estimate.value)} points {format_signed_interval(estimate.interval)}"
    low, high = estimate.interval
    verdict = "higher" if low > 0 else "lower" if high < 0 else "no clear change"
    values = f"{format_percent(difference.run.value)} % after {format_percent(difference.base.value)} %"
    if difference.run.unjudged or difference.base.unjudged:
        values += f" of the judged{_open_difference(difference)}"
    return f"{name} ({metric.value}): {figure}, {verdict} ({values})."


def _open_difference(difference: RateDifference) -> str:
    if difference.bounds is None:
        return ""
    low, high = map(format_signed_percent, difference.bounds)
    return f"; the difference lies between {low} and {high} points"


def _change_sentence(comparison: RunComparison) -> str:
    reliable = TraceGroup.RELIABLE
    # Transitions are keyed by (class in the base run, class in this run).
    stayed = sum(count for (old, new), count in comparison.transitions.items() if old == new)
    # A pair with an undecided side did not change: a label is missing.
    won = _count_transitions(comparison, lambda old, new: new is reliable and old not in (reliable, None))
    lost = _count_transitions(comparison, lambda old, new: old is reliable and new not in (reliable, None))
    open_ = _count_transitions(comparison, lambda old, new: (old is None) != (new is None))
    unpaired = (comparison.run_alone.unpaired, comparison.base_alone.unpaired)
    sentence = f"Of {format_count(comparison.paired, 'pair')} of responses {stayed:,} stay in their class; "
    sentence += f"{won:,} became reliable, {lost:,} no longer {'is' if lost == 1 else 'are'}"
    sentence += f", {open_:,} {'is' if open_ == 1 else 'are'} decided in one run only." if open_ else "."
    if any(unpaired):
        unpaired_of_run = f"{format_count(unpaired[0], 'response')} of this run"
        sentence += f" Without a partner: {unpaired_of_run}, {unpaired[1]:,} of the other; they count in the rates."
    return sentence


def _count_transitions(comparison: RunComparison, condition: Callable[[ResponseClass, ResponseClass], bool]) -> int:
    return sum(count for (old, new), count in comparison.transitions.items() if condition(old, new))


def tabulate_run_comparison(base: BaseComparison) -> tuple[ReportTable, ...]:
    """Return the tables of differences, of differences by dataset where there are several, and of changed classes."""
    comparison = base.comparison
    tables = [_difference_table(comparison.overall)]
    if len(comparison.groups) > 1:
        tables.append(_dataset_table(comparison.groups))
    return (*tables, _transition_table(comparison))


_DIFFERENCE_NOTE = (
    "Percent, and points for the difference, with its 95 % interval: questions are resampled within datasets, "
    "with their responses in both runs. * every resample gives the same difference. "
    "† in some resamples there was nothing to count, and these are left out. "
    "Differences are those of the judge's rates, not corrected by labels of people. "
    "Of 20 such intervals about one excludes 0 by chance."
)


def _difference_table(overall: GroupRateComparison) -> ReportTable:
    unjudged = any(rate.run.unjudged or rate.base.unjudged for rate in overall.differences.values())
    # The column of bounds appears only where responses are unjudged.
    heads = ("rate", "", "this run", "the other run", "difference", *(["bounds with unjudged"] if unjudged else []))
    rows: list[ReportTableRow] = []
    for metric in TABLE_METRICS:
        rate = overall.differences[metric]
        rates = _rate_cell(rate.run), _rate_cell(rate.base)
        bounds = (_bounds(rate),) if unjudged else ()
        rows.append((metric.value, METRIC_WORDS[metric][0], *rates, _difference_cell(rate), *bounds))
    return ReportTable.of("differences", "Every rate, this run minus the other", heads, rows, _DIFFERENCE_NOTE)


def _rate_cell(rate: Rate) -> ReportTableCell:
    # The counts are printed even where the rate is withheld.
    value = DASH if is_too_little_judged(rate) else format_percent(rate.value)
    return ReportTableCell(value, (describe_judged(rate.n, rate.unjudged),))


def _difference_cell(difference: RateDifference) -> ReportTableCell:
    estimate = difference.estimate
    if estimate.value is None:
        return ReportTableCell("undefined")
    if is_too_little_judged(difference.run, difference.base):
        return ReportTableCell(TOO_LITTLE_TEXT)
    # The marks are explained in the note below the table.
    marks = ("*" if difference.constant else "") + ("†" if estimate.undefined else "")
    return ReportTableCell(
        format_signed_percent(estimate.value), (f"{format_signed_interval(estimate.interval)}{marks}",)
    )


def _bounds(difference: RateDifference) -> str:
    # Without unjudged responses the bounds equal the difference.
    if difference.bounds is None or not (difference.run.unjudged or difference.base.unjudged):
        return DASH
    return f"{format_signed_percent(difference.bounds.low)} to {format_signed_percent(difference.bounds.high)}"


def _dataset_table(groups: Sequence[GroupRateComparison]) -> ReportTable:
    rows: tuple[ReportTableRow, ...] = tuple(
        (
            name_response_group(group.group) if group.group else "all shared questions",
            f"{group.questions:,}",
            *(_difference_cell(group.differences[metric]) for metric in TABLE_METRICS),
        )
        for group in groups
    )
    heads = ("dataset", "questions", *(metric.value for metric in TABLE_METRICS))
    return ReportTable.of("differences-by-dataset", "The differences by dataset", heads, rows)


def _transition_table(comparison: RunComparison) -> ReportTable:
    """Return pairs by the class in the base run (rows) and in this run (columns); only classes that occur."""
    old_classes = [kind for kind in RESPONSE_CLASSES if any(old == kind for old, _ in comparison.transitions)]
    new_classes = [kind for kind in RESPONSE_CLASSES if any(new == kind for _, new in comparison.transitions)]
    rows: list[ReportTableRow] = []
    for old in old_classes:
        before = f"before={name_response_class(old)}"
        counts = {new: comparison.transitions.get((old, new), 0) for new in new_classes}
        cells = (
            ReportTableCell(f"{count:,}", show=f"{before}&outcome={name_response_class(new)}") if count else DASH
            for new, count in counts.items()
        )
        rows.append((describe_response_class(old), *cells, ReportTableCell(f"{sum(counts.values()):,}", show=before)))
    totals = [sum(comparison.transitions.get((old, new), 0) for old in old_classes) for new in new_classes]
    # Totals of columns have no links, which would also show responses without a partner.
    rows.append(("all", *(f"{total:,}" for total in totals), f"{comparison.paired:,}"))
    note = (
        "Rows: the class in the other run. Columns: the class in this one. Responses to one question are partners "
        "where they have one id, else where they are the only ones of one model and seed, or the only ones at all."
    )
    heads = ("was", *(describe_response_class(kind) for kind in new_classes), "all")
    return ReportTable.of("transitions", "Which class responses went to", heads, rows, note)
