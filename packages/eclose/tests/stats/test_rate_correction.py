from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from eclose.stats.coefficients import MISSING_CODE
from eclose.stats.intervals import wilson_interval
from eclose.stats.rate_correction import JudgeErrors, corrected_rate, rate_from_judge_errors, sampling_weights

X = MISSING_CODE


def rng(seed=0):
    return np.random.default_rng(seed)


def codes(*labels):
    return np.array(labels, np.intp)


def alone(labels):
    """Every case its own question."""
    return np.arange(len(labels))


def corrected(judge, human, question=None, seed=0, **settings):
    judge, human = np.asarray(judge, np.intp), np.asarray(human, np.intp)
    question = alone(judge) if question is None else np.asarray(question, np.intp)
    return corrected_rate(judge, human, question, rng=rng(seed), **settings)


# Ten judged, six of them hits. Four labelled: judge 1 1 1 0, people 1 1 0 0.
JUDGE = codes(1, 1, 1, 0, 1, 1, 1, 0, 0, 0)
HUMAN = codes(1, 1, 0, 0, X, X, X, X, X, X)


def test_a_small_correction_by_hand():
    rate = corrected(JUDGE, HUMAN)
    assert (rate.judged, rate.unjudged, rate.labelled) == (10, 0, 4)
    assert (rate.judge, rate.human) == (6 / 10, 2 / 4)
    # 6/10 + (2/4 - 3/4)
    assert rate.difference == pytest.approx(7 / 20, abs=1e-15)
    # Where the judge sees a hit people see one in 2/3, else in 0/1.
    assert rate.trust == pytest.approx(2 / 3, abs=1e-15)
    # 6/10 · 2/3 + 4/10 · 0
    assert rate.value == pytest.approx(4 / 10, abs=1e-15)
    assert 0 <= rate.interval.low < 4 / 10 < rate.interval.high <= 1


def test_unjudged_cases_widen_what_is_shown_and_are_part_of_nothing_else():
    # Six more without a label of the judge, one of them labelled by people: of 16, 6 are open.
    judge, human = np.append(JUDGE, [X] * 6), np.append(HUMAN, [1, X, X, X, X, X])
    rate, plain = corrected(judge, human), corrected(JUDGE, HUMAN)
    assert (rate.judged, rate.unjudged, rate.labelled) == (10, 6, 4)
    assert (rate.value, rate.judge, rate.human) == (plain.value, plain.judge, plain.human)
    assert rate.bounds == pytest.approx((10 / 16 * 4 / 10, 10 / 16 * 4 / 10 + 6 / 16), abs=1e-15)
    assert rate.widest.low == pytest.approx(10 / 16 * rate.interval.low, abs=1e-15)
    assert rate.widest.high == pytest.approx(10 / 16 * rate.interval.high + 6 / 16, abs=1e-15)
    assert plain.bounds == pytest.approx((plain.value, plain.value), abs=1e-15)


@pytest.mark.parametrize(
    "judge,human",
    [((), ()), ((1, 0), (X, X)), ((X, X), (1, 0)), ((1, X), (X, 1))],
    ids=["none", "no", "un", "apart"],
)
def test_without_a_case_that_both_labelled_there_is_no_corrected_rate(judge, human):
    rate = corrected(judge, human)
    assert (rate.labelled, rate.value, rate.interval, rate.difference, rate.trust) == (0, None, None, None, None)
    assert (rate.bounds, rate.widest) == (None, None)


def test_a_judge_that_says_the_opposite_gets_no_weight():
    rate = corrected([1, 1, 0, 0, 1, 1, 1], [0, 0, 1, 0, X, X, X])
    assert (rate.trust, rate.value) == (0, 1 / 4)


def test_a_sample_with_one_label_of_the_judge_leaves_people_alone():
    rate = corrected([0, 0, 0, 0, 1, 1], [0, 0, 0, 1, X, X])
    assert (rate.trust, rate.value) == (0, 1 / 4)
    # Nobody looked at the two hits of six: they may all be hits or none.
    assert rate.interval.high > 2 / 6


pairs = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0, 1, X])), min_size=2, max_size=40)


@pytest.mark.slow
@given(pairs)
def test_the_weight_is_the_slope_of_human_on_judge_and_the_rate_is_post_stratified(cases):
    judge, human = np.array(cases, np.intp).T
    both = human != X
    rate = corrected(judge, human, draws=10)
    if not both.any() or np.ptp(judge[both]) == 0:
        return
    slope = np.polyfit(judge[both], human[both], 1)[0]
    assert rate.trust == pytest.approx(max(slope, 0), abs=1e-9)
    if slope > 0:
        hits, misses = human[both & (judge == 1)].mean(), human[both & (judge == 0)].mean()
        assert rate.value == pytest.approx(judge.mean() * hits + (1 - judge.mean()) * misses, abs=1e-12)
    assert rate.difference == pytest.approx(judge.mean() + (human - judge)[both].mean(), abs=1e-12)


@pytest.mark.slow
@given(pairs)
def test_the_interval_holds_the_rate_and_stays_between_nothing_and_all(cases):
    judge, human = np.array(cases, np.intp).T
    rate = corrected(judge, human, draws=50)
    if rate.value is not None:
        assert 0 <= rate.interval.low <= rate.value <= rate.interval.high <= 1


def test_at_the_ends_the_interval_begins_with_the_rate():
    none = corrected([0] * 50, [0] * 20 + [X] * 30)
    assert none.value == none.interval.low == 0 < none.interval.high < 0.2
    every = corrected([1] * 50, [1] * 20 + [X] * 30)
    assert every.value == every.interval.high == 1 > every.interval.low > 0.8


@pytest.mark.slow
@given(pairs, st.integers(1, 4), st.randoms(use_true_random=False))
def test_neither_order_nor_copies_within_a_question_change_anything(cases, copies, random):
    judge, human = np.array(cases, np.intp).T
    question = np.array([random.randrange(len(cases)) for _ in cases])
    plain = corrected(judge, human, question, draws=50)
    order = np.repeat(random.sample(range(len(cases)), len(cases)), copies)
    again = corrected(judge[order], human[order], question[order], draws=50)
    assert again.value == pytest.approx(plain.value, abs=1e-12)
    assert again.interval == pytest.approx(plain.interval, abs=1e-12)


@pytest.mark.slow
def test_with_one_case_a_question_the_draws_are_those_of_three_proportions():
    judge = np.repeat(codes(1, 0), [300, 700])
    human = np.full(1000, X)
    # 30 of the judge's hits looked at, 27 confirmed; 60 of the others, 1 a hit.
    human[:30], human[300:360] = 0, 0
    human[:27], human[300] = 1, 1
    rate = corrected(judge, human, draws=200_000)
    draw = rng(1)
    q = draw.beta(301, 701, 400_000)
    drawn = q * draw.beta(27.5, 3.5, q.size) + (1 - q) * draw.beta(1.5, 59.5, q.size)
    tail = expanded_tail(90)
    assert rate.interval == pytest.approx(np.quantile(drawn, [tail, 1 - tail]), abs=1e-3)


def expanded_tail(questions, level=0.95):
    """One tail of Hesterberg's expanded percentiles, by Student's own quantile."""
    return norm.sf(t.ppf((1 + level) / 2, questions - 1) * sqrt((questions + 1) / (questions - 1)))


def test_no_disagreement_among_a_hundred_is_no_certainty():
    judge = (np.arange(2000) % 10 == 0).astype(np.intp)
    human = np.where(np.arange(2000) < 100, judge, X)
    rate = corrected(judge, human)
    textbook = 2 * 1.96 * sqrt(0.09 / 2000)
    assert (rate.value, rate.difference) == (0.1, 0.1)
    assert 1.5 * textbook < rate.interval.high - rate.interval.low < 0.7 * np.diff(wilson_interval(10, 100))[0]


def test_cases_of_one_question_are_not_counted_as_if_they_were_many():
    question = np.arange(3000) // 3
    judge = question % 2
    human = np.where(np.arange(3000) < 90, judge, X)
    # Ninety labelled that agree: of ninety questions, and of thirty.
    many, few = corrected(judge, human), corrected(judge, human, question)
    assert np.diff(few.interval)[0] > 1.8 * np.diff(many.interval)[0]


def test_weights_say_how_many_cases_a_labelled_one_stands_for():
    stratum, labelled = codes(0, 0, 0, 0, 1, 1), np.array([True, True, False, False, True, False])
    assert sampling_weights(stratum, labelled).tolist() == [2, 2, 0, 0, 2, 0]
    with pytest.raises(ValueError, match="stratum 1 has 2 cases and none of them is labelled"):
        sampling_weights(stratum, np.array([True, True, False, False, False, False]))


def test_a_stratified_sample_by_hand():
    # Stratum 0: 8 cases, 4 labelled; stratum 1: 2 cases, both labelled. Weights 2 and 1.
    judge = codes(1, 1, 0, 0, 1, 1, 0, 0, 1, 0)
    human = codes(1, 0, 0, 0, X, X, X, X, 0, 1)
    weight = sampling_weights(codes(*[0] * 8, 1, 1), human != X)
    rate = corrected(judge, human, weight=weight)
    # People: (2·1 + 1·1)/(4·2 + 2·1). The judge's hits: 2 of 2 + 2 + 1; the others: 1 of 2 + 2 + 1.
    assert rate.human == pytest.approx(3 / 10, abs=1e-15)
    assert rate.trust == pytest.approx(2 / 5 - 1 / 5, abs=1e-15)
    assert rate.value == pytest.approx(5 / 10 * 2 / 5 + 5 / 10 * 1 / 5, abs=1e-15)


@pytest.mark.slow
@given(pairs, st.sampled_from([2.0, 8.0]))
def test_equal_weights_are_no_weights(cases, weight):
    judge, human = np.array(cases, np.intp).T
    plain, weighted = (corrected(judge, human, weight=w, draws=50) for w in (None, np.full(len(judge), weight)))
    assert weighted.value == pytest.approx(plain.value, abs=1e-12)
    assert weighted.interval == pytest.approx(plain.interval, abs=1e-12)


def test_sampling_by_the_judges_label_leaves_the_precision_of_each_label_alone():
    # 20 of the judge's hits and 20 of 180 others labelled: whatever the weights, each label has its own rate.
    judge = np.repeat(codes(1, 0), [20, 180])
    human = np.where(np.arange(200) < 40, judge, X)
    human[:2] = 0
    weight = sampling_weights(1 - judge, human != X)
    weighted = corrected(judge, human, weight=weight, draws=50_000)
    assert weighted.value == pytest.approx(0.1 * 18 / 20, abs=1e-15)
    assert weighted.interval == pytest.approx(corrected(judge, human, draws=50_000, seed=1).interval, abs=4e-3)


def errors(estimate, sampled, hits=10, others=10):
    judge = np.concatenate([np.arange(hits) < estimate, np.arange(others) < sampled]).astype(np.intp)
    human = np.repeat(codes(1, 0), [hits, others])
    return JudgeErrors.of(judge, human, alone(judge))


def test_errors_are_kept_question_by_question():
    judge, human = codes(1, 1, 0, 1, 0, 0, 1), codes(1, 0, 0, 1, 0, X, 0)
    estimate = JudgeErrors.of(judge, human, codes(4, 4, 4, 2, 2, 2, 9))
    # Cells: neither, people alone, the judge alone, both.
    assert estimate.counts == ((0, 0, 1, 0), (1, 0, 0, 1), (1, 0, 1, 1))
    assert estimate.questions == (1, 1, 1)
    # Two cases a question on average, two disputed in two questions: (2 + 2)/(2 + 1).
    assert estimate.imaginary == pytest.approx(4 / 3)
    assert estimate.table.tolist() == [[2, 2], [0, 2]]


def test_a_rate_carried_over_by_hand():
    judge = np.repeat(codes(1, 0, X), [45, 55, 25])
    rate = rate_from_judge_errors(judge, alone(judge), errors(estimate=8, sampled=1), rng=rng())
    # (45/100 - 1/10)/(8/10 - 1/10)
    assert rate.value == pytest.approx(1 / 2, abs=1e-15)
    assert (rate.judged, rate.unjudged, rate.labelled, rate.judge, rate.human) == (100, 25, 20, 0.45, 0.5)
    assert rate.interval.low < 0.5 < rate.interval.high
    assert rate.bounds == pytest.approx((0.4, 0.6), abs=1e-15)


@pytest.mark.slow
def test_draws_of_a_rate_carried_over_are_those_of_three_proportions():
    judge = np.repeat(codes(1, 0), [300, 700])
    rate = rate_from_judge_errors(judge, alone(judge), errors(27, 4, hits=30, others=60), rng=rng(), draws=200_000)
    draw = rng(1)
    estimate, sampled = draw.beta(27.5, 3.5, 400_000), draw.beta(4.5, 56.5, 400_000)
    drawn = np.clip((draw.beta(300.5, 700.5, 400_000) - sampled) / (estimate - sampled), 0, 1)
    tail = expanded_tail(90)
    assert rate.interval == pytest.approx(np.quantile(drawn, [tail, 1 - tail]), abs=2e-3)


@pytest.mark.parametrize("share,value", [(0.02, 0), (0.95, 1)])
def test_a_rate_carried_over_stays_a_rate(share, value):
    judge = (np.arange(100) < 100 * share).astype(np.intp)
    rate = rate_from_judge_errors(judge, alone(judge), errors(estimate=8, sampled=1), rng=rng())
    assert rate.value == value
    assert 0 <= rate.interval.low <= value <= rate.interval.high <= 1


@pytest.mark.parametrize("with_label", [errors(5, 5), errors(2, 6), errors(0, 1, hits=0), errors(1, 0, others=0)])
def test_a_judge_that_tells_nothing_corrects_nothing(with_label):
    rate = rate_from_judge_errors(codes(1, 0, 1), codes(0, 1, 2), with_label, rng=rng())
    assert (rate.value, rate.interval) == (None, None)


def test_a_judge_that_hardly_tells_leaves_nearly_everything_open():
    judge = np.tile(codes(1, 0), 100)
    low, high = rate_from_judge_errors(judge, alone(judge), errors(6, 4), rng=rng()).interval
    assert low < 0.01
    assert high > 0.99


@pytest.mark.slow
def test_intervals_hold_the_truth_where_the_textbook_fails():
    """A small version of studies/campaigns/judge_validation.py: rate 0.1, errors in 2 %, 100 labelled of 2,000."""
    draw, covered, textbook_held = rng(5), 0, 0
    for _ in range(200):
        truth = (draw.random(2000) < 0.1).astype(np.intp)
        judge = truth ^ (draw.random(2000) < 0.02)
        rate = corrected_rate(judge, np.where(np.arange(2000) < 100, truth, X), np.arange(2000), rng=draw, draws=500)
        covered += rate.interval.low <= 0.1 <= rate.interval.high
        spread = 1.96 * sqrt((truth - judge)[:100].var() / 100 + judge.var() / 2000)
        textbook_held += abs(rate.difference - 0.1) <= spread
    assert covered >= 0.92 * 200 > textbook_held


def count_covered(rate, label):
    """Count which of 40 corrected intervals hold the rate, where a judge misses half of the hits that are hard."""
    draw, covered = rng(6), 0
    for _ in range(40):
        truth, hard = (draw.random(2000) < rate).astype(np.intp), draw.random(2000) < 0.3
        judge = np.where(hard & (draw.random(2000) < 0.5), 0, truth)
        corrected = corrected_rate(judge, label(truth, hard, draw), np.arange(2000), rng=draw, draws=200)
        covered += corrected.interval.low <= rate <= corrected.interval.high
    return covered


@pytest.mark.slow
def test_intervals_miss_the_truth_where_the_easy_responses_are_labelled():
    """The first limit of the correction that the guide names."""
    assert count_covered(0.6, lambda truth, _, __: np.where(np.arange(2000) < 100, truth, X)) >= 36
    assert count_covered(0.6, lambda truth, hard, _: np.where(~hard & (np.cumsum(~hard) <= 100), truth, X)) < 20


@pytest.mark.slow
def test_intervals_miss_the_truth_where_people_err():
    """The second limit: 5 % of the labels are wrong, and more labels make it worse."""

    def err(labels):
        return lambda truth, _, draw: np.where(np.arange(2000) < labels, truth ^ (draw.random(2000) < 0.05), X)

    assert count_covered(0.95, err(400)) < count_covered(0.95, err(30)) < 40


@pytest.mark.parametrize(("responses", "tolerance", "widest"), [(1, 0.005, 1.05), (4, 0.025, 1.25)])
def test_rates_and_intervals_are_those_of_another_implementation(responses, tolerance, widest):
    """Prediction-powered means of glide, of cases and of equal clusters; ours are wider where few are labelled."""
    estimators = pytest.importorskip("glide.estimators")
    question = np.arange(2000) // responses
    widths = []
    for seed in range(8):
        draw = rng(seed)
        truth = (draw.random(2000) < np.repeat(draw.beta(0.6, 0.4, 2000 // responses), responses)).astype(np.intp)
        judge = np.where(draw.random(2000) < 0.15, 1 - truth, truth)
        human = np.where(np.arange(2000) < 400, truth, X)
        ours = corrected_rate(judge, human, question, rng=draw)
        human_labels = np.where(human == X, np.nan, human.astype(float))
        if responses == 1:
            theirs = estimators.PPIMeanEstimator().estimate(human_labels, judge.astype(float))
        else:
            theirs = estimators.ClusteredPPIMeanEstimator().estimate(human_labels, judge.astype(float), question)
        assert ours.value == pytest.approx(theirs.confidence_interval.mean, abs=tolerance)
        low, high = theirs.confidence_interval.lower_bound, theirs.confidence_interval.upper_bound
        widths.append((ours.interval.high - ours.interval.low) / (high - low))
    assert 0.97 < np.mean(widths) < widest
