"""``eclosure metrics``: what a file of verdicts says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclosure.core.verdict import SettledVerdict
    from eclosure.metrics.summary import GroupSummary
    from eclosure.stats.intervals import Interval


def metrics(
    verdicts: Annotated[Path, typer.Argument(help="Settled verdicts, one JSON object a line.", show_default=False)],
    by: Annotated[
        list[str] | None, typer.Option(help="Also by benchmark, model, method or seed; may be given several times.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples of questions.")] = 2_000,
    seed: Annotated[int, typer.Option(help="Seed of the resampling.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Accuracy, soundness, sufficiency, reliability and the gap, with 95 % intervals over questions.

    What was not judged is left out of a rate, counted beside it, and shown as the bounds it leaves open.
    """
    import numpy as np

    from eclosure.metrics.summary import summarize

    rows = list(_rows(verdicts))
    summaries = summarize(rows, by or (), rng=np.random.default_rng(seed), resamples=resamples)
    if as_json:
        settings = {"by": by or [], "resamples": resamples, "seed": seed}
        typer.echo(json.dumps({"settings": settings, "groups": [_plain(group) for group in summaries]}))
        return
    _print_overall(summaries[0])
    if by:
        _print_groups(by, summaries[1:])


def _rows(path: Path) -> Iterator[SettledVerdict]:
    """The verdicts; a response judged twice would count twice, so it is refused."""
    from eclosure.core.verdict import SettledVerdict
    from eclosure.errors import RecordError, UserError
    from eclosure.store.records import read
    from eclosure.store.seen import SeenIds

    seen = SeenIds()
    for number, row in enumerate(read(path, SettledVerdict), start=1):
        if seen.add(row.response_id, None, number):
            problem = f"response {row.response_id!r} has two verdicts. Keep the settled one."
            raise RecordError(problem, path=path, record=f"record {number}")
        yield row
    if not len(seen):
        raise UserError(f"{path}: there is no verdict in this file.")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _range(interval: Interval | None) -> str:
    return "-" if interval is None else f"{_percent(interval.low)}-{_percent(interval.high)}"


def _print_overall(summary: GroupSummary) -> None:
    from eclosure.cli.output import print_table

    unjudged = any(rate.unjudged for rate in summary.rates.values())
    heads = ["metric", "%", "95 % interval", "n", *(["unjudged", "bounds"] if unjudged else [])]
    lines = [
        [
            metric.value,
            _percent(rate.value),
            _range(summary.estimates[metric].interval),
            str(rate.n),
            *([str(rate.unjudged), _range(rate.bounds)] if unjudged else []),
        ]
        for metric, rate in summary.rates.items()
    ]
    print_table(f"{summary.responses} responses to {summary.questions} questions", heads, lines)
    parts = summary.composition
    groups = [[group.value if group else "not decided", str(count)] for group, count in parts.groups.items()]
    print_table("Trace groups", ["group", "n"], groups)
    failures = [
        [failure.value, str(count), str(parts.gap_failures.get(failure, 0))]
        for failure, count in parts.failures.items()
    ]
    if failures:
        print_table("Globally insufficient, by the first broken link", ["failure", "n", "in the gap"], failures)
    if parts.inconsistent:
        typer.echo(f"{parts.inconsistent} responses are reliable by every label and yet wrong: look at them again.")


def _print_groups(by: list[str], summaries: list[GroupSummary]) -> None:
    from eclosure.cli.output import print_table
    from eclosure.metrics.rates import Metric

    lines = [
        [*group.group, str(group.responses), *(_percent(group.rates[metric].value) for metric in Metric)]
        for group in summaries
    ]
    print_table(f"By {', '.join(by)}, in %", [*by, "n", *(metric.value for metric in Metric)], lines)


def _plain(summary: GroupSummary) -> dict[str, object]:
    """A summary as JSON: undefined is null."""
    parts = summary.composition
    return {
        "group": list(summary.group),
        "responses": summary.responses,
        "questions": summary.questions,
        "metrics": {
            metric.value: {
                "value": rate.value,
                "interval": summary.estimates[metric].interval,
                "undefined_resamples": summary.estimates[metric].undefined,
                "hits": rate.hits,
                "n": rate.n,
                "unjudged": rate.unjudged,
                "bounds": rate.bounds,
            }
            for metric, rate in summary.rates.items()
        },
        "trace_groups": {group.value if group else "undecided": count for group, count in parts.groups.items()},
        "failures": {failure.value: count for failure, count in parts.failures.items()},
        "gap_failures": {failure.value: count for failure, count in parts.gap_failures.items()},
        "inconsistent": parts.inconsistent,
    }
