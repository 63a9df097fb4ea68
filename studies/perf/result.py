"""Result line of a measurement: the last thing that a script of ``studies/perf`` or ``studies/campaigns`` prints."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def print_result(*, name: str, value: float | None, unit: str, goal: str, holds: bool | None, **details: Any) -> int:
    """Print the result as one line of JSON, with the day and the commit, and return the exit code of the script.

    Args:
        name: What was measured.
        value: The measured figure; None where nothing could be measured.
        unit: Unit of the figure, with further figures where there are any.
        goal: What the figures must be.
        holds: Whether the goal is reached; None where nothing could be measured.
        details: Further fields of the line.

    Returns:
        0 where the goal is reached, otherwise 1.
    """
    origin = {"date": datetime.now(UTC).date().isoformat(), "commit": _find_commit()}
    print(json.dumps({"name": name, "value": value, "unit": unit, "goal": goal, "holds": holds, **origin, **details}))
    return 0 if holds else 1


def _find_commit() -> str:
    """Return the abbreviated commit of the code, with a plus sign where it was changed since; empty outside git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
