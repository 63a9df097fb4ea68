"""A small experiment through the report: holes, mixed runs, repeated rows and the written files."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from itertools import product

import pytest

from eclose.errors import UserError
from eclose.values.response import ResponseSource
from eclose.values.verdict import SettledVerdict, Verdict
from eclose_train.experiment.plan import BootstrapDraws, BootstrapPlan
from eclose_train.experiment.report.build import build_experiment_report
from eclose_train.experiment.report.documents import (
    render_experiment_json,
    render_experiment_latex,
    render_experiment_markdown,
)
from eclose_train.experiment.report.grid import ExperimentGrid
from eclose_train.experiment.report.inputs import ExperimentResults, RunProvenance
from eclose_train.experiment.report.study_tables import build_experiment_tables
from eclose_train.experiment.report.tables import rank_displayed_values
from eclose_train.experiment.report.write import write_experiment_report
from eclose_train.families.comparisons import Direction, Edge
from eclose_train.training.switch_test import FamilySwitchScores, margin_name
from tests.report.latex_check import find_latex_problems

DRAWS = BootstrapDraws(resamples=20, seed=1)
FEW = BootstrapPlan(main=DRAWS, ablations=DRAWS, switches=DRAWS)
RUNS = [(None, None), *product(("sft", "e_closure"), (1, 2))]


def make_rows(runs=RUNS, backbones=("small", "large")):
    """Two benchmarks of three and two questions; labels depend on the position, so that methods differ."""
    rows = []
    for backbone, (method, seed), (benchmark, size) in product(backbones, runs, {"wiki": 3, "hotpot": 2}.items()):
        for number in range(size):
            good = (number + (seed or 0) + len(method or "")) % 3 > 0
            verdict = Verdict(locally_sound=True, aligned=True, closed=good, complete=False, correct=good)
            source = ResponseSource(backbone, method, seed)
            id_ = f"{backbone}/{method}/{seed}/{benchmark}/{number}"
            rows.append(SettledVerdict(id_, f"q{number}", verdict, benchmark, source))
    return rows


def make_results(rows=None, **more):
    rows = make_rows() if rows is None else rows
    matches = {row.response_id: True for row in rows}
    return ExperimentResults(verdicts=rows, label_source="Labels by a test.", matches=matches, **more)


def test_methods_have_the_names_of_the_paper_and_intervals():
    main = build_experiment_report(make_results(), FEW).main
    assert list(main.overall) == ["Backbone", "SFT", "E-Closure"]
    assert main.overall["SFT"]["TRR"].interval is not None
    assert [gain.method for gain in main.gains] == ["Backbone", "SFT"]


def test_a_rate_of_too_few_judged_responses_has_no_interval_and_no_gain():
    rows = [
        replace(row, verdict=Verdict(locally_sound=True))
        if row.source.method is None and not row.response_id.endswith("/0")
        else row
        for row in make_rows()
    ]
    report = build_experiment_report(make_results(rows), FEW)
    assert report.main.overall["Backbone"]["Acc"].shown is None
    document = json.loads(render_experiment_json(report))
    assert document["overall"]["Backbone"]["Acc"]["interval"] is None
    assert document["overall"]["SFT"]["Acc"]["interval"] is not None
    over_untuned = next(gain for gain in report.main.gains if gain.method == "Backbone").differences["Acc"]
    assert (over_untuned.value, over_untuned.interval) == (None, None)
    row = next(line for line in render_experiment_markdown(report).splitlines() if line.startswith("| Backbone | –"))
    assert "[" not in row.split("|")[2]


def test_an_incomplete_grid_names_its_holes_and_has_no_intervals():
    rows = [row for row in make_rows() if row.response_id not in {"large/sft/2/wiki/1", "large/sft/2/wiki/2"}]
    rows = [row for row in rows if (row.source.model, row.source.method, row.source.seed) != ("small", "e_closure", 1)]
    report = build_experiment_report(make_results(rows), FEW)
    assert report.missing == (
        "Responses of SFT on large, seed 2: 2 of 5 are missing (2 of wiki).",
        "Responses of E-Closure on small, seed 1: all 5 are missing.",
    )
    assert all(rate.interval is None for rates in report.main.overall.values() for rate in rates.values())
    assert all(value.interval is None for gain in report.main.gains for value in gain.differences.values())
    text = render_experiment_markdown(report)
    assert text.index("Incomplete") < text.index("all 5 are missing") < text.index("Aggregate performance")


def test_the_order_of_rows_changes_no_number():
    first, turned = (
        json.loads(render_experiment_json(build_experiment_report(make_results(rows), FEW)))
        for rows in (make_rows(), make_rows()[::-1])
    )
    assert first["overall"] == {name: turned["overall"][name] for name in first["overall"]}


def test_runs_of_other_evaluators_or_guidelines_are_refused_by_name():
    runs = {
        "sft-1": RunProvenance(evaluator="judge-a", guidelines="hash-1"),
        "sft-2": RunProvenance(evaluator="judge-b", guidelines="hash-2"),
        "old": RunProvenance(),
    }
    with pytest.raises(UserError, match=r"evaluator: judge-a \(sft-1\), judge-b \(sft-2\); guidelines: hash-1"):
        build_experiment_report(make_results(provenance=runs), FEW)
    report = build_experiment_report(make_results(provenance={"sft-1": runs["sft-1"], "old": runs["old"]}), FEW)
    assert "evaluator judge-a, guidelines hash-1" in report.labels


def test_two_responses_of_one_run_to_a_question_are_refused():
    rows = make_rows()
    with pytest.raises(UserError, match="several responses of one run"):
        build_experiment_report(make_results([*rows, replace(rows[0], response_id="again")]), FEW)


def test_classes_of_the_gap_sum_to_the_gap_and_unjudged_ones_are_counted():
    variants = make_rows([("e_closure-S", 1), ("e_closure-S", 2)], ["small"])
    report = build_experiment_report(make_results(ablations=variants), FEW)
    rates = report.ablations[0].rates["w/o S"]
    assert rates["PD"].value + rates["IR"].value + rates["AD"].value == pytest.approx(rates["LGG"].value)
    unknown = [replace(row, verdict=replace(row.verdict, complete=None)) for row in variants]
    rates = build_experiment_report(make_results(ablations=unknown), FEW).ablations[0].rates["w/o S"]
    assert rates["IR"].unjudged == round(rates["LGG"].value * 10) > 0
    assert rates["PD"].unjudged == 0


def test_latex_is_well_formed_with_any_name():
    rows = [replace(row, benchmark=f"{row.benchmark}_%&") for row in make_rows()]
    results = make_results(rows, ablations=make_rows([("e_closure-S", 1), ("e_closure-S", 2)], ["small"]))
    text = render_experiment_latex(build_experiment_report(replace(results, ablations=()), FEW))
    assert find_latex_problems(text) == []
    assert r"\textbf{" in text


def test_ties_rank_alike_and_a_gap_is_better_when_smaller():
    assert rank_displayed_values(["5.0", "0.1", "0.1", "0.2", "–"], lower=True) == [0, 1, 1, 2, 0]


@pytest.mark.slow
def test_files_are_written_and_written_again_alike(tmp_path):
    report = build_experiment_report(
        make_results(ablations=make_rows([("e_closure-S", 1), ("e_closure-S", 2)], ["small"])), FEW
    )
    paths = write_experiment_report(report, tmp_path / "first")
    again = write_experiment_report(report, tmp_path / "second")
    assert {path.name for path in paths} >= {"experiment.json", "experiment.tex", "overall.svg", "ablation-gains.pdf"}
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    data = json.loads((tmp_path / "first" / "experiment.json").read_text())
    assert data["format"] == "eclose-experiment-1"
    assert data["complete"]
    with (tmp_path / "first" / "per_seed.csv").open() as file:
        # Two backbones, two benchmarks, five runs.
        assert len(list(csv.DictReader(file))) == 20


def test_hyperparameters_are_those_of_the_recipes_and_name_the_runs_that_differ():
    shared = {"lora_rank": 16, "lora_targets": ["q_proj", "v_proj"], "dtype": "bfloat16", "eval_steps": 5}
    recipes = {
        ResponseSource(backbone, method, seed): {
            **shared,
            "learning_rate": 1e-4 if backbone == "small" else 5e-5,
            "margin_weight": 0.5 if method == "e_closure" else 0,
            "warmup_steps": 3 if (backbone, method, seed) == ("small", "sft", 2) else 0,
            "seed": seed,
            "method": method,
            "work": f"hash of {backbone} {method} {seed}",
            "inputs": {"families": backbone},
        }
        for backbone, method, seed in product(("small", "large"), ("sft", "e_closure"), (1, 2))
    }
    report = build_experiment_report(make_results(recipes=recipes), FEW)
    (table,) = [table for table in build_experiment_tables(report) if table.key == "hyperparameters"]
    hyperparameters = {row[0].text: row[1].text for row in table.rows}
    assert hyperparameters.pop("warmup_steps").endswith("; 3 for SFT on small, seed 2")
    assert hyperparameters == {
        "lora_targets": "q_proj, v_proj",
        "lora_rank": "16",
        "dtype": "bfloat16",
        "learning_rate": "0.0001 for small; 5e-05 for large",
        "margin_weight": "0 for SFT; 0.5 for E-Closure",
    }


def test_the_keys_of_the_json_format_stay():
    data = json.loads(render_experiment_json(build_experiment_report(make_results(), FEW)))
    assert set(data) == {
        *("format", "labels", "provenance", "complete", "missing", "left_out", "reference", "intervals", "grid"),
        *("overall", "gains", "seeds", "ablations", "evaluator", "audit", "switches", "variant_switches", "cost"),
        *("hyperparameters", "claims", "statements", "tables"),
    }
    assert set(data["intervals"]) == {"main", "ablations", "switches", "audit", "judge"}
    assert set(data["overall"]["SFT"]["TRR"]) == {
        *("value", "of_judged", "n", "unjudged", "parts", "interval", "undefined"),
    }
    assert set(data["seeds"][0]) == {"method", "backbone", "seed", "benchmark", "rates"}
    assert set(data["gains"][0]) == {"method", "differences", "settings", "reliability_ranges"}


def make_switch_rows(runs):
    margins = {margin_name(edge, direction): 1.0 for edge in Edge for direction in Direction}
    return [
        FamilySwitchScores("f", "wiki", "p", {}, margins, model=backbone, method=method, seed=seed)
        for backbone, method, seed in runs
    ]


def test_planned_switch_runs_without_scores_are_listed_and_leave_no_intervals():
    runs = [(backbone, *run) for backbone in ("small", "large") for run in RUNS]
    grid = ExperimentGrid(("Backbone", "SFT", "E-Closure"), ("small", "large"), (1, 2), {"wiki": 3, "hotpot": 2})
    whole = build_experiment_report(make_results(switches=make_switch_rows(runs), grid=grid), FEW)
    assert not whole.missing
    assert whole.switches.gains["SFT"][Edge.SUPPORT].interval is not None
    # All runs of a backbone are missing, so the rows alone would look complete.
    part = make_switch_rows(run for run in runs if run[0] == "small")
    report = build_experiment_report(make_results(switches=part, grid=grid), FEW)
    assert len(report.missing) == 5
    assert "Switch test: families of E-Closure on large, seed 2: all 1 are missing." in report.missing
    assert report.switches.gains["SFT"][Edge.SUPPORT].interval is None


def test_responses_outside_the_plan_are_refused():
    planned = ExperimentGrid(("Backbone", "SFT"), ("small", "large"), (1, 2), {"wiki": 3, "hotpot": 2})
    with pytest.raises(UserError, match=r"not in the plan of the experiment: E-Closure on small, seed 1, wiki: 3"):
        build_experiment_report(make_results(grid=planned), FEW)
    fewer = ExperimentGrid(("Backbone", "SFT", "E-Closure"), ("small", "large"), (1, 2), {"wiki": 2, "hotpot": 2})
    with pytest.raises(UserError, match="wiki: the runs answer 3 questions, the plan has 2"):
        build_experiment_report(make_results(grid=fewer), FEW)
