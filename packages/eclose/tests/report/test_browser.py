"""The page in a real browser: nothing hostile runs, and the explorer does what it promises."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from eclose.report.comparison import compare_with_base_run
from eclose.report.context import ReportContext
from eclose.report.explorer import OUTCOME_WORDS, derive_response_facts
from eclose.report.formats.html_page import render_report_page
from eclose.report.overview import find_worst_example
from tests.diagnosis.judged_responses import hold_cases
from tests.report.hostile import PAYLOADS, hostile_cases, hostile_notes
from tests.report.making import make_cases, make_diagnosis, make_questions

pytestmark = [pytest.mark.browser, pytest.mark.slow]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 380, "height": 800}
WATCH = """
window.pwned = []; window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective, event.blockedURI));
"""


@contextmanager
def watched(browser, path, *, address="", size=DESKTOP, scheme="light"):
    """A page, watched: what it runs, asks for and complains of."""
    context = browser.new_context(viewport=size, color_scheme=scheme)
    context.add_init_script(WATCH)
    tab = context.new_page()
    tab.events = []
    tab.on("pageerror", lambda error: tab.events.append(f"error {error}"))
    tab.on("console", lambda message: tab.events.append(f"console {message.text}"))
    tab.on("dialog", lambda dialog: (tab.events.append("dialog"), dialog.dismiss()))
    tab.on("request", lambda request: request.url.startswith(("file:", "data:")) or tab.events.append(request.url))
    tab.on("popup", lambda _: tab.events.append("popup"))
    tab.goto(path.as_uri() + address)
    try:
        yield tab
    finally:
        context.close()


@contextmanager
def opened(browser, path, **settings):
    """The report, once its explorer is there."""
    with watched(browser, path, **settings) as tab:
        tab.wait_for_selector("html[data-ready]")
        yield tab


def until(tab, holds, arg=None):
    """Wait for an arrow function to hold. The policy lets no test evaluate a string in the page by itself."""
    for _ in range(500):
        if tab.evaluate(holds, arg):
            return
        tab.wait_for_timeout(20)
    raise AssertionError(holds)


def read_through(tab):
    """Wait until a search has looked at every text."""
    until(tab, "() => document.querySelector('#list').ariaBusy !== 'true'")


def assert_calm(tab):
    assert tab.evaluate("[pwned, violations]") == [[], []]
    assert tab.events == []


def assert_in_shape(tab):
    """Nothing sticks out of the window, and the parts are where they belong."""
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.locator("#explorer").bounding_box()["width"] > 300
    assert tab.evaluate("[...document.querySelectorAll('main > section')].every((element) => element.offsetHeight > 0)")


WITH_POLICY, WITHOUT_POLICY = "with policy", "without policy"


@pytest.fixture(scope="module", params=[WITH_POLICY, WITHOUT_POLICY])
def hostile(request, tmp_path_factory):
    cases = hostile_cases()
    policy = request.param == WITH_POLICY
    text = render_report_page(make_diagnosis(cases, resamples=5), cases, hostile_notes(PAYLOADS[1]), policy=policy)
    path = tmp_path_factory.mktemp("hostile") / f"report {request.param}.html"
    path.write_text(text, "utf-8")
    return path


def in_list_order(cases):
    """The cases as the list shows them at first: the worst example, then failures, undecided and reliable ones."""
    outcomes = list(OUTCOME_WORDS)
    worst = find_worst_example(cases)
    ranks = {outcome: rank or len(outcomes) for rank, outcome in enumerate(outcomes)}
    order = sorted(range(len(cases)), key=lambda index: ranks[derive_response_facts(cases[index]).outcome])
    if worst is not None:
        order.remove(worst.position)
        order.insert(0, worst.position)
    return [cases[index] for index in order]


def shown_rows(tab):
    return int(tab.locator("#status").inner_text().split(" of ")[0].replace(",", ""))


def test_the_watch_notices_what_runs(browser, tmp_path):
    """Without this no test below shows anything."""
    path = tmp_path / "bad.html"
    path.write_text(f"<html data-ready=1><body>{''.join(PAYLOADS[:3])}{PAYLOADS[10]}{PAYLOADS[35]}")
    with opened(browser, path) as tab:
        until(tab, "() => pwned.length >= 3")
        tab.wait_for_load_state("networkidle")
        assert "https://attacker.example/pixel.png" in tab.events


def test_hostile_text_runs_nowhere(browser, hostile):
    assert len(PAYLOADS) >= 60
    with opened(browser, hostile) as tab:
        assert shown_rows(tab) == len(PAYLOADS)
        tab.focus("#list")
        last, visited = "", set()
        # What runs without a policy is what a policy would report: with it, some are enough.
        count = len(PAYLOADS) if WITHOUT_POLICY in hostile.name else 20
        for _ in range(count):
            until(tab, "(last) => document.querySelector('#detail .id').textContent !== last", last)
            last = tab.evaluate("document.querySelector('#detail .id').textContent")
            visited.add(last)
            for step in tab.locator("button.step").all():
                step.click(force=True)
            tab.focus("#list")
            tab.keyboard.press("j")
        assert len(visited) == count
        tab.fill("#search", PAYLOADS[0])
        tab.click("#more summary")
        tab.check("#in-passages")
        read_through(tab)
        assert 1 <= shown_rows(tab) < len(PAYLOADS)
        tab.select_option("select[name=model]", index=3)
        tab.wait_for_timeout(200)
        assert_calm(tab)


@pytest.mark.parametrize("hostile", [WITH_POLICY], indirect=True)  # it moves nothing
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_hostile_text_leaves_the_layout_intact(browser, hostile, size):
    with opened(browser, hostile, size=size) as tab:
        assert_in_shape(tab)
        for number in range(0, len(PAYLOADS), 3):
            tab.evaluate("(n) => { document.querySelector('#list').scrollTop = n * 68; }", number)
            tab.wait_for_timeout(60)
            tab.locator(f"#row-{number}").click()
            until(tab, "() => document.querySelector('#detail .broken')")
            assert_in_shape(tab)
            if size is PHONE:
                assert tab.evaluate("document.querySelector('#detail').scrollWidth <= innerWidth + 1")
                tab.click("#back")
        assert_calm(tab)


@pytest.mark.parametrize("word", ["<img src=x onerror=pwned.push(1)>", "javascript:pwned.push(1)", "__proto__", "%ff%"])
def test_a_hostile_address_is_just_an_unknown_response(browser, report, word):
    together = "&".join(f"{key}={word}" for key in ("q", "outcome", "sort", "model"))
    for address in (f"#r={word}", f"#{together}"):
        with opened(browser, report, address=address) as tab:
            tab.wait_for_timeout(150)
            assert_calm(tab)


def test_what_acts_unseen_is_shown_by_name(browser, hostile):
    index = next(number for number, text in enumerate(PAYLOADS) if "\u202e" in text)
    with opened(browser, hostile, address="#sort=given") as tab:
        tab.evaluate("(n) => { document.querySelector('#list').scrollTop = n * 68; }", index)
        tab.locator(f"#row-{index}").click()
        tab.wait_for_selector("#detail .unseen")
        assert "U+202E" in tab.locator("#detail .words .unseen").all_inner_texts()
        assert not tab.evaluate("/[\\u202a-\\u202e]/.test(document.body.innerText)")


def test_filters_show_what_the_diagnosis_counts(browser, report, cases, diagnosis):
    parts = diagnosis.overall.composition
    with opened(browser, report) as tab:
        assert shown_rows(tab) == len(cases)
        tab.select_option("select[name=outcome]", "gap")
        assert shown_rows(tab) == parts.groups["gap"]
        tab.select_option("select[name=outcome]", "")
        tab.select_option("select[name=model]", "brook-mini")
        expected = sum(response_case.response.source.model == "brook-mini" for response_case in cases)
        assert shown_rows(tab) == expected
        tab.select_option("select[name=outcome]", "unsound")
        both = sum(
            response_case.response.source.model == "brook-mini" and response_case.verdict.locally_sound is False
            for response_case in cases
        )
        assert shown_rows(tab) == both
        # The number beside an option says what choosing it would show.
        option = tab.locator("select[name=outcome] option[value=reliable]").inner_text()
        tab.select_option("select[name=outcome]", "reliable")
        assert option == f"reliable ({shown_rows(tab)})"
        tab.click("#clear")
        assert shown_rows(tab) == len(cases)
        assert_calm(tab)


def test_search_finds_words_of_questions_reasoning_and_passages(browser, report, cases):
    expected = cases[5].response.trace.texts[0]
    within = [
        response_case
        for response_case in cases
        if expected.lower() in "\n".join(response_case.response.trace.texts).lower()
    ]
    with opened(browser, report) as tab:
        tab.fill("#search", expected)
        read_through(tab)
        assert len(within) <= shown_rows(tab) < len(cases)
        word = cases[0].instance.evidence[4].text.split(". ")[1]
        tab.fill("#search", word)
        read_through(tab)
        before = shown_rows(tab)
        tab.click("#more summary")
        tab.check("#in-passages")
        read_through(tab)
        assert shown_rows(tab) >= max(before, 8)
        tab.fill("#search", "no text says this")
        tab.wait_for_selector("#list .empty")
        assert_calm(tab)


def test_the_list_is_busy_from_the_first_letter_until_all_texts_are_read(browser, report):
    with opened(browser, report) as tab:
        typed = """(text) => {
            const search = document.querySelector('#search');
            search.value = text;
            search.dispatchEvent(new Event('input'));
            return document.querySelector('#list').ariaBusy;
        }"""
        assert tab.evaluate(typed, "no text says this") == "true"
        read_through(tab)
        assert shown_rows(tab) == 0


@pytest.mark.parametrize("failing", ["gap", "unsound"])
def test_the_first_row_is_a_failure_whenever_there_is_one(browser, cases, tmp_path, failing):
    """One failure at the end of the file, and reliable responses before it."""
    reliable = [response_case for response_case in cases if response_case.verdict.reliable][:30]
    last = next(
        response_case
        for response_case in cases
        if derive_response_facts(response_case).outcome.partition("_")[0] == failing
    )
    path = tmp_path / "report.html"
    path.write_text(render_report_page(make_diagnosis([*reliable, last]), [*reliable, last]), "utf-8")
    with opened(browser, path) as tab:
        until(tab, "(id) => document.querySelector('#detail .id')?.textContent === id", last.response.id)
        assert tab.get_attribute("#list", "aria-activedescendant") == "row-0"
        tab.select_option("#sort", "given")
        until(tab, "(id) => document.querySelector('#detail .id')?.textContent === id", reliable[0].response.id)
        assert_calm(tab)


def test_the_example_of_the_first_screen_is_the_first_row(browser, report, cases):
    worst = find_worst_example(cases)
    with opened(browser, report) as tab:
        until(
            tab, "(id) => document.querySelector('#detail .id')?.textContent === id", cases[worst.position].response.id
        )
        assert tab.inner_text(".example h2") == worst.question
        assert tab.locator(".example mark").count() == sum(bool(step.quote) for step in worst.steps) > 0
        tab.select_option("select[name=outcome]", "reliable")
        tab.click(".example a.show")
        until(
            tab, "(id) => document.querySelector('#detail .id')?.textContent === id", cases[worst.position].response.id
        )
        assert_calm(tab)


def test_five_filters_at_most_stand_in_the_first_row(browser, report):
    with opened(browser, report) as tab:
        assert tab.locator("#filters :is(select, input):visible").count() <= 5
        tab.click("#more summary")
        assert tab.locator("#filters select:visible").count() > 5
    # A link that uses a hidden filter unfolds it: no filter acts unseen.
    with opened(browser, report, address="#code=L1") as tab:
        assert tab.locator("select[name=code]").is_visible()


def test_keys_move_open_close_and_search(browser, report, cases):
    cases = in_list_order(cases)
    with opened(browser, report, size=PHONE) as tab:
        tab.keyboard.press("j")
        assert tab.evaluate("document.activeElement.id") == "list"
        assert tab.get_attribute("#list", "aria-activedescendant") == "row-1"
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("k")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#detail:not([hidden])")
        assert tab.evaluate("document.activeElement.id") == "detail"
        assert cases[1].response.id in tab.inner_text("#detail .top")
        tab.keyboard.press("j")
        until(tab, "(id) => document.querySelector('#detail .id').textContent === id", cases[2].response.id)
        tab.keyboard.press("Escape")
        assert tab.evaluate("[document.activeElement.id, document.querySelector('#detail').hidden]") == ["list", True]
        tab.keyboard.press("End")
        assert tab.get_attribute("#list", "aria-activedescendant") == f"row-{len(cases) - 1}"
        tab.keyboard.press("/")
        assert tab.evaluate("document.activeElement.id") == "search"
        tab.keyboard.type("j")
        assert tab.input_value("#search") == "j"
        tab.keyboard.press("Escape")
        assert tab.input_value("#search") == ""
        outline = tab.evaluate("getComputedStyle(document.activeElement, ':focus-visible').outlineStyle")
        assert outline != "none"
        assert_calm(tab)


def test_a_response_is_shown_with_verdicts_quotes_and_what_was_seen(browser, report, cases):
    index, response_case = next(
        (index, response_case)
        for index, response_case in enumerate(in_list_order(cases))
        if response_case.verdict.locally_sound is False and any(step.support for step in response_case.judgment.steps)
    )
    with opened(browser, report, address=f"#r={response_case.response.id}") as tab:
        until(tab, "(id) => document.querySelector('#detail .id')?.textContent === id", response_case.response.id)
        assert response_case.instance.question in tab.inner_text("#detail .facts")
        assert response_case.instance.reference_answer in tab.inner_text("#detail .facts")
        assert "does not hold" in tab.inner_text("#detail .broken") or "do not hold" in tab.inner_text(
            "#detail .broken"
        )
        boxes = tab.locator("#detail .step")
        assert boxes.count() == len(response_case.response.trace)
        for number, step in enumerate(response_case.judgment.steps):
            step_text = boxes.nth(number).inner_text()
            assert response_case.response.trace.texts[number] in step_text
            assert ("holds" in step_text) is (step.sound is True)
            assert step.failure is None or step.failure.value in step_text
        number, step = next((n, step) for n, step in enumerate(response_case.judgment.steps) if step.support)
        boxes.nth(number).click()
        marked = tab.locator("mark.chosen")
        assert marked.count() >= 1
        assert marked.first.evaluate("(mark) => mark.firstChild.data") in step.support.quote
        until(
            tab,
            "() => { const y = document.querySelector('mark.chosen').getBoundingClientRect().y;"
            " return 0 <= y && y <= innerHeight; }",
        )
        criteria = tab.inner_text("#detail .criteria")
        assert "question, reasoning" in criteria
        assert "refusal" not in criteria or response_case.judgment.unjudged
        assert tab.locator("#list [aria-selected=true]").get_attribute("id") == f"row-{index}"
        assert_calm(tab)


def test_an_address_is_a_position(browser, report, cases, diagnosis):
    with opened(browser, report) as tab:
        tab.click("#headline .k-gap a.show >> nth=0")
        until(tab, "() => document.querySelector('select[name=outcome]').value === 'gap'")
        assert shown_rows(tab) == diagnosis.overall.composition.groups["gap"]
        tab.locator("#row-1").click()
        until(tab, "() => location.hash.includes('r=')")
        address = tab.evaluate("location.hash")
        broken_text = tab.inner_text("#detail .broken")
    with opened(browser, report, address=address) as tab:
        tab.wait_for_selector("#detail .broken")
        assert tab.inner_text("#detail .broken") == broken_text
        assert tab.get_attribute("#list", "aria-activedescendant") == "row-1"
    with opened(browser, report, address="#r=nobody") as tab:
        assert "no response of that id" in tab.inner_text("#explorer-problem")
    with opened(browser, report, address="#tables") as tab:
        assert tab.evaluate("scrollY") > 0
        assert shown_rows(tab) == len(cases)


def test_a_transition_leads_to_its_responses(browser, cases, diagnosis, tmp_path):
    before = make_cases(make_questions(12), len(cases), seed=5)
    against = compare_with_base_run(
        hold_cases(cases), hold_cases(before), "base", rng=np.random.default_rng(1), resamples=20
    )
    path = tmp_path / "report.html"
    path.write_text(render_report_page(diagnosis, cases, ReportContext(base=against)), "utf-8")
    with opened(browser, path) as tab:
        tab.click("#table-transitions summary")
        links = tab.locator("#table-transitions a.show")
        assert links.count() > 4
        for number in range(links.count()):
            expected = int(links.nth(number).inner_text())
            links.nth(number).click()
            until(tab, "(n) => document.querySelector('#status').textContent.startsWith(n + ' of')", expected)
        tab.click("#clear")
        tab.select_option("select[name=before]", "changed")
        assert shown_rows(tab) == len(against.comparison.changed)
        assert_calm(tab)
    with opened(browser, path, size=PHONE) as tab:
        assert_in_shape(tab)


def test_votes_that_differ_are_shown(browser, hostile, report):
    with opened(browser, hostile) as tab:
        tab.wait_for_selector("#detail .votes")
        assert tab.locator("#detail .votes").all_inner_texts() == ["said yes, no, not judged"]
    with opened(browser, report) as tab:
        tab.wait_for_selector("#detail .criteria")
        assert tab.locator("#detail .votes").count() == 0


def test_tables_unfold_by_key_by_link_and_on_paper(browser, report):
    unfolded = "() => [...document.querySelectorAll('details.table[open]')].map((table) => table.id)"
    with opened(browser, report, address="#table-joint") as tab:
        assert tab.evaluate(unfolded) == ["table-metrics", "table-joint"]
        tab.focus("#table-codes summary")
        tab.keyboard.press("Enter")
        assert "table-codes" in tab.evaluate(unfolded)
        before = tab.evaluate(unfolded)
        tab.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        assert len(tab.evaluate(unfolded)) == tab.locator("details.table").count()
        tab.evaluate("() => dispatchEvent(new Event('afterprint'))")
        assert tab.evaluate(unfolded) == before
        assert_calm(tab)


def test_a_damaged_file_says_so(browser, report, tmp_path):
    text = report.read_text("utf-8")
    start = text.index('id="index">') + len('id="index">') + 200
    path = tmp_path / "damaged.html"
    path.write_text(text[:start] + ("A" if text[start] != "A" else "B") + text[start + 1 :], "utf-8")
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("#explorer-problem:not([hidden])")
    assert "cannot be unpacked" in tab.inner_text("#explorer-problem")
    context.close()
