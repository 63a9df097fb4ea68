"""Where words stand in a text, where they end, and where the same words stand in another spelling.

Made for English with names from everywhere: scripts that part words by spaces and scripts that do not. Knows no
synonyms, no surnames for full names, no dates in bare numbers.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A stretch of a text: the index of its first character, and the one behind its last."""

    start: int
    end: int

    def within(self, other: Place) -> bool:
        """Whether the other place covers this one."""
        return other.start <= self.start and self.end <= other.end

    def meets(self, other: Place) -> bool:
        """Whether the two share a character."""
        return self.start < other.end and other.start < self.end


def verbatim(text: str, part: str) -> Iterator[Place]:
    """Every place where the part stands, also where it overlaps itself."""
    start = text.find(part)
    while start >= 0:
        yield Place(start, start + len(part))
        start = text.find(part, start + 1)


_APOSTROPHES = frozenset("'’‘＇")
_HYPHENS = frozenset("-‐‑_")
_DIGITS = "0123456789"
_THOUSANDS = re.compile(r"\d{3}(?!\d)")
# Soft hyphen, joiners: within a word they are not seen.
_UNSEEN = frozenset("\u00ad\u200c\u200d\u2060")
# Scripts without spaces: a neighbour does not tell whether a word goes on. Thai to Myanmar, Khmer, Kana, Han.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc-\u30ff]{2}")
# Skin tones, tags, and the two vowels of Thai and Lao that are no marks.
_EXTENDING = re.compile("[\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\u0e33\u0eb3]")
_FLAGS = "".join(chr(code) for code in range(0x1F1E6, 0x1F200))
_VIRAMA = 9


def is_whole(text: str, place: Place) -> bool:
    """Whether no word, and no character made of several, goes on beyond the ends of the place."""
    return not any(_cuts_character(text, at) or _word_goes_on(text, at) for at in (place.start, place.end))


def _cuts_character(text: str, at: int) -> bool:
    """Whether a character as people see it, made of several, would be parted here.

    The rules of UAX 29, but for Hangul, whose letters make words as others do.
    """
    if not 0 < at < len(text):
        return False
    before, behind = text[at - 1], text[at]
    return bool(
        unicodedata.category(behind).startswith("M")
        or behind in "\u200c\u200d"
        or before == "\u200d"
        or before + behind == "\r\n"
        or _EXTENDING.match(behind)
        or (unicodedata.combining(before) == _VIRAMA and behind.isalpha())
        or (behind in _FLAGS and len(text[:at]) - len(text[:at].rstrip(_FLAGS)) & 1)
    )


def _word_goes_on(text: str, at: int, *, hyphens: bool = True) -> bool:
    """Whether a word goes on across this point; a hyphenated one does if asked."""
    if not 0 < at < len(text):
        return False
    before, behind = text[at - 1], text[at]
    if _in_word(before) and _in_word(behind):
        unspaced = _UNSPACED.match(before) or _UNSPACED.match(behind)
        return not unspaced or bool(_KATAKANA.match(before + behind))
    if _in_word(before):
        return _links(text, at, hyphens=hyphens)
    return _in_word(behind) and _links(text, at - 1, hyphens=hyphens)


def _in_word(sign: str) -> bool:
    return unicodedata.category(sign)[0] in "LNM" or sign in _UNSEEN


def _links(text: str, at: int, *, hyphens: bool) -> bool:
    """Whether the sign here makes one word of what stands on its two sides."""
    before, sign, behind = text[max(0, at - 1) : at], text[at], text[at + 1 : at + 2]
    if not before or not behind or not _in_word(before) or not _in_word(behind):
        return False
    numbers = before.isdigit() and behind.isdigit()
    if sign in _APOSTROPHES:
        # "Ada's" is Ada and a possessive; "O'Brien" and "don't" are one word.
        return behind not in "sS" or (at + 2 < len(text) and _in_word(text[at + 2]))
    if sign == ".":
        # "U.S." and "3.5"; but "He left.She stayed" lacks a space.
        return numbers or (before.isalpha() and behind.isalpha() and not (before.islower() and behind.isupper()))
    if sign == ",":
        return numbers and bool(_THOUSANDS.match(text, at + 1))
    if sign == ":":
        return numbers
    if sign == "–":
        return hyphens and numbers and _is_shortened(text, at)
    return hyphens and (sign in _HYPHENS or sign == "&" or (sign == "/" and numbers))


def _is_shortened(text: str, at: int) -> bool:
    """Whether the second number of a range leaves out what it shares with the first: 1998–99, but not 1939–1945."""
    before, behind = text[max(0, at - 8) : at], text[at + 1 : at + 9]
    return len(behind) - len(behind.lstrip(_DIGITS)) < len(before) - len(before.rstrip(_DIGITS))


# The same value in another spelling.


@dataclass(frozen=True, slots=True)
class _Word:
    form: str
    """What all spellings of the word have in common."""
    place: Place


_PLAIN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"})
_ACCENT = 200
"""Marks above and below have a combining class from here on; vowel signs and voicing marks, which make other letters,
lie below."""
_UNITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_SMALL = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"]
_SMALL_ORDINALS = "tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_UNIT_OF = {word: str(n) for n, word in enumerate(_UNITS, 1)} | {
    word: f"{n}{_ENDINGS.get(n, 'th')}" for n, word in enumerate(_ORDINALS, 1)
}
_NUMBERS = (
    _UNIT_OF
    | {word: str(n) for n, word in enumerate(_SMALL, 10)}
    | {word: f"{n}th" for n, word in enumerate(_SMALL_ORDINALS.split(), 10)}
    | {word: str(n) for n, word in zip(range(20, 100, 10), _TENS, strict=True)}
    | {word[:-1] + "ieth": f"{n}th" for n, word in zip(range(20, 100, 10), _TENS, strict=True)}
    | {"zero": "0"}
)
# "One of them" counts nothing.
del _NUMBERS["one"]

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    r"(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"\b(?:{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+(\d{{3,4}}))?|{_MONTH}\s+{_DAY}(?:,?\s+(\d{{3,4}}))?"
    r"|(\d{4})-(\d\d)-(\d\d))(?!\w)",
    re.IGNORECASE,
)


def spelled(text: str, old: str) -> Iterator[Place]:
    """Where the text has the words of the old one in any spelling, as whole words."""
    dates = bool(_DATE.search(old))
    wanted = _form(old, dates=dates)
    words = [word for word in _words(text, dates=dates) if word.form]
    for first, start in enumerate(words):
        run = ""
        for word in islice(words, first, None):
            run = _joined(run, word.form)
            if not wanted.startswith(run):
                break
            if run == wanted:
                place = Place(start.place.start, word.place.end)
                if not _is_other_word(old, text[place.start : place.end]):
                    yield place
                break


def same_spelled(one: str, other: str) -> bool:
    """Whether two texts differ in spelling alone. Where there are no words, nothing is the same."""
    form = _form(one, dates=True)
    return bool(form) and form == _form(other, dates=True)


def _form(text: str, *, dates: bool) -> str:
    """What all spellings of a text have in common."""
    form = ""
    for word in _words(text, dates=dates):
        form = _joined(form, word.form)
    return form


def _joined(run: str, form: str) -> str:
    """Spaces and signs between words do not count, except between two numbers."""
    return f"{run} {form}" if run[-1:].isdigit() and form[:1].isdigit() else run + form


def _is_other_word(old: str, found: str) -> bool:
    """Whether an abbreviation was taken for a small word: US and us, IT and it, WHO and who."""
    return old.isupper() and found.islower() and len(found) <= 4 and found.isalpha()


def _words(text: str, *, dates: bool) -> list[_Word]:
    """The words of a text; a whole date is one word if asked."""
    found, done = [], 0
    for match in _DATE.finditer(text) if dates else ():
        found += [*_plain_words(text, done, match.start()), _Word(_day(match), Place(*match.span()))]
        done = match.end()
    return [*found, *_plain_words(text, done, len(text))]


def _plain_words(text: str, start: int, end: int) -> Iterator[_Word]:
    """The words between two points, with number words in digits."""
    words = list(_folded_words(text, start, end))
    at = 0
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else None
        tens = _NUMBERS[word.form] if word.form in _TENS else ""
        unit = _UNIT_OF.get(following.form, "") if following else ""
        if tens and unit and following and text[word.place.end : following.place.start] in {"-", " ", "- "}:
            yield _Word(tens[0] + unit, Place(word.place.start, following.place.end))
            at += 1
        else:
            yield _Word(_NUMBERS.get(word.form, word.form), word.place)
        at += 1


def _folded_words(text: str, start: int, end: int) -> Iterator[_Word]:
    at = start
    while at < end:
        begin, at = at, at + 1
        if text[begin] == "&":
            yield _Word("and", Place(begin, at))
        elif _in_word(text[begin]):
            while at < end and (_cuts_character(text, at) or _word_goes_on(text, at, hyphens=False)):
                at += 1
            yield _Word(_folded(text[begin:at]), Place(begin, at))


def _folded(word: str) -> str:
    """A word without case, accents, apostrophes and the full stops of an abbreviation."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", word).casefold()).translate(_PLAIN)
    return "".join(
        sign
        for place, sign in enumerate(plain)
        if (_in_word(sign) and sign not in _UNSEEN and unicodedata.combining(sign) < _ACCENT)
        or (sign in ".:" and plain[place - 1].isdigit())
    )


def _day(match: re.Match[str]) -> str:
    """A date as year, month and day, whichever way it was written. The year may be missing."""
    day, month, year, other_month, other_day, other_year, *iso = match.groups()
    if iso[0]:
        return "@" + "-".join(iso)
    number = _MONTHS.index((month or other_month)[:3].lower()) + 1
    return f"@{year or other_year or ''}-{number:02}-{int(day or other_day):02}"
