"""The page of an experiment: what is missing first, every table with its note, nothing from outside."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from eclose_train.experiment.report.build import build_experiment_report
from eclose_train.experiment.report.study_tables import build_experiment_tables
from eclose_train.experiment.report.write import render_experiment_page
from tests.experiment.report.test_small_grid import FEW, make_results, make_rows

HOSTILE = "<script>alert(1)</script>"


def page_of(rows=None, figures=None, **more):
    report = build_experiment_report(make_results(rows, **more), FEW)
    return report, render_experiment_page(report, figures or {})


class Ids(HTMLParser):
    """Collects ids, targets of links, and unclosed elements."""

    def __init__(self):
        super().__init__()
        self.ids, self.targets, self.open = set(), set(), []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids |= {values["id"]} if "id" in values else set()
        if tag == "a":
            self.targets.add(values["href"])
        if tag not in {"meta", "link", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parse(html):
    parser = Ids()
    parser.feed(html)
    assert not parser.open
    return parser


def test_every_table_is_on_the_page_with_its_note_and_in_the_contents():
    variants = make_rows([("e_closure-S", 1), ("e_closure-S", 2)], ["small"])
    report, html = page_of(ablations=variants)
    parser = parse(html)
    tables = build_experiment_tables(report)
    assert len(tables) > 5
    for table in tables:
        assert f"table-{table.key}" in parser.ids
        assert f"#table-{table.key}" in parser.targets
    assert html.count('<p class="note">') >= len(tables)
    assert {target.removeprefix("#") for target in parser.targets} <= parser.ids
    assert '<td class="rank-1">' in html


def test_missing_runs_stand_before_everything_else():
    rows = [row for row in make_rows() if row.source.seed != 2 or row.source.method != "sft"]
    report, html = page_of(rows)
    assert len(report.missing) == 2
    positions = [html.index(sentence) for sentence in report.missing]
    assert max(positions) < html.index("Methods compared")
    assert "No intervals: the grid is incomplete" in html
    assert 'id="missing"' not in page_of()[1]


def test_names_from_files_are_escaped():
    rows = [replace(row, benchmark=f"{row.benchmark}{HOSTILE}") for row in make_rows()]
    html = page_of(rows)[1]
    assert HOSTILE not in html
    assert "&lt;script&gt;" in html


def test_the_page_fetches_nothing_and_runs_no_script():
    html = page_of(figures={"overall.svg": b"<svg/>", "overall.pdf": b"%PDF"})[1]
    assert "default-src &#39;none&#39;" in html
    assert "<script" not in html
    sources = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert all(source.startswith(("#", "data:")) for source in sources)
    assert sum(source.startswith("data:image/svg+xml;base64,") for source in sources) == 1


@pytest.mark.parametrize("gap,end", [(0, 10), (1, 100)])
def test_the_scale_of_the_gap_holds_all_rates(gap, end):
    rows = [
        replace(row, verdict=replace(row.verdict, aligned=not gap, closed=not gap, locally_sound=True))
        for row in make_rows()
    ]
    report, html = page_of(rows)
    assert report.main.overall["SFT"]["LGG"].value == gap
    assert (f"The scale of LGG ends at {end}" in html) == (end < 100)
