"""Two judged runs over the same questions -> how far every rate moved, and which responses changed class.

Only questions that both runs answer are compared; what stands in one alone is counted. Intervals resample those
questions within their datasets, with all their responses in both runs, so each resample holds the two runs against each
other on the same questions. Their percentiles are read further out the fewer questions there are in a dataset.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from eclose.core.verdict import FailureClass, SettledVerdict, TraceGroup, Verdict
from eclose.errors import UserError
from eclose.metrics.rates import Metric, compute_rates, make_indicators
from eclose.metrics.summary import UNKNOWN
from eclose.stats.arrays import Floats, codes, scalar, sum_by
from eclose.stats.bootstrap import bootstrap_rates
from eclose.stats.intervals import Estimate, Interval, expanded_level, percentile
from eclose.stats.rate_correction import IMAGINARY
from eclose.stats.rates import Rate
from eclose.stats.resampling import Strata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.core.response import Source

Question: TypeAlias = "tuple[str | None, str]"
"""A dataset and an id in it."""
ResponseClass: TypeAlias = "TraceGroup | FailureClass | None"
"""What a response is: reliable, in the gap in one of its ways, locally unsound; None where the labels leave it open."""

RESPONSE_CLASSES: tuple[ResponseClass, ...] = (TraceGroup.RELIABLE, *FailureClass, TraceGroup.LOCALLY_UNSOUND, None)
"""From good to unknown."""


def response_class(verdict: Verdict) -> ResponseClass:
    """The one class a response is in."""
    return verdict.failure_class if verdict.trace_group is TraceGroup.GAP else verdict.trace_group


@dataclass(frozen=True, slots=True)
class RateDifference:
    """One rate in both runs, on the questions they share."""

    run: Rate
    base: Rate
    estimate: Estimate
    """The run's minus the other's; undefined where one of the two is."""
    constant: bool = False
    """Every resample gives the same difference: no question departs from the rest."""

    @property
    def bounds(self) -> Interval | None:
        """The least and the greatest difference, over all that the unjudged responses could turn out to be."""
        mine, theirs = self.run.bounds, self.base.bounds
        if mine is None or theirs is None:
            return None
        return Interval(mine.low - theirs.high, mine.high - theirs.low)


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """Every rate of two runs on the shared questions, or on those of one dataset."""

    group: tuple[str, ...]
    """The dataset; empty for all together."""
    questions: int
    run_responses: int
    base_responses: int
    differences: Mapping[Metric, RateDifference]


class UnsharedCounts(NamedTuple):
    """What only one of the runs has."""

    questions: int
    """Questions the other run does not answer."""
    responses: int
    """Responses to them."""
    unpaired: int
    """Responses to shared questions without a partner in the other run: in the rates, and in no pair."""


class ResponsePair(NamedTuple):
    """Two responses to the same question, one of each run."""

    base: SettledVerdict
    run: SettledVerdict

    @property
    def kinds(self) -> tuple[ResponseClass, ResponseClass]:
        """What the response was, and what it is."""
        return response_class(self.base.verdict), response_class(self.run.verdict)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A run held against another."""

    groups: tuple[GroupComparison, ...]
    """All shared questions together, then by dataset where there are several."""
    run_alone: UnsharedCounts
    base_alone: UnsharedCounts
    pairs: tuple[ResponsePair, ...]
    """See ``_paired`` for who is held against whom."""
    transitions: Mapping[tuple[ResponseClass, ResponseClass], int]
    """How many responses went from which class to which, those that stayed included."""

    @property
    def overall(self) -> GroupComparison:
        """All shared questions together."""
        return self.groups[0]

    @property
    def changed(self) -> tuple[ResponsePair, ...]:
        """The pairs that are no longer of one class."""
        return tuple(pair for pair in self.pairs if pair.kinds[0] != pair.kinds[1])


def compare_rows(
    run: Sequence[SettledVerdict], base: Sequence[SettledVerdict], *, rng: np.random.Generator, resamples: int = 2_000
) -> RunComparison:
    """Hold a run against another one; a question is the same where its dataset and its id are."""
    mine, theirs = _by_question(run), _by_question(base)
    shared = [question for question in mine if question in theirs]
    if not shared:
        raise UserError("the two runs share no question, so there is nothing to compare. Are these the runs you meant?")
    datasets: dict[str, list[Question]] = defaultdict(list)
    for question in shared:
        datasets[question[0] or UNKNOWN].append(question)
    groups = {(): shared} | ({(name,): datasets[name] for name in sorted(datasets)} if len(datasets) > 1 else {})
    pairs = tuple(pair for question in shared for pair in _paired(theirs[question], mine[question]))
    went = Counter(pair.kinds for pair in pairs)
    return RunComparison(
        tuple(_group(name, questions, mine, theirs, rng, resamples) for name, questions in groups.items()),
        run_alone=_alone(mine, theirs, len(pairs)),
        base_alone=_alone(theirs, mine, len(pairs)),
        pairs=pairs,
        transitions={
            (old, new): went[old, new] for old in RESPONSE_CLASSES for new in RESPONSE_CLASSES if went[old, new]
        },
    )


_RowsByQuestion: TypeAlias = "Mapping[Question, Sequence[SettledVerdict]]"


def _by_question(rows: Sequence[SettledVerdict]) -> _RowsByQuestion:
    found: dict[Question, list[SettledVerdict]] = defaultdict(list)
    for row in rows:
        found[row.benchmark, row.instance_id].append(row)
    return dict(found)


def _alone(mine: _RowsByQuestion, other: _RowsByQuestion, pairs: int) -> UnsharedCounts:
    sizes = [len(rows) for question, rows in mine.items() if question not in other]
    shared = sum(map(len, mine.values())) - sum(sizes)
    return UnsharedCounts(len(sizes), sum(sizes), shared - pairs)


def _group(
    group: tuple[str, ...],
    questions: Sequence[Question],
    mine: _RowsByQuestion,
    theirs: _RowsByQuestion,
    rng: np.random.Generator,
    resamples: int,
) -> GroupComparison:
    run, base = ([row.verdict for question in questions for row in side[question]] for side in (mine, theirs))
    sizes = [len(side[question]) for side in (mine, theirs) for question in questions]
    cluster = np.repeat(np.tile(np.arange(len(questions)), 2), sizes)
    hits, counted = _columns(run, base)
    strata = _strata([benchmark for benchmark, _ in questions])
    replicates = bootstrap_rates(hits, counted, cluster, rng=rng, resamples=resamples, strata=strata)
    freedom = max(len(questions) - len(strata.members), 1)
    level = expanded_level(0.95, freedom, len(questions) / freedom)
    # For each column, how many questions have a response that counts.
    counting = (sum_by(cluster, counted, len(questions)) > 0).sum(axis=0)
    imaginary = rng.standard_gamma(IMAGINARY, resamples)
    now, before = compute_rates(run), compute_rates(base)
    differences = {}
    for index, metric in enumerate(Metric):
        other = index + len(Metric)
        draws = replicates.draws[:, index] - replicates.draws[:, other]
        value = scalar(replicates.values[index] - replicates.values[other])
        estimate = _estimate(value, draws, int(min(counting[index], counting[other])), imaginary, level)
        constant = value is not None and bool(np.nanmin(draws) == np.nanmax(draws))
        differences[metric] = RateDifference(now[metric], before[metric], estimate, constant)
    return GroupComparison(group, len(questions), len(run), len(base), differences)


def _estimate(value: float | None, draws: Floats, questions: int, imaginary: Floats, level: float) -> Estimate:
    """Return the difference with an interval that allows for what no question was seen to do.

    Each end has an imaginary question more, at -1 for the lower and at 1 for the upper one, with half the weight of a
    real one (Jeffreys' prior). Without it, questions that nearly all say the same would promise certainty.
    """
    undefined = int(np.isnan(draws).sum())
    if value is None:
        return Estimate(None, None, undefined)
    low, high = (percentile((questions * draws + end * imaginary) / (questions + imaginary), level) for end in (-1, 1))
    assert low is not None
    assert high is not None
    return Estimate(value, Interval(low.low, high.high), undefined)


SMALL_DATASET = 10
"""Datasets with fewer shared questions than this are resampled together: three questions do not tell their variance."""


def _strata(datasets: Sequence[str | None]) -> Strata:
    """Draw questions within their datasets, those of small datasets together."""
    sizes = Counter(datasets)
    stratum, _ = codes([(dataset,) if sizes[dataset] >= SMALL_DATASET else () for dataset in datasets])
    return Strata(stratum)


def _columns(run: Sequence[Verdict], base: Sequence[Verdict]) -> tuple[Floats, Floats]:
    """Hits and who is counted, responses of both runs by metrics of both: those of the run first."""
    width = len(Metric)
    mine, theirs = make_indicators(run, tuple(Metric)), make_indicators(base, tuple(Metric))
    hits, counted = (
        np.concatenate([np.pad(one, ((0, 0), (0, width))), np.pad(other, ((0, 0), (width, 0)))])
        for one, other in zip(mine, theirs, strict=True)
    )
    return hits, counted


def _paired(base: Sequence[SettledVerdict], run: Sequence[SettledVerdict]) -> Iterator[ResponsePair]:
    """Pair the responses to one question: those of one id, then the only ones of one source.

    The only response to the question in both runs is a pair in any case. Nothing is paired by its place in a file:
    which of several responses without a common id or source belong together is not known.
    """
    if len(base) == len(run) == 1:
        yield ResponsePair(base[0], run[0])
        return
    by_id = {row.response_id: row for row in base}
    pairs = [ResponsePair(by_id[row.response_id], row) for row in run if row.response_id in by_id]
    yield from pairs
    paired = {pair.run.response_id for pair in pairs}
    mine, theirs = (_by_source(row for row in rows if row.response_id not in paired) for rows in (run, base))
    yield from (ResponsePair(theirs[source], row) for source, row in mine.items() if source in theirs)


def _by_source(rows: Iterable[SettledVerdict]) -> dict[Source, SettledVerdict]:
    """Return the responses whose source is known and gave no other of them."""
    by_source: dict[Source, list[SettledVerdict]] = defaultdict(list)
    for row in rows:
        if row.source is not None:
            by_source[row.source].append(row)
    return {source: same[0] for source, same in by_source.items() if len(same) == 1}
