"""Cells and stages: what depends on what, and what the id of a stage depends on."""

from dataclasses import replace
from pathlib import Path

import pytest

from eclose.errors import SettingError
from eclose_train.experiment.cells import Cell, ResolvedBackbone, Stage, StagePlanner, filter_tasks, list_cells
from eclose_train.experiment.plan import parse_plan
from tests.experiment.plans import plan_values

TRAINING = {"demonstrations": 0, "order": "evidence_first", "max_length": 8_192, "learning_rate": 0.01}
INPUTS = {"train_families": "sha256:1", "development_families": "sha256:2", "questions": "sha256:3"}


def tasks(plan, training=None, inputs=INPUTS, content="sha256:w", judge=None):
    resolved = {backbone.name: ResolvedBackbone(content, training or TRAINING) for backbone in plan.backbones}
    return StagePlanner(plan, resolved, inputs, judge or {"model": "world"}).tasks()


def ids(planned, stage=None):
    return {task.id for task in planned if stage is None or task.stage is stage}


@pytest.fixture
def plan():
    return parse_plan(plan_values())


def test_an_untuned_backbone_is_not_trained_and_comes_first(plan):
    assert list_cells(plan)[0] == Cell("Small")
    stages = {}
    for task in tasks(plan):
        stages.setdefault(task.cell, []).append(task.stage)
    assert stages.pop(Cell("Small")) == [Stage.GENERATE, Stage.JUDGE, Stage.SWITCH]
    assert list(stages) == [Cell("Small", method, seed) for method in ("sft", "e_closure") for seed in (1, 2)]
    assert set(map(tuple, stages.values())) == {tuple(Stage)}


def test_every_stage_comes_after_those_it_needs(plan):
    earlier_tasks = set()
    for task in tasks(plan):
        assert set(task.needs) <= earlier_tasks
        assert all(need.cell == task.cell for need in task.needs)
        earlier_tasks.add(task)
    needs = {task.stage: {need.stage for need in task.needs} for task in tasks(plan) if task.cell.is_tuned}
    assert needs == {
        Stage.TRAIN: set(),
        Stage.SELECT: {Stage.TRAIN},
        Stage.GENERATE: {Stage.SELECT},
        Stage.JUDGE: {Stage.GENERATE},
        Stage.SWITCH: {Stage.SELECT},
    }


def test_ablations_run_on_one_backbone_and_without_a_switch_test(plan):
    backbones = [*plan.backbones, replace(plan.backbones[0], name="Other", weights="other")]
    ablated = replace(plan, backbones=backbones, ablations=["e_closure-S"], ablation_backbone="Other")
    cells = [cell for cell in list_cells(ablated) if cell.method == "e_closure-S"]
    assert cells == [Cell("Other", "e_closure-S", 1), Cell("Other", "e_closure-S", 2)]
    stages = {task.stage for task in tasks(ablated) if task.cell in cells}
    assert stages == set(Stage) - {Stage.SWITCH}
    assert Stage.SWITCH in {task.stage for task in tasks(replace(ablated, switch_ablations=True)) if task.cell in cells}


def test_all_stages_have_folders_of_their_own(plan):
    planned = tasks(plan)
    assert len({task.folder(Path("x")) for task in planned}) == len(planned) == 3 + 4 * 5


@pytest.mark.parametrize("more", [{"seeds": [1, 2, 3]}, {"methods": ["sft", "rm", "e_closure"]}])
def test_a_plan_extended_by_a_seed_or_a_method_keeps_its_cells(plan, more):
    before, after = tasks(plan), tasks(parse_plan(plan_values(**more)))
    assert ids(before) < ids(after)
    new = {task.cell for task in after if task.id in ids(after) - ids(before)}
    assert new == set(list_cells(parse_plan(plan_values(**more)))) - set(list_cells(plan))


def test_a_changed_setting_renames_the_stages_that_it_decides_and_those_after(plan):
    before = tasks(plan)

    def changed(**more):
        return {stage for stage in Stage if ids(before, stage) != ids(tasks(**more), stage)}

    everything = set(Stage)
    assert changed(plan=plan, training={**TRAINING, "learning_rate": 0.02}) == everything
    assert changed(plan=plan, content="sha256:x") == everything
    assert changed(plan=plan, inputs={**INPUTS, "questions": "sha256:4"}) == {Stage.GENERATE, Stage.JUDGE}
    assert changed(plan=replace(plan, max_new_tokens=9)) == {Stage.GENERATE, Stage.JUDGE}
    assert changed(plan=replace(plan, selection_max_new_tokens=9)) == everything - {Stage.TRAIN}
    assert changed(plan=plan, judge={"model": "another"}) == {Stage.JUDGE}
    assert changed(plan=replace(plan, launcher="torchrun -m eclose.cli.main")) == set()


def test_families_of_their_own_decide_the_switch_test_alone(plan):
    own = replace(plan, switch_families=Path("switch.jsonl"))
    assert list(own.inputs) == ["train_families", "development_families", "switch_families", "questions"]
    inputs = {**INPUTS, "switch_families": "sha256:5"}
    before, after = tasks(plan), tasks(own, inputs=inputs)
    assert {stage for stage in Stage if ids(before, stage) != ids(after, stage)} == {Stage.SWITCH}
    other = tasks(own, inputs={**inputs, "development_families": "sha256:6"})
    assert ids(other, Stage.SELECT).isdisjoint(ids(after, Stage.SELECT))
    untuned = [
        {task.id for task in planned if task.stage is Stage.SWITCH and not task.cell.is_tuned}
        for planned in (after, other)
    ]
    assert untuned[0] == untuned[1]


def test_a_changed_learning_rate_leaves_the_untuned_backbone_alone(plan):
    others = tasks(plan, {**TRAINING, "learning_rate": 0.02})
    untuned = [{task.id for task in planned if not task.cell.is_tuned} for planned in (tasks(plan), others)]
    assert untuned[0] == untuned[1]


def test_filters_choose_any_value_of_a_key_and_all_keys(plan):
    planned = tasks(plan)
    chosen = filter_tasks(planned, ["seed=1", "method=sft", "method=e_closure", "stage=train"])
    assert [str(task.cell) for task in chosen] == ["Small sft 1", "Small e_closure 1"]
    assert {task.stage for task in filter_tasks(planned, ["method=backbone"])} == {
        Stage.GENERATE,
        Stage.JUDGE,
        Stage.SWITCH,
    }
    assert filter_tasks(planned, [f"id={chosen[0].id}", "stage=train"]) == chosen[:1]
    with pytest.raises(SettingError, match="--only id=0: the plan has no stage with this id"):
        filter_tasks(planned, ["id=0"])
    with pytest.raises(SettingError, match="--only seed=7: the plan has 1, 2"):
        filter_tasks(planned, ["seed=7"])
    with pytest.raises(SettingError, match="--only colour=red: write key=value"):
        filter_tasks(planned, ["colour=red"])


def test_a_selection_without_answers_is_not_finished(plan, tmp_path):
    select = next(task for task in tasks(plan) if task.stage is Stage.SELECT)
    folder = select.folder(tmp_path)
    folder.mkdir(parents=True)
    (folder / "selection.json").write_text('{"selected": null}')
    assert not select.is_finished(tmp_path)
    (folder / "selection.json").write_text('{"selected": {"step": 1}}')
    assert select.is_finished(tmp_path)
