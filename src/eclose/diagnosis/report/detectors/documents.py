"""A detector study as Markdown, LaTeX and JSON. Names of models and files are escaped in every format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eclose.core.judgment import MAX_UNJUDGED_SHARE
from eclose.detection.study_statistics import FAILURE_GROUPS, StudyGroup
from eclose.diagnosis.report.detectors.tables import BLINDNESS_TABLE, GROUP_WORDS, build_detector_tables, name_recall
from eclose.diagnosis.report.latex import escape_latex, join_latex_lines, make_latex_table
from eclose.diagnosis.report.markdown import escape_markdown, make_markdown_table
from eclose.diagnosis.report.number_format import add_no_break_spaces, format_count
from eclose.diagnosis.report.scores.names import name_detectors
from eclose.diagnosis.report.to_json import estimate_to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.detection.study import DetectorCounts, DetectorStudy, GroupScoreCounts
    from eclose.detection.study_statistics import DetectorResult
    from eclose.diagnosis.report.table import ReportTable
    from eclose.stats.ranking import ThresholdSweep

DETECTORS_FORMAT = "eclose-detectors-1"

LIMITS = (
    "The closure score sees the question, so it may reflect alignment as well as closure.",
    "Thresholds are empirical: they hold for these responses, and with many equal scores fewer reliable responses are"
    " flagged than is allowed. The FPR is given beside the recall.",
    "In the paper each detector of a global link misses more than half of LGG at this operating point; a response that"
    " is not flagged is not therefore reliable.",
    "Shares of the groups are those of the studied questions, which in the paper are the eligible ones.",
)
"""What to keep in mind when reading the tables, from the paper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorReportContext:
    """What a report prints beside the study."""

    label_source: str
    """Who labelled the responses, in a sentence."""
    notices: tuple[str, ...] = ()
    """Sentences on stale, unchecked and unused files."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Responses of the runs that are not in the study, by reason."""


def render_detector_markdown(study: DetectorStudy, context: DetectorReportContext) -> str:
    """Return the study as Markdown."""
    return add_no_break_spaces("\n".join(_list_markdown_lines(study, context))) + "\n"


def _list_markdown_lines(study: DetectorStudy, context: DetectorReportContext) -> Iterator[str]:
    yield "# Which failures detectors find\n"
    # Whose labels these are comes before any figure.
    yield f"> **{escape_markdown(context.label_source)}**"
    for sentence in list_study_cautions(study, context):
        yield f">\n> {escape_markdown(sentence)}"
    yield "\n" + describe_study_size(study) + "\n"
    for detector, name in name_detectors(tuple(study.counts)).items():
        yield f"- {name}: {escape_markdown(detector.model)}"
    for table in build_detector_tables(study):
        yield from make_markdown_table(table)
    yield "\n## Limits\n"
    for sentence in LIMITS:
        yield f"- {sentence}"


def describe_study_size(study: DetectorStudy) -> str:
    """Return a sentence on the numbers of responses, questions and members of each group."""
    groups = ", ".join(f"{study.groups[group]:,} {GROUP_WORDS[group]}" for group in StudyGroup)
    undecided = sum(study.undecided.values())
    return (
        f"{format_count(study.responses, 'response')}, {undecided:,} of them undecided;"
        f" {format_count(study.questions, 'question')} with a decided one. Groups: {groups}."
    )


def list_study_cautions(study: DetectorStudy, context: DetectorReportContext) -> Iterator[str]:
    """Yield what to know before reading a figure."""
    yield from context.notices
    for reason, count in context.left_out.items():
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


def render_detector_latex(study: DetectorStudy, context: DetectorReportContext) -> str:
    """Return every table as LaTeX, in the layout of the paper."""
    names = name_detectors(tuple(study.counts))
    # Comments at the top, because tables are copied without the page around them.
    lines = [f"% {escape_latex(sentence)}" for sentence in (context.label_source, *list_study_cautions(study, context))]
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


def render_detector_json(study: DetectorStudy, context: DetectorReportContext) -> str:
    """Return one JSON object in ASCII: every statistic with its interval, and every count."""
    # An undefined value is null; NaN and infinity are no JSON.
    return json.dumps(study_to_dict(study, context), indent=1, allow_nan=False) + "\n"


def study_to_dict(study: DetectorStudy, context: DetectorReportContext) -> dict[str, Any]:
    """Return a study as plain values for JSON."""
    return {
        # The keys are a public format: add keys, never rename them.
        "format": DETECTORS_FORMAT,
        "labels": context.label_source,
        "notices": list(context.notices),
        "left_out": dict(context.left_out),
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
            {"detector": str(detector.kind), "model": detector.model, **_counts_to_dict(counts)}
            for detector, counts in study.counts.items()
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
        "detector": str(result.detector.kind),
        "model": result.detector.model,
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
        "groups": {str(group): _group_counts_to_dict(part) for group, part in counts.groups.items()},
        "undecided": _group_counts_to_dict(counts.undecided),
    }


def _group_counts_to_dict(counts: GroupScoreCounts) -> dict[str, Any]:
    return {"responses": counts.responses, "scored": counts.scored, "unscored": dict(counts.unscored)}


def table_to_dict(table: ReportTable) -> dict[str, Any]:
    """Return a table as it is printed: a text for each cell, with its details behind it."""
    rows = [[" ".join((cell.text, *cell.details)).strip() for cell in row] for row in table.rows]
    return {"key": table.key, "title": table.title, "heads": list(table.heads), "rows": rows, "note": table.note}
