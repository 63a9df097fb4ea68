"""``eclose detect``: score responses with a detector that needs neither people nor a reference answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eclose.cli.shared.default_command import RunByDefault
from eclose.cli.shared.model_options import ModelOptions, describe_forecast, takes_model_options
from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    format_count,
    format_percent,
    print_line,
    print_run_summary,
    print_table,
)
from eclose.core.judgment import MAX_UNJUDGED_SHARE

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.calls.run import RunResult
    from eclose.detection.settings import ChatDetectorSettings
    from eclose.models.resolve import ModelRef

# Scoring is the usual command, so `run` may be left out.
app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Score responses with a detector that sees no reference answer (eclose detect RUN --detector NAME).",
)


@app.command(name="run")
@takes_model_options
def detect(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run, with questions and responses.", file_okay=False, show_default=False)
    ],
    *,
    detector: Annotated[
        Literal["ragas", "veriscore", "alignment"],
        typer.Option(
            help="ragas: share of statements that the passages support; veriscore: share of verifiable claims; "
            "alignment: probability that the trace pursues the question.",
            show_default=False,
        ),
    ],
    # Not ECLOSE_MODEL, which names the model that answers: a detector of its family may rate it too high.
    model: Annotated[
        str,
        typer.Option(
            help="Model behind the detector: provider/model, or the base URL of a server.",
            envvar="ECLOSE_DETECTOR_MODEL",
            show_envvar=False,
            show_default=False,
        ),
    ],
    scores: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File of the scores, for a second model behind one detector.  "
            "[default: scores-DETECTOR.jsonl in the run]",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    effort: Annotated[
        str | None,
        typer.Option(help="Reasoning effort of the model: low, medium or high.", show_default=False),
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0, help="Sampling temperature (0 = greedy); always 0 for alignment.")
    ] = 0.0,
    attempts: Annotated[
        int,
        typer.Option(min=1, help="How often to ask when a reply does not match the schema (1 = once, as alignment)."),
    ] = 2,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Longest reply in tokens.  [default: 4096; alignment: 4]", show_default=False),
    ] = None,
    top_logprobs: Annotated[
        int, typer.Option(min=1, max=20, help="Alternatives to the first token to request (alignment only).")
    ] = 20,
    max_unscored_share: Annotated[
        float, typer.Option(min=0, max=1, help="Exit with 3 where a larger share of responses has no score (0 to 1).")
    ] = MAX_UNJUDGED_SHARE,
    options: ModelOptions,
) -> None:
    """Score every response of a run between 0 and 1; a low score means failure. No detector sees the reference answer.

    Writes scores-DETECTOR.jsonl into the folder of the run. A response without a usable reply has no score and a
    reason; a table at the end counts these. The detectors ragas and veriscore make two calls for each response. The
    detector alignment makes one, and needs a server that reports log-probabilities. After a stop, the same command
    continues the run; no reply is requested or paid for twice.
    """
    import asyncio

    from eclose.detection.run import detect_responses
    from eclose.detection.scores import DetectorKind
    from eclose.detection.settings import ChatDetectorSettings
    from eclose.response_tasks import find_related_models
    from eclose.store.runs.folder import RESPONSES_FILE

    settings = ChatDetectorSettings(
        detector=DetectorKind(detector),
        effort=effort,
        attempts=attempts,
        max_tokens=max_tokens,
        temperature=temperature,
        top_logprobs=top_logprobs,
    )
    model_ref = options.model(model)
    if options.dry_run:
        asyncio.run(_print_forecast(run, model_ref, settings, options.calls))
        return
    # A model may rate its own family too high. Only people's labels can show whether it does, so the run goes on.
    if related := find_related_models(run / RESPONSES_FILE, model_ref.name):
        print_line(
            f"{model_ref.name} is of the model family of {', '.join(related)}, whose responses it scores: "
            "the paper's detectors are of other families than the generators"
        )
    running = detect_responses(run, model_ref, settings, options.calls, options.run_options, out=scores)
    result = asyncio.run(running)
    print_run_summary(result)
    too_many_unscored = _print_unscored(result, max_unscored_share)
    # The funnel counts the questions that could not be read.
    quarantined = any(counts.quarantined for counts in (result.manifest.counts, *result.manifest.funnel.values()))
    raise typer.Exit(QUARANTINED_EXIT_CODE if too_many_unscored or quarantined else 0)


def _print_unscored(result: RunResult, limit: float) -> bool:
    """Print how many responses have no score and why; return whether there are more than ``limit`` of all."""
    unscored, responses = result.manifest.calls["unscored"], result.manifest.counts.accepted
    if not unscored:
        return False
    rows = [(reason, f"{count:,}", f"{format_percent(count / responses)} %") for reason, count in unscored.items()]
    print_line("")
    print_table(f"Not scored, of {format_count(responses, 'response')}", ("reason", "n", "share"), rows)
    share = sum(unscored.values()) / responses
    if share > limit:
        print_line(
            f"{format_percent(share)} % of the responses have no score, more than {format_percent(limit)} % "
            f"(--max-unscored-share); the reasons are in {result.stage.out}."
        )
    return bool(share > limit)


async def _print_forecast(run: Path, model: ModelRef, settings: ChatDetectorSettings, calls: CallSettings) -> None:
    from eclose.detection.run import forecast_detection
    from eclose.models.resolve import resolve_model_ref
    from eclose.world.server.forecast_habits import register_world_writing_habits

    # The world's server bills words, not tokens; without its habits the forecast would take it for an ordinary model.
    register_world_writing_habits()
    model = await resolve_model_ref(model, calls.deadline)
    print_line(f"{model.name}: {describe_forecast(forecast_detection(run, model, settings, calls), calls.currency)}")
