"""Evaluation of a calibrated detector on other labelled responses: what it finds, what it costs, and what it saves.

The controls of ``eclose.detectors.overlap`` are evaluated on the same responses and the same draws. Statistics of the
calibrated threshold say how well it carries over; those of the study recalibrate the threshold on the responses at
hand. Ranks of several heads rest on the calibration in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.detectors.bands import rank_records
from eclose.detectors.calibrate import DetectorCalibration
from eclose.detectors.joined import (
    DetectorStudy,
    StudyInputs,
    index_responses,
    index_scores,
    index_verdicts,
    make_score_table,
    read_study_inputs,
    study_detectors,
)
from eclose.detectors.overlap import score_controls
from eclose.detectors.scores import DetectorBand
from eclose.detectors.study_statistics import DetectorIdentity, StudyGroup, StudySettings
from eclose.files.manifest import hash_file
from eclose.files.run_folder import RESPONSES_FILE
from eclose.readers.judged_run import read_run_records
from eclose.stats.bootstrap import bootstrap_rates
from eclose.stats.intervals import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from eclose.detectors.study_statistics import ScoreTable
    from eclose.stats.arrays import Flags, Floats
    from eclose.values.instance import Instance
    from eclose.values.three_valued import Label

RECALL_TARGETS = (0.5, 0.8, 0.9, 0.95, 1.0)
"""Recalls of the gap at which detectors are compared by the judge calls they need."""


class AbstentionPoint(NamedTuple):
    """The responses that are answered where all below a rank are abstained on."""

    threshold: float | None
    """Lowest rank that is answered; None answers every response, those without a score included."""
    answered: int
    coverage: float
    """Answered among all decided responses."""
    reliable: float | None
    """Reliable among the answered."""
    correct: float | None
    """Correct among the answered whose correctness is known."""
    correctness_known: int


class CascadePoint(NamedTuple):
    """What becomes of all decided responses where those below a rank are judged and the others are trusted.

    Responses without a score are judged at every threshold.
    """

    threshold: float | None
    """Responses strictly below are judged; None judges every response."""
    judged: int
    saved: int
    """Responses that need no judge."""
    gaps_missed: int
    """Responses in the gap that are trusted."""
    unsound_missed: int
    """Locally unsound responses that are trusted."""
    recall: float | None
    """Judged among the responses in the gap."""


class JudgeCalls(NamedTuple):
    """Judged responses that a detector needs to reach a recall of the gap."""

    recall: float
    """Recall to reach."""
    judged: Mapping[DetectorIdentity, int]
    """Fewest judged responses, for the detector and each control."""
    by_chance: int
    """Judged responses that reach it on average where responses are drawn at random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorEvaluation:
    """A calibrated detector on labelled responses."""

    calibration: DetectorCalibration
    responses: int
    """Decided responses, on which all curves rest."""
    study: DetectorStudy
    """The paper's statistics of the combined ranks and of the controls; thresholds are recalibrated here."""
    bands: Mapping[DetectorBand, Mapping[StudyGroup, int]]
    """Responses of each group in each band of the calibration."""
    flagged: Mapping[StudyGroup, Estimate]
    """Share of each group's scored responses below the calibrated threshold; of the reliable ones it is the FPR."""
    abstention: tuple[AbstentionPoint, ...]
    """From no response abstained on to the fewest answered."""
    cascade: tuple[CascadePoint, ...]
    """From the fewest judged responses to all."""
    judge_calls: tuple[JudgeCalls, ...]


def evaluate_detector(
    calibration: DetectorCalibration,
    data: StudyInputs,
    instances: Mapping[str, Instance],
    settings: StudySettings | None = None,
    *,
    allow_other_benchmark: bool = False,
) -> DetectorEvaluation:
    """Evaluate a calibrated detector and the controls on labelled responses, other ones than those of the calibration.

    The data hold scores of the same detector, model and revision; ``instances`` are the questions by id.

    Raises:
        UserError: The calibration is of another detector, model, revision or benchmark.
    """
    settings = settings or StudySettings(retention=calibration.settings.retention)
    answered = dict(sorted(index_responses(data.responses).items()))
    labels = index_verdicts(data.verdicts)
    records = [*rank_records(calibration, data.scores).values(), *score_controls(instances, answered.values())]
    table = make_score_table(answered, labels, index_scores(records))
    benchmarks = {labels[id_].benchmark for id_ in table.response_ids}
    notices = calibration.refuse_other_benchmarks(benchmarks, allow=allow_other_benchmark)
    ranks = table.scores[table.detectors.index(calibration.identity)]
    bands = [calibration.find_band(None if np.isnan(rank) else float(rank)) for rank in ranks]
    correct = [labels[id_].verdict.correct for id_ in table.response_ids]
    study = study_detectors(replace(data, scores=records, notices=(*data.notices, *notices)), settings)
    return DetectorEvaluation(
        calibration=calibration,
        responses=len(table.response_ids),
        study=study,
        bands={
            band: {group: int(table.members[group][[name is band for name in bands]].sum()) for group in StudyGroup}
            for band in DetectorBand
        },
        flagged=_estimate_flagged(calibration.threshold, ranks, table, settings),
        abstention=trace_abstention(ranks, table.members[StudyGroup.RELIABLE], correct),
        cascade=trace_cascade(ranks, table.members[StudyGroup.GAP], table.members[StudyGroup.LOCALLY_UNSOUND]),
        judge_calls=tuple(_count_judge_calls(table, target) for target in RECALL_TARGETS),
    )


def _estimate_flagged(
    threshold: float, ranks: Floats, table: ScoreTable, settings: StudySettings
) -> dict[StudyGroup, Estimate]:
    """Return the share of each group below a fixed threshold; questions are drawn with all their responses."""
    members = np.stack([table.members[group] for group in StudyGroup], axis=1)
    scored = members & ~np.isnan(ranks)[:, np.newaxis]
    # A missing rank is NaN, which is below nothing.
    flagged = scored & (ranks < threshold)[:, np.newaxis]
    replicates = bootstrap_rates(
        flagged.astype(float),
        scored.astype(float),
        table.question,
        rng=np.random.default_rng(settings.seed),
        resamples=settings.resamples,
    )
    return dict(zip(StudyGroup, replicates.estimates(settings.level), strict=True))


def trace_abstention(ranks: Floats, reliable: Flags, correct: Sequence[Label]) -> tuple[AbstentionPoint, ...]:
    """Return coverage against reliability and accuracy at every distinct rank; NaN ranks are answered last."""
    labelled = np.array([label is not None for label in correct], bool)
    right = np.array([bool(label) for label in correct], bool)
    # Highest rank first; responses without a rank come last, and only the point of all responses has them.
    order = np.argsort(-np.where(np.isnan(ranks), -np.inf, ranks), kind="stable")
    sums = [np.cumsum(flags[order]) for flags in (reliable, labelled, right & labelled)]
    ranked = ranks[order][: int((~np.isnan(ranks)).sum())]
    # A point at the end of each run of equal ranks.
    ends = [*(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1).tolist(), len(ranked)] if len(ranked) else []
    points = [(float(ranked[end - 1]), end) for end in ends]
    rows: list[AbstentionPoint] = []
    for threshold, end in [*points, (None, len(ranks))] if len(ranks) else []:
        reliable_count, known_count, right_count = (int(part[end - 1]) for part in sums)
        accuracy = right_count / known_count if known_count else None
        rows.append(
            AbstentionPoint(
                threshold=threshold,
                answered=end,
                coverage=end / len(ranks),
                reliable=reliable_count / end,
                correct=accuracy,
                correctness_known=known_count,
            )
        )
    return tuple(reversed(rows))


def trace_cascade(ranks: Floats, gap: Flags, unsound: Flags) -> tuple[CascadePoint, ...]:
    """Return judged responses against missed failures at every distinct rank, and for judging all."""
    unscored = np.isnan(ranks)
    thresholds = np.unique(ranks[~unscored])
    total, gaps = len(ranks), int(gap.sum())
    # The position of a threshold among sorted ranks is the number of responses strictly below it.
    judged, judged_gaps, judged_unsound = (
        np.searchsorted(np.sort(ranks[~unscored & part]), thresholds, side="left") + int((unscored & part).sum())
        for part in (np.ones(total, bool), gap, unsound)
    )
    counts = np.stack([judged, judged_gaps, judged_unsound], axis=1).tolist()
    everything = [total, gaps, int(unsound.sum())]
    return tuple(
        CascadePoint(
            threshold=threshold,
            judged=judged_count,
            saved=total - judged_count,
            gaps_missed=gaps - gap_count,
            unsound_missed=everything[2] - unsound_count,
            recall=gap_count / gaps if gaps else None,
        )
        for threshold, (judged_count, gap_count, unsound_count) in zip(
            [*thresholds.tolist(), None], [*counts, everything], strict=True
        )
    )


def _count_judge_calls(table: ScoreTable, target: float) -> JudgeCalls:
    """Return the fewest judged responses with a recall of at least ``target``, for every detector of the table."""
    gap, unsound = table.members[StudyGroup.GAP], table.members[StudyGroup.LOCALLY_UNSOUND]
    judged = {}
    for detector, ranks in zip(table.detectors, table.scores, strict=True):
        points = trace_cascade(ranks, gap, unsound)
        # Counts, not shares: 0.9 of 10 gaps are 9, and 9 / 10 may fall below 0.9 as a float.
        needed = ceil(Fraction(str(target)) * int(gap.sum()))
        judged[detector] = min(point.judged for point in points if gap.sum() - point.gaps_missed >= needed)
    return JudgeCalls(target, judged, ceil(Fraction(str(target)) * len(table.response_ids)))


def evaluate_run(
    runs: Sequence[Path],
    scores: Sequence[Path],
    calibration: DetectorCalibration,
    *,
    verdicts: Path | None = None,
    settings: StudySettings | None = None,
    allow_other_benchmark: bool = False,
    allow_stale: bool = False,
) -> DetectorEvaluation:
    """Evaluate a calibrated detector on labelled runs, from files as ``read_study_inputs`` takes them.

    Raises:
        UserError: The files do not belong together, or not to the calibration.
    """
    data = read_study_inputs(runs, scores, verdicts, allow_stale=allow_stale)
    instances = {id_: instance for run in runs for id_, instance in read_run_records(run).instances.items()}
    evaluation = evaluate_detector(calibration, data, instances, settings, allow_other_benchmark=allow_other_benchmark)
    used = {*calibration.inputs.values()}
    if not any(hash_file(run / RESPONSES_FILE) in used for run in runs):
        return evaluation
    notice = (
        "The calibration was made from these responses: rates at its threshold are those of the responses that set"
        " it. The cross-fitted rates are not."
    )
    return replace(evaluation, study=replace(evaluation.study, notices=(*evaluation.study.notices, notice)))
