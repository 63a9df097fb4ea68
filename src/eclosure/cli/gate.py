"""``eclosure gate``: pass, fail or cannot tell, for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from eclosure.cli.output import AllowStale, plural, say, say_notices

FAILED, UNDECIDED = 100, 101
"""The exit codes of a gate that fails, and of one that cannot tell."""


def _limit(flag: str, what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, min=0, max=1, help=what, show_default=False)
    return option


def gate(
    run: Annotated[Path, typer.Argument(help="A judged run's folder.", show_default=False)],
    *,
    min_trr: Annotated[float | None, _limit("--min-trr", "Share of reliable traces, at least.")] = None,
    min_accuracy: Annotated[float | None, _limit("--min-accuracy", "Share of right answers, at least.")] = None,
    min_lsr: Annotated[float | None, _limit("--min-lsr", "Share of locally sound traces, at least.")] = None,
    max_lgg: Annotated[
        float | None, _limit("--max-lgg", "Share of traces sound in every step and not as a whole, at most.")
    ] = None,
    max_unjudged: Annotated[
        float | None, _limit("--max-unjudged", "Share of responses without a label, at most.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Folder of a judged base run, for the limits on differences.", show_default=False),
    ] = None,
    max_trr_drop: Annotated[
        float | None, _limit("--max-trr-drop", "How far TRR may lie below the base run's: 0.02 is 2 points.")
    ] = None,
    max_accuracy_drop: Annotated[
        float | None, _limit("--max-accuracy-drop", "How far accuracy may lie below the base run's.")
    ] = None,
    max_lsr_drop: Annotated[float | None, _limit("--max-lsr-drop", "How far LSR may lie below the base run's.")] = None,
    max_lgg_rise: Annotated[float | None, _limit("--max-lgg-rise", "How far LGG may lie above the base run's.")] = None,
    validation: Annotated[
        Path | None,
        typer.Option(
            help="What eclosure judge validate wrote; rates are corrected by it.  [default: that in the run]",
            show_default=False,
        ),
    ] = None,
    undecided: Annotated[
        Literal["pass", "fail"] | None,
        typer.Option(help="Exit with 0 (pass) or 100 (fail) instead of 101.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws behind corrected rates and differences.")] = 42,
    allow_stale: AllowStale = False,
) -> None:
    """Hold a judged run against limits: exit with 0 where it keeps them, 100 where not, 101 where it cannot be told.

    A limit is held against the 95 % interval of the rate, over questions. The run passes where the whole interval keeps
    the limit, and fails where none of it does. In between there are too few responses: the message says how many would
    decide it. Responses without a label count in whichever way is worse.

    Where people labelled at least 30 responses (validation.json in the run, or --validation), limits are held against
    the rates corrected by their labels, and else against the judge's own; the message says which.

    With --against, the difference to a base run is held against limits of its own, on the questions that both answer:
    --max-trr-drop 0.02 passes where the whole interval of the difference lies above -2 points.
    """
    from eclosure.gate import Limits, Outcome
    from eclosure.testing import JudgedCases, hold

    limits = Limits.of(
        min_trr=min_trr,
        min_accuracy=min_accuracy,
        min_lsr=min_lsr,
        max_lgg=max_lgg,
        max_unjudged=max_unjudged,
        max_trr_drop=max_trr_drop,
        max_accuracy_drop=max_accuracy_drop,
        max_lsr_drop=max_lsr_drop,
        max_lgg_rise=max_lgg_rise,
    )
    judged = JudgedCases.of(run, allow_stale=allow_stale)
    say_notices(judged.read)
    base = None if against is None else JudgedCases.of(against, allow_stale=allow_stale)
    if base is not None:
        say_notices(base.read)
    held = hold(judged, limits, base=base, validation=validation, seed=seed)
    report, left_out = held.report, judged.read.left_out
    if left_out:
        first, reason = left_out[0]
        say(f"{plural(len(left_out), 'response')} of the run left out: {first}: {reason}")
    for check in report.checks:
        say(check)
    if report.multiplicity is not None:
        say(report.multiplicity)
    outcome = report.decide(undecided)
    taken = f" (--undecided {undecided})" if outcome is not report.outcome else ""
    stale = ", by stale judgments" if held.stale else ""
    say(f"{run}: {report.outcome}{taken}{stale}, {plural(held.diagnosis.overall.responses, 'response')}")
    raise typer.Exit({Outcome.PASSED: 0, Outcome.FAILED: FAILED, Outcome.UNDECIDED: UNDECIDED}[outcome])
