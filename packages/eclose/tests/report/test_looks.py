"""What the page looks like in a real browser: words whole and readable, rows even."""

from __future__ import annotations

import re

import pytest

from eclose.report.explorer import get_response_group
from eclose.report.formats.html_page import render_report_page
from tests.report.making import make_diagnosis
from tests.report.test_browser import PHONE, assert_in_shape, opened

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_on_a_phone_words_stay_whole_and_wide_tables_say_that_they_scroll(browser, report):
    with opened(browser, report, size=PHONE) as tab:
        tab.evaluate("document.querySelectorAll('details.table').forEach((one) => { one.open = true; })")
        assert tab.evaluate(BROKEN_WORDS) == []
        assert tab.locator("#table-metrics .sideways").is_visible()
        assert_in_shape(tab)


# Words of tables, cards and lists that begin on one line and end on another.
BROKEN_WORDS = """() => {
  const broken = [], range = document.createRange();
  for (const box of document.querySelectorAll("table, #headline, .bars, .rates, .trust, #glossary dt")) {
    const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) for (const word of walker.currentNode.data.matchAll(/[\\p{L}\\d.]+(\\u00a0%)?/gu)) {
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((one) => Math.round(one.top))).size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""


@pytest.mark.parametrize("width", [420, 900, 1400])
@pytest.mark.parametrize("systems", [1, 2])
def test_the_gap_is_first_and_nothing_overlaps(browser, cases, tmp_path, width, systems):
    """With one system there is no comparison, and the other findings stand below the gap."""
    models = {get_response_group(response_case, "model") for response_case in cases}
    chosen = [entry for entry in cases if get_response_group(entry, "model") in sorted(models)[:systems]]
    path = tmp_path / "report.html"
    path.write_text(render_report_page(make_diagnosis(chosen), chosen), "utf-8")
    with opened(browser, path, size={"width": width, "height": 900}) as tab:
        boxes = tab.evaluate(CARDS)
        assert boxes[0]["kind"] == "finding k-gap"
        gap, example = boxes[0], boxes[1]
        assert example["kind"].startswith("example")
        assert min(box["top"] for box in boxes) == gap["top"]
        assert gap["left"] == min(box["left"] for box in boxes)
        for number, box in enumerate(boxes):
            for other in boxes[number + 1 :]:
                apart = box["right"] <= other["left"] or other["right"] <= box["left"]
                assert apart or box["bottom"] <= other["top"] or other["bottom"] <= box["top"], (box, other)
        assert_in_shape(tab)


CARDS = """() => [...document.querySelectorAll("#headline > *")].map((card) => {
  const { left, right, top, bottom } = card.getBoundingClientRect();
  return { kind: card.className, left, right, top, bottom };
})"""


def test_paper_has_every_part_and_nothing_to_click(browser, report):
    with opened(browser, report) as tab:
        tab.emulate_media(media="print")
        tab.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        script = """(names) => names.filter(
            (name) => [...document.querySelectorAll(name)].some((part) => part.checkVisibility()))"""
        clickable = [
            "#explorer",
            "header nav",
            "select",
            "input",
            "button",
            ".finding:not(.k-gap) .count",
            ".example .count a",
        ]
        assert tab.evaluate(script, clickable) == []
        parts = ["#headline .finding", ".example mark", "#plots", "#tables table", "#trust", "#glossary", ".on-paper"]
        assert tab.evaluate(script, parts) == parts
        assert tab.evaluate("[...document.querySelectorAll('#tables details')].every((table) => table.open)")
        # A highlight without its ground would be plain text.
        assert tab.evaluate("getComputedStyle(document.querySelector('.example mark')).printColorAdjust") == "exact"


def test_rows_of_the_rate_plot_are_equally_high(browser, report):
    with opened(browser, report) as tab:
        read = "() => [...document.querySelectorAll('#plots .rate-group .rate-row')].map((one) => one.offsetHeight)"
        heights = tab.evaluate(read)
        assert len(heights) == 1 + 4 + 3 + 12
        assert max(heights) - min(heights) <= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(browser, report, scheme):
    """The contrast of all words that are shown, against what they stand on: at least 4.5 to 1."""
    context = browser.new_context(color_scheme=scheme)
    tab = context.new_page()
    tab.goto(report.as_uri())
    tab.wait_for_selector("html[data-ready]")
    tab.wait_for_selector("#detail .broken")
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.evaluate(ASIDE)
    colours = {tuple(first) for first in tab.evaluate(COLOURS)}
    assert len(colours) > 8
    for ink, paper, where in sorted(colours):
        assert contrast(ink, paper) >= 4.5, (ink, paper, where, contrast(ink, paper))
    context.close()


# Steps that say nothing or were not judged, which few traces have, and a quote that was asked for.
ASIDE = """() => {
  for (const kind of ["t-aside", "t-open"]) {
    const step = document.querySelector("#detail .step").cloneNode(true);
    step.className = "step " + kind;
    document.querySelector("#detail .steps").append(step);
  }
  document.querySelector("#detail mark").classList.add("chosen");
}"""
# The colour of every element with words of its own, and of what it stands on; opacity counts as a failure of its own.
COLOURS = """() => [...document.querySelectorAll("body *")].filter((one) =>
    one.checkVisibility() && !["SCRIPT", "OPTION"].includes(one.tagName) && !one.closest("svg") &&
    [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim())).map((one) => {
  let ground = one, clear = 1;
  while (ground && getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
  for (let up = one; up; up = up.parentElement) clear *= Number(getComputedStyle(up).opacity);
  const paper = getComputedStyle(ground || document.body).backgroundColor;
  return [clear < 1 ? paper : getComputedStyle(one).color, paper, one.className || one.tagName];
})"""


def contrast(first: str, two: str) -> float:
    high, low = sorted((luminance(first), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Of ``rgb(1, 2, 3)``, as WCAG 2 has it."""
    parts = [int(part) / 255 for part in re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups()]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
