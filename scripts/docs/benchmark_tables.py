"""Tables of the benchmark page; its text is in ``benchmark_template.md``."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmark_rows import BenchmarkMetric, BenchmarkRow

TEMPLATE = Path(__file__).with_name("benchmark_template.md")
NOTICES = "https://github.com/eclose/eclose/blob/main/studies/campaigns"
DESCRIPTIONS = {
    "confusable-short": "planted failures with the form of reliable responses, few passages",
    "confusable-long": "the same with many passages and more hops",
    "real text": f"traces by hand on questions of three benchmarks ([notice]({NOTICES}/real_gaps/NOTICE.md))",
    "planted failures, short-hard": "reliable, gap and unsound responses to the same questions",
    "planted failures over HTTP": "responses with every failure of the world",
    "people's traces, as written and broken": (
        f"traces of IRCoT, and the same broken by hand ([notice]({NOTICES}/real_labels/NOTICE.md))"
    ),
    "ROSCOE": "traces of models on DROP and GSM8K, labelled by people",
    "HotpotQA and MuSiQue": "short questions, to answer or to build families from",
    "2WikiMultiHopQA and MuSiQue": "short questions, to build families from",
    "world-short-easy": "sources of families",
    "families, short-easy": "counterfactual families",
    "families, short-hard": "counterfactual families with distractors",
}
"""What the datasets hold, by name; those of submissions may be absent."""
NATURAL = "failures of a small model that was trained on the world"
LABELS = ("L", "A", "C", "K", "Acc")


class Column(NamedTuple):
    """Column of a table: its head, the metric in it, and the digits that the record prints of bounds."""

    head: str
    metric: str
    bound_digits: int = 1


DETECTOR_COLUMNS = (
    Column("gap, AUROC", "AUROC of the gap"),
    Column("gap, R@95", "R@95"),
    Column("gap found, cross-fitted", "recall of the gap, cross-fitted"),
    Column("path", "AUROC of path deviation"),
    Column("incomplete", "AUROC of incomplete reasoning"),
    Column("decoupling", "AUROC of answer decoupling"),
)
JUDGE_COLUMNS = tuple(Column(label, f"balanced accuracy, {label}") for label in LABELS)
ERROR_COLUMNS = tuple(Column(label, f"responses judged wrongly, {label}") for label in LABELS)
FAMILY_COLUMNS = (
    *(Column(f"switches, {edge}", f"switches, {edge}", 0) for edge in "STC"),
    Column("accuracy", "accuracy"),
    Column("no answer", "no answer"),
)


def format_page(rows: Sequence[BenchmarkRow]) -> str:
    """Return the page: the template with its tables."""
    tables = {
        "datasets": _format_datasets(rows),
        "detectors": "".join(_format_sets(rows, DETECTOR_COLUMNS)),
        "judges": "".join(_format_sets(rows, JUDGE_COLUMNS)),
        "world judges": "".join(_format_sets(rows, ERROR_COLUMNS)),
        "models": "".join(_format_sets(rows, FAMILY_COLUMNS)),
        "counts": _format_counts(rows),
    }
    page = TEMPLATE.read_text("utf-8")
    for name, table in tables.items():
        page = page.replace(f"<!-- {name} -->", table.strip())
    return page


def _format_datasets(rows: Sequence[BenchmarkRow]) -> str:
    """Return the table of datasets."""
    lines = ["| dataset | texts | split | n | content | licence |", "|---|---|---|---|---|---|"]
    sizes: dict[tuple[str, ...], set[int]] = {}
    for row in rows:
        sizes.setdefault((row.origin, row.dataset, row.split, row.licence), set()).add(row.n)
    for (origin, dataset, split, licence), numbers in sorted(sizes.items()):
        content = NATURAL if dataset.startswith("natural") else DESCRIPTIONS.get(dataset, "")
        counts = ", ".join(f"{number:,}" for number in sorted(numbers))
        lines.append(f"| {dataset} | {origin} | {split} | {counts} | {content} | {licence} |")
    return "\n".join(lines) + "\n\n"


def _format_sets(rows: Sequence[BenchmarkRow], columns: Sequence[Column]) -> Iterator[str]:
    """Yield a table for each dataset and split with one of the metrics, and the runs behind it."""
    names = {column.metric for column in columns}
    chosen = [row for row in rows if names & {metric.name for metric in row.metrics}]
    chosen.sort(key=_order)
    for (dataset, split), group in groupby(chosen, key=lambda row: (row.dataset, row.split)):
        members = list(group)
        # A column without a value says nothing about any system.
        values = {metric.name for row in members for metric in row.metrics if metric.value is not None}
        present = [column for column in columns if column.metric in values]
        sizes = sorted({row.n for row in members})
        heads = ["system", *(["n"] if len(sizes) > 1 else []), *(column.head for column in present)]
        runs = list(dict.fromkeys(map(_describe_run, members)))
        lines = [f"### {dataset}, {split}\n", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for row in members:
            number = f" ({runs.index(_describe_run(row)) + 1})" if len(runs) > 1 else ""
            lines.append(_format_row(row, present, number, sized=len(sizes) > 1))
        # A numbered list begins a paragraph of its own.
        size = "" if len(sizes) > 1 else f"n = {sizes[0]:,}." + ("\n\n" if len(runs) > 1 else " ")
        yield "\n".join(lines) + "\n\n" + size + _format_runs(runs)


def _order(row: BenchmarkRow) -> tuple[bool, str, str, str, float]:
    """Return the rank of a row: test splits first, then by dataset; best systems first."""
    leading = next((metric.value for metric in row.metrics if metric.name == "AUROC of the gap"), None)
    return (row.split != "test", row.dataset, row.split, "" if leading is not None else row.system, -(leading or 0.0))


def _format_row(row: BenchmarkRow, columns: Sequence[Column], run: str, *, sized: bool) -> str:
    metrics = {metric.name: metric for metric in row.metrics}
    name = _name_system(row) + run
    cells = [f"*{name}*" if row.kind == "control" else name, *([f"{row.n:,}"] if sized else [])]
    for column in columns:
        metric = metrics.get(column.metric)
        cells.append("" if metric is None else format_metric(metric, row.n, column.bound_digits))
    return f"| {' | '.join(cells)} |"


def _name_system(row: BenchmarkRow) -> str:
    return f"{row.system}, {row.variant}" if row.variant else row.system


def format_metric(metric: BenchmarkMetric, n: int, bound_digits: int = 1) -> str:
    """Return a value with its interval, and its own n where that is not the row's."""
    if metric.value is None:
        text = "-"
    else:
        bounds = [bound for bound in (metric.low, metric.high) if bound is not None]
        # Rates of error have two digits in their record.
        needed = max(len(f"{number:g}".partition(".")[2]) for number in (metric.value, *bounds))
        digits = max({"share": 3, "%": 1, "count": 0}[metric.unit], needed)
        text = f"{metric.value:.{digits}f}"
        if bounds:
            text += f" [{', '.join(f'{bound:.{digits if bound_digits else 0}f}' for bound in bounds)}]"
    return text if metric.n in (None, n) else f"{text} (n = {metric.n:,})"


def _describe_run(row: BenchmarkRow) -> str:
    path = row.record.removeprefix("docs/")
    link = f"[{path.rpartition('/')[2]}]({path})"
    return f"`{row.command}`, {row.hardware}: {link} of {row.date}, commit {row.commit}"


def _format_runs(runs: Sequence[str]) -> str:
    """Return the runs behind a table, numbered where there are several."""
    if len(runs) == 1:
        return f"{runs[0]}.\n\n"
    return "".join(f"{number}. {run}\n" for number, run in enumerate(runs, 1)) + "\n"


def _format_counts(rows: Sequence[BenchmarkRow]) -> str:
    """Return the table of metrics that are counts, and the runs behind it."""
    lines = ["| system | dataset | n | counted | count |", "|---|---|---|---|---|"]
    counted = [(row, metric) for row in rows for metric in row.metrics if metric.unit == "count"]
    runs = list(dict.fromkeys(_describe_run(row) for row, _ in counted))
    for row, metric in counted:
        name = f"{_name_system(row)} ({runs.index(_describe_run(row)) + 1})"
        cells = [name, f"{row.dataset}, {row.split}", f"{row.n:,}", metric.name, format_metric(metric, row.n)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n" + _format_runs(runs)
