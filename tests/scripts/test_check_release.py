"""A release is made only where the tag, the changelog, the citation and the built files agree."""

from __future__ import annotations

import pytest

from scripts.check_release import HOUSES, ROOT, find_disagreements

FILES = {
    "CHANGELOG.md": "# Changelog\n\n## 0.3.0 (in preparation)\n\n## 0.2.0 (2027-01-31)\n\n- A line.\n",
    "CITATION.cff": "title: eclose\nversion: 0.2.0\ndate-released: 2027-01-31\n",
} | {
    f"dist/{house}-0.2.0{ending}": ""
    for house in ("eclose", "eclose_annotate", "eclose_train", "eclose_world")
    for ending in ("-py3-none-any.whl", ".tar.gz")
}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "dist").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_a_release_whose_files_agree(root):
    assert find_disagreements("v0.2.0", root) == []


@pytest.mark.parametrize(
    "name, old, new, problem",
    [
        ("CHANGELOG.md", "(2027-01-31)", "(in preparation)", "CHANGELOG.md has no dated section"),
        ("CITATION.cff", "version: 0.2.0", "version: 0.2.1", "CITATION.cff lacks the line: version: 0.2.0"),
        ("CITATION.cff", "2027-01-31", "2027-02-01", "CITATION.cff lacks the line: date-released: 2027-01-31"),
    ],
)
def test_a_file_of_another_release(root, name, old, new, problem):
    (root / name).write_text(FILES[name].replace(old, new), "utf-8")
    assert find_disagreements("v0.2.0", root)[0].startswith(problem)


def test_built_files_of_another_version(root):
    (root / "dist" / "eclose-0.2.0.tar.gz").rename(root / "dist" / "eclose-0.2.1.dev1.tar.gz")
    assert "dist/ holds" in find_disagreements("v0.2.0", root)[0]
    assert find_disagreements("v0.2.0", root, with_dist=False) == []


def test_a_release_without_the_files_of_one_house(root):
    for file in (root / "dist").glob("eclose_train-*"):
        file.unlink()
    assert "dist/ holds" in find_disagreements("v0.2.0", root)[0]


def test_the_houses_of_a_release_are_those_of_the_repository():
    houses = {path.parent.name.replace("-", "_") for path in ROOT.glob("packages/*/pyproject.toml")}
    assert set(HOUSES) == houses


@pytest.mark.parametrize("tag", ["0.2.0", "v0.2", "v0.2.0.dev1", "study-7", "v0.2.0 && rm"])
def test_a_tag_of_another_form(root, tag):
    assert "is no tag of a release" in find_disagreements(tag, root)[0]
