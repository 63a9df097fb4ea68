"""``eclose collect``: write the traces that programs send to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def collect(
    *,
    out: Annotated[Path, typer.Option(help="File to append traces to (OTLP JSON Lines).")],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port on this machine (0 = any free port).")] = 4318,
) -> None:
    """Collect traces from programs on this machine into a file, until Ctrl+C.

    Receives OTLP over HTTP as JSON or protobuf at /v1/traces. Nothing is judged and nothing leaves the machine.
    """
    from eclose.traces.collector import run_collector

    counts = run_collector(out, port=port)
    typer.echo(
        f"{counts.spans:,} spans of {counts.requests - counts.refused:,} requests are in {out}; "
        f"{counts.refused:,} requests were refused."
    )
    if counts.spans:
        typer.echo(f"Next: eclose judge {out} --judge MODEL --out RUN")
