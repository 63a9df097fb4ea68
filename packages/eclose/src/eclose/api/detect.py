"""The verb that scores responses with a detector."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.api.resolve import add_budget, resolve
from eclose.calls.progress_line import watch_run
from eclose.calls.sync import also_sync, coroutine_of
from eclose.detectors.local_run import score_responses_locally
from eclose.detectors.plugins import find_plugin_detector, score_responses_with_plugin
from eclose.detectors.run import detect_responses
from eclose.detectors.scores import DetectorKind
from eclose.detectors.settings import ChatDetectorSettings, find_detector_settings
from eclose.errors import SettingError

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.resolve import ModelRef
    from eclose.calls.run import RunOptions, RunResult
    from eclose.detectors.settings import DetectorSettings
    from eclose.progress import ProgressOption


@also_sync
async def detect(
    run: Path | str,
    *,
    detector: str | DetectorSettings,
    model: str | ModelRef | None = None,
    verifier: Path | str | None = None,
    out: Path | str | None = None,
    judgments: Path | str | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    options: RunOptions | None = None,
    allow_stale: bool = False,
    progress: ProgressOption = True,
) -> RunResult:
    """Score every response of a run with a detector that sees no reference answer, and write ``scores-NAME.jsonl``.

    A score lies between 0 and 1, and a low one means failure. A response without a score has a reason instead.
    ``adetect`` is the coroutine.

    Args:
        run: Folder of a run, with questions and responses.
        detector: ``ragas``, ``veriscore`` or ``alignment``, which ask a chat model; ``closure`` or ``alignscore``,
            whose entailment model runs in this process; ``verifier``, learned from families; or the settings of one of
            the first five.
        model: Model behind the detector. For a chat model a name as ``eclose.resolve`` takes it; for an entailment
            model a folder of weights or a hub name. None for a verifier.
        verifier: For ``verifier``: the folder that ``eclose_train.train_verifier`` wrote, or the file or name of a
            detector that another package brings.
        out: File to write, for a second model behind one detector; ``scores-NAME.jsonl`` in the folder by default.
        judgments: For ``alignscore``: the judgments that say which steps are substantive; those of the run by default.
        calls: Concurrency, rate limits, deadlines and prices of the calls to a chat model.
        budget: The most that the calls may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        options: Ledger, retry, replay and force, as the options of ``eclose detect``.
        allow_stale: Use judgments that were made from other files than those in the folder.
        progress: Whether to show progress in a terminal or a notebook, or a function that is called with it.

    Returns:
        The manifest of the run, with counts of responses; those without a score are counted by reason.

    Raises:
        UserError: The files cannot be read, or the model cannot be reached or is no entailment model.
        SettingError: A setting is wrong, or the server reports no log-probabilities where these are needed.

    Examples:
        >>> free = eclose.CallSettings(unpriced=True)
        >>> result = eclose.detect("run", detector="alignment", model=server, calls=free)
        >>> result.manifest.counts.accepted, result.manifest.calls["unscored"]
        (60, {})
    """
    options = watch_run(options, progress)
    if detector == DetectorKind.VERIFIER or verifier is not None:
        return await _score_with_verifier(Path(run), detector, verifier, model, out, options)
    if model is None:
        raise SettingError("model: every detector but verifier needs the model behind it. Name one.")
    settings = find_detector_settings(detector) if isinstance(detector, str) else detector
    folder, scores = Path(run), None if out is None else Path(out)
    if isinstance(settings, ChatDetectorSettings):
        if judgments is not None:
            raise SettingError(f"judgments: the detector {settings.detector} reads none. Leave it out.")
        model_ref = resolve(model, base_url, keyless=options.replay)
        return await detect_responses(folder, model_ref, settings, add_budget(calls, budget), options, out=scores)
    if not isinstance(model, str):
        raise SettingError(f"model: the detector {settings.detector} takes a folder of weights or a hub name.")
    return await score_responses_locally(
        folder,
        settings.build_detector(model),
        out=scores,
        judgments=None if judgments is None else Path(judgments),
        batch_tokens=settings.batch_tokens,
        options=options,
        allow_stale=allow_stale,
    )


adetect = coroutine_of(detect)
"""Coroutine of ``detect``."""


async def _score_with_verifier(
    run: Path,
    detector: str | DetectorSettings,
    verifier: Path | str | None,
    model: str | ModelRef | None,
    out: Path | str | None,
    options: RunOptions | None,
) -> RunResult:
    if detector != DetectorKind.VERIFIER or verifier is None:
        raise SettingError("verifier: the detector verifier, and no other, needs the folder of a trained verifier.")
    if model is not None:
        raise SettingError("model: a verifier needs none. Leave it out.")
    plugin = find_plugin_detector(str(verifier))
    scores = None if out is None else Path(out)
    return await asyncio.to_thread(score_responses_with_plugin, run, plugin, out=scores, options=options)
