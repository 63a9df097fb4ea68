"""``eclose detect``: calibrate thresholds, evaluate detectors, and choose among several responses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from eclose.cli.shared.output import (
    AllowStale,
    OtherBenchmark,
    format_count,
    format_percent,
    format_percent_with_interval,
    print_line,
    print_step_result,
    print_table,
)
from eclose.cli.shared.recipe import recipe_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.detectors.calibrate import DetectorCalibration
    from eclose.detectors.evaluate import DetectorEvaluation
    from eclose.detectors.select_answer import ChoiceSettings, ChosenRun


LabelledRuns: TypeAlias = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Folders of scored and labelled runs.", file_okay=False)
]
Verdicts: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="File of settled verdicts, such as those of people.  [default: the judgments of the runs]", dir_okay=False
    ),
]


def calibrate(
    runs: LabelledRuns,
    *,
    scores: Annotated[
        list[Path] | None,
        typer.Option(help="File of scores; repeatable.  [default: every scores-*.jsonl in the runs]", dir_okay=False),
    ] = None,
    verdicts: Verdicts = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File of the calibration, for one detector.  [default: calibration-DETECTOR.json in the first run]",
            dir_okay=False,
        ),
    ] = None,
    max_fpr: Annotated[
        float, typer.Option(help="Largest share of the reliable responses that may be flagged (0 to 1).")
    ] = 0.05,
    band: Annotated[float, recipe_key()] = 0.15,
    heads: Annotated[list[str] | None, recipe_key("--head")] = None,
    allow_stale: AllowStale = False,
) -> None:
    """Set the threshold of a detector on your own labelled responses.

    Writes a small file with the scores of the reliable responses. A response is flagged where it ranks below the
    threshold among them; with several heads, the lowest rank counts. The file holds for this model and revision, and
    for responses of the same benchmark.
    """
    from eclose.detectors.calibrate import CalibrationSettings, calibrate_run

    settings = CalibrationSettings(max_false_positive_rate=max_fpr, uncertain_share=band, heads=tuple(heads or ()))
    calibrations = calibrate_run(
        runs, scores or (), verdicts=verdicts, settings=settings, out=out, allow_stale=allow_stale
    )
    for path, calibration in calibrations.items():
        _print_calibration(calibration)
        print_line(f"{path}: written")


def _print_calibration(calibration: DetectorCalibration) -> None:
    from eclose.detectors.study_statistics import FAILURE_GROUPS, StudyGroup

    for sentence in calibration.notices:
        print_line(sentence)
    shares = {StudyGroup.RELIABLE: calibration.false_positive_rate, **calibration.recalls}
    rows = []
    for group in (StudyGroup.RELIABLE, *FAILURE_GROUPS):
        counts = calibration.counts.groups[group]
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts.unscored.items())
        share = shares[group]
        rows.append((group.value, f"{counts.scored:,}", "-" if share is None else format_percent(share), reasons))
    print_table(
        f"{calibration.detector} with {calibration.model}, on {', '.join(calibration.benchmarks)}; flagged below rank "
        f"{calibration.threshold:.3f}, uncertain below {calibration.uncertain_below:.3f}",
        ("group", "scored", "flagged, %", "not scored"),
        rows,
    )


def evaluate(
    runs: LabelledRuns,
    *,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="File of a calibration (eclose detect calibrate), to evaluate that detector alone.", dir_okay=False
        ),
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            help="File of scores; repeatable.  [default: every scores-*.jsonl in the runs; with --calibration, "
            "scores-DETECTOR.jsonl]",
            dir_okay=False,
        ),
    ] = None,
    verdicts: Verdicts = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the report.  [default: detectors in the first run; with --calibration, "
            "evaluation-DETECTOR]",
        ),
    ] = None,
    retention: Annotated[float | None, recipe_key(min=0, max=1)] = None,
    resamples: Annotated[int, recipe_key(min=1)] = 2_000,
    seed: Annotated[int, recipe_key()] = 42,
    other_benchmark: OtherBenchmark = False,
    allow_stale: AllowStale = False,
) -> None:
    """Compare detectors with the verdicts on the same responses, or evaluate a calibrated one.

    Writes detectors.md, detectors.json, detectors.tex and two figures, the tables and figures of the paper's study:
    AUROC, recall at 95 % retention, cross-fitted rates and mean scores of every group of responses. What has no score
    or no group is left out and counted by reason.

    With --calibration, for responses that the detector was not calibrated on, writes evaluation.md, evaluation.json and
    a figure: the share of each group that the threshold flags, AUROC and cross-fitted rates beside word overlap and
    other simple controls, the judge calls that a cascade saves against the gaps it misses, and reliability against
    coverage where low ranks are abstained on.
    """
    from eclose.detectors.calibrate import read_calibration
    from eclose.detectors.study_statistics import StudySettings
    from eclose.errors import SettingError
    from eclose.report.detectors.write import write_detector_evaluation, write_detector_report
    from eclose.report.figures import explain_missing_figures

    if calibration is None:
        if other_benchmark:
            raise SettingError("other_benchmark: belongs to a calibration. Name one with --calibration.")
        retention = 0.95 if retention is None else retention
        settings = StudySettings(retention=retention, resamples=resamples, seed=seed)
        files = write_detector_report(runs, scores, out, verdicts=verdicts, settings=settings, allow_stale=allow_stale)
        _print_files(files)
        if (missing := explain_missing_figures()) is not None:
            print_line(f"  {missing}")
        return
    if retention is not None:
        raise SettingError("retention: the calibration has its own. Leave out one of the two.")
    retention = read_calibration(calibration).settings.retention
    evaluation, files = write_detector_evaluation(
        runs,
        calibration,
        scores=scores or (),
        verdicts=verdicts,
        out=out,
        settings=StudySettings(retention=retention, resamples=resamples, seed=seed),
        allow_other_benchmark=other_benchmark,
        allow_stale=allow_stale,
    )
    _print_evaluation(evaluation)
    _print_files(files)


def _print_files(files: Mapping[str, Path]) -> None:
    for path in files.values():
        print_line(f"  {path}")


def _print_evaluation(evaluation: DetectorEvaluation) -> None:
    from eclose.report.detectors.tables import ROBUSTNESS_TABLE, build_detector_tables, build_evaluation_tables

    for sentence in evaluation.study.notices:
        print_line(sentence)
    robustness = [table for table in build_detector_tables(evaluation.study) if table.key == ROBUSTNESS_TABLE]
    for table in (*build_evaluation_tables(evaluation), *robustness):
        print_table(
            table.title, table.heads, [[" ".join((cell.text, *cell.details)) for cell in row] for row in table.rows]
        )
        print_line("")


def choose(
    run: Annotated[Path, typer.Argument(help="Folder of a run with several responses to a question.", file_okay=False)],
    *,
    scores: Annotated[
        Path | None,
        typer.Option(help="Scores of one detector.  [default: scores-verifier.jsonl in the run]", dir_okay=False),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Calibration of the detector; its ranks replace the scores.", dir_okay=False)
    ] = None,
    strategy: Annotated[
        Literal["majority-verifier", "verifier", "majority", "random"],
        typer.Option(
            help="majority-verifier: the highest score among responses with the most frequent answer; verifier: the "
            "highest score; majority: the first response with the most frequent answer; random: any."
        ),
    ] = "majority-verifier",
    min_agreement: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Abstain where a smaller share of a question's responses has the chosen answer."
        ),
    ] = 0.0,
    min_score: Annotated[
        float, typer.Option(min=0, max=1, help="Abstain where the chosen response scores or ranks lower (0 to 1).")
    ] = 0.0,
    seed: Annotated[int, recipe_key()] = 42,
    verdicts: Annotated[
        Path | None, typer.Option(help="File of settled verdicts; all strategies are then compared.", dir_okay=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File of the choices.  [default: choices.jsonl in the run]")
    ] = None,
    other_benchmark: OtherBenchmark = False,
    force: Annotated[bool, typer.Option("--force", help="Replace choices that were made otherwise.")] = False,
) -> None:
    """Choose the best response to each question, or none where agreement or score is too low.

    Writes one record a question: the chosen response with its agreement and score, or the reason why there is none.
    """
    from eclose.detectors.scores import DetectorKind, score_file_name
    from eclose.detectors.select_answer import ChoiceSettings, ChoiceStrategy, choose_run

    settings = ChoiceSettings(
        strategy=ChoiceStrategy(strategy), min_agreement=min_agreement, min_score=min_score, seed=seed
    )
    default = run / score_file_name(DetectorKind.VERIFIER)
    if scores is None and (default.is_file() or settings.uses_scores):
        scores = default
    chosen = choose_run(
        run,
        scores=scores,
        calibration=calibration,
        settings=settings,
        out=out,
        allow_other_benchmark=other_benchmark,
        force=force,
    )
    for sentence in chosen.notices:
        print_line(sentence)
    print_step_result(chosen.step.step, chosen.step.counts, again=chosen.step.again)
    _print_choices(chosen, settings)
    if verdicts is not None:
        _print_strategies(chosen, settings, verdicts)


def _print_choices(chosen: ChosenRun, settings: ChoiceSettings) -> None:
    from collections import Counter

    total = len(chosen.choices)
    counts = Counter("chosen" if row.abstained is None else f"none: {row.abstained}" for row in chosen.choices)
    rows = [(name, f"{count:,}", f"{format_percent(count / total)} %") for name, count in counts.most_common()]
    print_table(f"{settings.strategy}, of {format_count(total, 'question')}", ("outcome", "n", "share"), rows)


def _print_strategies(chosen: ChosenRun, settings: ChoiceSettings, verdicts: Path) -> None:
    from eclose.detectors.select_answer import ChoiceStrategy, evaluate_choices
    from eclose.files.jsonl import read_records
    from eclose.stats.intervals import wilson_interval
    from eclose.values.verdict import SettledVerdict

    labels = list(read_records(verdicts, SettledVerdict))
    qualities = {"as written": evaluate_choices(chosen.choices, labels)}
    qualities |= {
        f"{strategy}, no abstention": evaluate_choices(chosen.compare_strategy(strategy, settings.seed), labels)
        for strategy in ChoiceStrategy
    }
    rows = [
        (
            name,
            f"{quality.chosen:,}",
            format_percent_with_interval(
                quality.reliable_share, wilson_interval(quality.reliable, quality.reliability_known)
            ),
            format_percent_with_interval(quality.accuracy, wilson_interval(quality.correct, quality.correctness_known)),
        )
        for name, quality in qualities.items()
    ]
    print_line("")
    print_table("Chosen responses by the verdicts", ("strategy", "chosen", "reliable", "correct"), rows)
