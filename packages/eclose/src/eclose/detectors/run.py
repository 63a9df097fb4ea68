"""Score all responses of a run with a detector that asks a chat model, and forecast the cost of doing so.

A run's folder holds ``instances.jsonl`` and ``responses.jsonl``; a detector adds ``scores-<detector>.jsonl``.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.client import CallSettings
from eclose.calls.forecast import UsageForecast, drop_repeated_requests, find_writing_habits, forecast_usage
from eclose.calls.record_loop import RecordJob
from eclose.calls.resolve import LocalModelRef, ModelRef, find_model_ref, resolve_model_ref
from eclose.calls.run import ModelRun, RunOptions, RunResult, find_forecast_price, run_models_on_records
from eclose.detectors.claim_support import build_claim_requests, score_claim_support
from eclose.detectors.scores import DetectorScore, score_file_name
from eclose.detectors.settings import ChatDetectorSettings
from eclose.detectors.yes_probability import build_alignment_request, score_alignment
from eclose.errors import SettingError
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep
from eclose.readers.response_tasks import ResponseTask, ResponseTasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.ledger.ledger import Ledger
    from eclose.calls.model import ChatModel, Request

DETECT_JOB = "detect"


async def detect_responses(
    run: Path | str,
    model: ModelRef | str,
    settings: ChatDetectorSettings,
    calls: CallSettings | None = None,
    options: RunOptions | None = None,
    *,
    out: Path | None = None,
) -> RunResult:
    """Score every response of a run's folder with a detector, and write ``scores-<detector>.jsonl`` there, or ``out``.

    Raises:
        SettingError: The model runs in this process, or its server reports no log-probabilities where these are needed.
    """
    calls = calls or CallSettings()
    plan = await plan_detection(run, model, settings, deadline=calls.deadline, out=out)
    return await run_models_on_records(plan, calls, options)


async def plan_detection(
    run: Path | str,
    model: ModelRef | str,
    settings: ChatDetectorSettings,
    *,
    deadline: float,
    out: Path | None = None,
) -> DetectorRun:
    """Return the run that ``detect_responses`` makes; the server of the model is asked for its name."""
    folder, detector_model = Path(run), await resolve_model_ref(model, deadline)
    if isinstance(detector_model, LocalModelRef):
        # Refused before the weights are loaded, which may take minutes.
        needed = "log-probabilities" if settings.asks_yes_or_no else "replies of a JSON schema"
        raise SettingError(
            f"{detector_model.name}: the detector {settings.detector} needs {needed}, which a model in this process"
            " does not give. Use a model server."
        )
    settings = _adapt_thinking(settings, detector_model)
    identity = {**detector_model.identity, **settings.identity}
    # The result depends on both files, so a change of either makes the scores stale.
    inputs = (folder / INSTANCES_FILE, folder / RESPONSES_FILE)
    stage = PipelineStep("detect", identity, inputs, out or folder / score_file_name(settings.detector))
    return DetectorRun(stage, detector_model, settings)


async def build_detector_run(
    run: Path,
    model: str,
    base_url: str | ServerAddress | None,
    settings: ChatDetectorSettings,
    deadline: float,
    out: Path | None = None,
) -> DetectorRun:
    """Build the run from values that can be sent to a worker on another machine."""
    detector_model = find_model_ref(model, base_url=base_url)
    return await plan_detection(run, detector_model, settings, deadline=deadline, out=out)


def _adapt_thinking(settings: ChatDetectorSettings, model: ModelRef) -> ChatDetectorSettings:
    """Return the settings with reasoning turned off where the first token must be the answer and the server can."""
    if settings.asks_yes_or_no and settings.thinking is None:
        return replace(settings, thinking=model.thinking)
    return settings


@dataclass(frozen=True)
class DetectorRun(ModelRun[ResponseTask]):
    """A run that scores every response of a file with one detector."""

    model: ModelRef
    settings: ChatDetectorSettings

    @property
    def model_refs(self) -> tuple[ModelRef]:
        """The model behind the detector."""
        return (self.model,)

    @property
    def jobs(self) -> list[RecordJob]:
        """One job: all questions about a response."""
        return [RecordJob(DETECT_JOB, self._score, DetectorScore)]

    async def _score(self, task: ResponseTask, model: ChatModel) -> DetectorScore:
        score_response = score_alignment if self.settings.asks_yes_or_no else score_claim_support
        return await score_response(task.instance, task.response, model, self.settings)

    @contextmanager
    def open_records(self) -> Iterator[ResponseTasks]:
        """Open the responses with their questions."""
        instances, responses = self.stage.inputs
        tasks = ResponseTasks(instances, responses)
        # Known only once the files are indexed, which happens inside the run.
        self.source_counts.update(tasks.counts)
        yield tasks

    async def collect_notes(self, ledger: Ledger) -> dict[str, Any]:
        """Count the responses without a score, by reason."""
        return {"unscored": await count_unscored(ledger, DETECT_JOB)}


async def count_unscored(ledger: Ledger, job: str) -> dict[str, int]:
    """Return the number of responses that a job left without a score, by reason."""
    unscored: Counter[str] = Counter()
    async for outcome in ledger.read_outcomes(job):
        if outcome.kind == "accepted" and (reason := json.loads(outcome.body or b"{}").get("unscored")):
            unscored[reason] += 1
    return dict(sorted(unscored.items()))


def forecast_detection(
    run: Path | str, model: ModelRef, settings: ChatDetectorSettings, calls: CallSettings
) -> UsageForecast:
    """Return the calls, tokens and cost of a detector, supposing that the first attempt of each call succeeds.

    How many statements a response makes is known only after the first call; one for each step and one for the answer
    are supposed.
    """
    settings = _adapt_thinking(settings, model)
    tasks = ResponseTasks(Path(run) / INSTANCES_FILE, Path(run) / RESPONSES_FILE)
    requests = drop_repeated_requests(_build_requests(tasks, settings), model.name)
    return forecast_usage(requests, find_forecast_price(model, calls), find_writing_habits(model.name))


def _build_requests(tasks: ResponseTasks, settings: ChatDetectorSettings) -> Iterator[Request]:
    for record in tasks:
        if (task := record.value) is None:
            continue
        if not settings.asks_yes_or_no:
            yield from build_claim_requests(task.instance, task.response, settings)
        elif task.response.trace.steps:
            yield build_alignment_request(task.instance, task.response, settings)
