"""The files of a detector report, in one folder. Each file is written completely or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eclose.detection.scores import require_score_files
from eclose.detection.study import study_detectors
from eclose.detection.study_inputs import read_study_inputs
from eclose.diagnosis.report.detectors.documents import (
    DetectorReportContext,
    render_detector_json,
    render_detector_latex,
    render_detector_markdown,
)
from eclose.diagnosis.report.detectors.figures import draw_detector_figures
from eclose.diagnosis.report.plots.figures import explain_missing_figures
from eclose.diagnosis.report.write import FIGURES_FOLDER
from eclose.store.records.atomic import write_files
from eclose.store.runs.folder import list_paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.detection.study import DetectorStudy
    from eclose.detection.study_statistics import StudySettings

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
        >>> files = eclose.write_detector_report("run", settings=eclose.StudySettings(resamples=20))
        >>> sorted(files)[:3]
        ['detectors.json', 'detectors.md', 'detectors.tex']
    """
    runs = list_paths(run)
    score_files = require_score_files(runs) if scores is None else list_paths(scores)
    verdicts_file = None if verdicts is None else Path(verdicts)
    inputs = read_study_inputs(runs, score_files, verdicts_file, allow_stale=allow_stale)
    study = study_detectors(inputs.scores, inputs.responses, inputs.verdicts, settings)
    context = DetectorReportContext(label_source=inputs.label_source, notices=inputs.notices, left_out=inputs.left_out)
    return write_study_files(study, context, runs[0] / DETECTORS_FOLDER if out is None else Path(out))


def write_study_files(study: DetectorStudy, context: DetectorReportContext, folder: Path) -> dict[str, Path]:
    """Write the files of a study; return their paths by name."""
    # Render everything before the first write: an error leaves an old report untouched.
    files = {
        "detectors.json": render_detector_json(study, context).encode(),
        "detectors.md": render_detector_markdown(study, context).encode(),
        "detectors.tex": render_detector_latex(study, context).encode(),
    }
    if explain_missing_figures() is None:
        stale = [sentence for sentence in context.notices if sentence.startswith("STALE")][:1]
        figures = draw_detector_figures(study, ["Stale scores or labels: see detectors.md."] if stale else [])
        files |= {f"{FIGURES_FOLDER}/{name}": data for name, data in figures.items()}
    return write_files(folder, files)
