"""What else could have been asked, answered or stated from the same passages: where a response can go astray."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from eclose.world.language.claims import FactClaim
from eclose.world.language.questions import (
    NO,
    YES,
    AgreementQuestion,
    ChoiceQuestion,
    LookupQuestion,
    Target,
    YearSpanQuestion,
)
from eclose.world.language.relations import ALIAS, RELATIONS, Relation
from eclose.world.language.values import ValueKind
from eclose.world.make.instances import WorldItem
from eclose.world.oracle.evidence import EvidenceFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.world.language.phrases import Phrase


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Beside one item: other questions, other answers, other values."""

    item: WorldItem
    evidence: EvidenceFacts
    rng: Random

    def targets(self) -> list[tuple[Target, bool]]:
        """Questions next to the one asked, and whether answering them also answers it."""
        target = self.item.target
        if isinstance(target, ChoiceQuestion):
            # The facts are the same; only the conclusion is another's.
            found: list[tuple[Target, bool]] = [(replace(target, least=not target.least), True)]
            rivals = self._rivals(target.kind, target.options)
            return found + [(replace(target, options=(target.options[0], rival)), False) for rival in rivals]
        if isinstance(target, LookupQuestion):
            return [(other, False) for other in self._lookups(target)]
        # One side alone, or what leads to it, would be a step on the way; something else about it is not.
        sides = target.phrases()
        return [
            (other, False)
            for phrase in sides
            for other in self._lookups(LookupQuestion(phrase))
            if not any(_leads_to(other.phrase, side) for side in sides)
        ]

    def _lookups(self, target: LookupQuestion) -> list[LookupQuestion]:
        phrase = target.phrase
        found: list[LookupQuestion] = []
        if isinstance(phrase.base, str) and phrase.path:
            rivals = self._rivals(phrase.path[0].subject, self._named())
            found += [LookupQuestion(replace(phrase, base=rival)) for rival in rivals]
        if phrase.path:
            last = phrase.path[-1]
            siblings = [r for r in RELATIONS if r.subject == last.subject and r is not last and r is not ALIAS]
            found += [LookupQuestion(replace(phrase, path=(*phrase.path[:-1], other))) for other in siblings]
        return found

    def _named(self) -> list[str]:
        """The names the question starts from."""
        phrases = (
            (self.item.target.phrase,) if isinstance(self.item.target, LookupQuestion) else self.item.target.phrases()
        )
        return [phrase.base for phrase in phrases if isinstance(phrase.base, str)]

    def _rivals(self, kind: str, known: Sequence[str]) -> list[str]:
        return [
            reading.name for reading in self.evidence.readings if reading.kind == kind and reading.name not in known
        ]

    def answer(self) -> str | None:
        """A wrong answer of the right sort."""
        target, answer = self.item.target, self.item.solution.answer
        if isinstance(target, ChoiceQuestion):
            return next(option for option in target.options if option != answer)
        if isinstance(target, AgreementQuestion):
            return NO if answer == YES else YES
        if isinstance(target, YearSpanQuestion):
            return str(int(answer) + self.rng.choice([by for by in (-3, -2, -1, 1, 2, 5) if int(answer) + by > 0]))
        relation = target.phrase.path[-1] if target.phrase.path else target.phrase.base.deeds[0][0]  # type: ignore[union-attr]
        return self.value(relation, answer)

    def torn(self, other: str) -> str:
        """A wrong answer; now and then the right name stands beside it, and nothing is settled."""
        names = [self.item.solution.answer, other]
        if isinstance(self.item.target, AgreementQuestion) or other[:1].isdigit() or self.rng.random() > 0.5:
            return other
        self.rng.shuffle(names)
        return " or ".join(names)

    def value(self, relation: Relation, value: str) -> str | None:
        """Another value for a relation; for a name, one that occurs in the passages."""
        if relation.kind is ValueKind.DATE:
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
            if not self.evidence.same(name, value)
        ]
        taken = {
            claim.value for claim in (move.claim for move in self.item.solution.moves) if isinstance(claim, FactClaim)
        }
        free = [name for name in dict.fromkeys(names) if name not in taken]
        return self.rng.choice(free) if free else None


def _leads_to(way: Phrase, side: Phrase) -> bool:
    """Whether one phrase is the other, or a part of the way to it."""
    return way.base == side.base and way.path == side.path[: len(way.path)]
