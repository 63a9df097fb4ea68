"""``eclose generate``: let a model answer questions with passages."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.benchmarks.layouts import RecordLayout
from eclose.cli.shared.model_options import (
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
from eclose.cli.shared.output import QUARANTINED, plural, say
from eclose.cli.shared.run_summary import say_run
from eclose.protocol.response_prompt import Order

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.calls.run import RunResult
    from eclose.core.response import Source
    from eclose.generation import GenerateSettings
    from eclose.models.resolve import ModelRef


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
    layout: Annotated[RecordLayout, typer.Option("--format", help="The layout of the records.")] = RecordLayout.AUTO,
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
    ECLOSE_MODEL, ECLOSE_BUDGET and ECLOSE_LEDGER, in the environment or in .env.
    """
    from eclose.errors import SettingError
    from eclose.generation import (
        GenerateSettings,
        SourceLabels,
        find_generator,
        generate_responses,
        make_model_run,
        single_attempt,
    )
    from eclose.models.adapter_recipe import find_recipes

    recipes, labels = find_recipes(adapter, adapter_recipe), SourceLabels(backbone, method, training_seed)
    generator = find_generator(
        model,
        adapter=adapter,
        base_model=base_model,
        revision=revision,
        dtype=dtype,
        recipes=recipes,
        labels=labels,
        base_url=asking.base_url,
        keyless=asking.sends_nothing,
    )
    _warn_of_unknown_seed(generator.source)
    settings = GenerateSettings(
        demonstrations=demonstrations,
        order=order,
        max_new_tokens=max_new_tokens,
        max_length=max_length,
        thinking=thinking,
        limit=limit,
        format=layout,
    ).as_trained(recipes)
    if asking.dry_run:
        asyncio.run(_forecast(instances, generator, out, settings, asking.calls))
        return
    if engine is Engine.RAY:
        if adapter is not None or base_model is not None or recipes or labels != SourceLabels() or asking.replay:
            raise SettingError(
                "--engine ray calls a served model as it is: no --adapter, --base-model, --adapter-recipe, "
                "--backbone, --method, --training-seed or --replay."
            )
        arguments = (instances, model, asking.base_url, out)
        make_run = partial(make_model_run, *arguments, settings, asking.calls.deadline, force=asking.force)
        result = run_on_workers(make_run, single_attempt(asking.calls), asking, workers, ray_address)
    else:
        result = asyncio.run(generate_responses(instances, generator, out, settings, asking.calls, **asking.flags))
    _print_summary(result)
    raise typer.Exit(QUARANTINED if result.manifest.counts.quarantined else 0)


def _warn_of_unknown_seed(source: Source) -> None:
    """Print a note where the responses of a trained model could not be joined over seeds."""
    if source.method is not None and source.seed is None:
        say(
            f"note: the training seed of {source.method} is not known, so an experiment over seeds cannot take these "
            "responses. Give --training-seed, or --adapter-recipe for a served adapter."
        )


async def _forecast(
    instances: Path, model: ModelRef, out: Path, settings: GenerateSettings, calls: CallSettings
) -> None:
    from eclose.generation import forecast, plan

    planned = await plan(instances, model, out, settings, deadline=calls.deadline)
    say(f"{planned.model.name}: {shown_estimate(forecast(planned, calls), calls.currency)}")
    if planned.stage.out.exists() and planned.stage.manifest_path.exists() and planned.stage.claim():
        say(f"{planned.stage.out}: done before, so nothing would be asked")


def _print_summary(result: RunResult) -> None:
    """Print the counts of records, of responses without an answer, and of calls."""
    from eclose.generation import count_incomplete

    missing = count_incomplete(result)
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in missing.items())
    say_run(result, f"without an answer: {plural(sum(missing.values()), 'response')} ({reasons})" if missing else None)
