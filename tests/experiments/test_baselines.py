"""Baselines of TRL in a plan and in tables: accepted as methods, and marked as not the paper's."""

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from eclose.diagnosis.report.table import ReportTable, ReportTableCell
from eclose.experiments.report.method_names import BASELINE_NAMES, BASELINE_NOTE, name_method
from eclose.experiments.report.study_tables import mark_baselines
from eclose.experiments.training_settings import count_objective_sequences, list_training_problems
from eclose.training.config import BaselineMethod


def test_a_plan_may_name_baselines():
    assert not list(list_training_problems({"methods": ["sft", "dpo", "simpo"]}, {}))
    (problem,) = list_training_problems({"methods": ["ppo"]}, {})
    assert problem.startswith("methods: ppo")


def test_every_response_of_a_pair_is_a_sequence():
    assert [count_objective_sequences(method) for method in ("sft", "dpo", "simpo")] == [1, 16, 8]


def test_tables_mark_baselines():
    assert tuple(map(name_method, BaselineMethod)) == BASELINE_NAMES
    tables = [
        ReportTable("t", "Title", ("Method", "TRR"), ((ReportTableCell(name), ReportTableCell("1.0")),), "Percent.")
        for name in ("SFT", "DPO*")
    ]
    assert [mark_baselines(table).note for table in tables] == ["Percent.", f"Percent. {BASELINE_NOTE}"]
