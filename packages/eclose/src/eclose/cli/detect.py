"""``eclose detect``: score responses with a detector that needs neither people nor a reference answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Never

import typer

from eclose.cli import detect_use as use
from eclose.cli.shared.model_options import ModelOptions, describe_forecast, run_on_ray_workers, takes_model_options
from eclose.cli.shared.options import RunByDefault
from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    AllowStale,
    format_count,
    format_percent,
    print_line,
    print_run_summary,
    print_table,
)
from eclose.cli.shared.recipe import recipe_key
from eclose.values.judgment import MAX_UNJUDGED_SHARE

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.calls.cluster.run import RunFactory
    from eclose.calls.resolve import ModelRef
    from eclose.calls.run import RunResult
    from eclose.detectors.settings import ChatDetectorSettings, LocalDetectorSettings

# Scoring is the usual command, so `run` may be left out.
app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Score responses with a detector that sees no reference answer (eclose detect RUN --detector NAME).",
)


@app.command(name="run")
@takes_model_options
def detect(
    run: Annotated[Path, typer.Argument(help="Folder of a run, with questions and responses.", file_okay=False)],
    *,
    detector: Annotated[
        Literal["ragas", "veriscore", "alignment", "closure", "alignscore", "verifier"],
        typer.Option(
            help="ragas: share of statements that the passages support; veriscore: share of verifiable claims; "
            "alignment: probability that the trace pursues the question; closure: probability that the trace entails "
            "the answer; alignscore: support of each substantive step by its best passage; verifier: the weakest "
            "dependency, by a verifier that was trained on families."
        ),
    ],
    # Not ECLOSE_MODEL, which names the model that answers: a detector of its family may rate it too high.
    model: Annotated[
        str | None,
        typer.Option(
            help="Model behind the detector: provider/model, or the base URL of a server. For closure and alignscore: "
            "folder or hub name of an entailment model, which runs in this process. A verifier needs none.",
            envvar="ECLOSE_DETECTOR_MODEL",
            show_envvar=False,
        ),
    ] = None,
    verifier: Annotated[
        Path | None, typer.Option(help="Folder of a trained verifier (detector verifier only).")
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File of the scores, for a second model behind one detector.  "
            "[default: scores-DETECTOR.jsonl in the run]",
            dir_okay=False,
        ),
    ] = None,
    effort: Annotated[str | None, recipe_key()] = None,
    temperature: Annotated[float, recipe_key(min=0)] = 0.0,
    attempts: Annotated[int, recipe_key(min=1)] = 2,
    max_tokens: Annotated[int | None, recipe_key(min=1)] = None,
    top_logprobs: Annotated[int, recipe_key(min=1, max=20)] = 20,
    revision: Annotated[str | None, recipe_key()] = None,
    label: Annotated[str | None, recipe_key()] = None,
    dtype: Annotated[str, recipe_key()] = "auto",
    judgments: Annotated[Path | None, recipe_key(dir_okay=False)] = None,
    allow_stale: AllowStale = False,
    window: Annotated[tuple[int, int] | None, recipe_key()] = None,
    max_unscored_share: Annotated[
        float, typer.Option(min=0, max=1, help="Exit with 3 where a larger share of responses has no score (0 to 1).")
    ] = MAX_UNJUDGED_SHARE,
    gpus_per_worker: Annotated[float, recipe_key(min=0)] = 0.0,
    options: ModelOptions,
) -> None:
    """Score every response of a run between 0 and 1; a low score means failure. No detector sees the reference answer.

    Writes scores-DETECTOR.jsonl into the folder of the run. A response without a usable reply has no score and a
    reason; a table at the end counts these. The detectors ragas and veriscore make two calls for each response. The
    detector alignment makes one, and needs a server that reports log-probabilities. The detectors closure and
    alignscore run any entailment model in safetensors: T5 (TRUE), AlignScore, FactCG, MiniCheck, or a classifier of
    natural-language inference. They cut nothing: what does not fit is read in windows or has no score. After a stop,
    the same command continues the run; no reply is requested or paid for twice. The detector verifier scores with a
    verifier that was trained on families (eclose verifier train), which needs no model.
    """
    from functools import partial

    from eclose.api.detect import detect as score_run
    from eclose.detectors.local_run import build_local_detector_run, limit_responses
    from eclose.detectors.run import build_detector_run
    from eclose.detectors.scores import DetectorKind
    from eclose.detectors.settings import LOCAL_DETECTORS, ChatDetectorSettings, LocalDetectorSettings
    from eclose.errors import SettingError

    kind = DetectorKind(detector)
    score = partial(score_run, run, out=scores, options=options.run_options)
    if kind is not DetectorKind.VERIFIER and model is None:
        raise typer.BadParameter("Missing option '--model'.")
    if options.ray is not None and kind is DetectorKind.VERIFIER:
        raise SettingError("engine: a verifier runs in this process, so leave ray out.")
    if kind is DetectorKind.VERIFIER or verifier is not None or model is None:
        if options.dry_run:
            print_line("A verifier runs in this process, so there are no calls and no cost.")
            return
        _end_run(score(detector=detector, model=model, verifier=verifier), max_unscored_share)
    settings: ChatDetectorSettings | LocalDetectorSettings
    if kind in LOCAL_DETECTORS:
        settings = LocalDetectorSettings(
            detector=kind, revision=revision, label=label, dtype=dtype, max_tokens=max_tokens
        )
        model_ref: str | ModelRef = model
    else:
        settings = ChatDetectorSettings(
            detector=kind,
            effort=effort,
            attempts=attempts,
            max_tokens=max_tokens,
            temperature=temperature,
            top_logprobs=top_logprobs,
            window=window,
        )
        model_ref = options.model(model)
    if options.dry_run:
        _print_forecast(run, model_ref, settings, options.calls)
        return
    _print_related_models(run, model_ref)
    if options.ray is not None:
        make_run: RunFactory
        if isinstance(settings, LocalDetectorSettings):
            make_run = partial(
                build_local_detector_run, run, model, settings, scores, judgments, allow_stale=allow_stale
            )
            calls, gpus = limit_responses(), gpus_per_worker
        else:
            calls, gpus = options.calls, None
            make_run = partial(build_detector_run, run, model, options.server, settings, calls.deadline, scores)
        result = run_on_ray_workers(make_run, calls, options, options.ray, gpus=gpus)
    else:
        result = score(
            detector=settings, model=model_ref, calls=options.calls, judgments=judgments, allow_stale=allow_stale
        )
    _end_run(result, max_unscored_share)


def _end_run(result: RunResult, max_unscored_share: float) -> Never:
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


def _print_related_models(run: Path, model: str | ModelRef) -> None:
    from eclose.files.run_folder import RESPONSES_FILE
    from eclose.readers.response_tasks import find_related_models

    name = model if isinstance(model, str) else model.name
    # A model may rate its own family too high. Only people's labels can show whether it does, so the run goes on.
    if related := find_related_models(run / RESPONSES_FILE, name):
        print_line(
            f"{name} is of the model family of {', '.join(related)}, whose responses it scores: "
            "the paper's detectors are of other families than the generators"
        )


def _print_forecast(
    run: Path, model: str | ModelRef, settings: ChatDetectorSettings | LocalDetectorSettings, calls: CallSettings
) -> None:
    import asyncio

    from eclose.calls.resolve import resolve_model_ref
    from eclose.detectors.run import forecast_detection
    from eclose.detectors.settings import LocalDetectorSettings

    if isinstance(settings, LocalDetectorSettings) or isinstance(model, str):
        print_line(f"{model}: runs in this process, so there are no calls and no cost.")
        return
    model = asyncio.run(resolve_model_ref(model, calls.deadline))
    print_line(f"{model.name}: {describe_forecast(forecast_detection(run, model, settings, calls), calls.currency)}")


@app.command()
def convert(
    checkpoint: Annotated[Path, typer.Argument(help="Published file, such as AlignScore-large.ckpt.", dir_okay=False)],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; its name must contain alignscore.")],
    backbone: Annotated[
        str, typer.Option(help="Folder or hub name of the model that the checkpoint was trained on.")
    ] = "roberta-large",
    revision: Annotated[str | None, typer.Option(help="Commit of the backbone on the hub.")] = None,
) -> None:
    """Convert the published checkpoint of AlignScore to safetensors, once; detectors read no pickled weights.

    Only tensors and plain values are read from the file; one that would run code is refused.
    """
    from eclose.detectors.align_score import convert_align_score
    from eclose.errors import SettingError

    # The detector goes by the name of the weights: under another one, reports would not say AlignScore.
    if "alignscore" not in out.resolve().name.lower():
        raise SettingError(f"--out {out}: name a folder with alignscore in its name, such as alignscore-large.")
    print_line(f"{convert_align_score(checkpoint, backbone, out, revision=revision)}")


for command in (use.calibrate, use.evaluate, use.choose):
    app.command()(command)
