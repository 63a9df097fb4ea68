"""``eclose metrics``: what a file of verdicts says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import AllowStale, percent, percent_range, percent_span, plural, print_table, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.core.verdict import SettledVerdict
    from eclose.metrics.summary import GroupSummary
    from eclose.stats.rates import Rate

FEW_QUESTIONS = 20
"""Below this, no interval over questions deserves its name."""
_NAMED = 5
"""How many responses are named where some need another look."""


def metrics(
    verdicts: Annotated[Path, typer.Argument(help="Settled verdicts, one JSON object a line.", show_default=False)],
    by: Annotated[
        list[str] | None, typer.Option(help="Also by benchmark, model, method or seed; may be given several times.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    allow_stale: AllowStale = False,
) -> None:
    """Accuracy, soundness, sufficiency, reliability and the gap, with 95 % intervals over questions.

    What was not judged is left out of a rate, counted beside it, and shown as the bounds it leaves open.

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
    unjudged  cases that no judgement decides
    bounds    the least and greatest the rate can be, whatever they are
    """
    from eclose.metrics.summary import summarize
    from eclose.store.records.json_reader import require_file
    from eclose.store.runs.provenance import check_verdicts

    require_file(verdicts)
    stale = check_verdicts(verdicts, allow_stale=allow_stale).stale
    rows = list(_rows(verdicts))
    summaries = summarize(rows, by or ())
    if as_json:
        groups = [_plain(group) for group in summaries]
        typer.echo(json.dumps({"settings": {"by": by or []}, "stale": stale, "groups": groups}))
        return
    for sentence in stale:
        say(f"STALE: {sentence}")
    _print_overall(summaries[0])
    _print_composition(summaries[0])
    if by:
        typer.echo()
        _print_groups(by, summaries[1:])
    _point_at([row.response_id for row in rows if row.verdict.inconsistent])


def _rows(path: Path) -> Iterator[SettledVerdict]:
    """The verdicts; a response judged twice would count twice, so it is refused."""
    from eclose.core.verdict import SettledVerdict
    from eclose.errors import RecordError, UserError
    from eclose.store.records.jsonl import read_records
    from eclose.store.records.seen_ids import SeenIds

    seen = SeenIds()
    for number, row in enumerate(read_records(path, SettledVerdict), start=1):
        if seen.add(row.response_id, None, number):
            problem = f"response {row.response_id!r} has two verdicts. Keep the settled one."
            raise RecordError(problem, path=path, record=f"record {number}")
        yield row
    if not len(seen):
        raise UserError(f"{path}: there is no verdict in this file. Check that this is the file you meant.")


def _print_overall(summary: GroupSummary) -> None:
    from eclose.metrics.rates import CONDITIONAL_METRICS

    unjudged = any(rate.unjudged for rate in summary.rates.values())
    heads = ["metric", "%", "95 % interval", "n", "Wilson", *(["unjudged", "bounds"] if unjudged else [])]
    lines = []
    for metric, rate in summary.rates.items():
        line = [metric.value, percent(rate.value), percent_range(summary.estimates[metric].interval), str(rate.n)]
        line += [percent_range(rate.wilson) if metric in CONDITIONAL_METRICS else ""]
        line += [str(rate.unjudged), percent_span(rate.bounds)] if unjudged else []
        lines.append(line)
    print_table(f"{plural(summary.responses, 'response')} to {plural(summary.questions, 'question')}", heads, lines)
    if summary.questions < FEW_QUESTIONS:
        say(f"Fewer than {FEW_QUESTIONS} questions: take the intervals as a rough hint, not as 95 %.")


def _print_composition(summary: GroupSummary) -> None:
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


def _print_groups(by: list[str], summaries: list[GroupSummary]) -> None:
    from eclose.metrics.rates import MAIN_METRICS, Metric

    shown = (*MAIN_METRICS, Metric.GAP_SHARE, Metric.GAP_RISK)
    lines = [
        [*group.group, str(group.responses), *(_fraction(group.rates[metric]) for metric in shown)]
        for group in summaries
    ]
    open_cases = any(group.rates[metric].unjudged for group in summaries for metric in shown)
    title = f"By {', '.join(by)}: % (hits/judged{', +unjudged' if open_cases else ''})"
    print_table(title, [*by, "responses", *(metric.value for metric in shown)], lines)


def _fraction(rate: Rate) -> str:
    """``50.0 (1/2)``, or ``50.0 (1/2, +3)`` with three cases open: a rate of a group is nothing without its n."""
    return f"{percent(rate.value)} ({rate.hits}/{rate.n}{f', +{rate.unjudged}' if rate.unjudged else ''})"


def _point_at(inconsistent: Sequence[str]) -> None:
    """Name the first few responses that are reliable by every label and yet wrong."""
    if not inconsistent:
        return
    named = ", ".join(inconsistent[:_NAMED]) + (", ..." if len(inconsistent) > _NAMED else "")
    verb, them = ("is", "it") if len(inconsistent) == 1 else ("are", "them")
    typer.echo()
    say(
        f"{plural(len(inconsistent), 'response')} {verb} reliable by every label and yet wrong: "
        f"look at {them} again ({named})."
    )


def _plain(summary: GroupSummary) -> dict[str, object]:
    """A summary as JSON: undefined is null."""
    from eclose.metrics.summary import INTERVAL_METHOD

    parts = summary.composition
    return {
        "group": list(summary.group),
        "responses": summary.responses,
        "questions": summary.questions,
        "metrics": {
            metric.value: {
                "value": rate.value,
                "interval": summary.estimates[metric].interval,
                "interval_method": INTERVAL_METHOD if rate.n else None,
                "wilson": rate.wilson,
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
