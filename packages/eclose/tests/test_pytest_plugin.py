"""The plugin in a pytest of its own: it tells the rates, wherever they were asked for, and is light."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.test_testing import cases, written

pytest_plugins = ["pytester"]
# Where the package is installed pytest finds the plugin by itself; a checkout may be older than the entry point.
LOADED = [] if entry_points(group="pytest11", name="eclose") else ["-p", "eclose.pytest_plugin"]
TESTS = """
import pytest
from eclose.testing import assert_reliable

@pytest.fixture
def checked():
    assert_reliable({run!r}, min_lsr=0.5)

def test_good():
    assert_reliable({run!r}, min_trr=0.5)

def test_bad():
    assert_reliable({run!r}, min_trr=0.95)

def test_by_fixture(checked):
    pass

def test_of_something_else():
    pass
"""


@pytest.fixture
def project(pytester, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    pytester.makepyfile(TESTS.format(run=str(written(folder, cases(80, closed=20)))))
    return pytester, folder


def run(pytester, *arguments):
    return pytester.runpytest_subprocess(*LOADED, "-p", "no:cacheprovider", *arguments)


@pytest.mark.slow
def test_rates_are_told_after_the_tests(project):
    pytester, folder = project
    result = run(pytester)
    result.assert_outcomes(passed=3, failed=1)
    lines = [line for line in result.outlines if f": {folder}: " in line]
    assert [line.split(":: ")[0].split("::")[1].split(":")[0] for line in lines] == [
        "test_good", "test_bad", "test_by_fixture"
    ]  # fmt: skip
    assert all("100 responses to 100 questions, TRR 80.0 % [" in line for line in lines)
    assert [("passed" in line, "failed" in line) for line in lines] == [(True, False), (False, True), (True, False)]
    result.stdout.fnmatch_lines(["*= reliability =*"])


@pytest.mark.slow
def test_a_failure_shows_the_line_of_the_test_and_the_reasons(project):
    pytester, folder = project
    result = run(pytester)
    result.stdout.fnmatch_lines([
        ">*assert_reliable(*min_trr=0.95)",
        f"E*AssertionError: {folder} is not reliable enough, 100 responses to 100 questions:",
        "E*failed: TRR at least 95.0 %: 80.0 %*, the judge's own rate.",
        "E*Look at these first, of 20:",
        "E*r80: The reasoning establishes the reference answer, and another answer was submitted.",
    ])  # fmt: skip
    assert not [line for line in result.outlines if "eclose/testing.py" in line], "our own frames only distract"


@pytest.mark.slow
def test_rates_come_back_from_workers_and_into_junit(project):
    pytester, folder = project
    result = run(pytester, "-n", "2", "--junitxml", "junit.xml")
    assert sum(f": {folder}: " in line for line in result.outlines) == 3
    report = (pytester.path / "junit.xml").read_text()
    assert report.count('<property name="eclose" value="') == 3


@pytest.mark.slow
def test_without_a_check_nothing_is_told_and_nothing_is_imported(pytester):
    pytester.makepyfile("""
        import sys

        def test_nothing():
            ours = [name for name in sys.modules if name.startswith("eclose")]
            assert set(ours) <= {"eclose", "eclose.lazy_names", "eclose.pytest_plugin"}
    """)
    result = run(pytester)
    result.assert_outcomes(passed=1)
    assert "reliability" not in result.stdout.str()


@pytest.mark.slow
def test_importing_the_plugin_is_light():
    code = (
        "import sys, pytest; before = set(sys.modules); import eclose.pytest_plugin; "
        "print(sorted(set(sys.modules) - before))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "['eclose', 'eclose.lazy_names', 'eclose.pytest_plugin']"


@pytest.mark.slow
def test_an_installed_wheel_brings_the_plugin(project, tmp_path, monkeypatch):
    pytester, folder = project
    root = Path(__file__).parents[1]
    site = tmp_path / "site"
    quietly = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*quietly, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(root)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("eclose-*.whl")
    subprocess.run([*quietly, "install", "--no-deps", "--target", str(site), str(wheel)], check=True)
    monkeypatch.setenv("PYTHONPATH", str(site))
    # Nobody names the plugin, and a warning would be an error.
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=3, failed=1)
    assert sum(f": {folder}: " in line for line in result.outlines) == 3
    where = subprocess.check_output([sys.executable, "-c", "import eclose; print(eclose.__file__)"], text=True)
    assert where.startswith(str(site))
