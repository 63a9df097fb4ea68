"""Scores of detectors: one record for each response and detector, with a reason where there is no score.

A score lies between 0 and 1, and a low one means failure. A response without a score is counted by its reason; it is
never scored 0 or 1 instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class DetectorKind(StrEnum):
    """Detectors of the paper (appendix A.5), classifiers that take the place of one, and learned verifiers."""

    STATEMENT_SUPPORT = "ragas"
    """RAGAS-style: share of the response's statements that the evidence supports."""
    CLAIM_SUPPORT = "veriscore"
    """VeriScore-style: share of the response's verifiable claims that the evidence supports."""
    STEP_SUPPORT = "alignscore"
    """AlignScore: each substantive step against each passage."""
    ALIGNMENT = "alignment"
    """Probability that a model answers Yes when asked whether the trace pursues the question."""
    CLOSURE = "closure"
    """Probability that the trace entails the submitted answer."""
    VERIFIER = "verifier"
    """Smallest score of a verifier's heads, learned from counterfactual families."""
    CONTROL = "control"
    """A simple feature of the text, named in place of a model; detectors are measured against it."""


def score_file_name(detector: DetectorKind) -> str:
    """Return the name of the file in a run's folder that holds the scores of a detector: ``scores-ragas.jsonl``."""
    return f"scores-{detector}.jsonl"


def list_score_files(run: Path) -> list[Path]:
    """Return the files of scores in a run's folder, by name."""
    # Rejected and quarantined records lie beside a result as scores-ragas.jsonl.rejected.jsonl.
    return sorted(path for path in run.glob("scores-*.jsonl") if ".jsonl." not in path.name)


def require_score_files(runs: Sequence[Path]) -> list[Path]:
    """Return the files of scores in the folders of some runs; raise UserError where there is none."""
    files = [path for run in runs for path in list_score_files(run)]
    if not files:
        raise UserError(
            f"{runs[0]}: holds no scores-*.jsonl. Score the responses first:"
            f" eclose detect {runs[0]} --detector NAME --model MODEL."
        )
    return files


class Unscored(StrEnum):
    """Why a response has no score."""

    NO_STATEMENT = "no statement"
    NO_CLAIM = "no claim"
    NO_SUBSTANTIVE_STEP = "no substantive step"
    NO_STEP_LABELS = "no step labels"
    """No judge said which steps are substantive; this is not the same as none being so."""
    NO_YES_OR_NO = "no yes or no"
    NO_ANSWER = "no answer"
    NO_TRACE = "no trace"
    TOO_LONG = "too long"
    NO_REPLY = "no usable reply"
    NO_HEAD = "head missing"
    """A head of the calibration has no score, so that the ranks of its heads cannot be combined."""


class DetectorBand(StrEnum):
    """What a calibrated detector says about a response."""

    FLAGGED = "flagged"
    """Strictly below the threshold."""
    UNCERTAIN = "uncertain"
    """Not flagged, and within the band above the threshold."""
    CLEAR = "clear"
    """Above the band."""
    UNSCORED = "unscored"
    """Without a score; the record has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorScore:
    """Score of one response by one detector."""

    response_id: str
    detector: DetectorKind
    model: str
    """Model behind the detector, with its revision where it has one: ``name@revision``."""
    score: float | None
    unscored: Unscored | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the score was computed from: statements with labels, windows, probabilities."""

    def __post_init__(self) -> None:
        if (self.score is None) is (self.unscored is None):
            raise ValueError("a response has a score or a reason why it has none")
        if self.score is not None and not 0 <= self.score <= 1:
            raise ValueError(f"score {self.score} is not between 0 and 1")
