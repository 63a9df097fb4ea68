"""Words, names and numbers of a text, for the rows and features of verifiers.

Made for English prose. A name is a run of capitalised words; words that open sentences of a trace are not names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from eclose.detection.verifier.lexicon import CONCEPTS, DIRECTIONS, replace_idioms

_WORD = re.compile(r"[^\W\d_]+(?:['’][a-z]+)?|\d+(?:\.\d+)?")
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


def collect_words(text: str) -> set[str]:
    """Return the distinct words of a text in lower case, without punctuation and thousands separators.

    >>> sorted(collect_words("Jewison's film, 12,500 seats"))
    ['12500', 'film', "jewison's", 'seats']
    """
    # A comma between words has a blank after it, so dropping it joins numbers only.
    pieces = set(text.lower().replace(",", "").split())
    # Most pieces between blanks are words already; the expression, which takes longer, reads the rest.
    rest = [piece for piece in pieces if not piece.isalpha()]
    pieces.difference_update(rest)
    pieces.update(_WORD.findall(" ".join(rest)))
    return pieces


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


_TOKEN = re.compile(r"[^\W\d_]+(?:['’][a-z]+)?|\d+(?:,\d{3})*(?:\.\d+)?")
_NEGATIONS = _list_words("not no never neither nor different differ differs unlike cannot didn't wasn't isn't unknown")
_AFFIRMATIONS = _list_words("same both yes also share shares shared equal")
_GOAL_WORDS = _list_words("find identify determine look asks asked need needs question")
# Longest first, so that "ings" is not taken for "s".
_SUFFIXES = ("ings", "ing", "ers", "ors", "ies", "ed", "er", "or", "es", "ly", "s", "e", "y")
_CACHED_WORDS = 65_536
_CACHED_TEXTS = 4_096
"""Parsed texts kept: several responses to one question are usually neighbours, and memory must not grow."""


@dataclass(frozen=True, slots=True)
class TextWords:
    """A text, parsed once for all features."""

    words: tuple[str, ...]
    """All words in lower case."""
    content: frozenset[str]
    """Stems of words with content of their own; words of a relation are replaced by its concept."""
    names: frozenset[str]
    """Capitalised words in lower case, without openers of sentences."""
    numbers: tuple[str, ...]
    """Numbers in order, without thousands separators and references to passages."""
    concepts: frozenset[str]
    """Relations that the text speaks of."""
    relations: tuple[str, ...]
    """The same in order, as often as they are mentioned."""
    direction: int
    """-1 where it speaks of the early or small end of an order, 1 of the late or large one, 0 of both or neither."""
    polarity: int
    """1 where it affirms sameness, -1 where it denies, 0 without either."""
    states_goal: bool
    """Whether it says what to look for: such a step claims nothing."""
    concludes: bool
    """Whether it has a word that marks a conclusion."""


class _Token(NamedTuple):
    """What a word contributes to any text; empty where it contributes nothing."""

    word: str
    content: str = ""
    name: str = ""
    number: str = ""
    concept: str = ""
    direction: int = 0
    polarity: int = 0
    concludes: bool = False


@lru_cache(maxsize=_CACHED_WORDS)
def _read_token(token: str) -> _Token:
    word = token.lower()
    if token[0].isdigit():
        return _Token(word, number=token.replace(",", ""))
    direction = DIRECTIONS.get(word, 0)
    polarity = -1 if word in _NEGATIONS else int(word in _AFFIRMATIONS)
    concludes = word in CONCLUSION_WORDS
    if word in _NOT_NAMES:
        return _Token(word, direction=direction, polarity=polarity, concludes=concludes)
    concept = CONCEPTS.get(word, "")
    name = word if token[0].isupper() else ""
    return _Token(word, concept or stem_word(word), name, "", concept, direction, polarity, concludes)


@lru_cache(maxsize=_CACHED_TEXTS)
def parse_text(text: str) -> TextWords:
    """Return the words, names, numbers and relations of a text."""
    # The searches are cheaper than the substitution, and most texts have no reference.
    if "[" in text or "assage" in text:
        text = _CITATION.sub("", text)
    tokens = [_read_token(token) for token in _TOKEN.findall(replace_idioms(text))]
    polarities = {token.polarity for token in tokens}
    relations = tuple([token.concept for token in tokens if token.concept])
    return TextWords(
        tuple([token.word for token in tokens]),
        frozenset([token.content for token in tokens if token.content]),
        frozenset([token.name for token in tokens if token.name]),
        tuple([token.number for token in tokens if token.number]),
        frozenset(relations),
        relations,
        sum({token.direction for token in tokens}),
        # A denial outweighs: "not the same".
        -1 if -1 in polarities else int(1 in polarities),
        any(token.word in _GOAL_WORDS for token in tokens),
        any(token.concludes for token in tokens),
    )


@lru_cache(maxsize=_CACHED_WORDS)
def stem_word(word: str) -> str:
    """Return a word without its ending; crude, but the same for both sides of a comparison.

    >>> stem_word("governed"), stem_word("governing")
    ('govern', 'govern')
    """
    word = word.removesuffix("'s").removesuffix("’s")
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            return word[: -len(suffix)]
    return word
