"""Tests of the miniature study in several sittings."""

import pytest
import torch  # noqa: F401 - settings of training are fields of its classes

from eclose.files.manifest import Manifest
from eclose.files.outcome_counts import RecordCounts
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import init_experiment
from studies.campaigns.miniature import is_reportable
from tests.experiment.plans import write_data, write_plan

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("method", "reportable"), [("e_closure-S", False), ("sft", True), ("backbone", True)])
def test_a_sitting_with_ablations_alone_is_not_reported(tmp_path, method, reportable):
    write_data(tmp_path)
    plan = write_plan(tmp_path, ablations=["e_closure-S"], ablation_backbone="Small")
    experiment = init_experiment(plan, tmp_path / "experiment")
    assert not is_reportable(experiment)
    task = next(task for task in experiment.tasks if task.stage is Stage.JUDGE and task.cell.method == method)
    task.folder(experiment.folder).mkdir(parents=True)
    Manifest("judge", {}, {}, {}, RecordCounts(2, 2)).write(task.result_path(experiment.folder))
    assert is_reportable(experiment) == reportable
