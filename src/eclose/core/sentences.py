"""Prose -> sentences, by rules for English and for scripts with full stops of their own.

Knows full stops that end nothing, and quotations and parentheses that are not over. A sentence is a piece of the text
as it was: only the white space between two sentences goes.
"""

from __future__ import annotations

import re

# Each run of marks is looked at once and what follows only as far as needed, so that time grows with the text alone.
_END = re.compile(
    r"""(?<![.!?…。！？｡؟।])(?P<mark>[.!?…]++|[。！？｡؟।]++)"""
    r"""(?P<close>["'”’»)\]」』）*_]*+)"""
    r"""(?P<gap>\s++|(?<=[。！？｡])(?=[^\s.!?…。！？｡」』）、，,]))"""
    r"""(?=(?P<open>(?:["'“”‘«(\[「『（*_¡¿]++\s?)?)(?P<next>\S{1,40}))"""
)
_LAST_WORD = re.compile(r"[^\s(\[\"“‘«/–—]+$")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What ends with a full stop and never ends a sentence: something belongs to it.
_BEFORE_A_NAME = _words(
    """
    mr mrs ms messrs mme mlle dr prof rev hon gen col maj capt cmdr cdr lt sgt cpl pvt adm brig sen rep gov pres supt fr
    mt ft dir v vs cf e.g i.e viz lit approx ca ph
    """
)
# Before a number only; elsewhere a word like any other ("so the answer is no.", "there the cat sat.").
_BEFORE_A_NUMBER = _words(
    """
    no nos nr vol vols fig figs eq eqs sec ch p pp op ed art par b c d r fl est k
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun
    """
)
# These may end a sentence. Whether they do is told by what comes next.
_EITHER = _words(
    "jr sr st ave blvd rd bros assn dept univ al eds et esp ph.d m.d b.a m.a b.sc m.sc d.phil lb lbs oz sq"
)
# These end one before every capital letter.
_MOSTLY_LAST = _words("etc a.m p.m inc ltd co corp llc plc")
_ZONES = _words("EST EDT CST CDT MST MDT PST PDT ET CT PT GMT UTC BST CET CEST JST IST AEST Eastern Pacific Central")
# How sentences begin; names hardly do.
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
# "There are two: 1. Ada. 2. Eve.": the number belongs to what follows. A year at the end of a sentence does not.
_LIST_NUMBER = re.compile(r"(?:^|[:;]\s+)\(?\d{1,2}$")
_REACH = 400
"""How long a quotation may be, in characters: a sign that stands for inches must not swallow a page."""
_PAIRS = {'"': '"', "(": ")", "[": "]", "“": "”", "«": "»", "「": "」", "『": "』", "（": "）"}


def sentences(text: str) -> list[str]:
    """Prose cut behind its sentences.

    >>> sentences('Dr. Ruiz was born in St. Louis in 1.5 B.C. "Odd." She said so.')
    ['Dr. Ruiz was born in St. Louis in 1.5 B.C.', '"Odd."', 'She said so.']
    """
    text = text.strip()
    # Where nothing is written with a capital letter, a small one may begin a sentence.
    small = text.islower()
    found, start = [], 0
    for match in _END.finditer(text):
        # A word or two decide, and a text without any sentence may be long.
        before = text[max(start, match.start("mark") - 80) : match.start("mark")]
        if _ends(before, match, small=small) and not _open(text, start, match.end("close")):
            found.append(text[start : match.end("close")])
            start = match.end("gap")
    return [*found, text[start:]] if text else []


def _ends(before: str, match: re.Match[str], *, small: bool) -> bool:
    """Whether a sentence ends at this mark, by what stands before and behind it."""
    following = match["next"]
    if following[0].islower() and not small:
        # `"Stop!" she said`; "Help! was their fifth album".
        return False
    if match["open"].startswith("(") and following[0].isdigit():
        # "Cheer Up!" (2015).
        return False
    if _OMISSION.fullmatch(match["mark"]) and (before[-1:].isspace() or not before.strip("\"'“‘«([")):
        # "The name We Are ... Robin": something was left out.
        return False
    said = (_LAST_WORD.search(before) or [""])[0]
    word = _bare(said)
    if match["mark"] != ".":
        # "Help!, their fifth album": no sentence begins with a comma. "Author! Author!" is one cry.
        return following[0] not in set(",;:.") and bool(before.strip()) and word != _bare(following)
    if said[-1:] in set("\"'”’»)]"):
        # "(X Ltd.).": the second full stop is not the abbreviation's.
        return True
    return not _LIST_NUMBER.search(before) and _can_be_last(word, match, following)


def _can_be_last(word: str, match: re.Match[str], following: str) -> bool:
    """Whether a word with a full stop ends a sentence rather than being an abbreviation within it."""
    plain = word.lower()
    if plain in _BEFORE_A_NAME:
        return False
    if plain in _BEFORE_A_NUMBER and _NUMERAL.match(following):
        return False
    if plain in _MOSTLY_LAST:
        return bool(match["close"]) or (following[0].isupper() and _bare(following) not in _ZONES)
    if word == "I":
        # "So did I."; but "I. M. Pei".
        return not _INITIAL.match(following)
    # "J. K. Rowling", "the U.S. Senate", and "x" of an equation: over where something begins as sentences do.
    if plain in _EITHER or _INITIALS.fullmatch(word):
        begins = _bare(following).lower() in _BEGINNINGS and not _INITIAL.match(following)
        return begins or _quotes_anew(match)
    return True


def _bare(word: str) -> str:
    """A word without what is put around it."""
    return word.strip("\"'“”‘’«»()[]*_,;:!?").removesuffix(".") if not _INITIALS.fullmatch(word) else word


def _quotes_anew(match: re.Match[str]) -> bool:
    """With a whole quotation something new begins: in 44 B.C. "Odd.", but the U.S. "Billboard" charts."""
    opened = match["open"][:1]
    return opened in {'"', "“", "«"} and match["next"].rstrip('"”»')[-1:] in {".", "!", "?"}


def _open(text: str, start: int, end: int) -> bool:
    """Whether a quotation or parenthesis within the sentence is still open, and closed further on.

    One that opens the sentence does not count: a whole trace may stand in quotation marks.
    """
    waiting: list[tuple[str, int]] = []
    for place in range(start, end):
        sign = text[place]
        if waiting and sign == waiting[-1][0]:
            waiting.pop()
        elif sign in _PAIRS and (sign != '"' or _opens(text, place)):
            waiting.append((_PAIRS[sign], place))
    inner = [one for one in waiting if one[1] > start]
    return bool(inner) and inner[0][1] > end - _REACH and _closes(inner[0][0], text[end : end + _REACH])


def _opens(text: str, place: int) -> bool:
    """Whether a straight quotation mark opens: it stands before a word and not behind one, as a sign of inches does."""
    before, behind = text[max(0, place - 1) : place], text[place + 1 : place + 2]
    return not before.isalnum() and before not in set(".,!?)") and bool(behind.strip())


def _closes(sign: str, text: str) -> bool:
    """Whether the next sign of this kind closes; if another opens first, somebody forgot to close."""
    for place, other in enumerate(text):
        if other == sign:
            return sign != '"' or not _opens(text, place)
        if _PAIRS.get(other) == sign:
            return False
    return False
