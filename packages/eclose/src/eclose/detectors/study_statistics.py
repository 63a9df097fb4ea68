"""Statistics of the detector study: how far the scores of each detector separate failed from reliable responses.

Every failure group is compared with the same reliable responses, and one threshold per detector serves all groups. All
detectors and groups share the draws of questions (appendix A.5):

==========================  ============================================================================
AUROC, R@95, its FPR        all questions are drawn, with all their responses; thresholds are recalibrated
cross-fitted FPR, recall    the same draws; the threshold of every fold is refitted, folds are fixed
group means                 questions that have a response in the group are drawn, for each group anew
==========================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from eclose.detectors.scores import DetectorKind
from eclose.errors import SettingError
from eclose.stats import ranking
from eclose.stats.arrays import Flags, Floats, Indices
from eclose.stats.bootstrap import BootstrapReplicates, StratifiedDesign, bootstrap, bootstrap_rates
from eclose.stats.intervals import Estimate
from eclose.values.verdict import FailureClass, TraceGroup, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator


class StudyGroup(StrEnum):
    """Groups of responses by their settled labels; the three failure classes are parts of the gap."""

    RELIABLE = "reliable"
    """L = 1 and G = 1."""
    GAP = "gap"
    """L = 1 and G = 0."""
    PATH_DEVIATION = "path_deviation"
    INCOMPLETE_REASONING = "incomplete_reasoning"
    ANSWER_DECOUPLING = "answer_decoupling"
    LOCALLY_UNSOUND = "locally_unsound"
    """L = 0."""


FAILURE_GROUPS: tuple[StudyGroup, ...] = tuple(group for group in StudyGroup if group is not StudyGroup.RELIABLE)
"""Groups that a detector should flag."""
GAP_CLASSES = (StudyGroup.PATH_DEVIATION, StudyGroup.INCOMPLETE_REASONING, StudyGroup.ANSWER_DECOUPLING)
DISJOINT_GROUPS = (StudyGroup.RELIABLE, StudyGroup.GAP, StudyGroup.LOCALLY_UNSOUND)
"""Groups that share no response and hold every decided one."""
_CLASS_GROUPS = {FailureClass(group.value): group for group in GAP_CLASSES}
_TRACE_GROUPS = {TraceGroup(group.value): group for group in DISJOINT_GROUPS}


def list_study_groups(verdict: Verdict) -> tuple[StudyGroup, ...]:
    """Return the groups of a response; empty where the labels do not decide them.

    >>> [group.value for group in list_study_groups(Verdict(locally_sound=True, aligned=False))]
    ['gap', 'path_deviation']
    """
    # The study knows no abstentions: they are neither reliable nor a failure that a detector should flag.
    if verdict.trace_group is None or verdict.trace_group not in _TRACE_GROUPS:
        return ()
    group = _TRACE_GROUPS[verdict.trace_group]
    # An unsound response may break a global link too; the classes count within the gap alone.
    failure = verdict.failure_class if group is StudyGroup.GAP else None
    return (group, _CLASS_GROUPS[failure]) if failure in _CLASS_GROUPS else (group,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings:
    """Settings of the study, with the values of the paper.

    Raises:
        SettingError: A number is out of range.
    """

    retention: float = ranking.RELIABLE_RETENTION
    """Share of the reliable responses that a threshold must leave unflagged."""
    folds: int = 5
    """Parts of the questions for cross-fitting."""
    resamples: int = 2_000
    seed: int = 42
    """Seed of the folds and of the draws."""
    level: float = 0.95
    """Level of the percentile intervals."""
    tolerated_difference: float = 0.01
    """Largest share of responses that only some detectors scored without a second study of the common ones."""

    def __post_init__(self) -> None:
        if self.folds < 2 or self.resamples < 1:
            raise SettingError("a detector study needs at least 2 folds and 1 resample.")
        if not (0 < self.retention <= 1 and 0 < self.level < 1 and 0 <= self.tolerated_difference <= 1):
            raise SettingError("retention, level and tolerated_difference of a detector study lie between 0 and 1.")


@dataclass(frozen=True, slots=True, order=True)
class DetectorIdentity:
    """A detector and the model behind it; two models make two detectors."""

    kind: DetectorKind
    model: str


@dataclass(frozen=True)
class ScoreTable:
    """Scores of all detectors on the decided responses."""

    detectors: tuple[DetectorIdentity, ...]
    response_ids: tuple[str, ...]
    scores: Floats
    """Detectors by responses; NaN where a response has no score."""
    question: Indices
    """Question of each response."""
    dataset: Indices
    """Dataset of each question. Every question is drawn, whichever of its responses are scored."""
    members: Mapping[StudyGroup, Flags]
    """Which responses are in each group."""

    def restrict_responses(self, used: Flags) -> ScoreTable:
        """Return the table of some of the responses; the questions, and so the draws and folds, stay the same."""
        ids = tuple(id_ for id_, keep in zip(self.response_ids, used, strict=True) if keep)
        members = {group: flags[used] for group, flags in self.members.items()}
        return ScoreTable(
            detectors=self.detectors,
            response_ids=ids,
            scores=self.scores[:, used],
            question=self.question[used],
            dataset=self.dataset,
            members=members,
        )


@dataclass(frozen=True, slots=True)
class GroupSeparation:
    """How far a detector tells one failure group from the reliable responses."""

    auroc: Estimate
    recall: Estimate
    """Recall at the threshold that leaves 95 % of the reliable responses unflagged: R@95."""


@dataclass(frozen=True, slots=True)
class DetectorResult:
    """All statistics of one detector; undefined values are None."""

    detector: DetectorIdentity
    scored: Mapping[StudyGroup, int]
    """Scored responses of each group."""
    means: Mapping[StudyGroup, Estimate]
    separations: Mapping[StudyGroup, GroupSeparation]
    """Every failure group against the reliable responses."""
    threshold: float | None
    false_positive_rate: Estimate
    """Share of the reliable responses below the threshold."""
    held_out_false_positive_rate: Estimate
    """The same with the threshold of the other folds."""
    held_out_recall: Estimate
    """Recall of the gap with the threshold of the other folds."""
    sweep: ranking.ThresholdSweep | None
    """Recall of the gap against the false positive rate at every threshold."""
    scores: Mapping[StudyGroup, tuple[tuple[str, float], ...]]
    """Response ids with their scores, of the three disjoint groups."""


def compute_detector_results(table: ScoreTable, settings: StudySettings) -> tuple[DetectorResult, ...]:
    """Return the statistics of every detector; the points and the resamples follow the same formulas."""
    columns = [_DetectorColumn.of(table, row) for row in range(len(table.detectors))]
    question_folds = ranking.assign_folds(table.dataset, settings.folds, rng=np.random.default_rng(settings.seed))
    fold = question_folds[table.question]

    def evaluate(weights: Floats) -> Floats:
        # Questions are drawn; each response has the weight of its question.
        return np.concatenate(
            [
                np.stack(list(column.evaluate(weights[:, table.question[column.rows]], fold, settings)), axis=1)
                for column in columns
            ],
            axis=1,
        )

    replicates = bootstrap(
        StratifiedDesign.single(len(table.dataset)),
        evaluate,
        rng=np.random.default_rng(settings.seed),
        resamples=settings.resamples,
    )
    means = {}
    for group, rows in table.members.items():
        scores = table.scores[:, rows].T
        scored = ~np.isnan(scores)
        # Without strata only the clusters that occur are drawn: the questions represented in the group, once for all
        # detectors.
        means[group] = bootstrap_rates(
            np.where(scored, scores, 0.0),
            scored.astype(float),
            table.question[rows],
            rng=np.random.default_rng(settings.seed),
            resamples=settings.resamples,
        )
    return tuple(column.collect_result(replicates, means, settings) for column in columns)


_STATISTICS = 2 * len(FAILURE_GROUPS) + 3
"""Columns of one detector: AUROC and R@95 of each failure group, the FPR, and both cross-fitted rates."""


@dataclass(frozen=True)
class _DetectorColumn:
    table: ScoreTable
    number: int
    rows: Indices
    against: Mapping[StudyGroup, ranking.ScoredResponses]
    """Each failure group with the reliable responses."""

    @classmethod
    def of(cls, table: ScoreTable, number: int) -> _DetectorColumn:
        rows = np.flatnonzero(~np.isnan(table.scores[number]))
        scores, reliable = table.scores[number, rows], table.members[StudyGroup.RELIABLE][rows]
        against = {
            group: ranking.ScoredResponses(scores, table.members[group][rows], reliable) for group in FAILURE_GROUPS
        }
        return cls(table, number, rows, against)

    def evaluate(self, weights: Floats, fold: Indices, settings: StudySettings) -> Iterator[Floats]:
        """Yield the columns of this detector, one value per resample."""
        gap = self.against[StudyGroup.GAP]
        # One threshold serves all groups.
        threshold = ranking.resampled_thresholds(weights, gap.scores, gap.reliable, settings.retention)
        for scored in self.against.values():
            yield ranking.resampled_aurocs(weights, scored)
            yield ranking.resampled_flagged_shares(weights, scored.scores, scored.failed, threshold)
        yield ranking.resampled_flagged_shares(weights, gap.scores, gap.reliable, threshold)
        yield from ranking.resampled_held_out_rates(weights, gap, fold[self.rows], settings.retention).T

    def collect_result(
        self, replicates: BootstrapReplicates, means: Mapping[StudyGroup, BootstrapReplicates], settings: StudySettings
    ) -> DetectorResult:
        """Return the result from this detector's columns of the shared replicates."""
        first = self.number * _STATISTICS
        estimates = [replicates.estimate(first + index, settings.level) for index in range(_STATISTICS)]
        gap = self.against[StudyGroup.GAP]
        return DetectorResult(
            detector=self.table.detectors[self.number],
            scored={group: int(self.table.members[group][self.rows].sum()) for group in StudyGroup},
            means={group: part.estimate(self.number, settings.level) for group, part in means.items()},
            separations={
                group: GroupSeparation(estimates[2 * index], estimates[2 * index + 1])
                for index, group in enumerate(FAILURE_GROUPS)
            },
            threshold=ranking.threshold_at_retention(gap, settings.retention),
            false_positive_rate=estimates[-3],
            held_out_false_positive_rate=estimates[-2],
            held_out_recall=estimates[-1],
            sweep=ranking.sweep_thresholds(gap),
            scores={
                group: tuple(
                    (self.table.response_ids[row], float(self.table.scores[self.number, row]))
                    for row in self.rows[self.table.members[group][self.rows]].tolist()
                )
                for group in DISJOINT_GROUPS
            },
        )
