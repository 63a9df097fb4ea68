"""``eclose metrics``: rates of a file of verdicts, with intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import (
    AllowStale,
    format_count,
    format_percent,
    format_percent_interval,
    format_percent_span,
    print_line,
    print_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.metrics.summary import GroupRates
    from eclose.stats.rates import Rate

_EXAMPLES = 5
"""Number of inconsistent responses whose ids are printed."""


def metrics(
    verdicts: Annotated[Path, typer.Argument(help="File of settled verdicts, JSON Lines.", show_default=False)],
    by: Annotated[
        list[str] | None, typer.Option(help="Also group by benchmark, model, method or seed; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    allow_stale: AllowStale = False,
) -> None:
    """Compute accuracy, soundness, sufficiency, reliability and the gap, with 95 % intervals over questions.

    Cases without a label are left out of a rate and counted beside it; bounds show how far they could move the rate.

    \b
    Acc       the answer is correct
    LSR       every step is sound
    A, C, K   aligned with the question; establishes the answer given;
              establishes the reference answer
    GSR       globally sufficient: aligned and closed (A and C)
    TRR       reliable: locally sound and globally sufficient
    LGG       the gap: locally sound, yet globally insufficient
    LggShare  the gap's share of globally insufficient responses
    LggRisk   the gap's share of wrong answers
    LggSound  the gap's share of locally sound responses

    \b
    %         hits in a hundred judged cases
    Wilson    the paper's interval of the gap's shares: takes responses
              to one question as independent, so it may be too narrow
    n         judged cases in the denominator
    unjudged  cases without a label
    bounds    the least and greatest the rate can be, whatever those are
    """
    from eclose.report.verdict_metrics import compute_rates_of_verdicts

    result = compute_rates_of_verdicts(verdicts, by or (), allow_stale=allow_stale)
    if as_json:
        # The JSON object holds the notes about stale files too.
        typer.echo(json.dumps(result.to_json()))
        return
    for sentence in result.stale:
        print_line(f"STALE: {sentence}")
    _print_overall(result.overall)
    _print_composition(result.overall)
    if by:
        typer.echo()
        _print_groups(by, result.groups)
    _print_inconsistent(result.inconsistent)


def _print_overall(summary: GroupRates) -> None:
    from eclose.metrics.rates import CONDITIONAL_METRICS
    from eclose.report.sections import describe_few_questions

    unjudged = any(rate.unjudged for rate in summary.rates.values())
    heads = ["metric", "%", "95 % interval", "n", "Wilson", *(["unjudged", "bounds"] if unjudged else [])]
    lines = []
    for metric, rate in summary.rates.items():
        line = [
            metric.value,
            format_percent(rate.value),
            format_percent_interval(summary.estimates[metric].interval),
            str(rate.n),
        ]
        # The paper gives Wilson intervals for the gap's shares; ours stands beside them for every rate (decision 0027).
        line += [format_percent_interval(rate.wilson) if metric in CONDITIONAL_METRICS else ""]
        line += [str(rate.unjudged), format_percent_span(rate.bounds)] if unjudged else []
        lines.append(line)
    print_table(
        f"{format_count(summary.responses, 'response')} to {format_count(summary.questions, 'question')}", heads, lines
    )
    for caution in describe_few_questions(summary.questions):
        print_line(caution)


def _print_composition(summary: GroupRates) -> None:
    parts = summary.composition
    groups = [[group.value if group else "not decided", str(count)] for group, count in parts.groups.items()]
    typer.echo()
    print_table("Trace groups", ["group", "n"], groups)
    failures = [
        [failure.value, str(count), str(parts.gap_failures.get(failure, 0))]
        for failure, count in parts.failures.items()
    ]
    if failures:
        typer.echo()
        print_table("Globally insufficient, by the first broken link", ["failure", "n", "in the gap"], failures)


def _print_groups(by: Sequence[str], summaries: Sequence[GroupRates]) -> None:
    from eclose.metrics.rates import MAIN_METRICS, Metric

    # The metrics of the paper's Figure 2; the table of all responses has every metric.
    columns = (*MAIN_METRICS, Metric.GAP_SHARE, Metric.GAP_RISK)
    lines = [
        [*group.group, str(group.responses), *(_fraction(group.rates[metric]) for metric in columns)]
        for group in summaries
    ]
    # The head of the table explains the plus sign only where a cell has one.
    open_cases = any(group.rates[metric].unjudged for group in summaries for metric in columns)
    title = f"By {', '.join(by)}: % (hits/judged{', +unjudged' if open_cases else ''})"
    print_table(title, [*by, "responses", *(metric.value for metric in columns)], lines)


def _fraction(rate: Rate) -> str:
    """Return ``50.0 (1/2)``, or ``50.0 (1/2, +3)`` with three unjudged cases: groups are small, so n is printed."""
    return f"{format_percent(rate.value)} ({rate.hits}/{rate.n}{f', +{rate.unjudged}' if rate.unjudged else ''})"


def _print_inconsistent(inconsistent: Sequence[str]) -> None:
    """Print the ids of the first few responses that are reliable by every label and yet wrong."""
    if not inconsistent:
        return
    ids = ", ".join(inconsistent[:_EXAMPLES]) + (", ..." if len(inconsistent) > _EXAMPLES else "")
    verb, them = ("is", "it") if len(inconsistent) == 1 else ("are", "them")
    typer.echo()
    print_line(
        f"{format_count(len(inconsistent), 'response')} {verb} reliable by every label and yet wrong: "
        f"check {them} again ({ids})."
    )
