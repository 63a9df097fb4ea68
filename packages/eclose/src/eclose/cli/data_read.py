"""``eclose data read``: how the responses of a file are read, before anything is paid for."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.options import takes_import_options
from eclose.cli.shared.output import QUARANTINED_EXIT_CODE, format_count, print_line
from eclose.readers.import_settings import ImportSettings

if TYPE_CHECKING:
    from eclose.readers.readings import ReadingSummary
    from eclose.values.response import Response

_PIPE_WIDTH = 120
"""Columns of a line off a terminal."""


def print_reading_summary(summary: ReadingSummary, file: Path) -> None:
    """Print how the responses of a file were read: a line for each rule, then what looks doubtful."""
    from rich.cells import cell_len, set_cell_size

    from eclose.readers.readings import show_reading

    read = f"How {format_count(summary.responses, 'response')} {'was' if summary.responses == 1 else 'were'} read"
    print_line(f"{read}; eclose data read {file} --rule RULE shows them:")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
    rows = [
        (row.status.replace("_", " "), row.name, f"{row.responses:,}".rjust(7), show_reading(row.example))
        for row in summary.rules
    ]
    widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        line = "  " + "  ".join(map(set_cell_size, row, widths)).rstrip()
        print_line(line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…")
    for caution in summary.cautions:
        print_line(f"! {caution}")


@takes_import_options
def read(
    file: Annotated[Path, typer.Argument(help="File of responses in any known layout, or the folder of a run.")],
    rule: Annotated[str | None, typer.Option(help="Show every response for which this rule decided.")] = None,
    check: Annotated[
        list[str] | None, typer.Option(help="Id of a response that was read wrongly; repeatable. Needs --out.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File for the responses of --check with their records, to send as an issue."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
    *,
    imported: ImportSettings,
) -> None:
    """Show how the responses of a file are read: steps, answer, and the rule that decided."""
    from eclose.errors import SettingError
    from eclose.files.outcome_counts import RecordCounter
    from eclose.readers.readings import find_rule, scan_readings, summarize_readings, write_reading_cases

    if (check is None) is not (out is None):
        raise SettingError("--check and --out go together: ids of responses, and the file for them.")
    if check is not None and out is not None:
        print_line(f"{out}: {write_reading_cases(file, check, out, settings=imported)} written")
        return
    counter = RecordCounter()
    responses = []
    for record in scan_readings(file, settings=imported):
        counter.add(record)
        if record.value is not None:
            responses.append(record.value)
    counts = counter.counts()
    if rule is not None:
        for response in responses:
            if find_rule(response.reading, response.trace, response.answer)[2] == rule:
                _print_reading(response, as_json=as_json)
    elif as_json:
        summary = summarize_readings(responses)
        fields = {"readings": summary.to_json(), "cautions": summary.cautions, "counts": asdict(counts)}
        typer.echo(json.dumps(fields, ensure_ascii=False))
    else:
        print_line(f"{file}: {counts}")
        if responses:
            print_reading_summary(summarize_readings(responses), file)
    raise typer.Exit(QUARANTINED_EXIT_CODE if counts.quarantined else 0)


def _print_reading(response: Response, *, as_json: bool) -> None:
    """Print the steps, the answer and what was left out of one response."""
    reading = response.reading
    left_out = [] if reading is None else [(part.role, part.text) for part in reading.left_out]
    if as_json:
        fields = {"id": response.id, "steps": response.trace.texts, "answer": response.answer, "left_out": left_out}
        typer.echo(json.dumps(fields, ensure_ascii=False))
        return
    print_line(response.id)
    for number, step in enumerate(response.trace.texts, start=1):
        print_line(f"  {number}. {step}")
    print_line(f"  answer: {response.answer if response.answer is not None else '(none)'}")
    for role, text in left_out:
        print_line(f"  left out, {role}: {text}")
