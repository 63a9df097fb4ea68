"""``eclose demo``: write a demonstration run and its report, without a key, a model or a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import format_percent_with_interval, print_line, print_table

if TYPE_CHECKING:
    from eclose.demo import DemoRun

PAGE = "report.html"
TITLE = "A demonstration: which responses are unreliable, and why"


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.", file_okay=False)] = Path("demo"),
    force: Annotated[bool, typer.Option("--force", help="Replace output that other settings wrote.")] = False,
) -> None:
    """Show a complete diagnosis in seconds, without a key, a model or a network.

    Two systems answer questions of a made-up world and sometimes fail, in every possible way. A judge with an error
    rate of 3 % judges them under the same guidelines as any model; a random hundred responses have true labels, as
    people would give them. Writes the folder of a run with its report; every other command works on it.
    """
    from eclose.demo import DemoRun
    from eclose.files.run_folder import REPORT_FOLDER

    run = DemoRun(out)
    new = run.write(force=force)
    page = out / REPORT_FOLDER / PAGE
    # A finished run without its report, as after an interruption, gets the report without being written again.
    if new or not page.exists():
        _print_report(run)
    else:
        print_line(f"{out}: done before, nothing to do")
    print_line("")
    print_line(f"Open {page} in a browser: {page.resolve().as_uri()}")
    print_line("Would these responses pass in CI?")
    print_line(f"  eclose gate {out} --min-trr 0.85 --max-lgg 0.05")
    print_line("With a file and a judge of your own:")
    print_line("  pip install eclose")
    print_line("  eclose judge responses.jsonl --judge provider/model --budget 5 --out mine")
    print_line("  eclose diagnose mine")


def _print_report(run: DemoRun) -> None:
    """Validate the judge by the labels and diagnose the run, as ``judge validate`` and ``diagnose`` do."""
    from eclose.cli.diagnose import diagnose
    from eclose.cli.judge_validate import validate
    from eclose.demo import PEOPLE_FILE

    # Validated first: diagnose then finds validation.json in the run and prints corrected rates.
    validate(run.folder, run.folder / PEOPLE_FILE)
    print_line("")
    diagnose(runs=[run.folder], title=TITLE)
    print_line("")
    _print_truth(run)


def _print_truth(run: DemoRun) -> None:
    from eclose.demo import JUDGE_ERROR_RATE, PLANTED_FILE
    from eclose.files.run_folder import VALIDATION_FILE
    from eclose.judging.validation_file import read_people_verdicts, read_validation
    from eclose.metrics.judge_against_people import LABEL_METRICS, JudgedLabel

    validation = read_validation(run.folder / VALIDATION_FILE)
    verdicts = [row.verdict for row in read_people_verdicts(run.folder / PLANTED_FILE)]
    rows = []
    for label in (JudgedLabel.RELIABILITY, JudgedLabel.GAP):
        hits = [hit for verdict in verdicts if (hit := LABEL_METRICS[label].hit(verdict)) is not None]
        rate = validation.corrected[label]
        truth = sum(hits) / len(hits)
        corrected = format_percent_with_interval(rate.value, rate.interval)
        rows.append(
            (
                str(label),
                format_percent_with_interval(rate.judge, None),
                corrected,
                format_percent_with_interval(truth, None),
            )
        )
    title = f"The judge errs in {JUDGE_ERROR_RATE:.0%} of its labels; a hundred true labels correct its rates"
    print_table(title, ("rate", "judge", "corrected", "in truth"), rows)
