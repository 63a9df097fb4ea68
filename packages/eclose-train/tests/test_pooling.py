from itertools import product

import numpy as np
import pytest

from eclose.errors import UserError
from eclose.metrics.rates import MAIN_METRICS, Metric, compute_metric_rate
from eclose.metrics.summary import get_response_method
from eclose.stats.bootstrap import shared_questions_design
from eclose.stats.rates import mean_or_none
from eclose.values.response import UNTUNED_METHOD, ResponseSource
from eclose.values.verdict import SettledVerdict, Verdict
from eclose_train.pooling import ExperimentArrays, ExperimentUnit, indicate_labels
from tests.metrics.setting_rates import average_setting_rates, compute_setting_rates

BENCHMARKS = {"2wiki": 3, "musique": 2, "hotpot": 4}
BACKBONES = ("qwen", "llama")
SEEDS = (42, 43, 44)
RUNS = [(None, None), *product(("SFT", "E-Closure"), SEEDS)]


def row(benchmark="2wiki", number=0, source=None, **labels):
    """One response; questions of different benchmarks may have the same id."""
    return SettledVerdict("r", f"question-{number}", Verdict(**labels), benchmark, source)


def experiment_rows(seed, unknown=0.1):
    """Every method's answer to every question with every backbone; some labels were not judged."""
    rng = np.random.default_rng(seed)
    names = ("locally_sound", "aligned", "closed", "complete", "correct")

    def label():
        return None if rng.random() < unknown else bool(rng.random() < 0.6)

    rows = [
        row(benchmark, number, ResponseSource(model, method, training), **{name: label() for name in names})
        for model, (method, training), (benchmark, size) in product(BACKBONES, RUNS, BENCHMARKS.items())
        for number in range(size)
    ]
    return [rows[index] for index in rng.permutation(len(rows))]


def test_the_untuned_model_is_called_by_its_name():
    assert get_response_method(row()) == UNTUNED_METHOD
    assert get_response_method(row(source=ResponseSource("qwen"))) == UNTUNED_METHOD
    assert get_response_method(row(source=ResponseSource("qwen", "SFT"))) == "SFT"


def test_indicators_count_a_missing_label_in_no_column():
    indicators = indicate_labels([[True, False, None], [None, None, True]])
    assert indicators.hits.tolist() == [[1, 0], [0, 0], [0, 1]]
    assert indicators.counted.tolist() == [[1, 0], [1, 0], [0, 1]]


def test_the_untuned_backbone_comes_before_every_seed_of_a_question():
    untuned, trained = (ExperimentUnit("SFT", "qwen", seed, "2wiki", "q1") for seed in (None, 0))
    assert sorted([trained, untuned], key=lambda unit: unit.sort_key) == [untuned, trained]


def test_setting_means_by_hand():
    sources = {"42": ResponseSource("qwen", "SFT", 42), "43": ResponseSource("qwen", "SFT", 43)}
    rows = [
        # 2wiki, seed 42: 1 of 2; seed 43: 1 of 1. The setting is (1/2 + 1)/2 = 3/4.
        row("2wiki", 0, sources["42"], correct=True),
        row("2wiki", 1, sources["42"], correct=False),
        row("2wiki", 0, sources["43"], correct=True),
        row("2wiki", 1, sources["43"]),
        # hotpot, seed 42: 0 of 1; seed 43: 1 of 2. The setting is 1/4.
        row("hotpot", 0, sources["42"], correct=False),
        row("hotpot", 1, sources["42"]),
        row("hotpot", 0, sources["43"], correct=True),
        row("hotpot", 1, sources["43"], correct=False),
    ]
    assert compute_setting_rates(rows, Metric.ACCURACY) == {
        ("SFT", "2wiki", "qwen"): 0.75,
        ("SFT", "hotpot", "qwen"): 0.25,
    }
    # Settings weigh the same: (3/4 + 1/4)/2. Local soundness was never judged.
    assert average_setting_rates(rows, [Metric.ACCURACY, Metric.LOCAL_SOUNDNESS_RATE]) == {
        "SFT": {Metric.ACCURACY: 0.5, Metric.LOCAL_SOUNDNESS_RATE: None}
    }


def test_rows_without_source_or_benchmark_are_one_setting():
    rows = [row(None, 0, correct=True), row(None, 1, correct=False)]
    assert compute_setting_rates(rows, Metric.ACCURACY) == {(UNTUNED_METHOD, "", ""): 0.5}
    assert average_setting_rates([]) == {}


@pytest.mark.parametrize("seed", range(6))
def test_an_experiments_values_are_the_equal_setting_means(seed):
    rows = experiment_rows(seed, unknown=0.1 * (seed % 3))
    experiment = ExperimentArrays.of(rows, tuple(Metric))
    replicates = experiment.bootstrap(rng=np.random.default_rng(seed), resamples=3)
    means = average_setting_rates(rows, tuple(Metric))
    assert set(experiment.methods) == {UNTUNED_METHOD, "SFT", "E-Closure"} == set(means)
    for method, metric in product(experiment.methods, Metric):
        value = replicates.estimate(experiment.column(method, metric)).value
        assert value == pytest.approx(means[method][metric], abs=1e-12)


def repeated(items, times):
    """Each item as often as it was drawn."""
    return [item for item, n in zip(items, times, strict=True) for _ in range(int(n))]


def test_replicates_are_the_means_of_the_drawn_rows():
    """The whole of D.2 on verdicts: pick rows as drawn, take rates, average; no arrays of weights."""
    rows = experiment_rows(7, unknown=0.05)
    experiment = ExperimentArrays.of(rows)
    replicates = experiment.bootstrap(rng=np.random.default_rng(2027), resamples=25)
    blocks = list(experiment.design.draw(np.random.default_rng(2027), 25))
    assert len(blocks) == 1
    by_place = {
        (r.source.model, get_response_method(r), r.source.seed, r.benchmark, r.instance_id): r.verdict for r in rows
    }
    # Names in the order of first appearance, as the experiment numbers them.
    models = list(dict.fromkeys(r.source.model for r in rows))
    questions = list(dict.fromkeys((r.benchmark, r.instance_id) for r in rows))

    def rate_of(metric, model, method, training, drawn):
        training = None if method == UNTUNED_METHOD else training
        return compute_metric_rate(metric, [by_place[model, method, training, *question] for question in drawn]).value

    for resample in range(25):
        for method, metric in product(experiment.methods, MAIN_METRICS):
            settings = []
            for position, backbone in enumerate(blocks[0].backbone[resample]):
                drawn = repeated(questions, blocks[0].questions[resample, position])
                seeds = repeated(SEEDS, blocks[0].seeds[resample, position])
                for benchmark, size in BENCHMARKS.items():
                    inside = [question for question in drawn if question[0] == benchmark]
                    assert len(inside) == size
                    settings.append(mean_or_none(rate_of(metric, models[backbone], method, s, inside) for s in seeds))
            value = replicates.draws[resample, experiment.column(method, metric)]
            expected = mean_or_none(settings)
            assert np.isnan(value) if expected is None else value == pytest.approx(expected, abs=1e-12)


def test_shared_questions_are_drawn_once_for_all_backbones():
    """D.7: every backbone once, one draw of questions, seeds of each backbone."""
    experiment = ExperimentArrays.of(experiment_rows(8))
    replicates = experiment.bootstrap_shared_questions(rng=np.random.default_rng(1), resamples=20)
    design = shared_questions_design(experiment.design.datasets, backbones=2, seeds=3)
    (block,) = design.draw(np.random.default_rng(1), 20)
    assert block.backbone.tolist() == [[0, 1]] * 20
    assert block.questions.shape[1] == 1
    assert replicates.draws == pytest.approx(experiment.table.means(block, design.datasets), nan_ok=True)


def test_the_order_of_rows_changes_no_value():
    rows = experiment_rows(3)
    first, turned = ExperimentArrays.of(rows), ExperimentArrays.of(rows[::-1])
    for experiment in (first, turned):
        assert sorted(experiment.methods) == ["E-Closure", "SFT", UNTUNED_METHOD]
    values = [
        {
            (method, metric): experiment.bootstrap(rng=np.random.default_rng(0), resamples=1).values[
                experiment.column(method, metric)
            ]
            for method, metric in product(experiment.methods, MAIN_METRICS)
        }
        for experiment in (first, turned)
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-12, nan_ok=True)


def test_an_experiment_of_untuned_models_alone_has_one_place_for_seeds():
    rows = [row("2wiki", number, ResponseSource("qwen"), correct=number > 0) for number in range(4)]
    experiment = ExperimentArrays.of(rows, (Metric.ACCURACY,))
    assert experiment.design.seeds == 1
    assert experiment.bootstrap(rng=np.random.default_rng(0), resamples=10).values == pytest.approx([3 / 4])


def test_the_paired_gain_of_a_method_over_itself_is_nothing():
    rows = experiment_rows(4, unknown=0)
    twin = [
        SettledVerdict(
            r.response_id, r.instance_id, r.verdict, r.benchmark, ResponseSource(r.source.model, "Twin", r.source.seed)
        )
        for r in rows
        if get_response_method(r) == "SFT"
    ]
    experiment = ExperimentArrays.of([*rows, *twin])
    replicates = experiment.bootstrap(rng=np.random.default_rng(0), resamples=50)
    columns = experiment.column("Twin", Metric.GAP_RATE), experiment.column("SFT", Metric.GAP_RATE)
    assert replicates.difference(*columns) == (0.0, (0.0, 0.0), 0)
    assert np.std(replicates.draws[:, columns[0]]) > 0


def refused(rows):
    with pytest.raises(UserError) as error:
        ExperimentArrays.of(rows)
    return str(error.value)


def test_an_experiment_with_holes_is_refused():
    rows = experiment_rows(0)
    tuned = next(index for index, r in enumerate(rows) if r.source.seed == 42)
    # 2 backbones x 3 seeds x 9 questions x 3 methods.
    assert "1 of 162 cells have none or several" in refused(rows[:tuned] + rows[tuned + 1 :])
    untuned = next(index for index, r in enumerate(rows) if r.source.seed is None)
    assert "3 of 162 cells" in refused(rows[:untuned] + rows[untuned + 1 :])


def test_an_experiment_with_two_answers_in_one_place_is_refused():
    rows = experiment_rows(0)
    tuned = next(r for r in rows if r.source.seed == 42)
    assert "1 of 162 cells have none or several" in refused([*rows, tuned])
    # A trained response without a seed would stand in the places of all seeds.
    both = SettledVerdict(
        "r", tuned.instance_id, Verdict(), tuned.benchmark, ResponseSource(tuned.source.model, tuned.source.method)
    )
    assert f"{tuned.source.method} on {tuned.source.model}: 1 response has no training seed" in refused([*rows, both])


def test_an_experiment_without_rows_is_refused():
    assert "nothing to compare" in refused([])


def test_a_trained_method_without_a_seed_is_refused_by_name():
    """A response of an adapter whose seed is not known must not stand for every seed."""
    sources = (
        ResponseSource("qwen"),
        ResponseSource("qwen", "SFT", 42),
        ResponseSource("qwen", "SFT", 43),
        ResponseSource("qwen", "E-Closure"),
    )
    rows = [row("2wiki", number, source, correct=True) for source in sources for number in range(3)]
    with pytest.raises(UserError, match=r"E-Closure on qwen: 3 responses have no training seed"):
        ExperimentArrays.of(rows)
    assert ExperimentArrays.of([entry for entry in rows if get_response_method(entry) != "E-Closure"]).methods == [
        UNTUNED_METHOD,
        "SFT",
    ]


def test_seeds_are_not_averaged_with_responses_that_name_none():
    rows = [row("2wiki", 0, ResponseSource("qwen", "SFT", seed), correct=True) for seed in (42, None)]
    with pytest.raises(UserError, match=r"SFT on qwen: 1 response has no training seed"):
        compute_setting_rates(rows, Metric.ACCURACY)
    assert compute_setting_rates(rows[1:], Metric.ACCURACY) == {("SFT", "2wiki", "qwen"): 1.0}
