"""The table of security items is whole and names tests that exist; and what has no better place is shown here."""

from __future__ import annotations

import ast
import re
from importlib.resources import files
from pathlib import Path

import pytest
from sqlalchemy import text

from eclose_annotate.project import AnnotationProjectSettings, create_annotation_project
from tests.web.canaries import NOBODY, study
from tests.web.crowd import crowd

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "security" / "annotation.md"
CODE = sorted((ROOT / "packages" / "eclose-annotate" / "src").rglob("*.py"))
assert CODE
STATIC = files("eclose_annotate.web") / "static"
TEXTS = files("eclose_annotate.web") / "texts"

LEVEL_1 = (  # noqa: SIM905 - numbers read better in rows
    "1.2.1 1.2.2 1.2.3 1.2.4 1.2.5 1.3.1 1.3.2 1.5.1 2.1.1 2.2.1 2.2.2 2.3.1 3.2.1 3.2.2 3.3.1 3.4.1 3.4.2 3.5.1 3.5.2"
    " 3.5.3 4.1.1 4.4.1 5.2.1 5.2.2 5.3.1 5.3.2 6.1.1 6.2.1 6.2.2 6.2.3 6.2.4 6.2.5 6.2.6 6.2.7 6.2.8 6.3.1 6.3.2 6.4.1"
    " 6.4.2 7.2.1 7.2.2 7.2.3 7.2.4 7.4.1 7.4.2 8.1.1 8.2.1 8.2.2 8.3.1 9.1.1 9.1.2 9.1.3 9.2.1 10.4.1 10.4.2 10.4.3"
    " 10.4.4 10.4.5 11.3.1 11.3.2 11.4.1 12.1.1 12.2.1 12.2.2 13.4.1 14.2.1 14.3.1 15.1.1 15.2.1 15.3.1"
).split()
MORE = (  # noqa: SIM905 - as above
    "1.5.2 2.3.3 3.3.2 3.3.3 3.3.4 3.4.3 3.4.4 3.4.5 3.4.6 3.4.8 6.3.3 6.3.8 7.3.1 7.3.2 7.4.5 8.2.3 11.4.2 13.4.2"
    " 13.4.5 14.2.6 14.3.2 15.3.3 15.4.2 16.2.1 16.2.2 16.2.5 16.3.1 16.3.2 16.3.3 16.4.1 16.4.2 16.5.1 16.5.3"
).split()
WITHOUT_TEST = {"not applicable", "this page", "out of scope", "left to the proxy", "left to the release"}


def rows():
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if re.match(r"\| \d+\.\d+\.\d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names_of_tests():
    names = set()
    for path in (ROOT / "packages" / "eclose-annotate" / "tests").rglob("test_*.py"):
        names |= {
            node.name for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)
        }
    return names


def test_every_item_has_its_row():
    items = [row[0] for row in rows()]
    assert len(LEVEL_1) == 70
    assert len(items) == len(set(items))
    assert set(items) == {*LEVEL_1, *MORE}
    assert [row[0] for row in rows() if row[1] == "1"] == [item for item in items if item in LEVEL_1]


def test_every_test_that_is_named_exists():
    test_names = names_of_tests()
    for item, _, measure, proof in rows():
        named = re.findall(r"`(\w+)`", proof)
        assert measure
        assert named or proof in WITHOUT_TEST, item
        assert [name for name in named if name not in test_names] == [], item


def calls(path):
    """The names of all that is called in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def test_nothing_is_evaluated_unpickled_or_started():
    banned = re.compile(
        r"eval|exec|compile|__import__|os\.system|os\.popen|subprocess\..*|(c?pickle|marshal|dill|yaml)\..*"
    )
    for path in CODE:
        assert not [name for _, name in calls(path) if banned.fullmatch(name)], path
    assert not re.search(r"\beval\(|new Function|setTimeout\(\s*[\"']", (STATIC / "annotate.js").read_text("utf-8"))
    assert '"allowEval": false' in (ROOT / "packages/eclose-annotate/src/eclose_annotate/web/pages.py").read_text(
        "utf-8"
    )


def test_statements_are_constants():
    """A statement is a text known before anybody asks: put together, if at all, of constants with capital names."""
    for path in CODE:
        for call, name in calls(path):
            if name not in ("text", "connection.exec_driver_sql"):
                continue
            parts = [
                node for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.FormattedValue)
            ]
            for part in parts:
                names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
                # The statements of a table, put together once at import.
                allowed = ("query", "PersonRole", "AnnotationTaskKind", "AnnotatorPool")
                assert all(name.isupper() or name in allowed for name in names), (path, ast.unparse(call))


@pytest.mark.slow
def test_only_good_hashes_are_used():
    for path in CODE:
        used = {name for _, name in calls(path) if re.fullmatch(r"(hashlib|hmac)\.\w+", name)}
        assert used <= {"hashlib.sha256", "hmac.new", "hmac.compare_digest"}, path


def test_templates_never_trust_a_text():
    for template in TEXTS.iterdir():
        assert not re.search(r"\|\s*safe|autoescape\s+false|Markup", template.read_text("utf-8")), template.name


def test_the_script_writes_no_html():
    for name in ("annotate.js", "search.js"):
        words = (STATIC / name).read_text("utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment", words
        )


def test_the_browser_keeps_no_material():
    """Two settings of the page are kept, by name; and htmx keeps no pages."""
    words = (STATIC / "annotate.js").read_text("utf-8")
    keys = set(re.findall(r"\bkeep\(\s*[\"'](\w+)", words)) | set(re.findall(r"\bkept\(\s*[\"'](\w+)", words))
    assert keys <= {"keys", "theme", "excerpt", "excerpts", "guide"}
    assert not re.search(r"sessionStorage|indexedDB|caches\.", words)
    assert '"historyCacheSize": 0' in (ROOT / "packages/eclose-annotate/src/eclose_annotate/web/pages.py").read_text(
        "utf-8"
    )


def test_password_fields_hide_and_let_paste(tmp_path):
    with study(tmp_path / "study") as small_study, crowd(small_study) as everybody:
        pages = [everybody.get(NOBODY, "/login"), everybody.get("ann", "/account")]
        pages.append(everybody.get(NOBODY, f"/invitation/{small_study.invited}"))
    for page in pages:
        fields = re.findall(r"<input[^>]*password[^>]*>", page.text)
        assert fields
        for field in fields:
            assert 'type="password"' in field
            assert re.search(r'autocomplete="(current|new)-password"', field)
            assert not re.search(r"onpaste|readonly|maxlength", field)
    assert "paste" not in (STATIC / "annotate.js").read_text("utf-8")


def test_there_is_no_account_that_nobody_made(tmp_path):
    project = create_annotation_project(tmp_path / "study", AnnotationProjectSettings("study"))
    with project.reading() as connection:
        counted = [
            connection.execute(text(f"SELECT count(*) FROM annotate_{name}")).scalar_one()
            for name in ("people", "invitations", "sessions")
        ]
    project.close()
    assert counted == [0, 0, 0]


@pytest.mark.parametrize("heading", ["What is protected", "What is expected of a form", "What is logged"])
def test_the_page_says_what_the_table_refers_to(heading):
    assert f"## {heading}" in PAGE.read_text("utf-8")
