"""A small form of the fault rig, and that it notices when the layer is spoiled. The long form is a figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.calls.ledger.postgres import fresh_database

RIG = Path(__file__).parents[4] / "studies" / "campaigns" / "runner_faults.py"

pytestmark = pytest.mark.slow
KILLS = 8


def rig(*arguments):
    command = [sys.executable, RIG, "--kills", str(KILLS), *arguments]
    process = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    return process.returncode, process.stdout + process.stderr


@pytest.mark.parametrize(
    "ledger", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.database, pytest.mark.study])]
)
def test_killed_again_and_again_a_pipeline_loses_nothing_and_pays_nothing_twice(ledger):
    if ledger == "postgresql":
        fresh_database()  # skips where there is none
    code, output = rig("--ledger", ledger)
    assert code == 0, output
    assert json.loads(output.splitlines()[-1])["value"] >= KILLS


@pytest.mark.parametrize("mutant", ["no-intent", "hasty", "by-position"])
def test_the_rig_notices_when_the_layer_is_spoiled(mutant):
    code, output = rig("--mutant", mutant)
    assert code == 1, output
    assert any(phrase in output for phrase in ("PROBLEMS", "unaccounted", "with other content")), output
