"""``eclose export``: send the verdicts of a run to where the traces are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import QUARANTINED_EXIT_CODE, AllowStale, format_count, print_line, show_status

if TYPE_CHECKING:
    from eclose.integrations.export import ExportResult
    from eclose.integrations.scores import Delivery

_TARGETS = "otlp, mlflow, langfuse, phoenix, langsmith, csv or parquet"
_SHOWN_REASONS = 5


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a judged run.")],
    target: Annotated[
        str | None,
        typer.Argument(
            help="File (otlp, csv, parquet) or base URL of the store.  [default: the address in the environment]"
        ),
    ] = None,
    *,
    to: Annotated[str, typer.Option("--to", help=f"Kind of the target: {_TARGETS}.")],
    allow_stale: AllowStale = False,
) -> None:
    """Send the verdicts of a judged run to a trace store, or write them to a file.

    Each response has nine scores: local soundness, alignment, closure, completeness, accuracy, reliability, the failure
    class, whether the passages settle the question, and how the response was read. They are attached to the span that
    the response was read from. A label that was not judged is sent as an error with its reason, never as 0. A second
    export of the same run changes nothing.

    otlp writes a file of OTLP JSON Lines, or sends to an OTLP/HTTP endpoint such as http://127.0.0.1:4318.

    Keys come from the environment or .env: LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY, LANGSMITH_API_KEY,
    PHOENIX_API_KEY, MLFLOW_TRACKING_TOKEN, OTEL_EXPORTER_OTLP_HEADERS. Addresses: LANGFUSE_BASE_URL,
    LANGSMITH_ENDPOINT, PHOENIX_COLLECTOR_ENDPOINT, MLFLOW_TRACKING_URI, OTEL_EXPORTER_OTLP_ENDPOINT.
    """
    from eclose.integrations.export import export as export_run

    result = export_run(run, target, to=to, allow_stale=allow_stale, watch=_show_progress)
    _print_result(result)
    raise typer.Exit(0 if result.complete else QUARANTINED_EXIT_CODE)


def _print_result(result: ExportResult) -> None:
    for notice in result.notices:
        print_line(notice)
    print_line(result)
    if result.unjudged:
        print_line(f"  {format_count(result.unjudged, 'score')} without a label, exported as errors with their reason")
    if result.without_span:
        responses = format_count(result.without_span, "response")
        print_line(f"  {responses} without a trace id, exported under one derived from the response's id")
    if result.left_out:
        response_id, reason = result.left_out[0]
        print_line(f"  {format_count(len(result.left_out), 'response')} left out: {response_id}: {reason}")
    for reason, count in sorted(result.refused.items(), key=lambda pair: -pair[1])[:_SHOWN_REASONS]:
        print_line(f"  refused: {count:,} {reason}")


def _show_progress(deliveries: Iterable[Delivery], total: int) -> Iterator[Delivery]:
    scores = 0
    with show_status("export") as show:
        for delivery in deliveries:
            scores += delivery.scores
            show(f"export: {scores:,} of {total:,} scores")
            yield delivery
