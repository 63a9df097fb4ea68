"""Alignment of a trace with its question. Evidence, answer and reference are not used."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from eclose.world.language.claims import (
    Claim,
    ComparisonClaim,
    FactClaim,
    MissingFactClaim,
    NegatedFactClaim,
    SameValueClaim,
    SuperlativeClaim,
    YearsApartClaim,
)
from eclose.world.language.phrases import PersonOfTwoDeeds, RelationPhrase
from eclose.world.language.questions import (
    ComparisonQuestion,
    LookupQuestion,
    SameValueQuestion,
    Target,
    YearSpanQuestion,
)
from eclose.world.language.relations import ALIAS, Relation
from eclose.world.oracle.closure import compares_outside_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class AlignmentTracer:
    """Finds the goal of a trace, tracking the path by which each name in it was reached."""

    def __init__(self, target: Target) -> None:
        self.target = target
        # For each name, the paths from the question's start that lead to it.
        self._origins: defaultdict[str, list[RelationPhrase]] = defaultdict(list)
        self._goals = _goals(target)
        self._facts: list[FactClaim] = []
        self._last: ComparisonClaim | None = None

    def find_main_line(self, claims: Iterable[Claim]) -> tuple[bool, Claim] | None:
        """Return whether the main line leads to the target, and the claim that shows it; None without a goal.

        The last conclusion shows the main line, unless the trace continues towards the target after it; without a
        conclusion, the last fact that continues the argument does. Intermediate goals count as on the path whatever
        their values. Stopping short is no deviation, and neither is a stray fact beside the argument (appendix A.3.2).
        """
        claim_list = list(claims)
        self._trace_names(claim_list)
        goal_claims = []
        for claim in claim_list:
            if isinstance(claim, ComparisonClaim):
                self._last = claim
            if (on_path := self._serves_target(claim)) is not None:
                goal_claims.append((on_path, claim))
        return self._select_main_line(goal_claims)

    def _select_main_line(self, goal_claims: list[tuple[bool, Claim]]) -> tuple[bool, Claim] | None:
        last = max((index for index, (_, claim) in enumerate(goal_claims) if self._concludes(claim)), default=None)
        if last is not None:
            # A denial or a missing fact after the conclusion does not continue the argument.
            continued = [entry for entry in goal_claims[last + 1 :] if entry[0] and isinstance(entry[1], FactClaim)]
            return continued[-1] if continued else goal_claims[last]
        continuing = [entry for entry in goal_claims if self._continues(entry[1])]
        return (continuing or goal_claims)[-1] if goal_claims else None

    def _trace_names(self, claims: list[Claim]) -> None:
        """Find the paths by which every name was reached, in whatever order the trace states them."""
        self._facts = [claim for claim in claims if isinstance(claim, FactClaim)]
        previous = -1
        # Repeat until no path is added: a trace may state the last link first.
        while (count := sum(map(len, self._origins.values()))) != previous:
            previous = count
            for fact in self._facts:
                self._extend_origins(fact)

    def _extend_origins(self, fact: FactClaim) -> None:
        phrase = fact.phrase
        if phrase.path == (ALIAS,) and isinstance(phrase.base, str):
            # Two names of one person: every path to one leads to the other.
            shared = list(dict.fromkeys([*self._origins[phrase.base], *self._origins[fact.value]]))
            self._origins[phrase.base] = shared
            self._origins[fact.value] = list(shared)
            return
        for path in self._expand(phrase):
            # Only prefixes of a goal are kept, so the loop in _trace_names ends.
            on_path = any(self._leads_on(path, goal) for goal in self._goals)
            if on_path and path not in self._origins[fact.value]:
                self._origins[fact.value].append(path)

    @staticmethod
    def _concludes(claim: Claim) -> bool:
        if isinstance(claim, FactClaim):
            return len(claim.phrase.path) != 1 or isinstance(claim.phrase.base, PersonOfTwoDeeds)
        return isinstance(claim, SuperlativeClaim | SameValueClaim | YearsApartClaim | ComparisonClaim)

    def _continues(self, claim: Claim) -> bool:
        """Return whether a fact is about something that the question names or the trace has reached."""
        phrase = claim.fact.phrase if isinstance(claim, NegatedFactClaim) else getattr(claim, "phrase", None)
        if not isinstance(phrase, RelationPhrase) or not isinstance(phrase.base, str):
            return True
        # A fact about a stranger is beside the argument, and does not show what the trace pursues.
        names = {phrase.base, *self._other_names(phrase.base)}
        return bool(names & ({goal.base for goal in self._goals} | self._values))

    def _other_names(self, name: str) -> Iterator[str]:
        """Yield the names that the trace gives as aliases of a name."""
        for fact in self._facts:
            if (
                fact.phrase.path == (ALIAS,)
                and isinstance(fact.phrase.base, str)
                and name in (fact.phrase.base, fact.value)
            ):
                yield from (fact.phrase.base, fact.value)

    @property
    def _values(self) -> set[str]:
        """Values that the trace has reached. A second name alone reaches nothing."""
        return {fact.value for fact in self._facts if fact.phrase.path != (ALIAS,)}

    def _serves_target(self, claim: Claim) -> bool | None:
        if isinstance(claim, FactClaim):
            return None if claim.phrase.path == (ALIAS,) else self._serves(claim.phrase)
        if isinstance(claim, NegatedFactClaim):
            return self._serves(claim.fact.phrase)
        if isinstance(claim, MissingFactClaim):
            return self._serves(claim.phrase)
        if isinstance(claim, SuperlativeClaim):
            return self._judge_choice(claim)
        if isinstance(claim, ComparisonClaim):
            return self._judge_comparison(claim)
        if isinstance(claim, SameValueClaim):
            return self._compares_targets(claim.first.then(claim.relation), claim.second.then(claim.relation))
        if isinstance(claim, YearsApartClaim):
            return self._compares_targets(claim.first, claim.second)
        return None

    def _judge_comparison(self, claim: ComparisonClaim) -> bool | None:
        if self._compares_targets(claim.first, claim.second):
            return True
        # A comparison by another attribute shows another goal.
        by_another = isinstance(self.target, ComparisonQuestion) and claim.first.path[-1] is not self.target.attribute
        return False if by_another or self._compares_elsewhere(claim) else None

    def _compares_elsewhere(self, claim: ComparisonClaim) -> bool:
        """Return whether a comparison is outside the question, and not just unexplained."""
        if not isinstance(self.target, ComparisonQuestion):
            return True
        return compares_outside_options(claim, self.target, self._works_behind)

    def _works_behind(self, name: str | PersonOfTwoDeeds, role: tuple[Relation, ...]) -> list[str | PersonOfTwoDeeds]:
        return [fact.phrase.base for fact in self._facts if fact.value == name and fact.phrase.path == role]

    def _expand(self, phrase: RelationPhrase) -> list[RelationPhrase]:
        if isinstance(phrase.base, PersonOfTwoDeeds):
            return [replace(phrase, kind=None)]
        # Paths to the base, continued by the path of the phrase.
        reached = [
            RelationPhrase(origin.base, (*origin.path, *phrase.path)) for origin in self._origins.get(phrase.base, ())
        ]
        return [RelationPhrase(phrase.base, phrase.path), *reached, *self._expand_doer(phrase, reached)]

    def _expand_doer(self, phrase: RelationPhrase, reached: list[RelationPhrase]) -> list[RelationPhrase]:
        """Return paths from the person who did both deeds, for a person reached by one of them."""
        doer = self._common_doer
        if doer is None:
            return []
        deeds = [RelationPhrase(name, (relation,)) for relation, name in doer.deeds]
        length = len(phrase.path)
        return [
            RelationPhrase(doer, phrase.path)
            for path in reached
            if RelationPhrase(path.base, path.path[: len(path.path) - length]) in deeds
        ]

    @property
    def _common_doer(self) -> PersonOfTwoDeeds | None:
        if isinstance(self.target, LookupQuestion) and isinstance(self.target.phrase.base, PersonOfTwoDeeds):
            return self.target.phrase.base
        return None

    def _serves(self, phrase: RelationPhrase) -> bool:
        return any(self._leads_on(path, goal) for path in self._expand(phrase) for goal in self._goals)

    @staticmethod
    def _leads_on(path: RelationPhrase, goal: RelationPhrase) -> bool:
        if path.base != goal.base:
            return False
        # A proper prefix is an intermediate goal, which counts as aligned.
        return path.path == goal.path[: len(path.path)] and (bool(path.path) or isinstance(path.base, PersonOfTwoDeeds))

    def _judge_choice(self, claim: SuperlativeClaim) -> bool:
        target = self.target
        return (
            isinstance(target, ComparisonQuestion)
            and not self._compared_other_things()
            and claim.option in target.options
            and (claim.path, claim.attribute, claim.least) == (target.path, target.attribute, target.least)
        )

    def _compared_other_things(self) -> bool:
        """Return whether the last comparison was of other things than the question's."""
        return (
            self._last is not None
            and not self._compares_targets(self._last.first, self._last.second)
            and self._compares_elsewhere(self._last)
        )

    def _compares_targets(self, first: RelationPhrase, second: RelationPhrase) -> bool:
        if isinstance(self.target, LookupQuestion):
            return False
        target_first, target_second = (RelationPhrase(phrase.base, phrase.path) for phrase in self.target.phrases())
        first_paths, second_paths = self._expand(first), self._expand(second)
        return (target_first in first_paths and target_second in second_paths) or (
            target_second in first_paths and target_first in second_paths
        )


def _goals(target: Target) -> list[RelationPhrase]:
    """Return the paths that a trace may be on."""
    if isinstance(target, ComparisonQuestion | SameValueQuestion | YearSpanQuestion):
        return [RelationPhrase(phrase.base, phrase.path) for phrase in target.phrases()]
    phrase = RelationPhrase(target.phrase.base, target.phrase.path)
    if isinstance(phrase.base, PersonOfTwoDeeds):
        return [phrase, *(RelationPhrase(name, (relation,)) for relation, name in phrase.base.deeds)]
    return [phrase]
