"""A gate holds limits against what the rates may be, not against what they seem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.test_diagnose import case

from eclosure.core.judgment import NO_REFERENCE, Criterion
from eclosure.diagnose import diagnose
from eclosure.errors import SettingError
from eclosure.gate import Limits
from eclosure.gate import gate as gated
from eclosure.metrics.rates import Metric


def gate(diagnosis, limits):
    return gated(diagnosis.overall, diagnosis.unjudged, limits)


TRR, LGG = Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE


def diagnosed(good, bad, unjudged=0, **labels):
    cases = [case(number=number) for number in range(good)]
    cases += [case(number=good + number, closed=False) for number in range(bad)]
    for number in range(unjudged):
        one = case(number=good + bad + number, closed=None)
        cases.append(replace(one, judgment=replace(one.judgment, unjudged={Criterion.CLOSURE: "refusal"}, **labels)))
    # Every response answers a question of its own.
    cases = [
        replace(one, instance=replace(one.instance, id=f"i{n}"), response=replace(one.response, instance_id=f"i{n}"))
        for n, one in enumerate(cases)
    ]
    return diagnose(cases, rng=np.random.default_rng(1), resamples=500)


def test_many_good_responses_pass():
    assert gate(diagnosed(950, 50), Limits(at_least={TRR: 0.9}, at_most={LGG: 0.1}, unjudged=0.0)) == []


def test_a_good_rate_on_few_responses_does_not():
    (reason,) = gate(diagnosed(19, 1), Limits(at_least={TRR: 0.9}))
    assert reason.startswith("TRR may be as low as 8")
    assert reason.endswith("(estimate 95.0 %, n = 20): not at least 90.0 %.")


def test_too_many_in_the_gap_are_told():
    (reason,) = gate(diagnosed(80, 20), Limits(at_most={LGG: 0.05}))
    assert "LGG may be as high as 2" in reason
    assert "not at most 5.0 %" in reason


def test_what_was_not_judged_counts_against_passing():
    limits = Limits(at_least={TRR: 0.9})
    assert gate(diagnosed(970, 30), limits) == []
    assert gate(diagnosed(870, 30, unjudged=100), limits) != []
    (reason,) = gate(diagnosed(870, 30, unjudged=100), Limits(unjudged=0.05))
    assert reason == "C was not judged in 100 of 1,000 responses: not at most 5.0 %."


def test_what_nobody_wanted_judged_does_not():
    found = diagnosed(10, 0)
    without = replace(found, unjudged={Criterion.COMPLETENESS: {NO_REFERENCE: 10}})
    assert gate(without, Limits(unjudged=0.0)) == []
    assert gate(replace(found, unjudged={Criterion.COMPLETENESS: {"refusal": 10}}), Limits(unjudged=0.0)) != []


def test_an_undefined_rate_does_not_pass():
    # Nobody is wrong, so there is no risk to speak of.
    (reason,) = gate(diagnosed(10, 0), Limits(at_most={Metric.GAP_RISK: 0.5}))
    assert reason == "LggRisk is undefined: no response counts for it."


@pytest.mark.parametrize("limits", [{}, {"at_least": {TRR: 85}}, {"unjudged": -0.1}, {"at_most": {LGG: float("nan")}}])
def test_limits_that_hold_nothing_are_refused(limits):
    with pytest.raises(SettingError):
        Limits(**limits)


def test_a_run_that_was_judged_in_part_does_not_pass_as_judged():
    found = diagnosed(90, 0)
    left = [(f"r{number}", "it was not judged") for number in range(10)]
    (reason,) = gated(found.overall, found.unjudged, Limits(unjudged=0.05), left)
    assert reason == ("10 of 100 responses have no judgment at all, such as r0 (it was not judged): not at most 5.0 %.")
    assert gated(found.overall, found.unjudged, Limits(unjudged=0.1), left) == []
