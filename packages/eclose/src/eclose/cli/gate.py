"""``eclose gate``: pass, fail or cannot tell, for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from eclose.cli.shared.output import AllowStale, OriginOption, format_count, print_line
from eclose.cli.shared.recipe import recipe_key

# Apart from the codes of every other command (0, 1, 2, 3, 75, 130), so that CI can tell a failed gate from a command
# that could not run (decision 0009).
FAILED, UNDECIDED = 100, 101
"""The exit codes of a gate that fails, and of one that cannot tell."""


def _limit(text: str) -> Any:
    return typer.Option(min=0, max=1, help=text)


def gate(
    run: Annotated[Path, typer.Argument(help="Folder of a judged run, or a table of its labels.")],
    *,
    min_trr: Annotated[float | None, _limit("Smallest share of reliable traces (0 to 1).")] = None,
    min_accuracy: Annotated[float | None, _limit("Smallest share of correct answers (0 to 1).")] = None,
    min_lsr: Annotated[float | None, _limit("Smallest share of locally sound traces (0 to 1).")] = None,
    max_lgg: Annotated[float | None, _limit("Largest share of traces in the local-global gap (0 to 1).")] = None,
    max_unjudged: Annotated[float | None, _limit("Largest share of responses without a label (0 to 1).")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Folder of a judged base run, for the limits on differences.")
    ] = None,
    max_trr_drop: Annotated[float | None, _limit("Largest drop of TRR below the base run: 0.02 is 2 points.")] = None,
    max_accuracy_drop: Annotated[float | None, _limit("Largest drop of accuracy below the base run.")] = None,
    max_lsr_drop: Annotated[float | None, _limit("Largest drop of LSR below the base run.")] = None,
    max_lgg_rise: Annotated[float | None, _limit("Largest rise of LGG above the base run.")] = None,
    validation: Annotated[
        Path | None,
        typer.Option(help="Validation file of the judge, to correct the rates.  [default: validation.json in the run]"),
    ] = None,
    origin: OriginOption = None,
    trend: Annotated[
        bool,
        typer.Option("--trend", help="Hold the limits against a run that grows: fail where a rate ever left its one."),
    ] = False,
    by: Annotated[str, typer.Option(help="Length of the windows of --trend: a number with m, h, d or w.")] = "1d",
    undecided: Annotated[
        Literal["pass", "fail"] | None,
        typer.Option(help="Exit with 0 (pass) or 100 (fail) where the outcome cannot be told, instead of 101."),
    ] = None,
    comment: Annotated[
        Path | None,
        typer.Option(help="File for a comment on a pull request (Markdown, fewer than 60 lines).", dir_okay=False),
    ] = None,
    report_url: Annotated[str | None, typer.Option(help="Address of the full report, linked in the comment.")] = None,
    seed: Annotated[int, recipe_key()] = 42,
    allow_stale: AllowStale = False,
) -> None:
    """Check a judged run against limits: exit with 0 where it passes, 100 where it fails, 101 where it cannot tell.

    A limit is held against the 95 % interval of the rate, over questions. The run passes where the whole interval keeps
    the limit, and fails where none of it does. In between there are too few responses: the message says how many would
    decide it. Responses without a label count in whichever way is worse.

    Where people labelled at least 30 responses (validation.json in the run, or --validation), limits are held against
    the rates corrected by their labels, and else against the judge's own; the message says which.

    With --against, the difference to a base run is held against limits of its own, on the questions that both answer:
    --max-trr-drop 0.02 passes where the whole interval of the difference lies above -2 points.

    With --trend, a limit fails where it is shown that its rate has left it at any time of the run, by the times of the
    responses. The gate may be run again with every new response: at most 5 % of runs that keep their limits ever fail.
    It cannot tell where only responses without a label, counted as worst, would make it fail.

    With --comment, writes what was decided and why as a comment for a pull request, whatever the outcome.
    """
    from eclose.api.gate import gate as gate_run
    from eclose.diagnosis.gate_rules import GateOutcome
    from eclose.files.atomic import write_files

    result = gate_run(
        run,
        min_trr=min_trr,
        min_accuracy=min_accuracy,
        min_lsr=min_lsr,
        max_lgg=max_lgg,
        max_unjudged=max_unjudged,
        against=against,
        max_trr_drop=max_trr_drop,
        max_accuracy_drop=max_accuracy_drop,
        max_lsr_drop=max_lsr_drop,
        max_lgg_rise=max_lgg_rise,
        validation=validation,
        origin=origin,
        trend=trend,
        by=by,
        seed=seed,
        allow_stale=allow_stale,
        notify=print_line,
    )
    if result.left_out:
        response_id, reason = result.left_out[0]
        print_line(f"{format_count(len(result.left_out), 'response')} of the run left out: {response_id}: {reason}")
    for check in result.checks:
        print_line(check)
    if result.report.multiplicity is not None:
        print_line(result.report.multiplicity)
    if comment is not None:
        write_files(comment.parent, {comment.name: result.comment(report_url=report_url).encode()})
        print_line(f"{comment}: written")
    # --undecided changes the exit code only; the printed outcome stays what was measured.
    outcome = result.decide(undecided)
    decision = f" (--undecided {undecided})" if outcome is not result.outcome else ""
    stale = ", by stale judgments" if result.stale else ""
    judged, left_out = result.diagnosis.overall.responses, len(result.left_out)
    counted = format_count(judged + left_out, "response")
    print_line(
        f"{run}: {result.outcome}{decision}{stale}, {f'{judged:,} of {counted} judged' if left_out else counted}"
    )
    raise typer.Exit({GateOutcome.PASSED: 0, GateOutcome.FAILED: FAILED, GateOutcome.UNDECIDED: UNDECIDED}[outcome])
