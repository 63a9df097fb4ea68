"""A gate holds limits against what the rates may be, not against what they seem."""

from __future__ import annotations

from dataclasses import replace

import pytest

import eclose
from eclose.diagnosis.diagnose import diagnose_cases
from eclose.diagnosis.gate_rules import GateBaseRun, GateLimits, GateOutcome, PairedRunRate
from eclose.diagnosis.gate_rules import check_gate_limits as gated
from eclose.diagnosis.number_format import format_percent_with_interval
from eclose.errors import SettingError
from eclose.metrics.rates import Metric
from eclose.stats.intervals import Estimate, Interval
from eclose.stats.rate_correction import CorrectedRate
from eclose.stats.rates import Rate
from eclose.values.judgment import NO_REFERENCE_REASON, Criterion
from eclose_world.demo import write_demo_files
from tests.diagnosis.test_diagnose import case

TRR, LGG = Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE
PASSED, FAILED, UNDECIDED = GateOutcome.PASSED, GateOutcome.FAILED, GateOutcome.UNDECIDED


def gate(diagnosis, limits, omitted=0, **more):
    left_out = [(f"r{number}", "it was not judged") for number in range(omitted)]
    return gated(diagnosis.overall, diagnosis.unjudged, limits, left_out, **more)


def diagnosed(good, bad, unjudged=0, **labels):
    cases = [case(number=number) for number in range(good)]
    cases += [case(number=good + number, closed=False) for number in range(bad)]
    for number in range(unjudged):
        limit_check = case(number=good + bad + number, closed=None)
        cases.append(
            replace(
                limit_check, judgment=replace(limit_check.judgment, unjudged={Criterion.CLOSURE: "refusal"}, **labels)
            )
        )
    # Every response answers a question of its own.
    cases = [
        replace(
            limit_check,
            instance=replace(limit_check.instance, id=f"i{n}"),
            response=replace(limit_check.response, instance_id=f"i{n}"),
        )
        for n, limit_check in enumerate(cases)
    ]
    return diagnose_cases(cases)


def message(report):
    (check,) = report.checks
    return str(check)


def test_many_good_responses_pass():
    report = gate(diagnosed(950, 50), GateLimits(at_least={TRR: 0.9}, at_most={LGG: 0.1}, unjudged=0.0))
    assert report.outcome is PASSED
    assert report.reasons == ()
    assert [check.outcome for check in report.checks] == [PASSED] * 3


def test_a_good_rate_on_few_responses_cannot_be_told():
    report = gate(diagnosed(19, 1), GateLimits(at_least={TRR: 0.9}))
    assert report.outcome is UNDECIDED
    assert message(report) == (
        "cannot tell: TRR at least 90.0 %: 95.0 % [75.1, 99.9], n = 20, the judge's own rate. "
        "About 150 responses would decide it if the rate stays as it is."
    )


@pytest.mark.slow
def test_the_number_of_responses_that_would_decide_does():
    limits = GateLimits(at_least={TRR: 0.9})
    assert "About 150 responses" in message(gate(diagnosed(19, 1), limits))
    assert gate(diagnosed(152, 8), limits).outcome is PASSED
    assert gate(diagnosed(133, 7), limits).outcome is UNDECIDED
    assert "About 180 responses" in message(gate(diagnosed(17, 3), limits))
    assert gate(diagnosed(153, 27), limits).outcome is FAILED
    assert gate(diagnosed(136, 24), limits).outcome is UNDECIDED


def test_what_would_decide_names_the_questions_where_some_have_several_responses():
    """59 questions answered three times ended in 220 responses, with no word of the questions that were missing."""

    def repeated(questions, times=3):
        cases = [case(number=number) for number in range(questions * times)]
        return diagnose_cases(
            [
                replace(
                    good,
                    instance=replace(good.instance, id=f"i{number // times}"),
                    response=replace(good.response, instance_id=f"i{number // times}"),
                )
                for number, good in enumerate(cases)
            ]
        )

    limits = GateLimits(at_least={TRR: 0.95})
    assert "About 220 responses, to about 73 questions, would decide it" in message(gate(repeated(59), limits))
    assert gate(repeated(73), limits).outcome is PASSED
    assert gate(repeated(59, times=4), limits).outcome is UNDECIDED


def test_a_rate_on_its_limit_is_never_decided():
    assert "too near the limit" in message(gate(diagnosed(90, 10), GateLimits(at_least={TRR: 0.9})))


def test_a_rate_fails_where_the_whole_interval_breaks_the_limit():
    report = gate(diagnosed(80, 20), GateLimits(at_most={LGG: 0.05}))
    assert report.outcome is FAILED
    assert message(report) == "failed: LGG at most 5.0 %: 20.0 % [12.7, 29.2], n = 100, the judge's own rate."


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "name"), [(0.035, "at_most"), (0.965, "at_least")])
def test_more_failures_never_turn_a_verdict_for_the_better(limit, name):
    """Of 100 responses no failure failed, one failure passed and two failed."""
    order = [PASSED, UNDECIDED, FAILED]
    metric = {"at_most": LGG, "at_least": TRR}[name]
    verdicts = [gate(diagnosed(100 - bad, bad), GateLimits(**{name: {metric: limit}})).outcome for bad in range(12)]
    assert verdicts == sorted(verdicts, key=order.index)
    assert verdicts[0] is not FAILED
    assert verdicts[-1] is FAILED


def test_one_question_decides_nothing():
    """45 good ones of 50 responses to one question had an interval of no width and passed."""
    cases = [case(number=number, closed=number < 45) for number in range(50)]
    assert gate(diagnose_cases(cases), GateLimits(at_least={TRR: 0.9})).outcome is UNDECIDED


def test_responses_without_a_judgment_always_count_against_passing():
    """950 of 1,000 responses were never judged, and the 50 others passed."""
    report = gate(diagnosed(50, 0), GateLimits(at_least={TRR: 0.9}), omitted=950)
    assert report.outcome is UNDECIDED
    assert message(report) == (
        "cannot tell: TRR at least 90.0 %: 100.0 % [92.9, 100.0], n = 50, the judge's own rate; "
        "[3.7, 100.0] whatever the 950 responses without a label are. "
        "More responses do not decide it: judge the 950 responses without a label."
    )
    assert gate(diagnosed(990, 0), GateLimits(at_least={TRR: 0.9}), omitted=10).outcome is PASSED


@pytest.mark.slow
def test_a_system_that_drops_its_bad_responses_passes_no_more_often():
    """All that fail have no judgment: at the limit, the gate must not pass."""
    limits = GateLimits(at_least={TRR: 0.85})
    assert gate(diagnosed(860, 0), limits, omitted=140).outcome is UNDECIDED
    assert gate(diagnosed(860, 0, unjudged=140), limits).outcome is UNDECIDED
    assert gate(diagnosed(880, 0), limits, omitted=120).outcome is PASSED


@pytest.mark.slow
def test_what_was_not_judged_counts_against_failing_too():
    limits = GateLimits(at_least={TRR: 0.9})
    assert gate(diagnosed(970, 30), limits).outcome is PASSED
    assert gate(diagnosed(870, 30, unjudged=100), limits).outcome is UNDECIDED
    assert gate(diagnosed(400, 100), limits, omitted=10).outcome is FAILED
    assert gate(diagnosed(400, 100), limits, omitted=500).outcome is UNDECIDED


def test_missing_labels_have_a_limit_of_their_own():
    report = gate(diagnosed(870, 30, unjudged=100), GateLimits(unjudged=0.05))
    assert message(report) == "failed: C without a label at most 5.0 %: 100 of 1,000 responses."
    gate_report = diagnosed(10, 0)
    without = replace(gate_report, unjudged={Criterion.COMPLETENESS: {NO_REFERENCE_REASON: 10}})
    assert message(gate(without, GateLimits(unjudged=0.0))) == (
        "passed: without a label at most 0.0 %: "
        "no criterion (K apart, which no judge was asked for) in more than 0 of 10 responses."
    )
    assert gate(
        replace(gate_report, unjudged={Criterion.COMPLETENESS: {"refusal": 10}}), GateLimits(unjudged=0.0)
    ).reasons


def test_a_run_that_was_judged_in_part_does_not_pass_as_judged():
    report = gate(diagnosed(90, 0), GateLimits(unjudged=0.05), omitted=10)
    assert message(report) == (
        "failed: without any judgment at most 5.0 %: 10 of 100 responses, such as r0 (it was not judged)."
    )
    report = gate(diagnosed(90, 0), GateLimits(unjudged=0.1), omitted=10)
    assert message(report) == "passed: without a label at most 10.0 %: no criterion in more than 10 of 100 responses."
    # Ten without any judgment and ten without this label are twenty without it.
    report = gate(diagnosed(80, 0, unjudged=10), GateLimits(unjudged=0.1), omitted=10)
    assert message(report) == "failed: C without a label at most 10.0 %: 20 of 100 responses."


def test_an_undefined_rate_cannot_be_told():
    # No answer is wrong, so there is no risk to speak of.
    report = gate(diagnosed(10, 0), GateLimits(at_most={Metric.GAP_RISK: 0.5}))
    assert message(report) == "cannot tell: LggRisk at most 50.0 %: the rate is undefined, no response counts for it."


def test_a_broken_limit_outweighs_one_that_cannot_be_told():
    report = gate(
        diagnosed(80, 20), GateLimits(at_least={TRR: 0.81, Metric.LOCAL_SOUNDNESS_RATE: 0.9}, at_most={LGG: 0.05})
    )
    assert [check.outcome for check in report.checks] == [UNDECIDED, PASSED, FAILED]
    assert report.outcome is report.decide("pass") is FAILED
    assert len(report.reasons) == 2


def test_what_cannot_be_told_is_taken_for_what_was_asked():
    report = gate(diagnosed(19, 1), GateLimits(at_least={TRR: 0.9}))
    assert [report.decide(undecided) for undecided in (None, "pass", "fail")] == [UNDECIDED, PASSED, FAILED]


def test_several_limits_say_what_that_does_to_errors():
    gate_report = diagnosed(95, 5)
    assert gate(gate_report, GateLimits(at_least={TRR: 0.8}, unjudged=0.0)).multiplicity is None
    several = gate(gate_report, GateLimits(at_least={TRR: 0.8, Metric.ACCURACY: 0.5}, at_most={LGG: 0.2}))
    assert several.multiplicity.startswith("3 limits are held at once.")
    assert several.multiplicity.endswith("fails by chance in at most 7.5 %.")


def corrected(value, low, high, unjudged=0):
    return {TRR: CorrectedRate(1_000, unjudged, 100, 0.872, 0.8, None, 0.6, value, Interval(low, high))}


def test_limits_are_held_against_corrected_rates():
    """The judge passes 40 % of failures: its own rate is 87 % where 80 % is true."""
    gate_report, limits = diagnosed(880, 120), GateLimits(at_least={TRR: 0.85})
    assert gate(gate_report, limits).outcome is PASSED
    report = gate(gate_report, limits, corrected=corrected(0.8, 0.74, 0.845))
    assert message(report) == (
        "failed: TRR at least 85.0 %: 80.0 % [74.0, 84.5], corrected by 100 labels of people "
        "(the judge's own rate: 88.0 % [85.8, 89.9])."
    )
    # Another rate has no correction and is the judge's own.
    other = gate(gate_report, GateLimits(at_most={LGG: 0.2}), corrected=corrected(0.8, 0.74, 0.845))
    assert "12.0 % [10.1, 14.2], n = 1,000, the judge's own rate" in message(other)


@pytest.mark.slow
def test_corrected_rates_say_how_many_labels_would_decide():
    report = gate(diagnosed(880, 120), GateLimits(at_least={TRR: 0.75}), corrected=corrected(0.8, 0.7, 0.88))
    assert report.outcome is UNDECIDED
    # Both grow by the factor that the interval needs: it shrinks with the labels and with the responses.
    assert message(report).endswith(
        "About 400 labels of people, in a run of about 4,000 responses, would decide it if the rate stays as it is."
    )
    nearer = gate(diagnosed(880, 120), GateLimits(at_least={TRR: 0.8}), corrected=corrected(0.8, 0.7, 0.88))
    assert "too near the limit" in message(nearer)


def test_unjudged_responses_widen_corrected_rates():
    report = gate(
        diagnosed(880, 120), GateLimits(at_least={TRR: 0.73}), omitted=50, corrected=corrected(0.8, 0.74, 0.845)
    )
    assert report.outcome is UNDECIDED
    assert "[69.4, 85.5] whatever the 50 responses without a label are" in message(report)


def baseline(value, low, high, run=(900, 1_000), base=(905, 1_000), left_out=0):
    return GateBaseRun(
        "base", {TRR: PairedRunRate(Rate(*run), Rate(*base), Estimate(value, Interval(low, high)), 500)}, left_out
    )


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((-0.015, 0.005), PASSED), ((-0.03, 0.02), UNDECIDED), ((-0.05, -0.021), FAILED), ((-0.02, 0.0), PASSED)],
)
def test_a_difference_to_a_base_run_is_held_against_a_drop(ends, verdict):
    report = gate(diagnosed(900, 100), GateLimits(max_drop={TRR: 0.02}), base=baseline(-0.005, *ends))
    assert report.outcome is verdict


def test_a_difference_is_told_in_points():
    report = gate(diagnosed(900, 100), GateLimits.of(max_trr_drop=0.02), base=baseline(-0.005, -0.035, 0.025))
    assert message(report) == (
        "cannot tell: TRR at most 2.0 points below base: −0.5 points [−3.5, +2.5] on 500 shared questions, "
        "by the judge's own rates. About 2,000 shared questions would decide it if the rate stays as it is."
    )


def test_a_rise_of_the_gap_has_a_limit():
    paired = PairedRunRate(Rate(100, 1_000), Rate(50, 1_000), Estimate(0.05, Interval(0.03, 0.07)), 500)
    for limit, verdict in ((0.02, FAILED), (0.05, UNDECIDED), (0.07, PASSED)):
        report = gate(diagnosed(9, 1), GateLimits.of(max_lgg_rise=limit), base=GateBaseRun("base", {LGG: paired}))
        assert report.outcome is verdict


@pytest.mark.slow
def test_unjudged_responses_count_against_a_difference_too():
    clear = baseline(-0.005, -0.015, 0.005)
    assert gate(diagnosed(900, 100), GateLimits(max_drop={TRR: 0.02}), base=clear).outcome is PASSED
    omitted = gate(diagnosed(900, 100), GateLimits(max_drop={TRR: 0.02}), omitted=30, base=clear)
    assert omitted.outcome is UNDECIDED
    assert "whatever the responses without a label are" in message(omitted)
    there = gate(diagnosed(900, 100), GateLimits(max_drop={TRR: 0.02}), base=clear._replace(left_out=300))
    assert there.outcome is UNDECIDED


def test_gate_cannot_tell_a_drop_when_the_base_run_left_responses_out():
    clear, limits = baseline(-0.005, -0.015, 0.005), GateLimits(max_drop={TRR: 0.02})
    assert gate(diagnosed(9, 1), limits, base=clear).outcome is PASSED
    assert gate(diagnosed(9, 1), limits, base=clear._replace(left_out=300)).outcome is UNDECIDED


def test_an_undefined_difference_cannot_be_told():
    undefined = GateBaseRun("base", {TRR: PairedRunRate(Rate(0, 0), Rate(1, 2), Estimate(None, None), 1)})
    assert gate(diagnosed(9, 1), GateLimits(max_drop={TRR: 0.1}), base=undefined).outcome is UNDECIDED


@pytest.mark.parametrize(
    "limits",
    [{}, {"at_least": {TRR: 85}}, {"unjudged": -0.1}, {"at_most": {LGG: float("nan")}}, {"max_drop": {TRR: 2}}],
)
def test_limits_that_hold_nothing_are_refused(limits):
    with pytest.raises(SettingError):
        GateLimits(**limits)


def test_a_base_run_and_its_limits_go_together():
    with pytest.raises(SettingError, match="--against"):
        gate(diagnosed(9, 1), GateLimits(max_drop={TRR: 0.1}))
    with pytest.raises(SettingError, match="--against"):
        gate(diagnosed(9, 1), GateLimits(at_least={TRR: 0.1}), base=baseline(0, 0, 0))


def test_an_undefined_figure_is_called_that():
    assert format_percent_with_interval(None, None) == "undefined"


@pytest.mark.slow
def test_the_representation_of_a_result_is_its_checks(tmp_path):
    write_demo_files(tmp_path / "demo", questions=20)
    result = eclose.gate(tmp_path / "demo", min_trr=0.05, max_lgg=0.9)
    assert repr(result).splitlines() == [str(check) for check in result.checks]
