"""The container recipe agrees with the package and its release."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def instructions():
    """The arguments of each instruction, by its name."""
    text = (ROOT / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and line[0] != "#"]
    return {name: [arguments for other, arguments in lines if other == name] for name, _ in lines}


def test_its_python_is_one_that_wheels_are_tried_on(instructions):
    (image,) = instructions["FROM"]
    version = re.fullmatch(r"docker\.io/library/python:(3\.\d+)-slim", image)[1]
    workflow = ROOT / ".github" / "workflows" / "release.yml"
    if not workflow.is_file():
        pytest.skip("not a git checkout")
    tried = re.search(r"python: \[(.+)\]", workflow.read_text("utf-8"))[1]
    assert f'"{version}"' in tried


def test_its_extras_are_extras_of_the_package(instructions):
    settings = tomllib.loads((ROOT / "packages" / "eclose" / "pyproject.toml").read_text("utf-8"))
    extras = settings["tool"]["hatch"]["metadata"]["hooks"]["uv-dynamic-versioning"]["optional-dependencies"]
    (argument,) = instructions["ARG"]
    assert set(argument.removeprefix("EXTRAS=").split(",")) <= set(extras)
    assert instructions["ENTRYPOINT"] == ['["eclose"]']
    assert "eclose" in settings["project"]["scripts"]


def test_it_runs_as_a_user_without_rights(instructions):
    (user,) = instructions["USER"]
    assert int(user) > 0
    assert f"useradd --uid {user} " in instructions["RUN"][0]
