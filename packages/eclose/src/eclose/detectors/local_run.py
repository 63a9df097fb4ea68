"""Score all responses of a run with a detector whose model runs in this process, or in the workers of a cluster.

Responses are read one after the other, and the pairs of those in progress share batches of similar length. Every score
is in the ledger once it is computed, so the same command continues an interrupted run; a finished run loads no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.calls.client import CallSettings
from eclose.calls.local.microbatch import BatchQueue
from eclose.calls.record_loop import RecordJob
from eclose.calls.run import ModelRun, RunOptions, RunResult, run_models_on_records
from eclose.detectors.entailment import (
    BATCH_TOKENS,
    LocalDetector,
    PairPlan,
    StepLabels,
    score_pairs_by_length,
)
from eclose.detectors.entailment_models import EncodedPair, EntailmentModel
from eclose.detectors.run import count_unscored
from eclose.detectors.scores import DetectorScore, score_file_name
from eclose.errors import RecordError, SettingError, UserError
from eclose.files.jsonl import read_records
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep
from eclose.files.verify import check_result_provenance
from eclose.readers.response_tasks import ResponseTask, ResponseTasks
from eclose.values.judgment import Judgment

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.calls.ledger.ledger import Ledger
    from eclose.calls.resolve import ModelRef
    from eclose.detectors.settings import LocalDetectorSettings

DEFAULT_RESPONSES = 128
"""Responses in progress at a time, whose pairs share batches."""
_LINGER_SECONDS = 0.01
"""Seconds without a new pair after which a batch starts."""


async def score_responses_locally(
    run: Path,
    detector: LocalDetector,
    *,
    out: Path | None = None,
    judgments: Path | None = None,
    batch_tokens: int = BATCH_TOKENS,
    responses: int = DEFAULT_RESPONSES,
    options: RunOptions | None = None,
    allow_stale: bool = False,
) -> RunResult:
    """Score every response of a run's folder, and write ``scores-<detector>.jsonl``, or ``out``, with its manifest.

    ``judgments`` say which steps are substantive, for detectors that need such labels; by default those of the run.
    ``responses`` are in progress at a time.

    Raises:
        UserError: A file is missing, or the judgments were made from other files.
    """
    work = _plan_run(run, detector, out, judgments, batch_tokens, allow_stale=allow_stale)
    if responses < 1:
        raise SettingError("responses in progress must be at least 1.")
    return await run_models_on_records(work, limit_responses(responses), options)


def limit_responses(count: int = DEFAULT_RESPONSES) -> CallSettings:
    """Return the settings with which a run keeps this many responses in progress."""
    # A run keeps twice as many records in progress as calls.
    return CallSettings(concurrency=max(1, count // 2))


async def build_local_detector_run(
    run: Path,
    model: str,
    settings: LocalDetectorSettings,
    out: Path | None = None,
    judgments: Path | None = None,
    *,
    allow_stale: bool = False,
) -> LocalDetectorRun:
    """Build the run from values that can be sent to a worker, which loads the weights on its own machine."""
    detector = settings.build_detector(model)
    return _plan_run(run, detector, out, judgments, settings.batch_tokens, allow_stale=allow_stale)


def _plan_run(
    run: Path,
    detector: LocalDetector,
    out: Path | None,
    judgments: Path | None,
    batch_tokens: int,
    *,
    allow_stale: bool,
) -> LocalDetectorRun:
    if batch_tokens < 1:
        raise SettingError("batch_tokens of a detector must be at least 1.")
    inputs: tuple[Path, ...] = (run / INSTANCES_FILE, run / RESPONSES_FILE)
    if detector.needs_step_labels:
        judgments = judgments or run / JUDGMENTS_FILE
        if not judgments.is_file():
            raise UserError(
                f"{judgments}: no such file, and {detector.kind} scores substantive steps only. Judge the responses"
                f" first (eclose judge {run} --judge MODEL), or name a file of judgments."
            )
        if all(path.is_file() for path in inputs):
            provenance = check_result_provenance(judgments, inputs)
            provenance.refuse_stale(judgments, "Judge these responses", allow_stale=allow_stale)
        inputs = (*inputs, judgments)
    stage = PipelineStep("detect", detector.identity, inputs, out or run / score_file_name(detector.kind))
    return LocalDetectorRun(stage, detector, batch_tokens)


def read_step_labels(path: Path) -> dict[str, StepLabels]:
    """Return which steps of each response are substantive, by the id of the response.

    Raises:
        RecordError: A judgment cannot be read, or a response was labelled twice and differently.
    """
    labels: dict[str, StepLabels] = {}
    for judgment in read_records(path, Judgment):
        steps = StepLabels(judgment.judge, tuple(step.substantive for step in judgment.steps))
        if labels.setdefault(judgment.response_id, steps) != steps:
            problem = "was judged twice, with different steps. Keep one judgment of each response."
            raise RecordError(problem, path=path, record=repr(judgment.response_id))
    return labels


PairQueue: TypeAlias = BatchQueue[tuple[EncodedPair, ...], list[float]]
"""The pairs of concurrent responses, and the scores of each."""


def make_pair_queue(model: EntailmentModel, batch_tokens: int) -> PairQueue:
    """Return a queue for the pairs of concurrent responses, which are scored together."""

    def score_all(waiting: list[tuple[EncodedPair, ...]]) -> list[list[float]]:
        scores = iter(score_pairs_by_length(model, [pair for pairs in waiting for pair in pairs], batch_tokens))
        return [list(islice(scores, len(pairs))) for pairs in waiting]

    return BatchQueue(score_all, linger_seconds=_LINGER_SECONDS)


@dataclass(frozen=True)
class LocalDetectorRun(ModelRun[ResponseTask]):
    """A run that scores every response of a folder with a model in this process."""

    detector: LocalDetector
    batch_tokens: int = BATCH_TOKENS
    _opened: list[tuple[EntailmentModel, PairQueue, Mapping[str, StepLabels]]] = field(default_factory=list, init=False)
    """Loaded model and step labels, while the records are open."""

    @property
    def model_refs(self) -> tuple[ModelRef, ...]:
        """No chat model: the detector's own model is loaded with the records."""
        return ()

    @property
    def jobs(self) -> list[RecordJob]:
        """One job: the score of a response."""
        return [RecordJob(self._job, self._score, DetectorScore)]

    @property
    def _job(self) -> str:
        return f"detect {self.detector.kind}"

    async def _score(self, task: ResponseTask) -> DetectorScore:
        model, queue, labels = self._opened[0]
        plan = self.detector.plan_pairs(task, labels.get(task.id), model)
        return plan.conclude(await queue.submit(plan.pairs)) if isinstance(plan, PairPlan) else plan

    @contextmanager
    def open_records(self) -> Iterator[ResponseTasks]:
        """Open the responses with their questions, and load the model."""
        instances, responses, *judgments = self.stage.inputs
        tasks = ResponseTasks(instances, responses)
        self.source_counts.update(tasks.counts)
        labels = read_step_labels(judgments[0]) if judgments else {}
        # Loaded here and not before: a finished run is recognised without it.
        model = self.detector.model.load()
        self._opened.append((model, make_pair_queue(model, self.batch_tokens), labels))
        try:
            yield tasks
        finally:
            self._opened.clear()

    async def collect_notes(self, ledger: Ledger) -> dict[str, Any]:
        """Count the responses without a score, by reason."""
        return {"unscored": await count_unscored(ledger, self._job)}
