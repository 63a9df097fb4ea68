"""The figures of a study: every word inside, the right dots, the operating point on its curve."""

from __future__ import annotations

import numpy as np
import pytest

from eclose.detectors.joined import StudyInputs, study_detectors
from eclose.detectors.study_statistics import DISJOINT_GROUPS, StudyGroup, StudySettings
from eclose.report.detectors.figures import (
    MAX_DOTS,
    choose_dots,
    draw_detector_figures,
    draw_score_distributions,
    draw_threshold_sweeps,
)
from eclose.report.figures import FIGURE_SETTINGS
from tests.detectors.study_making import make_responses, make_scores
from tests.report.test_figures import assert_inside, words

matplotlib = pytest.importorskip("matplotlib")
FEW = StudySettings(resamples=2)


@pytest.fixture(autouse=True)
def settings():
    with matplotlib.rc_context(FIGURE_SETTINGS):
        yield


@pytest.fixture(scope="module")
def study():
    responses, verdicts, truth = make_responses(1, questions=300)
    return study_detectors(StudyInputs(make_scores(1, truth), responses, verdicts), FEW)


def panels(figure):
    return [axes for axes in figure.axes if axes.get_visible() and axes.axison]


@pytest.mark.slow
def test_no_word_is_cut_and_every_panel_is_named(study):
    for draw in (draw_score_distributions, draw_threshold_sweeps):
        figure = draw(study)
        assert_inside(figure)
        assert [axes.get_title(loc="left") for axes in panels(figure)] == ["RAGAS-style", "AlignScore", "T5 closure"]


@pytest.mark.slow
def test_at_most_400_dots_chosen_by_their_ids(study):
    axes = panels(draw_score_distributions(study))[0]
    scores = study.results[0].scores
    # The dots of a group are one collection; the body of its violin is another.
    dots = [part.get_offsets() for part in axes.collections if len(part.get_offsets()) > 1]
    sizes = [min(MAX_DOTS, len(scores[group])) for group in DISJOINT_GROUPS]
    assert len(scores[StudyGroup.RELIABLE]) > MAX_DOTS
    assert [len(part) for part in dots] == sizes
    for position, (part, group) in enumerate(zip(dots, DISJOINT_GROUPS, strict=True)):
        assert np.abs(part[:, 0] - position).max() < 0.42
        assert set(part[:, 1]) <= {score for _, score in scores[group]}


def test_dots_do_not_depend_on_the_order_or_on_other_responses():
    scores = [(f"r{number}", number / 1000) for number in range(1000)]
    dots = choose_dots(scores)
    assert len(dots) == MAX_DOTS
    assert choose_dots(scores[::-1]) == dots
    # A response that was not chosen changes nothing; every group of at most 400 is drawn whole.
    chosen = {score for _, score in dots}
    assert choose_dots([row for row in scores if row[1] in chosen or row[0] < "r5"]) == dots
    assert len(choose_dots(scores[:400])) == 400
    # About as many on either side.
    assert 0.4 < np.mean([shift < 0 for shift, _ in dots]) < 0.6
    assert 0.4 < np.mean(sorted(chosen)) < 0.6


def test_boxes_are_quartiles_with_the_median(study):
    axes = panels(draw_score_distributions(study))[1]
    for box, group in zip(axes.patches, DISJOINT_GROUPS, strict=True):
        low, high = np.quantile([score for _, score in study.results[1].scores[group]], [0.25, 0.75])
        assert (box.get_y(), box.get_y() + box.get_height()) == pytest.approx((low, high))


def test_the_sweep_has_the_point_the_diagonal_and_the_corner(study):
    for axes, result in zip(panels(draw_threshold_sweeps(study)), study.results, strict=True):
        diagonal, curve, corner, point = (line.get_xydata() for line in axes.lines)
        assert diagonal.tolist() == [[0, 0], [1, 1]]
        assert corner.tolist() == [[1, 1]]
        recall = result.separations[StudyGroup.GAP].recall.value
        assert point.tolist() == [pytest.approx([result.false_positive_rate.value, recall])]
        assert np.abs(curve - point).sum(axis=1).min() < 1e-12
        assert curve[-1].tolist() == [1, 1]
        assert len(curve) == len(result.sweep.thresholds)
        assert f"R@95 {100 * recall:.1f}" in [text.get_text() for text in axes.texts]


@pytest.mark.slow
def test_an_empty_group_is_named_and_not_drawn():
    responses, verdicts, truth = make_responses(2, kinds=("reliable", "locally_unsound"), shares=(0.7, 0.3))
    study = study_detectors(StudyInputs(make_scores(2, truth), responses, verdicts), FEW)
    scores, sweeps = draw_score_distributions(study), draw_threshold_sweeps(study)
    assert sum(text.get_text() == "none" for text in words(scores)) == 3
    assert sum(text.get_text() == "undefined" for text in words(sweeps)) == 3
    assert not any(axes.lines for axes in panels(sweeps))


@pytest.mark.slow
def test_equal_input_gives_equal_files():
    responses, verdicts, truth = make_responses(4)
    study = study_detectors(StudyInputs(make_scores(4, truth), responses, verdicts), FEW)
    files = draw_detector_figures(study)
    assert set(files) == {f"detector-{name}.{kind}" for name in ("scores", "sweep") for kind in ("pdf", "svg")}
    assert files == draw_detector_figures(study)
