"""What pages look like in a real browser: in place, in sight, and fit for everybody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eclose_annotate.forms import AnnotationTaskKind
from tests.web.harness import LAPTOP, PHONE, SMALL, opened
from tests.web.making import plain_pages, sheet, work, work_pages
from tests.web.test_keyboard import assert_calm, current, press, ready

pytestmark = [pytest.mark.browser, pytest.mark.slow]


BOXES = """() => [
  ...document.querySelectorAll(".step > .words, #submit, .passage, #dock, .decide > .controls > .field"),
].map((one) => JSON.stringify(one.getBoundingClientRect()))"""
SPILT = """() => {
  const page = document.documentElement;
  return [page.scrollWidth - innerWidth, page.scrollHeight - innerHeight];
}"""
FITTING = """() => [...document.querySelectorAll(".controls .field")].every(
  (one) => one.scrollWidth <= one.clientWidth + 1)"""


@pytest.mark.parametrize("size", [LAPTOP, SMALL], ids=["1536", "1229"])
def test_the_layout_does_not_move_when_something_is_chosen(browser, size):
    chosen = {
        AnnotationTaskKind.RESPONSE: ("A", ("substantive", "yes"), ("sound", "no"), ("failure", "L5")),
        AnnotationTaskKind.SCREENING: ("S", ("eligible", "no"), ("code", "N5")),
    }
    for kind, (name, *choices) in chosen.items():
        with opened(browser, work(sheet(kind, name)), size=size) as (tab, _):
            ready(tab)
            before = tab.evaluate(BOXES)
            for field, value in choices:
                tab.click(f"#f-1-{field} input[value={value}]")
            assert tab.evaluate(BOXES) == before


# In short: in the smaller window, which has less room.
@pytest.mark.parametrize("size", [pytest.param(LAPTOP, marks=pytest.mark.study), SMALL], ids=["1536", "1229"])
def test_evidence_is_beside_the_trace_and_all_controls_are_in_sight(browser, size):
    others = tuple(tuple({"substantive": "yes", "sound": "no", "failure": "L1"} for _ in range(20)) for _ in range(2))
    pages = [work(sheet(steps=20)), work(sheet(steps=20, others=others)), *work_pages().values()]
    for text in pages:
        with opened(browser, text, size=size) as (tab, _):
            ready(tab)
            press(tab, "y n")
            assert tab.evaluate(SPILT) == [0, 0]
            form, bar = tab.locator("#form").bounding_box(), tab.locator(".submit").bounding_box()
            if tab.locator(".evidence").count() and tab.locator(".evidence").is_visible():
                evidence = tab.locator(".evidence").bounding_box()
                assert evidence["x"] + evidence["width"] <= form["x"]
                assert evidence["height"] > 250
            assert bar["y"] + bar["height"] <= size["height"]
            for field in tab.locator(".dock .field").all():
                box = field.bounding_box()
                assert box["y"] + box["height"] <= bar["y"] + 1
            assert tab.evaluate(FITTING)
            assert_calm(tab)


def test_the_current_step_is_in_sight_and_in_focus(browser):
    with opened(browser, work(sheet(steps=20)), size=SMALL) as (tab, _):
        ready(tab)
        for number in range(1, 21):
            assert tab.evaluate("document.activeElement.dataset.n") == str(number)
            box, list_box = tab.locator(".step.current").bounding_box(), tab.locator(".steps").bounding_box()
            dock = tab.locator(".dock").bounding_box()
            assert list_box["y"] <= box["y"]
            assert box["y"] + box["height"] <= dock["y"] + 1
            press(tab, "j")
        press(tab, "ArrowUp k")
        assert current(tab)[0] == "18"
        tab.click("#s-15 .words")
        assert current(tab)[0] == "15"


STATES = {"as it is": "", "decided": "y n v", "keys": "?"}
"""What is pressed on a page of work, one after the other."""


@pytest.mark.parametrize(
    ("size", "scheme", "states", "pages"),
    [
        pytest.param(LAPTOP, "light", ["decided"], "work", marks=pytest.mark.study),
        pytest.param(SMALL, "dark", ["decided", "keys"], "work", marks=pytest.mark.study),
        pytest.param(PHONE, "light", ["keys"], "work", marks=pytest.mark.study),
        # In short: every page as it is, and the keys on one.
        (PHONE, "light", ["as it is", "keys"], "work-A"),
    ],
)
def test_axe_finds_nothing_serious(browser, size, scheme, states, pages):
    """Where axe-core is: ``npm pack axe-core``, and its ``axe.min.js`` in ECLOSE_AXE.

    Every page is seen in every size, and whatever has a colour of its own in both schemes.
    """
    path = os.environ.get("ECLOSE_AXE")
    if not path:
        pytest.skip("there is no axe: set ECLOSE_AXE to the path of axe.min.js")
    source = Path(path).read_text("utf-8")
    for name, text in {**plain_pages(), **work_pages()}.items():
        with opened(browser, text, size=size, scheme=scheme) as (tab, _):
            tab.wait_for_timeout(100)
            tab.evaluate(source)
            for state in states if name.startswith(pages) else ["as it is"]:
                if STATES[state]:
                    press(tab, STATES[state])
                violations = tab.evaluate(AXE)
                assert violations == [], (name, state)


AXE = """async () => (await axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    resultTypes: ["violations"],
  })).violations.filter((one) => ["serious", "critical"].includes(one.impact) || !one.tags.includes("best-practice"))
  .map((one) => [one.id, one.impact, one.nodes.map((node) => node.html).slice(0, 3)])"""
