"""The page of ``eclose view`` in a real browser."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from tests.diagnosis.report.conftest import browser, cases, diagnosis
from tests.diagnosis.report.making import make_diagnosis
from tests.diagnosis.report.test_browser import DESKTOP, PHONE, WATCH, assert_in_shape, in_list_order, shown_rows, until

from eclose.diagnosis.report.context import ReportContext
from eclose.diagnosis.report.explorer.filters import derive_response_facts
from eclose.diagnosis.report.view import query
from eclose.diagnosis.report.view.query import ViewIndex
from eclose.diagnosis.report.view.server import serve_view
from eclose.diagnosis.results import Results
from eclose.diagnosis.view_run import write_view_index

pytestmark = [pytest.mark.browser, pytest.mark.slow]
__all__ = ["browser", "cases", "diagnosis"]
ROWS = 40


@pytest.fixture(scope="module")
def served(cases, diagnosis, tmp_path_factory):
    path = tmp_path_factory.mktemp("view") / "view.sqlite"
    write_view_index(path, Results(diagnosis, tuple(cases), ReportContext()), "k", lambda _: None)
    with pytest.MonkeyPatch.context() as patch, serve_view(ViewIndex(path)) as page:
        patch.setattr(query, "PAGE_ROWS", ROWS)
        yield page


@contextmanager
def opened(browser, url, *, size=DESKTOP, scheme="light"):
    context = browser.new_context(viewport=size, color_scheme=scheme)
    context.add_init_script(WATCH)
    tab = context.new_page()
    tab.events = []
    tab.on("pageerror", lambda error: tab.events.append(f"error {error}"))
    tab.on("console", lambda message: tab.events.append(f"console {message.text}"))
    tab.goto(url)
    tab.wait_for_selector("html[data-ready]")
    try:
        yield tab
        assert tab.events == []
        assert tab.evaluate("[pwned, violations]") == [[], []]
    finally:
        context.close()


def first_id(tab):
    return tab.locator("#detail .id").inner_text()


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_pages_of_the_list_hold_every_response_in_order(browser, served, cases, size):
    with opened(browser, served.url, size=size) as tab:
        assert_in_shape(tab)
        assert shown_rows(tab) == len(cases)
        assert tab.locator("#page-range").inner_text() == f"1–{ROWS}"
        tab.click("#page-on")
        until(tab, "() => document.querySelector('#page-range').textContent === '41–80'")
        tab.fill("#page-first", "96")
        tab.press("#page-first", "Enter")
        until(tab, "() => document.querySelector('#page-range').textContent === '81–96'")
        assert tab.locator("#page-on").is_disabled()


def test_keys_go_on_over_the_end_of_a_page(browser, served, cases):
    ordered = in_list_order(cases)
    with opened(browser, served.url) as tab:
        tab.locator("#list").focus()
        tab.keyboard.press("End")
        until(tab, "(id) => document.querySelector('#detail .id')?.textContent === id", ordered[-1].response.id)
        tab.keyboard.press("Home")
        until(tab, "(id) => document.querySelector('#detail .id')?.textContent === id", ordered[0].response.id)
        for _ in range(ROWS):
            tab.keyboard.press("j")
        until(tab, "(id) => document.querySelector('#detail .id')?.textContent === id", ordered[ROWS].response.id)


def test_filters_and_search_count_what_the_responses_say(browser, served, cases):
    gap = [case for case in cases if case.verdict.in_gap]
    with opened(browser, served.url) as tab:
        tab.select_option("select[name=outcome]", "gap")
        until(tab, "(count) => document.querySelector('#status').textContent.startsWith(count + ' of 96')", len(gap))
        assert f"in the gap, any kind ({len(gap)})" in tab.locator("select[name=outcome]").inner_text()
        expected = [case for case in gap if case.response.source.model == "atlas-8b"]
        tab.fill("#search", "atlas-8b")
        until(tab, "(count) => document.querySelector('#status').textContent.startsWith(count + ' of')", len(expected))
        outcome = derive_response_facts(in_list_order(expected)[0]).outcome
        until(tab, "(kind) => document.querySelector('#detail').className === 'k-' + kind", outcome)


def test_an_address_opens_a_response_whatever_the_filters_say(browser, served, cases):
    wanted = next(case for case in reversed(cases) if case.verdict.reliable).response.id
    with opened(browser, f"{served.url}#outcome=gap&r={wanted}") as tab:
        until(tab, "(id) => document.querySelector('#detail .id')?.textContent === id", wanted)
        assert shown_rows(tab) == len(cases)
    with opened(browser, f"{served.url}#r=nobody") as tab:
        until(tab, "() => !document.querySelector('#explorer-problem').hidden")


def test_an_ended_server_is_reported(browser, cases, tmp_path):
    path = tmp_path / "view.sqlite"
    some = cases[:20]
    write_view_index(path, Results(make_diagnosis(some), tuple(some), ReportContext()), "k", lambda _: None)
    with serve_view(ViewIndex(path)) as page:
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(page.url)
        tab.wait_for_selector("html[data-ready]")
    tab.select_option("select[name=outcome]", "reliable")
    until(tab, "() => document.querySelector('#explorer-problem').textContent.includes('eclose view')")
    context.close()
