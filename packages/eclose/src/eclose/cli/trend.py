"""``eclose trend``: a rate of a judged run over time windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import (
    AllowStale,
    OriginOption,
    format_count,
    format_percent,
    print_line,
    print_table,
)

if TYPE_CHECKING:
    from eclose.diagnosis.trend import Trend


def trend(
    run: Annotated[Path, typer.Argument(help="Folder of a judged run, or a table of its labels.")],
    *,
    by: Annotated[str, typer.Option(help="Length of a window: a number with m, h, d or w.")] = "1d",
    metric: Annotated[str, typer.Option(help="Rate: Acc, LSR, A, C, K, GSR, TRR or LGG.")] = "TRR",
    limit: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Largest LGG, or smallest value of another rate: say when it was left (0 to 1)."
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="File for the plot and the table (HTML, without scripts).", dir_okay=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    origin: OriginOption = None,
    allow_stale: AllowStale = False,
) -> None:
    """Follow a rate of a judged run over time windows, with bounds that hold while the run grows.

    Windows are by the times at which the responses were given, in UTC. Each has its rate with a 95 % interval, which
    holds for that window alone. The last two columns hold for the run as it grows, at every look: at some time by the
    end of the window, the rate (%) has been above the one and below the other. Each of the two is ever false in at most
    5 % of runs, and counts unjudged responses as worst.

    With --limit, says at the end of which window it was shown that the rate has left the limit. `eclose gate --trend`
    makes that an exit code.
    """
    from eclose.api.trend import trend as follow_run
    from eclose.files.atomic import write_files

    result = follow_run(
        run,
        by=by,
        metric=metric,
        limit=limit,
        origin=origin,
        allow_stale=allow_stale,
        notify=None if as_json else print_line,
    )
    if page is not None:
        write_files(page.parent, {page.name: result.page().encode()})
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
        return
    _print_trend(result.trend, result.name)
    if page is not None:
        print_line(f"{page}: written")


def _print_trend(trend: Trend, name: str) -> None:
    from eclose.diagnosis.trend import format_window_start

    rows = [
        (
            format_window_start(window.start, trend.by),
            f"{window.responses:,}",
            f"{window.questions:,}",
            f"{window.rate.rate.unjudged:,}",
            str(window.rate.figure),
            format_percent(window.above),
            format_percent(window.below),
        )
        for window in trend.windows
    ]
    columns = ("window (UTC)", "responses", "questions", "unjudged", str(trend.metric), "above", "below")
    responses = format_count(sum(window.responses for window in trend.windows), "response")
    title = f"{name}: {trend.metric} of {responses} in {format_count(len(rows), 'window')} of {trend.by}"
    print_table(title, columns, rows)
    for count, why in ((trend.timeless, "a time"), (trend.left_out, "any judgment")):
        if count:
            print_line(f"{format_count(count, 'response')} without {why}, in no window")
    if trend.limit is not None:
        start = None if trend.alarm is None else format_window_start(trend.alarm, trend.by)
        print_line(f"{trend.aim}: " + (f"alarm at the end of the window of {start}" if start else "no alarm"))
