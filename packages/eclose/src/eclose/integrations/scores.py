"""The scores of a judged run: a row for each response and metric, as every target of an export takes them.

An unjudged label has no value. It is exported as an error with its reason, never as 0.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import eclose
from eclose.diagnosis.response_failure import describe_response_failure
from eclose.files.growth import read_growth
from eclose.files.manifest import hash_file
from eclose.files.run_folder import JUDGMENTS_FILE
from eclose.files.verify import find_file_manifest
from eclose.prompts.judge_questions import CRITERION_QUESTIONS
from eclose.readers.judged_run import LeftOutResponse, read_judged_cases
from eclose.values.identity import content_hash
from eclose.values.judgment import Criterion
from eclose.values.three_valued import Label

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eclose.readers.judged_run import JudgedCase

_NAMESPACE = uuid.UUID("0b8a7c3e-6d0f-5e52-9a55-2f2f0c1c7c11")
"""Namespace of the ids; a change would double every score that was exported before."""
UNJUDGED_LABEL = "unjudged"
NO_FAILURE_LABEL = "none"


class ScoreName(StrEnum):
    """The names under which trace stores show the scores."""

    LOCAL_SOUNDNESS = "eclose.local_soundness"
    ALIGNMENT = "eclose.alignment"
    CLOSURE = "eclose.closure"
    COMPLETENESS = "eclose.completeness"
    ACCURACY = "eclose.accuracy"
    RELIABILITY = "eclose.reliability"
    FAILURE_CLASS = "eclose.failure_class"


_CRITERIA = {
    Criterion.LOCAL_SOUNDNESS: (ScoreName.LOCAL_SOUNDNESS, "sound", "unsound"),
    Criterion.ALIGNMENT: (ScoreName.ALIGNMENT, "aligned", "not_aligned"),
    Criterion.CLOSURE: (ScoreName.CLOSURE, "closed", "not_closed"),
    Criterion.COMPLETENESS: (ScoreName.COMPLETENESS, "complete", "incomplete"),
    Criterion.CORRECTNESS: (ScoreName.ACCURACY, "correct", "incorrect"),
}


@dataclass(frozen=True, slots=True)
class VerdictScore:
    """One score of one response."""

    id: str
    """UUID of run, response and name: the same at every export."""
    name: ScoreName
    value: Label = None
    """None where the label was not judged, and for the failure class, which has a label alone."""
    label: str | None = None
    """Category of the score; None where it was not judged."""
    explanation: str | None = None
    unjudged: str | None = None
    """Why there is no label; None where there is one."""
    guideline: str | None = None
    """Hash of the guideline that the judge applied; None where the run has no manifest."""

    @property
    def number(self) -> int | None:
        """The value as 1 or 0; None where there is none."""
        return None if self.value is None else int(self.value)


@dataclass(frozen=True, slots=True)
class ScoredResponse:
    """A response with its scores, and the span they are sent to."""

    response_id: str
    instance_id: str
    judge: str
    model: str | None
    trace_id: str
    span_id: str | None
    """None where the store knows traces alone."""
    derived: bool
    """Whether the trace id was derived from the response's id, since no span is known."""
    scores: tuple[VerdictScore, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The user's own columns of the row that the response was read from."""


@dataclass(frozen=True, slots=True)
class VerdictScoreTable:
    """The scores of a run."""

    run_id: str
    """Hash of the judge, its settings and the judged files."""
    judged_at: int
    """Time of the judgments in nanoseconds since 1970."""
    rows: tuple[ScoredResponse, ...]
    left_out: tuple[LeftOutResponse, ...] = ()
    """Responses without a judgment, with the reason."""
    notices: tuple[str, ...] = ()
    version: str = field(default_factory=lambda: eclose.__version__)

    @property
    def judged_time(self) -> str:
        """Time of the judgments, as ``2026-11-17T10:00:00Z``."""
        return datetime.fromtimestamp(self.judged_at // 10**9, UTC).isoformat().replace("+00:00", "Z")

    @property
    def score_count(self) -> int:
        """Number of scores of all responses."""
        return sum(len(row.scores) for row in self.rows)

    def batch_rows(self, size: int) -> Iterator[tuple[ScoredResponse, ...]]:
        """Yield the responses, ``size`` at a time."""
        for start in range(0, len(self.rows), size):
            yield self.rows[start : start + size]

    def iterate(self) -> Iterator[tuple[ScoredResponse, VerdictScore]]:
        """Yield every score with its response."""
        for row in self.rows:
            for score in row.scores:
                yield row, score

    def describe(self, row: ScoredResponse, score: VerdictScore) -> dict[str, str]:
        """Return the attributes that say how a score came about; those without a value are left out."""
        attributes = {
            "eclose.score.id": score.id,
            "eclose.run": self.run_id,
            "eclose.response.id": row.response_id,
            "eclose.question.id": row.instance_id,
            "eclose.judge.model": row.judge,
            "eclose.guideline.sha256": None if score.guideline is None else score.guideline.removeprefix("sha256:"),
            "eclose.version": self.version,
            "eclose.unjudged.reason": score.unjudged,
        }
        return {name: value for name, value in attributes.items() if value is not None}


class DeliveryStatus(StrEnum):
    """The outcome of sending scores."""

    SENT = "sent"
    PRESENT = "present"
    """The target has the score from an earlier export."""
    REFUSED = "refused"


class Delivery(NamedTuple):
    """The outcome of some scores of one response."""

    response_id: str
    scores: int
    status: DeliveryStatus = DeliveryStatus.SENT
    reason: str = ""


def read_score_table(run: Path, *, allow_stale: bool = False) -> VerdictScoreTable:
    """Read the scores of a judged run.

    Raises:
        UserError: The folder holds no judged run, or judgments of other responses and ``allow_stale`` is false.
    """
    case_set = read_judged_cases(run, allow_stale=allow_stale)
    judgments = run / JUDGMENTS_FILE
    manifest = find_file_manifest(judgments)
    # Without a manifest, as for imported labels, the content of the file is the identity of the run.
    if manifest is None:
        run_id, judged_at, guidelines = hash_file(judgments), judgments.stat().st_mtime_ns, None
    else:
        judged_at = int(datetime.fromisoformat(manifest.written_at).timestamp()) * 10**9
        growth = read_growth(judgments.parent)
        # A score keeps its id while the run grows.
        run_id = manifest.work_id if growth is None else growth.run_id
        guidelines = manifest.settings.get("guidelines")
    builder = _ScoreBuilder(run_id, guidelines if isinstance(guidelines, dict) else {})
    rows = tuple(builder.score(case) for case in case_set.cases)
    return VerdictScoreTable(run_id, judged_at, rows, case_set.left_out, case_set.notices)


def score_case(case: JudgedCase) -> tuple[VerdictScore, ...]:
    """Return the scores of one response outside of a run, under the names that exports use."""
    return _ScoreBuilder("", {}).score(case).scores


def derive_hex_id(text: str, length: int) -> str:
    """Return an id of ``length`` hexadecimal digits that depends on the text alone."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


@dataclass(frozen=True, slots=True)
class _ScoreBuilder:
    run_id: str
    guidelines: Mapping[str, str]

    def score(self, case: JudgedCase) -> ScoredResponse:
        response, span = case.response, case.response.span
        derived = span is None or not span.trace_id
        return ScoredResponse(
            response_id=response.id,
            instance_id=case.instance.id,
            judge=case.judgment.judge,
            model=None if response.source is None else response.source.model,
            trace_id=derive_hex_id(f"eclose trace {response.id}", 32) if span is None or derived else span.trace_id,
            span_id=derive_hex_id(f"eclose span {response.id}", 16) if span is None or derived else span.span_id,
            derived=derived,
            scores=(*(self._score_criterion(case, criterion) for criterion in Criterion), *self._score_whole(case)),
            columns=response.columns,
        )

    def _score_criterion(self, case: JudgedCase, criterion: Criterion) -> VerdictScore:
        name, positive, negative = _CRITERIA[criterion]
        judgment, value = case.judgment, case.judgment.label(criterion)
        guideline = self.guidelines.get(str(CRITERION_QUESTIONS[criterion]))
        if value is None:
            reason = judgment.unjudged.get(criterion, "a step was not judged")
            return self._build(case, name, unjudged=reason, guideline=guideline)
        explanation = judgment.reasons.get(criterion) or (
            _explain_steps(case) if criterion is Criterion.LOCAL_SOUNDNESS else None
        )
        label = positive if value else negative
        return self._build(case, name, value=value, label=label, explanation=explanation, guideline=guideline)

    def _score_whole(self, case: JudgedCase) -> Iterator[VerdictScore]:
        """Yield the reliability and the failure class, which rest on several labels and so on all guidelines."""
        verdict = case.verdict
        guideline = content_hash(dict(self.guidelines)) if self.guidelines else None
        unknown = {"unjudged": _explain_undecided(case), "guideline": guideline}
        known = {"explanation": describe_response_failure(case), "guideline": guideline}
        group = "unreliable" if verdict.trace_group is None else str(verdict.trace_group)
        reliability = unknown if verdict.reliable is None else {**known, "value": verdict.reliable, "label": group}
        yield self._build(case, ScoreName.RELIABILITY, **reliability)
        failure = {**known, "label": str(verdict.failure_class or NO_FAILURE_LABEL)}
        yield self._build(
            case, ScoreName.FAILURE_CLASS, **(unknown if verdict.globally_sufficient is None else failure)
        )

    def _build(self, case: JudgedCase, name: ScoreName, **fields: Any) -> VerdictScore:
        key = json.dumps([self.run_id, case.response.id, str(name)])
        return VerdictScore(str(uuid.uuid5(_NAMESPACE, key)), name, **fields)


def _explain_steps(case: JudgedCase) -> str | None:
    """Return the reasons of the unsound steps in the judge's words; None where there are none."""
    reasons = [
        f"Step {number}: {step.reason or step.failure or 'does not hold'}"
        for number, step in enumerate(case.judgment.steps, start=1)
        if step.sound is False
    ]
    return " ".join(reasons) or None


def _explain_undecided(case: JudgedCase) -> str:
    reasons = [
        f"{criterion}: {case.judgment.unjudged[criterion]}"
        for criterion in (Criterion.LOCAL_SOUNDNESS, Criterion.ALIGNMENT, Criterion.CLOSURE)
        if criterion in case.judgment.unjudged
    ]
    return "; ".join(reasons) or "a step was not judged"
