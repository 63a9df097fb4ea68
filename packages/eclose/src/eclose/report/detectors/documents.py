"""Detectors as Markdown, LaTeX and JSON: a study of several, and the evaluation of a calibrated one.

Names of models and files are escaped in every format.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from eclose.detectors.study_statistics import FAILURE_GROUPS, StudyGroup
from eclose.diagnosis.number_format import add_no_break_spaces, format_count, format_score
from eclose.report.detectors.tables import (
    BLINDNESS_TABLE,
    GROUP_WORDS,
    build_detector_tables,
    build_evaluation_tables,
    name_recall,
)
from eclose.report.formats.json_file import estimate_to_dict
from eclose.report.formats.latex import escape_latex, join_latex_lines, make_latex_table
from eclose.report.formats.markdown import escape_markdown, make_markdown_table
from eclose.report.scores import name_detectors
from eclose.values.judgment import MAX_UNJUDGED_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eclose.detectors.evaluate import DetectorEvaluation
    from eclose.detectors.joined import DetectorCounts, DetectorStudy
    from eclose.detectors.study_statistics import DetectorIdentity, DetectorResult
    from eclose.report.document import ReportTable
    from eclose.stats.ranking import ThresholdSweep

DETECTORS_FORMAT = "eclose-detectors-1"
EVALUATION_FORMAT = "eclose-detector-evaluation-1"

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
        lines += _list_latex_lines(table, study, list(names.values()))
    return join_latex_lines(lines)


def _list_latex_lines(table: ReportTable, study: DetectorStudy, names: list[str]) -> Iterator[str]:
    """Yield a table; that of AUC and R@95 has the names of detectors above both columns."""
    columns = "l" + "r" * (len(table.heads) - 1)
    if not table.key.startswith(BLINDNESS_TABLE):
        return make_latex_table(table, columns, details_below=True)
    short = replace(table, heads=("group", "n", *(head for _ in names for head in ("AUC", name_recall(study)))))
    spans = [("", 2), *((name, 2) for name in names)]
    return make_latex_table(short, columns, details_below=True, spans=spans)


def render_detector_json(study: DetectorStudy) -> str:
    """Return one JSON object in ASCII: every statistic with its interval, and every count."""
    # An undefined value is null; NaN and infinity are no JSON.
    return json.dumps(study_to_dict(study), indent=1, allow_nan=False) + "\n"


def study_to_dict(study: DetectorStudy) -> dict[str, Any]:
    """Return a study as plain values for JSON."""
    return {
        # The keys are a public format: add keys, never rename them.
        "format": DETECTORS_FORMAT,
        "labels": study.label_source,
        "notices": list(study.notices),
        "left_out": dict(study.left_out),
        "settings": asdict(study.settings),
        "responses": study.responses,
        "questions": study.questions,
        "groups": {str(group): count for group, count in study.groups.items()},
        "undecided": dict(study.undecided),
        "unclassified": dict(study.unclassified),
        "unknown_verdicts": study.unknown_verdicts,
        "detectors": _results_to_list(study, study.results),
        "unshared": study.unshared,
        "common_responses": study.common_responses,
        "common": _results_to_list(study, study.common),
        "counts": [
            {**_detector_to_dict(detector), **_counts_to_dict(counts)} for detector, counts in study.counts.items()
        ],
        "same_family": [{"detector": model, "model": source} for model, source in study.same_family_pairs],
        "tables": [table_to_dict(table) for table in build_detector_tables(study)],
        "limits": list(LIMITS),
    }


def _results_to_list(study: DetectorStudy, results: tuple[DetectorResult, ...]) -> list[dict[str, Any]]:
    names = name_detectors(tuple(study.counts))
    return [_result_to_dict(result, names[result.detector]) for result in results]


def _result_to_dict(result: DetectorResult, name: str) -> dict[str, Any]:
    groups: dict[str, dict[str, Any]] = {
        str(group): {"scored": result.scored[group], "mean": estimate_to_dict(result.means[group])}
        for group in StudyGroup
    }
    for group in FAILURE_GROUPS:
        separation = result.separations[group]
        groups[str(group)] |= {
            "auroc": estimate_to_dict(separation.auroc),
            "recall": estimate_to_dict(separation.recall),
        }
    return {
        "name": name,
        **_detector_to_dict(result.detector),
        "groups": groups,
        "threshold": result.threshold,
        "false_positive_rate": estimate_to_dict(result.false_positive_rate),
        "cross_fitted_false_positive_rate": estimate_to_dict(result.held_out_false_positive_rate),
        "cross_fitted_recall": estimate_to_dict(result.held_out_recall),
        "sweep": None if result.sweep is None else _sweep_to_dict(result.sweep),
    }


def _sweep_to_dict(sweep: ThresholdSweep) -> dict[str, Any]:
    # The last threshold flags every response: infinity, which JSON writes as null.
    return {
        "thresholds": [*sweep.thresholds[:-1].tolist(), None],
        "false_positive_rates": sweep.false_positive_rates.tolist(),
        "recalls": sweep.recalls.tolist(),
    }


def _counts_to_dict(counts: DetectorCounts) -> dict[str, Any]:
    return {
        "records": counts.records,
        "used": counts.used,
        "unknown_responses": counts.unknown_responses,
        "groups": {str(group): asdict(part) for group, part in counts.groups.items()},
        "undecided": asdict(counts.undecided),
    }


def _detector_to_dict(detector: DetectorIdentity) -> dict[str, str]:
    return {"detector": str(detector.kind), "model": detector.model}


def table_to_dict(table: ReportTable) -> dict[str, Any]:
    """Return a table as it is printed: a text for each cell, with its details behind it."""
    rows = [[" ".join((cell.text, *cell.details)).strip() for cell in row] for row in table.rows]
    return {"key": table.key, "title": table.title, "heads": list(table.heads), "rows": rows, "note": table.note}


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
                    {**_detector_to_dict(detector), "judged": count} for detector, count in calls.judged.items()
                ],
            }
            for calls in evaluation.judge_calls
        ],
        "tables": [table_to_dict(table) for table in build_evaluation_tables(evaluation)],
        "study": study_to_dict(evaluation.study),
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"
