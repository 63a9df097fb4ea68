"""Each kind of interval resamples what its design says: outcomes that vary in one way alone show which way it is."""

from __future__ import annotations

from itertools import product

from eclose.values.response import ResponseSource
from eclose.values.verdict import SettledVerdict, Verdict
from eclose_train.experiment.plan import BootstrapDraws, BootstrapPlan
from eclose_train.experiment.report.build import build_experiment_report
from eclose_train.experiment.report.inputs import ExperimentResults
from eclose_train.experiment.report.people import summarize_evaluator
from eclose_train.families.comparisons import Direction, Edge
from eclose_train.training.switch_test import FamilySwitchScores, margin_name
from tests.experiment.report.test_evaluator import make_labels
from tests.experiment.report.test_small_grid import RUNS

DRAWS = BootstrapDraws(resamples=60, seed=1)
PLAN = BootstrapPlan(main=DRAWS, ablations=DRAWS, switches=DRAWS)
BACKBONES, BENCHMARKS = ("small", "large"), {"wiki": 4, "hotpot": 4}


def make_rows(is_reliable, runs=RUNS, backbones=BACKBONES):
    """Responses whose reliability is a function of backbone, method, seed, benchmark and number."""
    rows = []
    for backbone, (method, seed), (benchmark, size) in product(backbones, runs, BENCHMARKS.items()):
        for number in range(size):
            good = bool(is_reliable(backbone, method, seed, benchmark, number))
            verdict = Verdict(locally_sound=True, aligned=True, closed=good, complete=True, correct=good)
            source = ResponseSource(backbone, method, seed)
            id_ = f"{backbone}/{method}/{seed}/{benchmark}/{number}"
            rows.append(SettledVerdict(id_, f"q{number}", verdict, benchmark, source))
    return rows


def report_of(is_reliable, **more):
    return build_experiment_report(
        ExperimentResults(verdicts=make_rows(is_reliable), label_source="A test.", **more), PLAN
    )


def width(estimate):
    low, high = estimate.interval
    return round(high - low, 9)


def main_widths(is_reliable):
    """Widths of the reference method's TRR and of its gain over SFT."""
    main = report_of(is_reliable).main
    (gain,) = [gain for gain in main.gains if gain.method == "SFT"]
    return width(main.overall["E-Closure"]["TRR"]), width(gain.differences["TRR"])


def test_main_intervals_resample_backbones_questions_and_seeds_but_not_datasets():
    assert main_widths(lambda *unit: unit[0] == "small")[0] > 0
    assert main_widths(lambda *unit: unit[2] == 1)[0] > 0
    assert main_widths(lambda *unit: unit[4] % 2)[0] > 0
    assert main_widths(lambda *unit: unit[3] == "wiki") == (0, 0)


def test_methods_share_the_draws_of_the_main_intervals():
    for vary in (0, 2, 4):
        assert main_widths(lambda *unit, vary=vary: unit[vary] in {"small", 1, 3})[1] == 0


def ablation_width(is_reliable):
    """Width of the TRR gain of the full method over a variant that is never reliable."""
    variants = make_rows(lambda *_: False, [("e_closure-S", 1), ("e_closure-S", 2)], ["small"])
    report = report_of(is_reliable, ablations=variants)
    return width(report.ablations[0].gains[0].reliability_gain)


def test_ablation_intervals_resample_pooled_questions_and_seeds():
    # Pooled: the share of a dataset varies from draw to draw.
    assert ablation_width(lambda *unit: unit[3] == "wiki") > 0
    assert ablation_width(lambda *unit: unit[4] % 2) > 0
    assert ablation_width(lambda *unit: unit[2] == 1) > 0
    assert ablation_width(lambda *_: True) == 0


def switch_width(switches):
    """Width of the gain in S over a method that never switches; arguments as for responses."""
    rows = []
    for backbone, (method, seed), (benchmark, size) in product(BACKBONES, RUNS, BENCHMARKS.items()):
        for number in range(size):
            good = method == "e_closure" and switches(backbone, method, seed, benchmark, number)
            margins = {margin_name(edge, side): 1.0 if good else -1.0 for edge in Edge for side in Direction}
            rows.append(
                FamilySwitchScores(f"f{number}", benchmark, "p", {}, margins, model=backbone, method=method, seed=seed)
            )
    return width(report_of(lambda *_: True, switches=rows).switches.gains["SFT"][Edge.SUPPORT])


def test_switch_intervals_keep_settings_and_share_families_between_backbones():
    assert switch_width(lambda *unit: unit[4] % 2) > 0
    assert switch_width(lambda *unit: unit[2] == 1) > 0
    assert switch_width(lambda *unit: unit[0] == "small") == 0
    assert switch_width(lambda *unit: unit[3] == "wiki") == 0
    # What one backbone loses with a family, the other gains with the same draw.
    assert switch_width(lambda *unit: unit[4] % 2 == (unit[0] == "small")) == 0


def test_evaluator_intervals_resample_questions_within_datasets():
    labels = make_labels()
    agreed = summarize_evaluator(labels, DRAWS).agreement.overall
    assert width(agreed.rows["C"].scores.agreement) > 0
    # Where a whole dataset is in dispute, its share cannot vary.
    cases = [
        case._replace(judge=case.human if case.dataset == "wiki" else Verdict(closed=not case.human.closed))
        for case in labels.cases
    ]
    disputed = summarize_evaluator(type(labels)(name="high", cases=cases), DRAWS).agreement.overall
    assert width(disputed.rows["C"].scores.agreement) == 0
