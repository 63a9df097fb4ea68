"""The tables of a diagnosis, as cells of plain text. Each format draws and escapes them in its own way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from eclosure.metrics.rates import Metric
from eclosure.metrics.summary import IntervalMethod
from eclosure.report.words import (
    CODE_WORDS,
    DASH,
    EVIDENCE_WORDS,
    FAILURE_WORDS,
    METRIC_WORDS,
    group_name,
    label_mark,
    percent,
    percent_range,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclosure.core.labels import Label
    from eclosure.diagnose import Diagnosis
    from eclosure.metrics.summary import GroupSummary
    from eclosure.report.notes import Notes

SHOWN_METRICS = tuple(metric for metric in Metric if metric is not Metric.COMPLETENESS_RATE)
"""The metrics of the paper; completeness only serves to tell two failures apart."""


class Cell(NamedTuple):
    """What stands in a cell, and smaller beneath it."""

    text: str
    details: tuple[str, ...] = ()
    show: str = ""
    """The explorer's filter that shows these responses."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a title; the first column names the row."""

    key: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def all_tables(diagnosis: Diagnosis, notes: Notes) -> tuple[Table, ...]:
    """Every table, in reading order; those with nothing in them are left out."""
    made = (
        metrics_table(diagnosis, notes),
        evidence_table(diagnosis),
        _failure_table(diagnosis),
        _joint_table(diagnosis),
        _code_table(diagnosis),
        _answer_table(diagnosis),
        _unjudged_table(diagnosis),
    )
    return tuple(table for table in made if table.rows)


def rate_cell(summary: GroupSummary, metric: Metric) -> Cell:
    """``70.6``, and beneath it ``[67.9, 73.2]`` and ``n 1,998 +2``."""
    rate, estimate = summary.rates[metric], summary.estimates[metric]
    marks = "*" if summary.methods[metric] is IntervalMethod.WILSON else ""
    marks += "†" if estimate.undefined and rate.n else ""
    counted = f"n {rate.n:,}" + (f" +{rate.unjudged:,}" if rate.unjudged else "")
    interval = percent_range(estimate.interval)
    return Cell(percent(rate.value), (f"{interval}{marks}", counted) if interval else (counted,))


def _summary_row(name: str, summary: GroupSummary) -> tuple[Cell, ...]:
    return (
        Cell(name),
        Cell(f"{summary.responses:,}", (f"to {plural(summary.questions, 'question')}",)),
        *(rate_cell(summary, metric) for metric in SHOWN_METRICS),
    )


_RATE_HEADS = ("responses", *(metric.value for metric in SHOWN_METRICS))
_RATE_NOTE = (
    "Percent, with the 95 % interval over questions and n, the judged responses in the denominator; "
    "+ counts those that are not judged. * a Wilson interval, where all are hits or none is. "
    "† in some resamples there was nothing to count, and these are left out."
)


def metrics_table(diagnosis: Diagnosis, notes: Notes) -> Table:
    """The metrics of the paper, all together and by group."""
    rows = [_summary_row(group_name(summary.group), summary) for summary in diagnosis.groups]
    if notes.corrected:
        rows.insert(1, _corrected_row(notes))
    if (bounds := _bounds_row(diagnosis.overall)) is not None:
        rows.insert(1, bounds)
    return Table("metrics", "The metrics, by dataset and model", ("group", *_RATE_HEADS), tuple(rows), _RATE_NOTE)


def _corrected_row(notes: Notes) -> tuple[Cell, ...]:
    corrected = notes.corrected or {}
    cells = [
        Cell(percent(estimate.value), (percent_range(estimate.interval),))
        if (estimate := corrected.get(metric))
        else Cell(DASH)
        for metric in SHOWN_METRICS
    ]
    return (Cell("corrected by people's labels"), Cell(""), *cells)


def _bounds_row(overall: GroupSummary) -> tuple[Cell, ...] | None:
    """Where each rate could lie, whatever the unjudged responses turn out to be."""
    rates = [overall.rates[metric] for metric in SHOWN_METRICS]
    if not any(rate.unjudged for rate in rates):
        return None
    spans = (
        f"{percent(rate.bounds.low)} to {percent(rate.bounds.high)}" if rate.unjudged and rate.bounds else DASH
        for rate in rates
    )  # fmt: skip
    return (Cell("bounds, whatever the unjudged are"), Cell(""), *(Cell(span) for span in spans))


def evidence_table(diagnosis: Diagnosis) -> Table:
    """The same for sufficient and insufficient evidence apart."""
    rows = tuple(_summary_row(EVIDENCE_WORDS[kind], summary) for kind, summary in diagnosis.by_evidence.items())
    return Table("evidence", "By whether the evidence is enough", ("evidence", *_RATE_HEADS), rows, _RATE_NOTE)


def _failure_table(diagnosis: Diagnosis) -> Table:
    parts = diagnosis.overall.composition
    insufficient, gap = sum(parts.failures.values()), sum(parts.gap_failures.values())
    rows = tuple(
        (
            Cell(FAILURE_WORDS[failure][0]),
            _share(count, insufficient),
            _share(parts.gap_failures.get(failure, 0), gap),
            Cell(FAILURE_WORDS[failure][1]),
        )
        for failure, count in parts.failures.items()
    )
    heads = ("first broken link", "of all that fail as a whole", "of the gap", "such responses …")
    return Table("failures", "How the whole fails", heads, rows)


def _joint_table(diagnosis: Diagnosis) -> Table:
    total = sum(diagnosis.joint.values())
    rows = tuple(
        (*(Cell(label_mark(label)) for label in labels), Cell(f"{count:,}"), Cell(percent(count / total)))
        for labels, count in sorted(diagnosis.joint.items(), key=lambda one: tuple(map(_label_rank, one[0])))
    )
    note = "1: yes, 0: no, –: not judged. 1 1 1 is reliable; 1 with a 0 behind it is the gap."
    return Table("joint", "Labels L, A and C together", ("L", "A", "C", "responses", "%"), rows, note)


def _label_rank(label: Label) -> int:
    return {True: 0, False: 1, None: 2}[label]


def _code_table(diagnosis: Diagnosis) -> Table:
    total = sum(diagnosis.local_failures.values())
    rows = tuple(
        (Cell(code.value), Cell(CODE_WORDS[code][0]), _share(count, total), Cell(CODE_WORDS[code][1]))
        for code, count in diagnosis.local_failures.items()
    )
    return Table("codes", "Why steps are unsound", ("code", "reason", "unsound steps", "meaning"), rows)


def _answer_table(diagnosis: Diagnosis) -> Table:
    matching = diagnosis.matching
    counts = {
        "correct to the judge, and a match of the reference": matching.both,
        "correct to the judge, no match: another wording, or a lenient judge": matching.judge_only,
        "a match, wrong to the judge: worth a look": matching.matching_only,
        "wrong to both": matching.neither,
        "not known: no reference, no answer or no judgement": matching.unknown,
        "correct answer, though the whole does not hold": diagnosis.correct_but_insufficient,
        "wrong answer, though the whole holds": diagnosis.incorrect_but_sufficient,
        "wrong answer, though everything holds: worth a look": diagnosis.inconsistent,
    }
    total = diagnosis.overall.responses
    rows = tuple((Cell(name), _share(count, total)) for name, count in counts.items())
    return Table("answers", "Answers: judge, matching and reasoning", ("the answer is …", "responses"), rows)


def _unjudged_table(diagnosis: Diagnosis) -> Table:
    rows = tuple(
        (Cell(criterion.value), Cell(reason), Cell(f"{count:,}"))
        for criterion, reasons in diagnosis.unjudged.items()
        for reason, count in reasons.items()
    )
    return Table("unjudged", "What was not judged, and why", ("criterion", "reason", "responses"), rows)


def _share(count: int, total: int) -> Cell:
    return Cell(f"{count:,}", (f"({percent(count / total)} %)",) if total else ())


def glossary() -> Iterator[tuple[str, str, str]]:
    """Each letter with its name and a sentence."""
    for metric, (name, told) in METRIC_WORDS.items():
        yield metric.value, name, told
    for code, (name, told) in CODE_WORDS.items():
        yield code.value, name, told
