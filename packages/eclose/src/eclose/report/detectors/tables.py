"""Tables of detectors as cells of plain text: the paper's three, what was left out, and those of a calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.detectors.scores import DetectorBand
from eclose.detectors.study_statistics import FAILURE_GROUPS, GAP_CLASSES, StudyGroup
from eclose.diagnosis.number_format import format_count, format_percent, format_score, format_score_interval
from eclose.report.document import ReportTable, ReportTableCell, ReportTableRow, make_percent_cell
from eclose.report.scores import name_detectors
from eclose.report.wording import FAILURE_WORDS
from eclose.values.verdict import FailureClass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eclose.detectors.evaluate import AbstentionPoint, DetectorEvaluation
    from eclose.detectors.joined import DetectorStudy
    from eclose.detectors.study_statistics import DetectorIdentity, DetectorResult
    from eclose.stats.intervals import Estimate

GROUP_WORDS: dict[StudyGroup, str] = {
    StudyGroup.RELIABLE: "reliable",
    StudyGroup.GAP: "LGG",
    **{group: FAILURE_WORDS[FailureClass(group.value)][0] for group in GAP_CLASSES},
    StudyGroup.LOCALLY_UNSOUND: "locally unsound",
}
"""Names of the groups in tables and figures."""

BLINDNESS_TABLE, SCORES_TABLE, ROBUSTNESS_TABLE = "detector-blindness", "detector-scores", "detector-robustness"
"""Keys of the paper's three tables."""
COVERAGES = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Coverages that the table of abstention shows."""


def build_detector_tables(study: DetectorStudy) -> tuple[ReportTable, ...]:
    """Return the paper's tables, the same on the common responses where detectors differ, and what was left out."""
    tables = [*_build_paper_tables(study, study.results)]
    if study.common:
        shared = f"{format_count(study.common_responses, 'response')} that every detector scored"
        tables += _build_paper_tables(study, study.common, "-common", f", on the {shared}")
    tables += [_build_counts_table(study), _build_undecided_table(study)]
    return tuple(table for table in tables if table.rows)


def _build_paper_tables(
    study: DetectorStudy, results: Sequence[DetectorResult], suffix: str = "", where: str = ""
) -> Iterator[ReportTable]:
    """Yield the three tables; the suffix tells their keys from those of other responses."""
    names = name_detectors([result.detector for result in results])
    # On the common responses every detector has the same numbers of responses.
    sizes = results[0].scored if suffix else study.groups
    yield _build_blindness_table(study, results, names, sizes, suffix, where)
    yield _build_scores_table(study, results, names, sizes, suffix, where)
    yield _build_robustness_table(study, results, names, suffix, where)


def _build_blindness_table(
    study: DetectorStudy,
    results: Sequence[DetectorResult],
    names: Mapping[DetectorIdentity, str],
    sizes: Mapping[StudyGroup, int],
    suffix: str,
    where: str,
) -> ReportTable:
    """Return AUROC and R@95 of every failure group: Table 1 of the paper."""
    recall = name_recall(study)
    heads = [head for name in names.values() for head in (f"{name} AUC", f"{name} {recall}")]
    rows: list[ReportTableRow] = []
    for group in FAILURE_GROUPS:
        cells: list[str | ReportTableCell] = [GROUP_WORDS[group], f"{sizes[group]:,}"]
        for result in results:
            separation = result.separations[group]
            cells.append(ReportTableCell(format_score(separation.auroc.value), _fewer(result, group, sizes)))
            cells.append(format_percent(separation.recall.value))
        rows.append(tuple(cells))
    rates = ", ".join(
        f"{names[result.detector]} {format_percent(result.false_positive_rate.value)}" for result in results
    )
    note = (
        f"Each group against the same {sizes[StudyGroup.RELIABLE]:,} reliable responses. AUC: probability that a failed"
        f" response scores below a reliable one, ties half. {recall}: percent of the group strictly below the highest"
        f" observed score that leaves {100 * study.settings.retention:g} % of the reliable responses unflagged."
        f" Percent of the reliable responses that are flagged: {rates}."
        " n beneath a value: scored responses of the group, where some have no score."
    )
    title = f"What detectors miss{where}"
    return ReportTable.of(BLINDNESS_TABLE + suffix, title, ("group", "n", *heads), rows, note)


def name_recall(study: DetectorStudy) -> str:
    """Return ``R@95`` for a retention of 0.95."""
    return f"R@{100 * study.settings.retention:g}"


def _fewer(result: DetectorResult, group: StudyGroup, sizes: Mapping[StudyGroup, int]) -> tuple[str, ...]:
    """Return the number of scored responses where it is not that of the group."""
    return () if result.scored[group] == sizes[group] else (f"n {result.scored[group]:,}",)


def _build_scores_table(
    study: DetectorStudy,
    results: Sequence[DetectorResult],
    names: Mapping[DetectorIdentity, str],
    sizes: Mapping[StudyGroup, int],
    suffix: str,
    where: str,
) -> ReportTable:
    rows: tuple[ReportTableRow, ...] = tuple(
        (
            GROUP_WORDS[group],
            f"{sizes[group]:,}",
            *(_make_score_cell(result.means[group], _fewer(result, group, sizes)) for result in results),
        )
        for group in StudyGroup
    )
    note = (
        f"Means with {_describe_intervals(study)}; questions are drawn among those with a response in the group."
        f"{_describe_undefined(study, [result.means[group] for result in results for group in StudyGroup])}"
    )
    return ReportTable.of(SCORES_TABLE + suffix, f"Mean scores{where}", ("group", "n", *names.values()), rows, note)


def _make_score_cell(estimate: Estimate, details: tuple[str, ...] = ()) -> ReportTableCell:
    interval = (format_score_interval(estimate.interval),) if estimate.interval else ()
    return ReportTableCell(format_score(estimate.value), (*interval, *details))


def _build_robustness_table(
    study: DetectorStudy,
    results: Sequence[DetectorResult],
    names: Mapping[DetectorIdentity, str],
    suffix: str,
    where: str,
) -> ReportTable:
    """Return the statistics of the gap with their intervals, and the cross-fitted rates."""
    rows: list[ReportTableRow] = []
    estimates: list[Estimate] = []
    for result in results:
        gap = result.separations[StudyGroup.GAP]
        rates = (gap.recall, result.false_positive_rate, result.held_out_false_positive_rate, result.held_out_recall)
        estimates += [gap.auroc, *rates]
        rows.append(
            (
                names[result.detector],
                _make_score_cell(gap.auroc),
                *map(make_percent_cell, rates),
                format_score(result.threshold),
            )
        )
    note = (
        f"LGG against reliable responses, {_describe_intervals(study)}; all questions are drawn, with all their"
        " responses, and every threshold is recalibrated. FPR: percent of the reliable responses below the threshold."
        f" CF: cross-fitted over {study.settings.folds} fixed folds of questions, stratified by dataset; the threshold"
        " comes from the reliable responses of the other folds, and counts are pooled."
        f"{_describe_undefined(study, estimates)}"
    )
    heads = ("detector", "AUROC", name_recall(study), "FPR", "CF FPR", "CF recall", "threshold")
    return ReportTable.of(ROBUSTNESS_TABLE + suffix, f"Detection of LGG, with intervals{where}", heads, rows, note)


def _describe_intervals(study: DetectorStudy) -> str:
    settings = study.settings
    return f"{100 * settings.level:g} % percentile intervals of {settings.resamples:,} resamples (seed {settings.seed})"


def _describe_undefined(study: DetectorStudy, estimates: Sequence[Estimate]) -> str:
    """Return a sentence on resamples without a value; empty where there are none, or where nothing is defined."""
    most = max((estimate.undefined for estimate in estimates if estimate.interval), default=0)
    if not most:
        return ""
    return (
        f" Resamples that drew no response to compute a value from are left out of its interval: at most {most:,} of"
        f" {study.settings.resamples:,}."
    )


def _build_counts_table(study: DetectorStudy) -> ReportTable:
    """Return the scored responses of each group, and the others by reason."""
    names = name_detectors(tuple(study.counts))
    rows: list[ReportTableRow] = []
    for detector, counts in study.counts.items():
        columns = (*(counts.groups[group] for group in StudyGroup), counts.undecided)
        rows.append(_count_row(names[detector], "scored", [part.scored for part in columns]))
        rows += [
            _count_row("", f"no score: {reason}", [part.unscored.get(reason, 0) for part in columns])
            for reason in sorted({reason for part in columns for reason in part.unscored})
        ]
        if counts.unknown_responses:
            unused = f"{format_count(counts.unknown_responses, 'score')} of responses outside the study"
            rows.append(("", unused))
    heads = ("detector", "responses", *(GROUP_WORDS[group] for group in StudyGroup), "undecided")
    note = (
        "The three classes are parts of LGG. Responses without a score are in no statistic of the detector, and"
        " undecided responses in none at all."
    )
    return ReportTable.of("detector-counts", "Scored and unscored responses", heads, rows, note)


def _count_row(name: str, what: str, counts: Sequence[int]) -> ReportTableRow:
    return (name, what, *(f"{count:,}" for count in counts))


def _build_undecided_table(study: DetectorStudy) -> ReportTable:
    """Return the responses without a group, and those of the gap without a class, by reason."""
    undecided = [(f"no group: {reason}", count) for reason, count in study.undecided.items()]
    # The class that is known of them says what is missing: closure failure lacks K, undetermined lacks A.
    unclassified = [
        (f"LGG, in none of the three classes: {FAILURE_WORDS[FailureClass(reason)][0]}", count)
        for reason, count in study.unclassified.items()
    ]
    rows = tuple((reason, f"{count:,}") for reason, count in (*undecided, *unclassified))
    return ReportTable.of("detector-undecided", "Responses with too few labels", ("reason", "responses"), rows)


def build_evaluation_tables(evaluation: DetectorEvaluation) -> tuple[ReportTable, ...]:
    """Return the tables of the calibrated threshold, of judge calls, and of abstention."""
    return (
        _build_threshold_table(evaluation),
        _build_judge_calls_table(evaluation),
        _build_abstention_table(evaluation),
    )


def _build_threshold_table(evaluation: DetectorEvaluation) -> ReportTable:
    """Return the share of each group that the calibrated threshold flags, and its responses in each band."""
    rows: list[ReportTableRow] = []
    for group in StudyGroup:
        counts = (f"{evaluation.bands[band][group]:,}" for band in DetectorBand)
        rows.append((GROUP_WORDS[group], make_percent_cell(evaluation.flagged[group]), *counts))
    settings = evaluation.calibration.settings
    note = (
        f"Flagged: percent of the group's scored responses below the threshold that allowed"
        f" {100 * settings.max_false_positive_rate:g} % false positives on the calibration responses; of the reliable"
        " ones it is the FPR. Questions are drawn with all their responses. The other columns count responses;"
        f" uncertain takes the next {100 * settings.uncertain_share:g} % of the reliable calibration responses."
    )
    heads = ("group", "flagged, %", *DetectorBand)
    return ReportTable.of("calibrated-threshold", "At the calibrated threshold", heads, rows, note)


def _build_judge_calls_table(evaluation: DetectorEvaluation) -> ReportTable:
    """Return the judged responses that each recall of the gap takes, by the detector, by controls and by chance."""
    names = name_detectors([result.detector for result in evaluation.study.results])
    identity = evaluation.calibration.identity
    # The detector first; then the controls in their order.
    detectors = [identity, *(detector for detector in names if detector != identity)]
    rows = tuple(
        (
            format_percent(calls.recall),
            f"{evaluation.responses - calls.judged[identity]:,}",
            *(f"{calls.judged[detector]:,}" for detector in detectors),
            f"{calls.by_chance:,}",
        )
        for calls in evaluation.judge_calls
    )
    heads = ("recall of LGG, %", "saved", *(f"judged: {names[detector]}" for detector in detectors), "judged: chance")
    note = (
        f"Responses that a judge must see, lowest scores first, to see at least this part of LGG, of"
        f" {evaluation.responses:,}. Saved: responses that need no judge by {names[identity]}. Responses without a"
        " score are always judged. Thresholds are those of these responses. evaluation.json has every threshold."
    )
    return ReportTable.of("judge-calls", "Judge calls at equal recall", heads, rows, note)


def _build_abstention_table(evaluation: DetectorEvaluation) -> ReportTable:
    """Return reliability and accuracy of the answered responses at a few coverages."""
    points = [_find_coverage(evaluation.abstention, coverage) for coverage in COVERAGES]
    rows = tuple(
        (
            format_percent(point.coverage),
            f"{point.answered:,}",
            format_percent(point.reliable),
            ReportTableCell(format_percent(point.correct), (f"of {point.correctness_known:,}",)),
            "all" if point.threshold is None else format_score(point.threshold),
        )
        for point in dict.fromkeys(points)
    )
    note = "Responses with the lowest ranks are left out first, after those without a score; equal ranks go together."
    heads = ("coverage, %", "answered", "reliable, %", "correct, %", "lowest rank")
    return ReportTable.of("abstention", "Abstention", heads, rows, note)


def _find_coverage(points: Sequence[AbstentionPoint], coverage: float) -> AbstentionPoint:
    """Return the point of the smallest coverage that is at least as large; the first point answers everything."""
    return min((point for point in points if point.coverage >= coverage), key=lambda point: point.coverage)
