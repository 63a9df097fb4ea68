"""Passages: an entity's facts told like an encyclopedia article, and read back from the words alone.

Writing mixes surface forms, pronouns, repeated mentions, compound sentences and sentences that say nothing.
Reading knows nothing of how a passage was made: edited and foreign passages count as they stand, and a sentence it
cannot read is reported, not skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random

from eclose.core.instance import Passage
from eclose.world.language import names
from eclose.world.language.facts import Entity, Statement
from eclose.world.language.fillers import is_filler, write_filler
from eclose.world.language.phrases import (
    PRONOUNS,
    FactTriple,
    Phrase,
    capitalise,
    list_case_variants,
    match_form,
    read_triples,
    restore_plain_articles,
    write_triple,
)
from eclose.world.language.relations import (
    AUTHOR,
    BIRTH_DATE,
    BIRTH_PLACE,
    DEATH_DATE,
    DEATH_PLACE,
    DIRECTOR,
    EMPLOYEES,
    FOUNDED,
    HEADQUARTERS,
    ISSUED,
    LIES_IN,
    PERFORMER,
    POPULATION,
    PUBLISHED,
    RELATIONS,
    RELEASED,
    SEATED,
    TYPE_WORDS,
    Relation,
)
from eclose.world.language.values import read_value, write_value

_SLOTS: dict[str, Relation] = {
    "released": RELEASED, "director": DIRECTOR, "published": PUBLISHED, "author": AUTHOR, "issued": ISSUED,
    "performer": PERFORMER, "born": BIRTH_DATE, "died": DEATH_DATE, "birthplace": BIRTH_PLACE, "country": LIES_IN,
    "seat": HEADQUARTERS, "founded": FOUNDED, "location": SEATED,
}  # fmt: skip
_WORDS: dict[str, tuple[str, ...]] = {
    "genre": names.GENRES,
    "industry": names.INDUSTRIES,
    "adjective": names.ADJECTIVES,
    "field": ("short fiction", "public service", "chamber music", "translation", "documentary work", "engineering"),
    "state": ("republic", "kingdom", "federation"),
}
_OCCUPATIONS = (*names.OCCUPATIONS, *(relation.role for relation in RELATIONS if relation.role), "scholar")
_OPENINGS: dict[str, tuple[str, ...]] = {
    "film": ("{s} is a {released} {genre} film directed by {director}", "{s} is a {genre} film from {released}",
             "{s} is a {genre} film by {director}", "{s} is a {genre} film"),
    "book": ("{s} is a {published} novel by {author}", "{s} is a novel by {author}", "{s} is a {genre} novel"),
    "song": ("{s} is a {issued} song recorded by {performer}", "{s} is a song by {performer}", "{s} is a song"),
    "person": ("{s} ({born} to {died}) was a {occupation}", "{s} ({born} to {died}) was a {occupation} from {birthplace}",
               "{s} (born {born}) is a {occupation}", "{s} (born {born} in {birthplace}) is a {occupation}",
               "{s} is a {occupation}", "{s} (born {born}) was a {occupation}", "{s} was a {occupation}"),
    "city": ("{s} is a {adjective} city in {country}", "{s} is a {adjective} city"),
    "country": ("{s} is a {adjective} {state}",),
    "company": ("{s} is a {industry} company based in {seat}", "{s} is a {industry} company founded in {founded}",
                "{s} is a {industry} company"),
    "university": ("{s} is a public university in {location}", "{s} is a public university"),
    "award": ("{s} is a annual award for {field}",),
}  # fmt: skip
_DATED: dict[Relation, tuple[str, ...]] = {
    POPULATION: ("in {era} the population of {s} was {o}", "at the census of {era} {s} had {o} inhabitants"),
    EMPLOYEES: ("in {era} {s} employed {o} people",),
    HEADQUARTERS: ("until {era} {s} was based in {o}", "before {era} the head office of {s} was in {o}"),
}
_OPENING_WORDS, _FACT_WORDS = 10, 6
_KIND_WORDS = "|".join(word for words in TYPE_WORDS.values() for word in words)
_BARE = re.compile(rf"\b[Tt]he (?:{_KIND_WORDS})\b(?! [A-Z(])")


@dataclass(frozen=True, slots=True)
class PassageReading:
    """What a passage says."""

    name: str
    """Whom or what it is about: the title without what tells namesakes apart."""
    kind: str | None
    occupation: str | None
    statements: tuple[Statement, ...]
    unread: tuple[str, ...]
    """Sentences the grammar does not know."""


def write_passage(entity: Entity, index: int, *, seed: str, words: int) -> Passage:
    """The passage of an entity, of about so many words. Equal seeds give equal words around changed values."""
    return Passage(str(index), entity.title, _Article(entity, Random(seed)).text(words))


class _Article:
    """One passage in the making."""

    def __init__(self, entity: Entity, rng: Random) -> None:
        self.entity = entity
        self.rng = rng
        self.told: set[Relation] = set()

    def text(self, words: int) -> str:
        opening = capitalise(self._opening())
        sentences = [capitalise(core) for core in self._facts()]
        used: set[str] = set()
        # By rule of thumb, not by count: a value of more words must not change what else is said.
        length = _OPENING_WORDS + _FACT_WORDS * len(self.entity.statements)
        while length < words and (filler := write_filler(self.entity.kind, self.rng, used)):
            sentences.append(capitalise(filler))
            length += len(filler.split())
        self.rng.shuffle(sentences)
        return ". ".join([opening, *sentences]) + "."

    def _opening(self) -> str:
        now = {statement.relation for statement in self.entity.statements if statement.era is None}
        possible = [
            template
            for template in _OPENINGS[self.entity.kind]
            if all(_SLOTS[slot] in now for slot in _slots(template) if slot in _SLOTS)
        ]
        if self.entity.kind == "person":
            gone = bool(now & {DEATH_DATE, DEATH_PLACE})
            possible = [template for template in possible if (" was a " in template) == gone]
        # The last one says least; a richer one is taken as a rule.
        template = self.rng.choice(possible[:-1] or possible)

        def fill(slot: re.Match[str]) -> str:
            name = slot[1]
            if name == "s":
                return self.entity.name
            if name == "occupation":
                return self.entity.occupation or "scholar"
            if name == "industry" and (known := names.find_industry(self.entity.name)):
                return known
            if name in _WORDS:
                return self.rng.choice(_WORDS[name])
            relation = _SLOTS[name]
            self.told.add(relation)
            value = next(s.value for s in self.entity.statements if s.relation is relation and s.era is None)
            return write_value(relation.kind, value, self.rng)

        return re.sub(r"\{(\w+)\}", fill, template)

    def _facts(self) -> list[str]:
        cores = []
        for statement in self.entity.statements:
            told = statement.relation in self.told and statement.era is None
            # Said in the opening: now and then it is said again.
            if not told or self.rng.random() < 0.25:
                cores.append(self._core(statement))
        joined: list[str] = []
        while cores:
            core = cores.pop(0)
            if cores and self.rng.random() < 0.2:
                core = f"{core}, and {cores.pop(0)}"
            joined.append(core)
        return joined

    def _core(self, statement: Statement) -> str:
        whom = statement.subject or self._reference()
        if statement.era is not None:
            template = self.rng.choice(_DATED[statement.relation])
            # A pronoun would need another case behind the first word.
            whom = self.entity.name if whom in PRONOUNS else whom
            value = write_value(statement.relation.kind, statement.value, self.rng)
            return template.replace("{era}", str(statement.era)).replace("{s}", whom).replace("{o}", value)
        said = FactTriple(Phrase(self.entity.name), statement.relation, statement.value)
        return write_triple(said, self.rng, subject=whom)

    def _reference(self) -> str:
        """The entity by name, by pronoun, by its kind, or by surname."""
        entity, roll = self.entity, self.rng.random()
        if entity.kind == "person":
            pronoun = "she" if entity.woman else "he"
            return pronoun if roll < 0.5 else entity.name if roll < 0.75 else entity.name.rsplit(maxsplit=1)[-1]
        return "it" if roll < 0.3 else f"the {TYPE_WORDS[entity.kind][0]}" if roll < 0.6 else entity.name


def _slots(template: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", template)


@lru_cache(maxsize=1_024)
def read_passage(title: str, text: str) -> PassageReading:
    """What the words of a passage say."""
    name = re.sub(r" \([a-z ]+\)$", "", title)
    kind: str | None = None
    occupation: str | None = None
    statements: list[Statement] = []
    unread: list[str] = []
    for sentence in re.split(r"(?<=\.)\s+", text.strip()):
        core = restore_plain_articles(sentence.strip().removesuffix("."))
        if not core or is_filler(core):
            continue
        if (opened := _read_opening(core, name)) is not None:
            kind, occupation, told = opened
            statements += told
            continue
        for part in core.split(", and "):
            found = _read_core(part, name)
            if found is None:
                unread.append(part)
            else:
                statements.append(found)
    return PassageReading(name, kind, occupation, tuple(dict.fromkeys(statements)), tuple(unread))


@cache
def _opening_patterns() -> tuple[tuple[re.Pattern[str], str, str], ...]:
    found = []
    for kind, templates in _OPENINGS.items():
        for template in templates:
            pattern = ""
            for index, part in enumerate(re.split(r"\{(\w+)\}", template)):
                if index % 2 == 0:
                    pattern += re.escape(part)
                elif part in _WORDS:
                    pattern += "(?:" + "|".join(_WORDS[part]) + ")"
                elif part == "occupation":
                    pattern += "(?P<occupation>" + "|".join(_OCCUPATIONS) + ")"
                else:
                    pattern += f"(?P<{part}>.+?)"
            found.append((re.compile(pattern), kind, template))
    return tuple(found)


def _read_opening(core: str, name: str) -> tuple[str, str | None, list[Statement]] | None:
    if " is a" not in core and " was a" not in core:
        return None
    for pattern, kind, _ in _opening_patterns():
        found = pattern.fullmatch(core)
        if not found or found["s"] != name:
            continue
        told = []
        for slot, text in found.groupdict().items():
            if slot in _SLOTS:
                value = read_value(_SLOTS[slot].kind, text)
                if value is None:
                    break
                told.append(Statement(None, _SLOTS[slot], value))
        else:
            return kind, found.groupdict().get("occupation"), told
    return None


def _read_core(part: str, name: str) -> Statement | None:
    for text in list_case_variants(_BARE.sub("it", part.strip())):
        for relation, templates in _DATED.items():
            for template in templates:
                for slots in match_form(template, text):
                    if slots["era"].isdigit() and (value := read_value(relation.kind, slots["o"])):
                        return Statement(_about(slots["s"], name), relation, value, int(slots["era"]))
        for said in read_triples(text):
            if said.subject.path or not isinstance(said.subject.base, str):
                continue
            value = name if said.value in PRONOUNS else said.value
            return Statement(_about(said.subject.base, name), said.relation, value)
    return None


def _about(text: str, name: str) -> str | None:
    """None when the text refers to whatever the passage is about."""
    return None if text.lower() in PRONOUNS or text in (name, *name.split()[-1:]) else text
