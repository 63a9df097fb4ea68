"""``eclose judge``: let a model judge responses under the locked guidelines, and validate it against people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.benchmarks.import_settings import ImportSettings
from eclose.benchmarks.layouts import RecordLayout
from eclose.cli.shared.default_command import RunByDefault
from eclose.cli.shared.import_options import takes_import_options
from eclose.cli.shared.model_options import (
    CallEngine,
    EngineName,
    JudgeName,
    ModelOptions,
    RayAddress,
    Workers,
    describe_forecast,
    run_on_ray_workers,
    takes_model_options,
)
from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    AllowStale,
    OtherBenchmark,
    ReplaceValidation,
    format_count,
    format_percent,
    format_percent_with_interval,
    print_line,
    print_run_summary,
    print_table,
    print_text_block,
)
from eclose.core.judgment import MAX_UNJUDGED_SHARE
from eclose.detection.scores import DetectorBand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.calls.client import CallSettings
    from eclose.calls.run import RunResult
    from eclose.detection.cascade import BandFilter
    from eclose.judging.find_inputs import JudgeInputFiles
    from eclose.judging.settings import JudgeSettings
    from eclose.judging.show_judgment import JudgeCall, JudgmentTrail
    from eclose.judging.validation_file import ValidationRecord
    from eclose.metrics.judge_against_people import GroupValidation, LabelAgreementRow
    from eclose.metrics.judges_compared import JudgeComparison
    from eclose.models.resolve import ModelRef
    from eclose.stats.intervals import Estimate


RECORDED = "written"
"""Word for a response with a judgment, which may lack labels: it is not accepted in any sense."""

# Judging is the usual command and validating the rare one, so `run` may be left out.
app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Judge responses with a model, and validate the judge against people. eclose judge RUN --judge MODEL is short"
    " for eclose judge run RUN --judge MODEL; eclose judge run --help lists its options.",
)


@app.command(name="run")
@takes_model_options
@takes_import_options
def judge(
    responses: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run, file of responses, or file with questions and responses side by side.",
            show_default=False,
        ),
    ],
    *,
    judge_model: JudgeName,
    instances: Annotated[
        Path | None, typer.Option(help="File of the questions, where it is not in the run.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the run.  [default: that of the responses]", show_default=False),
    ] = None,
    reference_free: Annotated[
        bool,
        typer.Option(
            "--reference-free", help="Show the judge no reference answer; completeness and correctness are not judged."
        ),
    ] = False,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint",
            help="Judge all criteria in one call: cheaper, but each decision sees more than it should rest on.",
        ),
    ] = False,
    repeat: Annotated[
        int, typer.Option(min=1, help="How often to judge each response; the majority decides, and flips are counted.")
    ] = 1,
    effort: Annotated[
        str | None,
        typer.Option(help="Reasoning effort of the judge: low, medium or high.", show_default=False),
    ] = None,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature of the judge (0 = greedy).")] = 0.0,
    attempts: Annotated[
        int, typer.Option(min=1, help="How often to ask when a reply does not match the schema (1 = once).")
    ] = 2,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply in tokens.")] = 4096,
    step_window: Annotated[
        int, typer.Option(min=1, help="Most steps in one reply; a longer trace is judged in several calls.")
    ] = 20,
    layout: Annotated[
        RecordLayout, typer.Option("--format", help="Layout of a file with questions and responses.")
    ] = RecordLayout.AUTO,
    only: Annotated[
        list[DetectorBand] | None,
        typer.Option(
            help="Judge only responses that a calibrated detector puts in this band; repeatable. Needs --calibration.",
            show_default=False,
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Calibration that sets the bands (eclose detect calibrate).", dir_okay=False, show_default=False
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="Scores of the calibrated detector.  [default: scores-DETECTOR.jsonl beside the responses]",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    other_benchmark: OtherBenchmark = False,
    max_unjudged_share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Exit with 3 where a criterion has no label for a larger share of responses (0 to 1)."
        ),
    ] = MAX_UNJUDGED_SHARE,
    engine: EngineName = CallEngine.PROCESS,
    workers: Workers = 2,
    ray_address: RayAddress = None,
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
    from dataclasses import replace
    from functools import partial

    from eclose.cli.shared.progress import show_run_progress
    from eclose.judging.find_inputs import find_judge_inputs
    from eclose.judging.run import build_judge_run, find_same_family_models, judge_responses
    from eclose.judging.settings import JudgeSettings

    # Judgments lie beside the responses they judge, where diagnose and gate look for them.
    folder = out or (responses if responses.is_dir() else responses.parent)
    sources = find_judge_inputs(responses, folder, instances, layout, imported)
    settings = JudgeSettings(
        reference_free=reference_free,
        joint=joint,
        repeat=repeat,
        effort=effort,
        attempts=attempts,
        max_tokens=max_tokens,
        temperature=temperature,
        step_window=step_window,
    )
    bands = _read_bands(sources, only, calibration, scores, other_benchmark=other_benchmark)
    model = options.model(judge_model)
    if options.dry_run:
        asyncio.run(_print_forecast(sources, model, settings, options.calls, bands))
        return
    # Such a judge may be too lenient. Only people's labels can show whether it is, so the run goes on.
    if related := find_same_family_models(sources, model.name):
        print_line(
            f"{model.name} is of the model family of {', '.join(related)}, which it judges: validate it against people"
        )
    if engine is CallEngine.RAY:
        where = (sources, judge_model, options.base_url, folder, settings, options.calls.deadline, bands)
        result = run_on_ray_workers(partial(build_judge_run, *where), options.calls, options, workers, ray_address)
    else:
        watched = replace(options.run_options, watch=partial(show_run_progress, accepted=RECORDED))
        result = asyncio.run(judge_responses(sources, model, folder, settings, options.calls, watched, only=bands))
    print_run_summary(result, _describe_flips(result) if repeat > 1 else None, accepted=RECORDED)
    too_many_unjudged = _print_unjudged(result.stage.out, max_unjudged_share)
    # The funnel counts the records of another tool's file from which questions and responses were taken.
    quarantined = any(counts.quarantined for counts in (result.manifest.counts, *result.manifest.funnel.values()))
    raise typer.Exit(QUARANTINED_EXIT_CODE if too_many_unjudged or quarantined else 0)


def _read_bands(
    sources: JudgeInputFiles,
    only: list[DetectorBand] | None,
    calibration: Path | None,
    scores: Path | None,
    *,
    other_benchmark: bool,
) -> BandFilter | None:
    """Return the filter of the responses to judge; None for all of them."""
    from eclose.detection.cascade import build_band_filter
    from eclose.errors import SettingError

    if not only:
        if calibration or scores:
            raise SettingError("--calibration and --scores choose responses together with --only. Name a band.")
        return None
    if calibration is None:
        raise SettingError("--only needs --calibration FILE; write one with: eclose detect calibrate RUN.")
    return build_band_filter(
        sources.instances, sources.responses, calibration, only, scores=scores, allow_other_benchmark=other_benchmark
    )


def _print_unjudged(judgments: Path, limit: float) -> bool:
    """Print which labels are missing and why; return whether more than ``limit`` of a criterion's are."""
    from eclose.core.judgment import Judgment
    from eclose.diagnosis.report.number_format import to_one_line
    from eclose.diagnosis.report.wording import describe_missing_traces, explain_missing_label
    from eclose.judging.unjudged_labels import count_unjudged_labels
    from eclose.store.records.jsonl import read_records

    labels = count_unjudged_labels(read_records(judgments, Judgment))
    if not labels.missing:
        return False
    if labels.without_any:
        judged = format_count(labels.responses, "response")
        verb = "is" if labels.without_any == 1 else "are"
        print_line(f"{labels.without_any:,} of {judged} {verb} without any label: no rate rests on them.")
    for sentence in describe_missing_traces(labels.without_trace, labels.responses):
        print_line(sentence)
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
    only: BandFilter | None,
) -> None:
    from eclose.judging.run import forecast_judging
    from eclose.models.resolve import resolve_model_ref
    from eclose.world.server.forecast_habits import register_world_writing_habits

    # The world's server bills words, not tokens; without its habits the forecast would take it for an ordinary model.
    register_world_writing_habits()
    model = await resolve_model_ref(model, calls.deadline)
    forecast = forecast_judging(sources, model, settings, calls, only)
    print_line(f"{model.name}: {describe_forecast(forecast, calls.currency)}")


def _describe_flips(result: RunResult) -> str:
    """Return ``the repetitions differ about L in 12 of 600 (2.0 %), …``."""
    from eclose.judging.validation_file import read_judgments
    from eclose.metrics.repeat_consistency import count_label_flips

    flips = count_label_flips(read_judgments(result.stage.out))
    parts = (
        f"{name} in {row.flipped:,} of {row.responses:,} ({format_percent(row.rate)} %)" for name, row in flips.items()
    )
    return f"the repetitions differ about {', '.join(parts)}"


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="Folder of a judged run.", show_default=False)],
    response: Annotated[str, typer.Argument(help="Id of a response.", show_default=False)],
    *,
    ledger: Annotated[
        str | None,
        typer.Option(help="Ledger of the judge's calls.  [default: ledger.sqlite in the run]", show_default=False),
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Leave out prompts and replies.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print how one response was judged: its labels, and for every call the prompt, the reply, the checks, and why a
    reply was refused.

    Nothing is asked or changed. Without a ledger, as for files of another tool, the prompts are built again and there
    are no replies.
    """
    import json

    from eclose.judging.show_judgment import show_judgment

    trail = show_judgment(run, response, ledger=ledger)
    if as_json:
        typer.echo(json.dumps(trail.as_json()))
        return
    _print_labels(trail)
    for call in trail.calls:
        _print_judge_call(call, brief=brief)
    if not trail.recorded:
        print_line("There is no ledger beside these judgments: the prompts are built again, and no reply is recorded.")
        return
    refused = len(trail.refusals)
    print_line(f"{format_count(len(trail.calls), 'call')}, {refused:,} without a usable reply")


def _print_labels(trail: JudgmentTrail) -> None:
    """Print the response and its labels, with the reason of each missing one."""
    from eclose.core.judgment import missing_reason_kind
    from eclose.diagnosis.report.wording import LABEL_WORDS, explain_missing_label

    judgment = trail.judgment
    print_line(f"response  {trail.response.id}")
    print_line(f"judge     {'not judged yet' if judgment is None else judgment.judge}")
    print_line(f"question  {trail.instance.question}")
    print_line(f"answer    {'none' if trail.response.answer is None else trail.response.answer}")
    print_line("")
    rows = []
    for name, label in trail.labels.items():
        reason = ""
        if judgment is not None:
            missing = judgment.missing_reasons.get(name, "")
            explanation = explain_missing_label(missing_reason_kind(missing))
            detail = missing.removeprefix(missing_reason_kind(missing)).lstrip(": ")
            reason = f"{explanation}: {detail}" if missing and detail else explanation
            reason = reason or {str(criterion): text for criterion, text in judgment.reasons.items()}.get(name, "")
        words = {True: "yes", False: "no", None: "not judged"}[label]
        rows.append((name, LABEL_WORDS[name], words, reason))
    print_table("Labels", ("label", "meaning", "judged", "why"), rows)
    print_line("")


def _print_judge_call(call: JudgeCall, *, brief: bool) -> None:
    numbers = f", repetition {call.replica + 1}" if call.replica else ""
    numbers += f", attempt {call.attempt + 1}" if call.attempt else ""
    print_line(f"{call.question}{numbers}: {call.state if call.cause is None else 'not used'}")
    if call.cause is not None:
        print_line(f"  cause: {call.cause}")
    for check in call.checks:
        mark = {True: "ok  ", False: "FAIL", None: "-   "}[check.passed]
        print_line(f"  {mark} {check.text}")
    if not brief:
        for role, content in call.messages:
            print_text_block(role, content)
        if call.reply is not None:
            print_text_block("reply", call.reply)
    print_line("")


@app.command()
def validate(
    run: Annotated[Path, typer.Argument(help="Folder of a judged run.", show_default=False)],
    verdicts: Annotated[
        Path, typer.Option(help="File of people's verdicts on a random sample of its responses.", show_default=False)
    ],
    *,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of a run with the same responses judged by another model or effort; repeatable.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File of the validation.  [default: validation.json in the run]", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the intervals.")] = 42,
    resamples: Annotated[int, typer.Option(min=100, help="Number of bootstrap resamples.")] = 2_000,
    replace_validation: ReplaceValidation = False,
    allow_stale: AllowStale = False,
) -> None:
    """Compare a judge with people: agreement, missed failures, false alarms, and corrected rates.

    A random sample of the responses must have labels by people, at least 30 to correct a rate. Writes a small file;
    reports print it beside every rate of this judge.
    """
    from eclose.judging.validate_judges import validate_judges

    result = validate_judges(
        run,
        verdicts,
        against=against or (),
        out=out,
        seed=seed,
        resamples=resamples,
        replace_validation=replace_validation,
        allow_stale=allow_stale,
    )
    for sentence in result.stale:
        print_line(f"STALE: {sentence}")
    print_validation(result.validation)
    for name, comparison in result.comparisons.items():
        _print_comparison(name, comparison)
    print_line(f"{result.path}: written")


def print_validation(validation: ValidationRecord) -> None:
    """Print the agreement of the judge with people by label, the corrected rates, and each dataset."""
    from eclose.judging.correct_run_rates import MIN_PEOPLE_LABELS, explain_unusable_rate
    from eclose.judging.validate_judges import list_label_doubts

    judged, verb = format_count(validation.judged, "response"), "is" if validation.labelled == 1 else "are"
    print_line(f"{validation.judge}: {validation.labelled:,} of {judged} {verb} labelled")
    rows = validation.overall.rows.values()
    print_table(
        "Agreement of the judge with people; n0: failures by people's labels; "
        "differences: rate to the judge minus rate to people",
        (
            "label",
            "n",
            "n0",
            "agreement",
            "F1 of failures",
            "balanced accuracy",
            "kappa",
            "difference of rates, points",
        ),
        [_agreement_row(row) for row in rows],
    )
    print_line("")
    rates = {row.label: validation.corrected[row.label] for row in rows}
    # A sample by the judge's labels holds fewer misses than the run, so an interval of their share would mislead.
    interval = "" if validation.stratified else ", with the exact 95 % interval over responses"
    print_table(
        f"Missed failures, false alarms, and the rates of all responses; share missed: of people's failures{interval}",
        ("label", "misses", "share missed", "false alarms", "to the judge", "corrected"),
        [
            (
                str(row.label),
                f"{row.misses:,} of {row.failures:,}",
                format_percent_with_interval(row.missed.value, None if validation.stratified else row.missed.interval),
                f"{row.false_alarms:,}",
                format_percent_with_interval(rates[row.label].judge, None),
                explain_unusable_rate(rates[row.label])
                or format_percent_with_interval(rates[row.label].value, rates[row.label].interval),
            )
            for row in rows
        ],
    )
    if validation.stratified:
        print_line(
            "Agreement and misses are those of the sample, which was drawn by the judge's labels, not of the run."
        )
    for doubt in list_label_doubts(validation):
        print_line(doubt)
    if validation.labelled < MIN_PEOPLE_LABELS:
        print_line(
            f"Fewer than {MIN_PEOPLE_LABELS} labels: the judge does not count as validated; "
            "reports do not correct its rates."
        )
    groups = {validation.judge: validation.overall, **validation.others}
    # With --against, the other judges are rows of the same table.
    _print_groups("The judge as a whole" if len(groups) == 1 else "The judges as a whole", "judge", groups)
    _print_datasets(validation)


def _print_datasets(validation: ValidationRecord) -> None:
    """Print the agreement by dataset, or why there is no such table."""
    from eclose.metrics.summary import UNKNOWN_GROUP

    if len(validation.datasets) > 1:
        _print_groups("By dataset", "dataset", validation.datasets)
        return
    print_line("")
    if set(validation.datasets) == {UNKNOWN_GROUP}:
        print_line("By dataset: no table, since neither the verdicts nor the questions of the run name a benchmark.")
    else:
        name = next(iter(validation.datasets))
        print_line(f"By dataset: all labelled responses are of {name}, so the table above is theirs.")


def _agreement_row(row: LabelAgreementRow) -> tuple[str, ...]:
    scores = row.scores
    return (
        str(row.label),
        # n counts the labelled responses that the judge has judged too.
        f"{row.n:,}" + (f" of {row.labelled:,}" if row.unjudged else ""),
        f"{row.failures:,}",
        # This interval keeps its width where the two hardly ever disagree; a bootstrap would shrink to a point.
        _format_estimate(row.agreement),
        *map(_format_estimate, (scores.failure_f1, scores.balanced_accuracy, scores.kappa)),
        # Of the rates that the other tables name: a stricter judge gives a lower TRR and a higher LGG.
        _format_points(row.rate_difference),
    )


def _print_groups(title: str, name: str, groups: Mapping[str, GroupValidation]) -> None:
    """Print one row for each judge or dataset: means and extremes over the five labels, and differences of rates."""
    from eclose.metrics.judge_against_people import JudgedLabel

    rows = [
        (
            key,
            f"{group.responses:,}",
            _format_estimate(group.mean_agreement),
            _format_estimate(group.mean_failure_f1),
            "-" if group.largest_failure_difference is None else format_percent(group.largest_failure_difference),
            _format_points(group.rows[JudgedLabel.RELIABILITY].rate_difference),
            _format_points(group.rows[JudgedLabel.GAP].rate_difference),
        )
        for key, group in groups.items()
    ]
    print_line("")
    heads = (name, "n", "mean agreement", "mean F1 of failures", "largest of L, A, C, K, Acc, without sign")
    print_table(
        f"{title}; differences: rate to the judge minus rate to people, in points", (*heads, "TRR", "LGG"), rows
    )


def _print_comparison(name: str, comparison: JudgeComparison) -> None:
    """Print one row for each label: the agreement of both judges with people, and its difference with interval."""
    rows = [
        (
            str(label),
            f"{n:,}",
            format_percent_with_interval(comparison.first[label].agreement.value, None),
            format_percent_with_interval(comparison.second[label].agreement.value, None),
            _format_points(comparison.difference[label].agreement),
            _format_points(comparison.difference[label].failure_f1),
        )
        for label, n in comparison.n.items()
    ]
    rows.append(
        ("mean", "", "", "", _format_points(comparison.mean_agreement), _format_points(comparison.mean_failure_f1))
    )
    head = ("label", "n", "agreement", "of the other", "difference, points", "difference of failure F1, points")
    print_line("")
    print_table(f"Compared with the other judge ({name}), on the same responses", head, rows)


def _format_estimate(estimate: Estimate) -> str:
    return format_percent_with_interval(estimate.value, estimate.interval)


def _format_points(estimate: Estimate) -> str:
    """Return ``+2.2 [+1.0, +3.1]``; a hyphen where undefined."""
    from eclose.diagnosis.report.number_format import format_signed_interval, format_signed_percent

    return (
        "-"
        if estimate.value is None
        else f"{format_signed_percent(estimate.value)} {format_signed_interval(estimate.interval)}".rstrip()
    )
