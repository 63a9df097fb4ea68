"""The files of reports on detectors, in one folder each. Each file is written completely or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eclose.detectors.calibrate import read_calibration
from eclose.detectors.evaluate import evaluate_run
from eclose.detectors.joined import study_run
from eclose.detectors.scores import require_score_files, score_file_name
from eclose.files.atomic import write_files
from eclose.files.run_folder import list_paths
from eclose.report.detectors.documents import (
    render_detector_json,
    render_detector_latex,
    render_detector_markdown,
    render_evaluation_json,
    render_evaluation_markdown,
)
from eclose.report.detectors.figures import draw_detector_figures, draw_use_curves
from eclose.report.figures import explain_missing_figures
from eclose.report.style import render_figure_files
from eclose.report.write import FIGURES_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.detectors.evaluate import DetectorEvaluation
    from eclose.detectors.study_statistics import StudySettings

DETECTORS_FOLDER = "detectors"
"""Folder of a detector report within the folder of a run."""


def write_detector_report(
    run: Path | str | Sequence[Path | str],
    scores: Path | str | Sequence[Path | str] | None = None,
    out: Path | str | None = None,
    *,
    verdicts: Path | str | None = None,
    settings: StudySettings | None = None,
    allow_stale: bool = False,
) -> dict[str, Path]:
    """Study the detectors of a run and write the tables and figures of the paper.

    Args:
        run: Folder of a run, or several: questions and responses, and judgments unless ``verdicts`` is given.
        scores: Files of detector scores; by default every ``scores-*.jsonl`` in the folders.
        out: Folder of the report, made where it does not exist; by default ``detectors`` in the first run.
        verdicts: File of settled verdicts, such as those of people, instead of the judgments of the run.
        settings: Retention, folds, resamples and seed; those of the paper by default.
        allow_stale: Use results that were made from other files than those in the folder; the report says so.

    Returns:
        The path of each file by its name: ``detectors.json``, ``detectors.md``, ``detectors.tex`` and figures. Figures
        are left out without matplotlib.

    Raises:
        UserError: The files do not belong together, or hold no score or no decided response.

    Examples:
        >>> free = eclose.CallSettings(unpriced=True)
        >>> results = eclose.evaluate("run", judge=server, calls=free)
        >>> scores = eclose.detect("run", detector="alignment", model=server, calls=free)
        >>> from eclose.detectors.study_statistics import StudySettings
        >>> files = write_detector_report("run", settings=StudySettings(resamples=20))
        >>> sorted(files)[:3]
        ['detectors.json', 'detectors.md', 'detectors.tex']
    """
    runs = list_paths(run)
    score_files = require_score_files(runs) if scores is None else list_paths(scores)
    verdicts_file = None if verdicts is None else Path(verdicts)
    study = study_run(runs, score_files, verdicts=verdicts_file, settings=settings, allow_stale=allow_stale)
    # Render everything before the first write: an error leaves an old report untouched.
    files = {
        "detectors.json": render_detector_json(study).encode(),
        "detectors.md": render_detector_markdown(study).encode(),
        "detectors.tex": render_detector_latex(study).encode(),
    }
    if explain_missing_figures() is None:
        stale = [sentence for sentence in study.notices if sentence.startswith("STALE")][:1]
        figures = draw_detector_figures(study, ["Stale scores or labels: see detectors.md."] if stale else [])
        files |= {f"{FIGURES_FOLDER}/{name}": data for name, data in figures.items()}
    return write_files(runs[0] / DETECTORS_FOLDER if out is None else Path(out), files)


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
    files = {
        "evaluation.json": render_evaluation_json(evaluation).encode(),
        "evaluation.md": render_evaluation_markdown(evaluation).encode(),
    }
    if explain_missing_figures() is None:
        figures = render_figure_files(lambda: draw_use_curves(evaluation))
        files |= {f"{FIGURES_FOLDER}/detector-use.{kind}": data for kind, data in figures.items()}
    folder = runs[0] / f"evaluation-{thresholds.detector}" if out is None else Path(out)
    return evaluation, write_files(folder, files)
