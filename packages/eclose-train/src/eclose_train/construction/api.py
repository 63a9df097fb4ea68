"""The verb that builds counterfactual families."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eclose.api.resolve import add_budget, resolve
from eclose.calls.progress_line import watch_run
from eclose.calls.sync import also_sync, coroutine_of
from eclose.errors import SettingError
from eclose.files.tables import Rows, ensure_data_file
from eclose.readers.layouts import RecordLayout
from eclose_train.construction.run import construct_families, resolve_construction_models
from eclose_train.construction.settings import ConstructSettings

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.resolve import ModelRef
    from eclose.calls.run import RunOptions, RunResult
    from eclose.progress import ProgressOption


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
    progress: ProgressOption = True,
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
        progress: Whether to show progress in a terminal or a notebook, or a function that is called with it.

    Returns:
        The manifest of the run, with counts of sources and calls.

    Raises:
        UserError: The questions cannot be read, or a model cannot be reached.
        SettingError: A setting is wrong.

    Examples:
        >>> free = eclose.CallSettings(unpriced=True)
        >>> result = eclose_train.construct(
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
    return await construct_families(
        path, models, out, settings, calls, watch_run(options, progress), layout=layout, limit=limit
    )


aconstruct = coroutine_of(construct)
"""Coroutine of ``construct``."""
