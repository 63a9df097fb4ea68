"""Replacement of invisible characters by their code points, for every text that people read."""

from __future__ import annotations

import re

# Control characters, direction overrides, zero-width characters and tags. The two joiners U+200C and U+200D are not
# among them: Persian, Indic scripts and emoji are written with them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff\ufffe\uffff]"
)


def reveal_invisible_chars(text: str) -> str:
    """Return the text with every invisible character replaced by its code point, such as ``⟨U+202E⟩``.

    >>> reveal_invisible_chars("a\\u202eb")
    'a⟨U+202E⟩b'
    """
    return _INVISIBLE.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text.replace("\r\n", "\n"))
