"""Tables of detectors as cells of plain text: the paper's three, what was left out, and those of a calibration."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from eclose.detectors.scores import DetectorBand
from eclose.detectors.study_statistics import FAILURE_GROUPS, GAP_CLASSES, StudyGroup
from eclose.diagnosis.number_format import format_count, format_percent, format_score
from eclose.report.document import ReportTable, ReportTableCell, ReportTableRow, make_percent_cell, make_score_cell
from eclose.report.scores import name_detectors
from eclose.report.wording import FAILURE_WORDS
from eclose.values.verdict import FailureClass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eclose.detectors.evaluate import DetectorEvaluation
    from eclose.detectors.joined import DetectorStudy
    from eclose.detectors.study_statistics import DetectorResult
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
    tables = [*_build_paper_tables(study, study.results, study.groups)]
    if study.common:
        where = f", on the {format_count(study.common_responses, 'response')} that every detector scored"
        # On the common responses every detector has the same numbers of responses.
        tables += [
            replace(table, key=f"{table.key}-common", title=f"{table.title}{where}")
            for table in _build_paper_tables(study, study.common, study.common[0].scored)
        ]
    tables += [_build_counts_table(study), _build_undecided_table(study)]
    return tuple(table for table in tables if table.rows)


def _build_paper_tables(
    study: DetectorStudy, results: Sequence[DetectorResult], sizes: Mapping[StudyGroup, int]
) -> Iterator[ReportTable]:
    yield _build_blindness_table(study, results, sizes)
    yield _build_scores_table(study, results, sizes)
    yield _build_robustness_table(study, results)


def _build_blindness_table(
    study: DetectorStudy, results: Sequence[DetectorResult], sizes: Mapping[StudyGroup, int]
) -> ReportTable:
    """Return AUROC and R@95 of every failure group: Table 1 of the paper."""
    recall = name_recall(study)
    names = name_detectors([result.detector for result in results])
    heads = [head for name in names.values() for head in (f"{name} AUC", f"{name} {recall}")]
    rows: list[ReportTableRow] = []
    for group in FAILURE_GROUPS:
        cells: list[str | ReportTableCell] = [GROUP_WORDS[group], f"{sizes[group]:,}"]
        for result in results:
            separation = result.separations[group]
            cells.append(ReportTableCell(format_score(separation.auroc.value), _fewer(result, group, sizes)))
            cells.append(format_percent(separation.recall.value))
        rows.append(cells)
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
    return ReportTable.of(BLINDNESS_TABLE, "What detectors miss", ("group", "n", *heads), rows, note)


def name_recall(study: DetectorStudy) -> str:
    """Return ``R@95`` for a retention of 0.95."""
    return f"R@{100 * study.settings.retention:g}"


def _fewer(result: DetectorResult, group: StudyGroup, sizes: Mapping[StudyGroup, int]) -> tuple[str, ...]:
    """Return the number of scored responses where it is not that of the group."""
    return () if result.scored[group] == sizes[group] else (f"n {result.scored[group]:,}",)


def _build_scores_table(
    study: DetectorStudy, results: Sequence[DetectorResult], sizes: Mapping[StudyGroup, int]
) -> ReportTable:
    rows: tuple[ReportTableRow, ...] = tuple(
        (
            GROUP_WORDS[group],
            f"{sizes[group]:,}",
            *(make_score_cell(result.means[group], _fewer(result, group, sizes)) for result in results),
        )
        for group in StudyGroup
    )
    note = (
        f"Means with {_describe_intervals(study)}; questions are drawn among those with a response in the group."
        f"{_describe_undefined(study, [result.means[group] for result in results for group in StudyGroup])}"
    )
    names = name_detectors([result.detector for result in results]).values()
    return ReportTable.of(SCORES_TABLE, "Mean scores", ("group", "n", *names), rows, note)


def _build_robustness_table(study: DetectorStudy, results: Sequence[DetectorResult]) -> ReportTable:
    """Return the statistics of the gap with their intervals, and the cross-fitted rates."""
    rows: list[ReportTableRow] = []
    estimates: list[Estimate] = []
    names = name_detectors([result.detector for result in results])
    for result in results:
        gap = result.separations[StudyGroup.GAP]
        rates = (gap.recall, result.false_positive_rate, result.held_out_false_positive_rate, result.held_out_recall)
        estimates += [gap.auroc, *rates]
        figures: ReportTableRow = (
            make_score_cell(gap.auroc),
            *map(make_percent_cell, rates),
            format_score(result.threshold),
        )
        rows.append((names[result.detector], *figures))
    note = (
        f"LGG against reliable responses, {_describe_intervals(study)}; all questions are drawn, with all their"
        " responses, and every threshold is recalibrated. FPR: percent of the reliable responses below the threshold."
        f" CF: cross-fitted over {study.settings.folds} fixed folds of questions, stratified by dataset; the threshold"
        " comes from the reliable responses of the other folds, and counts are pooled."
        f"{_describe_undefined(study, estimates)}"
    )
    heads = ("detector", "AUROC", name_recall(study), "FPR", "CF FPR", "CF recall", "threshold")
    return ReportTable.of(ROBUSTNESS_TABLE, "Detection of LGG, with intervals", heads, rows, note)


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
    names = name_detectors(tuple(study.counts))
    rows: list[ReportTableRow] = []
    for detector, counts in study.counts.items():
        columns = (*(counts.groups[group] for group in StudyGroup), counts.undecided)
        rows.append((names[detector], "scored", *(f"{part.scored:,}" for part in columns)))
        rows += [
            ("", f"no score: {reason}", *(f"{part.unscored.get(reason, 0):,}" for part in columns))
            for reason in sorted({reason for part in columns for reason in part.unscored})
        ]
        if counts.unknown_responses:
            rows.append(("", f"{format_count(counts.unknown_responses, 'score')} of responses outside the study"))
    heads = ("detector", "responses", *(GROUP_WORDS[group] for group in StudyGroup), "undecided")
    note = (
        "The three classes are parts of LGG. Responses without a score are in no statistic of the detector, and"
        " undecided responses in none at all."
    )
    return ReportTable.of("detector-counts", "Scored and unscored responses", heads, rows, note)


def _build_undecided_table(study: DetectorStudy) -> ReportTable:
    rows = [(f"no group: {reason}", f"{count:,}") for reason, count in study.undecided.items()]
    # The class that is known of them says what is missing: closure failure lacks K, undetermined lacks A.
    rows += [
        (f"LGG, in none of the three classes: {FAILURE_WORDS[FailureClass(reason)][0]}", f"{count:,}")
        for reason, count in study.unclassified.items()
    ]
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
    # The smallest coverage that is at least as large; the first point answers everything.
    points = [
        min((point for point in evaluation.abstention if point.coverage >= coverage), key=attrgetter("coverage"))
        for coverage in COVERAGES
    ]
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
