"""``eclose judge-log``: check whether graders' explanations establish the scores that they recorded."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.model_options import JudgeName, ModelOptions, describe_forecast, takes_model_options
from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    AllowStale,
    format_count,
    format_percent_with_interval,
    print_line,
    print_run_summary,
    print_table,
)

if TYPE_CHECKING:
    from eclose.calls.run import RunResult
    from eclose.judging.grader_closure import GraderClosure

_EXAMPLES = 5


@takes_model_options
def judge_log(
    log: Annotated[
        Path,
        typer.Argument(help="Log of Inspect (.eval or .json), or the folder of a judged run.", show_default=False),
    ],
    *,
    judge_model: JudgeName,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the result.", file_okay=False, show_default=False)
    ],
    attempts: Annotated[
        int, typer.Option(min=1, help="How often to ask when a reply does not match the schema (1 = once).")
    ] = 2,
    allow_stale: AllowStale = False,
    options: ModelOptions,
) -> None:
    """Judge the graders of an evaluation: does the explanation of each score establish the score that was recorded?

    The explanation is taken as a trace and the score as its answer, and the judge is asked the question about closure.
    Scores without an explanation are rejected and counted. Writes grader-closure.jsonl.
    """
    from eclose.api.judging import forecast_judge_log
    from eclose.api.judging import judge_log as judge_graders
    from eclose.judging.settings import JudgeSettings
    from eclose.world.server.forecast_habits import register_world_writing_habits

    model, settings = options.model(judge_model), JudgeSettings(attempts=attempts)
    if options.dry_run:
        # The world's server bills words as tokens, so its habits are registered before the forecast.
        register_world_writing_habits()
        usage = forecast_judge_log(log, judge=model, settings=settings, calls=options.calls, allow_stale=allow_stale)
        print_line(f"{model.name}: {describe_forecast(usage, options.calls.currency)}")
        return
    result = judge_graders(
        log,
        judge=model,
        out=out,
        settings=settings,
        calls=options.calls,
        options=options.run_options,
        allow_stale=allow_stale,
    )
    _print_result(result)
    raise typer.Exit(QUARANTINED_EXIT_CODE if result.manifest.counts.quarantined else 0)


def _print_result(result: RunResult) -> None:
    from eclose.judging.grader_closure import GraderClosure
    from eclose.store.records.jsonl import read_records

    labels: defaultdict[str, Counter[bool | None]] = defaultdict(Counter)
    examples: list[GraderClosure] = []
    for closure in read_records(result.stage.out, GraderClosure):
        labels[closure.grader][closure.closed] += 1
        if closure.closed is False and len(examples) < _EXAMPLES:
            examples.append(closure)
    total = sum(labels.values(), Counter())
    print_run_summary(
        result, f"{total[True]:,} of {format_count(total[True] + total[False], 'explanation')} establish their score"
    )
    rows = [(grader, *_format_counts(counts)) for grader, counts in sorted(labels.items())]
    print_table("Explanations that establish the recorded score", ("grader", "share", "n", "unjudged"), rows)
    for closure in examples:
        established = "no score" if closure.established is None else f"“{closure.established}”"
        print_line(f"  {closure.id}: recorded “{closure.score}”, established {established}: {closure.reason}")


def _format_counts(counts: Counter[bool | None]) -> tuple[str, str, str]:
    from eclose.stats.intervals import wilson_interval

    n = counts[True] + counts[False]
    share = format_percent_with_interval(counts[True] / n, wilson_interval(counts[True], n)) if n else "-"
    return share, f"{n:,}", f"{counts[None]:,}"
