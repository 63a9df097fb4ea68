"""``eclose label``: label a sample of a run in the browser, and correct the judge's rates by the labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import AllowStale, format_count, print_line

if TYPE_CHECKING:
    from eclose.annotation.label_session import LabelSession, LabelSessionResult
    from eclose.annotation.project import AnnotationProject


def label(
    run: Annotated[Path, typer.Argument(help="Folder of a run, judged or not.", show_default=False)],
    *,
    n: Annotated[int, typer.Option("--n", min=1, help="Number of responses to label.")] = 100,
    steps: Annotated[
        bool, typer.Option("--steps", help="Label every step, as the full protocol does; takes much longer.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample.")] = 42,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine (0 = any free port).")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    allow_stale: AllowStale = False,
) -> None:
    """Label a sample of your responses in the browser, without accounts, and correct the rates of the run.

    The sample is drawn by the judge's labels, so that rare failures are among it. Stop with Ctrl+C; the same command
    continues. The labels are written to labels/verdicts.jsonl in the run. Where the run is judged, the judge is
    validated by them, and eclose diagnose shows corrected rates.
    """
    from eclose.annotation.label_session import open_label_session, save_session_labels

    session = open_label_session(run, n=n, seed=seed, steps=steps, allow_stale=allow_stale, notify=print_line)
    try:
        _print_sample(session)
        _serve(session.project, port, browser=browser)
        # Also after Ctrl+C, which is the normal way to stop: what was labelled so far is written.
        result = save_session_labels(session, allow_stale=allow_stale)
    finally:
        session.project.close()
    _print_result(session, result)


def _print_sample(session: LabelSession) -> None:
    sample = session.sample
    responses = format_count(len(sample.chosen), "response")
    print_line(f"{session.run}: {responses} of {len(sample.strata):,}, by the judge's labels:")
    for stratum, (size, chosen) in sample.sizes.items():
        print_line(f"  {stratum.replace('_', ' ')}: {chosen:,} of {size:,}")


def _serve(project: AnnotationProject, port: int, *, browser: bool) -> None:
    """Serve the labelling page to one person until all tasks are finished or Ctrl+C."""
    from eclose.annotation.accounts.people import find_person
    from eclose.annotation.label_sample import LABELLER_NAME
    from eclose.annotation.queues import read_task_progress
    from eclose.annotation.web.dependencies import AnnotationServerState
    from eclose.annotation.web.serve import open_in_browser, serve_annotation

    with project.reading() as connection:
        person = find_person(connection, LABELLER_NAME)
    # open_label_session has added the only annotator.
    assert person is not None
    state = AnnotationServerState(project, single=person)

    def ready(url: str) -> None:
        # The token lets only this link in: other users of the machine can reach the port too.
        if browser:
            open_in_browser(f"{url}/open/{state.entry_tokens.issue()}", project.folder)
        address = f"{url}/open/{state.entry_tokens.issue()}"
        print_line(f"Open {address} (works once; Ctrl+C stops; the same command continues)")

    def is_finished() -> bool:
        with project.reading() as connection:
            tasks = read_task_progress(connection, person)
        # The server polls this and stops by itself after the last task.
        return tasks.finished == tasks.total

    serve_annotation(state, port=port, ready=ready, is_finished=is_finished)


def _print_result(session: LabelSession, result: LabelSessionResult) -> None:
    from eclose.cli.judge import print_validation

    print_line(f"{result.path}: {result.labelled:,} of {format_count(len(session.sample.chosen), 'response')} labelled")
    if not result.is_judged:
        print_line(
            f"The run is not judged, so no rates are corrected. Rates of the sample: eclose metrics {result.path}"
        )
    # In a group without a label the judge's errors are unknown, so no rate of the whole run can be corrected.
    elif result.empty_strata:
        strata = ", ".join(result.empty_strata)
        print_line(f"Rates are corrected once each group has a label; groups without one: {strata}")
    elif result.validation is not None:
        print_validation(result.validation)
        print_line(f"Corrected rates: eclose diagnose {session.run}")
