"""``eclose label``: label a sample of a run in the browser, and correct the judge's rates by the labels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import (
    AllowStale,
    ReplaceValidation,
    format_count,
    format_percent_with_interval,
    print_line,
    print_table,
)

if TYPE_CHECKING:
    from eclose.judging.validation_file import ValidationRecord
    from eclose_annotate.labelling.session import LabelSession, LabelSessionResult
    from eclose_annotate.project import AnnotationProject


def label(
    run: Annotated[Path, typer.Argument(help="Folder of a run, judged or not.")],
    *,
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=1,
            help="Number of responses to label; a larger number adds to an existing sample."
            "  [default: 100, or as the existing sample has]",
        ),
    ] = None,
    steps: Annotated[
        bool | None,
        typer.Option(
            "--steps/--no-steps",
            help="Label every step, as the full protocol does; takes much longer."
            "  [default: no-steps, or as the existing sample has]",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the sample.  [default: 42, or as the existing sample has]")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine (0 = any free port).")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    replace_validation: ReplaceValidation = False,
    allow_stale: AllowStale = False,
) -> None:
    """Label a sample of your responses in the browser, without accounts, and correct the rates of the run.

    The sample is drawn by the judge's labels, so that rare failures are among it. Stop with Ctrl+C or on the page; the
    same command continues, corrects labels, and with a larger --n adds responses. The labels are written to
    labels/verdicts.jsonl in the run. Where the run is judged, the judge is validated by them, and the corrected rates
    are printed.
    """
    from eclose_annotate.labelling.session import open_label_session, save_session_labels
    from eclose_annotate.web.serve import require_free_port

    # A sample is drawn once and kept: no command that cannot serve it should draw one.
    require_free_port(port)
    session = open_label_session(run, n=n, seed=seed, steps=steps, allow_stale=allow_stale, notify=print_line)
    try:
        _print_sample(session)
        replaces = replace_validation or _confirm_replacement(session)
        _serve(session.project, port, browser=browser)
        # Also after Ctrl+C, which is the normal way to stop: what was labelled so far is written.
        result = save_session_labels(session, replace_validation=replaces, allow_stale=allow_stale)
    finally:
        session.project.close()
    _print_result(session, result)


def _print_sample(session: LabelSession) -> None:
    from eclose_annotate.labelling.sample import NOT_JUDGED

    sample = session.sample
    responses = format_count(len(sample.chosen), "response")
    drawn = f"{session.run}: {responses} of {len(sample.strata):,}"
    # A run without judgments is a single stratum, which the session has explained.
    if set(sample.sizes) == {NOT_JUDGED}:
        print_line(drawn)
        return
    print_line(f"{drawn}, by the judge's labels:")
    for stratum, (size, chosen) in sample.sizes.items():
        print_line(f"  {stratum.replace('_', ' ')}: {chosen:,} of {size:,}")


def _confirm_replacement(session: LabelSession) -> bool:
    """Return whether the labels may replace a validation from more labels; asked on a terminal, false elsewhere."""
    from eclose_annotate.labelling.session import find_threatened_validation

    larger = find_threatened_validation(session)
    if larger is None:
        return False
    sample = format_count(len(session.sample.chosen), "response")
    print_line(f"validation.json rests on {larger.labelled:,} labels; this sample has {sample}.")
    if is_terminal():
        return typer.confirm("Replace it by the labels of this sample?", default=False)
    print_line("It is kept. Pass --replace-validation to replace it.")
    return False


def is_terminal() -> bool:
    """Return whether a person can answer a question of this command."""
    return sys.stdin.isatty()


def _serve(project: AnnotationProject, port: int, *, browser: bool) -> None:
    """Serve the labelling page to one person until they end the session on it, or Ctrl+C."""
    from eclose_annotate.labelling.sample import LABELLER_NAME
    from eclose_annotate.people.people import find_person
    from eclose_annotate.web.dependencies import AnnotationServerState
    from eclose_annotate.web.serve import open_in_browser, serve_annotation

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
        print_line(
            f"Open {address} (works once). Finish on the page, or Ctrl+C here, writes the labels; the same command"
            " continues."
        )

    serve_annotation(state, port=port, ready=ready, is_finished=state.finished.is_set)


def _print_result(session: LabelSession, result: LabelSessionResult) -> None:
    from eclose.cli.judge_validate import print_validation
    from eclose.judging.correct_rates import MIN_PEOPLE_LABELS

    run = session.run
    print_line(f"{result.path}: {result.labelled:,} of {format_count(len(session.sample.chosen), 'response')} labelled")
    if not result.is_judged:
        print_line(f"Rates of the labelled responses: eclose metrics {result.path}")
    # In a group without a label the judge's errors are unknown, so no rate of the whole run can be corrected.
    elif result.empty_strata:
        strata = ", ".join(stratum.replace("_", " ") for stratum in result.empty_strata)
        print_line(f"Rates are corrected once each group has a label; groups without one: {strata}")
        print_line(f"Continue with: eclose label {run}")
    elif result.validation is not None:
        print_validation(result.validation)
        _print_validation_file(session, result)
        if result.validation.labelled < MIN_PEOPLE_LABELS:
            enough = len(session.sample.strata) >= MIN_PEOPLE_LABELS
            remedy = f": eclose label {run} --n {MIN_PEOPLE_LABELS}" if enough else "; this run has fewer responses."
            print_line(f"Rates are corrected from {MIN_PEOPLE_LABELS} labels on{remedy}")
        else:
            _print_corrected_rates(result.validation)


def _print_validation_file(session: LabelSession, result: LabelSessionResult) -> None:
    from eclose.judging.validate import describe_larger_validation

    larger = result.kept_validation
    print_line(f"{result.validation_path}: written")
    if larger is not None and result.validation is not None:
        print_line(
            f"{session.run / 'validation.json'} {describe_larger_validation(larger, result.validation, 'this sample')};"
            f" it is kept, and reports use it. Use the new one with: eclose diagnose {session.run} --validation"
            f" {result.validation_path}. Replace the old one with: eclose label {session.run} --replace-validation"
        )


def _print_corrected_rates(validation: ValidationRecord) -> None:
    """Print the rates that labels correct, under the names and in the form of ``eclose diagnose``."""
    from eclose.judging.correct_rates import explain_unusable_rate
    from eclose.metrics.judge_against_people import LABEL_METRICS

    rows = [
        (
            str(LABEL_METRICS[label]),
            format_percent_with_interval(rate.judge, None),
            explain_unusable_rate(rate) or format_percent_with_interval(rate.value, rate.interval),
        )
        for label, rate in validation.corrected.items()
    ]
    labels = format_count(validation.labelled, "label")
    print_line("")
    print_table(
        f"Rates of all {format_count(validation.judged, 'response')}, corrected by your {labels}",
        ("rate", "to the judge", "corrected"),
        rows,
    )
