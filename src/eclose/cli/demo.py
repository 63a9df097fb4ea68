"""``eclose demo``: from nothing to a report in seconds, without a key, a model or a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from eclose.cli.shared.output import percent_with_interval, print_table, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.demo import Run

T = TypeVar("T")

PAGE = "report.html"
TITLE = "A demonstration: which responses are unreliable, and why"


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The run's folder.", file_okay=False)] = Path("demo"),
    questions: Annotated[int, typer.Option(min=60, help="How many questions are asked.")] = 300,
    force: Annotated[bool, typer.Option("--force", help="Replace what other work has written.")] = False,
) -> None:
    """See a whole diagnosis in seconds: no key, no model, no network.

    Two systems answer questions of a made-up world and fail now and then in every way there is. A judge that errs in 3
    of 100 cases judges them, under the guidelines that any model would be given; a random hundred responses are
    labelled as people would. Writes a run's folder like any other, with a report, so every other command works on it.
    """
    from eclose.demo import Run
    from eclose.store.runs.folder import REPORT

    run = Run(out, questions)
    new = run.write(_tracked, force=force)
    page = out / REPORT / PAGE
    if new or not page.exists():
        _report(run)
    else:
        say(f"{out}: done before, nothing to do")
    _say_next(out, page)


def _tracked(things: Iterable[T], doing: str, total: int) -> Iterable[T]:
    """A bar on a terminal, a line off it."""
    if not sys.stderr.isatty():
        say(f"{doing}: {total:,}")
        return things
    from rich.console import Console
    from rich.progress import track

    return track(things, doing, total, console=Console(stderr=True), transient=True)


def _report(run: Run) -> None:
    """Hold the judge against the labelled hundred, and diagnose: as two commands do that every user has."""
    from eclose.cli import diagnose, judge
    from eclose.demo import PEOPLE

    judge.validate(run.folder, run.folder / PEOPLE)
    say("")
    diagnose.diagnose([run.folder], title=TITLE)
    say("")
    _say_truth(run)


def _say_truth(run: Run) -> None:
    """What the judge made of the responses beside what is true of them."""
    from eclose.demo import ERRS, PLANTED
    from eclose.judging.validate import read_validation, read_verdicts
    from eclose.metrics.judge_agreement import LABEL_METRICS, JudgedLabel
    from eclose.store.runs.folder import VALIDATION

    found = read_validation(run.folder / VALIDATION)
    verdicts = [row.verdict for row in read_verdicts(run.folder / PLANTED)]
    rows = []
    for label in (JudgedLabel.RELIABILITY, JudgedLabel.GAP):
        known = [hit for verdict in verdicts if (hit := LABEL_METRICS[label].hit(verdict)) is not None]
        rate = found.corrected[label]
        truth = sum(known) / len(known)
        corrected = percent_with_interval(rate.value, rate.interval)
        rows.append(
            (str(label), percent_with_interval(rate.judge, None), corrected, percent_with_interval(truth, None))
        )
    title = f"The judge errs in {ERRS:.0%} of what it is asked; a hundred labels show how far to trust it"
    print_table(title, ("rate", "judge", "corrected", "in truth"), rows)


def _say_next(out: Path, page: Path) -> None:
    say("")
    say(f"Open {page} in a browser: {page.resolve().as_uri()}")
    say("Would these responses pass in CI?")
    say(f"  eclose gate {out} --min-trr 0.85 --max-lgg 0.05")
    say("With a file and a judge of your own:")
    say("  pip install 'eclose[chat]'")
    say("  eclose judge responses.jsonl --judge provider/model --budget 5 --out mine")
    say("  eclose diagnose mine")
