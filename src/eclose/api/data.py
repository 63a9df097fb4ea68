"""Verbs that make data: responses to questions, and counterfactual families."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.api.models import add_budget, resolve
from eclose.benchmarks.layouts import RecordLayout
from eclose.calls.coroutines import also_sync, coroutine_of
from eclose.construction.run import construct_families, resolve_construction_models
from eclose.construction.settings import ConstructSettings
from eclose.errors import SettingError
from eclose.generation import GenerateSettings, SourceLabels, find_generator_model, generate_responses
from eclose.models.adapter_recipe import find_adapter_recipes
from eclose.store.records.table_rows import Rows, ensure_data_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.calls.client import CallSettings
    from eclose.calls.run import RunOptions, RunResult
    from eclose.models.openai.endpoint import ServerAddress
    from eclose.models.resolve import ModelRef


@also_sync
async def generate(
    instances: Path | str | Rows,
    *,
    model: str | ModelRef,
    out: Path | str,
    adapter: Path | str | None = None,
    adapter_recipe: Path | str | None = None,
    base_model: str | None = None,
    labels: SourceLabels | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    engine_settings: Mapping[str, Any] | None = None,
    settings: GenerateSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    options: RunOptions | None = None,
) -> RunResult:
    """Let a model answer questions over passages, and write ``responses.jsonl`` into a run's folder.

    ``agenerate`` is the coroutine.

    Args:
        instances: Questions with passages: a file in any known layout, or rows as ``evaluate`` takes them.
        model: Model that answers: ``provider/model``, a base URL, a folder of weights, or ``vllm:NAME``.
        out: Folder of the run. The same call continues it, and no call is paid for twice.
        adapter: Folder of an adapter for weights in this process.
        adapter_recipe: For a served adapter: its ``recipe.json``, or the folder of its training run.
        base_model: For a served adapter: the served name of the model below it.
        labels: Backbone, method and training seed in the responses' source, where no recipe names them.
        revision: Commit of a model on the hub.
        dtype: Precision of weights in this process.
        engine_settings: Settings of vLLM in this process that change no reply: ``tensor_parallel_size``,
            ``pipeline_parallel_size``, ``gpu_memory_utilization``, ``max_num_seqs``.
        settings: Prompt, lengths and number of questions.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the run may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        options: Ledger, retry, replay and force, as the options of ``eclose generate``.

    Returns:
        The manifest of the run, with counts of records and calls.

    Raises:
        UserError: The questions cannot be read, or the model cannot be reached.
        SettingError: A setting is wrong or contradicts the adapter's recipe.

    Examples:
        >>> settings, free = eclose.GenerateSettings(limit=3), eclose.CallSettings(unpriced=True)
        >>> result = eclose.generate(
        ...     "demo/instances.jsonl", model=server, out="answers", settings=settings, calls=free
        ... )
        >>> result.manifest.counts.accepted
        3
    """
    adapter_folder = None if adapter is None else Path(adapter)
    recipes = find_adapter_recipes(adapter_folder, None if adapter_recipe is None else Path(adapter_recipe))
    generator = (
        find_generator_model(
            model,
            adapter=adapter_folder,
            base_model=base_model,
            revision=revision,
            dtype=dtype,
            recipes=recipes,
            labels=labels,
            base_url=base_url,
            keyless=options is not None and options.replay,
            engine_settings=engine_settings,
        )
        if isinstance(model, str)
        else model
    )
    # An adapter answers under the prompt that it was trained with; another prompt would measure something else.
    settings = (settings or GenerateSettings()).as_trained(recipes)
    path = ensure_data_file(instances, Path(out), "questions.jsonl")
    return await generate_responses(path, generator, out, settings, add_budget(calls, budget), options)


agenerate = coroutine_of(generate)
"""Coroutine of ``generate``."""


@also_sync
async def construct(
    instances: Path | str | Rows,
    *,
    constructor: str | ModelRef,
    verifier: str | ModelRef,
    out: Path | str,
    reverifier: str | ModelRef | None = None,
    settings: ConstructSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    layout: RecordLayout = RecordLayout.AUTO,
    limit: int | None = None,
    options: RunOptions | None = None,
) -> RunResult:
    """Build counterfactual families to train on, and write them into a run's folder.

    ``aconstruct`` is the coroutine.

    Args:
        instances: Questions with passages and reference answers: a file in any known layout, or rows.
        constructor: Model that writes the parts of a family.
        verifier: Model that checks them; better not of the constructor's family.
        out: Folder of the run. The same call continues it, and no call is paid for twice.
        reverifier: Model that checks finished families; the verifier by default.
        settings: Numbers of edits and attempts, lengths and decoding.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the run may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        layout: Layout of the questions; found out by default.
        limit: Number of sources to process, the first in seeded order; None for all.
        options: Ledger, retry, replay and force, as the options of ``eclose construct``.

    Returns:
        The manifest of the run, with counts of sources and calls.

    Raises:
        UserError: The questions cannot be read, or a model cannot be reached.
        SettingError: A setting is wrong.

    Examples:
        >>> free = eclose.CallSettings(unpriced=True)
        >>> result = eclose.construct(
        ...     "sources.jsonl", constructor=server, verifier=server, out="families", limit=2, calls=free
        ... )
        >>> result.manifest.counts.received
        2
    """
    settings, calls = settings or ConstructSettings(), add_budget(calls, budget)
    if reverifier is not None and not settings.reverify:
        raise SettingError("reverifier: the settings say not to verify finished families again. Leave one of them out.")
    names = [
        None if name is None else resolve(name, base_url, keyless=options is not None and options.replay)
        for name in (constructor, verifier, reverifier)
    ]
    models = await resolve_construction_models(names[0], names[1], names[2], deadline=calls.deadline)  # type: ignore[arg-type]
    path = ensure_data_file(instances, Path(out), "questions.jsonl")
    return await construct_families(path, models, out, settings, calls, options, layout=layout, limit=limit)


aconstruct = coroutine_of(construct)
"""Coroutine of ``construct``."""
