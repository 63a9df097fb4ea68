"""Packaged texts are locked, and rendering is strict."""

import json
from importlib.resources import files

import pytest

from eclose.prompts.locked_texts import GuidelineReader, PromptText, load_prompt_text

TEXTS = sorted(entry.name for entry in (files("eclose.prompts") / "texts").iterdir() if entry.name != "lock.json")


def test_no_text_changes_without_its_lock():
    """A changed text needs its new hash in texts/lock.json and a line in the changelog, in the same commit."""
    assert {name: load_prompt_text(name).hash for name in TEXTS} == json.loads(load_prompt_text("lock.json").text)


def test_rendering_fills_every_placeholder_once():
    text = PromptText("t", "{{a}} and {{b}} and {{a}}\n")
    assert text.render(a="{{b}}", b="y") == "{{b}} and y and {{b}}"


@pytest.mark.parametrize("values", [{}, {"a": "x", "c": "z"}, {"a": "x", "b": "y", "c": "z"}])
def test_missing_and_surplus_values_are_refused(values):
    with pytest.raises(ValueError, match="takes"):
        PromptText("t", "{{a}} {{b}}").render(**values)


def test_the_hash_is_of_what_is_said():
    assert PromptText("a", "x").hash == PromptText("b", "x").hash != PromptText("a", "y").hash


def test_each_reader_is_told_what_is_meant_for_them():
    text = PromptText(
        "t", "Both. [[models: Only\n\nmodels.]] Both.\n\n[[people: People.]]\n\n- Both[[people:  too]].\n"
    )
    assert text.text_for(GuidelineReader.MODELS) == "Both. Only\n\nmodels. Both.\n\n- Both.\n"
    assert text.text_for(GuidelineReader.PEOPLE) == "Both. Both.\n\nPeople.\n\n- Both too.\n"


@pytest.mark.parametrize("text", ["[[models: open", "closed]]", "[[robots: who?]]"])
def test_a_part_for_no_reader_is_refused(text):
    with pytest.raises(ValueError, match=r"robots|not closed"):
        PromptText("t", text).text_for(GuidelineReader.MODELS)


@pytest.mark.parametrize("name", [name for name in TEXTS if name.endswith(".md")])
def test_every_text_reads_well_for_both(name):
    for reader in GuidelineReader:
        text = load_prompt_text(name).text_for(reader)
        assert not any("  " in line.strip() or line != line.rstrip() for line in text.splitlines())
        assert "[[" not in text
        assert "\n\n\n" not in text
        assert text.rstrip("\n") + "\n" == text


def test_rules_of_the_paper_that_both_are_told():
    """Appendix A.3.2, where an earlier text was silent or wider."""
    texts = {
        name: load_prompt_text(f"judge_{name}.md")
        for name in ("soundness", "alignment", "closure", "completeness", "correctness")
    }
    for reader in GuidelineReader:
        rendered = {name: text.text_for(reader) for name, text in texts.items()}
        assert "tautology" in rendered["soundness"]
        assert "leave them uncombined" in rendered["alignment"]
        assert "A premise that stands only in the passages is missing." in rendered["closure"]
        assert "A premise that stands only in the passages is missing." in rendered["completeness"]
        assert "shorter" not in rendered["correctness"]
