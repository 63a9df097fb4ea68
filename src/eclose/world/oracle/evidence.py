"""What a set of passages establishes: the facts read from their words, and where phrases and questions lead in them.

Everything the oracle decides about evidence comes from here. Nothing is looked up by passage id.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from eclose.world.language.passages import PassageReading, read_passage
from eclose.world.language.phrases import CommonDoer, Phrase
from eclose.world.language.questions import (
    NO,
    YES,
    AgreementQuestion,
    ChoiceQuestion,
    LookupQuestion,
    Target,
    YearSpanQuestion,
)
from eclose.world.language.relations import ALIAS, Relation
from eclose.world.language.values import read_year

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eclose.core.instance import Passage
    from eclose.world.language.facts import Statement

_NOW = 10_000


@dataclass(frozen=True, slots=True)
class EvidenceFact:
    """One fact on the way: of whom, which relation, what, and the passages that state it."""

    subject: str
    relation: Relation
    value: str
    passages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Derivation:
    """A value and the facts that lead to it."""

    value: str
    hops: tuple[EvidenceFact, ...]

    @property
    def support(self) -> frozenset[int]:
        """The fewest passages that state all the facts."""
        choices = product(*(hop.passages for hop in self.hops))
        return min((frozenset(choice) for choice in choices), key=lambda s: (len(s), sorted(s)), default=frozenset())


class EvidenceFacts:
    """The facts of some passages."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.readings: list[PassageReading] = [read_passage(passage.title, passage.text) for passage in passages]
        self._about: defaultdict[str, list[int]] = defaultdict(list)
        self._loose: defaultdict[tuple[str, Relation], list[tuple[Statement, int]]] = defaultdict(list)
        self._aliases: defaultdict[str, list[str]] = defaultdict(list)
        for index, reading in enumerate(self.readings):
            self._about[reading.name].append(index)
            for statement in reading.statements:
                if statement.subject is not None:
                    self._loose[statement.subject, statement.relation].append((statement, index))
                if statement.relation is ALIAS:
                    self._aliases[statement.value].append(statement.subject or reading.name)

    @property
    def unread(self) -> list[tuple[int, str]]:
        """Sentences nobody could read, with the passage they stand in."""
        return [(index, part) for index, reading in enumerate(self.readings) for part in reading.unread]

    def same(self, one: str, other: str) -> bool:
        """Whether two names are one person's, as the passages have it."""
        return one == other or one in self._aliases[other] or other in self._aliases[one]

    def facts(self, name: str, relation: Relation, role: str | None = None) -> Iterator[EvidenceFact]:
        """What the passages say now of a name; several values where they leave it open.

        ``role`` is how the name was reached: of two namesakes, the director of a film is the one who is a film
        director.
        """
        found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for subject, statement, index in self._stated(name, relation, role):
            found[subject, statement.value].append(index)
        for (subject, value), where in found.items():
            yield EvidenceFact(subject, relation, value, tuple(dict.fromkeys(where)))

    def _stated(self, name: str, relation: Relation, role: str | None) -> Iterator[tuple[str, Statement, int]]:
        for subject in (name, *self._aliases[name]):
            loose = self._loose.get((subject, relation), [])
            elsewhere = max((s.era or _NOW for s, _ in loose), default=0)
            newest = elsewhere
            for referent in self.referents(subject, relation.subject, role):
                own = [s for s in self.readings[referent].statements if s.subject is None and s.relation is relation]
                latest = max((elsewhere, *(s.era or _NOW for s in own)))
                newest = max(newest, latest)
                yield from ((subject, s, referent) for s in own if (s.era or _NOW) == latest)
            yield from ((subject, s, index) for s, index in loose if (s.era or _NOW) == newest)

    def referents(self, name: str, kind: str, role: str | None = None) -> list[int]:
        """The passages about bearers of a name, narrowed by the role if there are several."""
        bearers = [i for i in self._about[name] if self.readings[i].kind in (kind, None)]
        fitting = [i for i in bearers if self.readings[i].occupation == role]
        return fitting if role and len(bearers) > 1 and fitting else bearers

    def ways(self, phrase: Phrase, role: str | None = None) -> list[Derivation]:
        """Every value the phrase leads to, with the facts on the way; ``role`` is how its base was reached."""
        reached = (
            list(self._doers(phrase.base)) if isinstance(phrase.base, CommonDoer) else [Derivation(phrase.base, ())]
        )
        for relation in phrase.path:
            reached = [
                Derivation(hop.value, (*way.hops, *self._link(way.value, hop), hop))
                for way in reached
                for hop in self.facts(way.value, relation, role)
            ]
            role = relation.role
        return reached

    def _link(self, mention: str, hop: EvidenceFact) -> tuple[EvidenceFact, ...]:
        """The fact that joins a name to the one under which the next fact is told."""
        if hop.subject == mention:
            return ()
        where = [
            index
            for index, reading in enumerate(self.readings)
            for s in reading.statements
            if s.relation is ALIAS and s.value == mention and (s.subject or reading.name) == hop.subject
        ]
        return (EvidenceFact(hop.subject, ALIAS, mention, tuple(where)),)

    def _doers(self, which: CommonDoer) -> Iterator[Derivation]:
        (first, a), (second, b) = which.deeds
        for one in self.facts(a, first):
            for two in self.facts(b, second):
                if one.value == two.value:
                    yield Derivation(one.value, (one, two))

    def answers(self, target: Target) -> list[Derivation]:
        """Every answer the passages give to a question; one answer is a unique one."""
        if isinstance(target, LookupQuestion):
            return _distinct(self.ways(target.phrase))
        left, right = (self.ways(phrase) for phrase in target.phrases())
        found = []
        for one, two in product(left, right):
            answer = self._settle(target, one.value, two.value)
            if answer is not None:
                found.append(Derivation(answer, (*one.hops, *two.hops)))
        return _distinct(found)

    def _settle(self, target: ChoiceQuestion | AgreementQuestion | YearSpanQuestion, one: str, two: str) -> str | None:
        if isinstance(target, AgreementQuestion):
            return YES if self.same(one, two) else NO
        return settle_comparison(target, one, two)


def settle_comparison(target: ChoiceQuestion | YearSpanQuestion, one: str, two: str) -> str | None:
    """The answer that two values give to a comparison; None for a tie."""
    if isinstance(target, YearSpanQuestion):
        return str(abs(read_year(one) - read_year(two)))
    if sort_key(one) == sort_key(two):
        return None
    return target.options[0 if (sort_key(one) < sort_key(two)) == target.least else 1]


def sort_key(value: str) -> tuple[int, ...]:
    """Dates, years and numbers in their order."""
    return tuple(int(part) for part in value.split("-"))


def _distinct(ways: list[Derivation]) -> list[Derivation]:
    """One way per answer: the one with the smallest support."""
    best: dict[str, Derivation] = {}
    for way in ways:
        if way.value not in best or len(way.support) < len(best[way.value].support):
            best[way.value] = way
    return list(best.values())


@lru_cache(maxsize=128)
def read_evidence(passages: tuple[Passage, ...]) -> EvidenceFacts:
    """The facts of some passages, read once."""
    return EvidenceFacts(passages)
