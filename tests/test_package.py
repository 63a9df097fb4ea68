"""The public surface is a decision, and importing costs nothing."""

import subprocess
import sys
import time

import pytest

import eclosure


def test_the_public_names():
    assert list(eclosure.__all__) == sorted(eclosure.__all__)
    assert set(eclosure.__all__) == set(eclosure._HOME_OF)
    for name in eclosure.__all__:
        assert getattr(eclosure, name).__module__ == eclosure._HOME_OF[name]
    assert set(eclosure.__all__) <= set(dir(eclosure))
    assert {name for name in dir(eclosure) if not name.startswith("__")} == set(eclosure.__all__)
    assert "__version__" in dir(eclosure)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        eclosure.nothing  # noqa: B018


def run(code):
    return subprocess.run([sys.executable, *code], capture_output=True, text=True, check=True).stdout


def test_importing_loads_nothing_heavy_and_sets_nothing():
    program = (
        "import os, sys; before = dict(os.environ); import eclosure; "
        "assert dict(os.environ) == before; "
        "print([m for m in ('numpy', 'pydantic', 'typer', 'rich', 'torch', 'logging', 'socket') if m in sys.modules])"
    )
    assert run(["-c", program]).strip() == "[]"


def seconds(command, repeats=5):
    """The quickest of several runs: noise only ever adds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run(command)
        times.append(time.perf_counter() - start)
    return min(times)


def test_start_up_as_a_multiple_of_a_bare_interpreter():
    """0.3 s and 0.6 s on a machine whose bare interpreter takes 0.03 s; ratios hold on slower ones too."""
    bare = seconds(["-c", "pass"])
    assert seconds(["-c", "import eclosure"]) < 0.3 * max(1, bare / 0.03)
    assert seconds(["-m", "eclosure.cli.main", "--help"]) < 0.6 * max(1, bare / 0.03)
