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
    # A comment at the top as well as in the caption: tables are copied without their captions.
    lines = [f"% {escape_latex(sentence)}" for sentence in context.stale_warnings]
    lines += (*_main(diagnosis, context), *_failures(diagnosis), *_codes(diagnosis))
    for table in (build_judge_agreement_table(context), build_judge_flips_table(diagnosis)):
        if table.rows:
            lines += make_latex_table(table, "ll" + "r" * (len(table.heads) - 2))
    if context.base:
        lines += (*_differences(context.base), *_transitions(context.base))
    return join_latex_lines(lines)


def join_latex_lines(lines: Iterable[str]) -> str:
    """Return the lines of tables as one file, beneath the packages they need."""
    return _UNIT.sub(r"\\,", "\n".join([NEEDED_PACKAGES, *lines]) + "\n")


NEEDED_PACKAGES = r"% Needs \usepackage[T1]{fontenc} and the packages textcomp, booktabs and graphicx."
TABULAR_END = "\\bottomrule\n\\end{tabular}}"
_MIDRULE = r"\midrule"
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
    return _lay_table(
        "llr" + "r" * len(TABLE_METRICS),
        ["Dataset", "Model", "$n$", *(metric.value for metric in TABLE_METRICS)],
        _list_group_rows(diagnosis, context),
        caption=_MAIN_CAPTION + escape_latex(" ".join(sentences)),
        key="diagnosis",
    )


def _list_group_rows(diagnosis: Diagnosis, context: ReportContext) -> Iterator[str]:
    """Yield the models over all datasets, then each dataset with its models, then all together."""
    # The name of a block stands in its first row only.
    for number, summary in enumerate(diagnosis.by_model):
        yield from _rates("" if number else r"\emph{all datasets}", escape_latex(summary.group[0]), summary)
    by_dataset = {summary.group[0]: summary for summary in diagnosis.by_dataset}
    dataset = None
    for summary in diagnosis.pairs:
        first = summary.group[0] != dataset
        if first and (dataset is not None or diagnosis.by_model):
            yield _MIDRULE
        dataset = summary.group[0]
        # A dataset with several models begins with a row over all of them.
        if first and dataset in by_dataset:
            yield from _rates(escape_latex(dataset), r"\emph{all models}", by_dataset[dataset])
            first = False
        yield from _rates(escape_latex(dataset) if first else "", escape_latex(summary.group[1]), summary)
    yield _MIDRULE
    if context.corrected:
        cells = make_corrected_rates_row(diagnosis.overall, context)[2:]
        yield _row([r"\textbf{All}", r"\emph{corrected}", "", *(escape_latex(cell.text) for cell in cells)])
        yield _row(["", "", "", *(_small(" ".join(cell.details)) for cell in cells)])
    yield from _rates(r"\textbf{All}", r"\emph{the judge alone}" if context.corrected else "", diagnosis.overall)


def _rates(dataset: str, model: str, summary: GroupRates) -> Iterator[str]:
    """Yield the rows of a group: values, their intervals beneath, and Wilson intervals where defined."""
    values, intervals, wilson = [dataset, model, str(summary.responses)], ["", "", ""], ["", "", ""]
    for metric in TABLE_METRICS:
        shown_rate = ShownRate.of_group(summary, metric)
        rate, conditional = shown_rate.rate, metric in CONDITIONAL and shown_rate.printed
        # LggShare and LggRisk are shares of some responses, so their denominators differ from n of the row.
        among = rf" {{\scriptsize({rate.hits}/{rate.n})}}" if conditional and rate.n else ""
        values.append(("--" if shown_rate.span is None else shown_rate.number) + among)
        intervals.append(_small(shown_rate.of_judged))
        wilson.append(_small(f"W {format_percent_interval(rate.wilson)}") if conditional else "")
    yield _row(values)
    yield _row(intervals)
    if any(summary.rates[metric].n for metric in CONDITIONAL):
        yield _row(wilson)


def _small(text: str) -> str:
    """Return the text in small type; empty for an empty text."""
    # In braces: a bracket at the start of a row would be read as the argument of the line break before it.
    return rf"{{\scriptsize {text}}}" if text else ""


def _failures(diagnosis: Diagnosis) -> Iterator[str]:
    parts = diagnosis.overall.composition
    if parts.failures:
        counts = [
            (FAILURE_WORDS[failure][0].capitalize(), count, parts.gap_failures.get(failure, 0))
            for failure, count in parts.failures.items()
        ]
        rows = [_row([name, str(count), str(within)]) for name, count, within in counts]
        totals = [str(sum(parts.failures.values())), str(sum(parts.gap_failures.values()))]
        yield from _lay_table(
            "lrr",
            ["First broken link", "All", "Within LGG"],
            [*rows, _MIDRULE, _row(["Globally insufficient", *totals])],
            caption="Globally insufficient responses by their first broken link.",
            key="failures",
        )


def _codes(diagnosis: Diagnosis) -> Iterator[str]:
    if codes := diagnosis.local_failures:
        rows = [_row([code.value, CODE_WORDS[code][0].capitalize(), str(count)]) for code, count in codes.items()]
        caption = "Unsound steps by their primary reason."
        yield from _lay_table("llr", ["Code", "Reason", "Steps"], rows, caption=caption, key="codes")


def _differences(base: BaseComparison) -> Iterator[str]:
    overall = base.comparison.overall
    rows = []
    for metric in TABLE_METRICS:
        difference = overall.differences[metric]
        cells = [
            text
            for rate in (difference.run, difference.base)
            for text in (format_percent(rate.value, "--"), str(rate.n))
        ]
        interval = difference.estimate.interval
        ends = "" if interval is None else rf"{{[{_signed(interval.low)}, {_signed(interval.high)}]}}"
        rows.append(_row([metric.value, *cells, _signed(difference.estimate.value), ends]))
    questions = format_count(overall.questions, "question")
    return _lay_table(
        "lrrrrrr",
        # Counts have their own columns: LaTeX tables are read without the page's small print.
        ["Rate", "This run", "$n$", "The other run", "$n$", "Difference", r"95\,\% interval"],
        rows,
        caption=escape_latex(f"This run compared with {base.name}, on {questions} that both answer. ")
        + "Rates in percent, differences in points; questions are resampled in both runs together.",
        key="differences",
    )


def _signed(value: float | None) -> str:
    """Return a difference in math mode, which prints a true minus sign."""
    return "--" if value is None else f"${format_signed_percent(value).replace('−', '-')}$"


def _transitions(base: BaseComparison) -> Iterator[str]:
    table = tabulate_run_comparison(base)[-1]
    caption = f"Responses by their class in {base.name} (rows) and in this run (columns)."
    heads = [escape_latex(head) for head in table.heads]
    columns = "l" + "r" * (len(heads) - 1)
    return _lay_table(columns, heads, _list_rows(table), caption=escape_latex(caption), key="transitions")


def make_latex_table(table: ReportTable, columns: str, *, details_below: bool = False) -> Iterator[str]:
    """Yield the lines of a table, with its title and note as the caption.

    Args:
        table: Cells of plain text, which are escaped here.
        columns: Alignment of each column, as ``tabular`` takes it.
        details_below: Whether the details of cells stand in a row of their own instead of behind the value.
    """
    heads = [escape_latex(head) for head in table.heads]
    rows = _list_rows(table, details_below=details_below)
    caption = escape_latex(f"{table.title}. {table.note}")
    return _lay_table(columns, heads, rows, caption=caption, key=table.key, spans=table.spans)


def _list_rows(table: ReportTable, *, details_below: bool = False) -> Iterator[str]:
    for number, row in enumerate(table.rows):
        if table.is_heading(row):
            if number:
                yield _MIDRULE
            yield _row([rf"\multicolumn{{{len(table.heads)}}}{{c}}{{\emph{{{escape_latex(row[0].text)}}}}}"])
        elif details_below:
            yield _row([_ranked(cell) for cell in row])
            if any(cell.details for cell in row):
                yield _row([_small(escape_latex(" ".join(cell.details))) for cell in row])
        else:
            yield _row([" ".join((_ranked(cell), *map(_small, map(escape_latex, cell.details)))) for cell in row])


def _ranked(cell: ReportTableCell) -> str:
    """Return the text of a cell: the best value in bold, the second best underlined."""
    before, behind = {1: (r"\textbf{", "}"), 2: (r"\underline{", "}")}.get(cell.rank, ("", ""))
    return f"{before}{escape_latex(cell.text)}{behind}"


def open_latex_tabular(columns: str) -> Iterator[str]:
    """Yield the head of a tabular that is scaled down to the text width; close it with ``TABULAR_END``."""
    yield r"\setlength{\tabcolsep}{3pt}"
    yield r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    yield rf"\begin{{tabular}}{{{columns}}}"
    yield r"\toprule"


def _lay_table(
    columns: str,
    heads: Sequence[str],
    rows: Iterable[str],
    *,
    caption: str,
    key: str,
    spans: Sequence[tuple[str, int]] = (),
) -> Iterator[str]:
    """Yield the lines of a table around its rows; heads and caption are LaTeX, the names above the heads are text."""
    yield "\n\\begin{table*}[t]\n\\centering\\small"
    yield from open_latex_tabular(columns)
    if spans:
        yield _row([rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(name)}}}" for name, width in spans])
    yield _row(heads)
    yield _MIDRULE
    yield from rows
    yield TABULAR_END
    yield rf"\caption{{{caption}}}"
    yield rf"\label{{tab:{key}}}"
    yield r"\end{table*}"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
