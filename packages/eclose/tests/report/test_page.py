"""The page as a file: whole, equal for equal input, and saying nothing a value told it to say."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from eclose.diagnosis.show_invisible import reveal_invisible_chars
from eclose.report.context import NOT_VALIDATED, ReportContext
from eclose.report.formats import html_page as module
from eclose.report.formats.html_page import render_report_page
from tests.report.hostile import PAYLOADS, hostile_case, hostile_cases, hostile_notes
from tests.report.making import make_diagnosis
from tests.report.test_sections import agreeing

TEXTS = files(module.__package__) / "texts"
VOID = {"meta", "link", "input", "br", "line", "rect", "circle"}


class Skeleton(HTMLParser):
    """The elements of a page and their attributes, and whether they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text(diagnosis, cases):
    return render_report_page(diagnosis, cases)


@pytest.mark.slow
def test_equal_input_gives_equal_bytes(text, diagnosis, cases):
    assert render_report_page(diagnosis, list(cases)) == text


@pytest.mark.slow
def test_all_parts_are_there_and_every_element_is_closed(text):
    skeleton = Skeleton(text)
    assert skeleton.open == []
    ids = {attributes.get("id") for _, attributes in skeleton.elements}
    assert {"headline", "evidence-first", "plots", "tables", "explorer", "glossary", "index", "details-0"} <= ids
    assert {f"table-{key}" for key in ("metrics", "evidence", "failures", "joint", "codes", "answers")} <= ids
    assert len(skeleton.named("h1")) == 1
    assert skeleton.named("html") == [{"lang": "en"}]


def test_headline_figures_are_in_the_page(text, diagnosis):
    gap = diagnosis.overall.composition.groups["gap"]
    assert re.search(rf'<a [^>]*href="#outcome=gap"[^>]*>(at least )?{gap} responses</a>', text)
    assert text.count("the judge&#39;s own figure, not validated") == 1
    for kind in ("reliable", "unsound"):
        assert f'href="#outcome={kind}" aria-label="Show these responses' in text


def test_the_first_screen_has_its_order(text):
    """The number of responses, those in the gap, the kinds, the worst example, the systems, and then validation."""
    parts = (
        "96 responses to", 'class="finding k-gap"', 'class="parts"', 'class="example k-gap_', 'id="sides"',
        'class="finding k-reliable"', 'id="validation"', 'id="evidence-first"',
    )  # fmt: skip
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)


def test_a_card_holds_one_number(text):
    cards = re.findall(r'<article class="finding k-(?:reliable|unsound|undecided)">.*?</article>', text, re.DOTALL)
    assert len(cards) >= 2
    for card in cards:
        words = re.sub(r"<[^>]+>", " ", re.sub(r"<span>.*?</span>", "", card))
        assert len(re.findall(r"\d+(?:\.\d+)?", words)) <= 2, words  # two for bounds


@pytest.mark.slow
def test_every_warning_is_a_link(diagnosis, cases):
    context = ReportContext(
        left_out=[("r9", "it was not judged")], stale=["responses.jsonl changed"], selected=["Only the band."]
    )
    html = render_report_page(make_diagnosis(cases[:8]), cases[:8], context)
    skeleton = Skeleton(html)
    ids = {attributes.get("id") for _, attributes in skeleton.elements}
    warnings = re.findall(r'<(p|div) class="trust warn"(?! role="alert" hidden)[^>]*>(.*?)</\1>', html, re.DOTALL)
    texts = [body for _, body in warnings if "needs JavaScript" not in body and body.strip()]
    assert len(texts) >= 5
    for body in texts:
        assert body.count("<a ") >= 1, body
    for target in re.findall(r'<a [^>]*href="#([^"=]+)"', html):
        assert target in ids, target


def test_counts_of_steps_are_not_links_to_responses(text, diagnosis):
    for code, steps in diagnosis.local_failures.items():
        responses = diagnosis.local_failure_responses[code]
        bar = re.search(rf'{code.value} [a-z ]+</span> <span class="number">{steps} steps?.*?</span>', text)
        assert re.search(rf'href="#code={code.value}">{responses} response', bar[0])


def test_numbers_and_units_do_not_part(text):
    assert not re.search(r"\d %", re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL))
    assert re.search("\\d\u00a0%\u00a0\\[", text)


def test_responses_come_before_tables_and_only_the_first_table_is_open(text):
    assert text.index('id="headline"') < text.index('id="plots"') < text.index('id="explorer"')
    assert text.index('id="explorer"') < text.index('id="tables"')
    tables = [element for element in Skeleton(text).named("details") if element.get("class") == "table"]
    assert [element["id"] for element in tables if "open" in element] == ["table-metrics"]
    assert len(tables) > 6


def test_the_policy_names_the_script_and_the_style_and_nothing_else(text):
    skeleton = Skeleton(text)
    (policy,) = [
        element["content"]
        for element in skeleton.named("meta")
        if element.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for name, tag in (("explorer.js", "script"), ("page.css", "style")):
        source = (TEXTS / name).read_text("utf-8")
        assert f"<{tag}>{source}</{tag}>" in text
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy


def test_nothing_is_fetched_from_anywhere(text):
    skeleton = Skeleton(text)
    for _, attributes in skeleton.elements:
        for name in ("src", "href", "action", "data", "srcset", "style"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,"
    assert "url(" not in text.replace("url(#hatch)", "").replace("URLSearchParams(", "")
    assert "@import" not in (TEXTS / "page.css").read_text("utf-8")


def test_our_texts_cannot_end_their_elements_and_never_write_markup():
    script, style = ((TEXTS / name).read_text("utf-8") for name in ("explorer.js", "page.css"))
    for source in (script, style):
        assert "</" not in source
        assert "<!--" not in source
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        'setTimeout("',
    ):
        assert word not in script
    assert len(script.encode()) < 33_000
    assert "safe" not in re.findall(r"\|\s*(\w+)", (TEXTS / "page.html").read_text("utf-8"))


def test_a_judge_nobody_checked_is_named_right_after_the_result(text, diagnosis, cases):
    assert text.index('id="headline"') < text.index(NOT_VALIDATED) < text.index('id="evidence-first"')
    assert re.search(r'id="validation">[^\n]*href="#trust"', text)
    validated = render_report_page(
        diagnosis, cases, ReportContext(validation="Agrees with people on 91 of 100.", validated=True)
    )
    assert NOT_VALIDATED not in validated
    assert "Agrees with people on 91 of 100." in validated
    html = render_report_page(
        diagnosis, cases, ReportContext(validation="On 40.", validated=True, agreement=agreeing(4))
    )
    assert html.index('id="trust"') < html.index("least about A (pursues the question)")
    assert 'href="#table-agreement"' in html
    assert 'id="table-agreement"' in html


@pytest.mark.slow
@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_hostile_text_adds_no_element_and_no_attribute(payload):
    """The same page with a harmless word in every place has the same skeleton."""
    shapes = []
    for word in (payload, "harmless"):
        hostile = [hostile_case(number, word) for number in range(3)]
        page_html = render_report_page(make_diagnosis(hostile, resamples=5), hostile, hostile_notes(word))
        page_html.encode()
        shapes.append([(tag, sorted(attributes)) for tag, attributes in Skeleton(page_html).elements])
    assert shapes[0] == shapes[1]


@pytest.mark.slow
def test_what_acts_without_being_seen_is_shown_by_name():
    assert reveal_invisible_chars("a\u202eb\u200bc\x00d\U000e0041") == "a⟨U+202E⟩b⟨U+200B⟩c⟨U+0000⟩d⟨U+E0041⟩"
    assert reveal_invisible_chars("one\r\ntwo\rthree") == "one\ntwo⟨U+000D⟩three"
    assert reveal_invisible_chars("tab\tline\nد‌ر 👩‍🚀 é") == "tab\tline\nد‌ر 👩‍🚀 é"
    page_html = render_report_page(
        make_diagnosis(hostile_cases(), resamples=5), hostile_cases(), hostile_notes("a\u202eb\x00")
    )
    assert "a⟨U+202E⟩b⟨U+0000⟩" in page_html
    assert not re.search("[\x00\u202e\u2066-\u2069\ufeff]", page_html)


def test_a_response_costs_little_room(text, cases):
    """Without the passages, which are stored once."""
    blocks = sum(len(block) for block in re.findall(r'id="(?:index|details-\d+)">([^<]*)<', text))
    assert blocks / len(cases) < 700
