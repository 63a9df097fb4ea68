"""The folder of a verifier, and the scores of all responses of a run by it.

Responses are read in batches and scored in this process, so memory does not grow with their number. There is no ledger:
a verifier is faster than one, and an interrupted run begins anew.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from eclose.calls.run import RunOptions, RunResult
from eclose.detection.scores import DetectorKind, DetectorScore, Unscored, score_file_name
from eclose.detection.verifier.linear import (
    VERIFIER_FILE,
    LinearVerifier,
    VerifierHead,
    VerifierInput,
    parse_linear_verifier,
)
from eclose.errors import UserError
from eclose.response_tasks import ResponseTask, ResponseTasks
from eclose.store.ledger.rows import RunUsage
from eclose.store.records.jsonl import ReadRecord
from eclose.store.runs.folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.store.runs.manifest import read_manifest
from eclose.store.runs.step import PipelineStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from eclose.detection.verifier.linear import HeadScores


def load_verifier(folder: Path) -> LinearVerifier:
    """Load a verifier from the folder that training wrote.

    Args:
        folder: The folder.

    Raises:
        UserError: The folder holds no verifier, or one of another release.
    """
    path = folder / VERIFIER_FILE
    if not path.is_file():
        raise UserError(f"{folder}: holds no {VERIFIER_FILE}. Name a folder that eclose verifier train wrote.")
    try:
        document = json.loads(path.read_bytes())
        kind = document["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is no verifier ({error}).") from error
    if kind == "linear":
        return parse_linear_verifier(document, str(path))
    raise UserError(f"{path}: is of the unknown kind {kind!r}. It was trained by another release.")


BATCH_RESPONSES = 256
"""Responses scored at a time."""


def score_responses_with_verifier(
    run: Path, verifier: LinearVerifier, *, out: Path | None = None, options: RunOptions | None = None
) -> RunResult:
    """Score every response of a run's folder, and write ``scores-verifier.jsonl`` with its manifest.

    Args:
        run: Folder with ``instances.jsonl`` and ``responses.jsonl``.
        verifier: The verifier.
        out: File to write; None for the run's folder.
        options: Only ``force`` is used: there are no calls to record or repeat.

    Returns:
        The result; its manifest counts every response, and those without a score by reason.

    Raises:
        UserError: A file is missing, or the scores there are of other files or another verifier.
    """
    inputs = (run / INSTANCES_FILE, run / RESPONSES_FILE)
    settings = {"detector": str(DetectorKind.VERIFIER), **verifier.identity}
    step = PipelineStep("detect", settings, inputs, out or run / score_file_name(DetectorKind.VERIFIER))
    if (finished := step.claim(force=options is not None and options.force)) is not None:
        return RunResult(step, finished, again=True)
    tasks = ResponseTasks(*inputs)
    unscored: Counter[str] = Counter()
    step.write(_score_records(tasks, verifier, unscored))
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
    records: Iterable[ReadRecord[ResponseTask]], verifier: LinearVerifier, unscored: Counter[str]
) -> Iterator[ReadRecord[DetectorScore]]:
    """Yield a score for each response, and the records that are none as they are."""
    iterator = iter(records)
    while batch := list(islice(iterator, BATCH_RESPONSES)):
        scores = iter(score_tasks([record.value for record in batch if record.value is not None], verifier))
        for record in batch:
            if record.value is None:
                yield ReadRecord(
                    record.where, rejected=record.rejected, error=record.error, error_kind=record.error_kind
                )
                continue
            score = next(scores)
            if score.unscored is not None:
                unscored[score.unscored] += 1
            yield ReadRecord(record.where, value=score)


def score_tasks(tasks: Sequence[ResponseTask], verifier: LinearVerifier) -> list[DetectorScore]:
    """Return the score of each response: the smallest of the heads' values."""
    inputs = [
        VerifierInput(
            task.instance.question, task.response.trace.texts, task.response.answer or "", task.instance.evidence
        )
        for task in tasks
    ]
    heads = verifier.score(inputs)
    return [
        conclude_score(task.id, verifier, verifier_input, values)
        for task, verifier_input, values in zip(tasks, inputs, heads, strict=True)
    ]


def conclude_score(
    response_id: str, verifier: LinearVerifier, verifier_input: VerifierInput, values: HeadScores
) -> DetectorScore:
    """Return the score of a response from the values of its heads, or the reason why it has none.

    A minimum over fewer heads than the verifier has would be too high, so one missing head leaves no score.
    """
    reason = None
    if not verifier_input.steps:
        reason = Unscored.NO_TRACE
    elif VerifierHead.CLOSURE in verifier.heads and not verifier_input.answer.strip():
        reason = Unscored.NO_ANSWER
    elif len(values) < len(verifier.heads):
        reason = Unscored.NO_HEAD  # a question without passages has no support
    return DetectorScore(
        response_id=response_id,
        detector=DetectorKind.VERIFIER,
        model=verifier.name,
        score=None if reason else min(values.values()),
        unscored=reason,
        details={head.value: value for head, value in values.items()},
    )
