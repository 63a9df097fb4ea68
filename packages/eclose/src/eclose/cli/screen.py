"""``eclose screen``: find the questions that can be used to study reasoning."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.model_options import (
    JudgeName,
    ModelOptions,
    describe_forecast,
    run_on_ray_workers,
    takes_model_options,
)
from eclose.cli.shared.output import QUARANTINED_EXIT_CODE, format_count, print_line, print_run_summary
from eclose.cli.shared.recipe import recipe_key
from eclose.readers.import_settings import ImportSettings
from eclose.readers.layouts import RecordLayout

if TYPE_CHECKING:
    from eclose.calls.run import RunResult


@takes_model_options
def screen(
    instances: Annotated[Path, typer.Argument(help="File of questions with passages and reference answers.")],
    *,
    judge_model: JudgeName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.", file_okay=False)],
    attempts: Annotated[int, recipe_key(min=1)] = 2,
    layout: Annotated[RecordLayout, typer.Option("--format", help="Layout of the records.")] = RecordLayout.AUTO,
    options: ModelOptions,
) -> None:
    """Let a model decide which questions are well posed, decided by their passages, and correctly answered by their
    reference. The others are ineligible for one of the reasons N1 to N5.

    Writes screening.jsonl, which eclose data intersect --eligible reads.
    """
    import asyncio
    from functools import partial

    from eclose.judging.screen import build_screening_run, forecast_screening, screen_question_eligibility
    from eclose.judging.settings import JudgeSettings

    settings, model = JudgeSettings(attempts=attempts), options.model(judge_model)
    imported = ImportSettings(format=layout)
    if options.dry_run:
        usage = forecast_screening(instances, model, settings, options.calls, imported=imported)
        print_line(f"{model.name}: {describe_forecast(usage, options.calls.currency)}")
        return
    if options.ray is not None:
        where = (instances, judge_model, options.server, out, settings, options.calls.deadline, imported)
        result = run_on_ray_workers(partial(build_screening_run, *where), options.calls, options, options.ray)
    else:
        running = screen_question_eligibility(
            instances, model, out, settings, options.calls, options.run_options, imported=imported
        )
        result = asyncio.run(running)
    print_run_summary(result, _describe_outcome(result))
    raise typer.Exit(QUARANTINED_EXIT_CODE if result.manifest.counts.quarantined else 0)


def _describe_outcome(result: RunResult) -> str:
    """Return ``866 questions eligible, 434 not (N1 65, N2 165, …), 0 without a label``."""
    from eclose.files.jsonl import read_records
    from eclose.values.judgment import QuestionScreening

    outcomes = Counter((row.eligible, row.code) for row in read_records(result.stage.out, QuestionScreening))
    # Only ineligible questions have a code; (True, None) is eligible and (None, None) could not be judged.
    codes = {code: count for (_, code), count in sorted(outcomes.items(), key=str) if code is not None}
    listed = ", ".join(f"{code} {count:,}" for code, count in sorted(codes.items()))
    ineligible = f"{sum(codes.values()):,} not" + (f" ({listed})" if listed else "")
    eligible = format_count(outcomes[True, None], "question")
    return f"{eligible} eligible, {ineligible}, {outcomes[None, None]:,} without a label"
