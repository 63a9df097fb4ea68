from dataclasses import fields
from itertools import product

import numpy as np
import pytest
from sklearn import metrics as oracle

from eclose.metrics.judge_against_people import (
    DIRECT_LABELS,
    LABEL_METRICS,
    JudgeAgreementScores,
    JudgedLabel,
    ValidationCase,
    count_judge_errors,
    encode_rate_hits,
    validate_judge,
)
from eclose.metrics.rates import compute_metric_rate
from eclose.metrics.repeats import TwoJudgesCase, compare_judges
from eclose.stats.intervals import Estimate, Interval
from eclose.values.verdict import Verdict

L, A, C, K, ACC, G, TRR, LGG = JudgedLabel


def verdict(text):
    """Five labels in the order L A C K Acc; a dash is an unknown one."""
    return Verdict(*({"1": True, "0": False, "-": None}[letter] for letter in text))


def case(question, judge, human, dataset="d"):
    return ValidationCase(question, dataset, verdict(judge), verdict(human))


def test_the_rate_of_a_label_is_that_of_results():
    """Under every combination of labels, what a label counts is what its rate counts."""
    verdicts = [verdict(text) for text in map("".join, product("10-", repeat=5))]
    assert LABEL_METRICS.keys() == set(JudgedLabel)
    for label, metric in LABEL_METRICS.items():
        validation = [compute_metric_rate(metric, [compared_case]) for compared_case in verdicts]
        assert [compared_case.hits if compared_case.n else -1 for compared_case in validation] == list(
            encode_rate_hits(label, verdicts)
        )


def rng(seed=42):
    return np.random.default_rng(seed)


def report(cases, seed=42, resamples=200):
    return validate_judge(cases, rng=rng(seed), resamples=resamples)


# judge, people:       L  A  C  K Acc          G    TRR  LGG
SMALL = [
    case("q1", "11111", "11111"),  # agree          1,1  1,1  0,0
    case("q1", "01101", "11101"),  # a false alarm  1,1  0,1  0,0
    case("q2", "11000", "11110"),  # C a false alarm 0,1  0,1  1,0
    case("q2", "10110", "10010"),  # C missed       0,0  0,0  1,1
    case("q3", "1-1-1", "011-1"),  # L missed, A unjudged, K unknown to both
]


@pytest.mark.parametrize(
    "label,labelled,n,counts,scores",
    [
        # Pairs (people, judge): 11 10 11 11 01. Recalls 0/1 and 3/4; chance (1/5)(1/5) + (4/5)(4/5) = 17/25.
        (L, 5, 5, (0, 1, 1), (3 / 5, 0, 0, 0, 3 / 8, (3 / 5 - 17 / 25) / (8 / 25), 0)),
        # 11 11 11 00 and one unjudged.
        (A, 5, 4, (1, 0, 0), (1, 1, 1, 1, 1, 1, 0)),
        # 11 11 10 01 11: one of each error; chance (1/5)^2 + (4/5)^2 = 17/25.
        (C, 5, 5, (0, 1, 1), (3 / 5, 0, 0, 0, 3 / 8, (3 / 5 - 17 / 25) / (8 / 25), 0)),
        # 11 00 10 11: chance 1/4 · 2/4 + 3/4 · 2/4 = 1/2.
        (K, 4, 4, (1, 0, 1), (3 / 4, 2 / 3, 1 / 2, 1, (1 + 2 / 3) / 2, 1 / 2, 1 / 4)),
        # 11 11 00 00 11
        (ACC, 5, 5, (2, 0, 0), (1, 1, 1, 1, 1, 1, 0)),
        # 11 11 10 00, and one the judge leaves open.
        (G, 5, 4, (1, 0, 1), (3 / 4, 2 / 3, 1 / 2, 1, (1 + 2 / 3) / 2, 1 / 2, 1 / 4)),
        # 11 10 10 00, and one the judge leaves open: chance 1/4 · 3/4 + 3/4 · 1/4 = 6/16.
        (TRR, 5, 4, (1, 0, 2), (2 / 4, 1 / 2, 1 / 3, 1, (1 + 1 / 3) / 2, (1 / 2 - 6 / 16) / (10 / 16), 2 / 4)),
        # In the gap: 00 00 01 11, people see one, the judge two; chance 1/4 · 2/4 + 3/4 · 2/4.
        (LGG, 5, 4, (1, 0, 1), (3 / 4, 2 / 3, 1 / 2, 1, (1 + 2 / 3) / 2, 1 / 2, 1 / 4)),
    ],
)
def test_a_small_validation_by_hand(label, labelled, n, counts, scores):
    """Agreement, failure F1, precision and recall, balanced accuracy, kappa, difference of failure rates."""
    row = report(SMALL).overall.rows[label]
    assert (row.labelled, row.n, row.unjudged) == (labelled, n, labelled - n)
    assert (row.found, row.misses, row.false_alarms) == counts
    validation = [getattr(row.scores, field.name).value for field in fields(JudgeAgreementScores)]
    assert validation == pytest.approx(scores, abs=1e-15)
    assert row.disagreement.value == pytest.approx(1 - row.scores.agreement.value, abs=1e-15)


def test_the_means_are_over_the_five_labels_a_judge_gives():
    overall = report(SMALL).overall
    assert overall.mean_agreement.value == pytest.approx((3 / 5 + 1 + 3 / 5 + 3 / 4 + 1) / 5, abs=1e-15)
    assert overall.mean_failure_f1.value == pytest.approx((0 + 1 + 0 + 2 / 3 + 1) / 5, abs=1e-15)
    assert (overall.responses, overall.questions) == (5, 3)


def test_the_largest_difference_of_failure_rates_is_over_the_same_five():
    """Only K differs, by one of four; TRR and LGG, which differ more, are not among the five."""
    overall = report(SMALL).overall
    assert overall.largest_failure_difference == 1 / 4
    assert overall.rows[K].failures == 1
    # Without a label of K there is no largest of five.
    assert report([case("q1", "111-1", "11111")]).overall.largest_failure_difference is None


def test_the_share_of_missed_failures_has_the_exact_interval():
    """No miss among 8 failures leaves up to 1 - 0.025^(1/8) = 36.9 %."""
    rows = report([case(f"q{number}", "01111", "01111") for number in range(8)]).overall.rows
    assert (rows[L].misses, rows[L].missed.value, rows[L].missed.interval.low) == (0, 0, 0)
    assert rows[L].missed.interval.high == pytest.approx(1 - 0.025 ** (1 / 8), abs=1e-9)
    # Without a failure there is no share.
    assert rows[A].missed == Estimate(None, None)


def test_rates_differ_in_their_own_direction():
    rows = report(SMALL).overall.rows
    # TRR: one of four by the judge, three of four by people. LGG: two of four, and one.
    assert rows[TRR].rate_difference.value == -2 / 4
    assert rows[LGG].rate_difference.value == 1 / 4
    wide = report(random_cases(0)).overall.rows[TRR]
    low, high = wide.scores.failure_difference.interval
    assert low < high
    assert wide.rate_difference.interval == (-high, -low)
    assert str(rows[A].rate_difference.value) == "0.0"


def test_the_papers_gap_responses():
    """Appendix D.1: 126 of 145 gap responses found and 11 added among 2,598."""
    gap, sound = "11011", "11111"
    pairs = [(gap, gap)] * 126 + [(sound, gap)] * 19 + [(gap, sound)] * 11 + [(sound, sound)] * (2598 - 156)
    row = report([case(str(i // 3), *pair) for i, pair in enumerate(pairs)], resamples=5).overall.rows[LGG]
    scores = row.scores
    assert round(100 * scores.failure_precision.value, 2) == 91.97
    assert round(100 * scores.failure_recall.value, 2) == 86.90
    assert round(scores.failure_f1.value, 3) == 0.894
    assert round(100 * row.rate_difference.value, 2) == -0.31


def test_undefined_is_none():
    scores = report([case("q", "11111", "11111")], resamples=20).overall.rows[A].scores
    assert scores.failure_f1 == (None, None, 20)
    assert scores.failure_precision.value is None
    assert scores.failure_recall.value is None
    assert scores.balanced_accuracy.value is None
    assert scores.kappa.value is None
    assert scores.agreement == (1, (1, 1), 0)
    # The paper's interval has no width here; the one of every rate has.
    row = report([case("q", "11111", "11111")], resamples=20).overall.rows[A]
    assert row.agreement == (1, pytest.approx((0.025, 1)), 0)
    assert report([case("q", "11111", "-----")], resamples=20).overall.rows[A].agreement == (None, None, 0)
    assert report([case("q", "11111", "11111")]).overall.mean_failure_f1.value is None


def test_full_agreement_on_a_few_responses_is_no_certainty():
    # The bootstrap of agreement has no width here; the rate of disagreement has.
    row = report([case(str(i), "11111", "11111") for i in range(100)]).overall.rows[A]
    assert row.disagreement.value == 0
    assert row.disagreement.interval.low == 0
    assert 0.03 < row.disagreement.interval.high < 0.05


def test_what_nobody_labelled_is_compared_nowhere():
    rows = report([case("q", "-----", "11111"), case("q", "11111", "-----")], resamples=5).overall.rows
    for row in rows.values():
        assert (row.labelled, row.n, row.unjudged) == (1, 0, 1)
        assert row.scores.agreement == (None, None, 5)
        assert row.disagreement == (None, None, 0)


def random_cases(seed, count=90, unknown=0.1, datasets=("a", "b", "c")):
    """Three responses a question; a judge that errs in 20 %."""
    draw = rng(seed)

    def label(truth):
        return "-" if draw.random() < unknown else str(int(truth))

    cases = []
    for index in range(count):
        truth = draw.random(5) < 0.7
        judge = "".join(label(compared_case ^ (draw.random() < 0.2)) for compared_case in truth)
        human = "".join(label(compared_case) for compared_case in truth)
        cases.append(case(f"q{index // 3}", judge, human, datasets[index // 3 % len(datasets)]))
    return cases


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dataset", [None, "b"])
def test_every_score_is_scikit_learns(seed, dataset):
    cases = random_cases(seed)
    validation = report(cases, resamples=5)
    for label, row in (validation.overall if dataset is None else validation.datasets[dataset]).rows.items():
        pairs = [
            (LABEL_METRICS[label].hit(compared_case.human), LABEL_METRICS[label].hit(compared_case.judge))
            for compared_case in cases
            if dataset in (None, compared_case.dataset)
        ]
        human, judge = zip(*(pair for pair in pairs if None not in pair), strict=True)
        assert row.n == len(human)
        assert row.labelled == sum(compared_case is not None for compared_case, _ in pairs)
        failure = {"pos_label": label is LGG, "zero_division": np.nan}
        expected = JudgeAgreementScores(
            oracle.accuracy_score(human, judge),
            oracle.f1_score(human, judge, **failure),
            oracle.precision_score(human, judge, **failure),
            oracle.recall_score(human, judge, **failure),
            oracle.balanced_accuracy_score(human, judge),
            oracle.cohen_kappa_score(human, judge),
            np.mean(human) - np.mean(judge) if label is not LGG else np.mean(judge) - np.mean(human),
        )
        for field in fields(JudgeAgreementScores):
            value = getattr(row.scores, field.name).value
            assert value == pytest.approx(getattr(expected, field.name), abs=1e-12), field.name


@pytest.mark.slow
def test_a_dataset_has_the_draws_of_its_own_questions_and_shares_them_with_the_whole():
    cases = random_cases(1)
    both = report(cases)
    alone = report([compared_case for compared_case in cases if compared_case.dataset == "a"])
    for label in JudgedLabel:
        assert both.datasets["a"].rows[label].scores == alone.overall.rows[label].scores
    assert both.datasets["a"].mean_agreement == alone.overall.mean_agreement
    assert list(both.datasets) == ["a", "b", "c"]
    assert sum(group.responses for group in both.datasets.values()) == both.overall.responses == 90


def test_questions_of_two_datasets_with_one_name_are_two():
    cases = [case("q", "11111", "11111", "a"), case("q", "01111", "11111", "b")]
    validation = report(cases, resamples=50)
    assert validation.overall.questions == 2
    # Each dataset draws its one question every time.
    assert validation.overall.rows[L].scores.agreement == (0.5, (0.5, 0.5), 0)


def test_a_question_travels_with_all_its_responses():
    # Twenty questions, half of them wrong throughout: thirty responses each are no more than one.
    many = [case(f"q{i}", "11111" if i % 2 else "01111", "11111") for i in range(20) for _ in range(30)]
    few = [case(f"q{i}", "11111" if i % 2 else "01111", "11111") for i in range(20)]
    first, second = (report(cases).overall.rows[L] for cases in (many, few))
    assert first.scores.agreement == second.scores.agreement
    # The effective number of cases is not an integer, and takes in one imaginary question of the same size.
    assert tuple(first.disagreement.interval) == pytest.approx(tuple(second.disagreement.interval), abs=1e-3)


def twice(cases, others):
    return [
        TwoJudgesCase(
            compared_case.question_id, compared_case.dataset, compared_case.judge, other.judge, compared_case.human
        )
        for compared_case, other in zip(cases, others, strict=True)
    ]


@pytest.mark.slow
def test_each_judge_of_a_comparison_has_the_intervals_of_its_own_validation():
    cases, others = random_cases(2, unknown=0), random_cases(2, unknown=0)
    others = [compared_case._replace(judge=verdict("11111")) for compared_case in others]
    compared = compare_judges(twice(cases, others), rng=rng(), resamples=200)
    alone, other = report(cases).overall, report(others).overall
    for label in JudgedLabel:
        assert compared.first[label] == alone.rows[label].scores
        assert compared.second[label] == other.rows[label].scores
        first, second = compared.first[label].agreement, compared.second[label].agreement
        assert compared.difference[label].agreement.value == pytest.approx(first.value - second.value, abs=1e-15)
    difference = alone.mean_agreement.value - other.mean_agreement.value
    assert compared.mean_agreement.value == pytest.approx(difference, abs=1e-15)
    assert compared.mean_failure_f1.value is not None


def test_a_judge_differs_from_itself_in_nothing():
    compared = compare_judges(twice(random_cases(3), random_cases(3)), rng=rng(), resamples=50)
    for label in JudgedLabel:
        assert compared.difference[label].agreement == Estimate(0.0, Interval(0.0, 0.0))
        assert compared.difference[label].kappa == Estimate(0.0, Interval(0.0, 0.0))


def test_only_what_both_judges_labelled_is_compared():
    first = [case("q", "1----", "11111"), case("q", "01111", "11111")]
    second = [case("q", "-1111", "11111"), case("q", "11111", "11111")]
    compared = compare_judges(twice(first, second), rng=rng(), resamples=5)
    assert compared.n == dict.fromkeys(JudgedLabel, 1)
    # The first judge's one right label of L is not held for it: the other gave none there.
    assert compared.first[L].agreement.value == 0
    assert compared.second[L].agreement.value == 1


def test_errors_for_other_runs_count_hits_of_each_rate():
    validation = count_judge_errors(SMALL)
    # People in the rows, hits last. In the gap: 00 00 01 11.
    assert validation[LGG].table.tolist() == [[2, 1], [0, 1]]
    assert validation[TRR].table.tolist() == [[1, 0], [2, 1]]
    # The first question has (1,1) and (1,0) of (people, judge) for L, the second (1,1) twice, the third (0,1).
    assert dict(zip(validation[L].counts, validation[L].questions, strict=True)) == {
        (0, 1, 0, 1): 1,
        (0, 0, 0, 2): 1,
        (0, 0, 1, 0): 1,
    }


def test_labels_as_codes():
    assert encode_rate_hits(LGG, [verdict("11011"), verdict("0----"), verdict("1----")]).tolist() == [1, 0, -1]
    assert DIRECT_LABELS == (L, A, C, K, ACC)
