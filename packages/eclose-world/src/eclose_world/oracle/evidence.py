"""Facts read from the words of passages, and the values that phrases and questions lead to in them.

Every decision of the oracle about evidence rests on this module. Nothing is looked up by passage id.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from eclose_world.language.passages import PassageReading, parse_passage_facts
from eclose_world.language.phrases import PersonOfTwoDeeds, RelationPhrase
from eclose_world.language.questions import (
    NO,
    YES,
    ComparisonQuestion,
    LookupQuestion,
    SameValueQuestion,
    Target,
    YearSpanQuestion,
    parse_question,
)
from eclose_world.language.relations import ALIAS, RARE_RELATIONS, RELATIONS, Relation
from eclose_world.language.values import extract_year, is_comparable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eclose.values.instance import Passage
    from eclose_world.language.scene_facts import FactStatement

# Era of a current fact: later than any year.
_CURRENT = 10_000


@dataclass(frozen=True, slots=True)
class EvidenceFact:
    """One fact of a derivation: subject, relation, value, and the indices of the passages that state it."""

    subject: str
    relation: Relation
    value: str
    passages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ValueDerivation:
    """A value and the facts that lead to it."""

    value: str
    hops: tuple[EvidenceFact, ...]

    @property
    def support(self) -> frozenset[int]:
        """The smallest set of passages that states all the facts."""
        # Few combinations: a question has at most a handful of facts, each in one or two passages.
        choices = product(*(hop.passages for hop in self.hops))
        # Ties go to the lowest indices, so the support does not depend on set order.
        return min(
            (frozenset(choice) for choice in choices),
            key=lambda indices: (len(indices), sorted(indices)),
            default=frozenset(),
        )


class EvidenceFacts:
    """The facts of a sequence of passages."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.readings: list[PassageReading] = [parse_passage_facts(passage.title, passage.text) for passage in passages]
        # Passages by the name they are about; namesakes share an entry.
        self._about: defaultdict[str, list[int]] = defaultdict(list)
        # Statements about another entity than the subject of their passage.
        self._loose: defaultdict[tuple[str, Relation], list[tuple[FactStatement, int]]] = defaultdict(list)
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
        """Sentences outside the grammar, each with the index of its passage."""
        return [(index, part) for index, reading in enumerate(self.readings) for part in reading.unread]

    def list_relations(self) -> list[Relation]:
        """Return the relations that a question about the passages may ask for: all but rare ones without a fact."""
        stated = {statement.relation for reading in self.readings for statement in reading.statements}
        return [relation for relation in RELATIONS if relation not in RARE_RELATIONS or relation in stated]

    def same_entity(self, name: str, other: str) -> bool:
        """Return whether two names belong to one entity according to the passages."""
        return name == other or name in self._aliases[other] or other in self._aliases[name]

    def describes(self, name: str, kind: str, words: frozenset[str]) -> bool:
        """Return whether the opening of a passage calls a name a thing of this kind, in these words."""
        return any(self.readings[i].kind == kind and words <= self.readings[i].words for i in self._about[name])

    def find_kinds(self, name: str) -> set[str | None]:
        """Return the types of the things that passages about a name describe; None for one without an opening."""
        return {self.readings[i].kind for i in self._about.get(name, ())}

    def states_value(self, relation: Relation, value: str) -> bool:
        """Return whether a passage states the value of this relation for anything."""
        return any(
            statement.relation is relation and statement.value == value
            for reading in self.readings
            for statement in reading.statements
        )

    def find_facts(self, name: str, relation: Relation, role: str | None = None) -> Iterator[EvidenceFact]:
        """Yield the current facts of a name; several values where the passages leave it open.

        ``role`` is the relation's role by which the name was reached: of two namesakes, the director of a film is the
        one with the occupation film director.
        """
        passages_by_value: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for subject, statement, index in self._current_statements(name, relation, role):
            passages_by_value[subject, statement.value].append(index)
        for (subject, value), indices in passages_by_value.items():
            yield EvidenceFact(subject, relation, value, tuple(dict.fromkeys(indices)))

    def _current_statements(
        self, name: str, relation: Relation, role: str | None
    ) -> Iterator[tuple[str, FactStatement, int]]:
        for subject in (name, *self._aliases[name]):
            # Loose statements stand in articles about another subject. Only the newest value of a relation counts.
            loose = self._loose.get((subject, relation), [])
            latest_loose = max((statement.era or _CURRENT for statement, _ in loose), default=0)
            newest = latest_loose
            for referent in self.find_referents(subject, relation.subject, role):
                statements = [
                    statement
                    for statement in self.readings[referent].statements
                    if statement.subject is None and statement.relation is relation
                ]
                latest = max((latest_loose, *(statement.era or _CURRENT for statement in statements)))
                newest = max(newest, latest)
                yield from (
                    (subject, statement, referent) for statement in statements if (statement.era or _CURRENT) == latest
                )
            yield from (
                (subject, statement, index) for statement, index in loose if (statement.era or _CURRENT) == newest
            )

    def find_referents(self, name: str, kind: str, role: str | None = None) -> list[int]:
        """Return the passages about bearers of a name, narrowed by occupation where there are several."""
        bearers = [i for i in self._about[name] if self.readings[i].kind in (kind, None)]
        fitting = [i for i in bearers if self.readings[i].occupation == role]
        return fitting if role and len(bearers) > 1 and fitting else bearers

    def derive(self, phrase: RelationPhrase, role: str | None = None) -> list[ValueDerivation]:
        """Return every value that the phrase leads to, with the facts on the path.

        ``role`` is the role by which the base of the phrase was reached.
        """
        derivations = (
            list(self._find_doers(phrase.base))
            if isinstance(phrase.base, PersonOfTwoDeeds)
            else [ValueDerivation(phrase.base, ())]
        )
        for relation in phrase.path:
            derivations = [
                ValueDerivation(hop.value, (*derivation.hops, *self._link_alias(derivation.value, hop), hop))
                for derivation in derivations
                for hop in self.find_facts(derivation.value, relation, role)
            ]
            # The next base was reached by this relation.
            role = relation.role
        return derivations

    def _link_alias(self, mention: str, hop: EvidenceFact) -> tuple[EvidenceFact, ...]:
        """Return the fact that joins a name to the other name under which the next fact is stated."""
        if hop.subject == mention:
            return ()
        indices = [
            index
            for index, reading in enumerate(self.readings)
            for statement in reading.statements
            if statement.relation is ALIAS
            and statement.value == mention
            and (statement.subject or reading.name) == hop.subject
        ]
        return (EvidenceFact(hop.subject, ALIAS, mention, tuple(indices)),)

    def _find_doers(self, doer: PersonOfTwoDeeds) -> Iterator[ValueDerivation]:
        (first, first_work), (second, second_work) = doer.deeds
        for first_fact in self.find_facts(first_work, first):
            for second_fact in self.find_facts(second_work, second):
                # Compared by name: aliases do not count here.
                if first_fact.value == second_fact.value:
                    yield ValueDerivation(first_fact.value, (first_fact, second_fact))

    def find_answers(self, target: Target) -> list[ValueDerivation]:
        """Return every answer that the passages give to a question, one derivation each."""
        if isinstance(target, LookupQuestion):
            return _distinct(self.derive(target.phrase))
        first, second = (self.derive(phrase) for phrase in target.phrases())
        derivations = []
        # Every combination: an open side gives several answers, and the question is then not unique.
        for first_side, second_side in product(first, second):
            answer = self._settle(target, first_side.value, second_side.value)
            if answer is not None:
                derivations.append(ValueDerivation(answer, (*first_side.hops, *second_side.hops)))
        return _distinct(derivations)

    def _settle(
        self, target: ComparisonQuestion | SameValueQuestion | YearSpanQuestion, first_value: str, second_value: str
    ) -> str | None:
        if isinstance(target, SameValueQuestion):
            return YES if self.same_entity(first_value, second_value) else NO
        return answer_comparison(target, first_value, second_value)


def answer_comparison(target: ComparisonQuestion | YearSpanQuestion, first_value: str, second_value: str) -> str | None:
    """Return the answer that two values give to a comparison, None for a tie and for values without an order."""
    if not is_comparable(first_value) or not is_comparable(second_value):
        return None
    if isinstance(target, YearSpanQuestion):
        return str(abs(extract_year(first_value) - extract_year(second_value)))
    if value_sort_key(first_value) == value_sort_key(second_value):
        return None
    return target.options[0 if (value_sort_key(first_value) < value_sort_key(second_value)) == target.least else 1]


def value_sort_key(value: str) -> tuple[int, ...]:
    """Return a key that sorts dates, years and numbers."""
    return tuple(int(part) for part in value.split("-"))


def _distinct(derivations: list[ValueDerivation]) -> list[ValueDerivation]:
    """Return one derivation per answer: the one with the smallest support."""
    best: dict[str, ValueDerivation] = {}
    for derivation in derivations:
        if derivation.value not in best or len(derivation.support) < len(best[derivation.value].support):
            best[derivation.value] = derivation
    return list(best.values())


@lru_cache(maxsize=128)
def parse_evidence_facts(passages: tuple[Passage, ...]) -> EvidenceFacts:
    """Return the facts of the passages, cached."""
    return EvidenceFacts(passages)


def find_warranted_answers(question: str, passages: tuple[Passage, ...]) -> list[str] | None:
    """Return every answer that the passages warrant, None where the question cannot be read."""
    target = parse_question(question)
    if target is None:
        return None
    return [derivation.value for derivation in parse_evidence_facts(passages).find_answers(target)]
