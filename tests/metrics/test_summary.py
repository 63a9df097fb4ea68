import numpy as np
import pytest

from eclosure.core.response import Source
from eclosure.core.verdict import SettledVerdict, Verdict
from eclosure.errors import SettingError
from eclosure.metrics.rates import Metric, composition, rates
from eclosure.metrics.summary import GROUPINGS, IntervalMethod, summarize
from eclosure.stats.intervals import wilson

QWEN, TUNED = Source("qwen"), Source("qwen", "SFT", 42)
ROWS = [
    SettledVerdict("r1", "q1", Verdict(True, True, True, True, True), "2wiki", QWEN),
    SettledVerdict("r2", "q1", Verdict(True, True, False, True, False), "2wiki", TUNED),
    SettledVerdict("r3", "q2", Verdict(False, None, None, None, False), "2wiki", TUNED),
    # Another benchmark's q1 is another question.
    SettledVerdict("r4", "q1", Verdict(correct=True), "hotpot", TUNED),
    SettledVerdict("r5", "q9", Verdict(correct=True)),
]


def summaries(rows, by=(), resamples=50):
    return summarize(rows, by, rng=np.random.default_rng(42), resamples=resamples)


def test_all_responses_together():
    (summary,) = summaries(ROWS)
    verdicts = [row.verdict for row in ROWS]
    assert (summary.group, summary.responses, summary.questions) == ((), 5, 4)
    assert summary.rates == rates(verdicts)
    assert summary.composition == composition(verdicts)
    for metric, estimate in summary.estimates.items():
        assert estimate.value == pytest.approx(summary.rates[metric].value)
    assert list(summary.estimates) == list(Metric)


@pytest.mark.parametrize(
    "by,sizes",
    [
        (["benchmark"], {(): 5, ("2wiki",): 3, ("hotpot",): 1, ("unknown",): 1}),
        (["model"], {(): 5, ("qwen",): 4, ("unknown",): 1}),
        (["method"], {(): 5, ("Backbone",): 2, ("SFT",): 3}),
        (["seed"], {(): 5, ("42",): 3, ("unknown",): 2}),
        (
            ["method", "benchmark"],
            {
                (): 5,
                ("Backbone", "2wiki"): 1,
                ("Backbone", "unknown"): 1,
                ("SFT", "2wiki"): 2,
                ("SFT", "hotpot"): 1,
            },
        ),
    ],
)
def test_each_group_after_the_whole(by, sizes):
    assert {summary.group: summary.responses for summary in summaries(ROWS, by)} == sizes


def test_intervals_resample_questions():
    # Two responses to one question travel together, so its accuracy of 1/2 cannot move.
    (summary,) = summaries(ROWS[:2])
    assert summary.estimates[Metric.ACCURACY] == (0.5, (0.5, 0.5), 0)


def test_where_all_or_none_are_hits_the_interval_is_wilsons_over_questions_that_count():
    rows = [
        SettledVerdict(f"{question}/{number}", question, Verdict(correct=True, locally_sound=sound))
        for question, sound in (("q1", False), ("q2", False), ("q3", None))
        for number in range(4)
    ]
    (summary,) = summaries(rows)
    assert summary.estimates[Metric.ACCURACY] == (1, wilson(3, 3), 0)
    # The third question was not judged, so it does not count; twelve responses are no twelve questions.
    assert summary.estimates[Metric.LOCAL_SOUNDNESS_RATE].interval == wilson(0, 2)
    assert summary.methods[Metric.LOCAL_SOUNDNESS_RATE] is IntervalMethod.WILSON


def test_every_interval_says_how_it_was_made():
    (summary,) = summaries(ROWS[:2])
    assert summary.methods[Metric.ACCURACY] is IntervalMethod.BOOTSTRAP
    assert summary.methods[Metric.LOCAL_SOUNDNESS_RATE] is IntervalMethod.WILSON
    (summary,) = summaries(ROWS[4:])
    assert summary.methods[Metric.ALIGNMENT_RATE] is None
    assert {metric for metric, method in summary.methods.items() if method is None} == {
        metric for metric, estimate in summary.estimates.items() if estimate.interval is None
    }


def test_no_rows_no_summaries():
    assert summaries([]) == []


def test_an_unknown_grouping_is_refused_with_the_known_ones():
    with pytest.raises(SettingError, match="cannot group by 'colour'") as error:
        summaries(ROWS, ["benchmark", "colour"])
    assert all(name in str(error.value) for name in GROUPINGS)
