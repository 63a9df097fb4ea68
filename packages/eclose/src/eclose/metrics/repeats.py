"""Consistency of a judge that was asked several times: how often its labels differ between repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from eclose.metrics import judge_against_people
from eclose.metrics.judge_against_people import AgreementTables, JudgeAgreementScores, JudgedLabel
from eclose.stats.arrays import Floats, sum_by_group
from eclose.stats.coefficients import MISSING_CODE, judge_pair_tables
from eclose.stats.intervals import Estimate, Interval, wilson_interval
from eclose.values.judgment import EVIDENCE, Criterion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.values.three_valued import Label
    from eclose.values.verdict import Verdict


@dataclass(frozen=True, slots=True)
class LabelFlipCounts:
    """Counts over the responses that got a label more than once."""

    responses: int
    flipped: int
    """Responses with both labels among the repetitions."""
    pairs: int
    differing: int
    """Pairs of repetitions with different labels."""

    @property
    def rate(self) -> float | None:
        """Share of responses that flip; grows with the number of repetitions. None without repetitions."""
        return self.flipped / self.responses if self.responses else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the rate."""
        return wilson_interval(self.flipped, self.responses)

    @property
    def pair_rate(self) -> float | None:
        """How often one more repetition gives a different label; independent of the number of repetitions."""
        return self.differing / self.pairs if self.pairs else None


class HasVotes(Protocol):
    """A judgment, or the facts of one, with the labels of every repetition."""

    @property
    def votes(self) -> Mapping[str, tuple[Label, ...]]:
        """Labels in the order of the repetitions, by criterion and ``evidence``."""


def count_label_flips(judgments: Iterable[HasVotes]) -> dict[str, LabelFlipCounts]:
    """Count flips by criterion and for ``evidence``; empty where no judge was asked twice."""
    votes: dict[str, list[tuple[Label, ...]]] = {}
    for judgment in judgments:
        for name, labels in judgment.votes.items():
            votes.setdefault(name, []).append(labels)
    return {name: _count_flips(votes[name]) for name in (*Criterion, EVIDENCE) if name in votes}


def _count_flips(votes: Iterable[tuple[Label, ...]]) -> LabelFlipCounts:
    # Repetitions without a usable reply have no label.
    cast = ([label for label in labels if label is not None] for labels in votes)
    repeated = [labels for labels in cast if len(labels) > 1]
    # Labels are True or False here, so identity compares them.
    differs = [first is not second for labels in repeated for first, second in combinations(labels, 2)]
    return LabelFlipCounts(len(repeated), sum(len(set(labels)) > 1 for labels in repeated), len(differs), sum(differs))


# Two judges, or one judge asked in two ways, compared on the same responses (appendix D.1).


class TwoJudgesCase(NamedTuple):
    """One response with the verdicts of two judges (or of one asked in two ways) and that of people."""

    question_id: str
    dataset: str
    first: Verdict
    second: Verdict
    human: Verdict


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """Two judges on the same responses."""

    n: Mapping[JudgedLabel, int]
    """Responses that both judges and people labelled; only these are compared."""
    first: Mapping[JudgedLabel, JudgeAgreementScores]
    second: Mapping[JudgedLabel, JudgeAgreementScores]
    difference: Mapping[JudgedLabel, JudgeAgreementScores]
    """The first minus the second, paired resample by resample."""
    mean_agreement: Estimate
    """Difference of the means over the five labels that a judge gives."""
    mean_failure_f1: Estimate


def compare_judges(
    cases: Sequence[TwoJudgesCase], *, rng: np.random.Generator, resamples: int = 2_000
) -> JudgeComparison:
    """Compare two judges with the same people, on shared draws."""
    layout = judge_against_people.ValidationArrays.of(
        [judge_against_people.ValidationCase(case.question_id, case.dataset, case.first, case.human) for case in cases]
    )
    tables = _tables_of_both(layout, cases)
    replicates = AgreementTables(tables).bootstrap(layout.strata, rng, resamples)

    def difference(column: int) -> Estimate:
        # The columns of the second judge follow those of the first.
        return replicates.difference(column, column + judge_against_people.COLUMNS_PER_GROUP)

    counts = tables[0].sum(axis=(0, 2, 3))
    return JudgeComparison(
        n={label: int(count) for label, count in zip(JudgedLabel, counts, strict=True)},
        first={label: AgreementTables.scores(label, replicates.estimate, 0) for label in JudgedLabel},
        second={label: AgreementTables.scores(label, replicates.estimate, 1) for label in JudgedLabel},
        difference={label: AgreementTables.scores(label, difference, 0) for label in JudgedLabel},
        mean_agreement=difference(AgreementTables.mean_column(0, 0)),
        mean_failure_f1=difference(AgreementTables.mean_column(0, 1)),
    )


def _tables_of_both(layout: judge_against_people.ValidationArrays, cases: Sequence[TwoJudgesCase]) -> list[Floats]:
    """Return the tables of each judge by question, from the responses that both judges labelled."""
    first, second, human = ([getattr(case, side) for case in cases] for side in ("first", "second", "human"))
    tables: list[list[Floats]] = [[], []]
    for label in JudgedLabel:
        people, *judges = (
            judge_against_people.encode_label_passes(label, verdicts) for verdicts in (human, first, second)
        )
        # A judge must not gain from cases that the other one left out.
        common = (judges[0] != MISSING_CODE) & (judges[1] != MISSING_CODE)
        for by_label, judge in zip(tables, judges, strict=True):
            by_label.append(judge_pair_tables(people, np.where(common, judge, MISSING_CODE), 2))
    return [sum_by_group(layout.question, np.stack(by_label, axis=1), len(layout.dataset)) for by_label in tables]
