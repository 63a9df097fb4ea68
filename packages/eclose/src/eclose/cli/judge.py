"""``eclose judge run``: let a model judge responses under the locked guidelines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eclose.cli import judge_show as show
from eclose.cli import judge_validate as validate
from eclose.cli.data_read import print_reading_summary
from eclose.cli.shared.model_options import (
    JudgeName,
    ModelOptions,
    describe_forecast,
    run_on_ray_workers,
    takes_model_options,
)
from eclose.cli.shared.options import RunByDefault, takes_import_options
from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    OtherBenchmark,
    format_count,
    format_percent,
    print_line,
    print_run_summary,
    print_table,
)
from eclose.cli.shared.recipe import recipe_key
from eclose.detectors.scores import DetectorBand
from eclose.errors import SettingError
from eclose.readers.import_settings import ImportSettings
from eclose.values.judgment import MAX_UNJUDGED_SHARE
from eclose.values.own_criterion import OwnCriterion

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.calls.resolve import ModelRef
    from eclose.calls.run import RunResult
    from eclose.judging.inputs import JudgeInputFiles
    from eclose.judging.settings import JudgeSettings
    from eclose.readers.intake import IntakeSettings
    from eclose.readers.response_tasks import ResponseFilter


RECORDED = "written"
"""Word for a response with a judgment, which may lack labels: it is not accepted in any sense."""


def _read_criterion(fields: Any) -> OwnCriterion:
    """Return a criterion of a recipe: a mapping with name, question, labels and sees."""
    from eclose.files.jsonl import parse_dataclass

    if isinstance(fields, OwnCriterion):
        return fields
    if not isinstance(fields, Mapping):
        raise SettingError(f"criteria: {fields!r} is no mapping. Write name, question, labels and sees of each.")
    return parse_dataclass(OwnCriterion, dict(fields))


# Judging is the usual command and validating the rare one, so `run` may be left out.
app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Judge responses with a model, and validate the judge against people. eclose judge RUN --judge MODEL is short"
    " for eclose judge run RUN --judge MODEL; eclose judge run --help lists all its options.",
)


@app.command(name="run")
@takes_model_options
@takes_import_options
def judge(
    responses: Annotated[
        Path,
        typer.Argument(help="Folder of a run, file of responses, or file with questions and responses side by side."),
    ],
    *,
    judge_model: JudgeName,
    instances: Annotated[Path | None, typer.Option(help="File of the questions, where it is not in the run.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the run.  [default: that of the responses]")
    ] = None,
    reference_free: Annotated[
        bool,
        typer.Option(
            "--reference-free", help="Show the judge no reference answer; completeness and correctness are not judged."
        ),
    ] = False,
    joint: Annotated[bool, recipe_key()] = False,
    locate: Annotated[bool, recipe_key()] = True,
    repeat: Annotated[
        int, typer.Option(min=1, help="How often to judge each response; the majority decides, and flips are counted.")
    ] = 1,
    effort: Annotated[str | None, recipe_key()] = None,
    temperature: Annotated[float, recipe_key(min=0)] = 0.0,
    attempts: Annotated[int, recipe_key(min=1)] = 2,
    max_tokens: Annotated[int, recipe_key(min=1)] = 4096,
    step_window: Annotated[int, recipe_key(min=1)] = 20,
    passages: Annotated[
        bool,
        typer.Option(
            "--passages",
            help="Judge each passage too (needed, not needed, contradicts), for context precision and recall; one more "
            "call a response.",
        ),
    ] = False,
    criteria: Annotated[list[OwnCriterion] | None, recipe_key(parser=_read_criterion)] = None,
    domain: Annotated[str | None, recipe_key()] = None,
    reason_language: Annotated[str | None, recipe_key()] = None,
    only: Annotated[
        list[DetectorBand] | None,
        typer.Option(
            help="Judge only responses that a calibrated detector puts in this band; repeatable. Needs --calibration."
        ),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Calibration that sets the bands (eclose detect calibrate).", dir_okay=False)
    ] = None,
    scores: Annotated[Path | None, recipe_key(dir_okay=False)] = None,
    other_benchmark: OtherBenchmark = False,
    append: Annotated[
        bool,
        typer.Option(
            "--append", help="Add the new responses of a file or of a folder of files to the run, and judge these."
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(help="Only responses given since then: a time in ISO 8601, or a period such as 24h or 7d."),
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option(help="Only this share of the responses (0 to 1), by a hash of the id of the trace or response."),
    ] = None,
    max_unjudged_share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Exit with 3 where a criterion has no label for a larger share of responses (0 to 1)."
        ),
    ] = MAX_UNJUDGED_SHARE,
    imported: ImportSettings,
    options: ModelOptions,
) -> None:
    """Judge every response with a model: is the evidence enough, is each step sound, does the trace pursue the
    question, does it establish the answer, and is that answer correct.

    One call for each of these, and each call is shown only what its decision may rest on. Writes judgments.jsonl into
    the folder of the run. A criterion without a usable reply has no label and a reason; a table at the end counts
    these, and the exit code is 3 where there are too many. After a stop, the same command continues the run; no reply
    is requested or paid for twice.
    """
    import asyncio
    from datetime import UTC, datetime
    from functools import partial
    from tempfile import TemporaryDirectory

    from eclose.errors import SettingError
    from eclose.judging.additions import hold_run, take_inputs
    from eclose.judging.settings import JudgeSettings
    from eclose.readers.intake import IntakeSettings

    intake = IntakeSettings(append=append, since=since, sample=sample).at(datetime.now(UTC))
    intake.require_folder(out)
    if only and (intake.append or intake.chooses):
        raise SettingError("--only chooses from scored responses: leave out --append, --since and --sample.")
    # Judgments lie beside the responses they judge, where diagnose and gate look for them.
    folder = out or (responses if responses.is_dir() else responses.parent)
    find_filter = partial(
        _read_filter, intake, only=only, calibration=calibration, scores=scores, other_benchmark=other_benchmark
    )
    settings = JudgeSettings(
        reference_free=reference_free,
        joint=joint,
        locate=locate,
        repeat=repeat,
        effort=effort,
        attempts=attempts,
        max_tokens=max_tokens,
        temperature=temperature,
        step_window=step_window,
        criteria=tuple(criteria or ()),
        passages=passages,
        domain=domain,
        language=reason_language,
    )
    model = options.model(judge_model)
    find_inputs = partial(
        take_inputs,
        responses,
        folder,
        model,
        settings,
        intake,
        deadline=options.calls.deadline,
        instances=instances,
        imported=imported,
        force=options.force,
    )
    if options.dry_run:
        with TemporaryDirectory(prefix="eclose-") as scratch:
            sources = asyncio.run(find_inputs(scratch=Path(scratch)))
            _print_inputs(sources, responses)
            asyncio.run(_print_forecast(sources, model, settings, options.calls, find_filter(sources)))
        return
    with hold_run(folder, options.ledger, intake):
        sources = asyncio.run(find_inputs())
        _print_inputs(sources, responses)
        result = _judge(sources, judge_model, folder, settings, options, find_filter(sources))
    print_run_summary(result, _describe_flips(result) if repeat > 1 else None, accepted=RECORDED)
    too_many_unjudged = _print_unjudged(result.stage.out, max_unjudged_share)
    # The funnel counts the records of another tool's file from which questions and responses were taken.
    parts = (result.manifest.counts, *result.manifest.funnel.values(), *sources.added.values())
    quarantined = any(counts.quarantined for counts in parts)
    raise typer.Exit(QUARANTINED_EXIT_CODE if too_many_unjudged or quarantined else 0)


def _judge(
    sources: JudgeInputFiles,
    judge_model: str,
    folder: Path,
    settings: JudgeSettings,
    options: ModelOptions,
    only: ResponseFilter | None,
) -> RunResult:
    """Judge the responses in this process or on workers."""
    import asyncio
    from dataclasses import replace
    from functools import partial

    from eclose.cli.shared.progress import show_run_progress
    from eclose.judging.run import build_judge_run, find_same_family_models, judge_responses

    model = options.model(judge_model)
    # Such a judge may be too lenient. Only people's labels can show whether it is, so the run goes on.
    if related := find_same_family_models(sources, model.name):
        print_line(
            f"{model.name} is of the model family of {', '.join(related)}, which it judges: validate it against people"
        )
    if options.ray is not None:
        where = (sources, judge_model, options.server, folder, settings, options.calls.deadline, only)
        return run_on_ray_workers(partial(build_judge_run, *where), options.calls, options, options.ray)
    watched = replace(options.run_options, watch=partial(show_run_progress, accepted=RECORDED))
    return asyncio.run(judge_responses(sources, model, folder, settings, options.calls, watched, only=only))


def _print_inputs(sources: JudgeInputFiles, file: Path) -> None:
    """Print how the responses were read, where another tool wrote them, and what to know before a judge is paid."""
    from eclose.api.evaluate import describe_added, describe_judge_inputs, summarize_responses
    from eclose.files.step import companion_file_path

    for sentence in describe_added(sources):
        print_line(sentence)
    lost = companion_file_path(sources.responses, "rejected.jsonl")
    if sources.added and lost.is_file():
        print_line(f"  responses that are not in the run although they should, with reasons: {lost}")
    readings = summarize_responses(sources)
    if not readings.in_protocol_layout:
        print_reading_summary(readings, file)
    for sentence in describe_judge_inputs(sources, readings):
        print_line(sentence)


def _read_filter(
    intake: IntakeSettings,
    sources: JudgeInputFiles,
    *,
    only: list[DetectorBand] | None,
    calibration: Path | None,
    scores: Path | None,
    other_benchmark: bool,
) -> ResponseFilter | None:
    from eclose.detectors.bands import build_band_filter
    from eclose.errors import SettingError

    if not only:
        if calibration or scores:
            raise SettingError("--calibration and scores choose responses together with --only. Name a band.")
        # What is added to a run was chosen when it was taken.
        return intake if intake.chooses and not intake.append else None
    if calibration is None:
        raise SettingError("--only needs --calibration FILE; write one with: eclose detect calibrate RUN.")
    return build_band_filter(
        sources.instances, sources.responses, calibration, only, scores=scores, allow_other_benchmark=other_benchmark
    )


def _print_unjudged(judgments: Path, limit: float) -> bool:
    """Print which labels are missing and why; return whether more than ``limit`` of a criterion's are."""
    from eclose.diagnosis.number_format import to_one_line
    from eclose.files.jsonl import read_records
    from eclose.judging.run import count_unjudged_labels
    from eclose.report.wording import explain_missing_label
    from eclose.values.judgment import Judgment

    labels = count_unjudged_labels(read_records(judgments, Judgment))
    if not labels.missing:
        return False
    if labels.without_any:
        judged = format_count(labels.responses, "response")
        verb = "is" if labels.without_any == 1 else "are"
        print_line(f"{labels.without_any:,} of {judged} {verb} without any label: no rate rests on them.")
    rows = [
        (
            row.criterion,
            explain_missing_label(row.kind),
            f"{row.responses:,}",
            f"{format_percent(row.responses / labels.responses)} %",
        )
        for row in labels.missing
    ]
    print_line("")
    print_table(f"Not judged, of {format_count(labels.responses, 'response')}", ("label", "reason", "n", "share"), rows)
    # One reason often explains several criteria: each example is printed once.
    for example in dict.fromkeys(row.example for row in labels.missing if row.example):
        print_line(f"  for example: {to_one_line(example)}")
    over = {criterion: share for criterion, share in labels.shares.items() if share > limit}
    for criterion, share in over.items():
        print_line(
            f"{criterion.value} has no label for {format_percent(share)} % of the responses, "
            f"more than {format_percent(limit)} % (--max-unjudged-share): reports leave out the rates that need it."
        )
    return bool(over)


async def _print_forecast(
    sources: JudgeInputFiles,
    model: ModelRef,
    settings: JudgeSettings,
    calls: CallSettings,
    only: ResponseFilter | None,
) -> None:
    from eclose.calls.resolve import resolve_model_ref
    from eclose.judging.run import forecast_judging

    model = await resolve_model_ref(model, calls.deadline)
    forecast = forecast_judging(sources, model, settings, calls, only)
    print_line(f"{model.name}: {describe_forecast(forecast, calls.currency)}")


def _describe_flips(result: RunResult) -> str:
    """Return ``the repetitions differ about L in 12 of 600 (2.0 %), …``."""
    from eclose.judging.validation_file import read_judgments
    from eclose.metrics.repeats import count_label_flips

    flips = count_label_flips(read_judgments(result.stage.out))
    parts = (
        f"{name} in {row.flipped:,} of {row.responses:,} ({format_percent(row.rate)} %)" for name, row in flips.items()
    )
    return f"the repetitions differ about {', '.join(parts)}"


app.command()(show.show)
app.command()(validate.validate)
