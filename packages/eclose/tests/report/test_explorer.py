"""The explorer in a real browser: the pane shows the highlighted response, whatever led there."""

from __future__ import annotations

import numpy as np
import pytest

from eclose.report.comparison import compare_with_base_run
from eclose.report.context import ReportContext
from eclose.report.formats.html_page import render_report_page
from tests.diagnosis.judged_responses import hold_cases
from tests.report.making import make_cases, make_questions
from tests.report.test_browser import (
    DESKTOP,
    PHONE,
    assert_calm,
    in_list_order,
    opened,
    read_through,
    shown_rows,
    until,
)

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# What the highlighted row says, and what the pane says: question, outcome, answer, dataset and model.
ROW = """() => {
  const row = document.querySelector("#list [aria-selected=true]");
  if (!row) return null;
  const [question, outcome, from] = [...row.querySelectorAll("p")].map((one) => one.textContent);
  const [label, answer] = outcome.split(" \\u00b7 ");
  return [question, label, answer, ...from.split(" \\u00b7 ")];
}"""
PANE = """() => {
  const pane = document.querySelector("#detail");
  if (pane.hidden || !pane.querySelector(".id")) return null;
  const answer = pane.querySelector(".answer-line strong").textContent;
  const [dataset, model] = [...pane.querySelectorAll(".top > .words")].map((one) => one.textContent);
  return [pane.querySelector(".asked-question").textContent, pane.querySelector(".badge").textContent,
          answer === "\\u2013" ? "no answer" : "\\u201c" + answer + "\\u201d", dataset, model];
}"""
IN_STEP = f"() => JSON.stringify(({ROW})()) === JSON.stringify(({PANE})())"


@pytest.fixture(scope="module")
def compared(cases, diagnosis, tmp_path_factory):
    """The report of a run held against another, which has every filter."""
    base = make_cases(make_questions(12), len(cases), seed=5)
    against = compare_with_base_run(
        hold_cases(cases), hold_cases(base), "base", rng=np.random.default_rng(1), resamples=20
    )
    path = tmp_path_factory.mktemp("compared") / "report.html"
    path.write_text(render_report_page(diagnosis, cases, ReportContext(base=against)), "utf-8")
    return path


def position(tab):
    return tab.get_attribute("#list", "aria-activedescendant")


def assert_in_step(tab, row=None):
    """The pane shows what is highlighted."""
    assert tab.evaluate(ROW) is not None
    try:
        until(tab, IN_STEP)
    except AssertionError:
        assert tab.evaluate(ROW) == tab.evaluate(PANE)
        raise
    if row is not None:
        assert position(tab) == f"row-{row}"


def assert_walks(tab, rows):
    """Down and up again, one row at a time, each of them shown."""
    for row in range(1, rows):
        tab.keyboard.press("j")
        assert_in_step(tab, row)
    for row in range(rows - 2, -1, -1):
        tab.keyboard.press("k")
        assert_in_step(tab, row)


def options(tab, name):
    return tab.evaluate("(name) => [...document.querySelector(name).options].map((one) => one.value)", name)


def test_every_filter_shows_its_first_response_and_the_keys_walk_from_there(browser, compared):
    with opened(browser, compared) as tab:
        names = tab.evaluate("() => [...document.querySelectorAll('#filters select[name]')].map((one) => one.name)")
        # The first row, then those behind "More filters".
        assert names[:4] == ["outcome", "before", "dataset", "model"]
        assert names[4:] == ["link", "code", "evidence", "answer", "unjudged", "look"]
        tab.click("#more summary")
        for name in names:
            select = f"select[name={name}]"
            for index in range(1, len(options(tab, select))):
                tab.select_option(select, index=index)
                count = shown_rows(tab)
                label = tab.locator(f"{select} option:checked").inner_text()
                assert label.endswith(f"({count})")
                assert_in_step(tab, 0)
                # The keys belong to the list; a select has its own.
                tab.focus("#list")
                assert_walks(tab, min(count, 3))
                tab.click("#clear")
        assert_calm(tab)


def test_every_order_keeps_the_response_in_sight_that_is_highlighted(browser, report, cases):
    with opened(browser, report) as tab:
        for value in options(tab, "#sort"):
            tab.click("#clear")
            tab.select_option("#sort", value)
            assert_in_step(tab, 0)
            tab.focus("#list")
            assert_walks(tab, 3)
        # A response that the reader chose stays highlighted, and scrolls into sight.
        tab.click("#clear")
        tab.focus("#list")
        for _ in range(3):
            tab.keyboard.press("j")
        assert_in_step(tab, 3)
        chosen = tab.inner_text("#detail .id")
        tab.select_option("#sort", "given")
        assert_in_step(tab)
        assert tab.inner_text("#detail .id") == chosen == in_list_order(cases)[3].response.id
        row, box = (tab.locator(name).bounding_box() for name in ("#list [aria-selected=true]", "#list"))
        assert box["y"] - 1 <= row["y"] <= box["y"] + box["height"]


def test_a_search_shows_its_first_hit_and_none_shows_nothing(browser, report, cases):
    word = cases[5].instance.question.split()[-1].rstrip("?")
    with opened(browser, report) as tab:
        tab.fill("#search", word)
        read_through(tab)
        assert 0 < shown_rows(tab) < len(cases)
        assert_in_step(tab, 0)
        tab.fill("#search", "no text says this")
        read_through(tab)
        assert shown_rows(tab) == 0
        assert tab.locator("#list .empty").count() == 1
        assert tab.locator("#detail .id").count() == 0
        assert "No response fits" in tab.inner_text("#detail")
        assert "r=" not in tab.evaluate("location.hash")
        tab.focus("#list")
        for key in ("j", "k", "Enter", "End"):
            tab.keyboard.press(key)
        assert tab.locator("#detail .id").count() == 0
        tab.click("#clear")
        assert_in_step(tab, 0)
        # A word of a single step: hits come as texts are unpacked, and the first of them is highlighted in the end.
        step = cases[-1].response.trace.texts[0]
        tab.fill("#search", step)
        read_through(tab)
        assert_in_step(tab, 0)
        tab.focus("#list")
        assert_walks(tab, min(shown_rows(tab), 3))
        assert_calm(tab)


def test_two_filters_that_exclude_each_other_leave_the_pane_empty(browser, report):
    with opened(browser, report) as tab:
        tab.select_option("select[name=outcome]", "reliable")
        tab.select_option("select[name=answer]", "wrong")
        assert shown_rows(tab) == 0
        assert tab.locator("#detail .id").count() == 0
        tab.select_option("select[name=answer]", "")
        assert_in_step(tab, 0)


def test_every_key_moves_to_the_row_it_names(browser, report, cases):
    last = len(cases) - 1
    with opened(browser, report) as tab:
        assert_in_step(tab, 0)
        tab.focus("#list")
        page_rows = tab.evaluate("Math.max(1, Math.floor(document.querySelector('#list').clientHeight / 68) - 1)")
        for key, row in (
            ("k", 0), ("ArrowUp", 0), ("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0),
            ("PageDown", page_rows), ("PageUp", 0), ("End", last), ("j", last), ("ArrowDown", last), ("Home", 0),
        ):  # fmt: skip
            tab.keyboard.press(key)
            assert_in_step(tab, row)
        tab.keyboard.press("Enter")
        until(tab, "() => document.activeElement.id === 'detail'")
        tab.keyboard.press("j")
        assert_in_step(tab, 1)
        tab.keyboard.press("Escape")
        assert tab.evaluate("document.activeElement.id") == "list"
        tab.keyboard.press("/")
        assert tab.evaluate("document.activeElement.id") == "search"
        tab.keyboard.type(cases[9].response.id.split("/")[0])
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "list"
        read_through(tab)
        assert_in_step(tab, 0)
        tab.keyboard.press("/")
        tab.keyboard.press("Escape")
        assert tab.input_value("#search") == ""
        assert_in_step(tab)
        for name, row in (("next response", 1), ("previous response", 0)):
            tab.keyboard.press("Escape")
            tab.focus("#list")
            if name == "next response":
                tab.keyboard.press("Home")
                assert_in_step(tab, 0)
            tab.click(f"#detail button[aria-label='{name}']")
            assert_in_step(tab, row)
        assert_calm(tab)


def test_a_link_to_a_response_that_the_filters_hide_clears_them(browser, report, cases):
    hidden = next(response_case for response_case in cases if response_case.verdict.reliable is False).response.id
    with opened(browser, report, address=f"#outcome=reliable&r={hidden}") as tab:
        until(tab, "(id) => document.querySelector('#detail .id')?.textContent === id", hidden)
        assert_in_step(tab)
        assert shown_rows(tab) == len(cases)
    with opened(browser, report, address="#outcome=reliable&r=nobody") as tab:
        assert "no response of that id" in tab.inner_text("#explorer-problem")
        assert_in_step(tab, 0)


def test_on_a_phone_the_highlighted_response_opens_on_demand_and_in_a_wide_window_at_once(browser, report):
    with opened(browser, report, size=PHONE) as tab:
        for value in ("gap", "unsound"):
            tab.select_option("select[name=outcome]", value)
            assert tab.evaluate(PANE) is None
            tab.focus("#list")
            tab.keyboard.press("Enter")
            assert_in_step(tab, 0)
            tab.keyboard.press("Escape")
            assert tab.evaluate(PANE) is None
        tab.set_viewport_size(DESKTOP)
        assert_in_step(tab, 0)
        tab.set_viewport_size(PHONE)
        until(tab, "() => document.querySelector('#detail').hidden")
