"""Figures of the documentation: each light and dark, small, without parts from the network, as the program prints."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
NAMES = ("terminal-{}.svg", "report-{}.png", "annotation-{}.png", "token_tree-{}.svg")
LARGEST = 300_000
MISSING = "run `make pictures`"


def read_text(path):
    """Return the words of a picture, in order."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text("utf-8"))
    return " ".join(html.unescape(text) for text in texts).split()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_figure_is_small(name, scheme):
    assert 1_000 < (FIGURES / name.format(scheme)).stat().st_size < LARGEST, MISSING


@pytest.mark.parametrize("path", sorted(FIGURES.glob("*-*.svg")), ids=lambda path: path.name)
def test_a_figure_loads_nothing(path):
    text = path.read_text("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "url(http" not in text
    assert not re.search(r"""(?:href|src)=|@import|url\((?!#)""", text)


def test_light_and_dark_show_the_same_text():
    for stem in ("terminal", "token_tree"):
        assert read_text(FIGURES / f"{stem}-light.svg") == read_text(FIGURES / f"{stem}-dark.svg")


@pytest.mark.slow
def test_the_terminal_shows_what_the_demonstration_prints(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")], env={"COLUMNS": "104"})
    assert result.exit_code == 0
    words = " ".join(read_text(FIGURES / "terminal-light.svg"))
    lines = result.output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("600 responses"))
    stop = next(number for number, line in enumerate(lines) if line.startswith("Bounds:"))
    assert stop - start > 10
    for line in lines[start:stop]:
        assert " ".join(line.split()) in words, MISSING
