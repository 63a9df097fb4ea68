"""The agreement report as tables in the layout of appendix A.3: plain text, Markdown and LaTeX.

Cells are plain text; each format escapes them, since names of datasets come from users' files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.diagnosis.number_format import format_count
from eclose.report.formats import latex as tex
from eclose.report.formats import markdown as md
from eclose.report.sections import describe_few_questions
from eclose_annotate.results.agreement_report import DERIVED_ROWS, UNINFORMATIVE_ALPHA_SHARE, why_alpha_undefined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eclose.metrics.agreement import AnnotatorAgreementRow
    from eclose_annotate.results.agreement_report import (
        AdjudicationCounts,
        AgreementOnResponses,
        AgreementReport,
        EligibilityAgreement,
        ScreeningOutcomes,
    )

DASH = "-"


@dataclass(frozen=True, slots=True)
class AgreementTable:
    """A table with a title and notes below it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    rule_before: str | None = None
    """First cell of the row that a rule precedes."""


def build_agreement_tables(report: AgreementReport) -> list[AgreementTable]:
    """Return the tables of a report: screening first, then responses."""
    tables: list[AgreementTable] = []
    if report.screening is not None:
        tables += _screening_tables(report.screening, report.resamples)
    if report.responses is not None:
        tables += _response_tables(report.responses, report.resamples)
    return tables


def format_agreement_markdown(tables: Sequence[AgreementTable]) -> str:
    """Return the tables as Markdown."""
    lines: list[str] = []
    for table in tables:
        lines += [
            f"## {md.escape_markdown(table.title)}\n",
            f"| {' | '.join(map(md.escape_markdown_cell, table.heads))} |",
            "|" + "|".join(" --- " for _ in table.heads) + "|",
            *(f"| {' | '.join(map(md.escape_markdown, row))} |" for row in table.rows),
            "".join(f"\n{md.escape_markdown_cell(note)}\n" for note in table.notes),
        ]
    return "\n".join(lines)


def format_agreement_latex(tables: Sequence[AgreementTable]) -> str:
    """Return the tables as LaTeX with captions; needs the packages ``booktabs`` and ``graphicx``."""
    lines = (line for number, table in enumerate(tables) for line in _latex_lines(table, number))
    return "\n".join([tex.NEEDED_PACKAGES, *lines]) + "\n"


def _response_tables(agreement: AgreementOnResponses, resamples: int) -> Iterator[AgreementTable]:
    # The column AC1 appears only where a row is near the ceiling.
    near = any(_near_ceiling(row) for row in agreement.rows)
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
        for row in agreement.rows
    )
    responses, questions = format_count(agreement.responses, "response"), format_count(agreement.questions, "question")
    counted = f"{agreement.compared:,} of {responses}, to {questions}"
    notes = [*_more_than_two(agreement.people)]
    if agreement.ineligible:
        notes.append(f"Left out: {format_count(agreement.ineligible, 'response')} to ineligible questions.")
    if agreement.knew_reference:
        notes.append(
            f"{format_count(agreement.knew_reference, 'annotation')} {'is' if agreement.knew_reference == 1 else 'are'}"
            " by a person who knew the reference from another response to"
            " the question."
        )
    if near:
        notes.append(
            f"AC1 where {UNINFORMATIVE_ALPHA_SHARE:.0%} of the labels are alike: there alpha is uninformative."
        )
    notes += describe_few_questions(agreement.questions)
    notes += _undefined_resamples({row.judgment: row for row in agreement.rows}, resamples)
    # A rule separates direct annotations from derived labels, as in the paper's table of A.3.3.
    yield AgreementTable(f"Agreement before adjudication: {counted}", heads, rows, tuple(notes), DERIVED_ROWS[0])
    yield from _adjudication_table(agreement.adjudication, "responses")
    if agreement.adjudication.changed and agreement.adjudication.adjudicated:
        changed = tuple(
            (name, f"{row.responses:,}", f"{row.labels:,}", f"{row.of:,}")
            for name, row in agreement.adjudication.changed.items()
        )
        heads = ("label", "responses", "labels", "of labels")
        yield AgreementTable("Labels that adjudication changed", heads, changed)


def _screening_tables(agreement: EligibilityAgreement, resamples: int) -> Iterator[AgreementTable]:
    heads: tuple[str, ...] = ("judgment", "n", "raw % [95 %]", "alpha [95 %]")
    both = (agreement.overall.eligibility, agreement.overall.reason)
    rows = tuple((row.judgment, f"{row.n:,}", _raw(row), _alpha(row)) for row in both)
    questions = format_count(agreement.questions, "question")
    title = f"Agreement on eligibility before adjudication: {agreement.compared:,} of {questions}"
    notes = ["Reasons are compared only where both screeners say no.", *_more_than_two(agreement.people)]
    notes += describe_few_questions(agreement.compared)
    notes += _undefined_resamples({row.judgment: row for row in both}, resamples)
    yield AgreementTable(title, heads, rows, tuple(notes))
    eligibility = {name: screening.eligibility for name, screening in agreement.datasets.items()}
    datasets = tuple(
        (name, f"{row.n:,}", _percent(row.raw.value), _alpha(row), _ac1(row), f"{agreement.datasets[name].both_no:,}")
        for name, row in eligibility.items()
    )
    heads = ("dataset", "n", "raw %", "alpha [95 %]", "AC1", "both no")
    notes = [*_undefined_resamples(eligibility, resamples)]
    yield AgreementTable("Eligibility by dataset", heads, datasets, tuple(notes))
    yield from _adjudication_table(agreement.adjudication, "questions")
    yield _outcome_table(agreement.outcomes)


def _outcome_table(outcomes: ScreeningOutcomes) -> AgreementTable:
    """Return the outcomes; rates of eligibility are of the settled questions, those of reasons of the ineligible."""
    settled = outcomes.eligible + outcomes.ineligible
    counts = [("eligible", outcomes.eligible, settled), ("ineligible", outcomes.ineligible, settled)]
    counts += [(f"  {code}", count, outcomes.ineligible) for code, count in outcomes.reasons.items()]
    rows = [(name, f"{count:,}", _percent(count / of if of else None)) for name, count, of in counts]
    rows.append(("not settled", f"{outcomes.open:,}", DASH))
    title = f"Outcomes of screening: {format_count(outcomes.questions, 'question')}"
    return AgreementTable(title, ("outcome", "questions", "%"), tuple(rows))


def _adjudication_table(counts: AdjudicationCounts, noun: str) -> Iterator[AgreementTable]:
    if not counts.complete:
        return
    share = [
        ("all", counts.to_adjudicate),
        ("people differ", counts.disagreements),
        ("inconsistent only", counts.flag_only),
    ]
    if counts.amended_only:
        share.append(("amended only", counts.amended_only))
    share += [(f"  {trigger}", count) for trigger, count in counts.triggers.items()]
    rows = tuple((name, f"{count:,}", _percent(count / counts.complete)) for name, count in share)
    notes = [f"{counts.adjudicated:,} adjudicated, {counts.waiting:,} waiting; each may have several reasons."]
    if counts.reference_seen_before:
        notes.append(
            f"{counts.reference_seen_before:,} were adjudicated by a person who knew the reference from another"
            " response to the question."
        )
    title = f"To adjudicate, of {counts.complete:,} {noun} finished by all annotators"
    yield AgreementTable(title, ("reason", noun, "%"), rows, tuple(notes))


def _more_than_two(people: int) -> Iterator[str]:
    if people > 2:
        yield (
            f"Up to {people} people judged each: raw is the share of agreeing pairs, alpha is Krippendorff's over all "
            "of them, and a case with m labels has weight m."
        )


def _undefined_resamples(rows: Mapping[str, AnnotatorAgreementRow], resamples: int) -> Iterator[str]:
    """Yield how many resamples have no alpha, by name: intervals rest on the others, and may end at the estimate."""
    undefined = [
        f"{name} ({row.alpha.undefined:,})"
        for name, row in rows.items()
        if row.alpha.undefined and row.alpha.interval is not None
    ]
    if undefined:
        yield (
            f"Resamples in which all labels are alike have no alpha and are left out (of {resamples:,} resamples):"
            f" {', '.join(undefined)}. An interval may end at its estimate for that reason."
        )


def _near_ceiling(row: AnnotatorAgreementRow) -> bool:
    """Return whether nearly all labels are alike. Not where all are: AC1 is 1 then by definition, and would mislead."""
    return (
        row.ac1 is not None
        and row.majority is not None
        and row.majority >= UNINFORMATIVE_ALPHA_SHARE
        and not row.unanimous
    )


def _ac1(row: AnnotatorAgreementRow) -> str:
    return f"{row.ac1:.3f}" if row.ac1 is not None and _near_ceiling(row) else DASH


# Numbers keep a fixed number of decimals, so that columns align.
def _percent(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.1f}"


def _raw(row: AnnotatorAgreementRow) -> str:
    interval = row.raw.interval
    return _percent(row.raw.value) + (
        f" [{_percent(interval.low)}, {_percent(interval.high)}]" if interval is not None else ""
    )


def _alpha(row: AnnotatorAgreementRow) -> str:
    """Return ``0.783 [0.745, 0.817]``, or the reason why alpha is undefined."""
    if (reason := why_alpha_undefined(row)) is not None:
        return reason
    interval = row.alpha.interval
    return f"{row.alpha.value:.3f}" + ("" if interval is None else f" [{interval.low:.3f}, {interval.high:.3f}]")


def _specific(row: AnnotatorAgreementRow) -> str:
    if row.specific is None:
        return DASH
    return " / ".join(DASH if value is None else f"{value:.3f}" for value in row.specific)


def _latex_lines(table: AgreementTable, number: int) -> Iterator[str]:
    yield "\n\\begin{table}[t]\n\\centering\\small"
    yield from tex.open_latex_tabular("l" + "c" * (len(table.heads) - 1))
    yield _latex_row([rf"\textbf{{{tex.escape_latex(head)}}}" for head in table.heads])
    yield r"\midrule"
    for row in table.rows:
        if row[0] == table.rule_before:
            yield r"\midrule"
        yield _latex_row([tex.escape_latex(cell) for cell in row])
    yield tex.TABULAR_END
    yield rf"\caption{{{tex.escape_latex(' '.join((f'{table.title}.', *table.notes)))}}}"
    yield rf"\label{{tab:people-{number + 1}}}"
    yield r"\end{table}"


def _latex_row(cells: Sequence[str]) -> str:
    # LaTeX would read a bracket or star at the start of a row as an argument of the line break before it.
    first = f"{{{cells[0]}}}" if cells[0].startswith(("[", "*")) else cells[0]
    return " & ".join((first, *cells[1:])) + r" \\"
