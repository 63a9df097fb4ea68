"""Characters that act without being seen, made visible wherever a text is shown to people."""

from __future__ import annotations

import re

# Controls, direction overrides, zero-width ones, tags. The two joiners stay: Persian, Indic scripts and emoji are
# written with them.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff\ufffe\uffff]"
)


def visible(text: str) -> str:
    """The text with every character that acts without being seen replaced by its name, such as ``⟨U+202E⟩``.

    >>> visible("a\\u202eb")
    'a⟨U+202E⟩b'
    """
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text.replace("\r\n", "\n"))
