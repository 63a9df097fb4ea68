"""The page of work in a real browser: every decision by keys, nothing unasked posted, nothing lost."""

from __future__ import annotations

import pytest

from eclose.prompts.disclosure import SoundnessMaterial
from eclose.prompts.material_json import DisclosedPassage, DisclosedStep
from eclose_annotate.forms import AnnotationTaskKind
from tests.report.hostile import PAYLOADS
from tests.web.harness import LAPTOP, POLICY, SMALL, opened
from tests.web.making import TASK, material, sheet, work

pytestmark = [pytest.mark.browser, pytest.mark.slow]
STEPS = 5


def until(tab, holds, arg=None):
    """Wait for an arrow function to hold."""
    for _ in range(250):
        if tab.evaluate(holds, arg):
            return
        tab.wait_for_timeout(20)
    raise AssertionError(holds)


def ready(tab):
    tab.wait_for_selector("html[data-ready]")
    return tab


def press(tab, keys):
    for key in keys.split():
        tab.keyboard.press(key)


def current(tab):
    return tab.locator(".step.current").get_attribute("data-n"), tab.locator(".field.at-hand").get_attribute(
        "data-field"
    )


def assert_calm(tab):
    assert tab.evaluate("[pwned, violations]") == [[], []]
    assert tab.events == []


def sent(tab):
    tab.wait_for_selector("#sent")


def test_a_whole_pass_by_keys_alone(browser):
    with opened(browser, work(sheet(steps=STEPS))) as (tab, house):
        ready(tab)
        assert current(tab) == ("1", "substantive")
        assert tab.inner_text("#missing") == "open: steps 1–5"
        press(tab, "n")
        assert current(tab) == ("2", "substantive")
        press(tab, "y")
        assert current(tab) == ("2", "sound")
        press(tab, "y y n")
        assert current(tab) == ("3", "failure")
        press(tab, "4 y n 2 n")
        assert tab.inner_text("#missing") == "all decided"
        assert tab.locator("[data-mark]").all_inner_texts() == [
            "not substantive", "sound", "L4", "L2", "not substantive"
        ]  # fmt: skip
        assert_calm(tab)
        press(tab, "Enter")
        sent(tab)
        path, fields = next(post for post in reversed(house.posts) if not post[0].endswith("/draft"))
        assert path == f"/tasks/{TASK}/A"
        assert fields == {
            "csrf": "cSrf-31", "key": "kEy-77",
            "1.substantive": "no",
            "2.substantive": "yes", "2.sound": "yes",
            "3.substantive": "yes", "3.sound": "no", "3.failure": "L4",
            "4.substantive": "yes", "4.sound": "no", "4.failure": "L2",
            "5.substantive": "no",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "keys", "wanted"),
    [
        (AnnotationTaskKind.RESPONSE, "B", "n", {"1.aligned": "no"}),
        (AnnotationTaskKind.RESPONSE, "C", "n y", {"1.closed": "yes"}),
        (AnnotationTaskKind.RESPONSE, "D", "y n", {"1.correct": "yes", "1.complete": "no"}),
        (AnnotationTaskKind.SHORT, "B", "n y", {"1.locally_sound": "no", "1.aligned": "yes"}),
        (AnnotationTaskKind.SCREENING, "S", "n 4", {"1.eligible": "no", "1.code": "N4"}),
        (AnnotationTaskKind.SCREENING, "S", "n 4 k y", {"1.eligible": "yes"}),
    ],
)
def test_every_other_pass_by_keys_alone(browser, kind, name, keys, wanted):
    with opened(browser, work(sheet(kind, name)), size=SMALL) as (tab, house):
        ready(tab)
        press(tab, keys)
        press(tab, "Enter")
        sent(tab)
        assert house.entries() == wanted


def test_a_family_by_keys_alone(browser):
    with opened(browser, work(sheet(AnnotationTaskKind.FAMILY, "F"))) as (tab, house):
        ready(tab)
        for number in range(9):
            box = tab.locator(".field.at-hand").bounding_box()
            assert 0 < box["y"] < LAPTOP["height"] - box["height"]
            press(tab, "y" if number % 2 else "n")
        press(tab, "Enter")
        sent(tab)
        assert list(house.entries().values()) == ["no", "yes"] * 4 + ["no"]
        assert "1.evidence.answer_switches" in house.entries()


def test_what_is_no_longer_asked_is_cleared_and_not_posted(browser):
    filled = ({"substantive": "yes", "sound": "no", "failure": "L3"},)
    with opened(browser, work(sheet(steps=1), entries=filled)) as (tab, house):
        ready(tab)
        assert tab.locator(".field input:checked").count() == 3
        press(tab, "h n")
        assert tab.locator(".field input:checked").count() == 1
        press(tab, "Enter")
        sent(tab)
        assert house.entries() == {"1.substantive": "no"}


def test_undo_goes_back_choice_by_choice(browser):
    with opened(browser, work(sheet(steps=STEPS))) as (tab, _):
        ready(tab)
        assert tab.is_disabled("#undo")
        press(tab, "y n 3 y")
        press(tab, "u")
        assert current(tab) == ("2", "substantive")
        press(tab, "Control+z")
        assert current(tab) == ("1", "failure")
        assert tab.inner_text("#s-1 [data-mark]") == "…"
        press(tab, "u u")
        assert tab.locator(".field input:checked").count() == 0
        assert tab.is_disabled("#undo")
        # What was lost with a choice comes back with it.
        press(tab, "y n 3 k n u")
        assert [field.get_attribute("value") for field in tab.locator(".field input:checked").all()] == [
            "yes",
            "no",
            "L3",
        ]


def test_submitting_early_goes_to_what_is_open(browser):
    entries = ({"substantive": "no"}, {"substantive": "yes"}, {"substantive": "no"}, {}, {})
    with opened(browser, work(sheet(steps=STEPS), entries=entries)) as (tab, house):
        ready(tab)
        assert current(tab) == ("2", "sound")
        press(tab, "j j")
        assert tab.inner_text("#missing") == "open: steps 2, 4–5"
        press(tab, "Enter")
        assert current(tab) == ("2", "sound")
        tab.click("#submit")
        assert current(tab) == ("2", "sound")
        assert not [post for post in house.posts if not post[0].endswith("/draft")]


def test_a_key_held_down_decides_only_once(browser):
    with opened(browser, work(sheet(steps=STEPS))) as (tab, _):
        ready(tab)
        tab.keyboard.down("n")
        tab.keyboard.down("n")
        tab.keyboard.down("n")
        assert tab.locator(".field input:checked").count() == 1


HERE = "() => [...CSS.highlights.get('here')].map(String)"
SELECT = """() => {
  const node = document.querySelector("#s-1 .words").firstChild;
  getSelection().setBaseAndExtent(node, 20, node, 31);
}"""
FOUND = "() => [...CSS.highlights.get('found')].map(String)"


def test_numbers_of_citations_are_not_searched_for(browser):
    passages = (DisclosedPassage(0, "Zoe", "Zoe wrote 9 books by 1990, 3 of them with 12 maps."),)
    material = SoundnessMaterial(
        "Where?", passages, (DisclosedStep(1, "So Zoe [9, 3] drew maps, as passage 12 says."),)
    )
    with opened(browser, work(sheet(material=material))) as (tab, _):
        ready(tab)
        press(tab, "f")
        assert set(tab.evaluate(FOUND)) == {"Zoe"}


def test_words_are_found_marked_and_stepped_through(browser):
    passages = (
        DisclosedPassage(0, "Zoë Brontë", "Zoë  Brontë was born in\nSão Paulo."),
        DisclosedPassage(1, "Other", "Sao Paulo; zoe bronte."),
    )
    material = SoundnessMaterial("Where?", passages, (DisclosedStep(1, "The poet Zoe Bronte was born in Santos."),))
    with opened(browser, work(sheet(material=material))) as (tab, _):
        ready(tab)
        press(tab, "/")
        assert tab.evaluate("document.activeElement.id") == "search"
        tab.keyboard.type("zoe bronte")
        assert tab.evaluate(FOUND) == ["Zoë Brontë", "Zoë  Brontë", "zoe bronte"]
        assert tab.evaluate(HERE) == ["Zoë Brontë"]
        assert tab.inner_text("#found") == "1 of 3"
        press(tab, "Enter Enter")
        assert (tab.inner_text("#found"), tab.get_attribute(".hit", "id")) == ("3 of 3", "p-1")
        # One key leaves the box and keeps the marks.
        press(tab, "Shift+Enter Escape")
        assert len(tab.evaluate(FOUND)) == 3
        assert tab.evaluate("document.activeElement.id") == "s-1"
        # Of the step at hand, names: the sentence itself stands nowhere.
        press(tab, "f")
        assert "single words" in tab.inner_text("#found")
        assert set(tab.evaluate(FOUND)) == {"Zoë", "Brontë", "zoe", "bronte"}
        before = tab.evaluate(HERE)
        press(tab, ".")
        assert tab.evaluate(HERE) != before
        press(tab, ",")
        assert tab.evaluate(HERE) == before
        # What is selected goes before the step.
        tab.evaluate(SELECT)
        press(tab, "f")
        assert tab.input_value("#search") == "was born in"
        assert tab.evaluate(FOUND) == ["was born in"]
        press(tab, "/")
        tab.keyboard.type("nothing says this, 7771")
        assert tab.inner_text("#found") == "no match"
        assert tab.locator(".field input:checked").count() == 0
        assert_calm(tab)


def test_a_number_with_separators_is_one_word(browser):
    passages = (
        DisclosedPassage(0, "Town", "In 1968 the population was 327,464."),
        DisclosedPassage(1, "Other", "Of 327 houses 464 stand, and 3.5 are left."),
    )
    material = SoundnessMaterial(
        "How many?", passages, (DisclosedStep(1, "So the town had 327,464 people, or 3.5 each."),)
    )
    with opened(browser, work(sheet(material=material))) as (tab, _):
        ready(tab)
        press(tab, "f")
        assert tab.evaluate(FOUND) == ["327,464", "3.5"]


def test_a_place_that_is_found_is_scrolled_into_sight(browser):
    instance, _ = material()
    last = instance.evidence[-1]
    with opened(browser, work(sheet()), size=SMALL) as (tab, _):
        ready(tab)
        press(tab, "/")
        tab.keyboard.type(last.title)
        for _ in range(30):
            if tab.get_attribute(".hit", "id") == "p-19":
                break
            press(tab, "Enter")
        box = tab.locator("#passages").bounding_box()
        top = tab.evaluate("() => [...CSS.highlights.get('here')][0].getBoundingClientRect().top")
        assert box["y"] <= top <= box["y"] + box["height"]


def test_the_guideline_follows_the_decision(browser):
    with opened(browser, work(sheet(steps=STEPS))) as (tab, _):
        ready(tab)
        assert "Imagine the step deleted" in tab.inner_text(".guide")
        press(tab, "y")
        assert "Ignore citation marks" in tab.inner_text(".guide")
        press(tab, "n")
        assert "L4" in tab.inner_text(".guide")
        assert current(tab) == ("1", "failure")
        press(tab, "e")
        tab.reload()
        ready(tab)
        assert not tab.locator(".excerpt.at-hand").is_visible()


def test_keys_are_listed_and_can_be_switched_off(browser):
    with opened(browser, work(sheet(steps=STEPS))) as (tab, _):
        ready(tab)
        press(tab, "?")
        assert tab.locator("#keys").is_visible()
        press(tab, "y")
        tab.uncheck("#keys-on")
        press(tab, "Escape y n j")
        assert tab.locator(".field input:checked").count() == 0
        assert current(tab) == ("1", "substantive")
        # Without single keys a radio group is what it is everywhere: Tab, arrows, Space.
        press(tab, "Space")
        assert tab.locator(".field input:checked").get_attribute("value") == "yes"
        press(tab, "ArrowDown")
        assert tab.locator(".field input:checked").get_attribute("value") == "no"


def test_drafts_are_saved_and_a_lost_connection_is_told(browser):
    with opened(browser, work(sheet(steps=STEPS))) as (tab, house):
        ready(tab)
        press(tab, "n")
        until(tab, "() => document.querySelector('#saved').textContent === 'saved'")
        assert house.posts == [(f"/tasks/{TASK}/A/draft", {"csrf": "cSrf-31", "key": "kEy-77", "1.substantive": "no"})]
        house.draft_status = None
        press(tab, "y y")
        until(tab, "() => document.querySelector('#saved').textContent.includes('no connection')")
        # All that was chosen has been tried: from here on only another try can save it.
        tab.wait_for_timeout(1000)
        house.draft_status = 204
        until(tab, "() => document.querySelector('#saved').textContent === 'saved'")
        assert house.entries(draft=True) == {"1.substantive": "no", "2.substantive": "yes", "2.sound": "yes"}
        press(tab, "u")
        until(tab, "() => document.querySelector('#saved').textContent === 'saved'")
        assert house.entries(draft=True) == {"1.substantive": "no", "2.substantive": "yes"}
        for status, words in ((401, "logged out"), (409, "closed"), (500, "problem")):
            house.draft_status = status
            press(tab, "y u")
            until(tab, "(words) => document.querySelector('#saved').textContent.includes(words)", words)


def test_a_submission_without_connection_waits_for_a_second_word(browser):
    with opened(browser, work(sheet(name="B"))) as (tab, house):
        ready(tab)
        house.draft_status = None
        press(tab, "y")
        until(tab, "() => document.querySelector('#saved').textContent.includes('no connection')")
        press(tab, "Enter")
        assert "Press again" in tab.inner_text("#saved")
        press(tab, "Enter")
        sent(tab)
        assert house.entries() == {"1.aligned": "yes"}


def test_it_works_with_a_mouse_and_no_script(browser):
    with opened(browser, work(sheet(steps=2)), script=False) as (tab, house):
        assert not tab.locator("#search").is_visible()
        assert tab.locator(".field").count() == 6
        for name, value in (("1.substantive", "yes"), ("1.sound", "no"), ("1.failure", "L2"), ("2.substantive", "no")):
            tab.locator(f"[name='{name}'][value={value}]").click()
        tab.click("#submit")
        assert house.entries() == {"1.substantive": "yes", "1.sound": "no", "1.failure": "L2", "2.substantive": "no"}


def test_the_watch_notices_what_runs(browser):
    """Without this the next test shows nothing."""
    with opened(browser, f"<!doctype html><body>{''.join(PAYLOADS[:3])}{PAYLOADS[10]}", policy=None) as (tab, _):
        until(tab, "() => pwned.length >= 3")


@pytest.mark.parametrize("policy", [POLICY, None], ids=["with policy", "without policy"])
def test_hostile_text_runs_nowhere(browser, policy):
    passages = tuple(DisclosedPassage(number, text, text) for number, text in enumerate(PAYLOADS))
    steps = tuple(DisclosedStep(number, text) for number, text in enumerate(PAYLOADS[:40], start=1))
    material = SoundnessMaterial(PAYLOADS[0], passages, steps)
    with opened(browser, work(sheet(material=material)), policy=policy) as (tab, _):
        ready(tab)
        for _ in steps:
            press(tab, "f . j")
        press(tab, "/")
        tab.keyboard.type(PAYLOADS[10])
        press(tab, "Enter Escape")
        tab.click("#s-5 .words")
        tab.wait_for_timeout(200)
        assert tab.locator(".passages img, .passages script, .passages a, .steps img").count() == 0
        assert {link.get_attribute("class") for link in tab.locator(".steps a").all()} <= {"cite"}
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert_calm(tab)
