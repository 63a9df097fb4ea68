"""Rates over time windows: what is in a window, and alarms of runs that grow."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import eclose
from eclose.diagnosis.gate_rules import GateLimits, GateOutcome
from eclose.diagnosis.label_table import LabelTable
from eclose.diagnosis.trend import TREND_METRICS, check_trend_limits, measure_trend
from eclose.errors import SettingError, UserError
from eclose.metrics.rates import Metric, compute_metric_rate
from eclose.values.judgment import Criterion
from tests.diagnosis.judged_responses import random_cases
from tests.diagnosis.test_diagnose import case

GOOD, BAD = "r" * 49 + "g", "r" * 40 + "g" * 10
FIRST = datetime(2026, 11, 2, tzinfo=UTC)
TRR = Metric.TRACE_RELIABILITY_RATE


def timed(one, number, time, question=None):
    name = f"q{number if question is None else question}"
    response = replace(one.response, id=f"r{number}", instance_id=name, time=time)
    judgment = replace(one.judgment, response_id=f"r{number}")
    return replace(one, instance=replace(one.instance, id=name), response=response, judgment=judgment)


def day(number, hour=0):
    return (FIRST + timedelta(days=number, hours=hour)).isoformat()


def unjudged(one):
    return replace(one, judgment=replace(one.judgment, closed=None, unjudged={Criterion.CLOSURE: "no usable reply"}))


def run_of(*days):
    """A run whose days have letters: reliable (r), in the gap (g), not judged (u)."""
    kinds = {"r": case(), "g": case(closed=False), "u": unjudged(case())}
    each = [(number, kind) for number, kinds_of_day in enumerate(days) for kind in kinds_of_day]
    return [timed(kinds[kind], row, day(number)) for row, (number, kind) in enumerate(each)]


def labels_of(*days):
    return LabelTable.of(run_of(*days))


def test_windows_have_the_rates_of_their_own_responses():
    cases = random_cases(4, count=300)
    times = [day(number % 7, hour=number % 24) for number in range(300)]
    cases = [replace(one, response=replace(one.response, time=time)) for one, time in zip(cases, times, strict=True)]
    for metric in TREND_METRICS:
        trend = measure_trend(LabelTable.of(cases), metric, "1d")
        assert [window.start for window in trend.windows] == [FIRST + timedelta(days=number) for number in range(7)]
        for number, window in enumerate(trend.windows):
            members = [one for one in cases if one.response.time.startswith(day(number)[:10])]
            assert window.responses == len(members)
            questions = {(one.instance.benchmark, one.instance.id) for one in members}
            assert window.questions == len(questions)
            expected = compute_metric_rate(metric, [one.verdict for one in members])
            rate = window.rate.rate
            assert (rate.hits, rate.n, rate.unjudged) == (expected.hits, expected.n, expected.unjudged)


@pytest.mark.parametrize(
    ("by", "starts"),
    [
        ("1w", ["2026-11-02T00:00", "2026-11-09T00:00"]),
        ("1d", ["2026-11-02T00:00", "2026-11-08T00:00", "2026-11-09T00:00"]),
        ("6h", ["2026-11-02T00:00", "2026-11-08T18:00", "2026-11-09T00:00"]),
        ("30m", ["2026-11-02T00:30", "2026-11-08T23:30", "2026-11-09T00:00"]),
    ],
)
def test_windows_begin_at_full_hours_days_and_mondays_in_utc(by, starts):
    times = ("2026-11-02T00:59:59Z", "2026-11-08T23:59:59.999999Z", "2026-11-09T01:00:00+01:00")
    cases = [timed(case(), number, time) for number, time in enumerate(times)]
    trend = measure_trend(LabelTable.of(cases), TRR, by)
    assert [f"{window.start:%Y-%m-%dT%H:%M}" for window in trend.windows] == starts


def test_responses_without_a_time_are_counted_and_in_no_window():
    cases = [*run_of("rr"), timed(case(), 8, None), timed(case(), 9, "soon")]
    trend = measure_trend(LabelTable.of(cases), TRR, "1d", left_out=3)
    assert (trend.windows[0].responses, trend.timeless, trend.left_out) == (2, 2, 3)


def test_a_run_without_any_time_is_refused_with_where_times_come_from():
    with pytest.raises(UserError, match=r"no response has a time\..*created_at"):
        measure_trend(LabelTable.of([timed(case(), 1, None)]), TRR, "1d")


@pytest.mark.parametrize("by", ["", "d", "0d", "1.5h", "1y", "-1d", "1d "])
def test_a_length_of_a_window_that_cannot_be_read_is_refused(by):
    with pytest.raises(SettingError, match="write a number with m, h, d or w"):
        measure_trend(labels_of("r"), TRR, by)


def test_a_rate_among_some_responses_has_no_trend():
    with pytest.raises(SettingError, match="LggRisk: a trend is of Acc, LSR"):
        measure_trend(labels_of("r"), Metric.GAP_RISK, "1d")


def test_bounds_narrow_with_the_windows_and_take_unjudged_responses_as_worst():
    judged = measure_trend(labels_of(*["rrrrrrrrrg"] * 40), Metric.GAP_RATE, "1d").windows
    assert judged[0].above < judged[-1].above < 0.1 < judged[-1].below < judged[0].below
    some = measure_trend(labels_of(*["rrrrrrrrrgu"] * 40), Metric.GAP_RATE, "1d").windows
    assert some[-1].above < judged[-1].above
    assert some[-1].below > judged[-1].below


def test_responses_to_one_question_in_a_window_count_once():
    times_ten = [timed(case(closed=False), number, day(number // 10), number // 10) for number in range(200)]
    once = [timed(case(closed=False), number, day(number)) for number in range(20)]
    trends = [measure_trend(LabelTable.of(cases), Metric.GAP_RATE, "1d") for cases in (times_ten, once)]
    ones, others = ([(window.above, window.below) for window in trend.windows] for trend in trends)
    assert ones == others


def test_a_rate_that_changed_has_been_above_more_than_it_has_been_below():
    last = measure_trend(labels_of(*[GOOD] * 30, *[BAD] * 30), Metric.GAP_RATE, "1d").windows[-1]
    assert last.below < 0.05 < last.above - 0.05


def test_the_order_of_rows_does_not_matter():
    cases = run_of(*["rrrg"] * 10, *["rg"] * 10)
    shuffled = [*cases[::2], *cases[1::2]]
    trends = [measure_trend(LabelTable.of(each), TRR, "1d", limit=0.7) for each in (cases, shuffled)]
    assert trends[0] == trends[1]


@pytest.mark.parametrize(
    ("days", "outcome"),
    [
        ([GOOD] * 30, GateOutcome.PASSED),
        ([GOOD] * 30 + [BAD] * 10, GateOutcome.FAILED),
        # Unjudged responses are no evidence of an alarm, nor of its absence.
        ([GOOD] * 30 + ["r" * 40 + "u" * 10] * 10, GateOutcome.UNDECIDED),
    ],
)
@pytest.mark.parametrize("limits", [{"max_lgg": 0.05}, {"min_trr": 0.95}])
def test_a_limit_fails_where_its_rate_has_left_it(days, outcome, limits):
    report = check_trend_limits(labels_of(*days), GateLimits.of(**limits), "1d")
    assert report.outcome is outcome


def test_an_alarm_stays_and_names_the_window_at_whose_end_it_came():
    days = [GOOD] * 30 + [BAD] * 10
    alarm = measure_trend(labels_of(*days), Metric.GAP_RATE, "1d", limit=0.05).alarm
    assert FIRST + timedelta(days=30) < alarm < FIRST + timedelta(days=36)
    labels = labels_of(*days, *[GOOD] * 100)
    assert measure_trend(labels, Metric.GAP_RATE, "1d", limit=0.05).alarm == alarm
    (check,) = check_trend_limits(labels, GateLimits.of(max_lgg=0.05), "1d").checks
    assert f"LGG at most 5.0 %: alarm at the end of the window of {alarm:%Y-%m-%d}, one of 140 windows of 1d" in str(
        check
    )


def test_several_limits_share_the_probability_of_a_false_alarm():
    labels = labels_of(*[GOOD] * 10, *[BAD] * 40)
    single, both = (
        check_trend_limits(labels, GateLimits.of(max_lgg=0.15, **others), "1d").checks[-1]
        for others in ({}, {"min_trr": 0.0, "min_accuracy": 0.0, "min_lsr": 0.0})
    )
    assert single.outcome is both.outcome is GateOutcome.FAILED
    assert single.message < both.message, "the alarm comes later"


@pytest.mark.parametrize("limits", [{"max_unjudged": 0.1, "max_lgg": 0.1}, {"max_trr_drop": 0.1}])
def test_limits_that_are_of_no_rate_are_refused(limits):
    with pytest.raises(SettingError, match="--trend takes"):
        check_trend_limits(labels_of("r"), GateLimits.of(**limits), "1d")


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"limit": 85}, "between 0 and 1"), ({"metric": "trust"}, "there is no such rate. Use one of Acc")],
)
def test_a_setting_of_a_trend_that_cannot_be_read_is_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        eclose.trend(run_of("r"), **settings)


def test_the_gate_of_a_trend_takes_the_runs_own_labels_alone(tmp_path):
    with pytest.raises(SettingError, match="Leave --against and --validation out"):
        eclose.gate(run_of("r"), min_trr=0.5, trend=True, validation=tmp_path / "validation.json")
    assert eclose.gate(run_of(*[GOOD] * 30), min_trr=0.5, trend=True, by="1w").passed
