"""The report of a calibrated detector: its rates beside controls, the cascade with a judge, and abstention."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.detection.calibration import read_calibration
from eclose.detection.evaluation import evaluate_run
from eclose.detection.scores import DetectorBand, score_file_name
from eclose.detection.study_statistics import StudyGroup
from eclose.diagnosis.report.detectors.documents import (
    DetectorReportContext,
    list_study_cautions,
    study_to_dict,
    table_to_dict,
)
from eclose.diagnosis.report.detectors.tables import GROUP_WORDS, build_detector_tables
from eclose.diagnosis.report.markdown import escape_markdown, make_markdown_table
from eclose.diagnosis.report.number_format import (
    add_no_break_spaces,
    format_percent,
    format_percent_interval,
    format_score,
)
from eclose.diagnosis.report.plots.figures import explain_missing_figures
from eclose.diagnosis.report.plots.style import FIGURE_WIDTH, GROUP_COLOURS, LINE_GREY, TRACK_GREY, remove_frame
from eclose.diagnosis.report.plots.style import render_figure_files as render_files
from eclose.diagnosis.report.scores.names import name_detectors
from eclose.diagnosis.report.table import ReportTable, ReportTableCell
from eclose.diagnosis.report.to_json import estimate_to_dict
from eclose.diagnosis.report.write import FIGURES_FOLDER
from eclose.store.records.atomic import write_files
from eclose.store.runs.folder import list_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.figure import Figure

    from eclose.detection.evaluation import AbstentionPoint, DetectorEvaluation
    from eclose.detection.study_statistics import StudySettings

EVALUATION_FORMAT = "eclose-detector-evaluation-1"
COVERAGES = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Coverages that the table of abstention shows."""


def write_detector_evaluation(
    run: Path | str | Sequence[Path | str],
    calibration: Path | str,
    *,
    scores: Sequence[Path | str] = (),
    verdicts: Path | str | None = None,
    out: Path | str | None = None,
    settings: StudySettings | None = None,
    allow_other_benchmark: bool = False,
    allow_stale: bool = False,
) -> tuple[DetectorEvaluation, dict[str, Path]]:
    """Evaluate a calibrated detector on a labelled run, and write tables, curves and figures.

    Args:
        run: Folder of a run, or several: questions and responses, and judgments unless ``verdicts`` is given.
        calibration: File of the calibration.
        scores: Files of the detector's scores; by default ``scores-<detector>.jsonl`` of each run.
        verdicts: File of settled verdicts, such as those of people, instead of the judgments of the run.
        out: Folder of the report; by default ``evaluation-<detector>`` in the first run.
        settings: Folds, resamples and seed; the retention follows from the calibration by default.
        allow_other_benchmark: Use a calibration of another benchmark; the report says so.
        allow_stale: Use results that were made from other files than those in the folder; the report says so.

    Returns:
        The evaluation, and the path of each file by its name: ``evaluation.json``, ``evaluation.md`` and figures.

    Raises:
        UserError: The files do not belong together, or not to the calibration.
    """
    runs = list_paths(run)
    thresholds = read_calibration(calibration)
    evaluation = evaluate_run(
        runs,
        [Path(path) for path in scores] or [folder / score_file_name(thresholds.detector) for folder in runs],
        thresholds,
        verdicts=None if verdicts is None else Path(verdicts),
        settings=settings,
        allow_other_benchmark=allow_other_benchmark,
        allow_stale=allow_stale,
    )
    folder = runs[0] / f"evaluation-{thresholds.detector}" if out is None else Path(out)
    return evaluation, write_evaluation_files(evaluation, folder)


def write_evaluation_files(evaluation: DetectorEvaluation, folder: Path) -> dict[str, Path]:
    """Write the files of an evaluation; return their paths by name."""
    # Render everything before the first write: an error leaves an old report untouched.
    files = {
        "evaluation.json": render_evaluation_json(evaluation).encode(),
        "evaluation.md": render_evaluation_markdown(evaluation).encode(),
    }
    if explain_missing_figures() is None:
        figures = render_files(lambda: draw_use_curves(evaluation), ())
        files |= {f"{FIGURES_FOLDER}/detector-use.{kind}": data for kind, data in figures.items()}
    return write_files(folder, files)


def build_evaluation_tables(evaluation: DetectorEvaluation) -> tuple[ReportTable, ...]:
    """Return the tables of the calibrated threshold, of judge calls, and of abstention."""
    return (
        _build_threshold_table(evaluation),
        _build_judge_calls_table(evaluation),
        _build_abstention_table(evaluation),
    )


def _build_threshold_table(evaluation: DetectorEvaluation) -> ReportTable:
    """Return the share of each group that the calibrated threshold flags, and its responses in each band."""
    rows = []
    for group in StudyGroup:
        share = evaluation.flagged[group]
        interval = (format_percent_interval(share.interval),) if share.interval else ()
        counts = (ReportTableCell(f"{evaluation.bands[band][group]:,}") for band in DetectorBand)
        rows.append(
            (ReportTableCell(GROUP_WORDS[group]), ReportTableCell(format_percent(share.value), interval), *counts)
        )
    settings = evaluation.calibration.settings
    note = (
        f"Flagged: percent of the group's scored responses below the threshold that allowed"
        f" {100 * settings.max_false_positive_rate:g} % false positives on the calibration responses; of the reliable"
        " ones it is the FPR. Questions are drawn with all their responses. The other columns count responses;"
        f" uncertain takes the next {100 * settings.uncertain_share:g} % of the reliable calibration responses."
    )
    heads = ("group", "flagged, %", *DetectorBand)
    return ReportTable("calibrated-threshold", "At the calibrated threshold", heads, tuple(rows), note)


def _build_judge_calls_table(evaluation: DetectorEvaluation) -> ReportTable:
    """Return the judged responses that each recall of the gap takes, by the detector, by controls and by chance."""
    names = name_detectors([result.detector for result in evaluation.study.results])
    identity = evaluation.calibration.identity
    # The detector first; then the controls in their order.
    detectors = [identity, *(detector for detector in names if detector != identity)]
    rows = tuple(
        (
            ReportTableCell(format_percent(calls.recall)),
            ReportTableCell(f"{evaluation.responses - calls.judged[identity]:,}"),
            *(ReportTableCell(f"{calls.judged[detector]:,}") for detector in detectors),
            ReportTableCell(f"{calls.by_chance:,}"),
        )
        for calls in evaluation.judge_calls
    )
    heads = ("recall of LGG, %", "saved", *(f"judged: {names[detector]}" for detector in detectors), "judged: chance")
    note = (
        f"Responses that a judge must see, lowest scores first, to see at least this part of LGG, of"
        f" {evaluation.responses:,}. Saved: responses that need no judge by {names[identity]}. Responses without a"
        " score are always judged. Thresholds are those of these responses. evaluation.json has every threshold."
    )
    return ReportTable("judge-calls", "Judge calls at equal recall", heads, rows, note)


def _build_abstention_table(evaluation: DetectorEvaluation) -> ReportTable:
    """Return reliability and accuracy of the answered responses at a few coverages."""
    points = [_find_coverage(evaluation.abstention, coverage) for coverage in COVERAGES]
    rows = tuple(
        (
            ReportTableCell(format_percent(point.coverage)),
            ReportTableCell(f"{point.answered:,}"),
            ReportTableCell(format_percent(point.reliable)),
            ReportTableCell(format_percent(point.correct), (f"of {point.correctness_known:,}",)),
            ReportTableCell("all" if point.threshold is None else format_score(point.threshold)),
        )
        for point in dict.fromkeys(points)
    )
    note = "Responses with the lowest ranks are left out first, after those without a score; equal ranks go together."
    heads = ("coverage, %", "answered", "reliable, %", "correct, %", "lowest rank")
    return ReportTable("abstention", "Abstention", heads, rows, note)


def _find_coverage(points: Sequence[AbstentionPoint], coverage: float) -> AbstentionPoint:
    """Return the point of the smallest coverage that is at least as large; the first point answers everything."""
    return min((point for point in points if point.coverage >= coverage), key=lambda point: point.coverage)


def render_evaluation_markdown(evaluation: DetectorEvaluation) -> str:
    """Return the evaluation as Markdown."""
    return add_no_break_spaces("\n".join(_list_lines(evaluation))) + "\n"


def _list_lines(evaluation: DetectorEvaluation) -> Iterator[str]:
    calibration = evaluation.calibration
    yield f"# {calibration.detector}, calibrated\n"
    yield f"> **{escape_markdown(evaluation.label_source)}**"
    cautions = (*calibration.notices, *list_study_cautions(evaluation.study, _context(evaluation)))
    for sentence in dict.fromkeys(cautions):
        yield f">\n> {escape_markdown(sentence)}"
    yield (
        f"\nModel: {escape_markdown(calibration.model)}. Calibrated on {len(calibration.ranks):,} reliable responses of"
        f" {escape_markdown(', '.join(calibration.benchmarks))}; heads: {', '.join(calibration.heads)}; threshold at"
        f" rank {format_score(calibration.threshold)} ({calibration.fingerprint})."
    )
    for table in (*build_evaluation_tables(evaluation), *build_detector_tables(evaluation.study)):
        yield from make_markdown_table(table)


def _context(evaluation: DetectorEvaluation) -> DetectorReportContext:
    return DetectorReportContext(
        label_source=evaluation.label_source, notices=evaluation.notices, left_out=evaluation.left_out
    )


def render_evaluation_json(evaluation: DetectorEvaluation) -> str:
    """Return one JSON object in ASCII: the calibration, every rate, and the curves at every threshold."""
    calibration = evaluation.calibration
    data: dict[str, Any] = {
        # The keys are a public format: add keys, never rename them.
        "format": EVALUATION_FORMAT,
        "detector": str(calibration.detector),
        "model": calibration.model,
        "calibration": {
            "fingerprint": calibration.fingerprint,
            "benchmarks": list(calibration.benchmarks),
            "settings": asdict(calibration.settings),
            "reliable": len(calibration.ranks),
            "threshold": calibration.threshold,
            "uncertain_below": calibration.uncertain_below,
            "notices": list(calibration.notices),
        },
        "responses": evaluation.responses,
        "flagged": {str(group): estimate_to_dict(share) for group, share in evaluation.flagged.items()},
        "bands": {
            str(band): {str(group): count for group, count in counts.items()}
            for band, counts in evaluation.bands.items()
        },
        "abstention": [point._asdict() for point in evaluation.abstention],
        "cascade": [point._asdict() for point in evaluation.cascade],
        "judge_calls": [
            {
                "recall": calls.recall,
                "by_chance": calls.by_chance,
                "judged": [
                    {"detector": str(detector.kind), "model": detector.model, "judged": count}
                    for detector, count in calls.judged.items()
                ],
            }
            for calls in evaluation.judge_calls
        ],
        "tables": [table_to_dict(table) for table in build_evaluation_tables(evaluation)],
        "study": study_to_dict(evaluation.study, _context(evaluation)),
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def draw_use_curves(evaluation: DetectorEvaluation) -> Figure:
    """Draw gaps missed against judge calls saved, and reliability against coverage."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure((FIGURE_WIDTH, 2.4), layout="constrained")
    cascade, abstention = figure.subplots(1, 2)
    colour, total = GROUP_COLOURS["path_deviation"], evaluation.responses
    missed = [(point.saved / total, 1 - point.recall) for point in evaluation.cascade if point.recall is not None]
    cascade.plot([0, 1], [0, 1], color=LINE_GREY, linewidth=0.8, linestyle=(0, (3, 2)))
    cascade.plot([x for x, _ in missed], [y for _, y in missed], color=colour, linewidth=1.1)
    cascade.set_xlabel("judge calls saved, %", fontsize=7)
    cascade.set_ylabel("LGG missed, %", fontsize=7)
    reliable = [(point.coverage, point.reliable) for point in evaluation.abstention if point.reliable is not None]
    abstention.plot(*zip(*reliable, strict=True), color=GROUP_COLOURS["reliable"], linewidth=1.1)
    abstention.set_xlabel("coverage, %", fontsize=7)
    abstention.set_ylabel("reliable among answered, %", fontsize=7)
    for axes in (cascade, abstention):
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xticks([0, 0.5, 1], ["0", "50", "100"])
        axes.set_yticks([0, 0.5, 1], ["0", "50", "100"])
        axes.tick_params(labelsize=6)
        axes.grid(color=TRACK_GREY)
        remove_frame(axes)
    return figure
