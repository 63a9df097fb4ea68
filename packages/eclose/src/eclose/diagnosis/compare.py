"""Comparison of two judged runs over the same questions: the change of every rate, and responses that changed class.

Only questions that both runs answer are compared; the others are counted. Intervals resample these questions within
their datasets, with all their responses in both runs, so each resample compares the runs on the same questions. The
level of the percentiles is expanded for datasets with few questions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from eclose.errors import UserError
from eclose.metrics.rates import VERDICTS, Metric, compute_metric_rates, tabulate_indicator_bounds
from eclose.metrics.summary import UNKNOWN_GROUP, VerdictCounts
from eclose.stats.arrays import Floats, divide_or_nan, float_or_none, number_distinct_labels
from eclose.stats.bootstrap import StratifiedDesign, bootstrap
from eclose.stats.intervals import Estimate, Interval, adjust_level_for_few_units, percentile_interval
from eclose.stats.rate_correction import PRIOR_CASES
from eclose.stats.rates import Rate
from eclose.values.judgment import Criterion
from eclose.values.verdict import FailureClass, SettledVerdict, TraceGroup, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from eclose.stats.arrays import Codes, Flags, Indices

QuestionKey: TypeAlias = "tuple[str | None, str]"
"""A dataset and the id of a question in it."""
ResponseClass: TypeAlias = "TraceGroup | FailureClass | None"
"""The class of a response: reliable, a failure class of the gap, locally unsound or abstained; None where undecided."""

RESPONSE_CLASSES: tuple[ResponseClass, ...] = (
    TraceGroup.RELIABLE,
    *FailureClass,
    TraceGroup.LOCALLY_UNSOUND,
    None,
    TraceGroup.ABSTAINED,
)
"""From reliable to undecided; abstentions last, so that pages without any keep the numbers of their filters."""


def classify_response(verdict: Verdict) -> ResponseClass:
    """Return the class of a response."""
    return verdict.failure_class if verdict.trace_group is TraceGroup.GAP else verdict.trace_group


CHAIN_CRITERIA = (Criterion.LOCAL_SOUNDNESS, Criterion.ALIGNMENT, Criterion.CLOSURE)
"""Criteria that decide whether a response is reliable, in the order in which they are looked at."""


GROUP_NAMES = {
    TraceGroup.RELIABLE: "reliable",
    TraceGroup.LOCALLY_UNSOUND: "unsound",
    TraceGroup.ABSTAINED: "abstained",
}
"""Short names of the groups that are classes of responses."""


def name_outcome(verdict: Verdict) -> str:
    """Return the outcome of a response as a short name: its class, or the first label that is missing."""
    response_class = classify_response(verdict)
    if isinstance(response_class, FailureClass):
        return f"gap_{response_class}"
    if response_class is None:
        labels = (verdict.locally_sound, verdict.aligned, verdict.closed)
        missing = (criterion for criterion, label in zip(CHAIN_CRITERIA, labels, strict=True) if label is None)
        return f"undecided_{next(missing).value}"
    return GROUP_NAMES[response_class]


@dataclass(frozen=True, slots=True)
class RateDifference:
    """One rate in both runs, on the questions they share."""

    run: Rate
    base: Rate
    estimate: Estimate
    """The run minus the base run; undefined where a rate is undefined."""
    constant: bool = False
    """Whether every resample gives the same difference."""

    @property
    def bounds(self) -> Interval | None:
        """The least and the greatest difference over all completions of the unjudged responses."""
        run, base = self.run.bounds, self.base.bounds
        if run is None or base is None:
            return None
        return Interval(run.low - base.high, run.high - base.low)


@dataclass(frozen=True, slots=True)
class GroupRateComparison:
    """Every rate of two runs on the shared questions, or on those of one dataset."""

    group: tuple[str, ...]
    """The dataset; empty for all shared questions."""
    questions: int
    run_responses: int
    base_responses: int
    differences: Mapping[Metric, RateDifference]


class UnsharedResponseCounts(NamedTuple):
    """Counts of what only one of the runs has."""

    questions: int
    """Questions that the other run does not answer."""
    responses: int
    """Responses to these questions."""
    unpaired: int
    """Responses to shared questions without a partner in the other run; they count in the rates."""


class ResponsePair(NamedTuple):
    """Two responses to the same question, one of each run."""

    base: SettledVerdict
    run: SettledVerdict

    @property
    def classes(self) -> tuple[ResponseClass, ResponseClass]:
        """The class in the base run and the class in this run."""
        return classify_response(self.base.verdict), classify_response(self.run.verdict)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A run compared with a base run."""

    groups: tuple[GroupRateComparison, ...]
    """All shared questions together, then by dataset where there are several."""
    run_alone: UnsharedResponseCounts
    base_alone: UnsharedResponseCounts
    pairs: tuple[ResponsePair, ...]
    """Pairs of responses, as by ``pair_responses``. Empty for large runs, whose pairs are counted only."""
    transitions: Mapping[tuple[ResponseClass, ResponseClass], int]
    """Number of pairs by class in the base run and class in this run."""

    @property
    def overall(self) -> GroupRateComparison:
        """All shared questions together."""
        return self.groups[0]

    @property
    def paired(self) -> int:
        """Number of pairs of responses."""
        return sum(self.transitions.values())

    def with_transitions(self, transitions: Mapping[tuple[ResponseClass, ResponseClass], int]) -> RunComparison:
        """Return the comparison of two counted runs with the classes of their pairs."""
        ordered = {
            (old, new): transitions[old, new]
            for old in RESPONSE_CLASSES
            for new in RESPONSE_CLASSES
            if transitions.get((old, new))
        }
        # A pair has one response of each run, so the number of pairs is subtracted on both sides.
        paired = sum(ordered.values())
        run_alone, base_alone = (
            side._replace(unpaired=side.unpaired - paired) for side in (self.run_alone, self.base_alone)
        )
        return replace(self, run_alone=run_alone, base_alone=base_alone, transitions=ordered)

    @property
    def changed(self) -> tuple[ResponsePair, ...]:
        """Pairs whose classes differ."""
        return tuple(pair for pair in self.pairs if pair.classes[0] != pair.classes[1])


class CountedRun(NamedTuple):
    """The verdicts of a run, counted by question: the rates of a comparison need no more."""

    questions: Sequence[QuestionKey]
    """Every question by its number, in the order of the run."""
    counts: VerdictCounts


def compare_counted_runs(
    run: CountedRun, base: CountedRun, *, rng: np.random.Generator, resamples: int = 2_000
) -> RunComparison:
    """Compare the rates of two runs; single responses are not paired, so all of them are ``unpaired``.

    Questions are the same where dataset and id are the same.

    Raises:
        UserError: The runs share no question.
    """
    known = set(base.questions)
    # In the order of the run: the draws do not depend on the order of the base run.
    shared = [question for question in run.questions if question in known]
    if not shared:
        raise UserError("the two runs share no question, so there is nothing to compare. Check the two run folders.")
    datasets: dict[str, list[QuestionKey]] = defaultdict(list)
    for question in shared:
        datasets[question[0] or UNKNOWN_GROUP].append(question)
    # A single dataset would repeat the group of all questions.
    groups = {(): shared} | ({(name,): datasets[name] for name in sorted(datasets)} if len(datasets) > 1 else {})
    return RunComparison(
        tuple(_compare_group(name, questions, run, base, rng, resamples) for name, questions in groups.items()),
        run_alone=_count_unshared(run, set(shared)),
        base_alone=_count_unshared(base, set(shared)),
        pairs=(),
        transitions={},
    )


def _count_unshared(run: CountedRun, shared: Collection[QuestionKey]) -> UnsharedResponseCounts:
    """Count the questions and responses that only one run has."""
    alone = np.array([question not in shared for question in run.questions])
    unshared = int(alone[run.counts.question].sum())
    return UnsharedResponseCounts(int(alone.sum()), unshared, len(run.counts.question) - unshared)


def _compare_group(
    group: tuple[str, ...],
    questions: Sequence[QuestionKey],
    run: CountedRun,
    base: CountedRun,
    rng: np.random.Generator,
    resamples: int,
) -> GroupRateComparison:
    positions = {question: position for position, question in enumerate(questions)}
    run_counts, base_counts = (_select_questions(side, positions) for side in (run, base))
    # Both have shape (questions, 2 x metrics), columns of the run first: hits and denominators of each question.
    hits, counted = _sum_columns(run_counts, base_counts, len(questions))
    strata = _strata([benchmark for benchmark, _ in questions])
    replicates = bootstrap(
        strata, lambda weights: divide_or_nan(weights @ hits, weights @ counted), rng=rng, resamples=resamples
    )
    # Questions minus strata, but at least 1 where every stratum has one question.
    freedom = max(len(questions) - len(strata.members), 1)
    level = adjust_level_for_few_units(0.95, freedom, len(questions) / freedom)
    # Per column, the number of questions with a response in the denominator.
    usable = (counted > 0).sum(axis=0)
    # One weight of the imaginary question per resample, shared by all metrics.
    imaginary = rng.standard_gamma(PRIOR_CASES, resamples)
    run_verdicts, base_verdicts = run_counts.by_verdict(), base_counts.by_verdict()
    run_rates, base_rates = compute_metric_rates(run_verdicts), compute_metric_rates(base_verdicts)
    differences = {}
    for index, metric in enumerate(Metric):
        # Columns of the run come first, then those of the base run.
        base_column = index + len(Metric)
        # Shape (resamples,). The same questions are drawn for both runs, so what is hard for both cancels.
        draws = replicates.draws[:, index] - replicates.draws[:, base_column]
        value = float_or_none(replicates.values[index] - replicates.values[base_column])
        estimate = _estimate(value, draws, int(min(usable[index], usable[base_column])), imaginary, level)
        # Resamples without a value are NaN and do not count as different.
        constant = value is not None and bool(np.nanmin(draws) == np.nanmax(draws))
        differences[metric] = RateDifference(run_rates[metric], base_rates[metric], estimate, constant)
    return GroupRateComparison(group, len(questions), run_verdicts.total(), base_verdicts.total(), differences)


def _select_questions(run: CountedRun, positions: Mapping[QuestionKey, int]) -> VerdictCounts:
    """Return the counts of some questions, numbered by their positions."""
    position = np.array([positions.get(question, -1) for question in run.questions], np.intp)[run.counts.question]
    selected = run.counts.select(position >= 0)
    return replace(selected, question=position[position >= 0])


def _estimate(value: float | None, draws: Floats, questions: int, imaginary: Floats, level: float) -> Estimate:
    """Return the difference with an interval that allows for outcomes no question showed.

    Each end adds an imaginary question, at -1 for the lower end and at 1 for the upper, with half the weight of a real
    one (Jeffreys' prior). Without it, questions with nearly equal outcomes would give an interval of no width.
    """
    undefined = int(np.isnan(draws).sum())
    if value is None:
        return Estimate(None, None, undefined)
    low, high = (
        percentile_interval((questions * draws + end * imaginary) / (questions + imaginary), level) for end in (-1, 1)
    )
    # A defined value is itself a draw without NaN, so both percentiles exist.
    assert low is not None
    assert high is not None
    return Estimate(value, Interval(low.low, high.high), undefined)


SMALL_DATASET = 10
"""Datasets with fewer shared questions are resampled together: so few do not determine a variance."""


def _strata(datasets: Sequence[str | None]) -> StratifiedDesign:
    """Return the strata of questions: their datasets, the small ones together."""
    sizes = Counter(datasets)
    # The empty tuple is the common stratum of all small datasets.
    stratum, _ = number_distinct_labels([(dataset,) if sizes[dataset] >= SMALL_DATASET else () for dataset in datasets])
    return StratifiedDesign(stratum)


def _sum_columns(run: VerdictCounts, base: VerdictCounts, questions: int) -> tuple[Floats, Floats]:
    """Return hits and denominators of every question: columns are the metrics of the run, then of the base run."""
    hits, counted = np.empty((questions, 2 * len(Metric))), np.empty((questions, 2 * len(Metric)))
    for start, side in ((0, run), (len(Metric), base)):
        for sums, table in zip((hits, counted), tabulate_indicator_bounds().judged, strict=True):
            for index, column in enumerate(table.T):
                sums[:, start + index] = np.bincount(side.question, column[side.verdict], minlength=questions)
    return hits, counted


class PairingKeys(NamedTuple):
    """What responses of two runs are paired by; equal numbers mean the same in both runs."""

    ids: Codes
    questions: Codes
    sources: Codes
    """0 where the source is unknown."""


def pair_responses(run: PairingKeys, base: PairingKeys) -> tuple[Indices, Indices]:
    """Return the rows of paired responses in the run and in the base run.

    Responses to one question are partners where they are the only ones of their runs, else where they have one id, else
    where they are the only other ones of one source. They are not paired by their order in a file, since several
    responses without a common id or source cannot be matched. Pairs come in the order of the questions' numbers, those
    with one id first.
    """
    # The only responses to a question in both runs are partners, whatever their ids.
    pairs = [_match_rows(run.questions, base.questions, _find_unique(run.questions), _find_unique(base.questions))]
    run_free, base_free = _exclude(run, base, pairs)
    # Ids before sources: they are exact, while a source may have produced several responses.
    run_ids, base_ids = (_combine_keys(side.questions, side.ids) for side in (run, base))
    _, run_rows, base_rows = np.intersect1d(run_ids, base_ids, return_indices=True)
    free = run_free[run_rows] & base_free[base_rows]
    pairs.append((run_rows[free], base_rows[free]))
    run_free, base_free = _exclude(run, base, pairs)
    run_keys, base_keys = (_combine_keys(side.questions, side.sources) for side in (run, base))
    run_left, base_left = np.flatnonzero(run_free & (run.sources != 0)), np.flatnonzero(base_free & (base.sources != 0))
    run_single = run_left[_find_unique(run_keys[run_left])]
    base_single = base_left[_find_unique(base_keys[base_left])]
    pairs.append(_match_rows(run_keys, base_keys, run_single, base_single))
    rows, partners = (np.concatenate(side) for side in zip(*pairs, strict=True))
    step = np.repeat(np.arange(len(pairs)), [len(part) for part, _ in pairs])
    order = np.lexsort((rows, step, run.questions[rows]))
    return rows[order], partners[order]


def count_transitions(old: Codes, new: Codes) -> dict[tuple[ResponseClass, ResponseClass], int]:
    """Count pairs by the classes of their verdicts, which are given as positions in ``VERDICTS``."""
    counts = Counter(zip(old.tolist(), new.tolist(), strict=True))
    transitions: Counter[tuple[ResponseClass, ResponseClass]] = Counter()
    for (before, after), count in counts.items():
        transitions[classify_response(VERDICTS[before]), classify_response(VERDICTS[after])] += count
    return transitions


def _combine_keys(questions: Codes, others: Codes) -> NDArray[np.uint64]:
    """Return one number for a question and another key; they are equal by chance as seldom as hashes are."""
    combined: NDArray[np.uint64] = questions.astype(np.uint64) * _ODD + others.astype(np.uint64)
    return combined


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _find_unique(values: Codes) -> Indices:
    _, rows, counts = np.unique(values, return_index=True, return_counts=True)
    unique: Indices = rows[counts == 1]
    return unique


def _match_rows(run_keys: Codes, base_keys: Codes, run_rows: Indices, base_rows: Indices) -> tuple[Indices, Indices]:
    """Return the rows with equal keys, among some rows whose keys differ from each other."""
    _, run_matches, base_matches = np.intersect1d(
        run_keys[run_rows], base_keys[base_rows], assume_unique=True, return_indices=True
    )
    return run_rows[run_matches], base_rows[base_matches]


def _exclude(run: PairingKeys, base: PairingKeys, pairs: Iterable[tuple[Indices, Indices]]) -> tuple[Flags, Flags]:
    run_free, base_free = np.ones(len(run.ids), bool), np.ones(len(base.ids), bool)
    for run_rows, base_rows in pairs:
        run_free[run_rows] = False
        base_free[base_rows] = False
    return run_free, base_free
