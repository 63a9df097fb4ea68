"""``eclose switch``: test whether a model's preferences follow evidence, question and trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    escape_invisible,
    format_count,
    format_percent,
    format_percent_interval,
    print_line,
    print_step_result,
    print_table,
    show_record_count,
)
from eclose.cli.shared.recipe import recipe_key
from eclose.prompts.response_prompt import PromptOrder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.files.outcome_counts import RecordCounts
    from eclose.files.step import PipelineStep
    from eclose.stats.intervals import Estimate
    from eclose.stats.rates import Rate
    from eclose_train.families.comparisons import Edge
    from eclose_train.training.api import SwitchResult
    from eclose_train.training.switch_test import (
        EdgeSwitchRates,
        FamilySwitchScores,
        PooledSwitchRates,
        SwitchContrast,
        SwitchRates,
    )

FEW_FAMILIES = 20
"""Below this number, intervals over families are too rough to rely on."""


def print_family_counts(stage: PipelineStep | None, families: str, counts: RecordCounts, *, again: bool) -> None:
    """Print the counts of families by outcome."""
    if stage is not None:
        print_step_result(stage, counts, again=again, doubt="is this a file of families")
        return
    print_line(f"{families}: {counts}")
    if counts.quarantined:
        print_line("  --out FILE keeps the records that could not be read, with reasons")


def print_switch_rates(tables: Sequence[SwitchRates]) -> None:
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
            line += [
                cell
                for rate in _three(rates)
                for cell in (format_percent(rate.value), format_percent_interval(rate.wilson))
            ]
            # The n of SW, which needs both comparisons: O and CF may have a few families more.
            line += [str(rates.switched.n), *([str(rates.switched.unjudged)] if unjudged else [])]
            lines.append(line + ["-" if value is None else f"{value:.2f}" for value in rates.margins.values()])
    typer.echo()
    print_table("Switch rates, Wilson intervals over families", heads, lines)
    if any(table.families < FEW_FAMILIES for table in tables):
        print_line(f"Fewer than {FEW_FAMILIES} families in a dataset: take its rates as a rough hint.")


_SYSTEM = ("system", "method", "seed")


def _system(table: SwitchRates) -> tuple[str, str, str]:
    """Return the cells that say what was tested; the backbone has neither method nor seed."""
    method, seed = (table.source.method, table.source.seed) if table.source else (None, None)
    return table.system, method or "-", "-" if seed is None else str(seed)


def _datasets(tables: Sequence[SwitchRates]) -> int:
    return len({table.benchmark for table in tables if table.benchmark is not None})


def _three(edge: EdgeSwitchRates) -> tuple[Rate, Rate, Rate]:
    return edge.original, edge.counterfactual, edge.switched


def print_model_contrasts(compared: Mapping[str, Mapping[Edge, SwitchContrast]], tables: Sequence[SwitchRates]) -> None:
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
            line += [format_percent(contrast.rate.value), *_gain(contrast.gain)]
        lines.append(line)
    count = _datasets(tables)
    over = f", mean over {count} datasets of equal weight" if count > 1 else ""
    typer.echo()
    print_table(f"Switch rates{over}; gain over the first row, paired by family, in points", heads, lines)


def print_pooled_contrasts(pooled: PooledSwitchRates, datasets: int) -> None:
    """Print one row a method: its rates over all backbones and seeds, and the gain over the first row."""
    edges = list(next(iter(pooled.contrasts.values())))
    heads = [
        "method",
        *(head for edge in edges for head in (f"{edge.value} SW %", "95 % interval", "gain", "95 % interval")),
    ]
    lines = []
    for method, row in pooled.contrasts.items():
        line = [method]
        for contrast in row.values():
            rate = contrast.rate
            line += [format_percent(rate.value), format_percent_interval(rate.interval), *_gain(contrast.gain)]
        lines.append(line)
    parts = (("backbone", len(pooled.backbones)), ("seed", len(pooled.seeds)), ("dataset", datasets))
    over = ", ".join(format_count(count, name) for name, count in parts)
    typer.echo()
    print_table(
        f"Switch rates by method over {over}; families and seeds resampled; gain over the first row", heads, lines
    )


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


def print_unscored_family(rows: Sequence[FamilySwitchScores]) -> None:
    """Print the first family whose scores are not finite: a fault of the model, not of the family."""
    unjudged = [row for row in rows if row.unjudged]
    if unjudged:
        name, reason = next(iter(unjudged[0].unjudged.items()))
        example = f"{unjudged[0].family_id}: {name}, {reason}"
        print_line(f"{format_count(len(unjudged), 'row')} with a score that is not finite, such as {example}.")


def switch_result_to_json(result: SwitchResult) -> dict[str, Any]:
    """Return the whole result for JSON; undefined values are null."""
    from dataclasses import asdict

    def rate_fields(rate: Rate) -> dict[str, Any]:
        return {"value": rate.value, "interval": rate.wilson, "hits": rate.hits, "n": rate.n, "unjudged": rate.unjudged}

    tables = result.rates
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
        {"system": system, **source_fields(system), "edges": _contrast_fields(row)}
        for system, row in result.contrasts.items()
    ]
    return {
        "settings": dict(result.settings),
        "counts": asdict(result.counts),
        "groups": groups,
        "contrasts": contrasts,
        "pooled": None if result.pooled is None else _pooled_fields(result.pooled),
        "not_pooled": result.not_pooled,
    }


def _contrast_fields(row: Mapping[Edge, SwitchContrast]) -> dict[str, Any]:
    return {
        edge.value: {
            "rate": contrast.rate.value,
            "gain": contrast.gain.value if contrast.gain else None,
            "interval": contrast.gain.interval if contrast.gain else None,
        }
        for edge, contrast in row.items()
    }


def _pooled_fields(pooled: PooledSwitchRates) -> dict[str, Any]:
    methods = []
    for method, row in pooled.contrasts.items():
        edges = _contrast_fields(row)
        for edge, contrast in row.items():
            edges[edge.value]["rate_interval"] = contrast.rate.interval
        methods.append({"method": method, "edges": edges})
    return {"backbones": pooled.backbones, "seeds": pooled.seeds, "methods": methods}


def switch(
    families: Annotated[str, typer.Argument(help="Families: JSON Lines, Parquet, or a folder of either.")],
    *,
    hub: Annotated[
        bool, typer.Option("--hub", help="Fetch families from a hub: hf://datasets/OWNER/NAME[@REVISION].")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="Weights by name, folder or GGUF file.  [default: from the adapters' recipes]")
    ] = None,
    adapter: Annotated[list[Path] | None, typer.Option(help="Folder of an adapter; repeatable.")] = None,
    backbone: Annotated[bool, typer.Option("--backbone", help="Also test the model without an adapter.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for the scores and margins of every family.")
    ] = None,
    demonstrations: Annotated[
        int | None, typer.Option(min=0, help="Worked examples in the prompt.  [default: as trained, or 2]")
    ] = None,
    order: Annotated[PromptOrder | None, recipe_key()] = None,
    max_length: Annotated[int, recipe_key(min=1)] = 8_192,
    tokens_per_forward: Annotated[int, recipe_key(min=1)] = 16_384,
    dtype: Annotated[str, recipe_key()] = "auto",
    device: Annotated[str | None, recipe_key()] = None,
    resamples: Annotated[int, recipe_key(min=100)] = 10_000,
    seed: Annotated[int, recipe_key(min=0)] = 20_260_915,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that other settings wrote.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Test whether the preferred step, trace and answer switch with their input: twelve scores a family.

    No response is generated or judged: a preference is a difference of mean token log-likelihoods. Where a family has
    several evidence edits, the first by passage and content is used, the same for every model.

    \b
    S   evidence to step: another passage, another first affected step
    T   question to trace: another question, another trace
    C   trace to answer: another trace, another answer, the evidence as it was
    O   the preference is right under the original input
    CF  under the counterfactual input
    SW  under both: the preference switches; a tie fails
    margin o, c   the mean difference under either input

    With several models, gain is SW minus that of the first row, families resampled within datasets, datasets of equal
    weight. Adapters of one method on several backbones or with several training seeds are also pooled: families are
    resampled for all methods and backbones together, seeds within each backbone (appendix D.7).

    An adapter is prompted as it was trained: its recipe.json gives model, demonstrations and order.
    """
    from eclose_train.training.api import SwitchSettings, switch_test

    settings = SwitchSettings(
        model=model,
        adapters=tuple(adapter or ()),
        backbone=backbone,
        demonstrations=demonstrations,
        order=order,
        max_length=max_length,
        tokens_per_forward=tokens_per_forward,
        dtype=dtype,
        device=device,
    )
    result = switch_test(
        families,
        settings=settings,
        out=out,
        hub=hub,
        seed=seed,
        resamples=resamples,
        force=force,
        # On standard error: with --json, standard output is one JSON object.
        notify=lambda message: typer.echo(f"eclose: {escape_invisible(message)}", err=True),
        wrap=show_record_count,
    )
    if as_json:
        typer.echo(json.dumps(switch_result_to_json(result)))
    else:
        print_family_counts(result.step, families, result.counts, again=result.again)
        if result.rows:
            if result.pooled is not None:
                print_pooled_contrasts(result.pooled, _datasets(result.rates))
            elif result.not_pooled:
                print_line(f"Seeds and backbones are not pooled: {result.not_pooled}")
            print_model_contrasts(result.contrasts, result.rates)
            print_switch_rates(result.rates)
            print_unscored_family(result.rows)
    raise typer.Exit(QUARANTINED_EXIT_CODE if result.counts.quarantined else 0)
