"""``eclosure screen``: which questions can be used to study reasoning."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclosure.benchmarks.formats import Format
from eclosure.cli.calls import Asking, JudgeName, asks_a_model, shown_forecast
from eclosure.cli.output import QUARANTINED, plural, say
from eclosure.cli.runs import say_run

if TYPE_CHECKING:
    from eclosure.chat.inquiry import Finished


@asks_a_model
def screen(
    instances: Annotated[
        Path, typer.Argument(help="Questions with passages and reference answers.", show_default=False)
    ],
    *,
    judge_model: JudgeName,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder of the run.", file_okay=False, show_default=False)
    ],
    attempts: Annotated[int, typer.Option(min=1, help="Times a judge is asked that answers in no usable form.")] = 2,
    layout: Annotated[Format, typer.Option("--format", help="The layout of the records.")] = Format.AUTO,
    asking: Asking,
) -> None:
    """Let a model say which questions are well posed, settled by their passages, and rightly answered by their
    reference; the others get one reason, N1 to N5.

    Writes screening.jsonl, which eclosure data intersect --eligible reads.
    """
    import asyncio

    from eclosure.chat.forecast import forecast_usage, habits_of
    from eclosure.chat.inquiry import price_of_model
    from eclosure.judge.screen import requests, screen_questions
    from eclosure.judge.settings import JudgeSettings

    settings, model = JudgeSettings(attempts=attempts), asking.model(judge_model)
    if asking.dry_run:
        asked = requests(instances, settings, layout=layout)
        expected = forecast_usage(asked, price_of_model(model, asking.calls), habits_of(model.name))
        say(f"{model.name}: {shown_forecast(expected, asking.calls.currency)}")
        return
    running = screen_questions(instances, model, out, settings, asking.calls, layout=layout, **asking.flags)
    done = asyncio.run(running)
    say_run(done, _outcome(done))
    raise typer.Exit(QUARANTINED if done.manifest.counts.quarantined else 0)


def _outcome(done: Finished) -> str:
    """``866 eligible, 434 not (N1 65, N2 165, …), 0 without a label``."""
    from eclosure.core.judgment import Screening
    from eclosure.store.records import read

    found = Counter((one.eligible, one.code) for one in read(done.stage.out, Screening))
    codes = {code: count for (_, code), count in sorted(found.items(), key=str) if code is not None}
    listed = ", ".join(f"{code} {count:,}" for code, count in sorted(codes.items()))
    refused = f"{sum(codes.values()):,} not" + (f" ({listed})" if listed else "")
    return f"{plural(found[True, None], 'question')} eligible, {refused}, {found[None, None]:,} without a label"
