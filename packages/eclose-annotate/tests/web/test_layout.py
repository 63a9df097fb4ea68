"""The layout of the page of work in a real browser: nothing over anything else, columns, folding, jumps, dialogs."""

from __future__ import annotations

import pytest

from eclose.prompts.disclosure import SoundnessMaterial
from eclose.prompts.material_json import DisclosedPassage, DisclosedStep
from eclose_annotate.forms import AnnotationTaskKind
from tests.web.harness import opened
from tests.web.making import ADJUDICATOR, TASK, plain_pages, sheet, work, work_pages
from tests.web.test_keyboard import assert_calm, current, press, ready, sent

pytestmark = [pytest.mark.browser, pytest.mark.slow]
DESKTOP = {"width": 1400, "height": 900}
WIDTHS = (900, 992, 1024, 1100, 1229, 1400, 1600)
ZOOMS = (1.0, 1.25, 1.5, 1.75)
FONTS = {
    "arial": "* { font-family: 'Liberation Sans', Arial !important }",
    "dejavu": "* { font-family: 'DejaVu Sans', Verdana !important }",
    "wide": "@font-face { font-family: wide; src: local('DejaVu Sans'), local('Verdana'); size-adjust: 110% }"
    "* { font-family: wide, 'DejaVu Sans' !important }",
}
OVERLAPS = """() => {
  const kinds = "a[href], button, input:not([type=hidden]), select, summary, textarea, .choice";
  const controls = [...document.querySelectorAll(kinds)].filter(
    (control) => control.checkVisibility({ visibilityProperty: true }) && !control.closest(".skip"),
  );
  // What can be seen of a control: scrolling boxes around it and the window cut it off.
  const seen = controls.map((control) => {
    const box = control.getBoundingClientRect();
    let [left, top, right, bottom] = [box.left, box.top, box.right, box.bottom];
    for (let around = control.parentElement; around; around = around.parentElement) {
      if (getComputedStyle(around).overflowY === "visible") continue;
      const clip = around.getBoundingClientRect();
      [left, top] = [Math.max(left, clip.left), Math.max(top, clip.top)];
      [right, bottom] = [Math.min(right, clip.right), Math.min(bottom, clip.bottom)];
    }
    [left, top] = [Math.max(left, 0), Math.max(top, 0)];
    return { control, left, top, right: Math.min(right, innerWidth), bottom: Math.min(bottom, innerHeight) };
  }).filter(({ left, top, right, bottom }) => right - left > 1 && bottom - top > 1);
  const name = (control) => `${control.id || control.name || control.textContent.trim().slice(0, 30)}`;
  const pairs = [];
  for (const [index, first] of seen.entries()) {
    for (const second of seen.slice(index + 1)) {
      if (first.control.contains(second.control) || second.control.contains(first.control)) continue;
      const wide = Math.min(first.right, second.right) - Math.max(first.left, second.left);
      const high = Math.min(first.bottom, second.bottom) - Math.max(first.top, second.top);
      if (wide > 1 && high > 1) pairs.push([name(first.control), name(second.control), wide, high]);
    }
  }
  return pairs;
}"""
SPILT = "() => document.documentElement.scrollWidth - innerWidth"
SUBMIT_SEEN = """() => {
  const button = document.getElementById("submit"), box = button.getBoundingClientRect();
  const top = document.elementFromPoint(box.left + box.width / 2, box.top + 3);
  const bottom = document.elementFromPoint(box.left + box.width / 2, box.bottom - 3);
  return button.contains(top) && button.contains(bottom);
}"""


def pages():
    others = tuple(tuple({"substantive": "yes", "sound": "no", "failure": "L1"} for _ in range(8)) for _ in range(2))
    long = work(sheet(others=others), person=ADJUDICATOR, receipt="4711-a1b2c3d4", undo=f"/tasks/{TASK}/A/undo")
    return {"A": work_pages()["work-A"], "others": long, **{name: work(sheet(name=name)) for name in "BD"}}


# In short: every pass in the widest letters, and one in the narrowest.
@pytest.mark.parametrize(
    ("name", "font"),
    [
        pytest.param(name, font, marks=[] if font == "wide" or (name, font) == ("A", "arial") else pytest.mark.study)
        for name in ("A", "others", "B", "D")
        for font in FONTS
    ],
)
def test_no_control_lies_over_another_at_any_width_font_and_zoom(browser, name, font):
    sizes = {(round(width / zoom), round(900 / zoom)) for width in WIDTHS for zoom in ZOOMS}
    sizes |= {(width, 500) for width in (900, 992, 1100)}
    with opened(browser, pages()[name], size=DESKTOP, policy=None) as (tab, _):
        tab.add_style_tag(content=FONTS[font])
        ready(tab)
        for width, height in sorted(sizes):
            tab.set_viewport_size({"width": width, "height": height})
            tab.evaluate("() => new Promise(requestAnimationFrame)")
            assert tab.evaluate(OVERLAPS) == [], (width, height)
            assert tab.evaluate(SPILT) <= 0, (width, height)
            if width >= 800 and height >= 560:
                assert tab.evaluate(SUBMIT_SEEN), (width, height)
        if name in "BD":
            press(tab, "v")
            for width, height in sorted(sizes):
                tab.set_viewport_size({"width": width, "height": height})
                assert tab.evaluate(OVERLAPS) == [], (width, height, "passages")


@pytest.mark.parametrize(
    ("kind", "name", "keys"),
    [
        (AnnotationTaskKind.RESPONSE, "A", ("", "y", "n")),
        (AnnotationTaskKind.RESPONSE, "B", ("",)),
        (AnnotationTaskKind.RESPONSE, "C", ("",)),
        (AnnotationTaskKind.RESPONSE, "D", ("", "y")),
        (AnnotationTaskKind.SCREENING, "S", ("", "n")),
    ],
)
def test_guideline_of_the_decision_is_in_full_view(browser, kind, name, keys):
    with opened(browser, work(sheet(kind, name)), size=DESKTOP) as (tab, _):
        ready(tab)
        for key in keys:
            press(tab, key)
            box, rules = tab.evaluate(
                "() => { const one = document.querySelector('.rules'); return [one.clientHeight, one.scrollHeight]; }"
            )
            assert rules <= box, (name, key)
            assert tab.locator(".excerpt.at-hand").is_visible()
        if name in "AS":
            evidence = tab.locator(".evidence").bounding_box()
            assert evidence["y"] + evidence["height"] > 880
            assert evidence["height"] > 780


def test_passages_fold_away_and_come_back_with_one_key(browser):
    with opened(browser, work(sheet(name="C")), size=DESKTOP) as (tab, _):
        ready(tab)
        assert not tab.locator("#passages").is_visible()
        press(tab, "v")
        assert tab.locator("#passages").is_visible()
        assert tab.get_attribute("#fold", "aria-expanded") == "true"
        press(tab, "v")
        assert not tab.locator("#passages").is_visible()
        # A citation, a number and the search bring them back, too.
        tab.locator("a.cite").first.click()
        assert tab.locator("#p-16.hit").is_visible()
        press(tab, "v y")
        assert tab.locator("input:checked[name='1.closed']").get_attribute("value") == "yes"
        press(tab, "/")
        assert tab.locator("#search").is_visible()
        assert_calm(tab)


def test_number_goes_to_its_passage_where_no_code_is_asked(browser):
    with opened(browser, work(sheet()), size=DESKTOP) as (tab, _):
        ready(tab)

        def shown():
            hit = tab.locator(".passage.hit")
            box, panel = hit.bounding_box(), tab.locator("#passages").bounding_box()
            assert panel["y"] - 2 <= box["y"] < panel["y"] + panel["height"]
            return hit.get_attribute("id")

        press(tab, "7")
        assert shown() == "p-7"
        tab.wait_for_timeout(1000)
        press(tab, "1 2")
        assert shown() == "p-12"
        tab.wait_for_timeout(1000)
        press(tab, "y n p 3")
        assert shown() == "p-3"
        assert current(tab) == ("1", "failure")
        tab.wait_for_timeout(1000)
        press(tab, "2")
        assert tab.inner_text("#s-1 [data-mark]") == "L2"


def test_split_is_moved_by_mouse_and_keys_and_kept(browser):
    with opened(browser, work(sheet()), size=DESKTOP) as (tab, _):
        ready(tab)
        wide = tab.locator(".evidence").bounding_box()["width"]
        split = tab.locator(".split").bounding_box()
        tab.mouse.move(split["x"] + 3, 400)
        tab.mouse.down()
        tab.mouse.move(split["x"] + 203, 420, steps=4)
        tab.mouse.up()
        moved = tab.locator(".evidence").bounding_box()["width"]
        assert 180 < moved - wide < 220
        tab.reload()
        ready(tab)
        assert abs(tab.locator(".evidence").bounding_box()["width"] - moved) < 8
        tab.focus(".split")
        press(tab, "ArrowLeft ArrowLeft")
        assert tab.locator(".evidence").bounding_box()["width"] < moved - 50
        assert tab.evaluate(OVERLAPS) == []
        assert_calm(tab)


def test_scroll_and_search_survive_the_passes(browser):
    routes = {f"/tasks/{TASK}": work(sheet()), "/next": work(sheet(name="B"))}
    with opened(browser, routes, f"/tasks/{TASK}", size=DESKTOP) as (tab, _):
        ready(tab)
        press(tab, "/")
        tab.keyboard.type("festival")
        press(tab, "Enter Escape")
        marks = tab.evaluate("() => CSS.highlights.get('found').size")
        assert marks > 1
        assert tab.evaluate("document.activeElement.id") == "s-1"
        tab.evaluate("() => { document.querySelector('#passages').scrollTop = 700; }")
        tab.wait_for_timeout(50)
        tab.goto("http://annotate.test/next")
        ready(tab)
        press(tab, "v")
        assert tab.input_value("#search") == "festival"
        assert tab.evaluate("() => CSS.highlights.get('found').size") == marks
        assert abs(tab.evaluate("() => document.querySelector('#passages').scrollTop") - 700) < 3


def test_help_and_escape_switch_nothing_off(browser):
    with opened(browser, work(sheet())) as (tab, _):
        ready(tab)
        press(tab, "? Space")
        assert not tab.locator("#keys").is_visible()
        press(tab, "? Enter Escape y")
        assert current(tab) == ("1", "sound")
        # Even where single keys are off, the list of keys opens.
        press(tab, "?")
        tab.uncheck("#keys-on")
        press(tab, "Escape n ?")
        assert tab.locator("#keys").is_visible()
        assert current(tab) == ("1", "sound")


def test_response_of_six_steps_takes_few_keys(browser):
    """Search and scrolling aside: keys of the decisions and submissions."""
    steps = tuple(DisclosedStep(number, f"Step {number} [0].") for number in range(1, 7))
    material = SoundnessMaterial("Where?", (DisclosedPassage(0, "t", "x"),), steps)
    sheets = [(work(sheet(material=material)), ["y n 2"] * 3 + ["y y"] * 2 + ["n"])]
    sheets += [(work(sheet(name=name)), keys) for name, keys in (("B", ["y"]), ("C", ["n"]), ("D", ["y", "n"]))]
    pressed = 0
    for html, keys in sheets:
        with opened(browser, html) as (tab, house):
            ready(tab)
            for key in (*keys, "Enter"):
                press(tab, key)
                pressed += len(key.split())
            sent(tab)
            assert len(house.entries()) >= len(keys)
    assert pressed <= 45


def test_step_takes_at_most_two_clicks_at_one_place(browser):
    with opened(browser, work(sheet(steps=6)), size=DESKTOP) as (tab, house):
        ready(tab)
        clicks = (
            ("sound", "yes"),
            ("failure", "L2"),
            ("substantive", "no"),
            ("sound", "yes"),
            ("failure", "L4"),
            ("sound", "yes"),
        )
        places = set()
        for number, (field, value) in enumerate(clicks, start=1):
            assert current(tab)[0] == str(number)
            choice = tab.locator(f"#f-{number}-{field} input[value={value}]")
            places.add((field, round(tab.locator(f"#f-{number}-{field}").bounding_box()["y"])))
            choice.click()
        assert len(places) == 3, "controls stay where they are from step to step"
        tab.click("#submit")
        sent(tab)
        assert house.entries() == {
            "1.substantive": "yes", "1.sound": "yes",
            "2.substantive": "yes", "2.sound": "no", "2.failure": "L2",
            "3.substantive": "no",
            "4.substantive": "yes", "4.sound": "yes",
            "5.substantive": "yes", "5.sound": "no", "5.failure": "L4",
            "6.substantive": "yes", "6.sound": "yes",
        }  # fmt: skip


def test_the_list_of_steps_keeps_its_height_on_a_small_laptop(browser):
    others = tuple(tuple({"substantive": "yes", "sound": "no", "failure": "L1"} for _ in range(8)) for _ in range(2))
    pages = work(sheet()), work(sheet(others=others), person=ADJUDICATOR)
    for text in pages:
        with opened(browser, text, size={"width": 1280, "height": 800}, policy=None) as (tab, _):
            tab.add_style_tag(content=FONTS["dejavu"])
            ready(tab)
            assert tab.locator(".steps").bounding_box()["height"] > 150
            columns = tab.evaluate(
                "() => new Set([...document.querySelectorAll('.dock .many .choice')].map((c) => c.offsetLeft)).size"
            )
            assert columns == 2


@pytest.mark.parametrize(("width", "height"), [(933, 600), (1024, 700), (1280, 800)])
def test_passages_progress_and_pace_are_in_sight_on_laptops_and_enlarged_pages(browser, width, height):
    # The first one is 1400 x 900 at 150 %.
    with opened(browser, work(sheet()), size={"width": width, "height": height}) as (tab, _):
        ready(tab)
        evidence, form = tab.locator(".evidence").bounding_box(), tab.locator("#form").bounding_box()
        assert evidence["x"] + evidence["width"] <= form["x"]
        assert evidence["y"] == form["y"]
        assert evidence["y"] + evidence["height"] <= height
        assert tab.locator(".progress b").is_visible()
        assert tab.locator(".progress .pace").is_visible()
        assert tab.evaluate("() => document.documentElement.scrollHeight <= innerHeight")
        number, words = tab.locator("#s-1 .number").bounding_box(), tab.locator("#s-1 .words").bounding_box()
        assert words["x"] - number["x"] < 40


def test_codes_of_screening_stand_below_one_another_in_their_order(browser):
    with opened(browser, work(sheet(AnnotationTaskKind.SCREENING, "S")), size=DESKTOP) as (tab, _):
        ready(tab)
        places = tab.evaluate(
            "() => [...document.querySelectorAll('.many .choice')].map((c) => [c.offsetLeft, c.offsetTop])"
        )
        assert len({offset for offset, _ in places}) == 1
        assert places == sorted(places)


def test_times_are_shown_in_the_zone_of_the_reader(browser):
    local = """() => new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" })
      .format(new Date(document.querySelector("time").dateTime))"""
    with opened(browser, plain_pages()["finished"]) as (tab, _):
        assert tab.locator("time").first.inner_text() == tab.evaluate(local)
        assert "UTC" in tab.locator("time").first.get_attribute("title")


@pytest.mark.parametrize("name", ["A", "B", "D"])
def test_the_question_stays_in_sight_on_an_enlarged_page(browser, name):
    # 1280 x 800 at 175 %: one column, which scrolls as a whole.
    with opened(browser, work(sheet(name=name)), size={"width": 731, "height": 457}) as (tab, _):
        ready(tab)
        for key in ("", "y", "y", "n"):
            press(tab, key)
            question, control = tab.locator(".asked").bounding_box(), tab.locator(".field.at-hand").bounding_box()
            assert question["y"] >= 0
            assert question["y"] + question["height"] <= control["y"] + 1
            assert control["y"] + control["height"] <= 457 + 1


@pytest.mark.parametrize("name", ["B", "C", "D"])
def test_links_of_the_bar_and_the_passages_button_keep_to_one_line(browser, name):
    for width, height in ((900, 700), (1280, 800), (1600, 1000)):
        with opened(browser, work(sheet(name=name)), size={"width": width, "height": height}) as (tab, _):
            ready(tab)
            assert tab.locator(".bar").bounding_box()["height"] < 50, (name, width)
            title, button = tab.locator(".title h1").bounding_box(), tab.locator("#fold").bounding_box()
            assert abs(title["y"] + title["height"] / 2 - button["y"] - button["height"] / 2) < 6, (name, width)


@pytest.mark.parametrize("width", [780, 900, 1100, 1280])
def test_columns_of_the_lead_have_their_headings(browser, width):
    with opened(browser, plain_pages()["dashboard"], size={"width": width, "height": 800}) as (tab, _):
        lefts = """(cells) => [...document.querySelectorAll(cells)].filter((cell) => cell.checkVisibility())
          .map((cell) => Math.round(cell.getBoundingClientRect().left))"""
        headings = tab.evaluate(lefts, ".people thead th")
        assert headings
        assert headings == tab.evaluate(lefts, ".people tbody tr:nth-child(3) > *")
