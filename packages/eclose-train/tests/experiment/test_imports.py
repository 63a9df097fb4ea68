"""Runs made elsewhere: taken in by backbone, method and seed, never run again, and refused where they do not fit."""

import json
import shutil

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from eclose.errors import SettingError
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import StageState, init_experiment, load_experiment
from eclose_train.experiment.results import collect_results
from eclose_train.experiment.run import run_experiment
from tests.experiment.plans import read_results

pytestmark = [pytest.mark.slow, pytest.mark.torch]

TUNED = {"backbone": "Small", "method": "e_closure", "seed": 1}


def folders(experiment, *, tuned):
    """Return the folder of every stage of the tuned or of the untuned cell."""
    tasks = [task for task in experiment.tasks if task.cell.is_tuned == tuned]
    return {task.stage: task.folder(experiment.folder) for task in tasks}


def test_results_from_elsewhere_are_taken_in_and_never_run_again(finished_experiment, write, tmp_path):
    tuned, untuned = (folders(finished_experiment, tuned=is_tuned) for is_tuned in (True, False))
    runs = [
        {**TUNED, "judged": tuned[Stage.JUDGE], "switches": tuned[Stage.SWITCH]},
        {"backbone": "Small", "responses": untuned[Stage.GENERATE] / "responses.jsonl"},
    ]
    experiment = init_experiment(write(runs=runs), tmp_path / "second")
    states = {(task.cell.method, task.stage): experiment.state(task) for task in experiment.tasks}
    finished, opened = StageState.FINISHED, StageState.OPEN
    assert states == {
        ("backbone", "generate"): finished,
        ("backbone", "judge"): opened,
        ("backbone", "switch"): opened,
        # Nothing is left that needs an adapter or responses.
        ("e_closure", "judge"): finished,
        ("e_closure", "switch"): finished,
    }
    result = run_experiment(load_experiment(tmp_path / "second"))
    assert {(task.cell.method, task.stage) for task in result.finished} == {
        ("backbone", "judge"),
        ("backbone", "switch"),
    }
    before, after = collect_results(finished_experiment), collect_results(experiment)
    assert sorted(map(_without_id, after.verdicts), key=str) == sorted(map(_without_id, before.verdicts), key=str)
    assert {(row.method, row.family_id, tuple(row.scores.values())) for row in after.switches} == {
        (row.method, row.family_id, tuple(row.scores.values())) for row in before.switches
    }
    origin = json.loads((folders(experiment, tuned=True)[Stage.JUDGE] / "imported.json").read_text())
    assert origin["from"] == str(tuned[Stage.JUDGE] / "judgments.jsonl")

    # An adapter alone: everything behind it is run, and training is not.
    runs = [{**TUNED, "adapter": tuned[Stage.SELECT] / "selected"}]
    adapted = init_experiment(write(runs=runs), tmp_path / "third")
    result = run_experiment(adapted, ["method=e_closure"])
    assert [task.stage for task in result.before] == [Stage.SELECT]
    assert [task.stage for task in result.finished] == [Stage.GENERATE, Stage.JUDGE, Stage.SWITCH]
    before = read_results(finished_experiment.folder)
    names = {path.name: data for path, data in before.items() if tuned[Stage.GENERATE].name in path.parts}
    again = {path.name: data for path, data in read_results(adapted.folder).items() if path.parts[0] == "generate"}
    assert again == names


def _without_id(row):
    return row.instance_id, row.verdict, row.source


def test_results_that_do_not_fit_are_refused_with_all_problems_at_once(finished_experiment, write, tmp_path):
    tuned = {stage: tmp_path / stage.value for stage in (Stage.SELECT, Stage.JUDGE, Stage.SWITCH)}
    for stage, copy in tuned.items():
        shutil.copytree(folders(finished_experiment, tuned=True)[stage], copy)
    change(tuned[Stage.SELECT] / "selected" / "recipe.json", '"hash": "sha256:', '"hash": "sha256:0')
    change(tuned[Stage.SELECT] / "selected" / "recipe.json", '"seed": 1', '"seed": 5')
    change(
        tuned[Stage.JUDGE] / "judgments.jsonl.manifest.json", '"judge_closure": "sha256:', '"judge_closure": "sha256:0'
    )
    change(tuned[Stage.JUDGE] / "instances.jsonl", '"question":"', '"question":"Tell me: ')
    change(
        tuned[Stage.SWITCH] / "switches.jsonl.manifest.json",
        '"development.jsonl": "sha256:',
        '"development.jsonl": "sha256:0',
    )
    runs = [
        {**TUNED, "adapter": tuned[Stage.SELECT] / "selected", "judged": tuned[Stage.JUDGE]},
        {**TUNED, "switches": tuned[Stage.SWITCH], "responses": tmp_path / "nowhere.jsonl"},
    ]
    with pytest.raises(SettingError) as refused:
        init_experiment(write(runs=runs), tmp_path / "second")
    message = str(refused.value)
    for problem in (
        "was trained on other families",
        "was trained with seed 5, the plan has 1",
        "was judged with another guidelines than the plan's",
        "has other questions or passages under 2 ids",
        "was made from other families",
        "nowhere.jsonl is not a file",
    ):
        assert problem in message, message
    assert not (tmp_path / "second").exists()


def change(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
