"""Short form of ``studies/campaigns/healthy_shapes.py``: correct responses are read whole and none is in the gap."""

from __future__ import annotations

import pytest

from eclose_world.demo import WorldJudge
from studies.campaigns.healthy_shapes import SHAPES, Healthy, make_responses, read_and_judge

pytestmark = pytest.mark.study


@pytest.fixture(scope="module")
def healthy():
    return list(make_responses([SHAPES], 40, questions=40))


def test_correct_responses_in_real_shapes_are_not_in_the_gap(healthy):
    outcomes = [read_and_judge(response, WorldJudge(error_rate=0.0)) for response in healthy]
    assert len(outcomes) == 40
    assert "in the gap" not in outcomes
    assert outcomes.count("reliable") > 15


def test_response_without_its_conclusion_is_in_the_gap(healthy):
    item = next(response.item for response in healthy if len(response.steps) > 2)
    steps = item.response.trace.texts[:1]
    broken = Healthy("broken", item, {"reasoning": list(steps), "answer": item.response.answer}, steps, "")
    assert read_and_judge(broken, WorldJudge(error_rate=0.0)) == "in the gap"
