"""``eclosure construct``: counterfactual families from questions with passages and answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclosure.benchmarks.formats import Format
from eclosure.cli.calls import (
    Asking,
    Engine,
    EngineName,
    RayAddress,
    Workers,
    asks_a_model,
    env_option,
    run_on_workers,
)
from eclosure.cli.output import QUARANTINED, plural, print_table, say
from eclosure.cli.runs import say_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclosure.chat.inquiry import Finished
    from eclosure.construct.run import Cast, Plan
    from eclosure.construct.settings import ConstructSettings


@asks_a_model
def construct(
    instances: Annotated[
        Path, typer.Argument(help="Questions with passages and reference answers.", show_default=False)
    ],
    *,
    constructor: Annotated[str, env_option("--constructor", "Who writes: provider/model or a base URL.")],
    verifier: Annotated[str, env_option("--verifier", "Who checks; better not of the constructor's family.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder of the run.", file_okay=False, show_default=False)
    ],
    reverifier: Annotated[
        str | None, env_option("--reverifier", "Who checks what is finished.  [default: the verifier, asked anew]")
    ] = None,
    reverify: Annotated[
        bool, typer.Option("--reverify/--no-reverify", help="Check finished families once more.")
    ] = True,
    edits: Annotated[int, typer.Option(min=1, help="Edits of the evidence at most; one is enough.")] = 2,
    attempts: Annotated[
        int, typer.Option(min=1, max=3, help="Times a part is built, each told what was said against the one before.")
    ] = 1,
    replies: Annotated[int, typer.Option(min=1, help="Times a model is asked that answers in no usable form.")] = 2,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply in tokens.")] = 4_096,
    temperature: Annotated[float, typer.Option(min=0, help="Of the replies.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the replies.")] = 42,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Folder or name of the model to be trained, to count its tokens.  [default: estimated]"),
    ] = None,
    max_length: Annotated[
        int, typer.Option(min=1, help="Longest path in tokens; what does not fit is left out.")
    ] = 8_192,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Process at most this many sources, the first in seeded order.", show_default=False),
    ] = None,
    pilot: Annotated[
        Path | None,
        typer.Option(help="With --dry-run: a run on some of the sources, to be scaled up.", show_default=False),
    ] = None,
    layout: Annotated[Format, typer.Option("--format", help="The layout of the records.")] = Format.AUTO,
    engine: EngineName = Engine.PROCESS,
    workers: Workers = 2,
    ray_address: RayAddress = None,
    asking: Asking,
) -> None:
    """Build counterfactual families to train on: a verified response to each question, what it becomes when one claim
    of the evidence is changed, and what it becomes when something else is asked.

    Every part is written by the constructor, put together and held against the gates by code, and judged by the
    verifier, who sees no more than it needs. Whatever is refused is counted and kept with the reason. Writes
    families.jsonl, train.jsonl and development.jsonl (a tenth of each dataset), and a data card, README.md. Stop it at
    any moment, and run the same command again: it goes on, and nothing that was answered is asked or paid twice.

    Run it on a few hundred sources first, drawn by eclosure data sample: then --dry-run --pilot RUN tells what all of
    them will cost.
    """
    import asyncio

    from eclosure.construct.run import Plan, cast, make_inquiry
    from eclosure.construct.run import construct as run
    from eclosure.construct.settings import ConstructSettings
    from eclosure.errors import SettingError

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
    if pilot is not None and not asking.dry_run:
        raise SettingError("--pilot: is for --dry-run. What a pilot has paid for is taken along with --ledger.")
    if reverifier is not None and not reverify:
        raise SettingError("--reverifier and --no-reverify: leave one of them out.")
    again = None if reverifier is None else asking.model(reverifier)
    named = cast(asking.model(constructor), asking.model(verifier), again, deadline=asking.calls.deadline)
    models = asyncio.run(named)
    _warn(models, settings, again=reverifier is not None)
    if asking.dry_run:
        _say_forecast(Plan.of(instances, models, out, settings, layout, limit), asking, pilot)
        return
    if engine is Engine.RAY:
        if asking.replay:
            raise SettingError("--engine ray asks models that are served: no --replay.")
        where = (instances, (constructor, verifier, reverifier), asking.base_url, out, settings, asking.calls.deadline)
        made = partial(make_inquiry, *where, layout=layout, limit=limit, force=asking.force)
        done = run_on_workers(made, asking.calls, asking, workers, ray_address)
    else:
        running = run(instances, models, out, settings, asking.calls, layout=layout, limit=limit, **asking.flags)
        done = asyncio.run(running)
    _say_funnel(done)
    say_run(done)
    if not done.manifest.counts.accepted:
        say("  no family was built: the rejected ones above say where the sources were lost")
    raise typer.Exit(QUARANTINED if done.manifest.counts.quarantined else 0)


def _warn(models: Cast, settings: ConstructSettings, *, again: bool) -> None:
    for name in models.kin:
        say(f"warning: {name} checks what a model of its own family writes, and may pass it for that.")
    if settings.reverify and not again:
        say("note: the verifier itself checks finished families again. Another model sees other things: --reverifier.")
    if settings.attempts > 1:
        say("note: parts are tried again until they pass, which selects for what verifiers let pass. The card says so.")


def _say_forecast(plan: Plan, asking: Asking, pilot: Path | None) -> None:
    from eclosure.chat.inquiry import price_of_model
    from eclosure.chat.prices import money
    from eclosure.construct.forecast import forecast

    prices = {model.name: price_of_model(model, asking.calls) for model in plan.models.all}
    found = forecast(plan, prices, pilot)
    cost = "cost unknown" if found.cost is None else f"about {money(round(found.cost), asking.calls.currency)}"
    families = plural(round(found.families), "family", "families")
    say(
        f"{plural(found.sources, 'source')}: about {found.calls:,.0f} calls, {found.prompt_tokens:,.0f} tokens read "
        f"and {found.completion_tokens:,.0f} written, {cost}, for about {families}"
    )
    say(f"  by {found.basis}")


def _say_funnel(done: Finished) -> None:
    """The paper's table of construction for this run."""
    from eclosure.construct.funnel import total

    funnel: Mapping[str, Mapping[str, int]] = done.manifest.calls["funnel"]
    together = total(funnel)
    counted = [*funnel.items(), *([("all", together)] if len(funnel) > 1 else [])]
    rows = [(name, *(f"{count:,}" for count in row.values())) for name, row in counted]
    print_table("Sources that passed each part", ("dataset", *together), rows)
