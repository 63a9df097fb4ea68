"""The folder of a verifier, and the scores of responses by it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored
from eclose.errors import UserError
from eclose_train.verifier.linear import (
    VERIFIER_FILE,
    LinearVerifier,
    VerifierHead,
    VerifierInput,
    parse_linear_verifier,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.readers.response_tasks import ResponseTask
    from eclose_train.verifier.linear import HeadScores


def load_verifier(folder: Path) -> LinearVerifier:
    """Load a verifier from the folder that training wrote.

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


@dataclass(frozen=True, slots=True)
class VerifierDetector:
    """A verifier as ``eclose.detect`` runs it."""

    verifier: LinearVerifier

    @property
    def identity(self) -> dict[str, Any]:
        """Kind and fingerprint of the verifier."""
        return self.verifier.identity

    def score(self, tasks: Sequence[ResponseTask]) -> list[DetectorScore]:
        """Return the score of each response, in order."""
        return score_tasks(tasks, self.verifier)


def find_verifier(source: str) -> VerifierDetector | None:
    """Return the verifier of a folder, or None where the folder holds none: the entry point of ``eclose.detect``."""
    folder = Path(source)
    return VerifierDetector(load_verifier(folder)) if (folder / VERIFIER_FILE).is_file() else None


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
