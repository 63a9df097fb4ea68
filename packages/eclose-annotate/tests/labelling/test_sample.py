"""A sample of one's own responses: how it is drawn, begun and taken up again."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.errors import SettingError, UserError
from eclose.values.judgment import Judgment, StepJudgment
from eclose_annotate.labelling import sample as sample_module
from eclose_annotate.labelling.sample import (
    LABELLER_NAME,
    NOT_JUDGED,
    allocate_to_strata,
    begin_label_project,
    draw_label_sample,
    find_label_sample,
    read_labelled_verdicts,
)
from tests.projects import NOW, material, who, work_off

IDS = [f"r{number}" for number in range(200)]


def judged(response_id, *, sound=True, aligned=True):
    return Judgment(response_id, "judge", (StepJudgment(True, sound),), aligned, True, True, True)


JUDGMENTS = [judged(name, sound=number % 10 != 0, aligned=number % 20 != 1) for number, name in enumerate(IDS[:190])]


def test_every_group_gives_by_the_square_root_of_its_size():
    sample = draw_label_sample(IDS, JUDGMENTS, n=60, seed=1)
    assert sample.sizes == {
        "gap": (10, 8),
        "locally_unsound": (19, 11),
        NOT_JUDGED: (10, 8),
        "reliable": (161, 33),
    }
    assert sum(chosen for _, chosen in sample.sizes.values()) == len(sample.chosen) == 60


def test_sample_follows_from_the_seed_and_not_from_the_order():
    sample = draw_label_sample(IDS, JUDGMENTS, n=60, seed=1)
    assert draw_label_sample(IDS[::-1], JUDGMENTS[::-1], n=60, seed=1).chosen == sample.chosen
    assert draw_label_sample(IDS, JUDGMENTS, n=60, seed=2).chosen != sample.chosen


def test_without_a_judge_all_have_the_same_chance():
    assert draw_label_sample(IDS, [], n=50, seed=1).sizes == {NOT_JUDGED: (200, 50)}


def test_samples_that_cannot_be_drawn_are_refused():
    with pytest.raises(SettingError, match="201 of 200"):
        draw_label_sample(IDS, [], n=201, seed=1)
    with pytest.raises(SettingError, match="must be at least 4"):
        draw_label_sample(IDS, JUDGMENTS, n=3, seed=1)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=3), st.integers(1, 50), min_size=1, max_size=6), st.data())
def test_shares_add_up(sizes, data):
    n = data.draw(st.integers(len(sizes), sum(sizes.values())))
    shares = allocate_to_strata(sizes, n)
    assert sum(shares.values()) == n
    assert all(1 <= shares[name] <= size for name, size in sizes.items())


def test_labels_are_kept_and_the_same_sample_goes_on(tmp_path):
    questions, responses = material(6)
    instances = {question.id: question for question in questions}
    sample = draw_label_sample([response.id for response in responses], [], n=5, seed=3)
    project = begin_label_project(tmp_path / "run" / "labels", instances, responses, sample, NOW)
    assert read_labelled_verdicts(project) == []
    me = who(project, LABELLER_NAME)
    passes = work_off(project, me, aligned="no", locally_sound="yes")
    project.close()
    assert passes == 15
    again = begin_label_project(tmp_path / "run" / "labels", instances, responses, sample, NOW)
    verdicts = read_labelled_verdicts(again)
    assert {verdict.response_id for verdict in verdicts} == set(sample.chosen)
    assert {(verdict.verdict.locally_sound, verdict.verdict.aligned) for verdict in verdicts} == {(True, False)}
    assert {verdict.source.model for verdict in verdicts} <= {"baseline", "candidate"}
    again.close()
    assert replace(find_label_sample(tmp_path / "run" / "labels"), content=None) == sample
    other = draw_label_sample([response.id for response in responses], [], n=5, seed=4)
    with pytest.raises(UserError, match="another sample"):
        begin_label_project(tmp_path / "run" / "labels", instances, responses, other, NOW)


def test_labels_of_responses_that_were_changed_since_are_refused(tmp_path):
    questions, responses = material(6)
    instances = {question.id: question for question in questions}
    sample = draw_label_sample([response.id for response in responses], [], n=5, seed=3)
    begin_label_project(tmp_path / "labels", instances, responses, sample, NOW).close()
    other = {question.id: replace(question, reference_answer="other") for question in questions}
    replaced = [replace(response, answer="WRONG") for response in responses]
    for changed in ((instances, replaced), (other, responses)):
        with pytest.raises(UserError, match="have changed since labelling began"):
            begin_label_project(tmp_path / "labels", *changed, sample, NOW)
    unlabelled = [
        response if response.id in sample.chosen else replace(response, answer="WRONG") for response in responses
    ]
    begin_label_project(tmp_path / "labels", instances, unlabelled, sample, NOW).close()
    with pytest.raises(UserError, match="is not among the questions"):
        begin_label_project(tmp_path / "labels", {}, responses, sample, NOW)


@pytest.mark.slow
def test_a_larger_sample_contains_the_smaller_one():
    samples = [set(draw_label_sample(IDS, JUDGMENTS, n=n, seed=1).chosen) for n in range(4, 200)]
    assert all(smaller < larger for smaller, larger in pairwise(samples))


def raise_power_cut(*_):
    raise OSError("power cut")


def test_a_project_grows_with_its_sample_and_after_a_crash(tmp_path):
    questions, responses = material(4)
    instances = {question.id: question for question in questions}

    def begin(n):
        sample = draw_label_sample([response.id for response in responses], [], n=n, seed=3)
        return begin_label_project(tmp_path / "labels", instances, responses, sample, NOW)

    with closing(begin(2)) as project:
        assert work_off(project, who(project, LABELLER_NAME)) == 6
    with closing(begin(4)) as project:
        # The two labelled responses are not asked again.
        assert work_off(project, who(project, LABELLER_NAME)) == 6
    # A crash after the sample was written and before its tasks: the next start adds them.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_module, "_add_missing_responses", raise_power_cut)
        with pytest.raises(OSError, match="power cut"):
            begin(6)
    with closing(begin(6)) as project:
        assert work_off(project, who(project, LABELLER_NAME)) == 6
        assert len(read_labelled_verdicts(project)) == 6
    with pytest.raises(UserError, match="cannot make it smaller"):
        begin(4)
