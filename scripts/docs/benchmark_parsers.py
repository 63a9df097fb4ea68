"""Parsers of records, one for each kind. A table that cannot be parsed for certain gives no row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from benchmark_rows import (
    BenchmarkMetric,
    BenchmarkRow,
    Origin,
    Record,
    RecordLine,
    SystemKind,
    Unit,
    parse_count,
    parse_metric,
)

CONTROLS = ("answer words", "conclusion word", "number of steps", "question words", "word overlap")
"""Detectors that look at form or at single words alone."""
TABLE_METRICS: tuple[tuple[str, Unit], ...] = (
    ("AUROC of the gap", "share"),
    ("R@95", "%"),
    ("AUROC of path deviation", "share"),
    ("AUROC of incomplete reasoning", "share"),
    ("AUROC of answer decoupling", "share"),
    ("AUROC of unsound steps", "share"),
)
GROUP_METRICS = {
    "path deviation": "AUROC of path deviation",
    "incomplete reasoning": "AUROC of incomplete reasoning",
    "answer decoupling": "AUROC of answer decoupling",
    "locally unsound": "AUROC of unsound steps",
}
"""Metrics of the failure groups in ``detectors.md``, which prints them without intervals."""
REPORT_METRICS: tuple[tuple[str, Unit], ...] = (
    ("AUROC of the gap", "share"),
    ("R@95", "%"),
    ("false positives", "%"),
    ("false positives, cross-fitted", "%"),
    ("recall of the gap, cross-fitted", "%"),
)
JUDGED_SETS = {
    "people's traces, as written and broken": (
        "IRCoT Apache-2.0; HotpotQA CC BY-SA 4.0, MuSiQue CC BY 4.0, text of Wikipedia"
    ),
    "roscoe": "those of DROP and GSM8K; not in this repository",
}
"""Sets of ``judge_real.py`` and the licences of their texts. Parts of a set are in the record alone."""
QA_LICENCES = {
    "HotpotQA": "CC BY-SA 4.0",
    "MuSiQue": "CC BY 4.0",
    "2WikiMultiHopQA": "Apache-2.0 as third parties list it",
}
WORLD_LICENCE = "Apache-2.0, generated"
SMALL_MODEL = "SmolLM2-135M"

Parser: TypeAlias = Callable[[Record], Iterator[BenchmarkRow]]


@dataclass
class Section:
    """Heading above a table: what was scored, and how many responses."""

    dataset: str
    variant: str = ""
    n: int = 0
    split: str = ""
    cross_fitted: list[BenchmarkMetric] = field(default_factory=list)


def parse_detector_tables(record: Record) -> Iterator[BenchmarkRow]:
    """Yield a row for each detector of each table that ``format_evaluation`` of the campaigns prints."""
    section, in_table = Section(""), False
    for line in record.lines:
        if line.text.startswith("#"):
            section = _parse_heading(line.text, section)
        elif match := re.match(r"n = (\d+);", line.text):
            section.n = int(match[1])
        elif match := re.fullmatch(r"cross-fitted over questions: gap (.+); reliable (.+)", line.text):
            section.cross_fitted = [
                parse_metric("recall of the gap, cross-fitted", "%", match[1], line),
                parse_metric("false positives, cross-fitted", "%", match[2], line),
            ]
        in_table = line.text.startswith("| detector | gap AUROC |") or (in_table and line.text.startswith("|"))
        if in_table and section.n and not line.text.startswith(("| detector |", "|--")):
            yield _make_detector_row(record, line, section)


def _parse_heading(text: str, section: Section) -> Section:
    """Return the section of a heading such as ``## confusable-short, all features``."""
    title = text.lstrip("# ")
    if match := re.match(r"(natural-\d+):", title):
        return Section(match[1], split="every second question")
    if title == "separation":
        return Section(section.dataset, split=section.split)
    if match := re.match(r"beside a model that is asked: (\d+) responses", title):
        return Section(section.dataset, n=int(match[1]), split="gap and some reliable responses")
    dataset, _, variant = title.partition(", ")
    return Section(dataset, variant) if text.startswith("## ") else section


def _make_detector_row(record: Record, line: RecordLine, section: Section) -> BenchmarkRow:
    name, *cells = line.cells
    metrics = [parse_metric(*metric, cell, line) for metric, cell in zip(TABLE_METRICS, cells, strict=True)]
    dataset, _, half = section.dataset.rstrip(")").partition(" (")
    origin, licence = _name_origin(dataset)
    kind: SystemKind = "control" if name in CONTROLS else "model" if name.startswith("P(Yes)") else "detector"
    return BenchmarkRow(
        kind,
        f"{SMALL_MODEL}, {name}" if kind == "model" else name,
        # Controls are not trained, so a variant of the verifier is none of theirs.
        "" if kind == "control" else section.variant,
        re.sub("^natural-", "natural failures, run ", dataset),
        origin,
        section.split or half or ("test" if "--test" in line.command else "development"),
        licence,
        section.n,
        tuple([*section.cross_fitted, *metrics] if "@" in name else metrics),
        line.command,
        record.path,
        record.hardware,
    )


def _name_origin(dataset: str) -> tuple[Origin, str]:
    """Return where the texts of a set of detectors come from, and their licences."""
    if dataset == "real text":
        return "real", "; ".join(["traces Apache-2.0", *(f"{name} {text}" for name, text in QA_LICENCES.items())])
    return "world", WORLD_LICENCE


def parse_detector_report(record: Record) -> Iterator[BenchmarkRow]:
    """Yield a row for each detector of a ``detectors.md``, as ``eclose detect evaluate`` writes it."""
    text = "\n".join(line.text for line in record.lines)
    size = re.search(r"^([\d,]+) responses, [\d,]+ of them undecided", text, re.MULTILINE)
    models = dict(re.findall(r"^- ([^:\n]+): (.+)$", text, re.MULTILINE))
    groups = _parse_group_table(record)
    in_table = False
    for line in record.lines:
        in_table = line.text.startswith("| detector | AUROC | R@95 |") or (in_table and line.text.startswith("|"))
        name, *cells = line.cells
        if not in_table or size is None or name not in models:
            continue
        metrics = [parse_metric(*metric, cell, line) for metric, cell in zip(REPORT_METRICS, cells, strict=False)]
        yield BenchmarkRow(
            "detector",
            # Two models behind one detector are numbered; the model itself tells them apart.
            re.sub(r" \d+$", "", name),
            re.sub(r"^127\.0\.0\.1:\d+/", "", models[name].replace("\\", "")),
            record.headers["dataset"],
            "real" if record.headers["origin"] == "real" else "world",
            record.headers["split"],
            record.headers["licence"],
            parse_count(size[1]),
            (*metrics, *groups.get(name, ())),
            line.command,
            record.path,
            record.hardware,
        )


def _parse_group_table(record: Record) -> dict[str, list[BenchmarkMetric]]:
    """Return the AUROC of each failure group by detector, from the first table of the report."""
    heads: list[str] = []
    metrics: dict[str, list[BenchmarkMetric]] = {}
    for line in record.lines:
        name, *cells = line.cells
        if name == "group":
            heads = cells
        for head, cell in zip(heads, cells, strict=False):
            if name in GROUP_METRICS and head.endswith(" AUC"):
                metric = parse_metric(GROUP_METRICS[name], "share", cell.split("<br>")[0], line)
                metrics.setdefault(head.removesuffix(" AUC"), []).append(metric)
    return metrics


def parse_judged_sets(record: Record) -> Iterator[BenchmarkRow]:
    """Yield a row for each set that a judge of ``studies/campaigns/judge_real.py`` was validated on."""
    cell = r"(\S+ \[[^\]]*\])"
    labels = re.compile(rf"(\w+)\s+(\d+) of (\d+)\s+{cell}\s+{cell}\s.*")
    for start, line in enumerate(record.lines):
        title = re.fullmatch(r"(?:\S+/)?(\S+) on (.+): ([\d,]+) responses, in percent", line.text)
        if title is None or title[2] not in JUDGED_SETS:
            continue
        metrics: list[BenchmarkMetric] = []
        # The head of the table is between the title and its rows.
        for row in record.lines[start + 2 :]:
            match = labels.fullmatch(row.text)
            if match is None:
                break
            judged = int(match[2])
            metrics += [
                parse_metric(f"balanced accuracy, {match[1]}", "%", match[5], row, judged),
                parse_metric(f"agreement, {match[1]}", "%", match[4], row, judged),
            ]
        yield BenchmarkRow(
            "judge",
            title[1],
            "",
            title[2] if title[2] != "roscoe" else "ROSCOE",
            "real",
            "first responses of each set",
            JUDGED_SETS[title[2]],
            parse_count(title[3]),
            tuple(metrics),
            line.command,
            record.path,
            record.hardware,
        )


def parse_world_judges(record: Record) -> Iterator[BenchmarkRow]:
    """Yield rows for the exact judge of the world and for judges with a known rate of error."""
    errors: dict[str, list[BenchmarkMetric]] = {}
    n = 0
    for line in record.lines:
        if match := re.match(r"exact judge: ([\d,]+) responses", line.text):
            n, errors = parse_count(match[1]), {}
        elif match := re.match(r"\s+([\d,]+) labels and ([\d,]+) steps differ,", line.text):
            metrics = [
                parse_metric(f"{name} that differ from the truth", "count", value.replace(",", ""), line)
                for name, value in zip(("labels", "steps"), match.groups(), strict=True)
            ]
            yield _make_world_row(record, line, "exact", n, metrics)
        elif match := re.match(r"\s+(p = [\d.]+)\s+(\w+)\s+n = ([\d,]+)\s+([\d.]+ % \[[^\]]+\])", line.text):
            metric = parse_metric(f"responses judged wrongly, {match[2]}", "%", match[4], line, parse_count(match[3]))
            errors.setdefault(match[1], []).append(metric)
        elif line.text.startswith("round 1:"):
            for rate, row in errors.items():
                yield _make_world_row(record, line, f"errs at {rate}", n, row)


def _make_world_row(
    record: Record, line: RecordLine, variant: str, n: int, metrics: list[BenchmarkMetric]
) -> BenchmarkRow:
    return BenchmarkRow(
        "judge",
        "oracle of the world",
        variant,
        "planted failures over HTTP",
        "world",
        "whole",
        WORLD_LICENCE,
        n,
        tuple(metrics),
        line.command,
        record.path,
        record.hardware,
    )


def parse_trained_models(record: Record) -> Iterator[BenchmarkRow]:
    """Yield a row for each objective that a small model was trained with, from ``studies/campaigns/learning.py``."""
    for line in record.lines:
        cells = line.cells
        match = re.search(r"--profile (\S+)", line.command)
        accuracy = re.fullmatch(r"([\d.]+) \(n = (\d+)\)", cells[5]) if len(cells) == 8 else None
        if match is None or accuracy is None:
            continue
        switches = [re.fullmatch(r"\d+ / \d+ / ([\d.]+ \[\d+-\d+\]) \(.+\)", cell) for cell in cells[2:5]]
        metrics = [
            *(
                parse_metric(f"switches, {edge}", "%", switch[1], line)
                for edge, switch in zip("STC", switches, strict=True)
                if switch is not None
            ),
            parse_metric("accuracy", "%", accuracy[1], line),
            parse_metric("no answer", "%", cells[6], line),
        ]
        yield BenchmarkRow(
            "model",
            record.headers.get("system", SMALL_MODEL),
            cells[0],
            f"families, {match[1]}",
            "world",
            "held-out families",
            WORLD_LICENCE,
            int(accuracy[2]),
            tuple(metrics),
            line.command,
            record.path,
            record.hardware,
        )


def parse_generated_responses(record: Record) -> Iterator[BenchmarkRow]:
    """Yield a row for each run of ``eclose generate``: how many responses have no answer."""
    n = 0
    for line in record.lines:
        if match := re.match(r"\S+responses\.jsonl: ([\d,]+) received", line.text):
            n = parse_count(match[1])
        elif match := re.match(r"\s+without an answer: ([\d,]+) responses", line.text):
            metric = parse_metric("responses without an answer", "count", match[1].replace(",", ""), line)
            yield _make_qa_row(record, line, "writes responses", ["HotpotQA", "MuSiQue"], n, metric)


def parse_constructed_families(record: Record) -> Iterator[BenchmarkRow]:
    """Yield a row for each run of ``eclose construct``: how many sources became families."""
    names: list[str] = []
    for line in record.lines:
        if line.text.startswith("dataset "):
            names = []
        elif match := re.fullmatch(r"(\S+)((?:\s+\d+){7})", line.text):
            names += [match[1]] if match[1] != "all" else []
        elif match := re.match(r"\S+families\.jsonl: ([\d,]+) received = ([\d,]+) accepted", line.text):
            metric = parse_metric("families built", "count", match[2].replace(",", ""), line)
            yield _make_qa_row(record, line, "constructs families", names, parse_count(match[1]), metric)


def _make_qa_row(
    record: Record, line: RecordLine, variant: str, names: list[str], n: int, metric: BenchmarkMetric
) -> BenchmarkRow:
    real = all(name in QA_LICENCES for name in names)
    return BenchmarkRow(
        "model",
        record.headers.get("system", f"{SMALL_MODEL}-Instruct"),
        variant,
        " and ".join(names),
        "real" if real else "world",
        "shortest questions" if real else "whole",
        ", ".join(f"{name} {QA_LICENCES[name]}" for name in names) if real else WORLD_LICENCE,
        n,
        (metric,),
        line.command,
        record.path,
        record.hardware,
    )


PARSERS: dict[str, Parser] = {
    "construct_real": parse_constructed_families,
    "detect_natural": parse_detector_tables,
    "detect_report": parse_detector_report,
    "detect_study": parse_detector_report,
    "detect_verifier": parse_detector_tables,
    "generate_real": parse_generated_responses,
    "judge_http": parse_world_judges,
    "judge_real": parse_judged_sets,
    "learning": parse_trained_models,
}
"""Parsers by kind of record: what comes before the first hyphen of its name."""
