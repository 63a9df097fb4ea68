"""Long traces: the campaign plants steps that the passages contradict, and counts what the judge makes of them."""

from itertools import islice

import pytest

from eclose.judging.settings import JudgeSettings
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.judge import judge_by_oracle
from studies.campaigns.long_traces import count_asked_steps, list_facts, main, make_long_trace


@pytest.mark.parametrize("number", range(3))
def test_exactly_the_planted_steps_are_unsound(number):
    instance = next(islice(make_world_items("musique", 7), number, None)).instance
    trace = make_long_trace(instance, 60, seed=1)
    judged = judge_by_oracle(instance, trace.response).steps
    assert {at for at, step in enumerate(judged) if step.sound is False} == trace.planted
    assert len(trace.planted) == 6
    assert all(step.sound is not None for step in judged)


def test_facts_of_namesakes_are_left_out():
    for item in islice(make_world_items("musique", 7), 20):
        titles = [passage.title.partition(" (")[0] for passage in item.instance.evidence]
        assert all(titles.count(fact.phrase.base) == 1 for fact in list_facts(item.instance))


def test_windows_cover_every_step_once():
    trace = make_long_trace(next(iter(make_world_items("musique", 7))).instance, 50, seed=1)
    window = JudgeSettings().step_window
    assert count_asked_steps(trace) == [window, window, 50 - 2 * window]


@pytest.mark.slow
def test_the_judge_finds_all_over_http(capsys):
    assert main(["--questions", "1"]) == 0
    assert '"holds": true' in capsys.readouterr().out
