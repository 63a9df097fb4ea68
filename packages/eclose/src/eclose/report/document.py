"""Tables of a diagnosis as cells of plain text. Each output format escapes and prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from eclose.diagnosis.diagnose import EvidenceSufficiency
from eclose.diagnosis.label_table import OWN_PREFIX
from eclose.diagnosis.number_format import (
    DASH,
    format_binary_label,
    format_count,
    format_percent,
    format_percent_interval,
    format_percent_with_interval,
    format_score,
    format_score_interval,
)
from eclose.diagnosis.shown_rate import TOO_LITTLE_TEXT, RateStatus, ShownRate
from eclose.metrics.judge_against_people import LABEL_METRICS, LabelAgreementRow
from eclose.metrics.rates import Metric
from eclose.readers.readings import PROTOCOL_RULE
from eclose.report import wording
from eclose.report.context import ReportContext, describe_uncorrected_rates
from eclose.stats.intervals import Estimate
from eclose.values.judgment import MAX_UNJUDGED_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.metrics.summary import GroupRates
    from eclose.values.three_valued import Label

TABLE_METRICS = tuple(metric for metric in Metric if metric not in (Metric.COMPLETENESS_RATE, Metric.GAP_AMONG_SOUND))
"""Columns of the tables. Completeness only separates two failure classes, and LggSound is LGG divided by LSR."""


CONDITIONAL = (Metric.GAP_SHARE, Metric.GAP_RISK)
"""Rates over some of the responses; the paper gives their Wilson intervals."""


class ReportTableCell(NamedTuple):
    """Text of a cell, with details in small type beneath it."""

    text: str
    details: tuple[str, ...] = ()
    show: str = ""
    """Filter of the explorer that selects these responses."""
    rank: int = 0
    """1 for the best value of its group, 2 for the second best; 0 for all others."""


ReportTableRow: TypeAlias = "Sequence[str | ReportTableCell]"


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table with a title; the first column names the rows.

    Where a table has several columns, a row of a single cell is the heading of the rows beneath it.
    """

    key: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[ReportTableCell, ...], ...]
    note: str = ""
    spans: tuple[tuple[str, int], ...] = ()
    """Heads above the heads, each with the number of columns that it spans; empty where there are none."""

    @classmethod
    def of(
        cls,
        key: str,
        title: str,
        heads: Sequence[str],
        rows: Iterable[ReportTableRow],
        note: str = "",
        spans: tuple[tuple[str, int], ...] = (),
    ) -> ReportTable:
        """Return a table; a text stands for a cell without details."""
        cells = (tuple(ReportTableCell(cell) if isinstance(cell, str) else cell for cell in row) for row in rows)
        return cls(key, title, tuple(heads), tuple(cells), note, spans)

    @property
    def full_heads(self) -> tuple[str, ...]:
        """The heads with the names above them, for formats whose cells cannot span columns."""
        above = [name for name, width in self.spans for _ in range(width)] or [""] * len(self.heads)
        return tuple(f"{name} {head}".strip() for name, head in zip(above, self.heads, strict=True))

    def is_heading(self, row: tuple[ReportTableCell, ...]) -> bool:
        """Return whether a row is the heading of the rows beneath it."""
        return len(row) == 1 < len(self.heads)


def build_report_tables(diagnosis: Diagnosis, context: ReportContext) -> tuple[ReportTable, ...]:
    """Return every table with rows, in reading order."""
    tables = (
        _build_readings_table(diagnosis),
        *build_metrics_tables(diagnosis, context),
        _build_evidence_table(diagnosis),
        build_failures_table(diagnosis),
        _joint_table(diagnosis),
        build_violations_table(diagnosis),
        _code_table(diagnosis),
        _answer_table(diagnosis, context),
        _unjudged_table(diagnosis),
        _requested_table(diagnosis),
        build_judge_agreement_table(context),
        build_judge_flips_table(diagnosis),
    )
    return tuple(table for table in tables if table.rows)


def _build_readings_table(diagnosis: Diagnosis) -> ReportTable:
    """Return how the responses were read; empty where all are in the layout that ``eclose generate`` asks for."""
    total = sum(diagnosis.readings.values())
    rows = [
        (status.replace("_", " "), origin or "", rule, _share(count, total))
        for (status, origin, rule), count in diagnosis.readings.items()
    ]
    heads = ("what it is", "trace", "rule that decided", "responses")
    note = "eclose data read FILE --rule RULE shows the responses for which a rule decided."
    unread = [row for row in rows if row[2] != PROTOCOL_RULE]
    return ReportTable.of("readings", "How the responses were read", heads, rows if unread else (), note)


def make_rate_cell(summary: GroupRates, metric: Metric) -> ReportTableCell:
    """Return ``70.6`` with ``[67.9, 73.2]`` and ``n 1,998`` beneath; ``70.5 to 70.6`` with missing labels."""
    shown_rate = ShownRate.of_group(summary, metric)
    rate = shown_rate.rate
    counted = describe_judged(rate.n, rate.unjudged)
    # The paper prints Wilson intervals for the conditional rates.
    conditional = metric in CONDITIONAL and rate.wilson is not None and shown_rate.status is not RateStatus.TOO_LITTLE
    wilson = f"W {format_percent_interval(rate.wilson)}" if conditional else ""
    return ReportTableCell(shown_rate.number, tuple(filter(None, (shown_rate.of_judged, wilson, counted))))


def _summary_row(name: str, summary: GroupRates) -> ReportTableRow:
    return (
        name,
        ReportTableCell(f"{summary.responses:,}", (f"to {format_count(summary.questions, 'question')}",)),
        *(make_rate_cell(summary, metric) for metric in TABLE_METRICS),
    )


_RATE_HEADS = ("responses", *(metric.value for metric in TABLE_METRICS))
_RATE_NOTE = (
    "Percent, with the 95 % interval over questions and n, the judged responses in the denominator; "
    "+ counts those that are not judged. Where there are such, the rate is given as bounds (22.2 to 33.3), whatever "
    "they turn out to be, and beneath them the rate of the judged; that is left out where more than "
    f"{100 * MAX_UNJUDGED_SHARE:.0f} % are not judged. W: the Wilson interval over responses."
)


_SAME_NOTE = "The notes below the first table apply."


def list_group_kinds(diagnosis: Diagnosis) -> tuple[tuple[str, tuple[GroupRates, ...]], ...]:
    """Return the kinds of groups that occur, with their summaries; no two kinds hold the same groups."""
    kinds = (
        ("by model", diagnosis.by_model),
        ("by dataset", diagnosis.by_dataset),
        ("by dataset and model", diagnosis.pairs),
    )
    return tuple((name, groups) for name, groups in kinds if groups)


def build_metrics_tables(diagnosis: Diagnosis, context: ReportContext) -> tuple[ReportTable, ...]:
    """Return the metrics of all responses with the first kind of groups, then a table for each further kind."""
    # There is always at least one kind: the pairs of dataset and model.
    (first, groups), *others = list_group_kinds(diagnosis)
    rows = (*_overall_rows(diagnosis, context), *map(_group_row, groups))
    note = " ".join((_RATE_NOTE, *describe_corrections(context)))
    tables = [ReportTable.of("metrics", f"The metrics, {first}", ("group", *_RATE_HEADS), rows, note)]
    for name, groups in others:
        key = f"metrics-{name.replace(' ', '-')}"
        title = f"The metrics, {name}"
        tables.append(ReportTable.of(key, title, ("group", *_RATE_HEADS), map(_group_row, groups), _SAME_NOTE))
    return tuple(tables)


_CORRECTED_NOTE = "Corrected: by labels of people, for all responses together; the rates of groups are the judge's own."


def describe_corrections(context: ReportContext) -> tuple[str, ...]:
    """Return what the row of corrected rates holds, and why it lacks some; empty without such a row."""
    if not context.corrected:
        return ()
    return _CORRECTED_NOTE, *describe_uncorrected_rates(context, TABLE_METRICS)


def _overall_rows(diagnosis: Diagnosis, context: ReportContext) -> Iterator[ReportTableRow]:
    if context.corrected:
        yield make_corrected_rates_row(diagnosis.overall, context)
    yield _summary_row("all, the judge alone" if context.corrected else "all responses", diagnosis.overall)
    for stratum, group in diagnosis.apart.items():
        yield _summary_row(f"apart: {stratum} traces", group)


def _group_row(summary: GroupRates) -> ReportTableRow:
    return _summary_row(wording.name_response_group(summary.group), summary)


def make_corrected_rates_row(overall: GroupRates, context: ReportContext) -> tuple[ReportTableCell, ...]:
    """Return the row of corrected rates, as bounds where labels of the judge are missing."""
    corrected = context.corrected or {}
    rates = (ShownRate.of_people(overall.rates[metric], corrected.get(metric)) for metric in TABLE_METRICS)
    return (ReportTableCell("all, corrected"), ReportTableCell(""), *map(_corrected_cell, rates))


def _corrected_cell(shown_rate: ShownRate | None) -> ReportTableCell:
    """Return a corrected rate, as bounds with missing labels."""
    if shown_rate is None:
        return ReportTableCell(DASH)
    if shown_rate.status is RateStatus.TOO_LITTLE:
        return ReportTableCell(TOO_LITTLE_TEXT)
    return ReportTableCell(shown_rate.number, (format_percent_interval(shown_rate.interval),))


def _build_evidence_table(diagnosis: Diagnosis) -> ReportTable:
    rows = tuple(_summary_row(wording.EVIDENCE_WORDS[kind], summary) for kind, summary in diagnosis.by_evidence.items())
    # Without a label on the evidence there is no decision to be compared.
    judged = set(diagnosis.by_evidence) - {EvidenceSufficiency.UNJUDGED}
    note = f"{_SAME_NOTE} {wording.EVIDENCE_UNCHECKED}" if judged else _SAME_NOTE
    return ReportTable.of("evidence", "By whether the evidence is enough", ("evidence", *_RATE_HEADS), rows, note)


def build_failures_table(diagnosis: Diagnosis) -> ReportTable:
    """Return how many responses fail as a whole in each way, and how many of them are in the gap."""
    parts = diagnosis.overall.composition
    # Shares of two totals: all insufficient responses, and those in the gap.
    insufficient, gap = sum(parts.failures.values()), sum(parts.gap_failures.values())
    rows = tuple(
        (
            wording.FAILURE_WORDS[failure][0],
            _share(count, insufficient),
            _share(parts.gap_failures.get(failure, 0), gap),
            wording.FAILURE_WORDS[failure][1],
        )
        for failure, count in parts.failures.items()
    )
    heads = ("first broken link", "of all that fail as a whole", "of the gap", "such responses …")
    return ReportTable.of("failures", "How the whole fails", heads, rows)


def _joint_table(diagnosis: Diagnosis) -> ReportTable:
    total = sum(diagnosis.joint.values())
    rows = tuple(
        (*(format_binary_label(label) for label in labels), f"{count:,}", format_percent(count / total))
        # 1 1 1 first, missing labels last.
        for labels, count in sorted(diagnosis.joint.items(), key=lambda item: tuple(map(_label_rank, item[0])))
    )
    note = "1: yes, 0: no, –: not judged. 1 1 1 is reliable; 1 with a 0 behind it is the gap."
    return ReportTable.of("joint", "Labels L, A and C together", ("L", "A", "C", "responses", "%"), rows, note)


def build_violations_table(diagnosis: Diagnosis) -> ReportTable:
    """Return how many of the labels L, A and C responses violate."""
    violations, total = diagnosis.violations, diagnosis.overall.responses
    # Shares of the second column are among responses with a violation.
    violating = violations.one + violations.several
    rows = (
        ("none of L, A and C", _share(violations.none, total), ""),
        ("exactly one", _share(violations.one, total), _share(violations.one, violating)),
        ("several", _share(violations.several, total), _share(violations.several, violating)),
        ("both global links, A and C", _share(violations.both_links, total), ""),
        ("not known: one has no label", _share(violations.unknown, total), ""),
    )
    heads = ("violated", "responses", "of those with a violation")
    return ReportTable.of("violations", "How many labels are violated", heads, rows)


def _label_rank(label: Label) -> int:
    return {True: 0, False: 1, None: 2}[label]


def _code_table(diagnosis: Diagnosis) -> ReportTable:
    # Steps, not responses: one response may have several unsound steps.
    total = sum(diagnosis.local_failures.values())
    rows = tuple(
        (
            code.value,
            wording.CODE_WORDS[code][0],
            _share(count, total),
            ReportTableCell(f"{diagnosis.local_failure_responses[code]:,}", show=f"code={code.value}"),
            wording.CODE_WORDS[code][1],
        )
        for code, count in diagnosis.local_failures.items()
    )
    heads = ("code", "reason", "unsound steps", "in responses", "meaning")
    return ReportTable.of("codes", "Why steps are unsound", heads, rows)


def _answer_table(diagnosis: Diagnosis, context: ReportContext) -> ReportTable:
    judge = "people" if context.settled_by_people else "the judge"
    matching, aliases = diagnosis.matching, diagnosis.alias_matching
    counts = {
        f"correct to {judge}, and a match of the reference": matching.both,
        f"correct to {judge}, no match: another wording, or a lenient label": matching.judge_only,
        f"a match, wrong to {judge}: worth a look": matching.matching_only,
        "wrong to both": matching.neither,
        "not known: no reference, no answer or no judgement": matching.unknown,
        "a match of the reference": matching.both + matching.matching_only,
        "a match of the reference or of one of its aliases": aliases.both + aliases.matching_only,
        "correct answer, though the whole does not hold": diagnosis.correct_but_insufficient,
        "wrong answer, though the whole holds": diagnosis.incorrect_but_sufficient,
        "wrong answer, though everything holds: worth a look": diagnosis.inconsistent,
    }
    total = diagnosis.overall.responses
    rows = tuple((name, _share(count, total)) for name, count in counts.items())
    return ReportTable.of(
        "answers",
        f"Answers: {judge.removeprefix('the ')}, matching and reasoning",
        ("the answer is …", "responses"),
        rows,
    )


_CONTEXT_WORDS = {
    "context_precision": "context precision, mean (needed passages stand first)",
    "context_recall": "context recall, mean (the passages support the reference)",
}


def _requested_table(diagnosis: Diagnosis) -> ReportTable:
    """Return what judges gave on request: criteria of the user's own, and what passages are worth."""
    rows = [
        (
            _CONTEXT_WORDS.get(name, name.removeprefix(OWN_PREFIX)),
            f"{rate.n:,}",
            format_percent(rate.estimate.value),
            format_percent_interval(rate.estimate.interval),
            f"{rate.unjudged:,}",
        )
        for name, rate in diagnosis.requested.items()
    ]
    note = (
        "Percent of the judged responses, with the 95 % interval over questions; of a criterion of your own the share "
        "of its first label. No other rate depends on these, and no labels of people correct them."
    )
    return ReportTable.of("requested", "Asked on request", ("what", "n", "%", "interval", "not judged"), rows, note)


def _unjudged_table(diagnosis: Diagnosis) -> ReportTable:
    rows = tuple(
        (criterion.value, wording.explain_missing_label(reason), f"{count:,}")
        for criterion, reasons in diagnosis.unjudged.items()
        for reason, count in reasons.items()
    )
    return ReportTable.of("unjudged", "What was not judged, and why", ("criterion", "reason", "responses"), rows)


def build_judge_agreement_table(context: ReportContext) -> ReportTable:
    """Return the agreement of the judge with people, label by label."""
    rows = tuple(
        (
            row.label.value,
            wording.LABEL_WORDS.get(row.label) or wording.METRIC_WORDS[LABEL_METRICS[row.label]][0],
            f"{row.n:,}",
            make_percent_cell(row.agreement),
            ReportTableCell(f"{row.misses:,}", (f"of {row.failures:,}", *_missed_details(row, context))),
            f"{row.false_alarms:,}",
            make_percent_cell(row.scores.kappa),
        )
        for row in context.agreement
    )
    heads = ("label", "what it says", "compared", "agreement, %", "misses", "false alarms", "kappa, %")
    note = (
        "Misses: failures that people alone see, of all that people see, with the exact 95 % interval of their share "
        "over responses; false alarms: failures that the judge alone sees. Other brackets are 95 % intervals over "
        "questions. Kappa is agreement beyond chance."
    )
    return ReportTable.of("agreement", "How far the judge agrees with people", heads, rows, note)


def _missed_details(row: LabelAgreementRow, context: ReportContext) -> tuple[str, ...]:
    """Return the share of missed failures; empty where people see no failure."""
    if row.missed.value is None:
        return ()
    if context.stratified:
        return (f"{format_percent(row.missed.value)} % of the sample",)
    return (format_percent_with_interval(*row.missed[:2]),)


def make_percent_cell(estimate: Estimate, *, decimals: int = 1) -> ReportTableCell:
    """Return an estimate in percent with its interval."""
    interval = format_percent_interval(estimate.interval, decimals=decimals)
    return ReportTableCell(format_percent(estimate.value, decimals=decimals), (interval,) if interval else ())


def make_score_cell(estimate: Estimate, details: tuple[str, ...] = ()) -> ReportTableCell:
    """Return a score or coefficient with its interval, and further details beneath."""
    interval = format_score_interval(estimate.interval)
    return ReportTableCell(format_score(estimate.value), (*((interval,) if interval else ()), *details))


def describe_judged(n: int, unjudged: int) -> str:
    """Return ``n 1,998 +12``: the judged responses of a rate, and those that are not judged."""
    return f"n {n:,}" + (f" +{unjudged:,}" if unjudged else "")


def build_judge_flips_table(diagnosis: Diagnosis) -> ReportTable:
    """Return how often the judge changed its label when asked again."""
    rows = tuple(
        (
            name,
            wording.LABEL_WORDS[name],
            f"{counts.responses:,}",
            f"{counts.flipped:,}",
            make_percent_cell(Estimate(counts.rate, counts.interval)),
            format_percent(counts.pair_rate),
        )
        for name, counts in diagnosis.flips.items()
    )
    heads = ("label", "what it says", "asked more than once", "flipped", "flipped, %", "pairs that differ, %")
    note = (
        "Flipped: responses that got both answers among the repetitions, with a 95 % interval. Pairs that differ: how "
        "often one more repetition gives another answer."
    )
    return ReportTable.of("flips", "How steady the judge is", heads, rows, note)


def _share(count: int, total: int) -> ReportTableCell:
    return ReportTableCell(f"{count:,}", (f"({format_percent(count / total)} %)",) if total else ())


def list_metric_glossary() -> Iterator[tuple[str, str, str]]:
    """Yield each metric and failure code with its name and meaning."""
    for metric, (name, meaning) in wording.METRIC_WORDS.items():
        yield metric.value, name, meaning
    for code, (name, meaning) in wording.CODE_WORDS.items():
        yield code.value, name, meaning
