"""The main table in the paper's layout, and what goes with it, for a document with ``booktabs`` and ``graphicx``."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from eclose.core.judgment import MAX_UNJUDGED_SHARE
from eclose.diagnosis.report.comparison import comparison_tables
from eclose.diagnosis.report.context import ReportContext
from eclose.diagnosis.report.format import (
    CODE_WORDS,
    FAILURE_WORDS,
    TOO_LITTLE,
    RateStatus,
    one_line,
    percent,
    percent_range,
    percent_span,
    rate_status,
    signed,
)
from eclose.diagnosis.report.summary import agreement_sentences
from eclose.diagnosis.report.table import (
    CONDITIONAL,
    CORRECTED_NOTE,
    SHOWN_METRICS,
    agreement_table,
    corrected_row,
    flips_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.diagnosis.report.context import BaseComparison
    from eclose.diagnosis.report.table import Table
    from eclose.metrics.rates import Metric
    from eclose.metrics.summary import GroupSummary

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": r"{-}",
    "⟨": r"\textless{}",
    "⟩": r"\textgreater{}",
    "–": "--",
    "·": r"\textperiodcentered{}",
}
_EACH = re.compile("[" + re.escape("".join(_SPECIAL)) + "]")


def escape(text: str) -> str:
    """Text as it is: in it there is no command, no comment, no column and no ligature."""
    plain = unicodedata.normalize("NFC", one_line(text))
    return _EACH.sub(lambda found: _SPECIAL[found[0]], plain)


def render_latex(diagnosis: Diagnosis, notes: ReportContext | None = None) -> str:
    """The metrics by dataset and model, failure classes, codes of unsound steps, and a run against another."""
    notes = notes or ReportContext()
    tables = [_main(diagnosis, notes), _failures(diagnosis), _codes(diagnosis)]
    tables += [_told(agreement_table(notes)), _told(flips_table(diagnosis))]
    if notes.against:
        tables += [_differences(notes.against), _transitions(notes.against)]
    stale = [f"% {escape(sentence)}" for sentence in notes.stale_told]
    text = "\n".join([NEEDS, *stale, *(line for table in tables for line in table)]) + "\n"
    return _UNIT.sub(r"\\,", text)


NEEDS = r"% Needs \usepackage[T1]{fontenc} and the packages textcomp, booktabs and graphicx."
TABULAR_END = "\\bottomrule\n\\end{tabular}}"
# A number and its percent sign stay on one line.
_UNIT = re.compile(r"(?<=\d) (?=\\%)")
_WITH_VALUE = (RateStatus.RATE, RateStatus.BOUNDS)
_MAIN_CAPTION = (
    r"Rates in percent, with 95\,\% intervals over questions beneath; the last two with their denominators and "
    "Wilson intervals (W). "
)
_BOUNDS_CAPTION = (
    "Where responses have no label, a rate is given as bounds (22.2 to 33.3), whatever these turn out to be, with the "
    f"rate of the judged beneath, unless more than {100 * MAX_UNJUDGED_SHARE:.0f} % have none. "
)


def _main(diagnosis: Diagnosis, notes: ReportContext) -> Iterator[str]:
    heads = ["Dataset", "Model", "$n$", *(metric.value for metric in SHOWN_METRICS)]
    yield from _opening("llr" + "r" * len(SHOWN_METRICS), heads)
    for number, summary in enumerate(diagnosis.by_model):
        yield from _rates("" if number else r"\emph{all datasets}", escape(summary.group[0]), summary)
    whole = {summary.group[0]: summary for summary in diagnosis.by_dataset}
    dataset = None
    for summary in diagnosis.pairs:
        first = summary.group[0] != dataset
        if first and (dataset is not None or diagnosis.by_model):
            yield r"\midrule"
        dataset = summary.group[0]
        if first and dataset in whole:
            yield from _rates(escape(dataset), r"\emph{all models}", whole[dataset])
            first = False
        yield from _rates(escape(dataset) if first else "", escape(summary.group[1]), summary)
    yield r"\midrule"
    if notes.corrected:
        cells = corrected_row(diagnosis.overall, notes)[2:]
        yield _row([r"\textbf{All}", r"\emph{corrected}", "", *(escape(cell.text) for cell in cells)])
        yield _row(["", "", "", *(_small(" ".join(cell.details)) for cell in cells)])
    yield from _rates(r"\textbf{All}", r"\emph{the judge alone}" if notes.corrected else "", diagnosis.overall)
    told = [
        *notes.stale_told,
        notes.trust,
        *agreement_sentences(notes)[:1],
        *([CORRECTED_NOTE] if notes.corrected else []),
    ]
    missing = any(rate.unjudged for rate in diagnosis.overall.rates.values())
    told = [_BOUNDS_CAPTION.strip(), *told] if missing else told
    yield from _closing(_MAIN_CAPTION + escape(" ".join(told)), "tab:diagnosis")


def _rates(dataset: str, model: str, summary: GroupSummary) -> Iterator[str]:
    """The values, and beneath them their intervals."""
    values = [_value(summary, metric) for metric in SHOWN_METRICS]
    yield _row([dataset, model, str(summary.responses), *values])
    yield _row(["", "", "", *(_beneath(summary, metric) for metric in SHOWN_METRICS)])
    if any(summary.rates[metric].n for metric in CONDITIONAL):
        wilson = {metric: f"W {percent_range(summary.rates[metric].wilson)}" for metric in CONDITIONAL}
        shown = {metric: text for metric, text in wilson.items() if rate_status(summary.rates[metric]) in _WITH_VALUE}
        yield _row(["", "", "", *(_small(shown.get(metric, "")) for metric in SHOWN_METRICS)])


def _beneath(summary: GroupSummary, metric: Metric) -> str:
    """The interval; where labels are missing, the rate of the judged with it, or that too little was judged."""
    rate, interval = summary.rates[metric], percent_range(summary.estimates[metric].interval)
    match rate_status(rate):
        case RateStatus.BOUNDS:
            return _small(f"{percent(rate.value)} {interval}".rstrip())
        case RateStatus.TOO_LITTLE:
            return _small(TOO_LITTLE)
    return _small(interval)


def _value(summary: GroupSummary, metric: Metric) -> str:
    rate = summary.rates[metric]
    told = metric in CONDITIONAL and rate.n and rate_status(rate) in _WITH_VALUE
    among = rf" {{\scriptsize({rate.hits}/{rate.n})}}" if told else ""
    return (_number(rate.value) if not rate.unjudged or rate.bounds is None else percent_span(rate.bounds)) + among


def _number(value: float | None) -> str:
    return "--" if value is None else percent(value)


def _small(text: str) -> str:
    # A bracket at the start of a row would be read as the argument of the line break before it.
    return rf"{{\scriptsize {text}}}" if text else ""


def _failures(diagnosis: Diagnosis) -> Iterator[str]:
    parts = diagnosis.overall.composition
    if not parts.failures:
        return
    yield from _opening("lrr", ["First broken link", "All", "Within LGG"])
    for failure, count in parts.failures.items():
        yield _row([FAILURE_WORDS[failure][0].capitalize(), str(count), str(parts.gap_failures.get(failure, 0))])
    yield r"\midrule"
    yield _row(["Globally insufficient", str(sum(parts.failures.values())), str(sum(parts.gap_failures.values()))])
    yield from _closing("Globally insufficient responses by their first broken link.", "tab:failures")


def _codes(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.local_failures:
        return
    yield from _opening("llr", ["Code", "Reason", "Steps"])
    for code, count in diagnosis.local_failures.items():
        yield _row([code.value, CODE_WORDS[code][0].capitalize(), str(count)])
    yield from _closing("Unsound steps by their primary reason.", "tab:codes")


def _differences(against: BaseComparison) -> Iterator[str]:
    heads = ["Rate", "This run", "$n$", "The other run", "$n$", "Difference", r"95\,\% interval"]
    yield from _opening("lrrrrrr", heads)
    overall = against.comparison.overall
    for metric in SHOWN_METRICS:
        one = overall.differences[metric]
        values = [_number(one.run.value), str(one.run.n), _number(one.base.value), str(one.base.n)]
        interval = one.estimate.interval
        ends = "" if interval is None else rf"{{[{_signed(interval.low)}, {_signed(interval.high)}]}}"
        yield _row([metric.value, *values, _signed(one.estimate.value), ends])
    told = f"This run against {against.name}, on {overall.questions} questions that both answer. "
    caption = escape(told) + "Rates in percent, differences in points; questions are resampled in both runs together."
    yield from _closing(caption, "tab:differences")


def _signed(value: float | None) -> str:
    if value is None:
        return "--"
    return f"${signed(value).replace('−', '-')}$"


def _transitions(against: BaseComparison) -> Iterator[str]:
    table = comparison_tables(against)[-1]
    yield from _cells(table, "l" + "r" * (len(table.heads) - 1))
    caption = f"Responses by their class in {against.name} (rows) and in this run (columns)."
    yield from _closing(escape(caption), "tab:transitions")


def _told(table: Table) -> Iterator[str]:
    """A table of a label and its words, then numbers; nothing where it has no rows."""
    if table.rows:
        yield from _cells(table, "ll" + "r" * (len(table.heads) - 2))
        yield from _closing(escape(f"{table.title}. {table.note}"), f"tab:{table.key}")


def _cells(table: Table, columns: str) -> Iterator[str]:
    yield from _opening(columns, [escape(head) for head in table.heads])
    for row in table.rows:
        yield _row([" ".join((escape(cell.text), *map(_small, cell.details))) for cell in row])


def tabular(columns: str) -> Iterator[str]:
    """The head of a tabular as wide as it likes, but never wider than the text; ends with ``TABULAR_END``."""
    yield r"\setlength{\tabcolsep}{3pt}"
    yield r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    yield rf"\begin{{tabular}}{{{columns}}}"
    yield r"\toprule"


def _opening(columns: str, heads: Sequence[str]) -> Iterator[str]:
    yield "\n\\begin{table*}[t]\n\\centering\\small"
    yield from tabular(columns)
    yield _row(heads)
    yield r"\midrule"


def _closing(caption: str, label: str) -> Iterator[str]:
    yield TABULAR_END
    yield rf"\caption{{{caption}}}"
    yield rf"\label{{{label}}}"
    yield r"\end{table*}"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
