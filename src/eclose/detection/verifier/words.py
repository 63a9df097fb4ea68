"""Words, names and numbers of a text, for the rows and features of verifiers.

Made for English prose. A name is a run of capitalised words; words that open sentences of a trace are not names.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[a-z0-9]+(?:['’][a-z]+)?")
_CONNECTOR = r"(?:of|the|and|for|in|at|on|de|la|le|du|von|van|der|den|al|el|y|di|da|a|to)"
# A full stop ends a name, except after an initial or a title.
_CAPITAL = r"(?:(?:[A-Z]|St|Dr|Mr|Mrs|Jr|Sr)\.|[A-ZÀ-ÖØ-Þ][\w'’&-]*)"
_NAME = re.compile(rf"{_CAPITAL}(?:\s+(?:{_CONNECTOR}\s+){{0,2}}{_CAPITAL})*")
_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(rf"\b(?:\d{{1,2}} (?:{_MONTH}),? \d{{4}}|(?:{_MONTH}) \d{{1,2}}, \d{{4}})\b")
_CITATION = re.compile(r"\s*\[\d+(?:, ?\d+)*\]|\b[Pp]assages? \d+\b")
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def _list_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTION_WORDS = _list_words(
    "a an the of in on at by to for from with and or but nor as is are was were be been being am it its this that these"
    " those there here he she they him her his hers their them we our us you your i me my who whom whose which what"
    " when where why how do does did done has have had having will would shall should can could may might must not no"
    " if then than so such also both each either neither one into onto over under about between among during per up out"
    " off own same other another more most some any all"
)
"""Words that carry no content of their own."""
CONCLUSION_WORDS = _list_words("thus hence therefore so consequently accordingly finally conclusion follows means")
"""Words that mark a step as a conclusion."""
_OPENERS = _list_words("according passage passages next since because first second third given step know stated")
# Months are parts of dates, not names.
_NOT_NAMES = FUNCTION_WORDS | CONCLUSION_WORDS | _OPENERS | {*_MONTH.lower().split("|"), "yes"}


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation.

    >>> split_words("Jewison's film, 1987")
    ["jewison's", 'film', '1987']
    """
    return _WORD.findall(text.lower())


def drop_citations(text: str) -> str:
    """Return a step without references to passages: ``[4]``, ``Passage 3``."""
    return _CITATION.sub("", text)


def find_names(text: str) -> list[str]:
    """Return the names of a text in order, without words that only open a sentence.

    >>> find_names("Thus, The Garden of Ash was recorded by Lena Crane [4].")
    ['The Garden of Ash', 'Lena Crane']
    """
    names = []
    for match in _NAME.finditer(drop_citations(text)):
        words = match.group().split()
        # A leading article may belong to a title; any other opener does not.
        while words and words[0].lower() in _NOT_NAMES and (len(words) == 1 or words[0] not in ("The", "A")):
            words = words[1:]
        if words and (len(words) > 1 or words[0].lower() not in _NOT_NAMES):
            names.append(" ".join(words))
    return names


def find_dates(text: str) -> list[str]:
    """Return the full dates of a text: day, month and year.

    >>> find_dates("He was born on 22 February 1937 and died on May 6, 2015.")
    ['22 February 1937', 'May 6, 2015']
    """
    return _DATE.findall(text)


def find_numbers(text: str) -> list[str]:
    """Return the numbers of a text without thousands separators; references to passages are no numbers.

    >>> find_numbers("Passage 3 gives 12,500 people in 1987 [4].")
    ['12500', '1987']
    """
    return [number.replace(",", "") for number in _NUMBER.findall(drop_citations(text))]
