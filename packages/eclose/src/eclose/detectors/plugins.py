"""Detectors of other packages: how they are found, and the scores of all responses of a run by one of them.

A package names a function in the group ``eclose.detectors`` of its entry points. Responses are read in batches and
scored in this process, so memory does not grow with their number. There is no ledger: an interrupted run begins anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from eclose.calls.ledger.rows import RunUsage
from eclose.calls.run import RunOptions, RunResult
from eclose.detectors.scores import DetectorKind, DetectorScore, score_file_name
from eclose.errors import UserError
from eclose.files.jsonl import ReadRecord
from eclose.files.manifest import read_manifest
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep
from eclose.readers.response_tasks import ResponseTask, ResponseTasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

ENTRY_POINT_GROUP = "eclose.detectors"
BATCH_RESPONSES = 256
"""Responses scored at a time."""


class PluginDetector(Protocol):
    """A detector of another package, ready to score."""

    @property
    def identity(self) -> dict[str, Any]:
        """Everything but the input files that decides the scores, for the identity of a run."""
        ...

    def score(self, tasks: Sequence[ResponseTask]) -> list[DetectorScore]:
        """Return the score of each response, in order, each with ``DetectorKind.VERIFIER``."""
        ...


FindDetector = Callable[[str], PluginDetector | None]
"""What an entry point names: it takes a path or a name, and returns the detector, or None where it is not its own."""


def find_plugin_detector(source: str) -> PluginDetector:
    """Return the detector that a path or a name stands for, from the packages that are installed.

    Raises:
        UserError: No package has a detector for it.
    """
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        find: FindDetector = entry.load()
        if (detector := find(source)) is not None:
            return detector
    raise UserError(
        f"{source}: is no detector of an installed package. Name a folder that eclose verifier train wrote; what reads"
        " one comes with: pip install 'eclose[train]'"
    )


def score_responses_with_plugin(
    run: Path, detector: PluginDetector, *, out: Path | None = None, options: RunOptions | None = None
) -> RunResult:
    """Score every response of a run's folder, and write ``scores-verifier.jsonl``, or ``out``, with its manifest.

    Of the options only ``force`` is used: there are no calls to record or repeat.

    Raises:
        UserError: A file is missing, or the scores there are of other files or another detector.
    """
    inputs = (run / INSTANCES_FILE, run / RESPONSES_FILE)
    settings = {"detector": str(DetectorKind.VERIFIER), **detector.identity}
    step = PipelineStep("detect", settings, inputs, out or run / score_file_name(DetectorKind.VERIFIER))
    if (finished := step.claim(force=options is not None and options.force)) is not None:
        return RunResult(step, finished, again=True)
    tasks = ResponseTasks(*inputs)
    unscored: Counter[str] = Counter()
    step.write(_score_records(tasks, detector, unscored))
    # The step writes what every step has; reasons and questions are this one's own. Nothing was sent to a model.
    calls = dict.fromkeys(RunUsage._fields, 0)
    manifest = replace(
        read_manifest(step.manifest_path),
        funnel=tasks.counts,
        calls={**calls, "unscored": dict(sorted(unscored.items()))},
    )
    manifest.write(step.manifest_path)
    return RunResult(step, manifest, again=False)


def _score_records(
    records: Iterable[ReadRecord[ResponseTask]], detector: PluginDetector, unscored: Counter[str]
) -> Iterator[ReadRecord[DetectorScore]]:
    """Yield a score for each response, and the records that are none as they are."""
    iterator = iter(records)
    while batch := list(islice(iterator, BATCH_RESPONSES)):
        tasks = [record.value for record in batch if record.value is not None]
        scores = detector.score(tasks)
        expected = [(task.id, DetectorKind.VERIFIER) for task in tasks]
        if [(score.response_id, score.detector) for score in scores] != expected:
            raise UserError(
                f"{type(detector).__name__}: returned scores that are not one for each response, in order and of the"
                f" kind {DetectorKind.VERIFIER}. Report this to its package."
            )
        remaining = iter(scores)
        for record in batch:
            if record.value is None:
                yield ReadRecord(
                    record.where, rejected=record.rejected, error=record.error, error_kind=record.error_kind
                )
                continue
            score = next(remaining)
            if score.unscored is not None:
                unscored[score.unscored] += 1
            yield ReadRecord(record.where, value=score)
