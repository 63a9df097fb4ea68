"""The guard of the fast lane, in a pytest of its own: it fails what belongs elsewhere and nothing in other lanes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests import lanes

pytest_plugins = ["pytester"]
SETTINGS = """
[tool.pytest.ini_options]
addopts = "-p no:cacheprovider -m 'not (slow or torch)'"
markers = ["slow", "torch"]
"""
PROCESS = "import subprocess, sys\n"
START = "subprocess.run([sys.executable, '--version'], check=True)"
WORK = "sum(range(3_000_000))"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run tests with the guard, beside a torch that is empty."""
    # What the guard of this very test does to torch, and a torch that another test has imported, are out of the way.
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if finder is not lanes._NoTorch])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    pytester.makefile(".toml", pyproject=SETTINGS)
    pytester.mkpydir("torch")
    pytester.syspathinsert()

    def run(text, *arguments):
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess(*arguments, plugins=[lanes])

    return run


def test_test_that_starts_a_process_fails(run):
    result = run(f"{PROCESS}def test_it():\n    {START}\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["starts a process, so mark it as slow*--version*"])


def test_test_whose_fixture_starts_a_process_is_an_error(run):
    result = run(f"import pytest\n{PROCESS}@pytest.fixture\ndef made():\n    {START}\ndef test_it(made): ...\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["starts a process, so mark it as slow*--version*"])


def test_every_test_that_imports_torch_fails_and_none_that_asks_for_it(run):
    result = run(
        "from importlib.util import find_spec\n"
        "def test_first():\n    import torch\n"
        "def test_second():\n    import torch.nn\n"
        "def test_question():\n    assert find_spec('torch') and not find_spec('torches')\n"
    )
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(["*imports torch, so mark it as torch"])


def test_module_that_imports_torch_is_an_error_where_it_is_not_marked(run):
    result = run("import torch\ndef test_it(): ...\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*imports torch, so mark it as torch"])


@pytest.mark.parametrize("mark", ["pytest.mark.torch", "[pytest.mark.slow, pytest.mark.torch]"])
def test_module_that_is_marked_as_torch_is_not_imported(run, mark):
    result = run(f"import pytest\npytestmark = {mark}\nraise AssertionError('imported')\n")
    result.assert_outcomes()


def test_module_that_asks_for_torch_is_not_imported(run):
    result = run("import pytest\ntorch = pytest.importorskip('torch')\nraise AssertionError('imported')\n")
    result.assert_outcomes()


def test_folder_whose_conftest_asks_for_torch_is_left_out(run, pytester):
    folder = pytester.mkdir("models")
    (folder / "conftest.py").write_text('import pytest\ntorch = pytest.importorskip("torch", reason="extra")\n')
    (folder / "test_model.py").write_text("def test_it(): ...\n")
    result = run("def test_beside_it(): ...\n")
    result.assert_outcomes(passed=1)


def test_no_module_of_the_fast_lane_imports_torch_when_it_is_collected():
    root = Path(__file__).parents[1]
    imports = re.compile(r"^(?:import|from) (?:torch|transformers|peft|trl)\b", re.MULTILINE)

    def is_left_out(path):
        conftests = (folder / "conftest.py" for folder in path.parents if folder.is_relative_to(root / "packages"))
        modules = [path, *filter(Path.is_file, conftests)]
        return any(lanes._TORCH_MODULE.search(module.read_text("utf-8")) for module in modules)

    importing = [path for path in root.glob("packages/*/tests/**/test_*.py") if imports.search(path.read_text("utf-8"))]
    assert importing
    assert [path for path in importing if not is_left_out(path)] == []


def test_test_over_the_limit_of_cpu_time_fails_and_one_that_waits_does_not(run, monkeypatch):
    monkeypatch.setattr(lanes, "CPU_SECONDS", 0.01)
    result = run(f"import time\ndef test_work():\n    {WORK}\ndef test_wait():\n    time.sleep(0.05)\n")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["takes 0.? s of CPU time, more than 0.0 s, so mark it as slow"])


def test_modules_that_a_test_imports_first_extend_its_limit(run, monkeypatch):
    monkeypatch.setattr(lanes, "CPU_SECONDS", 0.01)
    monkeypatch.setattr(lanes, "CPU_SECONDS_A_MODULE", 10)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    run(f"def test_work():\n    import colorsys\n    {WORK}\n").assert_outcomes(passed=1)


def test_nothing_fails_outside_the_fast_lane(run, monkeypatch):
    monkeypatch.setattr(lanes, "CPU_SECONDS", 0.0)
    result = run(f"{PROCESS}import torch\ndef test_it():\n    {START}\n    {WORK}\n", "-m", "")
    result.assert_outcomes(passed=1)


def test_cases_with_a_mark_are_left_out_and_those_beside_them_run(run):
    result = run(
        f"import pytest\n{PROCESS}"
        "@pytest.mark.parametrize('start', [False, pytest.param(True, marks=pytest.mark.slow)])\n"
        f"def test_it(start):\n    if start:\n        {START}\n"
    )
    result.assert_outcomes(passed=1, deselected=1)
