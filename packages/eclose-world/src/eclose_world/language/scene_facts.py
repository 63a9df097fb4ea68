"""Entities of the world with their facts, drawn in small seeded scenes.

A scene holds the facts that one question needs and facts that mislead: other works with chains of their own, namesakes,
titles used twice, older values with their dates. Wording is the business of ``passages``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from eclose.values.answers import contains_token_span, normalize_answer
from eclose_world.language import names
from eclose_world.language import relations as rel
from eclose_world.language.relations import Relation
from eclose_world.language.values import ValueKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


@dataclass(frozen=True, slots=True)
class FactStatement:
    """A fact as an article states it."""

    subject: str | None
    """The entity the fact is about; None for the subject of the article."""
    relation: Relation
    value: str
    era: int | None = None
    """The year up to which, or in which, the fact held; None for a current fact."""


@dataclass
class WorldEntity:
    """A person, work, place or organisation with an article of its own."""

    kind: str
    name: str
    title: str
    statements: list[FactStatement] = field(default_factory=list)
    occupation: str | None = None
    alias: str | None = None

    @property
    def woman(self) -> bool:
        """Whether the pronoun is "she"."""
        return names.is_female_name(self.name)

    def value(self, relation: Relation) -> str | None:
        """Return the current value of a relation, None where the entity has none."""
        return next((s.value for s in self.statements if s.relation is relation and s.era is None), None)

    def state(self, relation: Relation, value: str, era: int | None = None) -> None:
        """Add a fact unless the entity has it already."""
        # Subject None: the article states it about its own entity.
        statement = FactStatement(None, relation, value, era)
        if statement not in self.statements:
            self.statements.append(statement)


_MAKERS: dict[str, Callable[[Random], str]] = {
    rel.FILM: names.draw_work_title,
    rel.BOOK: names.draw_work_title,
    rel.SONG: names.draw_work_title,
    rel.COMPANY: names.draw_company_name,
    rel.CITY: names.draw_city_name,
    rel.COUNTRY: names.draw_country_name,
    rel.UNIVERSITY: names.draw_university_name,
    rel.AWARD: names.draw_award_name,
    rel.RIVER: names.draw_river_name,
    # Named like cities, so that the name does not show which of them it is.
    rel.COUNTY: names.draw_city_name,
    rel.TOWNSHIP: names.draw_city_name,
    rel.PERSON: names.draw_person_name,
}
_PARENTS = {rel.FATHER: names.draw_male_name, rel.MOTHER: names.draw_female_name}

# How often an entity's article states a relation when no question needs it.
_COMMON: dict[str, tuple[tuple[Relation, float], ...]] = {
    rel.FILM: ((rel.DIRECTOR, 0.9), (rel.RELEASED, 0.8), (rel.STUDIO, 0.4), (rel.SCREENWRITER, 0.4),
               (rel.RUNTIME, 0.5)),
    rel.BOOK: ((rel.AUTHOR, 0.9), (rel.PUBLISHED, 0.8), (rel.PUBLISHER, 0.5), (rel.PAGES, 0.4)),
    rel.SONG: ((rel.PERFORMER, 0.9), (rel.ISSUED, 0.7), (rel.SONGWRITER, 0.5)),
    rel.PERSON: ((rel.BIRTH_DATE, 0.9), (rel.BIRTH_PLACE, 0.7), (rel.NATIONALITY, 0.4), (rel.EDUCATED, 0.4),
                 (rel.DEATH_DATE, 0.5), (rel.DEATH_PLACE, 0.3), (rel.SPOUSE, 0.3), (rel.PRIZE, 0.3)),
    rel.COMPANY: ((rel.FOUNDER, 0.6), (rel.HEADQUARTERS, 0.8), (rel.FOUNDED, 0.7), (rel.EMPLOYEES, 0.4)),
    rel.CITY: ((rel.LIES_IN, 0.9), (rel.POPULATION, 0.7), (rel.ON_RIVER, 0.5)),
    rel.COUNTRY: ((rel.CAPITAL, 0.9),),
    rel.UNIVERSITY: ((rel.SEATED, 0.9), (rel.ESTABLISHED, 0.7)),
    rel.AWARD: ((rel.PRESENTED, 0.7),),
    rel.RIVER: (),
}  # fmt: skip


# Ranges do not overlap, so any draw is consistent: people are adults when they make something and alive until after.
_YEARS = {
    rel.BIRTH_DATE: (1912, 1942),
    rel.RELEASED: (1963, 1985),
    rel.PUBLISHED: (1963, 1985),
    rel.ISSUED: (1963, 1985),
    rel.FOUNDED: (1963, 1985),
    rel.DEATH_DATE: (1986, 2016),
    rel.ESTABLISHED: (1650, 1950),
    rel.CHARTERED: (1986, 2009),
    rel.AIRED: (1986, 2009),
    rel.TRANSLATED: (1986, 2009),
    rel.ACCREDITED: (1951, 1999),
}
_DATES = (rel.BIRTH_DATE, rel.DEATH_DATE)
# Relations with dated older values, and the years these come from: for a company, after its founding.
_PAST = {rel.POPULATION: (1931, 1998), rel.EMPLOYEES: (1987, 2012), rel.HEADQUARTERS: (1987, 2012)}


# Every new name is compared with all names of its scene.
_words = lru_cache(maxsize=4_096)(normalize_answer)


def _overlap(first: str, second: str) -> bool:
    """Return whether one name is contained in the other after normalisation, as answers are matched."""
    # Articles are dropped, so "The Lind Prize" and "Lind Prize" overlap.
    first_words, second_words = _words(first), _words(second)
    return contains_token_span(first_words, second_words) or contains_token_span(second_words, first_words)


class QuestionScene:
    """The entities around one question. Names do not overlap unless a caller shares one on purpose."""

    def __init__(self, rng: Random, detail: float = 1.0) -> None:
        self.rng = rng
        self.detail = detail
        self.entities: list[WorldEntity] = []
        # Every name used so far, and the surnames of people.
        self.names: set[str] = set()
        # Names of parents: their dates would have to fit those of their children.
        self.parents: set[str] = set()

    def draw_name(self, kind: str, relation: Relation | None = None) -> str:
        """Draw a name that overlaps with no other name of the scene. Fathers are men, mothers are women."""
        draw = _PARENTS.get(relation, _MAKERS[kind]) if relation else _MAKERS[kind]
        while True:
            name = draw(self.rng)
            # A person is also reserved by surname: articles refer to people by surname alone.
            parts = {name, name.split()[-1]} if kind == rel.PERSON else {name}
            if not any(_overlap(part, used) for part in parts for used in self.names):
                self.names |= parts
                return name

    def add_entity(
        self, kind: str, name: str | None = None, occupation: str | None = None, note: str | None = None
    ) -> WorldEntity:
        """Add an entity; ``note`` such as "film" goes into its title, to tell it from a namesake."""
        name = name or self.draw_name(kind)
        title = f"{name} ({note})" if note else name
        entity = WorldEntity(kind, name, title, occupation=occupation)
        if kind == rel.PERSON and occupation is None:
            entity.occupation = self.rng.choice(names.OCCUPATIONS)
        self.entities.append(entity)
        return entity

    def draw_value(self, relation: Relation) -> str:
        """Draw a plausible value for a relation: a date, a number, or an unused name."""
        rng = self.rng
        if relation.kind is ValueKind.NAME:
            return self.draw_name(relation.object or rel.PERSON, relation)
        if relation.kind is ValueKind.DATE:
            # Day 28 at most, so that every month has the day.
            year = rng.randint(*_YEARS[relation])
            return f"{year}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        if relation.kind is ValueKind.YEAR:
            return str(rng.randint(*_YEARS[relation]))
        if relation.kind is ValueKind.MINUTES:
            return str(rng.randint(71, 179))
        # Inhabitants, employees, and page counts for everything else.
        low, high = {rel.POPULATION: (2_100, 940_000), rel.EMPLOYEES: (12, 60_000)}.get(relation, (96, 912))
        return str(rng.randint(low, high))

    def link(self, subject: WorldEntity, relation: Relation, target: WorldEntity | str) -> None:
        """State a fact about the subject; a person gets the occupation that the relation implies."""
        value = target if isinstance(target, str) else target.name
        subject.state(relation, value)
        # See add_common_facts: parents get no dates.
        if relation in _PARENTS:
            self.parents.add(value)
        if relation is rel.CHILD:
            self.parents.add(subject.name)
        if isinstance(target, WorldEntity) and relation.role and target.kind == rel.PERSON:
            target.occupation = relation.role

    def add_common_facts(self, entity: WorldEntity, skip: tuple[Relation, ...] = ()) -> None:
        """Add the facts that an article of this kind usually has."""
        # A parent's dates would have to fit the child's.
        skip = (*skip, *_DATES) if entity.name in self.parents else skip
        for relation, chance in _COMMON[entity.kind]:
            if relation in skip or entity.value(relation) is not None or self.rng.random() > chance * self.detail:
                continue
            entity.state(relation, self.draw_value(relation))
        self._age(entity)

    def _age(self, entity: WorldEntity) -> None:
        """Add older values with their years, for relations that change over time."""
        for relation, years in _PAST.items():
            # The draw happens only where there is a current value: part of the stream's order.
            if entity.value(relation) is not None and self.rng.random() < 0.4 * self.detail:
                entity.state(relation, self.draw_value(relation), era=self.rng.randint(*years))
