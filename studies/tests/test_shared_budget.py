"""Short form of ``studies/campaigns/shared_budget.py``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.calls.ledger.postgres import fresh_database

SCRIPT = Path(__file__).parents[1] / "campaigns" / "shared_budget.py"


@pytest.mark.database
@pytest.mark.slow
def test_three_processes_keep_one_budget_while_the_database_is_restarted():
    fresh_database()  # skips where there is none
    command = [sys.executable, str(SCRIPT), "--records", "60", "--restarts", "1"]
    process = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    assert process.returncode == 0, process.stdout + process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["value"] == 0
