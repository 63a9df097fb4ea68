"""Words, names, numbers and compared values of a text, for the rows and features of verifiers.

Made for English prose. A name is a run of capitalised words; words that open sentences of a trace are not names.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from eclose.detectors.overlap import CONCLUSION_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONCEPT_WORDS = {
    "birth": "born birth birthplace birthdate birthday native",
    "death": "die died dies dead death deceased killed",
    "burial": "buried burial grave cemetery",
    "founding": "founded founder founders founding establish established establishment opened doors existed",
    "charter": "charter chartered incorporated incorporation",
    "direct": "directed director directors directing filmmaker filmmakers",
    "produce": "produced producer producers production",
    "act": "starred starring star stars actor actress cast appeared played features",
    "write": "wrote written writer author authors authored novelist",
    "screenplay": "screenplay screenwriter screenwriters script scripted",
    "compose": "composed composer composers songwriter music",
    "perform": "performed performer performers sang sung singer recorded artist",
    "publish": "published publisher publishers publication",
    "release": "released release premiered premiere aired air airs issued cinemas",
    "marry": "law married marry marries spouse spouses wife husband wed widow",
    "father": "father fathers paternal grandfather",
    "mother": "mother mothers maternal grandmother",
    "parent": "parent parents grandparent grandparents",
    "child": "child children son sons daughter daughters grandson granddaughter grandchild grandchildren",
    "sibling": "brother brothers sister sisters sibling siblings",
    "city": "city cities town towns municipality",
    "township": "township townships",
    "village": "village villages",
    "county": "county counties parish",
    "state": "state states province provinces",
    "country": "country countries nation nations",
    "continent": "continent continents",
    "citizen": "citizen citizens citizenship nationality national",
    "capital": "capital capitals",
    "population": "population inhabitants residents people",
    "river": "river rivers",
    "award": "award awards awarded prize prizes medal honoured honored",
    "present": "presented ceremony ceremonies",
    "study": "studied study educated education graduate graduated graduates alma attended student",
    "teach": "taught teach teaches teaching lectured lecturer professor chair",
    "university": "university universities college colleges institute",
    "seat": "headquarters headquartered based seat head office",
    "register": "registered registration",
    "accredit": "accredited accreditation",
    "employ": "employees employs employed employer staff",
    "lead": "president leader ceo chairman mayor governor minister",
    "length": "runtime minutes pages length",
    "year": "year years",
    "date": "date day",
    "series": "series season seasons",
    "episode": "episode episodes",
    "own": "owned owner owns parent",
    "genre": "genre genres style",
    "language": "language languages",
    "religion": "religion religious church",
    "species": "species genus",
    "height": "tall taller height elevation high",
    "area": "area size",
}
_CONTRASTS = (
    ("birth", "death", "burial"),
    ("founding", "charter", "release"),
    ("direct", "produce", "act", "write", "screenplay"),
    ("compose", "perform"),
    ("write", "publish"),
    ("father", "mother"),
    ("parent", "child", "sibling", "marry"),
    ("township", "county", "city", "village", "state", "country", "continent"),
    ("release", "length"),
    ("series", "episode"),
    ("citizen", "birth"),
    ("population", "employ", "area"),
    ("university", "award"),
    ("study", "teach"),
    ("seat", "register"),
    ("founding", "accredit"),
)
_LOW = "first earlier earliest older oldest elder before smaller smallest fewer fewest less least lower shorter"
_HIGH = "last later latest younger youngest after larger largest greater bigger longer higher more most"
_IDIOMS = {
    "passed away": "died",
    "came into the world": "born",
    "set up": "founded",
    "right to award degrees": "accreditation",
    "known as": "alias",
    "took place": "held",
}

CONCEPTS = {word: concept for concept, words in _CONCEPT_WORDS.items() for word in words.split()}
"""Relation that a word expresses."""
CONTRASTS: dict[str, frozenset[str]] = {
    concept: frozenset(other for group in _CONTRASTS if concept in group for other in group) - {concept}
    for concept in {name for group in _CONTRASTS for name in group}
}
"""Relations that a trace may state in place of the one asked."""
DIRECTIONS = dict.fromkeys(_LOW.split(), -1) | dict.fromkeys(_HIGH.split(), 1)
"""Which end of an order a word asks for or states: -1 for the early and small, 1 for the late and large."""


def replace_idioms(text: str) -> str:
    """Return a text with idioms of several words as one word.

    >>> replace_idioms("she passed away in oslo")
    'she died in oslo'
    """
    for idiom, word in _IDIOMS.items():
        if idiom in text:
            text = text.replace(idiom, word)
    return text


_OPTIONS = re.compile(r"([^,?:]+?),? or (?:the )?([^,?]+)")
_CLAUSES = re.compile(r"; ")
_AGE_WORDS = frozenset(("older", "oldest", "elder", "younger", "youngest"))
_AGE_RELATIONS = frozenset(("birth", "founding"))
_DAYS = 31
"""Numbers up to this may be the day of a date and are no value."""


def _values(clause: TextWords) -> list[float]:
    """Return the numbers of a clause that can be values: years, counts."""
    numbers = [float(number) for number in clause.numbers]
    large = [number for number in numbers if number > _DAYS]
    return large or numbers


def agrees_with_comparison(
    question_words: TextWords, question: str, steps: Sequence[str], answer: frozenset[str]
) -> int:
    """Return 1 where the values of two options lead to the answer, -1 where to the other option, 0 without both."""
    match = _OPTIONS.search(question) if "or" in question_words.words and question_words.direction else None
    if match is None:
        return 0
    first, second = _split_names(*match.groups())
    if not first or not second or bool(answer & first) is bool(answer & second):
        return 0
    relations = (
        question_words.concepts | _AGE_RELATIONS
        if _AGE_WORDS.intersection(question_words.words)
        else question_words.concepts
    )
    values = [_last_value(clauses, relations) for clauses in _collect_sides(first, second, steps)]
    if values[0] is None or values[1] is None or values[0] == values[1]:
        return 0
    chosen = first if (values[0] - values[1]) * question_words.direction > 0 else second
    return 1 if answer & chosen else -1


def _split_names(first: str, second: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of each text that the other does not have."""
    names = parse_text(first).names, parse_text(second).names
    return names[0] - names[1], names[1] - names[0]


def _collect_sides(first: frozenset[str], second: frozenset[str], steps: Sequence[str]) -> list[list[TextWords]]:
    """Return the clauses about each of two things, by their names and by names that a clause links to them."""
    parsed = (parse_text(clause) for step in steps for clause in _CLAUSES.split(step))
    clauses = [clause for clause in parsed if not clause.states_goal]
    bases = (first, second)
    linked: list[set[str]] = [set(), set()]
    for clause in clauses:
        side = _find_side(clause, bases)
        if side is not None:
            linked[side] |= clause.names - first - second
    # A name linked to both is a value that they share, and tells nothing about whom a clause speaks of.
    links = (frozenset(linked[0] - linked[1]), frozenset(linked[1] - linked[0]))
    sides: list[list[TextWords]] = [[], []]
    latest = None
    for clause in clauses:
        side = _find_side(clause, bases)
        if side is None and clause.names.isdisjoint(first | second):
            side = _find_side(clause, links)
            # A pronoun continues the clause before; two linked names compare.
            if side is None and clause.names.isdisjoint(links[0] | links[1]):
                side = latest
        if side is not None:
            sides[side].append(clause)
            latest = side
    return sides


def _find_side(clause: TextWords, names: tuple[frozenset[str], frozenset[str]]) -> int | None:
    first, second = (not clause.names.isdisjoint(side) for side in names)
    return None if first is second else int(second)


def _last_value(clauses: Sequence[TextWords], relations: frozenset[str]) -> float | None:
    """Return the last value of the relation asked for; of any relation where no clause has it."""
    # Two values in one clause compare; they belong to neither side.
    stated = [(clause, _values(clause)) for clause in clauses if not clause.concludes]
    single = [(clause.concepts, values[0]) for clause, values in stated if len(values) == 1]
    fitting = [value for concepts, value in single if concepts & relations] or [value for _, value in single]
    return fitting[-1] if fitting else None


def agrees_with_sameness(question_words: TextWords, question: str, steps: Sequence[str], polarity: int) -> int:
    """Return 1 where the values of both sides fit a yes or no, -1 where they contradict it, 0 for other questions."""
    if not polarity or "same" not in question_words.words or " and " not in question:
        return 0
    first, second = _split_names(*question.split(" and ", 1))
    if not first or not second:
        return 0
    # Relations asked of both sides are named once, roles that lead to the sides twice.
    counts = Counter(question_words.relations)
    relations = {relation for relation, count in counts.items() if count == 1} or set(counts)
    values = []
    for clauses in _collect_sides(first, second, steps):
        facts = [clause for clause in clauses if not clause.polarity]
        fitting = [clause for clause in facts if clause.concepts & relations] or facts
        values.append(frozenset[str]().union(*(clause.names - question_words.names for clause in fitting)))
    if not values[0] or not values[1]:
        return 0
    return polarity if values[0] & values[1] else -polarity


def agrees_with_difference(trace: Sequence[TextWords], answer_text: TextWords) -> int:
    """Return 1 where a number answered is the difference of two values of the trace, 0 otherwise."""
    if len(answer_text.numbers) != 1:
        return 0
    values = {value for step in trace for value in _values(step) if value > _DAYS}
    return int(any(value + float(answer_text.numbers[0]) in values for value in values))


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
    return _Token(
        word=word,
        content=concept or stem_word(word),
        name=name,
        number="",
        concept=concept,
        direction=direction,
        polarity=polarity,
        concludes=concludes,
    )


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
        words=tuple([token.word for token in tokens]),
        content=frozenset([token.content for token in tokens if token.content]),
        names=frozenset([token.name for token in tokens if token.name]),
        numbers=tuple([token.number for token in tokens if token.number]),
        concepts=frozenset(relations),
        relations=relations,
        direction=sum({token.direction for token in tokens}),
        # A denial outweighs: "not the same".
        polarity=-1 if -1 in polarities else int(1 in polarities),
        states_goal=any(token.word in _GOAL_WORDS for token in tokens),
        concludes=any(token.concludes for token in tokens),
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
