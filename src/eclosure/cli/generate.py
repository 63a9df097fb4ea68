"""``eclosure generate``: let a model answer questions with passages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from eclosure.benchmarks.formats import Format
from eclosure.cli.calls import (
    Asking,
    Engine,
    EngineName,
    ModelName,
    RayAddress,
    Workers,
    asks_a_model,
    run_on_workers,
    shown_estimate,
)
from eclosure.cli.output import QUARANTINED, plural, say
from eclosure.cli.runs import say_run
from eclosure.protocol.response import Order

if TYPE_CHECKING:
    from eclosure.chat.connect import CallSettings
    from eclosure.chat.endpoint import ServerAddress
    from eclosure.chat.inquiry import Finished
    from eclosure.chat.named import Named
    from eclosure.core.response import Source
    from eclosure.generate import GenerateSettings


@asks_a_model
def generate(
    instances: Annotated[
        Path, typer.Argument(help="Questions with passages, in any known layout.", show_default=False)
    ],
    *,
    model: ModelName,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder of the run.", file_okay=False, show_default=False)
    ],
    adapter: Annotated[
        Path | None, typer.Option(help="The folder of an adapter, for a model that is loaded here.", show_default=False)
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(help="For a served adapter: the name of the model it is on.", show_default=False),
    ] = None,
    adapter_recipe: Annotated[
        Path | None,
        typer.Option(
            help="For a served adapter: its recipe.json, or the folder of its training run.", show_default=False
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Name of the untrained model in the responses' source.  [default: from recipe.json, or --model]",
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Training method in the responses' source.  [default: from recipe.json]", show_default=False),
    ] = None,
    training_seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Training seed in the responses' source.  [default: from recipe.json]", show_default=False
        ),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="The commit of a model on the hub.", show_default=False)] = None,
    dtype: Annotated[str, typer.Option(help="Precision of weights that are loaded here.")] = "auto",
    demonstrations: Annotated[
        int | None, typer.Option(min=0, help="Worked examples in the prompt.  [default: as trained, or 2]")
    ] = None,
    order: Annotated[
        Order | None, typer.Option(help="What comes first in the prompt.  [default: as trained, or evidence_first]")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest reply in tokens.")] = 1_024,
    max_length: Annotated[
        int,
        typer.Option(min=1, help="Most tokens of prompt and reply together, for weights that are loaded here."),
    ] = 8_192,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="[default: off on servers of your own]", show_default=False),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many questions, the first by id.", show_default=False)
    ] = None,
    layout: Annotated[Format, typer.Option("--format", help="The layout of the records.")] = Format.AUTO,
    engine: EngineName = Engine.PROCESS,
    workers: Workers = 2,
    ray_address: RayAddress = None,
    asking: Asking,
) -> None:
    """Let a model answer questions step by step, as the paper does: greedy, one completion each, in the order of ids.

    Writes responses.jsonl into the run's folder, with trace, answer and raw completion of each. What was cut off or has
    no answer line is kept without an answer, and counted. Stop it at any moment, and run the same command again: it
    goes on, and nothing that was answered is asked or paid twice.

    \b
    openai/gpt-x                 a provider's model; its key from OPENAI_API_KEY
    http://127.0.0.1:8000/v1     the only model of a server of yours
    weights/qwen3-8b             a folder, loaded with Transformers
    vllm:Qwen/Qwen3-8B           loaded with vLLM; transformers:NAME likewise

    An adapter must change what the model says, or nothing is begun. It is asked as it was trained: its recipe.json
    gives demonstrations and order. Every response names its backbone, method and training seed, so that experiments
    can be joined; for a served adapter these come from --adapter-recipe, or from --backbone, --method and
    --training-seed. Who is asked and how is also read from variables named after the flags, such as
    ECLOSURE_MODEL, ECLOSURE_BUDGET and ECLOSURE_LEDGER, in the environment or in .env.
    """
    import asyncio

    from eclosure.errors import SettingError
    from eclosure.generate import GenerateSettings, make_inquiry, one_completion
    from eclosure.generate import generate as run

    recipes = _recipes(adapter, adapter_recipe)
    said = _Said(backbone, method, training_seed)
    found = _model(
        model,
        adapter,
        base_model,
        revision,
        dtype,
        recipes,
        said,
        base_url=asking.base_url,
        keyless=asking.sends_nothing,
    )
    count, first = _as_trained(recipes, demonstrations, order)
    settings = GenerateSettings(
        demonstrations=count,
        order=first,
        max_new_tokens=max_new_tokens,
        max_length=max_length,
        thinking=thinking,
        limit=limit,
        format=layout,
    )
    if asking.dry_run:
        asyncio.run(_forecast(instances, found, out, settings, asking.calls))
        return
    if engine is Engine.RAY:
        if adapter is not None or base_model is not None or recipes or said != _Said() or asking.replay:
            raise SettingError(
                "--engine ray asks a model that is served, as it is: no --adapter, --base-model, --adapter-recipe, "
                "--backbone, --method, --training-seed or --replay."
            )
        where = (instances, model, asking.base_url, out)
        made = partial(make_inquiry, *where, settings, asking.calls.deadline, force=asking.force)
        done = run_on_workers(made, one_completion(asking.calls), asking, workers, ray_address)
    else:
        done = asyncio.run(run(instances, found, out, settings, asking.calls, **asking.flags))
    _say(done)
    raise typer.Exit(QUARANTINED if done.manifest.counts.quarantined else 0)


class _Said(NamedTuple):
    """What flags say of the responses' source."""

    backbone: str | None = None
    method: str | None = None
    seed: int | None = None


def _recipes(adapter: Path | None, recipe: Path | None) -> dict[str, dict[str, Any]]:
    """Return the adapter's recipe by where it was found; empty without an adapter."""
    from eclosure.cli.recipes import RECIPE, read_recipe
    from eclosure.errors import SettingError, UserError

    if adapter is not None and recipe is not None:
        raise SettingError("--adapter and --adapter-recipe: an adapter that is loaded here has its recipe beside it.")
    if adapter is not None:
        return {str(adapter): read_recipe(adapter)}
    if recipe is None:
        return {}
    content = read_recipe(recipe.parent if recipe.name == RECIPE else recipe)
    if not content:
        raise UserError(f"{recipe}: there is no {RECIPE} here. Name that file, or the folder of the training run.")
    return {str(recipe): content}


def _model(
    name: str,
    adapter: Path | None,
    base_model: str | None,
    revision: str | None,
    dtype: str,
    recipes: dict[str, dict[str, Any]],
    said: _Said,
    *,
    base_url: ServerAddress,
    keyless: bool,
) -> Named:
    """Return the model, with the source that its responses will name."""
    from dataclasses import replace

    from eclosure.chat.named import InProcess, Served, find_model
    from eclosure.cli.recipes import agreed, same_model

    if adapter is not None:
        weights = name.removeprefix("vllm:").removeprefix("transformers:")
        agreed("model", weights, recipes, same=same_model)
    model = find_model(
        name,
        base_url=base_url,
        keyless=keyless,
        adapter=adapter,
        recipe=next(iter(recipes.values()), {}),
        base_model=base_model,
        revision=revision,
        dtype=dtype,
    )
    if isinstance(model, Served | InProcess) and said != _Said():
        model = replace(model, known_source=_source(model.source, said, recipes))
    source = model.source
    if source.method is not None and source.seed is None:
        say(
            f"note: the training seed of {source.method} is not known, so an experiment over seeds cannot take these "
            "responses. Give --training-seed, or --adapter-recipe for a served adapter."
        )
    return model


def _source(source: Source, said: _Said, recipes: dict[str, dict[str, Any]]) -> Source:
    """Return the source with what the flags say; a flag that contradicts a recipe is refused."""
    from dataclasses import replace

    from eclosure.cli.recipes import agreed
    from eclosure.errors import SettingError

    if said.seed is not None and (said.method or source.method) is None:
        raise SettingError("--training-seed: a model as it is has none. Name the training method with --method.")
    trained = {
        where: {"method": source.method, "training-seed": source.seed} for where, recipe in recipes.items() if recipe
    }
    return replace(
        source,
        model=said.backbone or source.model,
        method=agreed("method", said.method, trained) or source.method,
        seed=source.seed if said.seed is None else agreed("training-seed", said.seed, trained),
    )


def _as_trained(
    recipes: dict[str, dict[str, Any]], demonstrations: int | None, order: Order | None
) -> tuple[int, Order]:
    from eclosure.cli.recipes import agreed

    count = agreed("demonstrations", demonstrations, recipes)
    first = agreed("order", order.value if order else None, recipes)
    return 2 if count is None else count, Order(first or Order.EVIDENCE_FIRST)


async def _forecast(instances: Path, model: Named, out: Path, settings: GenerateSettings, calls: CallSettings) -> None:
    from eclosure.generate import forecast, plan

    planned = await plan(instances, model, out, settings, deadline=calls.deadline)
    say(f"{planned.model.name}: {shown_estimate(forecast(planned, calls), calls.currency)}")
    if planned.stage.out.exists() and planned.stage.manifest_path.exists() and planned.stage.finished():
        say(f"{planned.stage.out}: done before, so nothing would be asked")


def _say(done: Finished) -> None:
    """Where every record went, what is incomplete, what was asked."""
    from eclosure.generate import incomplete

    missing = incomplete(done)
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in missing.items())
    say_run(done, f"without an answer: {plural(sum(missing.values()), 'response')} ({reasons})" if missing else None)
