"""The files of a detector report, in one folder. Each file is written completely or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
from eclose.store.records.atomic import AtomicFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.detection.study import DetectorStudy
    from eclose.detection.study_statistics import StudySettings


def write_detector_report(
    run: Path | str | Sequence[Path | str],
    scores: Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    verdicts: Path | str | None = None,
    settings: StudySettings | None = None,
    allow_stale: bool = False,
) -> dict[str, Path]:
    """Study the detectors of a run and write the tables and figures of the paper.

    Args:
        run: Folder of a run, or several: questions and responses, and judgments unless ``verdicts`` is given.
        scores: Files of detector scores.
        out: Folder of the report; it is made where it does not exist.
        verdicts: File of settled verdicts, such as those of people, instead of the judgments of the run.
        settings: Retention, folds, resamples and seed; those of the paper by default.
        allow_stale: Use results that were made from other files than those in the folder; the report says so.

    Returns:
        The path of each file by its name: ``detectors.json``, ``detectors.md``, ``detectors.tex`` and figures. Figures
        are left out without matplotlib.

    Raises:
        UserError: The files do not belong together, or hold no score or no decided response.
    """
    inputs = read_study_inputs(
        _list_paths(run), _list_paths(scores), None if verdicts is None else Path(verdicts), allow_stale=allow_stale
    )
    study = study_detectors(inputs.scores, inputs.responses, inputs.verdicts, settings)
    context = DetectorReportContext(label_source=inputs.label_source, notices=inputs.notices, left_out=inputs.left_out)
    return write_study_files(study, context, Path(out))


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
    paths = {}
    for name, data in files.items():
        paths[name] = folder / name
        with AtomicFile(paths[name]) as file:
            file.write(data)
    return paths


def _list_paths(paths: Path | str | Sequence[Path | str]) -> list[Path]:
    return [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
