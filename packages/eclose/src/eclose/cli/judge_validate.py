"""``eclose judge validate``: a judge compared with people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import (
    AllowStale,
    ReplaceValidation,
    format_count,
    format_percent,
    format_percent_with_interval,
    print_line,
    print_table,
)
from eclose.cli.shared.recipe import recipe_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.judging.validation_file import ValidationRecord
    from eclose.metrics.judge_against_people import GroupValidation, LabelAgreementRow
    from eclose.metrics.repeats import JudgeComparison
    from eclose.stats.intervals import Estimate


def validate(
    run: Annotated[Path, typer.Argument(help="Folder of a judged run.")],
    verdicts: Annotated[Path, typer.Option(help="File of people's verdicts on a random sample of its responses.")],
    *,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of a run with the same responses judged by another model or effort; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File of the validation.  [default: validation.json in the run]")
    ] = None,
    seed: Annotated[int, recipe_key()] = 42,
    resamples: Annotated[int, recipe_key(min=100)] = 2_000,
    replace_validation: ReplaceValidation = False,
    allow_stale: AllowStale = False,
) -> None:
    """Compare a judge with people: agreement, missed failures, false alarms, and corrected rates.

    A random sample of the responses must have labels by people, at least 30 to correct a rate. Writes a small file;
    reports print it beside every rate of this judge.
    """
    from eclose.judging.validate import validate_judges

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
    from eclose.judging.correct_rates import MIN_PEOPLE_LABELS, explain_unusable_rate
    from eclose.judging.validate import list_label_doubts

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
    from eclose.diagnosis.number_format import format_signed_interval, format_signed_percent

    return (
        "-"
        if estimate.value is None
        else f"{format_signed_percent(estimate.value)} {format_signed_interval(estimate.interval)}".rstrip()
    )
