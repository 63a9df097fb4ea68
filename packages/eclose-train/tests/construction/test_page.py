"""The page of families: whole, the same for the same families, safe whatever is in them, and readable."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files

import pytest

from eclose.report.formats import html_template as module
from eclose.report.formats.html_template import csp_source_hash
from eclose_train.construction.view import make_family_display, render_family_page
from tests.construction.family_making import full_family, hostile_family
from tests.report.hostile import PAYLOADS
from tests.report.test_browser import DESKTOP, PHONE, assert_calm, until, watched
from tests.report.test_looks import COLOURS, contrast
from tests.report.test_page import Skeleton
from tests.tables import each_row

pytestmark = pytest.mark.browser

TEXTS = files(module.__package__) / "texts"


def page(*families, selection="2 families", **options):
    return render_family_page(
        [make_family_display(family) for family in families], name="runs/x", selection=selection, **options
    )


@pytest.fixture(scope="module")
def text():
    return page(full_family())


def words(html):
    """The page without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html.partition("<body")[2])).replace("&nbsp;", " ")


def test_everything_is_there_and_every_element_is_closed(text):
    skeleton = Skeleton(text)
    assert skeleton.open == []
    assert len(skeleton.named("h1")) == 1
    ids = [attributes["id"] for _, attributes in skeleton.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"f1", "f1-p0", "f1-p1", "f1-p2"} <= set(ids)
    page_words = words(text)
    for part in (
        "Gold", "Evidence-CF 1", "Evidence-CF 2", "Question-CF", "the first step that depends on the change",
        "rests on [2] Ana Ruiz", "rests on step 1, step 2", "The Arica Prize", "the relation", "1 other passage",
        "house/second", "maker/large", "sha256:0123", "the Arica Prize still points at Arica",
        "objections: original_after",
    ):  # fmt: skip
        assert part in page_words


def test_changed_words_are_marked(text):
    assert "born in <del>Arica</del><ins>Iquique</ins>, left <del>Arica</del><ins>Iquique</ins> early." in text


def test_blanks_around_changed_words_are_not_coloured():
    family = full_family()
    edit = family.question_edit
    longer = replace(edit.view, question="Where was the director of Blue Harbour born and raised?")
    page_html = page(replace(family, question_edit=replace(edit, view=longer)))
    assert "born <ins>and raised</ins>?" in page_html
    assert not re.search(r"<(del|ins)>\s|\s</(del|ins)>", page_html)


def test_a_link_leads_to_every_passage_that_is_named(text):
    skeleton = Skeleton(text)
    ids = {attributes.get("id") for _, attributes in skeleton.elements}
    targets = {element["href"].removeprefix("#") for element in skeleton.named("a")}
    assert {"f1-p0", "f1-p2"} <= targets <= ids


def test_only_what_somebody_objects_to_is_unfolded(text):
    folded = [element for element in Skeleton(text).named("details") if element.get("class") == "finding-box"]
    assert ["open" in element for element in folded] == [False] * 4 + [True] + [False] * 4


def test_several_families_have_contents(text):
    many = page(full_family(), full_family())
    skeleton = Skeleton(many)
    assert skeleton.open == []
    assert "contents" not in {attributes.get("id") for _, attributes in Skeleton(text).elements}
    assert {"contents", "f1", "f2"} <= {attributes.get("id") for _, attributes in skeleton.elements}
    assert {"#f1", "#f2"} <= {element["href"] for element in skeleton.named("a")}
    assert "2 families of runs/x" in words(many)


def test_a_family_that_fails_a_gate_says_so(text):
    assert "fails a gate" not in words(text)
    assert "fails a gate" in words(page(hostile_family(1, "odd")))


def test_the_policy_allows_the_style_and_nothing_else(text):
    (policy,) = [element["content"] for element in Skeleton(text).named("meta") if element.get("http-equiv")]
    style = "".join((TEXTS / name).read_text("utf-8") for name in ("page.css", "family.css"))
    assert f"<style>{style}</style>" in text
    assert f"style-src '{csp_source_hash(style)}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy
    assert "unsafe" not in policy


def test_nothing_is_fetched_and_nothing_runs(text):
    skeleton = Skeleton(text)
    assert skeleton.named("script") == []
    for _, attributes in skeleton.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,"
    style = (TEXTS / "family.css").read_text("utf-8")
    assert not re.search(r"url\(|@import|</|<!--", style)
    assert "safe" not in re.findall(r"\|\s*(\w+)", (TEXTS / "family.html").read_text("utf-8"))


def test_equal_input_gives_equal_bytes(text):
    assert page(full_family()) == text


@each_row(PAYLOADS)
def test_hostile_text_adds_no_element_and_no_attribute(payload):
    """The same page with a harmless word in every place has the same skeleton, but for words that are marked.

    Which gates fail depends on the text, so they are given.
    """
    shapes = []
    for word in (payload, "harmless"):
        displays = [replace(make_family_display(hostile_family(number, word)), failures=(word,)) for number in range(2)]
        page_html = render_family_page(displays, name=word, selection=word)
        page_html.encode()
        elements = [(tag, sorted(attributes)) for tag, attributes in Skeleton(page_html).elements]
        shapes.append([element for element in elements if element not in (("del", []), ("ins", []))])
    assert shapes[0] == shapes[1]


def test_what_acts_without_being_seen_is_shown_by_name():
    page_html = page(hostile_family(0, "a\u202eb\x00"))
    assert "a⟨U+202E⟩b⟨U+0000⟩" in page_html
    assert not re.search("[\x00\u202e]", page_html)


# --- in a real browser ---------------------------------------------------------------------------------------------


@contextmanager
def opened(browser, path, **settings):
    """The page, all of it unfolded."""
    with watched(browser, path, **settings) as tab:
        tab.evaluate("document.querySelectorAll('details').forEach((element) => { element.open = true; })")
        yield tab


def saved(folder, html):
    path = folder / "families.html"
    path.write_text(html, "utf-8")
    return path


@pytest.mark.slow
def test_the_watch_notices_what_runs(browser, tmp_path):
    """Without this the next test shows nothing."""
    path = saved(tmp_path, f"<html><body>{''.join(PAYLOADS[:3])}{PAYLOADS[10]}{PAYLOADS[35]}")
    with opened(browser, path) as tab:
        until(tab, "() => pwned.length >= 3")
        tab.wait_for_load_state("networkidle")
        assert "https://attacker.example/pixel.png" in tab.events


@pytest.mark.slow
@pytest.mark.parametrize("policy", [True, False], ids=["with policy", "without policy"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_hostile_text_runs_nowhere_and_leaves_the_layout_intact(browser, tmp_path, policy, size):
    assert len(PAYLOADS) >= 60
    families = [hostile_family(number, text) for number, text in enumerate(PAYLOADS)]
    path = saved(tmp_path, page(*families, policy=policy))
    with opened(browser, path, size=size) as tab:
        assert tab.locator("article.family").count() == len(PAYLOADS)
        for link in tab.locator("#contents a").all()[::9]:
            link.click()
        tab.wait_for_timeout(300)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert tab.evaluate("[...document.querySelectorAll('.view')].every((element) => element.offsetHeight > 0)")
        assert_calm(tab)


@pytest.mark.slow
def test_views_stand_beside_each_other_and_below_each_other_on_a_phone(browser, tmp_path, text):
    path = saved(tmp_path, text)
    boxes = "() => [...document.querySelectorAll('.view')].map((view) => view.getBoundingClientRect().toJSON())"
    with opened(browser, path) as tab:
        rectangles = tab.evaluate(boxes)
        assert len({box["top"] for box in rectangles}) == 1
        assert len({box["left"] for box in rectangles}) == 4
        # Questions, steps and answers each begin at one height.
        tops = "(view) => [...view.children].map((cell) => cell.offsetTop)"
        assert len({tuple(view.evaluate(tops)) for view in tab.locator(".view").all()}) == 1
    with opened(browser, path, size=PHONE) as tab:
        assert len({box["left"] for box in tab.evaluate(boxes)}) == 1
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(browser, tmp_path, scheme):
    path = saved(tmp_path, page(full_family(), hostile_family(1, "odd")))
    with opened(browser, path, scheme=scheme) as tab:
        colours = {tuple(element) for element in tab.evaluate(COLOURS)}
    assert len(colours) > 8
    for ink, paper, where in sorted(colours):
        assert contrast(ink, paper) >= 4.5, (ink, paper, where, contrast(ink, paper))


@pytest.mark.slow
def test_on_paper_findings_are_unfolded(browser, tmp_path, text):
    path = saved(tmp_path, text)
    with opened(browser, path) as tab:
        tab.evaluate("document.querySelectorAll('details').forEach((element) => { element.open = false; })")
        part = tab.locator(".told-part").first
        assert not part.is_visible()
        tab.emulate_media(media="print")
        assert part.is_visible()
