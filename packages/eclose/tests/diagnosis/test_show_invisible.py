"""What acts without being seen is shown."""

import pytest

from eclose.diagnosis.show_invisible import reveal_invisible_chars


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words\nin two lines\tand a tab", "plain words\nin two lines\tand a tab"),
        ("one\r\ntwo", "one\ntwo"),
        ("a\u202eb\u200bc\x1b[2J", "a⟨U+202E⟩b⟨U+200B⟩c⟨U+001B⟩[2J"),
        ("\ud800\ufeff\U000e0041", "⟨U+D800⟩⟨U+FEFF⟩⟨U+E0041⟩"),
        ("می\u200cخواهم 👩\u200d🔬", "می\u200cخواهم 👩\u200d🔬"),
    ],
)
def test_characters_that_act_unseen_are_named(text, shown):
    assert reveal_invisible_chars(text) == shown
