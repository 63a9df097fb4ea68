import numpy as np
import pytest

from eclose.errors import SettingError
from eclose.metrics.rates import Metric, compute_metric_rates, count_response_composition
from eclose.metrics.summary import VERDICT_GROUPINGS, VerdictCounts, summarize_verdicts
from eclose.stats.clustered_rates import QuestionHitCounts
from eclose.stats.intervals import wilson_interval
from eclose.values.response import ResponseSource
from eclose.values.verdict import SettledVerdict, Verdict

QWEN, TUNED = ResponseSource("qwen"), ResponseSource("qwen", "SFT", 42)
ROWS = [
    SettledVerdict("r1", "q1", Verdict(True, True, True, True, True), "2wiki", QWEN),
    SettledVerdict("r2", "q1", Verdict(True, True, False, True, False), "2wiki", TUNED),
    SettledVerdict("r3", "q2", Verdict(False, None, None, None, False), "2wiki", TUNED),
    # Another benchmark's q1 is another question.
    SettledVerdict("r4", "q1", Verdict(correct=True), "hotpot", TUNED),
    SettledVerdict("r5", "q9", Verdict(correct=True)),
]


def test_all_responses_together():
    (summary,) = summarize_verdicts(ROWS)
    verdicts = [row.verdict for row in ROWS]
    assert (summary.group, summary.responses, summary.questions) == ((), 5, 4)
    assert summary.rates == compute_metric_rates(verdicts)
    assert summary.composition == count_response_composition(verdicts)
    for metric, estimate in summary.estimates.items():
        assert estimate.value == pytest.approx(summary.rates[metric].value)
    assert list(summary.estimates) == list(Metric)


@pytest.mark.parametrize(
    "by,sizes",
    [
        (["benchmark"], {(): 5, ("2wiki",): 3, ("hotpot",): 1, ("unknown",): 1}),
        (["model"], {(): 5, ("qwen",): 4, ("unknown",): 1}),
        (["method"], {(): 5, ("backbone",): 2, ("SFT",): 3}),
        (["seed"], {(): 5, ("42",): 3, ("unknown",): 2}),
        (
            ["method", "benchmark"],
            {
                (): 5,
                ("backbone", "2wiki"): 1,
                ("backbone", "unknown"): 1,
                ("SFT", "2wiki"): 2,
                ("SFT", "hotpot"): 1,
            },
        ),
    ],
)
def test_each_group_after_the_whole(by, sizes):
    assert {summary.group: summary.responses for summary in summarize_verdicts(ROWS, by)} == sizes


def judged(question, number, **labels):
    return SettledVerdict(f"{question}/{number}", question, Verdict(**labels))


def test_intervals_are_over_questions():
    rows = [judged(f"q{question}", number, correct=question > 0) for question in range(10) for number in range(4)]
    (summary,) = summarize_verdicts(rows)
    (single,) = summarize_verdicts([row for row in rows if row.response_id.endswith("/0")])
    # Responses to one question that share their fate are one, however many there are.
    assert summary.estimates[Metric.ACCURACY].interval == pytest.approx(
        single.estimates[Metric.ACCURACY].interval, abs=0.01
    )
    assert summary.counts[Metric.ACCURACY] == QuestionHitCounts(((0, 4, 1), (4, 0, 9)))


def test_one_question_never_gives_certainty():
    rows = [judged("q", number, correct=number < 45) for number in range(50)]
    (summary,) = summarize_verdicts(rows)
    low, high = summary.estimates[Metric.ACCURACY].interval
    assert low < 0.1
    assert high > 0.9


def test_unjudged_questions_do_not_narrow_an_interval():
    rows = [judged(f"q{number}", 0, locally_sound=sound) for number, sound in enumerate((False, False, None))]
    (summary,), (fewer,) = summarize_verdicts(rows), summarize_verdicts(rows[:2])
    assert summary.estimates[Metric.LOCAL_SOUNDNESS_RATE] == fewer.estimates[Metric.LOCAL_SOUNDNESS_RATE]
    assert summary.estimates[Metric.ALIGNMENT_RATE] == (None, None, 0)


def test_the_widest_interval_holds_whatever_the_unjudged_are():
    """Where the judge falls silent on exactly the bad responses, the others are no sample of all."""
    rows = [judged(f"q{number}", 0, correct=True if number < 850 else None) for number in range(1_000)]
    (summary,) = summarize_verdicts(rows)
    widest = summary.widest(Metric.ACCURACY)
    (failed,) = summarize_verdicts([judged(f"q{number}", 0, correct=number < 850) for number in range(1_000)])
    assert widest.low == failed.estimates[Metric.ACCURACY].interval.low
    assert widest.high == 1
    assert summary.widest(Metric.LOCAL_SOUNDNESS_RATE) == pytest.approx((0, 1), abs=0.01)
    # Responses without any judgment count in the same way.
    (counted,) = summarize_verdicts(rows[:850])
    assert counted.widest(Metric.ACCURACY, left_out=150) == widest
    assert counted.widest(Metric.ACCURACY) == counted.estimates[Metric.ACCURACY].interval


def test_unjudged_responses_to_new_questions_never_raise_the_lower_end():
    rows = [judged("q1", number, correct=number % 4 < 3) for number in range(8)]
    (summary,) = summarize_verdicts(rows)
    for left_out in (1, 5, 20):
        assert summary.widest(Metric.ACCURACY, left_out).low <= summary.estimates[Metric.ACCURACY].interval.low
        assert summary.widest(Metric.ACCURACY, left_out).high >= summary.estimates[Metric.ACCURACY].interval.high


def test_a_rate_that_may_have_no_case_at_all_has_no_widest_interval():
    (summary,) = summarize_verdicts([judged("q", 0, correct=True, locally_sound=True, aligned=True, closed=True)])
    assert summary.widest(Metric.GAP_SHARE) is None
    assert summary.widest(Metric.GAP_SHARE, left_out=1) is not None


def test_the_gap_has_the_papers_intervals_beside_ours():
    rows = [judged(f"q{n}", 0, locally_sound=True, aligned=True, closed=n > 3, correct=n > 5) for n in range(40)]
    (summary,) = summarize_verdicts(rows)
    assert summary.rates[Metric.GAP_SHARE].wilson == wilson_interval(4, 4)
    assert summary.rates[Metric.GAP_RISK].wilson == wilson_interval(4, 6)
    assert summary.rates[Metric.GAP_AMONG_SOUND].value == 0.1


def test_no_rows_no_summaries():
    assert summarize_verdicts([]) == []


def test_an_unknown_grouping_is_refused_with_the_known_ones():
    with pytest.raises(SettingError, match="cannot group by 'colour'") as error:
        summarize_verdicts(ROWS, ["benchmark", "colour"])
    assert all(name in str(error.value) for name in VERDICT_GROUPINGS)


def test_verdicts_of_some_rows_are_counted_alone():
    reliable, unsound = Verdict(True, True, True, True, True), Verdict(False, True, True, True, True)
    rows = [
        SettledVerdict(f"r{number}", f"q{number % 2}", verdict)
        for number, verdict in enumerate((reliable, unsound, reliable))
    ]
    counts = VerdictCounts.of(rows)
    assert counts.by_verdict() == {reliable: 2, unsound: 1}
    assert counts.select(np.array([True, False, True])).by_verdict() == {reliable: 2}
    assert counts.select(np.array([1])).by_verdict() == {unsound: 1}
