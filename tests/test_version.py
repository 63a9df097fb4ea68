"""The version is the tag of the release, in a checkout and in an archive of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app

ROOT = Path(__file__).parents[1]
BUILD_FILES = ("packages/eclose/pyproject.toml", "packages/eclose/README.md", ".gitattributes", ".git_archival.json")
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")


def git(folder, *arguments):
    return subprocess.run(["git", *IDENTITY, *arguments], cwd=folder, capture_output=True, check=True).stdout


def read_built_version(folder):
    """The version that a build of the folder would carry."""
    pytest.importorskip("uv_dynamic_versioning")
    command = [sys.executable, "-m", "hatchling", "version"]
    return subprocess.run(
        command, cwd=folder / "packages" / "eclose", capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def folder(tmp_path):
    """The files that decide on the version, in a folder of their own."""
    path = tmp_path / "source"
    path.mkdir()
    for name in BUILD_FILES:
        if not (ROOT / name).is_file():
            pytest.skip("not a git checkout")
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, path / name)
    return path


@pytest.fixture
def repository(folder):
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Start")
    return folder


def test_the_version_is_that_of_the_installed_distribution():
    assert eclose.__version__ == metadata.version("eclose")
    assert CliRunner().invoke(app, ["--version"]).output == f"eclose {eclose.__version__}\n"


def test_a_source_tree_that_is_not_installed_has_an_unknown_version(monkeypatch):
    def refuse(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", refuse)
    monkeypatch.delitem(vars(eclose), "__version__", raising=False)
    assert eclose.__version__ == "0+unknown"
    monkeypatch.delitem(vars(eclose), "__version__")


@pytest.mark.slow
def test_a_tag_is_the_version_and_later_commits_are_development_versions(repository, tmp_path):
    git(repository, "tag", "v0.2.0")
    assert read_built_version(repository) == "0.2.0"
    git(repository, "worktree", "add", "--quiet", tmp_path / "other")
    assert read_built_version(tmp_path / "other") == "0.2.0"
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "Go on")
    git(repository, "tag", "study-7")
    assert read_built_version(repository).startswith("0.2.1.dev1+")


@pytest.mark.slow
def test_an_archive_of_a_tag_has_its_version(repository, tmp_path):
    git(repository, "tag", "v0.2.0")
    archive, unpacked = tmp_path / "source.tar", tmp_path / "unpacked"
    archive.write_bytes(git(repository, "archive", "v0.2.0"))
    shutil.unpack_archive(archive, unpacked, filter="data")
    assert read_built_version(unpacked) == "0.2.0"


@pytest.mark.slow
def test_without_tag_or_git_the_version_precedes_the_first_release(folder):
    assert read_built_version(folder) == "0.1.0.dev0"
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Start")
    assert read_built_version(folder).startswith("0.0.1.dev1+")
