"""What a trace pursues, seen from the question: the basis of alignment. No evidence, answer or reference is seen."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from eclosure.world.claims import Agreed, Apart, Chosen, Claim, Compared, Denied, Fact, Uncovered
from eclosure.world.language import Phrase, Which
from eclosure.world.questions import Agree, Choose, Lookup, Span, Target
from eclosure.world.relations import ALIAS

if TYPE_CHECKING:
    from collections.abc import Iterable


class Pursuit:
    """Follows a trace claim by claim and knows by which way each name was reached."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._origins: defaultdict[str, list[Phrase]] = defaultdict(list)
        self._wanted = _wanted(target)
        self._strayed = False
        """Whether the last comparison was of other things than the question's."""

    def follow(self, claims: Iterable[Claim]) -> tuple[bool, Claim] | None:
        """Whether the last claim that shows a goal is on the way to the target, and that claim; None without one.

        Intermediate goals are on the way, whatever their values; stopping short is no deviation. What a trace
        ends with is what it pursues.
        """
        last: tuple[bool, Claim] | None = None
        for claim in claims:
            verdict = self._on_the_way(claim)
            if verdict is not None:
                last = (verdict, claim)
        return last

    def _on_the_way(self, claim: Claim) -> bool | None:
        """Whether a claim serves the target; None for one that shows no goal of its own."""
        if isinstance(claim, Fact):
            return self._fact(claim)
        if isinstance(claim, Denied):
            return self._serves(claim.fact.phrase)
        if isinstance(claim, Uncovered):
            return self._serves(claim.phrase)
        if isinstance(claim, Chosen):
            return self._chosen(claim)
        if isinstance(claim, Compared):
            asked = self._both(claim.left, claim.right)
            self._strayed = not asked
            return asked
        if isinstance(claim, Agreed):
            return self._both(claim.left.then(claim.relation), claim.right.then(claim.relation))
        if isinstance(claim, Apart):
            return self._both(claim.left, claim.right)
        return None

    def _fact(self, claim: Fact) -> bool | None:
        phrase = claim.phrase
        if phrase.path == (ALIAS,) and isinstance(phrase.base, str):
            # Two names of one person: whatever led to one leads to the other.
            shared = [*self._origins[phrase.base], *self._origins[claim.value]]
            self._origins[phrase.base] = self._origins[claim.value] = shared
            return None
        self._origins[claim.value] += self._absolute(phrase)
        return self._serves(phrase)

    def _absolute(self, phrase: Phrase) -> list[Phrase]:
        """The phrase as ways from where the question starts."""
        if isinstance(phrase.base, Which):
            return [replace(phrase, kind=None)]
        reached = [Phrase(origin.base, (*origin.path, *phrase.path)) for origin in self._origins.get(phrase.base, ())]
        return [Phrase(phrase.base, phrase.path), *reached, *self._as_doer(phrase, reached)]

    def _as_doer(self, phrase: Phrase, reached: list[Phrase]) -> list[Phrase]:
        """Someone reached by one of the deeds a question names is on the way to whoever did both."""
        which = self._which
        if which is None:
            return []
        deeds = [Phrase(name, (relation,)) for relation, name in which.deeds]
        cut = len(phrase.path)
        return [
            Phrase(which, phrase.path) for way in reached if Phrase(way.base, way.path[: len(way.path) - cut]) in deeds
        ]

    @property
    def _which(self) -> Which | None:
        if isinstance(self.target, Lookup) and isinstance(self.target.phrase.base, Which):
            return self.target.phrase.base
        return None

    def _serves(self, phrase: Phrase) -> bool:
        return any(self._leads_on(way, wanted) for way in self._absolute(phrase) for wanted in self._wanted)

    @staticmethod
    def _leads_on(way: Phrase, wanted: Phrase) -> bool:
        if way.base != wanted.base:
            return False
        return way.path == wanted.path[: len(way.path)] and (bool(way.path) or isinstance(way.base, Which))

    def _chosen(self, claim: Chosen) -> bool:
        target = self.target
        return (
            isinstance(target, Choose)
            and not self._strayed
            and claim.option in target.options
            and (claim.path, claim.attribute, claim.least) == (target.path, target.attribute, target.least)
        )

    def _both(self, left: Phrase, right: Phrase) -> bool:
        """Whether two phrases are the two values the question compares."""
        if isinstance(self.target, Lookup):
            return False
        first, second = (Phrase(phrase.base, phrase.path) for phrase in self.target.phrases())
        ones, others = self._absolute(left), self._absolute(right)
        return (first in ones and second in others) or (second in ones and first in others)


def _wanted(target: Target) -> list[Phrase]:
    """The ways a trace may be on."""
    if isinstance(target, Choose | Agree | Span):
        return [Phrase(phrase.base, phrase.path) for phrase in target.phrases()]
    phrase = Phrase(target.phrase.base, target.phrase.path)
    if isinstance(phrase.base, Which):
        return [phrase, *(Phrase(name, (relation,)) for relation, name in phrase.base.deeds)]
    return [phrase]
