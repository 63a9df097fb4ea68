"""Plans: every problem at once with its key, equal settings equal, and the paper's plan with its printed size."""

import csv
import time
from pathlib import Path

import pytest
import transformers.trainer  # noqa: F401 - planning reads the fields of its settings, and takes less time than this
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files.manifest import Manifest
from eclose.files.outcome_counts import RecordCounts
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import init_experiment, load_experiment
from eclose_train.experiment.forecast import TREE_SEQUENCES, HoursFit, forecast_experiment, forecast_judge_cost
from eclose_train.experiment.plan import read_plan
from eclose_train.training.objective import TrainingMethod
from tests.experiment.plans import plan_values, write_data, write_plan

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[4]
PAPER = ROOT / "packages" / "eclose-train" / "recipes" / "experiment" / "paper.yaml"


@pytest.fixture
def data(tmp_path):
    write_data(tmp_path)
    return tmp_path


def test_a_plan_is_read_with_its_files_beside_it(data):
    plan = read_plan(write_plan(data))
    assert plan.questions == data / "questions.jsonl"
    assert plan.backbones[0].weights == "small-model"
    assert plan.judge.settings.effort is None
    assert (plan.bootstrap.main.resamples, plan.bootstrap.main.seed) == (5_000, 2027)


def test_all_problems_are_listed_at_once_each_with_its_key(data):
    path = write_plan(
        data,
        backbones=[
            {"name": "A", "weights": "a", "learning_rate": "fast"},
            {"name": "B", "weights": "b", "learning_rate": 1, "colour": "red"},
        ],
        methods=["sft", "e_closur"],
        seeds=[1, 1, -2],
        ablations=["e_closure-S"],
        questions="nowhere.jsonl",
        train_family_count=7,
        judge={"model": "http://127.0.0.1:1/v1", "effort": 3},
        training={"famlies_per_update": 8, "max_length": "long", "seed": 3},
        sedes=[4],
        max_new_tokens=0,
        launcher='torchrun "',
    )
    with pytest.raises(SettingError) as caught:
        read_plan(path)
    message = str(caught.value)
    for problem in (
        "backbones[0].learning_rate: input should be a valid number",
        "backbones[1].colour: ",
        "methods: e_closur: no such method; did you mean e_closure?",
        "seeds: 1 is listed twice",
        "seeds: -2 is negative",
        "ablation_backbone: is missing",
        "nowhere.jsonl is not a file; state question_count to plan without it",
        "train_family_count: 7, but",
        "judge.effort: input should be a valid string",
        "training.famlies_per_update: no such setting; did you mean families_per_update?",
        "training.max_length = 'long'",
        "training.seed: the plan sets it for each cell",
        "sedes: no such setting; did you mean seeds?",
        "max_new_tokens: must be at least 1",
        "launcher: No closing quotation",
    ):
        assert problem in message, problem
    assert message.count(";") < 30


@pytest.mark.parametrize("key", ["backbones", "methods", "seeds", "train_families", "questions", "judge"])
def test_a_missing_key_is_named(data, key):
    values = plan_values()
    del values[key]
    path = write_plan(data)
    import yaml

    path.write_text(yaml.safe_dump(values))
    with pytest.raises(SettingError, match=f"{key}: is missing"):
        read_plan(path)


def test_a_judge_setting_that_cannot_work_is_named(data):
    with pytest.raises(SettingError, match=r"judge: attempts, max_tokens, repeat and step_window"):
        read_plan(write_plan(data, judge={"model": "world", "repeat": 0}))


def test_a_default_that_is_written_out_is_the_same_plan(data):
    plain = init_experiment(write_plan(data), data / "exp")
    spelled = {
        "families_per_update": 8,
        "num_train_epochs": 5,
        "warmup_steps": 50.0,
        "lora_rank": 16,
        "adam_beta1": 0.9,
    }
    written_out = init_experiment(write_plan(data, training=spelled), data / "exp")
    assert [task.id for task in plain.tasks] == [task.id for task in written_out.tasks]
    neutral = init_experiment(write_plan(data, training={"logging_steps": 1, "tokens_per_forward": 99}), data / "exp")
    assert [task.id for task in plain.tasks] == [task.id for task in neutral.tasks]
    for training in ({"families_per_update": 4}, {"adam_beta1": 0.8}, {"lora_rank": 8}):
        other = init_experiment(write_plan(data, training=training), data / "exp")
        assert not {task.id for task in plain.tasks if task.cell.is_tuned} & {task.id for task in other.tasks}


def test_an_experiment_is_loaded_as_it_was_written(data):
    experiment = init_experiment(write_plan(data, backbones=[*plan_values()["backbones"]]), data / "exp")
    loaded = load_experiment(data / "exp")
    assert loaded == experiment
    assert [task.id for task in loaded.tasks] == [task.id for task in experiment.tasks]


def test_a_folder_without_a_plan_names_the_command(tmp_path):
    with pytest.raises(UserError, match="Run eclose experiment init PLAN --out"):
        load_experiment(tmp_path)


def test_two_equal_backbones_are_refused(data):
    backbone = plan_values()["backbones"][0]
    path = write_plan(data, backbones=[backbone, {**backbone, "name": "Twin"}])
    with pytest.raises(SettingError, match="backbones: Small and Twin have the same settings"):
        init_experiment(path, data / "exp")


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    return init_experiment(PAPER, tmp_path_factory.mktemp("paper"))


def test_the_size_of_the_papers_study(paper):
    forecast = forecast_experiment(paper)
    assert forecast.adapters == 48
    assert forecast.switch_runs == 39
    assert forecast.responses == 33_774
    assert forecast.ablation_responses == 4 * 3 * 866


def test_the_papers_hours_follow_from_a_line(paper):
    """Every recorded run of the main comparison is within 10 % of the fit, and so is the total.

    Ablations are left out: their printed hours pool a seed on RTX A6000 with two on H100, and all other hours of this
    backbone are of RTX A6000.
    """
    forecast = forecast_experiment(paper)
    for row in forecast.training:
        if row.method in paper.plan.methods:
            assert row.fitted == pytest.approx(row.recorded, rel=0.1), row
    recorded = forecast.hours(paper.plan.methods, recorded=True)
    assert forecast.hours(paper.plan.methods) == pytest.approx(recorded, rel=0.1)


def test_hours_on_the_tree_are_those_of_its_tokens(paper):
    """A run keeps the constant part of its hours, and a family costs as many sequences as its tree has tokens."""
    forecast = forecast_experiment(paper)
    for row in forecast.training:
        own = [(other.sequences, other.fitted) for other in forecast.training if other.backbone == row.backbone]
        (few, low), (many, high) = min(own), max(own)
        per_sequence = (high - low) / (many - few)
        assert row.projected == pytest.approx(low + per_sequence * (TREE_SEQUENCES[row.method] - few)), row
    assert forecast.hours_on_tree(paper.plan.methods) < 0.4 * forecast.hours(paper.plan.methods)


def test_costs_on_the_tree_are_the_measured_ones():
    """Each objective has one, and the record of the projection says the same."""
    rows = (ROOT / "docs" / "records" / "projection.txt").read_text("utf-8").splitlines()
    measured = {row.split(" | ")[0].removeprefix("| "): row.split(" | ")[1] for row in rows if row.startswith("| ")}
    assert set(TREE_SEQUENCES) == set(TrainingMethod)
    for method, count in TREE_SEQUENCES.items():
        assert measured[method] == f"{count:.2f}"


NAMES = {"SFT": "sft", "CF-SFT": "cf_sft", "RM": "rm", "E-Closure": "e_closure", "w/o S": "e_closure-S"} | {
    "w/o T": "e_closure-T",
    "w/o C": "e_closure-C",
    "One-sided": "e_closure-one_sided",
}


def test_the_hours_of_the_papers_plan_are_the_printed_ones(paper):
    with (ROOT / "packages" / "eclose" / "tests" / "fixtures" / "paper" / "tables.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == "training_cost"]
    printed = {
        (row["column"], NAMES[row["row"]]): float(row["printed"]) for row in rows if not row["column"].endswith("SD")
    }
    planned = {
        (backbone.name, method): hours for backbone in paper.plan.backbones for method, hours in backbone.hours.items()
    }
    assert planned == printed


def test_a_line_through_hours():
    sequences = {"sft": 1, "cf_sft": 3, "rm": 7}
    fit = HoursFit.of({"sft": 3.0, "cf_sft": 5.0}, sequences)
    assert fit.hours(7) == pytest.approx(9.0)
    assert HoursFit.of({"cf_sft": 6.0}, sequences).hours(7) == pytest.approx(14.0)
    assert HoursFit.of({}, sequences) is None
    # Counts this near each other give no slope.
    assert HoursFit.of({"a": 2.0, "b": 1.8}, {"a": 1.6, "b": 1.7}).hours(1.65) == pytest.approx(1.90, abs=0.01)


def test_finished_runs_are_a_pilot_for_those_that_are_left(data):
    experiment = init_experiment(write_plan(data), data / "exp")
    assert forecast_experiment(experiment).hours_left(["sft", "e_closure"]) is None
    train = next(task for task in experiment.tasks if task.stage is Stage.TRAIN)
    assert train.cell.method == "sft"
    manifest = Manifest("train", {}, {}, {}, RecordCounts(2, 2), run={"seconds": 1_800})
    train.folder(experiment.folder).mkdir(parents=True)
    manifest.write(train.result_path(experiment.folder))
    forecast = forecast_experiment(experiment)
    # One of two runs of SFT is left. E-Closure scores 15 sequences where SFT scores one, with most tokens shared.
    assert forecast.hours_left(["sft"]) == pytest.approx(0.5)
    assert forecast.hours_left(["e_closure"]) == pytest.approx(2 * 1.70 / 1.01 * 0.5)
    output = CliRunner().invoke(app, ["experiment", "init", str(data / "plan.yaml"), "--out", str(data / "exp")])
    assert "Training, main comparison: 2.18 h left, by 1 finished run" in output.stdout


def test_the_cost_of_judging_is_forecast_from_gold_responses(data):
    priced = {"model": "openai/gpt-5-mini"}
    forecasts = {}
    for questions in (1, 2):
        write_data(data, questions=questions)
        path = write_plan(data, judge=priced)
        forecasts[questions] = forecast_judge_cost(init_experiment(path, data / f"exp{questions}"))
    assert forecasts[2].responses == 5 * 2
    assert forecasts[2].cost == pytest.approx(2 * forecasts[1].cost, abs=1)
    # About 6 questions on 1,500 tokens at less than a dollar a million: cents, not dollars.
    assert 10**3 < forecasts[2].cost < 10**6
    unpriced = forecast_judge_cost(init_experiment(write_plan(data), data / "unpriced"))
    assert unpriced.cost is None
    assert unpriced.calls == forecasts[2].calls > 0


@pytest.mark.timing
def test_a_thousand_cells_are_planned_in_under_five_seconds(data):
    backbones = [{"name": f"B{number}", "weights": f"hub/b{number}", "learning_rate": 0.1} for number in range(10)]
    methods = ["sft", "cf_sft", "rm", "e_closure"]
    path = write_plan(data, backbones=backbones, methods=methods, seeds=list(range(25)))
    start = time.monotonic()
    experiment = init_experiment(path, data / "exp")
    assert len({task.cell for task in experiment.tasks}) == 1_010
    assert [experiment.state(task) for task in experiment.tasks]
    assert time.monotonic() - start < 5


def test_runs_made_elsewhere_belong_to_cells_of_the_plan(tmp_path):
    runs = [
        {"backbone": "Large", "method": "dpo", "seed": 9, "judged": "judged"},
        {"backbone": "Small", "seed": 1, "adapter": "adapter"},
        {"backbone": "Small", "method": "sft", "seed": 1},
        {"backbone": "Small", "method": "sft", "seed": 1, "switches": "one.jsonl"},
        {"backbone": "Small", "method": "sft", "seed": 1, "switches": "two.jsonl"},
    ]
    write_data(tmp_path)
    with pytest.raises(SettingError) as refused:
        read_plan(write_plan(tmp_path, runs=runs))
    for problem in (
        "runs[0].backbone: Large is not one of the backbones Small",
        "runs[0].method: dpo is not one of backbone, sft, e_closure",
        "runs[0].seed: 9 is not one of 1, 2",
        "runs[1]: an untuned backbone has neither a seed nor an adapter",
        "runs[2]: name adapter, responses, judged or switches",
        "runs: switches of Small sft 1 is given twice",
    ):
        assert problem in str(refused.value)
