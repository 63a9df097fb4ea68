"""Other questions, answers and values that the same passages support: the ways in which a response can go wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from eclose_world.language.claims import FactClaim
from eclose_world.language.questions import (
    NO,
    YES,
    ComparisonQuestion,
    LookupQuestion,
    SameValueQuestion,
    Target,
    YearSpanQuestion,
)
from eclose_world.language.relations import ALIAS, Relation
from eclose_world.language.values import ValueKind
from eclose_world.make.instances import WorldItem
from eclose_world.oracle.evidence import EvidenceFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose_world.language.phrases import RelationPhrase


@dataclass(frozen=True, slots=True)
class ItemAlternatives:
    """Other questions, answers and values for one item."""

    item: WorldItem
    evidence: EvidenceFacts
    rng: Random

    def find_targets(self) -> list[tuple[Target, bool]]:
        """Return questions close to the asked one, each with whether answering it also answers the asked one."""
        target = self.item.target
        if isinstance(target, ComparisonQuestion):
            # The reversed choice rests on the same facts, so its trace still establishes the asked answer.
            reversed_choice: list[tuple[Target, bool]] = [(replace(target, least=not target.least), True)]
            rivals = self._find_rivals(target.kind, target.options)
            return reversed_choice + [(replace(target, options=(target.options[0], rival)), False) for rival in rivals]
        if isinstance(target, LookupQuestion):
            return [(other, False) for other in self._find_lookups(target)]
        # One side alone, or a prefix of its path, would be a valid intermediate goal and not a deviation.
        sides = target.phrases()
        return [
            (other, False)
            for phrase in sides
            for other in self._find_lookups(LookupQuestion(phrase))
            if not any(_leads_to(other.phrase, side) for side in sides)
        ]

    def _find_lookups(self, target: LookupQuestion) -> list[LookupQuestion]:
        phrase = target.phrase
        lookups: list[LookupQuestion] = []
        if isinstance(phrase.base, str) and phrase.path:
            rivals = self._find_rivals(phrase.path[0].subject, self._start_names())
            lookups += [LookupQuestion(replace(phrase, base=rival)) for rival in rivals]
        if phrase.path:
            last = phrase.path[-1]
            # Other relations of the same subject type: "where was X born" beside "where did X die".
            relations = self.evidence.list_relations()
            siblings = [r for r in relations if r.subject == last.subject and r is not last and r is not ALIAS]
            lookups += [LookupQuestion(replace(phrase, path=(*phrase.path[:-1], other))) for other in siblings]
        return lookups

    def _start_names(self) -> list[str]:
        phrases = (
            (self.item.target.phrase,) if isinstance(self.item.target, LookupQuestion) else self.item.target.phrases()
        )
        return [phrase.base for phrase in phrases if isinstance(phrase.base, str)]

    def _find_rivals(self, kind: str, excluded: Sequence[str]) -> list[str]:
        return [
            reading.name for reading in self.evidence.readings if reading.kind == kind and reading.name not in excluded
        ]

    def pick_wrong_answer(self) -> str | None:
        """Draw a wrong answer of the right type, None where the passages offer none."""
        target, answer = self.item.target, self.item.solution.answer
        if isinstance(target, ComparisonQuestion):
            return next(option for option in target.options if option != answer)
        if isinstance(target, SameValueQuestion):
            return NO if answer == YES else YES
        if isinstance(target, YearSpanQuestion):
            # A span of years stays positive.
            return str(int(answer) + self.rng.choice([by for by in (-3, -2, -1, 1, 2, 5) if int(answer) + by > 0]))
        relation = target.phrase.path[-1] if target.phrase.path else target.phrase.base.deeds[0][0]  # type: ignore[union-attr]
        return self.pick_other_value(relation, answer)

    def mix_with_correct(self, other: str) -> str:
        """Return the wrong answer, in half of the cases joined to the correct one by "or", which settles nothing."""
        names = [self.item.solution.answer, other]
        # Yes or no, numbers and dates are never mixed.
        if isinstance(self.item.target, SameValueQuestion) or other[:1].isdigit() or self.rng.random() > 0.5:
            return other
        self.rng.shuffle(names)
        return " or ".join(names)

    def pick_other_value(self, relation: Relation, value: str) -> str | None:
        """Draw another value for a relation; for a name, one that occurs in the passages."""
        if relation.kind is ValueKind.DATE:
            # Only the year of a date changes.
            return f"{int(value[:4]) + self.rng.choice((-7, -4, 3, 6))}{value[4:]}"
        if relation.kind is not ValueKind.NAME:
            return str(int(value) + self.rng.choice((2, 3, 5, 11)))
        names = [
            name
            for reading in self.evidence.readings
            for name in (
                *((reading.name,) if reading.kind == relation.object else ()),
                *(s.value for s in reading.statements if s.relation.object == relation.object),
            )
            if not self.evidence.same_entity(name, value)
        ]
        used = {
            claim.value for claim in (move.claim for move in self.item.solution.moves) if isinstance(claim, FactClaim)
        }
        unused = [name for name in dict.fromkeys(names) if name not in used]
        return self.rng.choice(unused) if unused else None


def _leads_to(prefix: RelationPhrase, side: RelationPhrase) -> bool:
    """Return whether one phrase is the other, or a prefix of its path."""
    return prefix.base == side.base and prefix.path == side.path[: len(prefix.path)]
