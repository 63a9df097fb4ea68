"""Rates over what was judged, against values worked out by hand and against Inspect's own."""

from __future__ import annotations

from math import isnan, nan, sqrt

import numpy as np
import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: pip install 'eclose[inspect]'")

from inspect_ai.scorer import SampleScore, Score, stderr

from eclose.integrations.inspect.samples import build_score_value
from eclose.integrations.inspect.scorer import gap_metric, label_rate_metric
from eclose.metrics.rates import Metric
from eclose.metrics.summary import summarize_verdicts
from eclose.values.verdict import SettledVerdict, Verdict


def scores(values, questions=None):
    return [
        SampleScore(score=Score(value=value), sample_id=question, sample_metadata={"q": question})
        for value, question in zip(values, questions or range(len(values)), strict=True)
    ]


def test_a_rate_with_its_error_and_interval():
    # 3 of 4: the squared deviations sum to 3/4, so the error is sqrt(3/4 * 4/3) / 4.
    metrics = label_rate_metric()(scores([1.0, 1.0, 0.0, 1.0]))
    assert (metrics["rate"], metrics["n"]) == (0.75, 4)
    assert metrics["stderr"] == pytest.approx(sqrt(0.75 * 4 / 3) / 4, abs=1e-12)
    assert 0 <= metrics["low"] < 0.75 < metrics["high"] <= 1


def test_responses_to_one_question_err_together():
    # Two questions, (1, 1) and (0, 0): deviations from 1/2 sum to 1 and -1, so sqrt((1 + 1) * 2/1) / 4 = 1/2.
    apart, together = scores([1.0, 1.0, 0.0, 0.0]), scores([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"])
    assert label_rate_metric()(together)["stderr"] == pytest.approx(0.5, abs=1e-12)
    assert label_rate_metric()(apart)["stderr"] == pytest.approx(sqrt(4 / 3) / 4, abs=1e-12)
    wide, narrow = label_rate_metric()(together), label_rate_metric()(apart)
    assert (wide["low"], wide["high"]) == pytest.approx((0.0126, 0.9874), abs=1e-4)
    assert narrow["high"] - narrow["low"] < 0.9


def test_the_error_is_the_one_inspect_computes():
    rng = np.random.default_rng(3)
    values = [float(value) for value in rng.integers(0, 2, 60)]
    sample_scores = scores(values, [f"q{number}" for number in rng.integers(0, 20, 60)])
    assert label_rate_metric()(sample_scores)["stderr"] == pytest.approx(stderr(cluster="q")(sample_scores), abs=1e-12)


def test_certainty_is_not_promised():
    metrics = label_rate_metric()(scores([1.0] * 5))
    assert (metrics["low"], metrics["high"]) == pytest.approx((0.025 ** (1 / 5), 1))
    assert label_rate_metric()(scores([0.0] * 5))["high"] == pytest.approx(1 - 0.025 ** (1 / 5))


def test_what_does_not_exist_is_not_zero():
    metrics = label_rate_metric()([])
    assert metrics.pop("n") == 0
    assert all(isnan(value) for value in metrics.values())
    assert isnan(label_rate_metric()(scores([1.0]))["stderr"])
    assert label_rate_metric()(scores([1.0]))["rate"] == 1.0


def test_the_gap_among_the_insufficient_and_the_wrong_as_in_our_own_reports():
    verdicts = [
        Verdict(True, True, True, True, True),
        Verdict(True, True, False, True, False),
        Verdict(True, False, None, False, False),
        Verdict(False, False, False, False, False),
        Verdict(None, True, False, False, False),
        Verdict(),
    ]
    metrics = gap_metric()(scores([build_score_value(verdict) for verdict in verdicts]))
    assert (metrics["responses"], metrics["undecided"]) == (6, 2)
    # Insufficient and judged: three, of which two are in the gap; two more may be.
    assert (metrics["LggShare"], metrics["LggShare_n"], metrics["LggShare_unjudged"]) == (pytest.approx(2 / 3), 3, 2)
    rows = [SettledVerdict(str(number), str(number), verdict) for number, verdict in enumerate(verdicts)]
    (ours,) = summarize_verdicts(rows)
    for metric in (Metric.GAP_SHARE, Metric.GAP_RISK):
        assert metrics[metric] == ours.rates[metric].value
        assert (metrics[f"{metric}_low"], metrics[f"{metric}_high"]) == ours.estimates[metric].interval


def test_a_gap_among_nothing_is_undefined():
    assert gap_metric()([]) == {"responses": 0, "undecided": 0}
    metrics = gap_metric()(scores([build_score_value(Verdict(True, True, True, True, True))]))
    assert isnan(metrics["LggShare"])
    assert metrics["LggShare_n"] == 0
    assert gap_metric()(scores([nan]))["undecided"] == 1
