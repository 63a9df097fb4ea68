"""The report as LaTeX: the main table as in the paper, and further tables; needs ``booktabs`` and ``graphicx``."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from eclose.diagnosis.number_format import (
    format_count,
    format_percent,
    format_percent_interval,
    format_signed_percent,
    to_one_line,
)
from eclose.diagnosis.shown_rate import ShownRate
from eclose.report.comparison import tabulate_run_comparison
from eclose.report.context import PEOPLE_LABELS, ReportContext
from eclose.report.document import (
    CONDITIONAL,
    TABLE_METRICS,
    build_judge_agreement_table,
    build_judge_flips_table,
    describe_corrections,
    make_corrected_rates_row,
)
from eclose.report.sections import describe_judge_agreement, list_sample_cautions
from eclose.report.wording import CODE_WORDS, FAILURE_WORDS
from eclose.values.judgment import MAX_UNJUDGED_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.metrics.rates import Metric
    from eclose.metrics.summary import GroupRates
    from eclose.report.context import BaseComparison
    from eclose.report.document import ReportTable, ReportTableCell

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
    # In braces, so that two hyphens do not become a dash.
    "-": r"{-}",
    "⟨": r"\textless{}",
    "⟩": r"\textgreater{}",
    "–": r"\textendash{}",
    "·": r"\textperiodcentered{}",
    "−": r"\textminus{}",
    "±": r"\textpm{}",
    "Δ": r"$\Delta$",
}
_SPECIAL_CHARACTER = re.compile("[" + re.escape("".join(_SPECIAL)) + "]")


def escape_latex(text: str) -> str:
    """Return the text with every character printed literally: no command, comment, column or ligature."""
    # Composed letters: T1 fonts have no combining accents.
    plain = unicodedata.normalize("NFC", to_one_line(text))
    return _SPECIAL_CHARACTER.sub(lambda match: _SPECIAL[match[0]], plain)


def render_latex_report(diagnosis: Diagnosis, context: ReportContext | None = None) -> str:
    """Return tables of metrics, failure classes, failure codes, agreement, consistency and the comparison."""
    context = context or ReportContext()
    tables = [_main(diagnosis, context), _failures(diagnosis), _codes(diagnosis)]
    tables += [_table_of(build_judge_agreement_table(context)), _table_of(build_judge_flips_table(diagnosis))]
    if context.base:
        tables += [_differences(context.base), _transitions(context.base)]
    # A comment at the top as well as in the caption: tables are copied without their captions.
    stale = [f"% {escape_latex(sentence)}" for sentence in context.stale_warnings]
    return join_latex_lines([*stale, *(line for table in tables for line in table)])


def join_latex_lines(lines: Iterable[str]) -> str:
    """Return the lines of tables as one file, beneath the packages they need."""
    return _UNIT.sub(r"\\,", "\n".join([NEEDED_PACKAGES, *lines]) + "\n")


NEEDED_PACKAGES = r"% Needs \usepackage[T1]{fontenc} and the packages textcomp, booktabs and graphicx."
TABULAR_END = "\\bottomrule\n\\end{tabular}}"
# A number and its percent sign stay on one line.
_UNIT = re.compile(r"(?<=\d) (?=\\%)")
_MAIN_CAPTION = (
    r"Rates in percent, with 95\,\% intervals over questions beneath; the last two with their denominators and "
    "Wilson intervals (W). "
)
_BOUNDS_CAPTION = (
    "Where responses have no label, a rate is given as bounds (22.2 to 33.3), whatever these turn out to be, with the "
    f"rate of the judged beneath, unless more than {100 * MAX_UNJUDGED_SHARE:.0f} % have none. "
)


def _main(diagnosis: Diagnosis, context: ReportContext) -> Iterator[str]:
    """Yield the main table: models over all datasets, then each dataset with its models, then all together."""
    heads = ["Dataset", "Model", "$n$", *(metric.value for metric in TABLE_METRICS)]
    yield from _opening("llr" + "r" * len(TABLE_METRICS), heads)
    # Models over all datasets first; the name of the block stands in its first row only.
    for number, summary in enumerate(diagnosis.by_model):
        yield from _rates("" if number else r"\emph{all datasets}", escape_latex(summary.group[0]), summary)
    by_dataset = {summary.group[0]: summary for summary in diagnosis.by_dataset}
    dataset = None
    for summary in diagnosis.pairs:
        first = summary.group[0] != dataset
        if first and (dataset is not None or diagnosis.by_model):
            yield r"\midrule"
        dataset = summary.group[0]
        # A dataset with several models begins with a row over all of them.
        if first and dataset in by_dataset:
            yield from _rates(escape_latex(dataset), r"\emph{all models}", by_dataset[dataset])
            first = False
        yield from _rates(escape_latex(dataset) if first else "", escape_latex(summary.group[1]), summary)
    yield r"\midrule"
    if context.corrected:
        cells = make_corrected_rates_row(diagnosis.overall, context)[2:]
        yield _row([r"\textbf{All}", r"\emph{corrected}", "", *(escape_latex(cell.text) for cell in cells)])
        yield _row(["", "", "", *(_small(" ".join(cell.details)) for cell in cells)])
    yield from _rates(r"\textbf{All}", r"\emph{the judge alone}" if context.corrected else "", diagnosis.overall)
    sentences = [
        *context.stale_warnings,
        # A caption is printed, so it names no command.
        PEOPLE_LABELS if context.settled_by_people else context.trust,
        *(caution.text for caution in list_sample_cautions(diagnosis, context)),
        *describe_judge_agreement(context)[:1],
        *describe_corrections(context),
    ]
    # Explain bounds only where the table has some.
    missing = any(rate.unjudged for rate in diagnosis.overall.rates.values())
    sentences = [_BOUNDS_CAPTION.strip(), *sentences] if missing else sentences
    yield from _closing(_MAIN_CAPTION + escape_latex(" ".join(sentences)), "tab:diagnosis")


def _rates(dataset: str, model: str, summary: GroupRates) -> Iterator[str]:
    """Yield the rows of a group: values, their intervals beneath, and Wilson intervals where defined."""
    rates: dict[Metric, ShownRate] = {metric: ShownRate.of_group(summary, metric) for metric in TABLE_METRICS}
    values = [_value(rate, conditional=metric in CONDITIONAL) for metric, rate in rates.items()]
    yield _row([dataset, model, str(summary.responses), *values])
    yield _row(["", "", "", *(_small(rate.of_judged) for rate in rates.values())])
    if any(rates[metric].rate.n for metric in CONDITIONAL):
        wilson = (
            f"W {format_percent_interval(shown_rate.rate.wilson)}"
            if metric in CONDITIONAL and shown_rate.printed
            else ""
            for metric, shown_rate in rates.items()
        )
        yield _row(["", "", "", *map(_small, wilson)])


def _value(shown_rate: ShownRate, *, conditional: bool) -> str:
    """Return the rate, or its bounds with missing labels; conditional rates with their counts."""
    # LggShare and LggRisk are shares of some responses, so their denominators differ from n of the row.
    counted = conditional and shown_rate.rate.n and shown_rate.printed
    among = rf" {{\scriptsize({shown_rate.rate.hits}/{shown_rate.rate.n})}}" if counted else ""
    return ("--" if shown_rate.span is None else shown_rate.number) + among


def _number(value: float | None) -> str:
    return "--" if value is None else format_percent(value)


def _small(text: str) -> str:
    """Return the text in small type; empty for an empty text."""
    # In braces: a bracket at the start of a row would be read as the argument of the line break before it.
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


def _differences(base: BaseComparison) -> Iterator[str]:
    # Counts have their own columns: LaTeX tables are read without the page's small print.
    heads = ["Rate", "This run", "$n$", "The other run", "$n$", "Difference", r"95\,\% interval"]
    yield from _opening("lrrrrrr", heads)
    overall = base.comparison.overall
    for metric in TABLE_METRICS:
        difference = overall.differences[metric]
        values = [
            _number(difference.run.value),
            str(difference.run.n),
            _number(difference.base.value),
            str(difference.base.n),
        ]
        interval = difference.estimate.interval
        ends = "" if interval is None else rf"{{[{_signed(interval.low)}, {_signed(interval.high)}]}}"
        yield _row([metric.value, *values, _signed(difference.estimate.value), ends])
    questions = format_count(overall.questions, "question")
    summary = f"This run compared with {base.name}, on {questions} that both answer. "
    caption = (
        escape_latex(summary)
        + "Rates in percent, differences in points; questions are resampled in both runs together."
    )
    yield from _closing(caption, "tab:differences")


def _signed(value: float | None) -> str:
    """Return a difference in math mode, which prints a true minus sign."""
    if value is None:
        return "--"
    return f"${format_signed_percent(value).replace('−', '-')}$"


def _transitions(base: BaseComparison) -> Iterator[str]:
    table = tabulate_run_comparison(base)[-1]
    yield from _cells(table, "l" + "r" * (len(table.heads) - 1))
    caption = f"Responses by their class in {base.name} (rows) and in this run (columns)."
    yield from _closing(escape_latex(caption), "tab:transitions")


def _table_of(table: ReportTable) -> Iterator[str]:
    """Yield a table of a label, its name and numbers; nothing where it has no rows."""
    if table.rows:
        yield from make_latex_table(table, "ll" + "r" * (len(table.heads) - 2))


def make_latex_table(
    table: ReportTable, columns: str, *, details_below: bool = False, spans: Sequence[tuple[str, int]] = ()
) -> Iterator[str]:
    """Yield the lines of a table, with its title and note as the caption.

    Args:
        table: Cells of plain text, which are escaped here.
        columns: Alignment of each column, as ``tabular`` takes it.
        details_below: Whether the details of cells stand in a row of their own instead of behind the value.
        spans: Heads above the heads, each with the number of columns that it spans; those of the table by default.
    """
    yield from _cells(table, columns, details_below=details_below, spans=spans or table.spans)
    yield from _closing(escape_latex(f"{table.title}. {table.note}"), f"tab:{table.key}")


def _cells(
    table: ReportTable, columns: str, *, details_below: bool = False, spans: Sequence[tuple[str, int]] = ()
) -> Iterator[str]:
    above = [rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(name)}}}" for name, width in spans]
    yield from _opening(columns, [escape_latex(head) for head in table.heads], above)
    for number, row in enumerate(table.rows):
        if table.is_heading(row):
            if number:
                yield r"\midrule"
            yield _row([rf"\multicolumn{{{len(table.heads)}}}{{c}}{{\emph{{{escape_latex(row[0].text)}}}}}"])
        elif details_below:
            yield _row([_ranked(cell) for cell in row])
            if any(cell.details for cell in row):
                yield _row([_small(escape_latex(" ".join(cell.details))) for cell in row])
        else:
            yield _row([" ".join((_ranked(cell), *map(_small, map(escape_latex, cell.details)))) for cell in row])


def _ranked(cell: ReportTableCell) -> str:
    """Return the text of a cell: the best value in bold, the second best underlined."""
    text = escape_latex(cell.text)
    match cell.rank:
        case 1:
            return rf"\textbf{{{text}}}"
        case 2:
            return rf"\underline{{{text}}}"
    return text


def open_latex_tabular(columns: str) -> Iterator[str]:
    """Yield the head of a tabular that is scaled down to the text width; close it with ``TABULAR_END``."""
    yield r"\setlength{\tabcolsep}{3pt}"
    yield r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    yield rf"\begin{{tabular}}{{{columns}}}"
    yield r"\toprule"


def _opening(columns: str, heads: Sequence[str], above: Sequence[str] = ()) -> Iterator[str]:
    yield "\n\\begin{table*}[t]\n\\centering\\small"
    yield from open_latex_tabular(columns)
    if above:
        yield _row(above)
    yield _row(heads)
    yield r"\midrule"


def _closing(caption: str, label: str) -> Iterator[str]:
    yield TABULAR_END
    yield rf"\caption{{{caption}}}"
    yield rf"\label{{{label}}}"
    yield r"\end{table*}"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
