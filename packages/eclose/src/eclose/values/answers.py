"""Answer matching without a judge: the deterministic matcher of appendix D.5.3.

The matcher ignores case, punctuation, articles and a surrounding phrase. It has no synonyms, and letters beyond ASCII
count as punctuation, because the rule was written for English.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_ANSWER_LABEL = re.compile(r"^\s*final answer:", re.IGNORECASE)
_PUNCTUATION = re.compile(r"[^a-z0-9\s]")
_ARTICLES = frozenset({"a", "an", "the"})


def normalize_answer(answer: str) -> tuple[str, ...]:
    """Return the tokens of an answer that count for matching; N(a) in the paper.

    Args:
        answer: The answer as it was submitted; a leading ``Final answer:`` is dropped.

    Returns:
        Lowercase tokens without punctuation and articles; empty where no token remains.

    Examples:
        >>> normalize_answer("Final answer: The 'Moonstruck' (film)")
        ('moonstruck', 'film')
    """
    # Punctuation becomes a blank rather than nothing: "God's" gives the two tokens "god" and "s".
    text = _PUNCTUATION.sub(" ", _ANSWER_LABEL.sub("", answer).lower())
    return tuple(token for token in text.split() if token not in _ARTICLES)


def contains_token_span(tokens: tuple[str, ...], span: tuple[str, ...]) -> bool:
    """Return whether the tokens contain the span unbroken; an empty span is contained in nothing."""
    size = len(span)
    return bool(size) and any(tokens[start : start + size] == span for start in range(len(tokens) - size + 1))


def match_answer(answer: str, reference: str) -> bool:
    """Return whether one of the two answers, normalised, is a span of the other.

    Args:
        answer: The submitted answer.
        reference: The reference answer. The rule is symmetric: swapping the two changes nothing.

    Returns:
        True where they match; False where either has no token after normalisation.

    Examples:
        >>> match_answer("the New York Yankees", "Yankees")
        True
        >>> match_answer("GDR", "East Germany")
        False
    """
    submitted, expected = normalize_answer(answer), normalize_answer(reference)
    # In both directions, so that a fuller name and a shortened one match (appendix D.5.3).
    return contains_token_span(submitted, expected) or contains_token_span(expected, submitted)


def match_any_answer(answer: str, accepted: Iterable[str]) -> bool:
    """Return whether the answer matches at least one accepted answer; the paper does so for checkpoint selection only.

    Args:
        answer: The submitted answer.
        accepted: The reference and its aliases.

    Returns:
        True where ``match_answer`` holds for one of them; False for an empty collection.

    Examples:
        >>> match_any_answer("GDR", ["East Germany", "GDR"])
        True
    """
    return any(match_answer(answer, reference) for reference in accepted)


# Search for words in a text: verbatim, at word boundaries, and in other spellings.
#
# Made for English with names of any language, in scripts with and without spaces between words. Synonyms, surnames for
# full names and dates in bare numbers are not recognised.


@dataclass(frozen=True, slots=True, order=True)
class TextSpan:
    """A half-open range of character indices in a text."""

    start: int
    end: int

    def is_within(self, other: TextSpan) -> bool:
        """Return whether the other span covers this one."""
        return other.start <= self.start and self.end <= other.end

    def overlaps(self, other: TextSpan) -> bool:
        """Return whether the two spans share a character."""
        return self.start < other.end and other.start < self.end


def find_exact_spans(text: str, part: str) -> Iterator[TextSpan]:
    """Yield every span equal to the part, overlapping ones included."""
    start = text.find(part)
    while start >= 0:
        yield TextSpan(start, start + len(part))
        start = text.find(part, start + 1)


_APOSTROPHES = frozenset("'’‘＇")
_HYPHENS = frozenset("-‐‑_")
_DIGITS = "0123456789"
_THOUSANDS = re.compile(r"\d{3}(?!\d)")
# Soft hyphen and joiners are invisible inside a word.
_INVISIBLE = frozenset("\u00ad\u200c\u200d\u2060")
# Scripts without spaces, where adjacent letters may belong to different words: Thai to Myanmar, Khmer, Kana, Han.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# Adjacent katakana do form one word: they spell foreign names.
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc-\u30ff]{2}")
# Skin tones, tags, and the vowels of Thai and Lao that Unicode does not class as marks.
_EXTENDING = re.compile("[\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\u0e33\u0eb3]")
_FLAGS = "".join(chr(code) for code in range(0x1F1E6, 0x1F200))
# Canonical combining class of the sign that joins Indic consonants.
_VIRAMA = 9


def is_whole_word_span(text: str, span: TextSpan) -> bool:
    """Return whether both ends of the span are word boundaries and split no composed character."""
    return not any(_splits_character(text, at) or _splits_word(text, at) for at in (span.start, span.end))


def _splits_character(text: str, at: int) -> bool:
    """Return whether a boundary at this index would split a grapheme cluster.

    These are the rules of UAX 29 without those for Hangul, whose letters are treated as letters of a word.
    """
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    return bool(
        unicodedata.category(after).startswith("M")
        or after in "\u200c\u200d"
        or before == "\u200d"
        or before + after == "\r\n"
        or _EXTENDING.match(after)
        or (unicodedata.combining(before) == _VIRAMA and after.isalpha())
        # Two regional indicators make one flag, so a boundary after an odd number of them splits a flag.
        or (after in _FLAGS and len(text[:at]) - len(text[:at].rstrip(_FLAGS)) & 1)
    )


def _splits_word(text: str, at: int, *, hyphens: bool = True) -> bool:
    """Return whether a boundary at this index would split a word; ``hyphens`` makes a hyphenated compound one word."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if _in_word(before) and _in_word(after):
        unspaced = _UNSPACED.match(before) or _UNSPACED.match(after)
        return not unspaced or bool(_KATAKANA.match(before + after))
    if _in_word(before):
        return _links(text, at, hyphens=hyphens)
    return _in_word(after) and _links(text, at - 1, hyphens=hyphens)


def _in_word(char: str) -> bool:
    return unicodedata.category(char)[0] in "LNM" or char in _INVISIBLE


def _links(text: str, at: int, *, hyphens: bool) -> bool:
    """Return whether the punctuation mark at this index joins its two neighbours into one word."""
    before, mark, after = text[max(0, at - 1) : at], text[at], text[at + 1 : at + 2]
    if not before or not after or not _in_word(before) or not _in_word(after):
        return False
    numbers = before.isdigit() and after.isdigit()
    if mark in _APOSTROPHES:
        # "Ada's" is Ada and a possessive; "O'Brien" and "don't" are one word.
        return after not in "sS" or (at + 2 < len(text) and _in_word(text[at + 2]))
    if mark == ".":
        # "U.S." and "3.5"; but "He left.She stayed" lacks a space.
        return numbers or (before.isalpha() and after.isalpha() and not (before.islower() and after.isupper()))
    if mark == ",":
        return numbers and bool(_THOUSANDS.match(text, at + 1))
    if mark == ":":
        return numbers
    if mark == "–":
        return hyphens and numbers and _is_shortened_range(text, at)
    return hyphens and (mark in _HYPHENS or mark == "&" or (mark == "/" and numbers))


def _is_shortened_range(text: str, at: int) -> bool:
    """Return whether the second number of a range has fewer digits: 1998–99, but not 1939–1945."""
    before, after = text[max(0, at - 8) : at], text[at + 1 : at + 9]
    return len(after) - len(after.lstrip(_DIGITS)) < len(before) - len(before.rstrip(_DIGITS))


# Other spellings of a value. Every word is reduced to a form; spellings of one value have the same sequence of forms.


@dataclass(frozen=True, slots=True)
class _Word:
    form: str
    """Form that all spellings of the word share."""
    span: TextSpan


_PLAIN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"})
# Accents have a canonical combining class from here on. Vowel signs and voicing marks, which make other letters, have
# lower ones.
_ACCENT = 200
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
# "One" is a pronoun more often than a number ("one of them").
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


def find_respelled_spans(text: str, old: str) -> Iterator[TextSpan]:
    """Yield the spans that contain the words of the old text in any spelling, as whole words."""
    # Dates are parsed only where the old text has one: elsewhere "May 5" stays two words.
    dates = bool(_DATE.search(old))
    target = _reduce(old, dates=dates)
    words = [word for word in _split_words(text, dates=dates) if word.form]
    for first, start in enumerate(words):
        form = ""
        for word in islice(words, first, None):
            form = _join(form, word.form)
            if not target.startswith(form):
                break
            if form == target:
                span = TextSpan(start.span.start, word.span.end)
                if not _is_common_word(old, text[span.start : span.end]):
                    yield span
                break


def equal_up_to_spelling(first: str, second: str) -> bool:
    """Return whether two texts differ in spelling alone; False where they have no words."""
    form = _reduce(first, dates=True)
    return bool(form) and form == _reduce(second, dates=True)


def _reduce(text: str, *, dates: bool) -> str:
    form = ""
    for word in _split_words(text, dates=dates):
        form = _join(form, word.form)
    return form


def _join(prefix: str, form: str) -> str:
    """Append a form without a space, except between two numbers: "5 12" must differ from "512"."""
    return f"{prefix} {form}" if prefix[-1:].isdigit() and form[:1].isdigit() else prefix + form


def _is_common_word(old: str, spelling: str) -> bool:
    """Return whether a lowercase word was taken for an abbreviation: us for US, it for IT, who for WHO."""
    return old.isupper() and spelling.islower() and len(spelling) <= 4 and spelling.isalpha()


def _split_words(text: str, *, dates: bool) -> list[_Word]:
    """Return the words of a text; with ``dates``, a full date is one word."""
    words, end = [], 0
    for match in _DATE.finditer(text) if dates else ():
        words += [*_split_plain_words(text, end, match.start()), _Word(_format_date(match), TextSpan(*match.span()))]
        end = match.end()
    return [*words, *_split_plain_words(text, end, len(text))]


def _split_plain_words(text: str, start: int, end: int) -> Iterator[_Word]:
    """Yield the words of a range of the text, with number words up to 99 as digits."""
    words = list(_split_folded_words(text, start, end))
    at = 0
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else None
        tens = _NUMBERS[word.form] if word.form in _TENS else ""
        unit = _UNIT_OF.get(following.form, "") if following else ""
        if tens and unit and following and text[word.span.end : following.span.start] in {"-", " ", "- "}:
            # "twenty-one" and "twenty first" become 21 and 21st.
            yield _Word(tens[0] + unit, TextSpan(word.span.start, following.span.end))
            at += 1
        else:
            yield _Word(_NUMBERS.get(word.form, word.form), word.span)
        at += 1


def _split_folded_words(text: str, start: int, end: int) -> Iterator[_Word]:
    at = start
    while at < end:
        begin, at = at, at + 1
        if text[begin] == "&":
            yield _Word("and", TextSpan(begin, at))
        elif _in_word(text[begin]):
            while at < end and (_splits_character(text, at) or _splits_word(text, at, hyphens=False)):
                at += 1
            yield _Word(_fold(text[begin:at]), TextSpan(begin, at))


def _fold(word: str) -> str:
    """Return a word without case, accents, apostrophes and the full stops of an abbreviation."""
    # Case folding can compose characters again, hence the second decomposition.
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", word).casefold()).translate(_PLAIN)
    return "".join(
        char
        for index, char in enumerate(plain)
        if (_in_word(char) and char not in _INVISIBLE and unicodedata.combining(char) < _ACCENT)
        or (char in ".:" and plain[index - 1].isdigit())
    )


def _format_date(match: re.Match[str]) -> str:
    """Return a date as ``@year-month-day``, however it was written; the year may be empty."""
    day, month, year, other_month, other_day, other_year, *iso = match.groups()
    if iso[0]:
        return "@" + "-".join(iso)
    number = _MONTHS.index((month or other_month)[:3].lower()) + 1
    return f"@{year or other_year or ''}-{number:02}-{int(day or other_day):02}"
