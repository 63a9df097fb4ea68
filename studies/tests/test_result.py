"""Tests of the result line that every script of ``studies/perf`` and ``studies/campaigns`` ends with."""

from __future__ import annotations

import ast
import json
import re
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from studies.perf.result import print_result

ROOT = Path(__file__).parents[2]
SCRIPTS = [path for folder in ("perf", "campaigns") for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.slow
@pytest.mark.parametrize(("holds", "code"), [(True, 0), (False, 1), (None, 1)])
def test_a_result_is_one_line_with_its_origin_and_the_exit_code_says_whether_it_holds(holds, code, capsys):
    assert print_result(name="n", value=1.5, unit="s", goal="< 2", holds=holds, offline=True) == code
    line = json.loads(capsys.readouterr().out)
    assert date.fromisoformat(line.pop("date")) <= datetime.now(UTC).date()
    assert re.fullmatch(r"([0-9a-f]{7,}\+?)?", line.pop("commit"))
    assert line == {"name": "n", "value": 1.5, "unit": "s", "goal": "< 2", "holds": holds, "offline": True}


@pytest.mark.parametrize("path", [path for path in SCRIPTS if path.name != "result.py"], ids=lambda path: path.stem)
def test_every_script_ends_with_the_result_line_and_its_exit_code(path):
    text = path.read_text("utf-8")
    assert "print_result(" in text or "print_claims(" in text
    assert '"holds"' not in text
    assert ast.unparse(ast.parse(text).body[-1]).endswith("sys.exit(main())")
