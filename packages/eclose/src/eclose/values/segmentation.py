"""Segmentation of prose into sentences.

The rules are deterministic and need no model. Every sentence is a piece of the original text. The rules are for English
and for scripts with other full stops: abbreviations, initials, open quotations and open parentheses do not end a
sentence. Other languages add their abbreviations.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Possessive quantifiers and the limited look-ahead keep the running time linear in the length of the text.
_END = re.compile(
    r"""(?<![.!?…。！？｡؟।])(?P<mark>[.!?…]++|[。！？｡؟।]++)"""
    r"""(?P<close>["'”’»)\]」』）*_]*+)"""
    r"""(?P<gap>\s++|(?<=[。！？｡])(?=[^\s.!?…。！？｡」』）、，,]))"""
    r"""(?=(?P<open>(?:["'“”‘«(\[「『（*_¡¿]++\s?)?)(?P<next>\S{1,40}))"""
)
_BEFORE_LAST_WORD = re.compile(r".*[\s(\[\"“‘«/–—]", re.DOTALL)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations that never end a sentence, because a name or another word must follow.
_BEFORE_A_NAME = _words(
    """
    mr mrs ms messrs mme mlle dr prof rev hon gen col maj capt cmdr cdr lt sgt cpl pvt adm brig sen rep gov pres supt fr
    mt ft dir v vs cf e.g i.e viz lit approx ca ph
    """
)
# Abbreviations before a number only; elsewhere ordinary words ("so the answer is no.", "there the cat sat.").
_BEFORE_A_NUMBER = _words(
    """
    no nos nr vol vols fig figs eq eqs sec ch p pp op ed art par b c d r fl est k
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun
    """
)
# Abbreviations that may end a sentence; the next word decides.
_EITHER = _words(
    "jr sr st ave blvd rd bros assn dept univ al eds et esp ph.d m.d b.a m.a b.sc m.sc d.phil lb lbs oz sq"
)
# Abbreviations that end a sentence before every capital letter.
_MOSTLY_LAST = _words("etc a.m p.m inc ltd co corp llc plc")
_ZONES = _words("EST EDT CST CDT MST MDT PST PDT ET CT PT GMT UTC BST CET CEST JST IST AEST Eastern Pacific Central")
# Words that start sentences but hardly ever names.
_BEGINNINGS = _words(
    """
    a an the this that these those it its he his she her they their we our you your i my there here who what when where
    which why how if in on at by for from to of with as and but or so yet nor not no yes all both each one some many
    most thus hence therefore then now later after before since because although though while during until however
    moreover furthermore also finally first second third next meanwhile additionally according based given let is are
    was were has have had did do does can only
    """
)
_OMISSION = re.compile(r"\.{2,}|…+")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
_INITIAL = re.compile(r"[^\W\d_]\.")
_NUMERAL = re.compile(r"\(?[#\d]|[IVXLC]{2,}\b|[VX]\b")
# "There are two: 1. Ada. 2. Eve.": the number belongs to the next word. A year at the end of a sentence does not.
_UNIT = re.compile(r"\d\s?[^\W\d_]{1,2}$")
_LIST_NUMBER = re.compile(r"(?:^|[:;]\s+)\(?\d{1,2}$")
# Longest quotation in characters: an inch sign must not join a page into one sentence.
_MAX_QUOTATION = 400
_PAIRS = {'"': '"', "(": ")", "[": "]", "“": "”", "«": "»", "「": "」", "『": "』", "（": "）"}
_OPENING = re.compile(f"[{re.escape(''.join(_PAIRS))}]")


class SentenceWords(NamedTuple):
    """Words of a language other than English that decide where a sentence ends."""

    before_name: frozenset[str] = frozenset()
    """Abbreviations that never end a sentence."""
    before_number: frozenset[str] = frozenset()
    """Abbreviations before a number only."""
    beginnings: frozenset[str] = frozenset()
    """Words that start sentences but hardly ever names."""
    after_ordinal: frozenset[str] = frozenset()
    """Capitalised words behind an ordinal number, such as the months in "am 12. März"."""


_ENGLISH = SentenceWords()


def split_sentences(text: str, words: SentenceWords = _ENGLISH) -> list[str]:
    """Return the sentences of a prose text; ``words`` adds those of another language to the English ones.

    >>> split_sentences('Dr. Ruiz was born in St. Louis in 1.5 B.C. "Odd." She said so.')
    ['Dr. Ruiz was born in St. Louis in 1.5 B.C.', '"Odd."', 'She said so.']
    """
    text = text.strip()
    # In a text without capital letters, a small one may start a sentence.
    lowercase = text.islower()
    sentences, start = [], 0
    for match in _END.finditer(text):
        # The last words decide. Without the limit, a long text without sentences would take quadratic time.
        before = text[max(start, match.start("mark") - 80) : match.start("mark")]
        if _ends_sentence(before, match, words, lowercase=lowercase) and not _is_open(text, start, match.end("close")):
            sentences.append(text[start : match.end("close")])
            start = match.end("gap")
    return [*sentences, text[start:]] if text else []


def _ends_sentence(before: str, match: re.Match[str], words: SentenceWords, *, lowercase: bool) -> bool:
    """Return whether a sentence ends at this mark, judging by the text on both sides."""
    following = match["next"]
    if following[0].islower() and not lowercase:
        # `"Stop!" she said`; "Help! was their fifth album".
        return False
    if match["open"].startswith("(") and following[0].isdigit():
        # "Cheer Up!" (2015).
        return False
    if _OMISSION.fullmatch(match["mark"]) and (before[-1:].isspace() or not before.strip("\"'“‘«([")):
        # "The name We Are ... Robin": an omission.
        return False
    earlier = _BEFORE_LAST_WORD.match(before)
    last = before[earlier.end() :] if earlier else before
    word = _bare(last)
    if match["mark"] != ".":
        # "Help!, their fifth album": no sentence starts with a comma. "Author! Author!" is one cry.
        return following[0] not in set(",;:.") and bool(before.strip()) and word != _bare(following)
    if last[-1:] in set("\"'”’»)]"):
        # "(X Ltd.).": the second full stop does not belong to the abbreviation.
        return True
    if _INITIALS.fullmatch(word) and _bare(following) in before.split()[:-1] and len(_bare(following)) > 1:
        # "Hall A. Hall A has 320 seats.": a letter that names a thing, not an initial.
        return True
    if _UNIT.search(before) and _bare(following).lower() in _BEGINNINGS | words.beginnings:
        # "It runs on 24 V. The rail has 24 V.": a unit, neither an initial nor "versus".
        return True
    return not _LIST_NUMBER.search(before) and _can_be_last(word, match, following, words)


def _can_be_last(word: str, match: re.Match[str], following: str, words: SentenceWords) -> bool:
    """Return whether a word with a full stop ends a sentence, rather than being an abbreviation inside it."""
    plain = word.lower()
    if word.isdigit() and _bare(following).lower() in words.after_ordinal:
        return False
    if plain in _BEFORE_A_NAME or plain in words.before_name:
        return False
    if (plain in _BEFORE_A_NUMBER or plain in words.before_number) and _NUMERAL.match(following):
        return False
    if plain in _MOSTLY_LAST:
        return bool(match["close"]) or (following[0].isupper() and _bare(following) not in _ZONES)
    if word == "I":
        # "So did I."; but "I. M. Pei".
        return not _INITIAL.match(following)
    # "J. K. Rowling", "the U.S. Senate", and "x" of an equation: the next word must look like a sentence start.
    if plain in _EITHER or _INITIALS.fullmatch(word):
        beginning = _bare(following).lower()
        begins = (beginning in _BEGINNINGS or beginning in words.beginnings) and not _INITIAL.match(following)
        return begins or _starts_quotation(match)
    return True


def _bare(word: str) -> str:
    """Return a word without the punctuation around it; initials keep theirs."""
    return word.strip("\"'“”‘’«»()[]*_,;:!?").removesuffix(".") if not _INITIALS.fullmatch(word) else word


def _starts_quotation(match: re.Match[str]) -> bool:
    """Return whether a quoted sentence follows: in 44 B.C. "Odd.", but not the U.S. "Billboard" charts."""
    opening = match["open"][:1]
    return opening in {'"', "“", "«"} and match["next"].rstrip('"”»')[-1:] in {".", "!", "?"}


def _is_open(text: str, start: int, end: int) -> bool:
    """Return whether a quotation or parenthesis inside the sentence is open at ``end`` and closed later."""
    # An opening at the very start does not count: all of a trace may be quoted.
    if _OPENING.search(text, start + 1, end) is None:
        return False
    # Stack of the closing characters that are due, each with the index of its opening.
    pending: list[tuple[str, int]] = []
    for index in range(start, end):
        char = text[index]
        if pending and char == pending[-1][0]:
            pending.pop()
        elif char in _PAIRS and (char != '"' or _is_opening(text, index)):
            pending.append((_PAIRS[char], index))
    inner = [(closing, index) for closing, index in pending if index > start]
    if not inner or inner[0][1] <= end - _MAX_QUOTATION:
        return False
    return _is_closed(inner[0][0], text[end : end + _MAX_QUOTATION])


def _is_opening(text: str, index: int) -> bool:
    """Return whether a straight quotation mark opens: a word follows it, and none precedes it as with inches."""
    before, after = text[max(0, index - 1) : index], text[index + 1 : index + 2]
    return not before.isalnum() and before not in set(".,!?)") and bool(after.strip())


def _is_closed(closing: str, text: str) -> bool:
    """Return whether the closing character comes before another opening of its kind, which would mean a missing one."""
    for index, char in enumerate(text):
        if char == closing:
            return closing != '"' or not _is_opening(text, index)
        if _PAIRS.get(char) == closing:
            return False
    return False
