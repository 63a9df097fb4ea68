"""``eclosure gate``: pass or fail, for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eclosure.cli.output import AllowStale, plural, say, say_notices

FAILED = 100
"""The exit code of a gate that does not let pass."""


def _limit(flag: str, what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, min=0, max=1, help=what, show_default=False)
    return option


def gate(
    run: Annotated[Path, typer.Argument(help="A judged run's folder.", show_default=False)],
    *,
    min_trr: Annotated[float | None, _limit("--min-trr", "Reliable traces, at least.")] = None,
    min_accuracy: Annotated[float | None, _limit("--min-accuracy", "Right answers, at least.")] = None,
    min_lsr: Annotated[float | None, _limit("--min-lsr", "Locally sound traces, at least.")] = None,
    max_lgg: Annotated[float | None, _limit("--max-lgg", "Sound in every step and not as a whole, at most.")] = None,
    max_unjudged: Annotated[float | None, _limit("--max-unjudged", "Without a label, at most.")] = None,
    seed: Annotated[int, typer.Option(help="For the intervals.")] = 42,
    allow_stale: AllowStale = False,
) -> None:
    """Hold a judged run against limits; exit with 100 and the reasons where it does not keep them.

    A limit is held against the bound of the 95 % interval, not against the estimate: with few responses a good rate may
    be luck. What was not judged counts against passing.
    """
    import numpy as np

    from eclosure.cases import read_cases
    from eclosure.diagnose import diagnose
    from eclosure.gate import Limits
    from eclosure.gate import gate as held

    limits = Limits.of(
        min_trr=min_trr, min_accuracy=min_accuracy, min_lsr=min_lsr, max_lgg=max_lgg, max_unjudged=max_unjudged
    )
    read = read_cases(run, allow_stale=allow_stale)
    cases, left = read.cases, read.left_out
    say_notices(read)
    found = diagnose(cases, rng=np.random.default_rng(seed))
    reasons = held(found.overall, found.unjudged, limits, left)
    if left:
        say(f"{plural(len(left), 'response')} of the run left out: {left[0][0]}: {left[0][1]}")
    for reason in reasons:
        say(reason)
    stale = ", by stale judgments" if read.stale else ""
    say(f"{run}: {'failed' if reasons else 'passed'}{stale}, {plural(found.overall.responses, 'response')}")
    raise typer.Exit(FAILED if reasons else 0)
