"""What the paper says in words and the printed numbers must bear out."""

from __future__ import annotations

import numpy as np
import pytest

from eclose.metrics.rates import MAIN_METRICS, Metric
from eclose.stats.coefficients import pair_alpha
from eclose_train.families.comparisons import Direction, Edge, margin_weights
from eclose_train.pooling import ExperimentArrays

from .derivations import ablations, construction, diagnosis, experiment, screening
from .printed import BACKBONES, METHODS, Cell, cell, number

ACC, LSR, GSR, TRR, LGG = (
    Metric.ACCURACY,
    Metric.LOCAL_SOUNDNESS_RATE,
    Metric.GLOBAL_SUFFICIENCY_RATE,
    Metric.TRACE_RELIABILITY_RATE,
    Metric.GAP_RATE,
)


def test_main_comparison_has_all_responses() -> None:
    assert len(experiment.rows()) == 33_774


@pytest.mark.slow
def test_what_the_bootstrap_resamples_has_the_same_means() -> None:
    """The paired design of appendix D.2 starts from the averages of the main comparison."""
    laid_out = ExperimentArrays.of(experiment.rows())
    values = laid_out.bootstrap(rng=np.random.default_rng(2027), resamples=1).values
    for method in METHODS:
        for metric in MAIN_METRICS:
            column = laid_out.column(experiment.recorded_method(method), metric)
            assert 100 * values[column] == pytest.approx(experiment.average(method, metric), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [ACC, LSR, GSR, TRR])
def test_full_objective_has_the_best_average(metric: Metric) -> None:
    assert max(METHODS, key=lambda method: experiment.average(method, metric)) == "E-Closure"


def test_gap_is_smallest_among_tuned_methods_and_above_the_backbone() -> None:
    assert min(METHODS[1:], key=lambda method: experiment.average(method, LGG)) == "E-Closure"
    assert experiment.average("Backbone", LGG) < experiment.average("E-Closure", LGG)


@pytest.mark.parametrize("method", ["SFT", "CF-SFT"])
def test_fine_tuning_gains_locally_and_loses_globally(method: str) -> None:
    for metric, sign in ((ACC, 1), (LSR, 1), (GSR, -1)):
        assert sign * (experiment.average(method, metric) - experiment.average("Backbone", metric)) > 0


@pytest.mark.parametrize("backbone", BACKBONES)
def test_on_musique_sufficiency_rises_and_so_does_the_gap(backbone: str) -> None:
    for metric in (GSR, LGG):
        ours, untuned = (experiment.setting(backbone, "MuSiQue", name, metric) for name in ("E-Closure", "Backbone"))
        assert ours > untuned


def test_largest_gains_over_response_margins_are_on_musique() -> None:
    elsewhere = [
        gain for dataset in ("2WikiMultiHopQA", "HotpotQA") for gain in experiment.gains("RM", TRR, dataset=dataset)
    ]
    assert min(experiment.gains("RM", TRR, dataset="MuSiQue")) > max(elsewhere)


@pytest.mark.parametrize("column", ["Acc", "LSR", "A", "C", "GSR", "TRR"])
def test_full_objective_is_best_of_the_ablations(column: str) -> None:
    assert max(ablations.VARIANTS, key=lambda variant: ablations.pooled(variant, column)) == ablations.FULL


def test_full_objective_has_the_smallest_gap_of_the_ablations() -> None:
    assert min(ablations.VARIANTS, key=lambda variant: ablations.pooled(variant, "LGG")) == ablations.FULL


def test_no_diagnosed_response_is_reliable_and_wrong() -> None:
    assert diagnosis.composed().inconsistent == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("edge", list(Edge))
def test_joint_switching_fits_its_directions(method: str, edge: Edge) -> None:
    """A pair switches at most as often as it succeeds in one direction, and at least where it cannot miss both."""
    original, counterfactual, both = (
        cell("appendix_intervention_directions", method, f"{edge} {column}") for column in ("O", "CF", "SW")
    )
    assert both.value <= min(original.value, counterfactual.value)
    # Three rounded numbers: up to three half units.
    assert both.value >= original.value + counterfactual.value - 100 - 3 * both.unit / 2


def test_alpha_does_not_ask_who_disagreed() -> None:
    """Why the number of disagreements is all that screening needs."""
    disputed, rejected = screening.total_disagreements(), screening.total_both_no()
    accepted = sum(screening.SAMPLED.values()) - disputed - rejected
    values = {pair_alpha([[rejected, disputed - no], [no, accepted]]) for no in range(disputed + 1)}
    assert max(values) - min(values) < 1e-12


def test_margins_always_weigh_one() -> None:
    for edges in (tuple(Edge), *construction.REMOVALS):
        for directions in (tuple(Direction), (Direction.ORIGINAL,)):
            assert sum(margin_weights(edges, directions).values()) == pytest.approx(1)


def test_split_keeps_every_family_once() -> None:
    train, development = construction.split()
    assert len({*train, *development}) == len(train) + len(development)


def test_rounding_cannot_explain_the_gpu_hours() -> None:
    times = construction.training_times()
    slack = len(times) * Cell("", "", "", "0.01").unit / 2 * construction.SEEDS * construction.WORKERS
    assert abs(construction.gpu_hours() - number("text: training", "GPU hours")) > 40 * slack
