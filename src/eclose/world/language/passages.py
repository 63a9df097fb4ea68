"""Passages: the facts of an entity written as an encyclopedia article, and read back from the words alone.

Writing mixes surface forms, pronouns, repeated mentions, compound sentences and fillers. Reading uses only the words,
so edited and foreign passages count as they stand; sentences outside the grammar are reported as unread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random

from eclose.core.instance import Passage
from eclose.world.language import names, phrases
from eclose.world.language import relations as rel
from eclose.world.language.fillers import draw_filler_sentence, is_filler_sentence
from eclose.world.language.scene_facts import FactStatement, WorldEntity
from eclose.world.language.values import draw_surface_form, parse_value

# Slots of openings that state a fact, and the relation they state.
_SLOTS: dict[str, rel.Relation] = {
    "released": rel.RELEASED, "director": rel.DIRECTOR, "published": rel.PUBLISHED, "author": rel.AUTHOR, "issued": rel.ISSUED,
    "performer": rel.PERFORMER, "born": rel.BIRTH_DATE, "died": rel.DEATH_DATE, "birthplace": rel.BIRTH_PLACE, "country": rel.LIES_IN,
    "seat": rel.HEADQUARTERS, "founded": rel.FOUNDED, "location": rel.SEATED,
}  # fmt: skip
# Slots of openings that state nothing a question could ask for.
_WORDS: dict[str, tuple[str, ...]] = {
    "genre": names.GENRES,
    "industry": names.INDUSTRIES,
    "adjective": names.ADJECTIVES,
    "field": ("short fiction", "public service", "chamber music", "translation", "documentary work", "engineering"),
    "state": ("republic", "kingdom", "federation"),
}
_OCCUPATIONS = (*names.OCCUPATIONS, *(relation.role for relation in rel.RELATIONS if relation.role), "scholar")
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
_DATED: dict[rel.Relation, tuple[str, ...]] = {
    rel.POPULATION: ("in {era} the population of {s} was {o}", "at the census of {era} {s} had {o} inhabitants"),
    rel.EMPLOYEES: ("in {era} {s} employed {o} people",),
    rel.HEADQUARTERS: ("until {era} {s} was based in {o}", "before {era} the head office of {s} was in {o}"),
}
DATED_RELATIONS = frozenset(_DATED)
"""Relations of which a passage may also state a former value, with its year."""
# Estimated lengths in words, for _Article.text.
_OPENING_WORDS, _FACT_WORDS = 10, 6
_KIND_WORDS = "|".join(word for words in rel.TYPE_WORDS.values() for word in words)
# "the film" without a name behind it refers to the subject of the article.
_BARE = re.compile(rf"\b[Tt]he (?:{_KIND_WORDS})\b(?! [A-Z(])")


@dataclass(frozen=True, slots=True)
class PassageReading:
    """The facts that a passage states."""

    name: str
    """The subject: the title without its note in parentheses."""
    kind: str | None
    occupation: str | None
    statements: tuple[FactStatement, ...]
    unread: tuple[str, ...]
    """Sentences outside the grammar."""
    words: frozenset[str] = frozenset()
    """Genre, industry or occupation in the opening."""


@dataclass(frozen=True, slots=True)
class OpeningReading:
    """What the first sentence of an article states."""

    name: str
    kind: str
    occupation: str | None
    words: frozenset[str]
    """Genre, industry or occupation, as far as stated."""
    statements: tuple[FactStatement, ...]


def write_entity_passage(entity: WorldEntity, index: int, *, seed: str, words: int) -> Passage:
    """Write the passage of an entity in about so many words.

    Equal seeds give equal words around changed values.
    """
    return Passage(str(index), entity.title, _Article(entity, Random(seed)).text(words))


class _Article:
    """Writer of one passage."""

    def __init__(self, entity: WorldEntity, rng: Random) -> None:
        self.entity = entity
        self.rng = rng
        self.opened: set[rel.Relation] = set()

    def text(self, words: int) -> str:
        """Return the article: an opening, then facts and fillers in random order."""
        # The order of these two calls is part of the output: both draw from the same stream.
        opening = phrases.capitalise_sentence(self._opening())
        sentences = [phrases.capitalise_sentence(core) for core in self._facts()]
        used: set[str] = set()
        # An estimate, not a count: a value of more words must not change which fillers follow.
        length = _OPENING_WORDS + _FACT_WORDS * len(self.entity.statements)
        while length < words and (filler := draw_filler_sentence(self.entity.kind, self.rng, used)):
            sentences.append(phrases.capitalise_sentence(filler))
            length += len(filler.split())
        self.rng.shuffle(sentences)
        return ". ".join([opening, *sentences]) + "."

    def _opening(self) -> str:
        current = {statement.relation for statement in self.entity.statements if statement.era is None}
        possible = [
            template
            for template in _OPENINGS[self.entity.kind]
            if all(_SLOTS[slot] in current for slot in _slots(template) if slot in _SLOTS)
        ]
        if self.entity.kind == "person":
            # Tense and dates must agree: "was" exactly for people with a date or place of death.
            deceased = bool(current & {rel.DEATH_DATE, rel.DEATH_PLACE})
            possible = [template for template in possible if (" was a " in template) == deceased]
        # Templates are ordered by content; the last and poorest is used only where nothing else fits.
        template = self.rng.choice(possible[:-1] or possible)

        def fill(slot: re.Match[str]) -> str:
            name = slot[1]
            if name == "s":
                return self.entity.name
            if name == "occupation":
                return self.entity.occupation or "scholar"
            if name == "industry" and (industry := names.infer_company_industry(self.entity.name)):
                return industry
            if name in _WORDS:
                return self.rng.choice(_WORDS[name])
            relation = _SLOTS[name]
            self.opened.add(relation)
            value = next(s.value for s in self.entity.statements if s.relation is relation and s.era is None)
            return draw_surface_form(relation.kind, value, self.rng)

        return re.sub(r"\{(\w+)\}", fill, template)

    def _facts(self) -> list[str]:
        cores = []
        for statement in self.entity.statements:
            repeated = statement.relation in self.opened and statement.era is None
            # A quarter of the facts in the opening are repeated, so an edit has several places to change.
            if not repeated or self.rng.random() < 0.25:
                cores.append(self._core(statement))
        # With a chance of 20 % two facts share a sentence: "..., and ...".
        joined: list[str] = []
        while cores:
            core = cores.pop(0)
            if cores and self.rng.random() < 0.2:
                core = f"{core}, and {cores.pop(0)}"
            joined.append(core)
        return joined

    def _core(self, statement: FactStatement) -> str:
        subject = statement.subject or self._reference()
        if statement.era is not None:
            template = self.rng.choice(_DATED[statement.relation])
            # A pronoun would need another case behind the first word.
            subject = self.entity.name if subject in phrases.PRONOUNS else subject
            value = draw_surface_form(statement.relation.kind, statement.value, self.rng)
            return template.replace("{era}", str(statement.era)).replace("{s}", subject).replace("{o}", value)
        triple = phrases.FactTriple(phrases.RelationPhrase(self.entity.name), statement.relation, statement.value)
        return phrases.verbalize_fact(triple, self.rng, subject=subject)

    def _reference(self) -> str:
        """Return a mention of the entity: name, pronoun, kind, or surname."""
        entity, roll = self.entity, self.rng.random()
        if entity.kind == "person":
            pronoun = "she" if entity.woman else "he"
            return pronoun if roll < 0.5 else entity.name if roll < 0.75 else entity.name.rsplit(maxsplit=1)[-1]
        return "it" if roll < 0.3 else f"the {rel.TYPE_WORDS[entity.kind][0]}" if roll < 0.6 else entity.name


def _slots(template: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", template)


# Cached, because the labels of one response are decided by separate calls on the same passages.
@lru_cache(maxsize=1_024)
def parse_passage_facts(title: str, text: str) -> PassageReading:
    """Return the facts that the words of a passage state. Without a title, the opening names the subject."""
    # "Paper Lighthouse (film)" is about "Paper Lighthouse".
    name = re.sub(r" \([a-z ]+\)$", "", title) or _find_subject(text)
    kind: str | None = None
    occupation: str | None = None
    statements: list[FactStatement] = []
    words: frozenset[str] = frozenset()
    unread: list[str] = []
    for sentence in re.split(r"(?<=\.)\s+", text.strip()):
        core = phrases.replace_an_by_a(sentence.strip().removesuffix("."))
        if not core or is_filler_sentence(core):
            continue
        if (opening := parse_opening(core, name)) is not None:
            kind, occupation, words = opening.kind, opening.occupation, opening.words
            statements += opening.statements
            continue
        # No name contains ", and ", so the split never cuts one.
        for part in core.split(", and "):
            statement = _read_core(part, name)
            if statement is None:
                unread.append(part)
            else:
                statements.append(statement)
    # Repeated facts count once; dict.fromkeys keeps their order.
    return PassageReading(name, kind, occupation, tuple(dict.fromkeys(statements)), tuple(unread), words)


def _find_subject(text: str) -> str:
    """Return the subject of a passage without a title by its opening; an empty text where there is none."""
    for sentence in re.split(r"(?<=\.)\s+", text.strip()):
        opening = parse_opening(phrases.replace_an_by_a(sentence.strip().removesuffix(".")))
        if opening is not None:
            return opening.name
    return ""


@cache
def _opening_patterns() -> tuple[tuple[re.Pattern[str], str, str], ...]:
    patterns = []
    for kind, templates in _OPENINGS.items():
        for template in templates:
            pattern = ""
            for index, part in enumerate(re.split(r"\{(\w+)\}", template)):
                if index % 2 == 0:
                    pattern += re.escape(part)
                elif part in _WORDS:
                    pattern += f"(?P<{part}>" + "|".join(_WORDS[part]) + ")"
                elif part == "occupation":
                    pattern += "(?P<occupation>" + "|".join(_OCCUPATIONS) + ")"
                else:
                    pattern += f"(?P<{part}>.+?)"
            patterns.append((re.compile(pattern), kind, template))
    return tuple(patterns)


def parse_opening(core: str, name: str | None = None) -> OpeningReading | None:
    """Return what the opening of an article states, None where the sentence is none; ``name`` is its known subject."""
    # A cheap test that spares most sentences the patterns below.
    if " is a" not in core and " was a" not in core:
        return None
    for pattern, kind, _ in _opening_patterns():
        matched = pattern.fullmatch(core)
        if not matched or matched["s"] != (name or matched["s"]):
            continue
        slots = matched.groupdict()
        values = {slot: parse_value(_SLOTS[slot].kind, text) for slot, text in slots.items() if slot in _SLOTS}
        # A slot that is no value of its kind rules the template out.
        if None in values.values():
            continue
        return OpeningReading(
            matched["s"],
            kind,
            slots.get("occupation"),
            frozenset(text for slot, text in slots.items() if slot in _WORDS or slot == "occupation"),
            tuple(FactStatement(None, _SLOTS[slot], value) for slot, value in values.items() if value is not None),
        )
    return None


def _read_core(part: str, name: str) -> FactStatement | None:
    for text in phrases.list_initial_letter_variants(_BARE.sub("it", part.strip())):
        # Dated forms come first: "in 1950 the population of X was 7" also contains a plain form.
        for relation, templates in _DATED.items():
            for template in templates:
                for slots in phrases.match_template(template, text):
                    if slots["era"].isdigit() and (value := parse_value(relation.kind, slots["o"])):
                        return FactStatement(_about(slots["s"], name), relation, value, int(slots["era"]))
        for triple in phrases.parse_fact_triples(text):
            if triple.subject.path or not isinstance(triple.subject.base, str):
                continue
            value = name if triple.value in phrases.PRONOUNS else triple.value
            return FactStatement(_about(triple.subject.base, name), triple.relation, value)
    return None


def _about(text: str, name: str) -> str | None:
    # Surname alone refers to the subject too.
    return None if text.lower() in phrases.PRONOUNS or text in (name, *name.split()[-1:]) else text
