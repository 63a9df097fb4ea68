"""The report as tables of plain text, in the layout of appendix A.3. Each format draws and escapes them itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.annotation.results.agreement_report import CEILING, DERIVED, undefined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.annotation.results.adjudication_report import Adjudication
    from eclose.annotation.results.agreement_report import QuestionAgreement, Report, ResponseAgreement
    from eclose.metrics.agreement import AgreementRow, ScreeningAgreement
    from eclose.stats.intervals import Interval

DASH = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """A table, and what is to be said beneath it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    rule_before: str | None = None
    """The first cell of the row that a rule stands before."""


def tables(found: Report) -> list[Table]:
    """Screening comes first, as it does in the work."""
    made: list[Table] = []
    if found.screening is not None:
        made += _screening(found.screening)
    if found.responses is not None:
        made += _responses(found.responses)
    return made


def _responses(one: ResponseAgreement) -> Iterator[Table]:
    near = any(_near_ceiling(row) for row in one.rows)
    heads = ("judgment", "n", "maj. %", "raw %", "alpha [95 %]", "specific", *(("AC1",) if near else ()))
    rows = tuple(
        (
            row.judgment,
            f"{row.n:,}",
            _percent(row.majority),
            _percent(row.raw.value),
            _alpha(row),
            _specific(row),
            *((_ac1(row),) if near else ()),
        )
        for row in one.rows
    )
    counted = f"{one.compared:,} of {one.responses:,} responses, to {one.questions:,} questions"
    notes = [*_more_than_two(one.people)]
    if near:
        notes.append(f"AC1 where {CEILING:.0%} of the labels are alike: there alpha says little.")
    yield Table(f"Agreement before adjudication: {counted}", heads, rows, tuple(notes), DERIVED[0])
    yield from _adjudication(one.adjudication, "responses")
    if one.adjudication.changed and one.adjudication.adjudicated:
        changed = tuple(
            (name, f"{row.responses:,}", f"{row.labels:,}", f"{row.of:,}")
            for name, row in one.adjudication.changed.items()
        )
        heads = ("what", "responses", "labels", "of labels given")
        yield Table("Labels that adjudication did not uphold", heads, changed)


def _screening(one: QuestionAgreement) -> Iterator[Table]:
    heads = ("judgment", "n", "raw % [95 %]", "alpha [95 %]")
    both = (one.overall.eligibility, one.overall.reason)
    rows = tuple((row.judgment, f"{row.n:,}", _raw(row), _alpha(row)) for row in both)
    title = f"Agreement on eligibility before adjudication: {one.compared:,} of {one.questions:,} questions"
    notes = ("Reasons are compared only where both say no.", *_more_than_two(one.people))
    yield Table(title, heads, rows, notes)
    apart = tuple(_dataset(name, found) for name, found in one.datasets.items())
    yield Table("Eligibility by dataset", ("dataset", "n", "raw %", "alpha [95 %]", "AC1", "both no"), apart)
    yield from _adjudication(one.adjudication, "questions")


def _dataset(name: str, found: ScreeningAgreement) -> tuple[str, ...]:
    row = found.eligibility
    return name, f"{row.n:,}", _percent(row.raw.value), _alpha(row), _ac1(row), f"{found.both_no:,}"


def _adjudication(found: Adjudication, noun: str) -> Iterator[Table]:
    if not found.complete:
        return
    share = [("all", found.to_adjudicate), ("people differ", found.disagreements), ("flag only", found.flag_only)]
    share += [(f"  {trigger}", count) for trigger, count in found.triggers.items()]
    rows = tuple((name, f"{count:,}", _percent(count / found.complete)) for name, count in share)
    notes = [
        f"{found.adjudicated:,} adjudicated, {found.waiting:,} waiting; one of the {noun} may have several reasons."
    ]
    if found.reference_seen_before:
        seen = f"{found.reference_seen_before:,} were adjudicated by somebody who knew the reference"
        notes.append(f"{seen} from another response to the question.")
    title = f"To adjudicate, of {found.complete:,} {noun} that all have finished"
    yield Table(title, ("reason", noun, "%"), rows, tuple(notes))


def _more_than_two(people: int) -> Iterator[str]:
    if people > 2:
        yield (
            f"Up to {people} people judged each: raw is the share of pairs that agree, alpha is Krippendorff's of them "
            "all, and a case with m labels weighs m."
        )


def _near_ceiling(row: AgreementRow) -> bool:
    """Near, not at: where one label is all there is, AC1 is 1 whatever people do, and would be read as a finding."""
    return row.ac1 is not None and row.majority is not None and row.majority >= CEILING and not row.unanimous


def _ac1(row: AgreementRow) -> str:
    return f"{row.ac1:.3f}" if row.ac1 is not None and _near_ceiling(row) else DASH


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.1f}"


def _raw(row: AgreementRow) -> str:
    interval = row.raw.interval
    return _percent(row.raw.value) + (
        f" [{_percent(interval.low)}, {_percent(interval.high)}]" if interval is not None else ""
    )


def _alpha(row: AgreementRow) -> str:
    """``0.783 [0.745, 0.817]``; what is undefined in words."""
    reason = undefined(row)
    return reason if reason is not None else f"{row.alpha.value:.3f}{_ends(row.alpha.interval)}"


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f" [{interval.low:.3f}, {interval.high:.3f}]"


def _specific(row: AgreementRow) -> str:
    if row.specific is None:
        return DASH
    return " / ".join(DASH if one is None else f"{one:.3f}" for one in row.specific)
