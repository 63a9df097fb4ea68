"""Scores on the page in a real browser: columns that sort, a range that filters, and reasons in place of zeros."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from eclose.detectors.scores import DetectorKind
from eclose.detectors.study_statistics import DetectorIdentity
from eclose.report.context import ReportContext
from eclose.report.formats.html_page import render_report_page
from eclose.report.scores import ScoreColumn
from tests.report.conftest import browser, cases, diagnosis
from tests.report.hostile import PAYLOADS
from tests.report.test_browser import DESKTOP, PHONE, assert_calm, assert_in_shape, opened, shown_rows, until
from tests.report.test_looks import BROKEN_WORDS, COLOURS, contrast

__all__ = ["browser", "cases", "diagnosis"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]
TABLET = {"width": 1000, "height": 800}


@pytest.fixture(scope="module")
def columns(cases):
    kinds = (DetectorKind.STATEMENT_SUPPORT, DetectorKind.STEP_SUPPORT, DetectorKind.ALIGNMENT, DetectorKind.CLOSURE)
    score_columns = []
    for number, kind in enumerate(kinds):
        rng = Random(number)
        column = ScoreColumn(DetectorIdentity(kind, PAYLOADS[0] if number else "mini@1"), f"scores-{kind}.jsonl")
        for case in cases:
            if rng.random() < 0.1:
                column.reasons[case.response.id] = "no usable reply"
            else:
                column.scores[case.response.id] = round(rng.random(), 3)
        score_columns.append(column)
    return score_columns


@pytest.fixture(scope="module")
def scored(cases, diagnosis, columns, tmp_path_factory):
    path = tmp_path_factory.mktemp("scored") / "report.html"
    path.write_text(render_report_page(diagnosis, cases, ReportContext(scores=columns)), "utf-8")
    return path


def first_cells(tab, column):
    """The texts of a score's column in the rows that are drawn, in order."""
    read = "(n) => [...document.querySelectorAll('#list .row')].map((row) => row.querySelectorAll('.score')[n])"
    return tab.evaluate(f"(n) => ({read})(n).map((cell) => [...cell.childNodes].at(-1).data)", column)


def test_columns_sort_and_what_has_no_score_comes_last(browser, scored, columns):
    with opened(browser, scored) as tab:
        head = tab.locator("#heads button").nth(3)
        assert head.inner_text() == "closure"
        head.click()
        lowest = sorted(columns[3].scores.values())
        assert first_cells(tab, 3)[:5] == [f"{value:.2f}".removeprefix("0") for value in lowest[:5]]
        assert head.get_attribute("aria-pressed") == "true"
        head.click()
        assert first_cells(tab, 3)[0] == f"{lowest[-1]:.2f}".removeprefix("0")
        tab.focus("#list")
        tab.keyboard.press("End")
        until(
            tab,
            "(words) => document.querySelector('#list .row:last-child').innerText.includes(words)",
            "no usable reply",
        )
        assert first_cells(tab, 3)[-1] == "no usable reply"
        assert tab.evaluate("location.hash").startswith("#sort=high-closure")
        assert_calm(tab)


def test_a_range_filters_by_the_chosen_score(browser, scored, columns, cases):
    inside = [id_ for id_, value in columns[2].scores.items() if 0.2 <= value <= 0.6]
    with opened(browser, scored, address="#score=alignment&min=0.2&max=0.6") as tab:
        assert shown_rows(tab) == len(inside)
        assert f"{len(columns[2].reasons)} without this score not shown" in tab.inner_text("#status")
        tab.fill("#score-max", "")
        tab.locator("#score-max").dispatch_event("change")
        assert shown_rows(tab) == sum(value >= 0.2 for value in columns[2].scores.values())
        tab.click("#clear")
        assert shown_rows(tab) == len(cases)
        assert "not shown" not in tab.inner_text("#status")
        tab.select_option("select[name=unscored]", "closure")
        assert shown_rows(tab) == len(columns[3].reasons)
        assert_calm(tab)


def test_a_response_shows_every_score_or_its_reason(browser, scored, columns, cases):
    id_ = next(iter(columns[3].reasons))
    with opened(browser, scored, address=f"#r={id_}") as tab:
        tab.wait_for_selector("#detail .broken")
        text = tab.locator("#detail section:has(h3:text('What detectors gave it'))").inner_text()
        for column in columns[:3]:
            value = column.get_value(id_)
            assert (f"{value:.3f}" if isinstance(value, float) else f"no score: {value}") in text
        assert "no score: no usable reply" in text
        assert_calm(tab)


def test_the_plot_leads_to_its_responses(browser, scored, columns, cases):
    with opened(browser, scored) as tab:
        link = tab.locator("#scores a.show").first
        expected = sum(case.verdict.reliable is True for case in cases)
        assert int(link.inner_text()) == sum(
            case.verdict.reliable is True and case.response.id in columns[0].scores for case in cases
        )
        link.click()
        until(tab, "() => document.querySelector('#sort').value === 'low-ragas'")
        assert shown_rows(tab) == expected
        assert_calm(tab)


# Left and right edge of the question and of each score, in the first rows.
BOXES = """() => [...document.querySelectorAll("#list .row")].slice(0, 4).map((row) =>
  [row.querySelector(".question"), ...row.querySelectorAll(".score")]
  .filter((cell) => cell.checkVisibility()).map((cell) => {
    const box = cell.getBoundingClientRect();
    return [box.left, box.right];
  }))"""


@pytest.mark.parametrize("size", [DESKTOP, TABLET, PHONE], ids=["desktop", "tablet", "phone"])
def test_scores_leave_the_layout_intact(browser, scored, size):
    with opened(browser, scored, size=size) as tab:
        assert_in_shape(tab)
        boxes = tab.evaluate(BOXES)
        # Beside each other: no score lies over the question or another score.
        for row in boxes:
            assert len(row) == (2 if size is PHONE else 5)
            assert all(right <= next_left + 1 for (_, right), (next_left, _) in pairwise(row))
        assert tab.evaluate("document.querySelector('#heads').offsetHeight") > 10
        if size is PHONE:
            assert tab.evaluate(BROKEN_WORDS) in ([], ["pwned.push"] * 3)  # a hostile name of a model may break
        assert_calm(tab)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_of_scores_stand_out(browser, scored, scheme):
    with opened(browser, scored, scheme=scheme) as tab:
        tab.wait_for_selector("#detail .broken")
        for ink, paper, where in {tuple(first) for first in tab.evaluate(COLOURS)}:
            assert contrast(ink, paper) >= 4.5, (ink, paper, where)


def test_a_report_without_scores_shows_no_trace_of_them(browser, cases, diagnosis, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render_report_page(diagnosis, cases), "utf-8")
    assert "What detectors give" not in path.read_text()
    with opened(browser, path) as tab:
        for part in ("#heads", "#score-range"):
            assert not tab.locator(part).is_visible()
        assert tab.locator(".score").count() == 0
        assert not any(
            "low-" in value for value in tab.evaluate("[...document.querySelector('#sort')].map((o) => o.value)")
        )
