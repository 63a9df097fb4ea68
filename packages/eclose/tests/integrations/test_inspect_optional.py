"""Whoever does not use Inspect neither needs it nor waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eclose.calls import inspect_model
from eclose.errors import UserError
from eclose.integrations.inspect import read_log as import_log


@pytest.mark.slow
def test_neither_the_package_nor_its_commands_import_inspect():
    program = (
        "import sys, eclose, eclose.cli.main, eclose.integrations.inspect.read_log; "
        "import eclose.calls.inspect_model; "
        "print([name for name in sys.modules if name.split('.')[0] == 'inspect_ai'])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_a_missing_inspect_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(inspect_model, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'eclose\[inspect\]'"):
        import_log.import_inspect_log(tmp_path / "a.eval", tmp_path / "out")
