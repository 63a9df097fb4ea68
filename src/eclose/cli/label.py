"""``eclose label``: label a hundred of one's own responses, and have the judge's rates corrected by them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import AllowStale, plural, print_notices, say

if TYPE_CHECKING:
    from eclose.annotation.label_sample import LabelSample
    from eclose.annotation.project import Project
    from eclose.core.verdict import SettledVerdict
    from eclose.store.runs.step import RunStep

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
    allow_stale: AllowStale = False,
) -> None:
    """Label some of your own responses in the browser, alone and without accounts; the rates of all follow.

    The responses are drawn by what the judge said, so that rare failures are among them. Stop with Ctrl+C and go on
    with the same command. What is labelled lies in labels/verdicts.jsonl of the run; where the run is judged, the judge
    is held against it, and eclose diagnose shows corrected rates.
    """
    from eclose.annotation.label_sample import read_verdicts

    stage = _stage(run, n, seed, steps=steps)
    project, sample = _begun(run, n, seed, steps=steps, allow_stale=allow_stale)
    try:
        _serve(project, port, browser=browser)
        labels = read_verdicts(project)
    finally:
        project.close()
    _keep(run, stage, sample, labels, allow_stale=allow_stale)


def _stage(run: Path, n: int, seed: int, *, steps: bool) -> RunStep:
    """Return the stage that writes the verdicts; its inputs are hashed now, and must be the same at the end."""
    from eclose.store.runs.folder import INSTANCES, RESPONSES
    from eclose.store.runs.step import RunStep

    settings = {"n": n, "seed": seed, "steps": steps}
    stage = RunStep("label", settings, (run / INSTANCES, run / RESPONSES), run / FOLDER / "verdicts.jsonl")
    stage.require_inputs()
    return stage


def _begun(run: Path, n: int, seed: int, *, steps: bool, allow_stale: bool) -> tuple[Project, LabelSample]:
    """Draw the sample of a run, and make or open its project."""
    from datetime import UTC, datetime

    from eclose.annotation.forms import TaskKind
    from eclose.annotation.label_sample import begin_labelling, draw_sample
    from eclose.cases import read_cases, read_run_files, rejects_told
    from eclose.store.runs.folder import JUDGMENTS

    files = read_run_files(run)
    judgments = []
    if (run / JUDGMENTS).exists():
        cases = read_cases(run, allow_stale=allow_stale)
        print_notices(cases)
        judgments = [case.judgment for case in cases.cases]
    else:
        for sentence in rejects_told(files.rejected):
            say(sentence)
    responses = [response for response in files.responses if response.instance_id in files.instances]
    if lost := len(files.responses) - len(responses) + len(files.left_out):
        say(f"{plural(lost, 'response')} cannot be labelled: unreadable, or without a question in {run}.")
    sample = draw_sample((response.id for response in responses), judgments, n=min(n, len(responses)), seed=seed)
    kind = TaskKind.RESPONSE if steps else TaskKind.SHORT
    project = begin_labelling(run / FOLDER, files.instances, responses, sample, kind, datetime.now(UTC))
    say(f"{run}: {plural(len(sample.chosen), 'response')} of {len(sample.strata):,}, by what the judge said of them:")
    for stratum, (size, chosen) in sample.sizes.items():
        say(f"  {stratum.replace('_', ' ')}: {chosen:,} of {size:,}")
    return project, sample


def _serve(project: Project, port: int, *, browser: bool) -> None:
    import webbrowser

    from eclose.annotation.accounts.people import find_person
    from eclose.annotation.label_sample import ME
    from eclose.annotation.queues import read_progress
    from eclose.annotation.web.dependencies import ServerState
    from eclose.annotation.web.serve import serve

    with project.reading() as connection:
        me = find_person(connection, ME)
    assert me is not None
    state = ServerState(project, single=me)

    def ready(url: str) -> None:
        address = f"{url}/open/{state.entry_token}"
        say(f"Open {address} (Ctrl+C stops; the same command goes on)")
        if browser:
            webbrowser.open(address)

    def is_finished() -> bool:
        with project.reading() as connection:
            tasks = read_progress(connection, me)
        return tasks.finished == tasks.total

    serve(state, port=port, ready=ready, is_finished=is_finished)


def _keep(run: Path, stage: RunStep, sample: LabelSample, labels: list[SettledVerdict], *, allow_stale: bool) -> None:
    """Write the labels, and validate the judge of the run by them where there is one."""
    from eclose.store.records.jsonl import ReadRecord
    from eclose.store.runs.folder import JUDGMENTS

    stage.write(ReadRecord(verdict.response_id, value=verdict) for verdict in labels)
    say(f"{stage.out}: {len(labels):,} of {plural(len(sample.chosen), 'response')} labelled")
    if not (run / JUDGMENTS).exists():
        say("The run is not judged, so there are no rates to correct. Rates of the sample: eclose metrics")
        return
    labelled = {sample.strata[verdict.response_id] for verdict in labels}
    missing = {group for group in sample.sizes if group not in labelled}
    if missing:
        say(f"Rates are corrected when some of each group are labelled; none yet: {', '.join(sorted(missing))}")
        return
    _validate(run, sample, labels, allow_stale=allow_stale)
    say(f"Corrected rates: eclose diagnose {run}")


def _validate(run: Path, sample: LabelSample, labels: list[SettledVerdict], *, allow_stale: bool) -> None:
    """Validate the judge by the labels, and write validation.json."""
    import numpy as np

    from eclose.cli.judge import print_validation
    from eclose.judging.validate import validate_run, write_validation
    from eclose.store.runs.folder import VALIDATION

    rng = np.random.default_rng(sample.seed)
    validation = validate_run(run, labels, rng=rng, strata=sample.strata, allow_stale=allow_stale)
    write_validation(run / VALIDATION, validation)
    print_validation(validation)
