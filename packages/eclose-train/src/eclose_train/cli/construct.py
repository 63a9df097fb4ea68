"""``eclose construct``: build counterfactual families from questions with passages and reference answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.model_options import ModelOptions, env_option, run_on_ray_workers, takes_model_options
from eclose.cli.shared.output import QUARANTINED_EXIT_CODE, format_count, print_line, print_run_summary, print_table
from eclose.cli.shared.recipe import recipe_key
from eclose.readers.layouts import RecordLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.calls.run import RunResult
    from eclose_train.construction.run import ConstructionModels, ConstructionRun
    from eclose_train.construction.settings import ConstructSettings


@takes_model_options
def construct(
    instances: Annotated[Path, typer.Argument(help="File of questions with passages and reference answers.")],
    *,
    constructor: Annotated[
        str, env_option("--constructor", "Model that writes the parts: provider/model or a base URL.")
    ],
    verifier: Annotated[
        str, env_option("--verifier", "Model that checks the parts, best of another model family than the constructor.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.", file_okay=False)],
    reverifier: Annotated[
        str | None,
        env_option("--reverifier", "Model that checks finished families.  [default: the verifier, in new calls]"),
    ] = None,
    reverify: Annotated[bool, recipe_key()] = True,
    edits: Annotated[int, recipe_key(min=1)] = 2,
    attempts: Annotated[int, recipe_key(min=1, max=3)] = 1,
    replies: Annotated[int, recipe_key(min=1)] = 2,
    max_tokens: Annotated[int, recipe_key(min=1)] = 4_096,
    temperature: Annotated[float, recipe_key(min=0)] = 0.0,
    seed: Annotated[int, recipe_key(min=0)] = 42,
    tokenizer: Annotated[str | None, recipe_key()] = None,
    max_length: Annotated[int, recipe_key(min=1)] = 8_192,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Process at most this many sources, the first in seeded order.")
    ] = None,
    pilot: Annotated[
        Path | None,
        typer.Option(help="With --dry-run: folder of a finished run on some sources, whose usage is scaled up."),
    ] = None,
    layout: Annotated[RecordLayout, typer.Option("--format", help="Layout of the records.")] = RecordLayout.AUTO,
    options: ModelOptions,
) -> None:
    """Build counterfactual families for training: a verified response to each question, its counterpart after one claim
    of the evidence is changed, and its counterpart for another question.

    The constructor writes each part, code assembles it and checks it against the gates, and the verifier judges it from
    no more than it needs to see. Rejected sources are counted and kept with the reason. Writes families.jsonl,
    train.jsonl, development.jsonl (a tenth of each dataset), and a data card, README.md. After a stop, the same command
    continues the run; no reply is requested or paid for twice.

    Run it on a few hundred sources first, drawn by eclose data sample: --dry-run --pilot RUN then estimates the cost of
    all of them.
    """
    import asyncio

    from eclose.errors import SettingError
    from eclose_train.construction.run import (
        ConstructionRun,
        build_construction_run,
        construct_families,
        resolve_construction_models,
    )
    from eclose_train.construction.settings import ConstructSettings

    settings = ConstructSettings(
        edits=edits,
        attempts=attempts,
        replies=replies,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        reverify=reverify,
        max_length=max_length,
        tokenizer=tokenizer,
    )
    # Conflicting flags are refused before a model is resolved, which may ask a server for its list of models.
    if pilot is not None and not options.dry_run:
        raise SettingError(
            "--pilot: is for --dry-run. To reuse the replies a pilot has paid for, pass its ledger with --ledger."
        )
    if reverifier is not None and not reverify:
        raise SettingError("--reverifier and reverify: false: leave one of them out.")
    third = None if reverifier is None else options.model(reverifier)
    resolving = resolve_construction_models(
        options.model(constructor), options.model(verifier), third, deadline=options.calls.deadline
    )
    # Also before a forecast: only the server knows which model a base URL stands for, and so its price.
    models = asyncio.run(resolving)
    _print_warnings(models, settings, has_reverifier=reverifier is not None)
    if options.dry_run:
        _print_forecast(ConstructionRun.of(instances, models, out, settings, layout, limit), options, pilot)
        return
    if options.ray is not None:
        # Workers build the run on their own machines, from names and settings: clients and connections cannot be sent.
        names = (constructor, verifier, reverifier)
        where = (instances, names, options.server, out, settings, options.calls.deadline)
        make_run = partial(build_construction_run, *where, layout=layout, limit=limit)
        result = run_on_ray_workers(make_run, options.calls, options, options.ray)
    else:
        arguments = (instances, models, out, settings, options.calls, options.run_options)
        result = asyncio.run(construct_families(*arguments, layout=layout, limit=limit))
    _print_funnel(result)
    print_run_summary(result)
    # Rejection is a regular outcome of construction, so the exit code stays 0 even where no family was built.
    if not result.manifest.counts.accepted:
        print_line("  no family was built: the counts of rejected sources above say at which part")
    raise typer.Exit(QUARANTINED_EXIT_CODE if result.manifest.counts.quarantined else 0)


def _print_warnings(models: ConstructionModels, settings: ConstructSettings, *, has_reverifier: bool) -> None:
    for name in models.same_family_checkers:
        print_line(f"warning: {name} checks what a model of its own family writes, and may be too lenient.")
    if settings.reverify and not has_reverifier:
        print_line(
            "note: the verifier checks finished families again. Another model is more independent: --reverifier."
        )
    if settings.attempts > 1:
        print_line(
            "note: parts are built again until they pass, which favours what verifiers accept. The data card says so."
        )


def _print_forecast(plan: ConstructionRun, options: ModelOptions, pilot: Path | None) -> None:
    from eclose.calls.prices import format_money
    from eclose.calls.run import find_forecast_price
    from eclose_train.construction.forecast import forecast_construction

    prices = {model.name: find_forecast_price(model, options.calls) for model in plan.model_refs}
    usage = forecast_construction(plan, prices, pilot)
    cost = "cost unknown" if usage.cost is None else f"about {format_money(round(usage.cost), options.calls.currency)}"
    sources = format_count(usage.sources, "source")
    families = format_count(round(usage.families), "family", "families")
    print_line(
        f"{sources}: about {usage.calls:,.0f} calls, {usage.prompt_tokens:,.0f} tokens read "
        f"and {usage.completion_tokens:,.0f} written, {cost}, for about {families}"
    )
    print_line(f"  by {usage.basis}")


def _print_funnel(result: RunResult) -> None:
    """Print the paper's table of construction: sources that passed each part, by dataset."""
    from eclose_train.construction.funnel import sum_funnel_over_datasets

    funnel: Mapping[str, Mapping[str, int]] = result.manifest.calls["funnel"]
    totals = sum_funnel_over_datasets(funnel)
    # With a single dataset, the row of totals would repeat it.
    datasets = [*funnel.items(), *([("all", totals)] if len(funnel) > 1 else [])]
    rows = [(name, *(f"{count:,}" for count in counts.values())) for name, counts in datasets]
    print_table("Sources that passed each part", ("dataset", *totals), rows)
