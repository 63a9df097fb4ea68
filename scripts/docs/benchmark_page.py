"""The benchmark: rows taken from records, a check of each row, and the page.

    python scripts/docs/benchmark_page.py --collect     take the rows from the records (make benchmark)
    python scripts/docs/benchmark_page.py               write the page and the schema
    python scripts/docs/benchmark_page.py --check       fail where a row is wrong, or a file is out of date

Dates and commits of rows are those in which their lines entered the repository, so a record is committed first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from benchmark_parsers import PARSERS
from benchmark_rows import BenchmarkRow, find_numbers, read_record
from benchmark_tables import format_page
from pages import DOCS, ROOT, find_stale, write_pages
from pydantic import TypeAdapter, ValidationError
from schema_pages import FileFormat, make_schema

RESULTS = DOCS / "benchmark" / "results.jsonl"
SCHEMA = DOCS / "benchmark" / "results.schema.json"
PAGE = DOCS / "benchmark.md"
RECORDS = DOCS / "records"
RENEW = "run `make benchmark`"

_ROW = TypeAdapter(BenchmarkRow)


def collect_rows(folder: Path = RECORDS) -> list[BenchmarkRow]:
    """Return the rows of all records, without dates; of runs with the same key, that with the most responses."""
    rows: dict[tuple[str, ...], BenchmarkRow] = {}
    for path in sorted(folder.glob("*.txt")):
        parser = PARSERS.get(path.stem.partition("-")[0])
        for row in parser(read_record(path)) if parser else ():
            if row.key not in rows or row.n > rows[row.key].n:
                rows[row.key] = row
    return sorted(rows.values(), key=lambda row: row.key)


def date_rows(rows: list[BenchmarkRow]) -> list[BenchmarkRow]:
    """Return the rows with the day and the commit in which the last of their lines entered the repository."""
    origins = {record: _blame(record) for record in {row.record for row in rows}}
    dated = []
    for row in rows:
        date, commit = max(origins[row.record][metric.line] for metric in row.metrics)
        dated.append(replace(row, date=date, commit=commit))
    return dated


def _blame(record: str) -> dict[int, tuple[str, str]]:
    """Return the day and the commit of every line of a record."""
    commits = [line.split()[0][:8] for line in _run_git("blame", "-s", "--abbrev=8", "--", record).splitlines()]
    if unknown := [commit for commit in commits if commit.startswith(("^", "00000000"))]:
        raise SystemExit(f"{record}: {len(unknown)} lines are not committed, or the clone is shallow.")
    dates = {commit: _run_git("show", "-s", "--format=%cs", commit).strip() for commit in set(commits)}
    return {number: (dates[commit], commit) for number, commit in enumerate(commits, 1)}


def _run_git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def read_rows(path: Path = RESULTS) -> list[BenchmarkRow]:
    """Read the rows.

    Raises:
        ValueError: A line breaks the schema; the message has its number.
    """
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            rows.append(_ROW.validate_json(line, strict=True))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise ValueError(f"{path.name}, line {number}: {field}: {first['msg']}") from error
    return rows


def find_problems(rows: list[BenchmarkRow], root: Path = ROOT) -> list[str]:
    """Return what is wrong with rows: an absent record, a value that is not in its line, a number that is nowhere."""
    problems = []
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        name = f"{row.system} on {row.dataset} ({row.split})"
        path = root / row.record
        if row.key in seen:
            problems.append(f"{name}: there is another row of this system, variant, dataset and split")
        seen.add(row.key)
        if not row.date or not row.commit:
            problems.append(f"{name}: no date or commit")
        if not path.is_file() or not path.resolve().is_relative_to((root / "docs").resolve()):
            problems.append(f"{name}: {row.record} is no record")
            continue
        lines = path.read_text("utf-8").splitlines()
        if row.n not in find_numbers("\n".join(lines)):
            problems.append(f"{name}: {row.record} does not have the number {row.n}")
        for metric in row.metrics:
            text = lines[metric.line - 1] if 0 < metric.line <= len(lines) else ""
            numbers = (metric.value, metric.low, metric.high, metric.n)
            missing = [number for number in numbers if number is not None and abs(number) not in find_numbers(text)]
            if missing:
                problems.append(f"{name}: {metric.name}: line {metric.line} of {row.record} does not have {missing}")
    return problems


def check_rows() -> list[str]:
    """Return what is wrong with the committed rows, also where records have others."""
    if not RESULTS.is_file():
        return [f"{RESULTS.relative_to(ROOT)} is absent"]
    try:
        rows = read_rows()
    except ValueError as error:
        return [str(error)]
    problems = find_problems(rows)
    if not problems and [replace(row, date="", commit="") for row in rows] != collect_rows():
        problems.append("the records have other rows than docs/benchmark/results.jsonl")
    return problems


def make_pages() -> dict[Path, str]:
    """Return the page and the schema of its data.

    Raises:
        SystemExit: A row is wrong or out of date.
    """
    if problems := check_rows():
        raise SystemExit("\n".join([*problems, f"The benchmark is out of date: {RENEW}."]))
    schema = make_schema(FileFormat("results.jsonl", BenchmarkRow, "results of the benchmark", "make benchmark"))
    return {
        SCHEMA: json.dumps(schema, indent=1, ensure_ascii=False) + "\n",
        PAGE: format_page(read_rows()),
    }


def main() -> int:
    """Collect, write or check; return the exit code."""
    if "--collect" in sys.argv[1:]:
        lines = [json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in date_rows(collect_rows())]
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("".join(lines), "utf-8")
    pages = make_pages()
    if "--check" not in sys.argv[1:]:
        write_pages(pages)
        return 0
    stale = list(find_stale(pages))
    for path in stale:
        print(f"{path.relative_to(ROOT)} is out of date: {RENEW}.", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
