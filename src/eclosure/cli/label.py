"""``eclosure label``: label a hundred of one's own responses, and have the judge's rates corrected by them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclosure.cli.output import plural, say

if TYPE_CHECKING:
    from eclosure.annotate.project import Project
    from eclosure.annotate.sample import Sample
    from eclosure.core.verdict import SettledVerdict

FOLDER = "labels"
"""Where labels are kept in a run's folder."""


def label(
    run: Annotated[Path, typer.Argument(help="A run's folder, judged or not.", show_default=False)],
    *,
    n: Annotated[int, typer.Option("--n", min=1, help="How many responses.")] = 100,
    steps: Annotated[
        bool, typer.Option("--steps", help="Decide on every step, as the whole protocol does; takes much longer.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample.")] = 42,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on this machine; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
) -> None:
    """Label some of your own responses in the browser, alone and without accounts; the rates of all follow.

    The responses are drawn by what the judge said, so that rare failures are among them. Stop with Ctrl+C and go on
    with the same command. What is labelled lies in labels/verdicts.jsonl of the run; where the run is judged, the judge
    is held against it, and eclosure diagnose shows corrected rates.
    """
    from eclosure.annotate.sample import verdicts

    project, sample = _begun(run, n, seed, steps=steps)
    try:
        _serve(project, port, browser=browser)
        found = verdicts(project)
    finally:
        project.close()
    _keep(run, sample, found)


def _begun(run: Path, n: int, seed: int, *, steps: bool) -> tuple[Project, Sample]:
    from datetime import UTC, datetime

    from eclosure.annotate.forms import Kind
    from eclosure.annotate.sample import begin, draw
    from eclosure.core.instance import Instance
    from eclosure.core.judgment import Judgment
    from eclosure.core.response import Response
    from eclosure.store.folder import INSTANCES, JUDGMENTS, RESPONSES
    from eclosure.store.records import read

    responses = list(read(run / RESPONSES, Response))
    judged = read(run / JUDGMENTS, Judgment) if (run / JUDGMENTS).exists() else ()
    sample = draw((one.id for one in responses), judged, n=min(n, len(responses)), seed=seed)
    kind = Kind.RESPONSE if steps else Kind.SHORT
    project = begin(run / FOLDER, read(run / INSTANCES, Instance), responses, sample, kind, datetime.now(UTC))
    say(f"{run}: {plural(len(sample.chosen), 'response')} of {len(sample.strata):,}, by what the judge said of them:")
    for stratum, (size, chosen) in sample.sizes.items():
        say(f"  {stratum.replace('_', ' ')}: {chosen:,} of {size:,}")
    return project, sample


def _serve(project: Project, port: int, *, browser: bool) -> None:
    import webbrowser

    from eclosure.annotate.accounts.people import person
    from eclosure.annotate.queues import progress
    from eclosure.annotate.sample import ME
    from eclosure.annotate.web.serve import serve
    from eclosure.annotate.web.visit import House

    with project.reading() as connection:
        me = person(connection, ME)
    assert me is not None
    house = House(project, single=me)

    def ready(url: str) -> None:
        where = f"{url}/open/{house.door}"
        say(f"Open {where} (Ctrl+C stops; the same command goes on)")
        if browser:
            webbrowser.open(where)

    def done() -> bool:
        with project.reading() as connection:
            found = progress(connection, me)
        return found.done == found.total

    serve(house, port=port, ready=ready, done=done)


def _keep(run: Path, sample: Sample, found: list[SettledVerdict]) -> None:
    """Write what was labelled, and hold the judge against it where there is one."""
    from eclosure.store.folder import JUDGMENTS
    from eclosure.store.records import write

    place = run / FOLDER / "verdicts.jsonl"
    write(place, found)
    say(f"{place}: {len(found):,} of {plural(len(sample.chosen), 'response')} labelled")
    if not (run / JUDGMENTS).exists():
        say("The run is not judged, so there are no rates to correct. Rates of the sample: eclosure metrics")
        return
    labelled = {one.response_id for one in found}
    missing = {group for group in sample.sizes if not any(sample.strata[one] == group for one in labelled)}
    if missing:
        say(f"Rates are corrected when some of each group are labelled; none yet: {', '.join(sorted(missing))}")
        return
    _validate(run, sample, found)
    say(f"Corrected rates: eclosure diagnose {run}")


def _validate(run: Path, sample: Sample, found: list[SettledVerdict]) -> None:
    import numpy as np

    from eclosure.cli.judge import say_validation
    from eclosure.judge.validate import validate_run, write
    from eclosure.store.folder import VALIDATION

    made = validate_run(run, found, rng=np.random.default_rng(sample.seed), strata=sample.strata)
    write(run / VALIDATION, made)
    say_validation(made)
