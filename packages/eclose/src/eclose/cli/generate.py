"""``eclose generate``: let a model answer questions with passages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.model_options import (
    ModelName,
    ModelOptions,
    VllmSettings,
    describe_estimate,
    parse_vllm_settings,
    run_on_ray_workers,
    takes_model_options,
)
from eclose.cli.shared.output import QUARANTINED_EXIT_CODE, format_count, print_line, print_run_summary
from eclose.cli.shared.recipe import recipe_key
from eclose.prompts.response_prompt import PromptOrder
from eclose.readers.layouts import RecordLayout

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.calls.resolve import ModelRef
    from eclose.calls.run import RunResult
    from eclose.generation import GenerateSettings
    from eclose.values.response import ResponseSource


@takes_model_options
def generate(
    instances: Annotated[Path, typer.Argument(help="File of questions with passages, in any known layout.")],
    *,
    model: ModelName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.", file_okay=False)],
    adapter: Annotated[
        Path | None, typer.Option(help="Folder of an adapter, for weights loaded in this process.")
    ] = None,
    base_model: Annotated[str | None, recipe_key()] = None,
    adapter_recipe: Annotated[Path | None, recipe_key()] = None,
    backbone: Annotated[str | None, recipe_key()] = None,
    method: Annotated[str | None, recipe_key()] = None,
    training_seed: Annotated[int | None, recipe_key(min=0)] = None,
    revision: Annotated[str | None, recipe_key()] = None,
    dtype: Annotated[str, recipe_key()] = "auto",
    vllm: VllmSettings = None,
    demonstrations: Annotated[
        int | None, typer.Option(min=0, help="Number of worked examples in the prompt.  [default: as trained, or 2]")
    ] = None,
    order: Annotated[PromptOrder | None, recipe_key()] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest reply in tokens.")] = 1_024,
    max_length: Annotated[int, recipe_key(min=1)] = 8_192,
    thinking: Annotated[bool | None, recipe_key()] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Answer only this many questions, the first by id.")] = None,
    layout: Annotated[RecordLayout, typer.Option("--format", help="Layout of the records.")] = RecordLayout.AUTO,
    options: ModelOptions,
) -> None:
    """Let a model answer questions step by step: greedy decoding, one completion each, in the order of ids.

    Writes responses.jsonl into the folder of the run, with the trace, the answer and the raw completion of each
    response. A reply that was cut off or has no answer line is kept without an answer and counted. After a stop, the
    same command continues the run; no reply is requested or paid for twice.

    \b
    openai/gpt-x, azure/NAME     a provider's model; its key from OPENAI_API_KEY, …
    http://127.0.0.1:8000/v1     the only model of an OpenAI-compatible server
    weights/qwen3-8b             a folder of weights, loaded with Transformers
    vllm:Qwen/Qwen3-8B           loaded with vLLM; transformers:NAME likewise

    An adapter that does not change the model's replies is refused before the run. It is prompted as it was trained: its
    recipe.json gives demonstrations and order. Every response names its backbone, method and training seed, so that
    experiments can be joined; for a served adapter these come from adapter_recipe, or from backbone, method and
    training_seed. The model and the call options are also read from variables named after the flags, such as
    ECLOSE_MODEL, ECLOSE_BUDGET and ECLOSE_LEDGER, in the environment or in .env.
    """
    import asyncio

    from eclose.calls.adapters import find_adapter_recipes
    from eclose.errors import SettingError
    from eclose.generation import (
        GenerateSettings,
        SourceLabels,
        allow_one_attempt,
        build_generation_run,
        find_generator_model,
        generate_responses,
    )

    # The recipe of an adapter holds the prompt it was trained with; another prompt would measure something else.
    recipes, labels = find_adapter_recipes(adapter, adapter_recipe), SourceLabels(backbone, method, training_seed)
    generator = find_generator_model(
        model,
        adapter=adapter,
        base_model=base_model,
        revision=revision,
        dtype=dtype,
        recipes=recipes,
        labels=labels,
        base_url=options.server,
        # --dry-run and replay send no call, so they work without an API key.
        keyless=options.sends_nothing,
        engine_settings=parse_vllm_settings(vllm),
    )
    # Said before the calls: afterwards the responses would have to be generated again to name their seed.
    _warn_about_unknown_seed(generator.source)
    settings = GenerateSettings(
        demonstrations=demonstrations,
        order=order,
        max_new_tokens=max_new_tokens,
        max_length=max_length,
        thinking=thinking,
        limit=limit,
        format=layout,
    ).as_trained(recipes)
    if options.dry_run:
        asyncio.run(_print_forecast(instances, generator, out, settings, options.calls))
        return
    if options.ray is not None:
        # Workers find the model by name on their own machine, so only what a name can say is possible.
        if adapter is not None or base_model is not None or recipes or labels != SourceLabels() or options.replay:
            raise SettingError(
                "engine: ray calls a served model as it is: no --adapter, base_model, adapter_recipe, backbone, "
                "method, training_seed or replay."
            )
        arguments = (instances, model, options.server, out)
        make_run = partial(build_generation_run, *arguments, settings, options.calls.deadline)
        # One completion for each question: a reply without an answer is counted as such, and not asked for again.
        result = run_on_ray_workers(make_run, allow_one_attempt(options.calls), options, options.ray)
    else:
        result = asyncio.run(
            generate_responses(instances, generator, out, settings, options.calls, options.run_options)
        )
    _print_summary(result)
    raise typer.Exit(QUARANTINED_EXIT_CODE if result.manifest.counts.quarantined else 0)


def _warn_about_unknown_seed(source: ResponseSource) -> None:
    """Print a note where the training seed is unknown: an experiment joins responses of a trained model by seed."""
    if source.method is not None and source.seed is None:
        print_line(
            f"note: the training seed of {source.method} is not known, so an experiment over seeds cannot take these "
            "responses. Give training_seed in a recipe, or adapter_recipe for a served adapter."
        )


async def _print_forecast(
    instances: Path, model: ModelRef, out: Path, settings: GenerateSettings, calls: CallSettings
) -> None:
    from eclose.generation import forecast_generation, plan_generation

    planned = await plan_generation(instances, model, out, settings, deadline=calls.deadline)
    print_line(f"{planned.model.name}: {describe_estimate(forecast_generation(planned, calls), calls.currency)}")
    # claim() raises where other work wrote the files, so a dry run also tells that the real one would be refused.
    if planned.stage.out.exists() and planned.stage.manifest_path.exists() and planned.stage.claim():
        print_line(f"{planned.stage.out}: done before, so no call would be sent")


def _print_summary(result: RunResult) -> None:
    missing = result.manifest.calls["incomplete"]
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in missing.items())
    print_run_summary(
        result, f"without an answer: {format_count(sum(missing.values()), 'response')} ({reasons})" if missing else None
    )
