"""Relations of questions and steps as concepts: words for the same relation, and relations that are easily mistaken.

General English for questions about people, places, works and organisations. A word outside the lexicon is compared by
its stem alone.
"""

from __future__ import annotations

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
