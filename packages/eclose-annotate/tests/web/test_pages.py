"""Pages: what they are made of and nothing else, every value escaped, and nothing that the policy would forbid."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from jinja2 import UndefinedError

from eclose.diagnosis.show_invisible import reveal_invisible_chars
from eclose.prompts.material_json import DisclosedPassage
from eclose_annotate.forms import PASSES_BY_TASK_KIND, AnnotationTaskKind, FormProblem
from eclose_annotate.people import passwords
from eclose_annotate.queues import TaskProgress
from eclose_annotate.visible import AnnotatorReferenceMaterial
from eclose_annotate.web import field_texts, pages
from eclose_annotate.web.lead import CONFIRMED_CHANGES
from tests.report.hostile import PAYLOADS
from tests.web.making import (
    ADJUDICATOR,
    CSRF,
    KEY,
    TASK,
    a_board,
    agreement,
    dashboard,
    given,
    material,
    plain_pages,
    sheet,
    work,
    work_pages,
)

WORK = AnnotationTaskKind.RESPONSE, AnnotationTaskKind.SHORT, AnnotationTaskKind.SCREENING, AnnotationTaskKind.FAMILY
FORMS = [(kind, form) for kind in WORK for form in PASSES_BY_TASK_KIND[kind]]


class Reader(HTMLParser):
    """All elements of a page with their attributes, and its text."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag, **wanted):
        return [attrs for name, attrs in self.elements if name == tag and wanted.items() <= attrs.items()]


@pytest.fixture(scope="module")
def everything():
    return {**plain_pages(), **work_pages()}


@pytest.mark.slow
def test_no_page_has_anything_inline_or_from_elsewhere(everything):
    for name, html in everything.items():
        read = Reader(html)
        assert not read.all("style"), name
        for tag, attrs in read.elements:
            assert "style" not in attrs, (name, tag)
            assert not [attr for attr in attrs if attr.startswith(("on", "hx-on"))], (name, tag)
            for attr in ("src", "href", "action", "hx-post", "formaction"):
                assert (attrs.get(attr) or "/").startswith(("/", "#")), (name, tag, attrs)
        assert all(script.get("src", "").startswith("/static/") for script in read.all("script")), name


def test_every_form_that_posts_brings_its_token(everything):
    for name, html in everything.items():
        parts = re.findall(r'<form [^>]*method="post".*?</form>', html, re.DOTALL)
        assert len(parts) == len(re.findall(r'method="post"', html)), name
        for part in parts:
            token = "" if name in ("login", "error") else CSRF
            assert f'name="csrf" value="{token}"' in part, name


def test_every_control_has_a_label(everything):
    for name, html in everything.items():
        read = Reader(html)
        labelled = {label.get("for") for label in read.all("label")}
        for attrs in read.all("input") + read.all("select"):
            if attrs.get("type") in ("hidden", "radio", "checkbox") or "hidden" in attrs or name == "dashboard":
                continue
            assert attrs["id"] in labelled, (name, attrs)
        identities = [attrs["id"] for _, attrs in read.elements if "id" in attrs]
        assert len(identities) == len(set(identities)), name


def test_a_missing_value_is_an_error_and_not_a_blank():
    with pytest.raises(UndefinedError):
        pages.render_annotation_page("login.html", project="x", person=None, csrf=None, name="")


def test_a_template_may_be_given_a_name():
    assert 'value="ann"' in pages.render_annotation_page("login", **given(None, name="ann", problem=None))


@pytest.mark.parametrize(("kind", "form"), FORMS, ids=lambda one: getattr(one, "name", one))
def test_a_form_has_one_group_for_each_field_and_one_radio_for_each_choice(kind, form):
    read = Reader(work(sheet(kind, form.name, steps=4)))
    groups: dict[str, list[str]] = {}
    for radio in (element for element in read.all("input", type="radio") if element["name"] != "kind"):
        groups.setdefault(radio["name"], []).append(radio["value"])
    entries = 4 if form.each_step else 1
    assert groups == {f"{n}.{field.name}": list(field.choices) for n in range(1, entries + 1) for field in form.fields}
    posts = [attrs for attrs in read.all("form", method="post") if "hx-post" in attrs]
    assert [(post["action"], post["hx-post"], post["hx-swap"]) for post in posts] == [
        (f"/tasks/{TASK}/{form.name}", f"/tasks/{TASK}/{form.name}/draft", "none")
    ]
    assert read.all("input", name="key", value=KEY)
    assert len(read.all("fieldset")) == len(groups)


def test_every_choice_shows_its_key():
    for kind, form in FORMS:
        html = work(sheet(kind, form.name, steps=2))
        pairs = re.findall(r'<label class="choice"><input [^>]*data-key="(.)"[^>]*> <kbd>(.)</kbd>', html)
        assert len(pairs) == html.count('name="1.') + html.count('name="2.')
        assert all(key == label for key, label in pairs)


def test_each_pass_says_what_the_others_show_and_shows_no_more():
    instance, _ = material()
    reference, answer = "a reference that no passage has", "an answer that no step has"
    assert reference not in str(instance)
    for name, answers, references in (("A", 0, 0), ("B", 0, 0), ("C", 1, 0), ("D", 1, 1)):
        disclosed = sheet(name=name).material
        if name in "CD":
            values = {part: getattr(disclosed, part) for part in ("question", "evidence", "trace")}
            more = {"reference": reference} if name == "D" else {}
            disclosed = type(disclosed)(**values, answer=answer, **more)
        html = work(sheet(name=name, material=disclosed))
        assert html.count(answer) == answers
        assert html.count(reference) == references
        read = Reader(html)
        assert [item.get("class") for item in read.all("li") if item.get("title", "").count(": shows ")] == [
            "done" if other < name else "now" if other == name else "later" for other in "ABCD"
        ]
    # Steps have controls in the first pass and nowhere else.
    assert [len(Reader(work(sheet(name=name))).all("li", **{"class": "step"})) for name in "ABCD"] == [8, 0, 0, 0]


def test_nothing_tells_whose_response_it_is():
    instance, response = material()
    for html in work_pages().values():
        # Ids of the world are short, so they are looked for as values of their own.
        assert f'"{instance.id}"' not in html
        assert response.id not in html
        assert response.source is None or response.source.model not in html


def test_what_was_filled_in_is_filled_in_again():
    read = Reader(
        work(sheet(steps=3), entries=({"substantive": "no"}, {"substantive": "yes", "sound": "no", "failure": "L3"}))
    )
    radios = read.all("input", type="radio")
    checked = [(radio["name"], radio["value"]) for radio in radios if "checked" in radio and radio["name"] != "kind"]
    assert checked == [("1.substantive", "no"), ("2.substantive", "yes"), ("2.sound", "no"), ("2.failure", "L3")]


def test_problems_are_told_where_they_are_and_above():
    html = work(
        sheet(steps=2),
        problems=(
            FormProblem("sound", "is not decided.", 2),
            FormProblem("form", "1 entries, where there are 2 to make."),
        ),
    )
    assert html.count("Step 2: “Is it sound?” is not decided.") == 2
    assert '<a href="#f-2-sound">' in html
    assert html.count("field wrong") == 1
    assert "1 entries, where there are 2" in html


def test_others_are_anonymous_and_only_an_adjudicator_has_any():
    others = (({"substantive": "no"},), ({"substantive": "yes", "sound": "no", "failure": "L2"},))
    html = work(sheet(steps=1, others=others), person=ADJUDICATOR)
    remarks = [
        re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", paragraph)).strip()
        for paragraph in re.findall(r'<p class="others">(.*?)</p>', html, re.DOTALL)
    ]
    assert remarks == ["First: no Second: yes", "Second: no", "Second: L2"]
    assert 'class="others"' not in work(sheet(steps=1))


def test_steps_on_which_people_differ_are_marked():
    agreed, doubted = {"substantive": "yes", "sound": "yes"}, {"substantive": "yes", "sound": "no", "failure": "L1"}
    html = work(sheet(steps=3, others=((agreed, agreed, doubted), (agreed, doubted, doubted))), person=ADJUDICATOR)
    read = Reader(html)
    assert [element["id"] for element in read.all("li", **{"class": "step differs"})] == ["s-2"]
    assert html.count("they differ") == 1
    marked = [element["id"] for element in read.all("fieldset") if "differs" in element["class"]]
    assert marked == ["f-2-sound", "f-2-failure"]
    assert "differs" not in work(sheet(steps=3))


def test_citations_of_passages_are_links():
    passages = tuple(DisclosedPassage(index, "t", "x") for index in (0, 1, 12))
    text = "As [12] says, and passage 1; see [0, 12], [7], 1994 and Passages 12."
    parts = pages.split_citations(text, passages)
    assert "".join(part.text for part in parts) == text
    assert [(part.text, part.passage) for part in parts if part.passage is not None] == [
        ("[12]", 12), ("passage 1", 1), ("0", 0), ("12", 12), ("Passages 12", 12),
    ]  # fmt: skip
    material = AnnotatorReferenceMaterial("Where?", passages, text, None, "d")
    html = work(sheet(name="D", material=material))
    assert '<a class="cite" href="#p-12">[12]</a>' in html
    assert [link["href"] for link in Reader(html).all("a", **{"class": "cite"})] == [
        "#p-12",
        "#p-1",
        "#p-0",
        "#p-12",
        "#p-12",
    ]


def test_a_pass_has_one_name_everywhere():
    guideline = plain_pages()["guideline"]
    for kind, form in FORMS:
        title = field_texts.PASS_TEXTS[kind, form.name].title
        html = work(sheet(kind, form.name, steps=2))
        assert f"<b>{form.name}</b> <span>{title}</span>" in html
        assert f"<h1>{form.name} · {title}</h1>" in html
        if kind is not AnnotationTaskKind.SHORT:
            assert f'<h2 id="h-{form.name}">{form.name} · {title}</h2>' in guideline


def test_own_labels_are_told_with_the_question_and_what_is_open():
    html = plain_pages()["finished"]
    text = " ".join(Reader(html).text.split())
    assert "Task 211 Where was the director of the film" in text
    assert "1 not substantive 2 sound 3 L2" in text
    assert "correct, not complete" in text
    assert html.count('href="/amend/rEo-1"') == 5


def test_an_amendment_has_no_drafts_and_goes_where_it_is_told():
    html = work_pages()["amend"]
    assert "hx-post" not in html
    assert "htmx.min.js" not in html
    assert 'action="/amend/rEo-1"' in html
    assert "Amend B" in html


def test_no_answer_is_said_to_be_none():
    material = AnnotatorReferenceMaterial("Where?", (DisclosedPassage(0, "a", "b"),), "c", None, "d", ("e", "f"))
    text = " ".join(Reader(work(sheet(name="D", material=material))).text.split())
    assert "No answer was submitted." in text
    assert "d also: e; f" in text


def test_a_family_shows_what_was_changed():
    page = sheet(AnnotationTaskKind.FAMILY, "F")
    html = work(page)
    read = Reader(html)
    material = page.material
    for text in (material.edited_question, material.question_answer, *(step.text for step in material.question_steps)):
        assert text in "".join(read.text.split("\n"))
    old = next(passage for passage in material.passages if passage.index == material.edited_passage.index)
    gone = [piece.text for piece in pages.mark_new_words(old.text, material.edited_passage.text) if piece.mark == "new"]
    came = [piece.text for piece in pages.mark_new_words(material.edited_passage.text, old.text) if piece.mark == "new"]
    assert gone
    assert all(f"<del>{text}</del>" in html for text in gone)
    assert all(f"<ins>{text}</ins>" in html for text in came)


def test_the_dashboard_has_every_form_and_export():
    read = Reader(dashboard())
    actions = {post_form["action"] for post_form in read.all("form", method="post")}
    assert {"/dashboard/invite", "/dashboard/export"} <= actions
    links = {anchor["href"] for anchor in read.all("a")}
    # Whatever shuts a person out is a link to a page that asks; letting in is not.
    assert {f"/dashboard/people/a1/{change}" for change in CONFIRMED_CHANGES} <= links
    assert {action for action in actions if "/people/" in action} == {"/dashboard/people/a4/activate"}
    # Nobody locks themselves out, and who has not come yet cannot be logged out.
    assert not [link for link in links if link.startswith("/dashboard/people/lead/") or link.endswith("/a6/end")]
    assert "undefined, unanimous" in agreement()
    assert "Two people have not finished the same task yet." in agreement(pairs=(), decisions=(), persons=(), times=())
    assert "No tasks are assigned yet" in dashboard(board=a_board(people=(), queues=()))


def test_people_are_told_the_least_length_of_a_password_before_they_choose_one():
    for name in ("invitation", "account"):
        assert f"At least {passwords.SHORTEST} characters" in plain_pages()[name]


def test_home_says_what_is_next():
    base = {"receipt": None, "amendable": (), "take": False, "next_url": None, "undo": None}
    base |= {"guidelines": (), "practised": 7, "examples": 7, "awaiting_screening": 0, "must_practise": False}
    must_practise = {"must_practise": True, "practised": 5}
    cases = {
        "Begin": base | {"progress": TaskProgress(0, 5, None), "next_url": "/tasks/x"},
        "Next task": base | {"progress": TaskProgress(1, 5, None), "next_url": "/tasks/x"},
        "All tasks are finished": base | {"progress": TaskProgress(5, 5, 3.0)},
        "There is no task for you": base | {"progress": TaskProgress(0, 0, None)},
        "Take the next case": base | {"progress": TaskProgress(2, 3, 61.0), "take": True},
        "Practise first": base | {"progress": TaskProgress(0, 5, None), "next_url": "/tasks/x"} | must_practise,
    }
    for words_told, settings in cases.items():
        html = pages.render_annotation_page("home.html", **given(**settings))
        assert [other for other in cases if other in html] == [words_told]


@pytest.mark.slow
def test_hostile_text_stays_text():
    for text in PAYLOADS:
        material = AnnotatorReferenceMaterial(text, (DisclosedPassage(0, text, text),), text, text, text, (text,))
        html = work(sheet(name="D", material=material))
        tags = {tag for tag, _ in Reader(html).elements}
        assert not tags & {
            "img",
            "svg",
            "iframe",
            "object",
            "embed",
            "base",
            "style",
            "math",
            "video",
            "audio",
            "marquee",
        }
        assert reveal_invisible_chars(text).split("\n")[0].strip() in Reader(html).text


def test_markup_in_a_guideline_stays_text():
    html = pages.render_guideline("# Title\n\n<b onclick=x>bold</b> [a](javascript:x) ![i](y) *it*\n")
    assert html == ("<h3>Title</h3>\n<p>&lt;b onclick=x&gt;bold&lt;/b&gt; [a](javascript:x) ![i](y) <em>it</em></p>\n")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.4, "0 s"),
        (59.6, "1 min"),
        (96, "1 min 36 s"),
        (599, "9 min 59 s"),
        (1500, "25 min"),
        (12000, "3 h 20 min"),
        (62880, "17 h"),
    ],
)
def test_durations(seconds, told):
    assert pages.format_duration(seconds) == told


def test_moments():
    assert pages.format_stored_time("2026-11-15T18:49:02.120+00:00") == "2026-11-15 18:49 UTC"
    assert pages.format_stored_time("yesterday") == "yesterday"


def test_pieces_make_up_the_text():
    for text, other in (
        ("a b c", "a x c"),
        ("", "a"),
        ("a", ""),
        ("a  b", "a b"),
        ("one two. three", "One two, four three"),
    ):
        assert "".join(piece.text for piece in pages.mark_new_words(text, other)) == text
    pieces = pages.mark_new_words("by Ana Ruiz now", "by Bo Lund now")
    assert pieces == (("by ", "same"), ("Ana Ruiz", "new"), (" now", "same"))
    assert all(piece.mark == "same" for piece in pages.mark_new_words("a b", "a b"))


def test_keys_are_listed_once_each():
    keys = [key for names, _ in pages.KEYBOARD_SHORTCUTS for key in names if key != "–"]
    assert len(set(keys)) == len(keys)
    chosen = {choice.key for text in field_texts.FIELD_TEXTS.values() for choice in text.choices}
    assert chosen == set("yn12345")


def test_scripts_and_styles_are_short_and_never_make_markup_of_text():
    static = files("eclose_annotate.web") / "static"
    for name, most in (("annotate.js", 450), ("layout.js", 250), ("search.js", 200), ("annotate.css", 1450)):
        text = (static / name).read_text("utf-8")
        assert len(text.splitlines()) < most
        assert max(map(len, text.splitlines())) < (480 if name == "search.js" else 180)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert "Zero-Clause BSD" in (static / "htmx.LICENSE.txt").read_text("utf-8")
    assert 'version:"2.0' in (static / "htmx.min.js").read_text("utf-8")
