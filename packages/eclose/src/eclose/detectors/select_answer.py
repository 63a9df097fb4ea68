"""Best of k: one response chosen among several to a question, by agreement of answers and by a detector's score.

The default takes the responses whose answer most others share, and of these the one with the highest score. A score
alone loses with more samples: the highest of many scores is more often a mistake of the detector. A question may be
left without a response, with a reason, where agreement or score is too low.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.detectors.bands import rank_records
from eclose.detectors.calibrate import read_calibration
from eclose.detectors.joined import index_scores
from eclose.detectors.scores import DetectorScore
from eclose.errors import SettingError, UserError
from eclose.files.json_reader import require_regular_file
from eclose.files.jsonl import ReadRecord, read_records
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep, PipelineStepResult, run_pipeline_steps
from eclose.readers.judged_run import RunRecords, describe_rejects, read_run_records
from eclose.values.answers import equal_up_to_spelling, match_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from eclose.values.response import Response
    from eclose.values.verdict import SettledVerdict

CHOICES_FILE = "choices.jsonl"
"""Chosen responses, one record for each question."""


class ChoiceStrategy(StrEnum):
    """How a response is chosen; ties go to the response that comes first."""

    MAJORITY_VERIFIER = "majority-verifier"
    """Highest score among the responses whose answer most responses share."""
    VERIFIER = "verifier"
    """Highest score of all."""
    MAJORITY = "majority"
    """First of the responses whose answer most responses share."""
    RANDOM = "random"
    """Any response with an answer, drawn by seed and question."""


class Abstention(StrEnum):
    """Why no response to a question is chosen."""

    NO_RESPONSE = "no response"
    NO_ANSWER = "no answer"
    """No response submits an answer."""
    LOW_AGREEMENT = "low agreement"
    LOW_SCORE = "low score"
    NO_SCORE = "no score"
    """A lowest score is required, and the chosen response has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSettings:
    """Settings of a choice.

    Raises:
        SettingError: The strategy is unknown, or a limit is not between 0 and 1.
    """

    strategy: ChoiceStrategy = ChoiceStrategy.MAJORITY_VERIFIER
    min_agreement: float = 0.0
    """Smallest share of the question's responses that must share the chosen answer (0 to 1)."""
    min_score: float = 0.0
    """Lowest score of the chosen response: a rank with a calibration, the detector's score without (0 to 1)."""
    seed: int = 42
    """Seed of the random strategy."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "strategy", ChoiceStrategy(self.strategy))
        except ValueError as unknown:
            raise SettingError(f"{unknown}. Choose from: {', '.join(ChoiceStrategy)}.") from unknown
        if not (0 <= self.min_agreement <= 1 and 0 <= self.min_score <= 1):
            raise SettingError("min_agreement and min_score of a choice lie between 0 and 1.")

    @property
    def uses_scores(self) -> bool:
        """Whether a score decides anything."""
        return self.min_score > 0 or self.strategy in (ChoiceStrategy.MAJORITY_VERIFIER, ChoiceStrategy.VERIFIER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseChoice:
    """The response chosen for a question, or the reason why there is none."""

    instance_id: str
    strategy: ChoiceStrategy
    response_id: str | None
    abstained: Abstention | None = None
    responses: int
    """Responses to the question."""
    answered: int
    """Responses that submit an answer."""
    agreement: float | None = None
    """Share of the question's responses with the answer of the chosen one, itself included."""
    score: float | None = None
    """Score of the chosen response, also where it was too low."""
    candidates: int = 0
    """Responses among which the score or the order decided."""
    unscored: int = 0
    """Candidates without a score; one of these is chosen only where none has a score."""

    def __post_init__(self) -> None:
        if (self.response_id is None) is (self.abstained is None):
            raise ValueError("a choice has a response or a reason why it has none")


def choose_responses(
    responses: Iterable[Response],
    scores: Mapping[str, float | None],
    settings: ChoiceSettings | None = None,
    *,
    instances: Iterable[str] = (),
) -> list[ResponseChoice]:
    """Choose one response for each question: those of ``instances`` in order, then the others.

    The order of the responses breaks ties; a response without a score has None or no entry.
    """
    settings = settings or ChoiceSettings()
    by_question: dict[str, list[Response]] = {instance_id: [] for instance_id in instances}
    for response in responses:
        by_question.setdefault(response.instance_id, []).append(response)
    return [_choose_response(instance_id, group, scores, settings) for instance_id, group in by_question.items()]


def _choose_response(
    instance_id: str, group: Sequence[Response], scores: Mapping[str, float | None], settings: ChoiceSettings
) -> ResponseChoice:
    answered = [response for response in group if response.answer is not None and response.answer.strip()]
    if not answered:
        return ResponseChoice(
            instance_id=instance_id,
            strategy=settings.strategy,
            response_id=None,
            abstained=Abstention.NO_ANSWER if group else Abstention.NO_RESPONSE,
            responses=len(group),
            answered=0,
        )
    support = count_support([response.answer or "" for response in answered])
    candidates = list(answered)
    if settings.strategy in (ChoiceStrategy.MAJORITY_VERIFIER, ChoiceStrategy.MAJORITY):
        # Responses of several answers are left where these are equally frequent.
        candidates = [row for row, votes in zip(answered, support, strict=True) if votes == max(support)]
    winner = candidates[0]
    if settings.strategy is ChoiceStrategy.RANDOM:
        # Seeded by question: a choice does not depend on the other questions of the file.
        winner = random.Random(f"{settings.seed} {instance_id}").choice(candidates)
    elif settings.strategy is not ChoiceStrategy.MAJORITY:
        # ``max`` keeps the first of equal scores; no score counts below every score.
        winner = max(candidates, key=lambda row: -1.0 if (score := scores.get(row.id)) is None else score)
    agreement = support[answered.index(winner)] / len(group)
    abstained = _find_abstention(agreement, scores.get(winner.id), settings)
    return ResponseChoice(
        instance_id=instance_id,
        strategy=settings.strategy,
        response_id=None if abstained else winner.id,
        abstained=abstained,
        responses=len(group),
        answered=len(answered),
        agreement=agreement,
        score=scores.get(winner.id),
        candidates=len(candidates),
        unscored=sum(scores.get(row.id) is None for row in candidates),
    )


def count_support(answers: Sequence[str]) -> list[int]:
    """Return for each answer how many of the answers are the same, itself included.

    >>> count_support(["Norman Jewison", "Jewison", "Cher"])
    [2, 2, 1]
    """
    # Distinct texts are compared once; matching is not transitive, so there are no groups to assign answers to.
    counts = Counter(answers)
    return [sum(count for other, count in counts.items() if is_same_answer(answer, other)) for answer in answers]


def is_same_answer(first: str, second: str) -> bool:
    """Return whether two answers match by the rule for answers, or differ in spelling alone."""
    # The rule sees no letters beyond ASCII, so equal texts and spellings are compared beside it.
    return first == second or match_answer(first, second) or equal_up_to_spelling(first, second)


def _find_abstention(agreement: float, score: float | None, settings: ChoiceSettings) -> Abstention | None:
    if agreement < settings.min_agreement:
        return Abstention.LOW_AGREEMENT
    if settings.min_score == 0:
        return None
    if score is None:
        return Abstention.NO_SCORE
    return Abstention.LOW_SCORE if score < settings.min_score else None


@dataclass(frozen=True, slots=True)
class ChoiceQuality:
    """How good chosen responses are, by settled verdicts."""

    questions: int
    chosen: int
    abstained: Mapping[str, int] = field(default_factory=dict)
    """Questions without a chosen response, by reason."""
    reliable: int = 0
    """Chosen responses that are reliable."""
    reliability_known: int = 0
    """Chosen responses whose labels decide whether they are reliable."""
    correct: int = 0
    correctness_known: int = 0

    @property
    def reliable_share(self) -> float | None:
        """Reliable among the chosen responses with a known label."""
        return self.reliable / self.reliability_known if self.reliability_known else None

    @property
    def accuracy(self) -> float | None:
        """Correct among the chosen responses with a known label."""
        return self.correct / self.correctness_known if self.correctness_known else None


def evaluate_choices(choices: Iterable[ResponseChoice], verdicts: Iterable[SettledVerdict]) -> ChoiceQuality:
    """Return how many chosen responses are reliable and correct; unlabelled ones count in neither share."""
    rows = list(choices)
    labels = {row.response_id: row.verdict for row in verdicts}
    chosen = [labels.get(row.response_id) for row in rows if row.response_id is not None]
    reliable = [verdict.reliable for verdict in chosen if verdict is not None and verdict.reliable is not None]
    correct = [verdict.correct for verdict in chosen if verdict is not None and verdict.correct is not None]
    return ChoiceQuality(
        questions=len(rows),
        chosen=len(chosen),
        abstained=dict(sorted(Counter(str(row.abstained) for row in rows if row.abstained).items())),
        reliable=sum(reliable),
        reliability_known=len(reliable),
        correct=sum(correct),
        correctness_known=len(correct),
    )


@dataclass(frozen=True)
class ChosenRun:
    """The choices of a run."""

    choices: tuple[ResponseChoice, ...]
    step: PipelineStepResult
    """The written file, with the number of questions."""
    notices: tuple[str, ...]
    """Sentences on unreadable records and on a calibration of another benchmark."""
    records: RunRecords
    scores: Mapping[str, float | None]
    """Score or combined rank of each response."""

    def compare_strategy(self, strategy: ChoiceStrategy, seed: int = 42) -> list[ResponseChoice]:
        """Return the choices of another strategy among the same responses, without abstention for a limit."""
        settings = ChoiceSettings(strategy=strategy, seed=seed)
        return choose_responses(self.records.responses, self.scores, settings, instances=self.records.instances)


def choose_run(
    run: Path,
    *,
    scores: Path | None = None,
    calibration: Path | None = None,
    settings: ChoiceSettings | None = None,
    out: Path | None = None,
    allow_other_benchmark: bool = False,
    force: bool = False,
) -> ChosenRun:
    """Choose one response for each question of a run, and write ``choices.jsonl`` with its manifest.

    Args:
        run: Folder with questions and responses.
        scores: File of one detector's scores; not needed by strategies without a score.
        calibration: Calibration of the detector; scores then become combined ranks.
        settings: Strategy and limits.
        out: File of the choices; ``choices.jsonl`` in the run by default.
        allow_other_benchmark: Use a calibration of another benchmark.
        force: Replace choices that were made from other files or with other settings.

    Returns:
        The choices, the files that were written, and sentences on records that could not be used.

    Raises:
        UserError: The scores are of several detectors or of another one than the calibration.
        SettingError: The strategy needs scores.
    """
    settings = settings or ChoiceSettings()
    if settings.uses_scores and scores is None:
        raise SettingError(f"--strategy {settings.strategy} chooses by scores. Name their file with --scores.")
    records = read_run_records(run)
    values = _read_scores(scores, calibration)
    notices = describe_rejects(records.rejected)
    if calibration is not None:
        benchmarks = {instance.benchmark for instance in records.instances.values()}
        notices += read_calibration(calibration).refuse_other_benchmarks(benchmarks, allow=allow_other_benchmark)
    inputs = (run / INSTANCES_FILE, run / RESPONSES_FILE, *(path for path in (scores, calibration) if path is not None))
    identity = {name: getattr(settings, name) for name in ("strategy", "min_agreement", "min_score", "seed")}
    step = PipelineStep("detect choose", identity, inputs, out or run / CHOICES_FILE)
    choices = choose_responses(records.responses, values, settings, instances=records.instances)
    rows = ((ReadRecord(choice.instance_id, value=choice),) for choice in choices)
    (result,) = run_pipeline_steps([step], rows, force=force)
    return ChosenRun(tuple(choices), result, notices, records, values)


def _read_scores(scores: Path | None, calibration: Path | None) -> dict[str, float | None]:
    if scores is None:
        return {}
    require_regular_file(scores)
    rows = read_records(scores, DetectorScore)
    if calibration is not None:
        return {id_: record.score for id_, record in rank_records(read_calibration(calibration), rows).items()}
    parts = index_scores(rows)
    if len(parts) > 1:
        raise UserError(f"{scores}: holds scores of {len(parts)} detectors. Name a file of one detector.")
    return {id_: record.score for part in parts.values() for id_, record in part.items()}
