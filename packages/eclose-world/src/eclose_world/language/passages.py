"""Passages: the facts of an entity written as an encyclopedia article, and read back from the words alone.

Writing mixes surface forms, pronouns, repeated mentions, compound sentences and fillers. Reading uses only the words,
so edited and foreign passages count as they stand; sentences outside the grammar are reported as unread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random

from eclose.values.instance import Passage
from eclose_world.language import names, phrases
from eclose_world.language import relations as rel
from eclose_world.language.phrases import replace_an_by_a
from eclose_world.language.scene_facts import FactStatement, WorldEntity
from eclose_world.language.values import draw_surface_form, parse_value

POOLS: dict[str, tuple[str, ...]] = {
    "quality": ("careful", "unhurried", "spare", "generous", "playful", "severe", "restrained", "vivid", "uneven", "bold"),
    "theme": ("memory", "exile", "weather", "inheritance", "silence", "friendship", "labour", "faith", "debt", "childhood"),
    "place": ("the coast", "the north", "a disused mill", "a rented flat", "the old quarter", "a border village", "the hills"),
    "season": ("spring", "summer", "autumn", "winter"),
    "people": ("critics", "readers", "students", "collectors", "visitors", "historians", "local papers", "later admirers"),
    "craft": ("editing", "lighting", "dialogue", "pacing", "sound", "cover design", "phrasing", "costumes", "typography"),
    "event": ("a fire", "a flood", "a strike", "the war years", "a change of government", "a long dispute", "an earthquake"),
    "trade": ("timber", "wool", "salt", "glass", "fruit", "copper", "paper", "grain", "fish", "ceramics"),
    "building": ("town hall", "cathedral", "covered market", "theatre", "observatory", "harbour wall", "railway station"),
    "number": ("two", "three", "four", "five", "six", "seven", "a dozen", "several"),
    "habit": ("gardening", "rowing", "mountain walking", "chess", "bookbinding", "beekeeping", "photography", "sailing"),
    "language": ("French", "Portuguese", "Japanese", "Greek", "Polish", "Turkish", "Welsh", "Czech"),
    "thing": ("letters", "notebooks", "sketches", "recordings", "photographs", "contracts", "diaries", "drafts"),
}  # fmt: skip

WORKS = (
    "Reviewers singled out its {quality} {craft} and its treatment of {theme}",
    "It has been translated into {language} and {language}",
    "Much of the work on it was done in {place} over a single {season}",
    "Among {people} it is remembered mainly for its {craft}",
    "An early version was abandoned after {event}",
    "The response at first was mixed, but {people} have since come to value its {quality} tone",
    "A restored version was shown to {people} {number} decades later",
    "The title is a private joke about {theme} that nobody outside the circle understood",
    "Its {craft} became a model for a generation of {people}",
    "Scholars have compared its handling of {theme} with that of {number} contemporaries",
    "Rights to a sequel were sold and never used, partly because of {event}",
    "It is often taught in courses on {theme}, where {people} tend to disagree about the ending",
    "The original {thing} are kept in a private archive in {place}",
    "Sales were modest until a {season} in which {people} rediscovered it",
    "A planned exhibition about its making was cancelled after {event}",
)
PEOPLE = (
    "Friends described a {quality} manner and a lasting interest in {theme}",
    "In later life {habit} took up most of the {season} months",
    "Several of the surviving {thing} have been shown to {people}",
    "The collected {thing} were edited by {number} former students",
    "Interviews from that time return again and again to {theme}",
    "There is a small museum with {thing} and furniture in {place}",
    "A memoir about {theme} was begun in {place} and left unfinished",
    "Work was interrupted for {number} years by {event}",
    "Contemporaries praised a {quality} way with {craft}, though {people} were not always convinced",
    "The {thing} from the early years were lost in {event}",
    "Fluent in {language} and {language}, the young student first earned a living as a translator",
    "{number} biographies have appeared, none of which {people} consider complete",
    "A street and a school near {place} bear the name",
    "Colleagues recalled long evenings spent on {habit} and arguments about {theme}",
    "An illness contracted in {place} left a permanent mark on the later work",
)
PLACES = (
    "The {building} was rebuilt after {event} and is now visited by {people}",
    "For centuries the main trade was in {trade} and {trade}",
    "A festival devoted to {theme} takes place every {season}",
    "The {building} and the {building} are protected monuments",
    "Older houses are built of local stone, with steep roofs against the {season} storms",
    "The economy still depends on {trade}, although {people} bring in more each year",
    "Its dialect has words for {theme} that {people} have tried to record",
    "The archive holds {thing} going back {number} centuries",
    "After {event} many families moved away, and the {building} stood empty for {number} years",
    "The local team has won the {season} cup {number} times",
    "A tramway once linked the {building} with {place}",
    "Exports of {trade} made a few families rich and paid for the {building}",
)
BODIES = (
    "It began in a single room in {place} and grew quickly through the sale of {trade}",
    "A dispute over {theme} split the board for {number} years",
    "The house style is known among {people} for its {quality} {craft}",
    "Its archive of {thing} is open to {people} every {season}",
    "After {event} it nearly closed, and {number} members of staff bought shares to keep it going",
    "Meetings are still held in {language}, a habit that puzzles {people}",
    "A foundation for {theme} bears its name",
    "Its first building, next to the {building}, burned down and was never replaced",
    "Competitors copied its way with {craft} within {number} years",
    "During {event} it turned for a while to the making of {trade}",
    "A history in {number} volumes was written for an anniversary and read mainly by {people}",
    "The emblem shows a {quality} hand holding a sheaf of {trade}",
)
SCHOOLS = (
    "The library holds {number} rooms of {thing}, some of them never catalogued",
    "Teaching was interrupted for {number} terms by {event}",
    "Its courses on {theme} attract {people} from abroad every {season}",
    "The oldest wing once served as a {building}",
    "Students of {craft} put on a show of their own each {season}",
    "A chair for the study of {theme} was endowed by a family that had grown rich on {trade}",
    "Lectures were held in {language} until {event}",
    "The rowing club and the society for {habit} are older than most departments",
    "A quarrel about {theme} divided the staff for {number} years",
    "Its collection of {thing} is open to {people} by appointment",
    "The grounds border on {place} and are known for a {quality} avenue of limes",
    "Graduates are said to be {quality} in argument and careless about {craft}",
)
PRIZES = (
    "The jury of {number} is drawn by lot from former winners",
    "No winner was named in the year of {event}",
    "Entries in {language} have been accepted for {number} decades",
    "It comes with a medal and a year free of duties, spent as a rule in {place}",
    "The founder, a dealer in {trade}, asked that no work on {theme} be excluded",
    "Its shortlist is read closely by {people}",
    "The dinner that follows each {season} is better known than the speeches",
    "Twice it went to {number} people at once, against the wishes of {people}",
    "A book of the winners' {thing} appears every few years",
    "Winners are expected to give a talk on {theme} or on {craft}",
    "Early juries favoured {quality} work, and {people} complained",
    "The statutes were rewritten after {event}",
)
BY_KIND = {
    "film": WORKS, "book": WORKS, "song": WORKS, "person": PEOPLE, "city": PLACES, "country": PLACES,
    "company": BODIES, "university": SCHOOLS, "award": PRIZES,
}  # fmt: skip

_SLOT = re.compile(r"\{(\w+)\}")


def draw_filler_sentence(kind: str, rng: Random, used: set[str]) -> str | None:
    """Return an unused sentence without its full stop, None where all are used; ``used`` gets its template."""
    unused = [template for template in BY_KIND[kind] if template not in used]
    if not unused:
        return None
    template = rng.choice(unused)
    used.add(template)
    chosen: set[str] = set()

    # No word twice in a sentence: two slots may share a pool.
    def fill(slot: re.Match[str]) -> str:
        word = rng.choice([word for word in POOLS[slot[1]] if word not in chosen])
        chosen.add(word)
        return word

    return _SLOT.sub(fill, template)


@cache
def _pattern() -> re.Pattern[str]:
    alternatives = []
    # dict, not set: works share templates, and the order stays fixed.
    for template in {template: None for group in BY_KIND.values() for template in group}:
        parts = _SLOT.split(replace_an_by_a(template))
        alternatives.append(
            "".join(
                # Even parts are literal text, odd parts are slot names.
                re.escape(part) if index % 2 == 0 else "(?:" + "|".join(map(replace_an_by_a, POOLS[part])) + ")"
                for index, part in enumerate(parts)
            )
        )
    # Without case: a slot at the start of a sentence is capitalised.
    return re.compile("|".join(alternatives), re.IGNORECASE)


def is_filler_sentence(text: str) -> bool:
    """Return whether a sentence core with plain articles is a filler."""
    return _pattern().fullmatch(text) is not None


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
    return PassageReading(
        name=name,
        kind=kind,
        occupation=occupation,
        statements=tuple(dict.fromkeys(statements)),
        unread=tuple(unread),
        words=words,
    )


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
