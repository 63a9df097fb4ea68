"""The unreliable responses of runs as a list to mend: each under one kind, the largest kind first.

Responses are chosen by their labels and read one after another, so that a run need not fit into memory.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.diagnosis.number_format import format_count
from eclose.diagnosis.response_failure import (
    COLUMN_TYPES,
    count_false_labels,
    describe_response,
    find_failure_kind,
)
from eclose.errors import SettingError
from eclose.files.atomic import AtomicFile
from eclose.files.parquet import ParquetWriter, list_arrow_fields
from eclose.files.tables import encode_csv, fit_column_type, infer_column_types, name_own_columns
from eclose.metrics.rates import VERDICTS
from eclose.readers.judged_run import JudgedCase
from eclose.report.formats.file_formats import FailureFormat
from eclose.report.formats.markdown import escape_markdown
from eclose.report.sections import encode_address
from eclose.report.wording import KIND_WORDS
from eclose.values.instance import Instance
from eclose.values.judgment import Judgment
from eclose.values.response import Response, Trace
from eclose.values.verdict import FailureKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eclose.diagnosis.run_counts import RunCounts

_ROW_GROUP = 1_000


_SUFFIXES = {".md": FailureFormat.MARKDOWN, **{f".{each}": each for each in FailureFormat}}


@cache
def list_failure_columns() -> tuple[str, ...]:
    """Return the columns of the list, without the user's own."""
    nothing = JudgedCase(Instance("", "", ()), Response("", "", Trace(()), None), Judgment("", "", ()))
    return (*describe_response(nothing), "link")


class FailureList:
    """The unreliable responses of runs, of all kinds or of one.

    Attributes:
        responses: Number of judged responses.
        counts: Number of unreliable responses of each kind, the largest kind first; of all kinds, whichever is listed.
        undecided: Number of responses whose labels do not decide whether they are reliable. No list has them.
    """

    def __init__(self, counted: RunCounts, kind: FailureKind | str | None = None, page: Path | None = None) -> None:
        """Find the kind of every unreliable response.

        Args:
            counted: The labels of the runs.
            kind: The kind to list; all by default.
            page: Page of the runs, to which each row has a link; one with a sample of the responses gets none.
        """
        self._counted, self._page = counted, None if counted.sampled else page
        verdict = counted.labels.verdict
        reliable = [each.reliable for each in VERDICTS]
        self.responses = len(verdict)
        self.undecided = int(np.array([label is None for label in reliable])[verdict].sum())
        unreliable = np.flatnonzero(np.array([label is False for label in reliable])[verdict])
        listed = tuple(FailureKind) if kind is None else (FailureKind(kind),)
        rows: dict[FailureKind, list[int]] = {each: [] for each in FailureKind}
        own: dict[str, type] = {}
        for row, case in zip(unreliable.tolist(), counted.read_cases(unreliable), strict=True):
            # Only its text tells an abstention.
            if (each := find_failure_kind(case)) is not None:
                rows[each].append(row)
            own = infer_column_types([case.response.columns], own)
        sizes = Counter({each: len(numbers) for each, numbers in rows.items() if numbers})
        self.counts = dict(sizes.most_common())
        self._rows = {each: np.array(rows[each]) for each in self.counts if each in listed}
        self._names = name_own_columns([own], list_failure_columns())
        self._own = own

    def __len__(self) -> int:
        """Return the number of listed responses."""
        return sum(map(len, self._rows.values()))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each listed response, the largest kind first, in the order of the run."""
        for rows in self._rows.values():
            yield from map(self._describe, self._counted.read_cases(rows))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the rows: the user's own are the last."""
        return (*list_failure_columns(), *self._names.values())

    @property
    def types(self) -> dict[str, type]:
        """Type of each column that a table of the rows has: bool, int, float or str."""
        own = {name: self._own[column] for column, name in self._names.items()}
        return {name: COLUMN_TYPES.get(name, str) for name in self.columns} | own

    def list_worst(self, count: int) -> dict[FailureKind, list[dict[str, Any]]]:
        """Return rows of each listed kind: of its responses those with the most false labels."""
        false = np.array([count_false_labels(each) for each in VERDICTS])[self._counted.labels.verdict]
        worst = {}
        for kind, rows in self._rows.items():
            chosen = rows[np.argsort(-false[rows], kind="stable")][:count]
            # Responses of several runs are read run by run.
            cases = self._counted.read_cases(np.sort(chosen))
            ordered = sorted(cases, key=lambda case: -count_false_labels(case.verdict))
            worst[kind] = [self._describe(case) for case in ordered]
        return worst

    def _describe(self, case: JudgedCase) -> dict[str, Any]:
        link = None if self._page is None else f"{self._page.as_posix()}#r={encode_address(case.response.id)}"
        own = {name: case.response.columns.get(column) for column, name in self._names.items()}
        return {**describe_response(case), "link": link, **own}


def find_failure_format(to: FailureFormat | str | None, out: Path | None) -> FailureFormat | None:
    """Return the format of the list: the one that is named, else that of the file's ending; None for neither.

    Raises:
        SettingError: The ending is of no format, or Parquet has no file to be written to.
    """
    if to is None and out is not None and out.suffix not in _SUFFIXES:
        raise SettingError(f"--out {out}: the ending names no format. Add --to {', '.join(FailureFormat)}.")
    kind = FailureFormat(to) if to is not None else None if out is None else _SUFFIXES[out.suffix]
    if kind is FailureFormat.PARQUET and out is None:
        raise SettingError("--to parquet is written to a file. Name it with --out FILE.")
    return kind


def write_failures(failures: FailureList, to: FailureFormat | str, out: Path | str | None = None) -> int:
    """Write the list to a file, or without one to the standard output; return the number of responses.

    Raises:
        SettingError: Parquet has no file to be written to.
    """
    path = None if out is None else Path(out)
    kind = find_failure_format(to, path)
    if kind is FailureFormat.PARQUET and path is not None:
        _write_parquet(failures, path)
        return len(failures)
    parts = {
        FailureFormat.JSONL: _encode_lines,
        FailureFormat.CSV: _encode_csv,
        FailureFormat.MARKDOWN: _encode_markdown,
    }[FailureFormat(to)](failures)
    if path is None:
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.flush()
    else:
        with AtomicFile(path) as file:
            for part in parts:
                file.write(part)
    return len(failures)


def _encode_lines(failures: FailureList) -> Iterator[bytes]:
    return (json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n" for row in failures)


def _encode_csv(failures: FailureList) -> Iterator[bytes]:
    return encode_csv(failures.columns, _fit_rows(failures))


def _fit_rows(failures: FailureList) -> Iterator[dict[str, Any]]:
    types = failures.types
    return ({name: fit_column_type(value, types[name]) for name, value in row.items()} for row in failures)


def _write_parquet(failures: FailureList, path: Path) -> None:
    import pyarrow as arrow  # noqa: PLC0415 - an extra

    rows = _fit_rows(failures)
    temporary = path.with_name(f".{path.name}.part")
    try:
        with ParquetWriter(temporary, arrow.schema(list_arrow_fields(failures.types))) as file:
            while group := list(islice(rows, _ROW_GROUP)):
                file.write_rows(group)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _encode_markdown(failures: FailureList) -> Iterator[bytes]:
    yield f"# Responses to mend\n\n{escape_markdown(' '.join(summarize_failures(failures)))}\n\n".encode()
    yield b"| kind | responses | |\n|---|---:|---|\n"
    for kind, count in failures.counts.items():
        yield f"| {kind} | {count:,} | {KIND_WORDS[kind]} |\n".encode()
    heading = None
    for row in failures:
        if row["kind"] != heading:
            heading = row["kind"]
            yield f"\n## {heading}: {KIND_WORDS[FailureKind(heading)]}\n".encode()
        link = "" if row["link"] is None else f" ([page](<{row['link']}>))"
        yield f"\n- **{escape_markdown(name_failure_row(row, failures))}**{link}\n".encode()
        for name, text in list_failure_lines(row):
            yield f"  - {name}: {escape_markdown(' '.join(text.split()))}\n".encode()


def summarize_failures(failures: FailureList) -> tuple[str, ...]:
    """Return how many responses are unreliable, and how many are neither, a sentence each."""
    unreliable, undecided = sum(failures.counts.values()), failures.undecided
    responses = format_count(failures.responses, "judged response")
    sentence = f"{unreliable:,} of {responses} {'is' if unreliable == 1 else 'are'} unreliable."
    if not undecided:
        return (sentence,)
    verb = "lacks labels and is" if undecided == 1 else "lack labels and are"
    return sentence, f"{undecided:,} {verb} neither reliable nor unreliable: not listed."


def list_failure_lines(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a reader needs to mend a response, each with its name; without what is missing."""
    step = "step" if row["first_unsound_step"] is None else f"step {row['first_unsound_step']}"
    reference = "" if row["reference_answer"] is None else f" (reference: {row['reference_answer']})"
    lines = [
        ("question", row["question"]),
        ("answer", f"{row['answer'] or 'none'}{reference}"),
        ("wrong", row["failure"]),
        (step, row["first_unsound_text"]),
        ("judge", row["judge_sentence"]),
        ("quote", row["quote"]),
        ("missing", row["missing_evidence"]),
    ]
    return [(name, text) for name, text in lines if text]


def name_failure_row(row: Mapping[str, Any], failures: FailureList) -> str:
    """Return the id of a response with its dataset, its system and the user's own columns."""
    named = [row[name] for name in ("benchmark", "model") if row[name] is not None]
    own = failures.columns[len(list_failure_columns()) :]
    return ", ".join([row["response_id"], *named, *(f"{name}: {row[name]}" for name in own if row[name] is not None)])
