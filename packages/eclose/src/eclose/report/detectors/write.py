"""Reports on detectors in one folder each: a study of several, and the evaluation of a calibrated one.

Names of models and files are escaped in every format. Each file is written completely or not at all.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.detectors.calibrate import read_calibration
from eclose.detectors.evaluate import evaluate_run
from eclose.detectors.joined import study_run
from eclose.detectors.scores import require_score_files, score_file_name
from eclose.detectors.study_statistics import FAILURE_GROUPS, StudyGroup
from eclose.diagnosis.number_format import add_no_break_spaces, format_count, format_score
from eclose.files.atomic import write_files
from eclose.files.run_folder import list_paths
from eclose.report.detectors.figures import draw_detector_figures, draw_use_curves
from eclose.report.detectors.tables import (
    BLINDNESS_TABLE,
    GROUP_WORDS,
    build_detector_tables,
    build_evaluation_tables,
    name_recall,
)
from eclose.report.figures import explain_missing_figures, render_figures
from eclose.report.formats.json_file import dump_json, estimate_to_dict, table_to_dict, to_plain
from eclose.report.formats.latex import escape_latex, join_latex_lines, make_latex_table
from eclose.report.formats.markdown import escape_markdown, make_markdown_table
from eclose.report.scores import name_detectors
from eclose.report.write import FIGURES_FOLDER
from eclose.values.judgment import MAX_UNJUDGED_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.detectors.evaluate import DetectorEvaluation
    from eclose.detectors.joined import DetectorStudy
    from eclose.detectors.study_statistics import DetectorIdentity, DetectorResult, StudySettings
    from eclose.report.document import ReportTable

LIMITS = (
    "The closure score sees the question, so it may reflect alignment as well as closure.",
    "Thresholds are empirical: they hold for these responses, and with many equal scores fewer reliable responses are"
    " flagged than is allowed. The FPR is given beside the recall.",
    "In the paper each detector of a global link misses more than half of LGG at this operating point; a response that"
    " is not flagged is not therefore reliable.",
    "Shares of the groups are those of the studied questions, which in the paper are the eligible ones.",
)
"""What to keep in mind when reading the tables, from the paper."""


def render_detector_markdown(study: DetectorStudy) -> str:
    """Return the study as Markdown."""
    names = name_detectors(tuple(study.counts)).items()
    return _render_markdown(
        title="Which failures detectors find",
        label_source=study.label_source,
        cautions=list_study_cautions(study),
        paragraphs=[
            describe_study_size(study) + "\n",
            *(f"- {name}: {escape_markdown(detector.model)}" for detector, name in names),
        ],
        tables=build_detector_tables(study),
        end=["\n## Limits\n", *(f"- {sentence}" for sentence in LIMITS)],
    )


def render_evaluation_markdown(evaluation: DetectorEvaluation) -> str:
    """Return the evaluation as Markdown."""
    calibration, study = evaluation.calibration, evaluation.study
    return _render_markdown(
        title=f"{calibration.detector}, calibrated",
        label_source=study.label_source,
        cautions=dict.fromkeys((*calibration.notices, *list_study_cautions(study))),
        paragraphs=[
            f"Model: {escape_markdown(calibration.model)}. Calibrated on {len(calibration.ranks):,} reliable responses"
            f" of {escape_markdown(', '.join(calibration.benchmarks))}; heads: {', '.join(calibration.heads)};"
            f" threshold at rank {format_score(calibration.threshold)} ({calibration.fingerprint})."
        ],
        tables=(*build_evaluation_tables(evaluation), *build_detector_tables(study)),
    )


def _render_markdown(
    *,
    title: str,
    label_source: str,
    cautions: Iterable[str],
    paragraphs: Iterable[str],
    tables: Iterable[ReportTable],
    end: Iterable[str] = (),
) -> str:
    # Whose labels these are comes before any figure.
    lines = [f"# {title}\n", f"> **{escape_markdown(label_source)}**"]
    lines += [f">\n> {escape_markdown(sentence)}" for sentence in cautions]
    lines += ["", *paragraphs]
    lines += [line for table in tables for line in make_markdown_table(table)]
    return add_no_break_spaces("\n".join([*lines, *end])) + "\n"


def describe_study_size(study: DetectorStudy) -> str:
    """Return a sentence on the numbers of responses, questions and members of each group."""
    groups = ", ".join(f"{study.groups[group]:,} {GROUP_WORDS[group]}" for group in StudyGroup)
    undecided = sum(study.undecided.values())
    return (
        f"{format_count(study.responses, 'response')}, {undecided:,} of them undecided;"
        f" {format_count(study.questions, 'question')} with a decided one. Groups: {groups}."
    )


def list_study_cautions(study: DetectorStudy) -> Iterator[str]:
    """Yield what to know before reading a figure."""
    yield from study.notices
    for reason, count in study.left_out.items():
        yield f"Not in the study, because {reason}: {format_count(count, 'response')}."
    undecided = sum(study.undecided.values())
    if undecided > MAX_UNJUDGED_SHARE * study.responses:
        # Missing labels favour some groups (decision 0030), so the decided responses may be unlike the others.
        verb = "has" if undecided == 1 else "have"
        yield (
            f"{undecided:,} of {format_count(study.responses, 'response')} {verb} too few labels for a group. The"
            " statistics describe the others only, which may be unlike them."
        )
    if study.unknown_verdicts:
        yield f"{format_count(study.unknown_verdicts, 'verdict')} on responses outside the study."
    if study.common:
        percent = f"{100 * study.settings.tolerated_difference:g} %"
        yield (
            f"The detectors scored different responses: {format_count(study.unshared, 'response')}"
            f" {'has' if study.unshared == 1 else 'have'} a score of some only, more than {percent}."
            " Compare detectors in the tables of the common responses."
        )
    for model, source in study.same_family_pairs:
        yield f"{model} scored responses of {source}, a model of its own family, which it may favour."


def render_detector_latex(study: DetectorStudy) -> str:
    """Return every table as LaTeX, in the layout of the paper."""
    names = name_detectors(tuple(study.counts))
    # Comments at the top, because tables are copied without the page around them.
    lines = [f"% {escape_latex(sentence)}" for sentence in (study.label_source, *list_study_cautions(study))]
    lines += [f"% {name}: {escape_latex(detector.model)}" for detector, name in names.items()]
    for table in build_detector_tables(study):
        if table.key.startswith(BLINDNESS_TABLE):
            # The names of detectors stand above both of their columns.
            heads = ("group", "n", *(head for _ in names for head in ("AUC", name_recall(study))))
            table = replace(table, heads=heads, spans=(("", 2), *((name, 2) for name in names.values())))  # noqa: PLW2901
        lines += make_latex_table(table, "l" + "r" * (len(table.heads) - 1), details_below=True)
    return join_latex_lines(lines)


def study_to_dict(study: DetectorStudy) -> dict[str, Any]:
    """Return a study as plain values for JSON."""
    names = name_detectors(tuple(study.counts))
    return {
        # The keys are a public format: add keys, never rename them.
        "format": "eclose-detectors-1",
        "labels": study.label_source,
        "notices": list(study.notices),
        "left_out": dict(study.left_out),
        "settings": asdict(study.settings),
        "responses": study.responses,
        "questions": study.questions,
        "groups": to_plain(study.groups),
        "undecided": dict(study.undecided),
        "unclassified": dict(study.unclassified),
        "unknown_verdicts": study.unknown_verdicts,
        "detectors": [_result_to_dict(result, names[result.detector]) for result in study.results],
        "unshared": study.unshared,
        "common_responses": study.common_responses,
        "common": [_result_to_dict(result, names[result.detector]) for result in study.common],
        "counts": [
            {
                **_detector_to_dict(detector),
                "records": counts.records,
                "used": counts.used,
                "unknown_responses": counts.unknown_responses,
                "groups": to_plain(counts.groups),
                "undecided": to_plain(counts.undecided),
            }
            for detector, counts in study.counts.items()
        ],
        "same_family": [{"detector": model, "model": source} for model, source in study.same_family_pairs],
        "tables": [table_to_dict(table) for table in build_detector_tables(study)],
        "limits": list(LIMITS),
    }


def _result_to_dict(result: DetectorResult, name: str) -> dict[str, Any]:
    sweep = result.sweep
    return {
        "name": name,
        **_detector_to_dict(result.detector),
        "groups": {
            str(group): {
                "scored": result.scored[group],
                "mean": estimate_to_dict(result.means[group]),
                **(to_plain(result.separations[group]) if group in FAILURE_GROUPS else {}),
            }
            for group in StudyGroup
        },
        "threshold": result.threshold,
        "false_positive_rate": estimate_to_dict(result.false_positive_rate),
        "cross_fitted_false_positive_rate": estimate_to_dict(result.held_out_false_positive_rate),
        "cross_fitted_recall": estimate_to_dict(result.held_out_recall),
        "sweep": None
        if sweep is None
        else {
            # The last threshold flags every response: infinity, which JSON writes as null.
            "thresholds": [*sweep.thresholds[:-1].tolist(), None],
            "false_positive_rates": sweep.false_positive_rates.tolist(),
            "recalls": sweep.recalls.tolist(),
        },
    }


def _detector_to_dict(detector: DetectorIdentity) -> dict[str, str]:
    return {"detector": str(detector.kind), "model": detector.model}


def evaluation_to_dict(evaluation: DetectorEvaluation) -> dict[str, Any]:
    """Return the calibration, every rate, and the curves at every threshold as plain values for JSON."""
    calibration = evaluation.calibration
    return {
        # The keys are a public format: add keys, never rename them.
        "format": "eclose-detector-evaluation-1",
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
        "flagged": to_plain(evaluation.flagged),
        "bands": to_plain(evaluation.bands),
        "abstention": [point._asdict() for point in evaluation.abstention],
        "cascade": [point._asdict() for point in evaluation.cascade],
        "judge_calls": [
            {
                "recall": calls.recall,
                "by_chance": calls.by_chance,
                "judged": [{**_detector_to_dict(detector), "judged": n} for detector, n in calls.judged.items()],
            }
            for calls in evaluation.judge_calls
        ],
        "tables": [table_to_dict(table) for table in build_evaluation_tables(evaluation)],
        "study": study_to_dict(evaluation.study),
    }


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
        "detectors.json": dump_json(study_to_dict(study)).encode(),
        "detectors.md": render_detector_markdown(study).encode(),
        "detectors.tex": render_detector_latex(study).encode(),
    }
    if explain_missing_figures() is None:
        stale = [sentence for sentence in study.notices if sentence.startswith("STALE")][:1]
        figures = draw_detector_figures(study, ["Stale scores or labels: see detectors.md."] if stale else [])
        files |= {f"{FIGURES_FOLDER}/{name}": data for name, data in figures.items()}
    return write_files(runs[0] / "detectors" if out is None else Path(out), files)


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
        "evaluation.json": dump_json(evaluation_to_dict(evaluation)).encode(),
        "evaluation.md": render_evaluation_markdown(evaluation).encode(),
    }
    if explain_missing_figures() is None:
        files |= render_figures({f"{FIGURES_FOLDER}/detector-use": lambda: draw_use_curves(evaluation)})
    folder = runs[0] / f"evaluation-{thresholds.detector}" if out is None else Path(out)
    return evaluation, write_files(folder, files)
