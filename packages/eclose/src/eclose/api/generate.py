"""The verb that lets a model answer questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.api.resolve import add_budget
from eclose.calls.adapters import find_adapter_recipes
from eclose.calls.progress_line import watch_run
from eclose.calls.sync import also_sync, coroutine_of
from eclose.files.tables import Rows, ensure_data_file
from eclose.generation import GenerateSettings, SourceLabels, find_generator_model, generate_responses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.calls.client import CallSettings
    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.resolve import ModelRef
    from eclose.calls.run import RunOptions, RunResult
    from eclose.progress import ProgressOption


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
    progress: ProgressOption = True,
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
        progress: Whether to show progress in a terminal or a notebook, or a function that is called with it.

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
    return await generate_responses(
        path, generator, out, settings, add_budget(calls, budget), watch_run(options, progress)
    )


agenerate = coroutine_of(generate)
"""Coroutine of ``generate``."""
