"""Output of ``eclose switch``: tables, or one JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from eclose.cli.shared.output import percent, percent_range, plural, print_step_result, print_table, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from eclose.core.dependency_edges import Edge
    from eclose.stats.intervals import Estimate
    from eclose.stats.rates import Rate
    from eclose.store.records.outcome_counts import Counts
    from eclose.store.runs.step import RunStep
    from eclose.training.switch_test import EdgeRates, FamilySwitch, SwitchContrast, SwitchRates

FEW_FAMILIES = 20
"""Below this number, intervals over families are too rough to rely on."""


def print_counts(stage: RunStep | None, families: Path, counts: Counts, *, again: bool) -> None:
    """Print the counts of families by outcome."""
    if stage is not None:
        print_step_result(stage, counts, again=again, doubt="is this a file of families")
        return
    say(f"{families}: {counts}")
    if counts.quarantined:
        say("  --out FILE keeps the records that could not be read, with reasons")


def print_rates(tables: Sequence[SwitchRates]) -> None:
    """Print O, CF and SW of each edge, by dataset, with intervals and mean margins."""
    several = len({table.system for table in tables}) > 1
    unjudged = any(rate.unjudged for table in tables for edge in table.edges.values() for rate in _three(edge))
    heads = [*(_SYSTEM if several else ()), "dataset", "edge"]
    heads += [head for letters in ("O", "CF", "SW") for head in (f"{letters} %", "95 % interval")]
    heads += ["n", *(["unjudged"] if unjudged else []), "margin o", "margin c"]
    lines = []
    # With one dataset, the table over all datasets would repeat it.
    for table in tables if _datasets(tables) > 1 else [table for table in tables if table.benchmark is not None]:
        for edge, rates in table.edges.items():
            line = [*(_system(table) if several else ()), table.benchmark or "all", edge.value]
            line += [cell for rate in _three(rates) for cell in (percent(rate.value), percent_range(rate.wilson))]
            # The n of SW, which needs both comparisons: O and CF may have a few families more.
            line += [str(rates.switched.n), *([str(rates.switched.unjudged)] if unjudged else [])]
            lines.append(line + ["-" if value is None else f"{value:.2f}" for value in rates.margins.values()])
    typer.echo()
    print_table("Switch rates, Wilson intervals over families", heads, lines)
    if any(table.families < FEW_FAMILIES for table in tables):
        say(f"Fewer than {FEW_FAMILIES} families in a dataset: take its rates as a rough hint.")


_SYSTEM = ("system", "method", "seed")


def _system(table: SwitchRates) -> tuple[str, str, str]:
    """Return the cells that say what was tested; the backbone has neither method nor seed."""
    method, seed = (table.source.method, table.source.seed) if table.source else (None, None)
    return table.system, method or "-", "-" if seed is None else str(seed)


def _datasets(tables: Sequence[SwitchRates]) -> int:
    return len({table.benchmark for table in tables if table.benchmark is not None})


def _three(edge: EdgeRates) -> tuple[Rate, Rate, Rate]:
    return edge.original, edge.counterfactual, edge.switched


def print_contrasts(compared: Mapping[str, Mapping[Edge, SwitchContrast]], tables: Sequence[SwitchRates]) -> None:
    """Print one row a model; nothing for a single model."""
    if len(compared) < 2:
        return
    edges = list(next(iter(compared.values())))
    heads = [*_SYSTEM, *(head for edge in edges for head in (f"{edge.value} SW %", "gain", "95 % interval"))]
    lines = []
    cells = {table.system: _system(table) for table in tables}
    for system, row in compared.items():
        line = [*cells[system]]
        for contrast in row.values():
            line += [percent(contrast.rate.value), *_gain(contrast.gain)]
        lines.append(line)
    count = _datasets(tables)
    over = f", mean over {count} datasets of equal weight" if count > 1 else ""
    typer.echo()
    print_table(f"Switch rates{over}; gain over the first row, paired by family, in points", heads, lines)


def _gain(gain: Estimate | None) -> tuple[str, str]:
    """Return points and their interval; a dash where all resamples agree: zero width would promise certainty."""
    if gain is None or gain.value is None:
        return "-", "-"
    interval = gain.interval
    flat = interval is None or interval.low == interval.high
    return _points(
        gain.value
    ), "-" if flat or interval is None else f"{_points(interval.low)} to {_points(interval.high)}"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def print_unjudged(rows: Sequence[FamilySwitch]) -> None:
    """Print the first family whose scores are not finite: a fault of the model, not of the family."""
    unjudged = [row for row in rows if row.unjudged]
    if unjudged:
        name, reason = next(iter(unjudged[0].unjudged.items()))
        example = f"{unjudged[0].family_id}: {name}, {reason}"
        say(f"{plural(len(unjudged), 'row')} with a score that is not finite, such as {example}.")


def to_json(
    settings: dict[str, Any],
    counts: Counts,
    tables: Sequence[SwitchRates],
    compared: Mapping[str, Mapping[Edge, SwitchContrast]],
) -> dict[str, Any]:
    """Return the whole result for JSON; undefined values are null."""
    from dataclasses import asdict

    def rate_fields(rate: Rate) -> dict[str, Any]:
        return {"value": rate.value, "interval": rate.wilson, "hits": rate.hits, "n": rate.n, "unjudged": rate.unjudged}

    sources = {table.system: table.source for table in tables}

    def source_fields(system: str) -> dict[str, Any]:
        source = sources[system]
        return dict.fromkeys(("model", "method", "seed")) if source is None else asdict(source)

    groups = [
        {
            "system": table.system,
            **source_fields(table.system),
            "benchmark": table.benchmark,
            "families": table.families,
            "edges": {
                edge.value: {
                    **{name: rate_fields(rate) for name, rate in zip(("O", "CF", "SW"), _three(rates), strict=True)},
                    "margins": {direction.value: value for direction, value in rates.margins.items()},
                }
                for edge, rates in table.edges.items()
            },
        }
        for table in tables
    ]
    contrasts = [
        {
            "system": system,
            **source_fields(system),
            "edges": {
                edge.value: {
                    "rate": contrast.rate.value,
                    "gain": contrast.gain.value if contrast.gain else None,
                    "interval": contrast.gain.interval if contrast.gain else None,
                }
                for edge, contrast in row.items()
            },
        }
        for system, row in compared.items()
    ]
    return {"settings": settings, "counts": asdict(counts), "groups": groups, "contrasts": contrasts}
