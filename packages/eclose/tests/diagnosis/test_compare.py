"""Two runs held against each other, on differences worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from eclose.diagnosis.compare import (
    RESPONSE_CLASSES,
    UnsharedResponseCounts,
    classify_response,
)
from eclose.errors import UserError
from eclose.metrics.rates import Metric
from eclose.metrics.summary import summarize_verdicts
from eclose.report.comparison import compare_with_base_run
from eclose.values.response import ResponseSource
from eclose.values.verdict import FailureClass, SettledVerdict, TraceGroup, Verdict
from tests.diagnosis.judged_responses import hold_cases, make_case

GOOD = Verdict(True, True, True, True, True)
ASTRAY = Verdict(True, False, True, True, False)
SHORT = Verdict(True, True, False, False, False)
UNSOUND = Verdict(False, True, True, True, True)
OPEN = Verdict(True, True, None, True, True)
TRR, LGG = Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE


def rows(*verdicts, benchmark="b", model=None, prefix="r"):
    """One response to each question, in order."""
    source = None if model is None else ResponseSource(model)
    return [
        SettledVerdict(f"{prefix}{number}", f"q{number}", verdict, benchmark, source)
        for number, verdict in enumerate(verdicts)
        if verdict is not None
    ]


def compared(run, base, resamples=400, seed=1, rng=None):
    sides = (hold_cases([make_case(row) for row in side]) for side in (run, base))
    rng = np.random.default_rng(seed) if rng is None else rng
    return compare_with_base_run(*sides, "base", rng=rng, resamples=resamples).comparison


def test_a_difference_is_the_run_minus_the_other_on_shared_questions():
    run = rows(GOOD, GOOD, ASTRAY, GOOD, None, UNSOUND)
    base = rows(GOOD, ASTRAY, ASTRAY, UNSOUND, GOOD)
    comparison = compared(run, base)
    # q0 to q3 are shared: 3 of 4 reliable against 1 of 4; in the gap 1 against 2.
    assert comparison.overall.questions == 4
    trr, lgg = comparison.overall.differences[TRR], comparison.overall.differences[LGG]
    assert (trr.run.hits, trr.run.n, trr.base.hits, trr.base.n) == (3, 4, 1, 4)
    assert trr.estimate.value == 0.5
    assert lgg.estimate.value == -0.25
    assert trr.estimate.interval.low <= 0.5 <= trr.estimate.interval.high
    assert comparison.run_alone == UnsharedResponseCounts(1, 1, 0)
    assert comparison.base_alone == UnsharedResponseCounts(1, 1, 0)


def test_the_interval_is_the_paired_one():
    """Where one run is right exactly where the other is, but for two questions, the difference hardly moves."""
    base = [GOOD if number % 2 else UNSOUND for number in range(200)]
    run = [GOOD if number in (0, 2) else verdict for number, verdict in enumerate(base)]
    comparison = compared(rows(*run), rows(*base), resamples=2_000).overall.differences[TRR].estimate
    assert comparison.value == pytest.approx(0.01)
    # By hand: each resample has a Poisson-like number of the two questions, 0 to 5 of 200 in 95 % of resamples.
    # One question of a hundred has changed; another may have changed for the worse unseen.
    assert -0.02 <= comparison.interval.low < 0
    assert 0.02 <= comparison.interval.high <= 0.04
    apart = [summarize_verdicts(rows(*verdict_row))[0].estimates[TRR].interval for verdict_row in (run, base)]
    assert all(interval.high - interval.low > 0.1 for interval in apart)


@pytest.mark.slow
def test_intervals_cover_the_truth():
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        before = rng.random(60) < 0.5
        after = np.where(rng.random(60) < 0.3, rng.random(60) < 0.8, before)
        verdict_row, other = ([GOOD if hit else SHORT for hit in side] for side in (after, before))
        interval = (
            compared(rows(*verdict_row), rows(*other), rng=rng, resamples=300)
            .overall.differences[TRR]
            .estimate.interval
        )
        covered += interval.low <= 0.3 * (0.8 - 0.5) <= interval.high
    assert covered >= 180


def test_several_responses_to_a_question_travel_together():
    run = [SettledVerdict(f"r{n}", f"q{n % 3}", GOOD if n < 9 else SHORT, "b") for n in range(12)]
    base = rows(GOOD, SHORT, GOOD)
    comparison = compared(run, base)
    trr = comparison.overall.differences[TRR]
    assert (trr.run.hits, trr.run.n) == (9, 12)
    assert trr.estimate.value == pytest.approx(9 / 12 - 2 / 3)
    assert (comparison.overall.run_responses, comparison.overall.base_responses) == (12, 3)
    # Which of the four responses to a question the other run's goes with is not known, but for one of its id.
    assert comparison.run_alone == UnsharedResponseCounts(0, 0, 9)
    assert {pair.run.response_id for pair in comparison.pairs} == {"r0", "r1", "r2"}


def test_equal_runs_do_not_promise_certainty():
    verdicts = [GOOD, SHORT] * 10
    trr = compared(rows(*verdicts), rows(*verdicts)).overall.differences[TRR]
    assert trr.constant
    assert trr.estimate.value == 0
    low, high = trr.estimate.interval
    assert 0.1 < high < 0.25
    assert low == pytest.approx(-high)
    # All against none: an unseen share of questions could say the contrary.
    verdict_row = compared(rows(*[GOOD] * 20), rows(*[SHORT] * 20)).overall.differences[TRR].estimate
    assert verdict_row.value == 1
    assert verdict_row.interval == pytest.approx((1 - 2 * high, 1))


def test_the_bound_counts_only_questions_that_count():
    """Of ten questions two have a wrong answer in both runs."""
    verdicts = [GOOD] * 8 + [SHORT] * 2
    risk = compared(rows(*verdicts), rows(*verdicts)).overall.differences[Metric.GAP_RISK]
    assert risk.estimate.interval.high > 0.5
    assert compared(rows(*verdicts), rows(*verdicts)).overall.differences[TRR].estimate.interval.high < 0.4


def test_what_is_undefined_in_one_run_has_no_difference():
    comparison = compared(rows(GOOD, GOOD), rows(GOOD, ASTRAY)).overall.differences[Metric.GAP_RISK]
    assert comparison.run.value is None
    assert comparison.base.value == 1
    assert comparison.estimate.value is None
    assert comparison.estimate.interval is None
    assert comparison.bounds is None


def test_the_unjudged_are_in_no_rate_and_widen_the_bounds():
    comparison = compared(rows(GOOD, OPEN, SHORT), rows(GOOD, GOOD, OPEN)).overall.differences[TRR]
    assert (comparison.run.n, comparison.run.unjudged, comparison.base.n, comparison.base.unjudged) == (2, 1, 2, 1)
    assert comparison.estimate.value == pytest.approx(1 / 2 - 1)
    # The run is between 1/3 and 2/3, the other between 2/3 and 1.
    assert comparison.bounds == pytest.approx((-2 / 3, 0))


def test_datasets_are_compared_apart_and_drawn_apart():
    run = rows(GOOD, SHORT) + rows(GOOD, GOOD, benchmark="a", prefix="s")
    base = rows(SHORT, SHORT) + rows(GOOD, SHORT, benchmark="a", prefix="s")
    comparison = compared(run, base)
    assert [group.group for group in comparison.groups] == [(), ("a",), ("b",)]
    assert [group.questions for group in comparison.groups] == [4, 2, 2]
    assert comparison.groups[1].differences[TRR].estimate.value == 0.5
    assert [group.group for group in compared(rows(GOOD), rows(GOOD)).groups] == [()]


def test_one_id_in_two_datasets_is_two_questions():
    comparison = compared(rows(GOOD, GOOD), rows(GOOD) + rows(GOOD, GOOD, benchmark=None))
    assert comparison.overall.questions == 1
    assert comparison.run_alone.questions == 1
    assert comparison.base_alone.questions == 2


def test_every_change_of_class_is_counted_once():
    run, base = rows(GOOD, SHORT, UNSOUND, OPEN, GOOD), rows(SHORT, GOOD, UNSOUND, GOOD, GOOD)
    comparison = compared(run, base)
    reliable, short = TraceGroup.RELIABLE, FailureClass.INCOMPLETE_REASONING
    unsound = TraceGroup.LOCALLY_UNSOUND
    assert comparison.transitions == {
        (short, reliable): 1, (reliable, short): 1, (unsound, unsound): 1, (reliable, None): 1, (reliable, reliable): 1
    }  # fmt: skip
    assert [pair.run.instance_id for pair in comparison.changed] == ["q0", "q1", "q3"]
    assert sum(comparison.transitions.values()) == len(comparison.pairs) == 5


def of_model(name, verdict, model, question="q"):
    return SettledVerdict(name, question, verdict, "b", None if model is None else ResponseSource(model))


def test_partners_are_of_one_id_or_of_one_source_and_never_of_one_place():
    """What neither shares an id nor a source was paired as it stood in the files."""
    row = of_model
    base = [row("a", GOOD, "m"), row("b", SHORT, "m"), row("c", UNSOUND, "n"), row("d", ASTRAY, "o")]
    run = [row("x", GOOD, "p"), row("y", GOOD, "n"), row("b", GOOD, "q"), row("z", GOOD, "p"), row("u", GOOD, "p")]
    comparison = compared(run, base)
    assert {pair.run.response_id: pair.base.response_id for pair in comparison.pairs} == {"b": "b", "y": "c"}
    assert (comparison.run_alone.unpaired, comparison.base_alone.unpaired) == (3, 2)
    assert sum(comparison.transitions.values()) == 2


@pytest.mark.parametrize("model", [None, "m"])
def test_several_responses_of_one_source_or_of_none_are_not_paired(model):
    base, run = ([of_model(f"{side}{n}", GOOD, model) for n in range(2)] for side in "ab")
    comparison = compared(run, base)
    assert comparison.pairs == ()
    assert (comparison.run_alone.unpaired, comparison.base_alone.unpaired) == (2, 2)


def test_the_only_responses_to_a_question_are_partners_whatever_their_models():
    comparison = compared([of_model("x", GOOD, "new")], [of_model("y", SHORT, "old")])
    assert [(pair.base.response_id, pair.run.response_id) for pair in comparison.pairs] == [("y", "x")]


@pytest.mark.slow
def test_small_datasets_are_not_trusted_with_their_own_variance():
    """Five datasets of three questions: the interval held the truth in 86 % of cases."""
    draw = np.random.default_rng(3)
    covered, repetitions = 0, 200
    for _ in range(repetitions):
        before = draw.random(15) < 0.6
        after = np.where(draw.random(15) < 0.4, draw.random(15) < 0.8, before)
        run, base = (
            [SettledVerdict(f"r{n}", f"q{n}", GOOD if hit else SHORT, f"d{n % 5}") for n, hit in enumerate(side)]
            for side in (after, before)
        )
        ends = compared(run, base, rng=draw, resamples=300).overall.differences[TRR].estimate.interval
        covered += ends.low <= 0.4 * (0.8 - 0.6) <= ends.high
    assert covered >= 0.91 * repetitions


def test_every_verdict_has_a_class():
    labels = [True, False, None]
    for verdict in [Verdict(a, b, c, d) for a in labels for b in labels for c in labels for d in labels]:
        assert classify_response(verdict) in RESPONSE_CLASSES
    assert classify_response(ASTRAY) is FailureClass.PATH_DEVIATION
    assert classify_response(OPEN) is None
    # A failure of the whole in a response that is unsound as well is not in the gap.
    assert classify_response(Verdict(False, False, False)) is TraceGroup.LOCALLY_UNSOUND


def test_equal_seeds_give_equal_intervals():
    run, base = rows(*[GOOD, SHORT, GOOD] * 5), rows(*[GOOD, GOOD, SHORT] * 5)
    assert compared(run, base) == compared(run, base)
    assert compared(run, base).overall != compared(run, base, seed=2).overall


def test_runs_without_a_shared_question_are_refused():
    with pytest.raises(UserError, match="share no question"):
        compared(rows(GOOD), rows(GOOD, benchmark="other"))
    with pytest.raises(UserError, match="share no question"):
        compared([], [])
