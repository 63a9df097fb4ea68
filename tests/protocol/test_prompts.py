"""Packaged texts are locked, and rendering is strict."""

import pytest

from eclosure.protocol.prompts import PromptText, actual_hashes, locked_hashes


def test_no_text_changes_without_its_lock():
    """A changed text needs its new hash in texts/lock.json and a line in the changelog, in the same commit."""
    assert actual_hashes() == locked_hashes()


def test_rendering_fills_every_placeholder_once():
    text = PromptText("t", "{{a}} and {{b}} and {{a}}\n")
    assert text.render(a="{{b}}", b="y") == "{{b}} and y and {{b}}"


@pytest.mark.parametrize("values", [{}, {"a": "x", "c": "z"}, {"a": "x", "b": "y", "c": "z"}])
def test_missing_and_surplus_values_are_refused(values):
    with pytest.raises(ValueError, match="takes"):
        PromptText("t", "{{a}} {{b}}").render(**values)


def test_the_hash_is_of_what_is_said():
    assert PromptText("a", "x").hash == PromptText("b", "x").hash != PromptText("a", "y").hash
