"""The checks of ``studies/campaigns/engines.py``, on labels without an engine: no package is installed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import parquet

import eclose
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from studies.campaigns import engines


@pytest.mark.parametrize("engine", engines.ENGINES)
def test_lines_of_every_engine_take_a_server_in_place_of_the_model(engine):
    code = engines.point_at(engines.read_code(engine), "http://127.0.0.1:9/v1", "postgresql://here")
    compile(code, "engines.md", "exec")
    assert "openai/" not in code
    assert "user@host" not in code


@pytest.mark.slow
def test_rows_that_are_lost_repeated_changed_or_judged_otherwise_are_counted(tmp_path):
    rows = engines.write_responses(tmp_path / "responses.parquet", 3)
    with (
        ModelServerThread(build_world_handlers()) as model,
        eclose.Judge(model.base_url, calls=eclose.CallSettings(unpriced=True)) as judge,
    ):
        labels = judge.batch(parquet.read_table(tmp_path / "responses.parquet"))
    (tmp_path / "labels").mkdir()

    def check(table):
        parquet.write_table(table, tmp_path / "labels" / "part-0.parquet")
        return engines.check_labels(tmp_path, rows)

    assert check(labels) == []
    assert "other rows came back" in check(labels.slice(1))
    changed = labels.set_column(0, "ticket", pa.array([100, 101, 109]))
    assert check(changed) == ["other rows came back"]
    number = labels.column_names.index("reliable")
    assert check(labels.set_column(number, "reliable", pa.array([True, False, True])))
    problems = check(pa.concat_tables([labels, labels.slice(2)]))
    assert problems[0] == "other rows came back"
    assert "judged twice" in problems[1]
