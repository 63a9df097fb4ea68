"""The matrix tries every extra of the package, and says which does not work."""

from __future__ import annotations

import sys

import pytest

from scripts import install_matrix as matrix


def test_every_extra_has_a_command_that_tries_it():
    assert set(matrix.CHECKS) == set(matrix.read_project())
    assert set(matrix.LIGHT) < set(matrix.CHECKS)


def test_extras_that_need_torch_get_the_build_of_make_setup():
    """An extra with accelerate, peft or trl pulls torch, at its newest unless one is there."""
    direct = {"accelerate", "peft", "torch", "trl"}
    names = {
        extra: {requirement.partition(">")[0] for requirement in requirements}
        for extra, requirements in matrix.read_project().items()
    }
    assert {extra for extra, requirements in names.items() if requirements & direct} == matrix.NEEDS_TORCH
    assert matrix.read_torch_pin().startswith("torch==2.")


def test_an_extra_that_brings_a_house_has_the_libraries_of_the_house():
    libraries = matrix.read_project()
    assert "fastapi>=0.120" in libraries["annotate"]
    assert (libraries["construct"], libraries["experiment"]) == ([], ["snakemake>=9"])
    assert "accelerate>=1.10" in libraries["train"]
    assert not [name for names in libraries.values() for name in names if name.startswith("eclose")]


@pytest.mark.slow
def test_a_failing_command_is_told_with_its_last_line(tmp_path):
    program = "import sys; print('first'); sys.exit('no such thing')"
    assert matrix.call([sys.executable, "-c", program], tmp_path) == "exit code 1: no such thing"
    assert matrix.call([sys.executable, "-c", "print('fine')"], tmp_path) == ""


def test_the_size_counts_packages_and_their_files(tmp_path):
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("eclose", "eclose-0.2.0.dist-info", "numpy-2.0.dist-info"):
        (packages / name).mkdir(parents=True)
        (packages / name / "file").write_bytes(bytes(500_000))
    assert matrix.measure_size(tmp_path) == (2, 1.5)


@pytest.mark.parametrize("failure, result", [("", "works"), ("exit code 1: no module", "exit code 1: no module")])
def test_a_row_of_the_table(failure, result):
    row = matrix.Installation("prices", "3.11.7", 3.5, 36, 137.2, failure).format()
    assert row.split(maxsplit=5) == ["prices", "3.11.7", "3.5", "36", "137", result]


@pytest.fixture
def installations(monkeypatch):
    """Extras whose installation fails."""
    failing = set()

    def install(extra, wheel, python):
        return matrix.Installation(extra, "3.11", 1.0, 1, 1.0, "broken" if extra in failing else "")

    monkeypatch.setattr(matrix, "install_extra", install)
    monkeypatch.setattr(matrix, "install_cold", lambda *_: 12.0)
    return failing


@pytest.mark.slow
def test_the_result_holds_only_where_every_installation_works(installations, tmp_path, capsys):
    options = matrix.argparse.Namespace(only=["prices", "train"], python=["python3.13"])
    assert matrix.print_matrix(options, tmp_path / "eclose.whl") == 0
    installations.add("train")
    assert matrix.print_matrix(options, tmp_path / "eclose.whl") == 1
    assert '"value": 2, "unit": "of 3' in capsys.readouterr().out.splitlines()[-1]
