"""The site's navigation reaches every page, and the front page quotes the paper's table as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paper.printed import cell

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DETECTORS = {
    "RAGAS": "RAGAS",
    "VeriScore": "VeriScore",
    "AlignScore": "AlignScore",
    "alignment": "Alignment",
    "closure": "Closure",
}
LONGEST_README = 110


def list_pages(entry):
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in list_pages(value)]


def test_the_navigation_reaches_every_page():
    yaml = pytest.importorskip("yaml")
    listed = list_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    decisions = {page for page in pages if re.match(r"decisions/\d", page)}
    assert len(listed) == len(set(listed))
    # Decisions are reached from their list.
    assert set(listed) == pages - decisions


def test_links_of_the_contributing_page_lead_to_pages():
    """The site's build finds links that lead to no page; these lead to one page each, as in the repository."""
    links = re.compile(r"\]\(([^)#\s]+)")
    source = links.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    page = links.findall((DOCS / "contributing.md").read_text("utf-8"))
    assert source
    assert [ROOT / target for target in source] == [DOCS / target for target in page]
    assert all((DOCS / target).is_file() for target in page)


def test_the_front_page_quotes_the_table_of_the_paper():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= LONGEST_README
    rows = dict(re.findall(r"^\| (\w+) \| [^|]+ \| ([\d.]+) % \|$", text, re.MULTILINE))
    printed = {name: cell("detector_blindness", "LGG", f"{column} R@95").printed for name, column in DETECTORS.items()}
    assert rows == printed
    assert f"Of {cell('detector_blindness', 'LGG', 'n').printed} such responses" in text
