"""What a trace pursues, seen from the question: the basis of alignment. No evidence, answer or reference is seen."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from eclose.world.language.claims import (
    AgreementClaim,
    ChoiceClaim,
    Claim,
    ComparisonClaim,
    DenialClaim,
    FactClaim,
    MissingFactClaim,
    YearsApartClaim,
)
from eclose.world.language.phrases import CommonDoer, Phrase
from eclose.world.language.questions import AgreementQuestion, ChoiceQuestion, LookupQuestion, Target, YearSpanQuestion
from eclose.world.language.relations import ALIAS, Relation
from eclose.world.oracle.closure import compares_outside_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class AlignmentTracer:
    """Reads off a trace what it is after, knowing by which way each name in it was reached."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._origins: defaultdict[str, list[Phrase]] = defaultdict(list)
        self._wanted = _wanted(target)
        self._facts: list[FactClaim] = []
        self._last: ComparisonClaim | None = None

    def follow(self, claims: Iterable[Claim]) -> tuple[bool, Claim] | None:
        """Whether the main line is on the way to the target, and the claim that shows it; None without one.

        The last conclusion shows the main line, unless the trace goes on towards the target after it; without a
        conclusion the last fact that carries on does. Intermediate goals are on the way, whatever their values;
        stopping short is no deviation, and neither is a stray fact beside the argument.
        """
        listed = list(claims)
        self._trace_back(listed)
        shown = []
        for claim in listed:
            if isinstance(claim, ComparisonClaim):
                self._last = claim
            if (verdict := self._on_the_way(claim)) is not None:
                shown.append((verdict, claim))
        return self._main_line(shown)

    def _main_line(self, shown: list[tuple[bool, Claim]]) -> tuple[bool, Claim] | None:
        last = max((place for place, (_, claim) in enumerate(shown) if self._concludes(claim)), default=None)
        if last is not None:
            # To deny or to miss what was said before is not to go on.
            onward = [found for found in shown[last + 1 :] if found[0] and isinstance(found[1], FactClaim)]
            return onward[-1] if onward else shown[last]
        carried = [found for found in shown if self._carries_on(found[1])]
        return (carried or shown)[-1] if shown else None

    def _trace_back(self, claims: list[Claim]) -> None:
        """Find out how every name was reached, in whatever order the trace tells it."""
        self._facts = [claim for claim in claims if isinstance(claim, FactClaim)]
        known = -1
        while (count := sum(map(len, self._origins.values()))) != known:
            known = count
            for fact in self._facts:
                self._reach(fact)

    def _reach(self, fact: FactClaim) -> None:
        phrase = fact.phrase
        if phrase.path == (ALIAS,) and isinstance(phrase.base, str):
            # Two names of one person: whatever led to one leads to the other.
            shared = list(dict.fromkeys([*self._origins[phrase.base], *self._origins[fact.value]]))
            self._origins[phrase.base] = shared
            self._origins[fact.value] = list(shared)
            return
        for way in self._absolute(phrase):
            # Only ways on which the target lies are worth remembering, so this comes to an end.
            useful = any(self._leads_on(way, wanted) for wanted in self._wanted)
            if useful and way not in self._origins[fact.value]:
                self._origins[fact.value].append(way)

    @staticmethod
    def _concludes(claim: Claim) -> bool:
        """Whether a claim puts others together."""
        if isinstance(claim, FactClaim):
            return len(claim.phrase.path) != 1 or isinstance(claim.phrase.base, CommonDoer)
        return isinstance(claim, ChoiceClaim | AgreementClaim | YearsApartClaim | ComparisonClaim)

    def _carries_on(self, claim: Claim) -> bool:
        """Whether a fact speaks of something the question names or the trace has reached."""
        phrase = claim.fact.phrase if isinstance(claim, DenialClaim) else getattr(claim, "phrase", None)
        if not isinstance(phrase, Phrase) or not isinstance(phrase.base, str):
            return True
        names = {phrase.base, *self._other_names(phrase.base)}
        return bool(names & ({wanted.base for wanted in self._wanted} | self._values))

    def _other_names(self, name: str) -> Iterator[str]:
        """What the trace says somebody is also called."""
        for fact in self._facts:
            if (
                fact.phrase.path == (ALIAS,)
                and isinstance(fact.phrase.base, str)
                and name in (fact.phrase.base, fact.value)
            ):
                yield from (fact.phrase.base, fact.value)

    @property
    def _values(self) -> set[str]:
        """What the trace has reached; a second name alone reaches nobody."""
        return {fact.value for fact in self._facts if fact.phrase.path != (ALIAS,)}

    def _on_the_way(self, claim: Claim) -> bool | None:
        """Whether a claim serves the target; None for one that shows no goal of its own."""
        if isinstance(claim, FactClaim):
            return None if claim.phrase.path == (ALIAS,) else self._serves(claim.phrase)
        if isinstance(claim, DenialClaim):
            return self._serves(claim.fact.phrase)
        if isinstance(claim, MissingFactClaim):
            return self._serves(claim.phrase)
        if isinstance(claim, ChoiceClaim):
            return self._chosen(claim)
        if isinstance(claim, ComparisonClaim):
            return self._compared(claim)
        if isinstance(claim, AgreementClaim):
            return self._both(claim.left.then(claim.relation), claim.right.then(claim.relation))
        if isinstance(claim, YearsApartClaim):
            return self._both(claim.left, claim.right)
        return None

    def _compared(self, claim: ComparisonClaim) -> bool | None:
        if self._both(claim.left, claim.right):
            return True
        by_another = isinstance(self.target, ChoiceQuestion) and claim.left.path[-1] is not self.target.attribute
        return False if by_another or self._elsewhere(claim) else None

    def _elsewhere(self, claim: ComparisonClaim) -> bool:
        """Whether a comparison is of something the question does not ask about, not just of something unexplained."""
        if not isinstance(self.target, ChoiceQuestion):
            return True
        return compares_outside_options(claim, self.target, self._works_behind)

    def _works_behind(self, name: str | CommonDoer, role: tuple[Relation, ...]) -> list[str | CommonDoer]:
        return [fact.phrase.base for fact in self._facts if fact.value == name and fact.phrase.path == role]

    def _absolute(self, phrase: Phrase) -> list[Phrase]:
        """The phrase as ways from where the question starts."""
        if isinstance(phrase.base, CommonDoer):
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
    def _which(self) -> CommonDoer | None:
        if isinstance(self.target, LookupQuestion) and isinstance(self.target.phrase.base, CommonDoer):
            return self.target.phrase.base
        return None

    def _serves(self, phrase: Phrase) -> bool:
        return any(self._leads_on(way, wanted) for way in self._absolute(phrase) for wanted in self._wanted)

    @staticmethod
    def _leads_on(way: Phrase, wanted: Phrase) -> bool:
        if way.base != wanted.base:
            return False
        return way.path == wanted.path[: len(way.path)] and (bool(way.path) or isinstance(way.base, CommonDoer))

    def _chosen(self, claim: ChoiceClaim) -> bool:
        target = self.target
        return (
            isinstance(target, ChoiceQuestion)
            and not self._weighed_elsewhere()
            and claim.option in target.options
            and (claim.path, claim.attribute, claim.least) == (target.path, target.attribute, target.least)
        )

    def _weighed_elsewhere(self) -> bool:
        """Whether the last comparison was of other things than the question's."""
        return (
            self._last is not None and not self._both(self._last.left, self._last.right) and self._elsewhere(self._last)
        )

    def _both(self, left: Phrase, right: Phrase) -> bool:
        """Whether two phrases are the two values the question compares."""
        if isinstance(self.target, LookupQuestion):
            return False
        first, second = (Phrase(phrase.base, phrase.path) for phrase in self.target.phrases())
        ones, others = self._absolute(left), self._absolute(right)
        return (first in ones and second in others) or (second in ones and first in others)


def _wanted(target: Target) -> list[Phrase]:
    """The ways a trace may be on."""
    if isinstance(target, ChoiceQuestion | AgreementQuestion | YearSpanQuestion):
        return [Phrase(phrase.base, phrase.path) for phrase in target.phrases()]
    phrase = Phrase(target.phrase.base, target.phrase.path)
    if isinstance(phrase.base, CommonDoer):
        return [phrase, *(Phrase(name, (relation,)) for relation, name in phrase.base.deeds)]
    return [phrase]
