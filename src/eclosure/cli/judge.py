"""``eclosure judge``: let a model judge responses under the locked guidelines, and find out how far to trust it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from eclosure.benchmarks.formats import Format
from eclosure.cli.calls import Asking, JudgeName, asks_a_model, shown_forecast
from eclosure.cli.output import QUARANTINED, AllowStale, figure, percent, plural, print_table, say
from eclosure.cli.runs import say_run
from eclosure.core.judgment import MAX_UNJUDGED_SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclosure.chat.connect import CallSettings
    from eclosure.chat.inquiry import Finished
    from eclosure.chat.named import Named
    from eclosure.judge.settings import JudgeSettings
    from eclosure.judge.sources import Sources
    from eclosure.judge.validate import Validation
    from eclosure.metrics.validation import GroupValidation, JudgeComparison, LabelRow
    from eclosure.stats.intervals import Estimate


class _JudgesByDefault(TyperGroup):
    """``eclosure judge RUN`` is ``eclosure judge run RUN``: what is no command of its own is to be judged."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put the command in where it was left out."""
        own = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if not args or args[0] in own else ["run", *args])


app = typer.Typer(
    cls=_JudgesByDefault,
    no_args_is_help=True,
    help="Let a model judge responses (eclosure judge RUN --judge MODEL), and find out how far to trust it.",
)


@app.command(name="run")
@asks_a_model
def judge(
    responses: Annotated[
        Path,
        typer.Argument(
            help="A run's folder, a file of responses, or a file with questions and responses side by side.",
            show_default=False,
        ),
    ],
    *,
    judge_model: JudgeName,
    instances: Annotated[
        Path | None, typer.Option(help="The questions, where they are in a file of their own.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run's folder.  [default: that of the responses]", show_default=False),
    ] = None,
    reference_free: Annotated[
        bool, typer.Option("--reference-free", help="Show the judge no reference: no completeness, no correctness.")
    ] = False,
    joint: Annotated[
        bool, typer.Option("--joint", help="Everything in one call: cheaper, and the judge sees more than it may use.")
    ] = False,
    repeat: Annotated[
        int, typer.Option(min=1, help="Ask so many times; the label is what most answers say, and flips are counted.")
    ] = 1,
    effort: Annotated[
        str | None,
        typer.Option(help="How hard a judge that thinks shall think: low, medium or high.", show_default=False),
    ] = None,
    temperature: Annotated[float, typer.Option(min=0, help="How freely replies are drawn.")] = 0.0,
    attempts: Annotated[int, typer.Option(min=1, help="Times a judge is asked that answers in no usable form.")] = 2,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply in tokens.")] = 4096,
    layout: Annotated[Format, typer.Option("--format", help="The layout of a file that has both.")] = Format.AUTO,
    max_unjudged_share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Exit with 3 when a criterion has no label for a larger share of responses."),
    ] = MAX_UNJUDGED_SHARE,
    asking: Asking,
) -> None:
    """Let a model judge every response: is the evidence enough, does each step hold, does the trace pursue the
    question, does it establish the answer, and is that answer right.

    One call for each of these, and none of them is shown more than it may see. Writes judgments.jsonl into the run's
    folder. A criterion without a usable reply has no label and a reason; a table at the end counts these, and the exit
    code is 3 when there are too many. Stop it at any moment, and run the same command again: it goes on, and nothing
    that was answered is asked or paid twice.
    """
    import asyncio

    from eclosure.judge.run import judge_responses, kin
    from eclosure.judge.settings import JudgeSettings
    from eclosure.judge.sources import find_sources

    folder = out or (responses if responses.is_dir() else responses.parent)
    sources = find_sources(responses, folder, instances, layout)
    settings = JudgeSettings(
        reference_free=reference_free,
        joint=joint,
        repeat=repeat,
        effort=effort,
        attempts=attempts,
        max_tokens=max_tokens,
        temperature=temperature,
    )
    model = asking.model(judge_model)
    if asking.dry_run:
        asyncio.run(_forecast(sources, model, settings, asking.calls))
        return
    if related := kin(sources, model.name):
        say(f"{model.name} is of the family of {', '.join(related)}, which it judges: validate it against people")
    done = asyncio.run(judge_responses(sources, model, folder, settings, asking.calls, **asking.flags))
    say_run(done, _steadiness(done) if repeat > 1 else None)
    too_little = _say_unjudged(done.stage.out, max_unjudged_share)
    unread = any(counts.quarantined for counts in (done.manifest.counts, *done.manifest.funnel.values()))
    raise typer.Exit(QUARANTINED if too_little or unread else 0)


def _say_unjudged(judgments: Path, limit: float) -> bool:
    """Print which labels are missing and why; return whether more than ``limit`` of a criterion's are."""
    from eclosure.core.judgment import Judgment
    from eclosure.judge.unjudged import count_unjudged
    from eclosure.report.words import one_line, reason_words
    from eclosure.store.records import read

    labels = count_unjudged(read(judgments, Judgment))
    if not labels.missing:
        return False
    rows = [
        (row.criterion, reason_words(row.kind), f"{row.responses:,}", f"{percent(row.responses / labels.responses)} %")
        for row in labels.missing
    ]
    say("")
    print_table(f"Not judged, of {plural(labels.responses, 'response')}", ("label", "reason", "n", "share"), rows)
    for example in dict.fromkeys(row.example for row in labels.missing if row.example):
        say(f"  for example: {one_line(example)}")
    over = {criterion: share for criterion, share in labels.shares.items() if share > limit}
    for criterion, share in over.items():
        say(
            f"{criterion.value} has no label for {percent(share)} % of the responses, more than {percent(limit)} % "
            "(--max-unjudged-share): rates that rest on it are not given."
        )
    return bool(over)


async def _forecast(sources: Sources, model: Named, settings: JudgeSettings, calls: CallSettings) -> None:
    from eclosure.chat.named import settled
    from eclosure.judge.run import forecast

    model = await settled(model, calls.deadline)
    say(f"{model.name}: {shown_forecast(forecast(sources, model, settings, calls), calls.currency)}")


def _steadiness(done: Finished) -> str:
    """``of 600 responses the repetitions differ about L in 12 (2.0 %), …``."""
    from eclosure.judge.validate import read_judgments
    from eclosure.metrics.flips import flips

    found = flips(read_judgments(done.stage.out))
    listed = (f"{name} in {one.flipped:,} of {one.responses:,} ({percent(one.rate)} %)" for name, one in found.items())
    return f"the repetitions differ about {', '.join(listed)}"


@app.command()
def validate(
    run: Annotated[Path, typer.Argument(help="A judged run's folder.", show_default=False)],
    verdicts: Annotated[
        Path, typer.Option(help="Verdicts of people (or of the world) on some of its responses.", show_default=False)
    ],
    *,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            help="A run with the same responses judged by another model or effort; may be given several times.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="[default: validation.json in the run]", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the intervals.")] = 42,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2_000,
    allow_stale: AllowStale = False,
) -> None:
    """Compare a judge with people: agreement, what it misses, what it finds that is not there, and corrected rates.

    People need to have labelled only some of the responses, but these must be a random sample, and at least 30 of them
    to correct a rate. Writes a small file that later reports print beside every rate of this judge.
    """
    import numpy as np

    from eclosure.cases import run_names
    from eclosure.judge.validate import (
        compare,
        read_judgments,
        read_verdicts,
        validate_judgments,
        validate_run,
        write,
    )
    from eclosure.store.folder import JUDGMENTS, VALIDATION
    from eclosure.store.provenance import check_verdicts

    rng = np.random.default_rng(seed)
    labels = check_verdicts(verdicts, allow_stale=allow_stale)
    people = read_verdicts(verdicts)
    others = dict(zip(run_names([run, *(against or ())])[1:], against or (), strict=True))
    for other in others.values():
        _refuse_other_responses(run, other, allow_stale=allow_stale)
    validation = validate_run(run, people, rng=rng, resamples=resamples, allow_stale=allow_stale)
    validation = replace(validation, stale=(*validation.stale, *labels.stale))
    for sentence in validation.stale:
        say(f"STALE: {sentence}")
    compared = {name: validate_judgments(other, people, rng=rng, resamples=resamples) for name, other in others.items()}
    validation = replace(validation, others={name: other.overall for name, other in compared.items()})
    path = out or run / VALIDATION
    write(path, validation)
    say_validation(validation)
    judgments = read_judgments(run / JUDGMENTS) if others else []
    for name, other in others.items():
        judged_again = read_judgments(other / JUDGMENTS)
        _say_comparison(name, compare(judgments, judged_again, people, rng=rng, resamples=resamples))
    say(f"{path}: written")


def _refuse_other_responses(run: Path, against: Path, *, allow_stale: bool) -> None:
    """Raise unless the other judge judged the responses of this run, or unless stale judgments are allowed."""
    from eclosure.store.folder import INSTANCES, JUDGMENTS, RESPONSES
    from eclosure.store.jsonfile import require_file
    from eclosure.store.provenance import check_result

    require_file(against / JUDGMENTS)
    provenance = check_result(against / JUDGMENTS, (run / INSTANCES, run / RESPONSES))
    remedy = f"Let the other judge judge the responses of {run}"
    for sentence in provenance.refuse_stale(against, remedy, allow_stale=allow_stale).stale:
        say(f"STALE: {against}: {sentence}")


def say_validation(validation: Validation) -> None:
    """Print how far the judge agrees with people, label by label, what the rates come to, and each dataset."""
    from eclosure.judge.correction import MIN_LABELS, why_not

    say(f"{validation.judge}: {validation.labelled:,} of {validation.judged:,} responses were labelled")
    rows = validation.overall.rows.values()
    print_table(
        "How far the judge agrees with people; n0: failures that people see; failure rate: judge minus people",
        (
            "label",
            "n",
            "n0",
            "agreement",
            "F1 of failures",
            "balanced accuracy",
            "kappa",
            "difference of failure rates, points",
        ),
        [_agreement_row(row) for row in rows],
    )
    say("")
    rates = {row.label: validation.corrected[row.label] for row in rows}
    print_table(
        "What it misses, what it finds that is not there, and the rates of all responses",
        ("label", "misses", "false alarms", "to the judge", "corrected"),
        [
            (
                str(row.label),
                f"{row.misses:,}",
                f"{row.false_alarms:,}",
                figure(rates[row.label].judge, None),
                why_not(rates[row.label]) or figure(rates[row.label].value, rates[row.label].interval),
            )
            for row in rows
        ],
    )
    if validation.labelled < MIN_LABELS:
        say(f"Fewer than {MIN_LABELS} labels: the judge does not count as validated, and reports correct no rate.")
    groups = {validation.judge: validation.overall, **validation.others}
    _say_groups("The judge as a whole" if len(groups) == 1 else "The judges as a whole", "judge", groups)
    if len(validation.datasets) > 1:
        _say_groups("By dataset", "dataset", validation.datasets)


def _agreement_row(row: LabelRow) -> tuple[str, ...]:
    from eclosure.report.words import agreement_of

    scores = row.scores
    return (
        str(row.label),
        f"{row.n:,}" + (f" of {row.labelled:,}" if row.unjudged else ""),
        f"{row.failures:,}",
        # Where the two hardly ever disagree, a bootstrap would promise certainty: this interval does not.
        _shown(agreement_of(row)),
        *map(_shown, (scores.failure_f1, scores.balanced_accuracy, scores.kappa)),
        _points(scores.failure_difference),
    )


def _say_groups(title: str, name: str, groups: Mapping[str, GroupValidation]) -> None:
    """Print one line for each judge or dataset: means and extremes over the five labels, and differences of rates."""
    from eclosure.metrics.validation import JudgedLabel

    rows = [
        (
            key,
            f"{group.responses:,}",
            _shown(group.mean_agreement),
            _shown(group.mean_failure_f1),
            "-" if group.largest_failure_difference is None else percent(group.largest_failure_difference),
            _points(group.rows[JudgedLabel.RELIABILITY].rate_difference),
            _points(group.rows[JudgedLabel.GAP].rate_difference),
        )
        for key, group in groups.items()
    ]
    say("")
    heads = (name, "n", "mean agreement", "mean F1 of failures", "largest difference of failure rates")
    print_table(f"{title}; differences are judge minus people, in points", (*heads, "TRR", "LGG"), rows)


def _say_comparison(name: str, comparison: JudgeComparison) -> None:
    """Print one line for each label: what both judges get right, and the difference with its interval."""
    rows = [
        (
            str(label),
            f"{n:,}",
            figure(comparison.first[label].agreement.value, None),
            figure(comparison.second[label].agreement.value, None),
            _points(comparison.difference[label].agreement),
            _points(comparison.difference[label].failure_f1),
        )
        for label, n in comparison.n.items()
    ]
    rows.append(("mean", "", "", "", _points(comparison.mean_agreement), _points(comparison.mean_failure_f1)))
    head = ("label", "n", "agreement", "of the other", "difference, points", "difference of failure F1, points")
    say("")
    print_table(f"Beside the other judge ({name}), on the same responses", head, rows)


def _shown(estimate: Estimate) -> str:
    return figure(estimate.value, estimate.interval)


def _points(estimate: Estimate) -> str:
    """``+2.2 [+1.0, +3.1]``; a dash for what is undefined."""
    from eclosure.report.words import signed, signed_range

    return "-" if estimate.value is None else f"{signed(estimate.value)} {signed_range(estimate.interval)}".rstrip()
