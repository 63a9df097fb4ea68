"""Two judged runs over the same questions -> how far every rate moved, and which responses changed class.

Only questions that both runs answer are compared; what stands in one alone is counted. Intervals resample those
questions within their datasets, with all their responses in both runs, so each resample holds the two runs against each
other on the same questions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from eclosure.core.verdict import FailureClass, SettledVerdict, TraceGroup, Verdict
from eclosure.errors import UserError
from eclosure.metrics.rates import Metric, indicators, rates
from eclosure.metrics.summary import UNKNOWN
from eclosure.stats.arrays import Floats, codes, sum_by
from eclosure.stats.bootstrap import bootstrap_rates
from eclosure.stats.intervals import Estimate, Interval, wilson
from eclosure.stats.rates import Rate
from eclosure.stats.resampling import Strata

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

Question: TypeAlias = "tuple[str | None, str]"
"""A dataset and an id in it."""
Kind: TypeAlias = "TraceGroup | FailureClass | None"
"""What a response is: reliable, in the gap in one of its ways, locally unsound; None where the labels leave it open."""

KINDS: tuple[Kind, ...] = (TraceGroup.RELIABLE, *FailureClass, TraceGroup.LOCALLY_UNSOUND, None)
"""From good to unknown."""


def kind_of(verdict: Verdict) -> Kind:
    """The one class a response is in."""
    return verdict.failure_class if verdict.trace_group is TraceGroup.GAP else verdict.trace_group


@dataclass(frozen=True, slots=True)
class Difference:
    """One rate in both runs, on the questions they share."""

    run: Rate
    base: Rate
    estimate: Estimate
    """The run's minus the other's; undefined where one of the two is."""
    constant: bool = False
    """Every resample says the same, so the interval is Wilson's; see ``_believable``."""

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
    differences: Mapping[Metric, Difference]


class Alone(NamedTuple):
    """What only one of the runs has."""

    questions: int
    """Questions the other run does not answer."""
    responses: int
    """Responses to them."""
    unpaired: int
    """Responses to shared questions, beyond as many as the other run has: in the rates, without a partner."""


class Pair(NamedTuple):
    """Two responses to the same question, one of each run."""

    base: SettledVerdict
    run: SettledVerdict

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        """What the response was, and what it is."""
        return kind_of(self.base.verdict), kind_of(self.run.verdict)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A run held against another."""

    groups: tuple[GroupComparison, ...]
    """All shared questions together, then by dataset where there are several."""
    run_alone: Alone
    base_alone: Alone
    pairs: tuple[Pair, ...]
    """See ``_paired`` for who is held against whom."""
    transitions: Mapping[tuple[Kind, Kind], int]
    """How many responses went from which class to which, those that stayed included."""

    @property
    def overall(self) -> GroupComparison:
        """All shared questions together."""
        return self.groups[0]

    @property
    def changed(self) -> tuple[Pair, ...]:
        """The pairs that are no longer of one class."""
        return tuple(pair for pair in self.pairs if pair.kinds[0] != pair.kinds[1])


def compare(
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
        run_alone=_alone(mine, theirs),
        base_alone=_alone(theirs, mine),
        pairs=pairs,
        transitions={(old, new): went[old, new] for old in KINDS for new in KINDS if went[old, new]},
    )


_Asked: TypeAlias = "Mapping[Question, Sequence[SettledVerdict]]"


def _by_question(rows: Sequence[SettledVerdict]) -> _Asked:
    found: dict[Question, list[SettledVerdict]] = defaultdict(list)
    for row in rows:
        found[row.benchmark, row.instance_id].append(row)
    return dict(found)


def _alone(mine: _Asked, other: _Asked) -> Alone:
    lonely = [rows for question, rows in mine.items() if question not in other]
    beyond = (max(len(rows) - len(other[question]), 0) for question, rows in mine.items() if question in other)
    return Alone(len(lonely), sum(map(len, lonely)), sum(beyond))


def _group(
    group: tuple[str, ...],
    questions: Sequence[Question],
    mine: _Asked,
    theirs: _Asked,
    rng: np.random.Generator,
    resamples: int,
) -> GroupComparison:
    run, base = ([row.verdict for question in questions for row in side[question]] for side in (mine, theirs))
    sizes = [len(side[question]) for side in (mine, theirs) for question in questions]
    cluster = np.repeat(np.tile(np.arange(len(questions)), 2), sizes)
    hits, counted = _columns(run, base)
    stratum, _ = codes([benchmark for benchmark, _ in questions])
    replicates = bootstrap_rates(hits, counted, cluster, rng=rng, resamples=resamples, strata=Strata(stratum))
    # For each column, how many questions have a response that counts.
    asked = (sum_by(cluster, counted, len(questions)) > 0).sum(axis=0)
    now, before = rates(run), rates(base)
    differences = {}
    for index, metric in enumerate(Metric):
        estimate = replicates.difference(index, index + len(Metric))
        constant = estimate.interval is not None and estimate.interval.low == estimate.interval.high
        if constant:
            estimate = _believable(estimate, int(min(asked[index], asked[index + len(Metric)])))
        differences[metric] = Difference(now[metric], before[metric], estimate, constant)
    return GroupComparison(group, len(questions), len(run), len(base), differences)


def _columns(run: Sequence[Verdict], base: Sequence[Verdict]) -> tuple[Floats, Floats]:
    """Hits and who is counted, responses of both runs by metrics of both: those of the run first."""
    width = len(Metric)
    mine, theirs = indicators(run, tuple(Metric)), indicators(base, tuple(Metric))
    hits, counted = (
        np.concatenate([np.pad(one, ((0, 0), (0, width))), np.pad(other, ((0, 0), (width, 0)))])
        for one, other in zip(mine, theirs, strict=True)
    )
    return hits, counted


def _believable(estimate: Estimate, questions: int) -> Estimate:
    """An interval where no question departs from the rest, so that every resample says the same.

    The bootstrap would promise certainty. But of so many questions none was seen to depart, so up to Wilson's bound of
    them could, and they could say anything from -1 to 1.
    """
    value, bound = estimate.value, wilson(0, questions)
    assert value is not None  # as there is an interval,
    assert bound is not None  # and so a question
    middle = value * (1 - bound.high)
    return estimate._replace(interval=Interval(middle - bound.high, middle + bound.high))


_PARTNERS: tuple[Callable[[SettledVerdict], Hashable], ...] = (
    lambda row: row.response_id,
    lambda row: row.source,
    lambda _: None,
)


def _paired(base: Sequence[SettledVerdict], run: Sequence[SettledVerdict]) -> Iterator[Pair]:
    """Partners among the responses to one question: of the same id, then of the same source, then as they stand."""
    old, new = dict(enumerate(base)), dict(enumerate(run))
    for key in _PARTNERS:
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for place, row in old.items():
            waiting[key(row)].append(place)
        for place, row in list(new.items()):
            if partners := waiting[key(row)]:
                yield Pair(old.pop(partners.pop(0)), new.pop(place))
