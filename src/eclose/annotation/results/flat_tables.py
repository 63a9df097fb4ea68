"""What people said as flat tables, for spreadsheets and for Parquet: a row a label, a person or a step.

The tables tell what the JSON Lines tell, but for the words of a judge; whoever needs all reads those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eclose.store.records.csv_table import CsvCell

if TYPE_CHECKING:
    from eclose.annotation.results.annotations import Annotation, Told
    from eclose.annotation.results.final_labels import SettledLabel
    from eclose.core.judgment import Judgment
    from eclose.core.response import Source

Columns: TypeAlias = Mapping[str, type[str] | type[int] | type[bool]]
"""Names of columns with what they hold."""

LABELS = ("locally_sound", "aligned", "closed", "complete", "correct")
_SUBJECT: Columns = {"response_id": str, "question_id": str, "benchmark": str, "model": str, "method": str, "seed": int}
_WHO: Columns = {"annotator": str, "adjudicates": bool}
_FIVE: Columns = dict.fromkeys(LABELS, bool)
_FINAL: Columns = {f"final_{name}": bool for name in LABELS}


@dataclass(frozen=True, slots=True)
class FlatTable:
    """A table with the kinds of its columns."""

    name: str
    columns: Columns
    rows: Callable[[], Iterator[dict[str, CsvCell]]]


def build_flat_tables(told: Told, settled: Callable[[], Iterator[SettledLabel]]) -> list[FlatTable]:
    """Those that have something to tell."""
    found = []
    if told.responses:
        derived: Columns = {"globally_sufficient": bool, "in_gap": bool, "failure_class": str, "trace_group": str}
        how: Columns = {"origin": str, "triggers": str, "annotators": str, "adjudicator": str}
        task: Columns = {"kind": str, "asked": int}
        noted: Columns = {"amended": bool, "reference_seen_before": bool}
        said: Columns = {"version": str, "step": int, "substantive": bool, "sound": bool, "failure": str}
        found = [
            FlatTable("labels", {**_SUBJECT, **_FIVE, **derived, **how}, lambda: map(_label, settled())),
            FlatTable(
                "annotations", {**_SUBJECT, **task, **_WHO, **_FIVE, **noted, **_FINAL}, lambda: _annotations(told)
            ),
            FlatTable("steps", {"response_id": str, **_WHO, **said}, lambda: _steps(told)),
        ]
    if told.questions:
        question: Columns = {"question_id": str, "benchmark": str}
        one: Columns = {"eligible": bool, "code": str}
        both: Columns = {**one, "final_eligible": bool, "final_code": str}
        found += [
            FlatTable("screening", {**question, **one}, lambda: _screening(told)),
            FlatTable("screening-annotations", {**question, "asked": int, **_WHO, **both}, lambda: _screened(told)),
        ]
    return found


def _subject(one: Annotation | SettledLabel) -> dict[str, CsvCell]:
    source: Source | None = one.source
    return {
        "response_id": one.response_id,
        "question_id": one.question_id,
        "benchmark": one.benchmark,
        "model": None if source is None else source.model,
        "method": None if source is None else source.method,
        "seed": None if source is None else source.seed,
    }


def _five(judgment: Judgment, prefix: str = "") -> dict[str, CsvCell]:
    verdict = judgment.verdict
    return {f"{prefix}{name}": getattr(verdict, name) for name in LABELS}


def _label(one: SettledLabel) -> dict[str, CsvCell]:
    verdict = one.verdict
    failure, group = verdict.failure_class, verdict.trace_group
    return {
        **_subject(one),
        **{name: getattr(verdict, name) for name in LABELS},
        "globally_sufficient": verdict.globally_sufficient,
        "in_gap": verdict.in_gap,
        "failure_class": None if failure is None else failure.value,
        "trace_group": None if group is None else group.value,
        "origin": one.origin.value,
        "triggers": " ".join(one.triggers),
        "annotators": " ".join(one.annotators),
        "adjudicator": one.adjudicator,
    }


def _annotations(told: Told) -> Iterator[dict[str, CsvCell]]:
    for one in (row for response in told.responses for row in response.rows):
        task: dict[str, CsvCell] = {"kind": one.kind.value, "asked": one.asked}
        if one.judgment is None:
            yield {**_subject(one), **task}
            continue
        yield {
            **_subject(one),
            **task,
            "annotator": one.annotator,
            "adjudicates": one.adjudicates,
            **_five(one.judgment),
            "amended": one.amended is not None,
            "reference_seen_before": one.reference_seen_before,
            **_five(one.final, "final_"),
        }


def _steps(told: Told) -> Iterator[dict[str, CsvCell]]:
    for one in (row for response in told.responses for row in response.rows):
        for version, judgment in (("first", one.judgment), ("amended", one.amended)):
            for number, step in enumerate(() if judgment is None else judgment.steps, start=1):
                yield {
                    "response_id": one.response_id,
                    "annotator": one.annotator,
                    "adjudicates": one.adjudicates,
                    "version": version,
                    "step": number,
                    "substantive": step.substantive,
                    "sound": step.sound,
                    "failure": None if step.failure is None else step.failure.value,
                }


def _screening(told: Told) -> Iterator[dict[str, CsvCell]]:
    for one in told.questions:
        if (settled := one.settled) is not None:
            code = None if settled.code is None else settled.code.value
            question: dict[str, CsvCell] = {"question_id": one.question_id, "benchmark": one.benchmark}
            yield {**question, "eligible": settled.eligible, "code": code}


def _screened(told: Told) -> Iterator[dict[str, CsvCell]]:
    for one in (row for question in told.questions for row in question.rows):
        row: dict[str, CsvCell] = {"question_id": one.question_id, "benchmark": one.benchmark, "asked": one.asked}
        if one.screening is not None:
            row |= {"annotator": one.annotator, "adjudicates": one.adjudicates}
            for prefix, said in (("", one.screening), ("final_", one.final)):
                code = None if said.code is None else said.code.value
                row |= {f"{prefix}eligible": said.eligible, f"{prefix}code": code}
        yield row
