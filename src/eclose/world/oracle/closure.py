"""Closure and completeness: the answers that follow from the claims of a trace, taken as true.

Evidence is not used. A name stands for another only where the trace says so, and a chain with a missing link leads
nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from eclose.world.language.claims import (
    Claim,
    ComparisonClaim,
    FactClaim,
    MissingFactClaim,
    SameValueClaim,
    SuperlativeClaim,
    YearsApartClaim,
)
from eclose.world.language.phrases import PersonOfTwoDeeds, RelationPhrase
from eclose.world.language.questions import (
    NO,
    YES,
    ComparisonQuestion,
    LookupQuestion,
    SameValueQuestion,
    Target,
    YearSpanQuestion,
)
from eclose.world.language.relations import ALIAS, Relation
from eclose.world.language.values import is_comparable
from eclose.world.oracle.evidence import answer_comparison, value_sort_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

UNRESOLVED_REASON = "unresolved alternative"
"""Added to the values of a claim where an alternative has no value."""

ABSTENTION_ANSWER = "not determined"
"""The established answer where the trace says that the passages do not state it."""


class TracePremises:
    """The claims of a trace, taken as premises."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self.claims = list(claims)
        self._names: dict[str, str] = {}
        for claim in self.claims:
            if isinstance(claim, FactClaim) and claim.phrase.path == (ALIAS,) and isinstance(claim.phrase.base, str):
                # Union by pointers: each alias points to the name it stands for.
                self._names[self.resolve_name(claim.value)] = self.resolve_name(claim.phrase.base)
        self._facts: defaultdict[tuple[str | PersonOfTwoDeeds, tuple[Relation, ...]], list[str]] = defaultdict(list)
        for claim in self.claims:
            if isinstance(claim, FactClaim):
                values = self._facts[self._base(claim.phrase), claim.phrase.path]
                if self.resolve_name(claim.value) not in values:
                    values.append(self.resolve_name(claim.value))

    def resolve_name(self, name: str) -> str:
        """Return the representative of all names that the trace declares to be the same."""
        while name in self._names and self._names[name] != name:
            name = self._names[name]
        return name

    def _base(self, phrase: RelationPhrase) -> str | PersonOfTwoDeeds:
        return self.resolve_name(phrase.base) if isinstance(phrase.base, str) else phrase.base

    def find_values(self, phrase: RelationPhrase) -> list[str]:
        """Return the values that the phrase leads to; stated values take precedence over derived ones."""
        base, path = self._base(phrase), phrase.path
        if not path:
            return [base] if isinstance(base, str) else self._facts[base, ()] or self._find_doers(base)
        # The longest stated prefix of the path comes first.
        for cut in range(len(path), 0, -1):
            if stated := self._facts.get((base, path[:cut])):
                continued = [self.find_values(RelationPhrase(value, path[cut:])) for value in stated]
                # With two alternatives the value stays open even if only one of them leads on.
                unresolved = [UNRESOLVED_REASON] if len(stated) > 1 and not all(continued) else []
                return _unique([*(value for values in continued for value in values), *unresolved])
        if isinstance(base, PersonOfTwoDeeds):
            doers = self.find_values(RelationPhrase(base))
            return _unique(value for value in doers for value in self.find_values(RelationPhrase(value, path)))
        return []

    def _find_doers(self, doer: PersonOfTwoDeeds) -> list[str]:
        (first, first_work), (second, second_work) = doer.deeds
        second_doers = self.find_values(RelationPhrase(second_work, (second,)))
        return [name for name in self.find_values(RelationPhrase(first_work, (first,))) if name in second_doers]

    def derive_answers(self, target: Target) -> list[str]:
        """Return the answers to a question that follow from the claims; closure requires exactly one."""
        if isinstance(target, LookupQuestion):
            return self.find_values(target.phrase) or self._find_abstention(target.phrase)
        # A stated conclusion counts before the values: closure takes every claim as true, also a wrong one (A.3.2).
        concluded = self._stated_conclusions(target)
        if concluded:
            return concluded
        first_values, second_values = (self.find_values(phrase) for phrase in target.phrases())
        # Both sides settled: the comparison itself need not be stated.
        if len(first_values) == 1 and len(second_values) == 1:
            if isinstance(target, SameValueQuestion):
                return [YES if first_values == second_values else NO]
            answer = answer_comparison(target, first_values[0], second_values[0])
            return [answer] if answer is not None else []
        first, second = target.phrases()
        return self._find_abstention(first) or self._find_abstention(second)

    def _stated_conclusions(self, target: ComparisonQuestion | SameValueQuestion | YearSpanQuestion) -> list[str]:
        if isinstance(target, ComparisonQuestion):
            return self._stated_choices(target) or self._stated_comparisons(target)
        goals = [self._shorten(phrase) for phrase in target.phrases()]
        answers = []
        for claim in self.claims:
            if (
                isinstance(target, SameValueQuestion)
                and isinstance(claim, SameValueClaim)
                and claim.relation is target.relation
            ):
                pair = [
                    self._shorten(claim.first.then(claim.relation)),
                    self._shorten(claim.second.then(claim.relation)),
                ]
                if pair in (goals, goals[::-1]):
                    answers.append(YES if claim.same else NO)
            if isinstance(target, YearSpanQuestion) and isinstance(claim, YearsApartClaim):
                pair = [self._shorten(claim.first), self._shorten(claim.second)]
                if pair in (goals, goals[::-1]):
                    answers.append(claim.years)
        return _unique(answers)

    def _stated_choices(self, target: ComparisonQuestion) -> list[str]:
        """Return choices among the question's options; a choice among other things does not count."""
        options = []
        last_comparison: ComparisonClaim | None = None
        for claim in self.claims:
            if isinstance(claim, ComparisonClaim):
                last_comparison = claim
            if isinstance(claim, SuperlativeClaim) and claim.option in target.options:
                matches = (claim.path, claim.attribute, claim.least) == (target.path, target.attribute, target.least)
                if matches and not (
                    last_comparison and compares_outside_options(last_comparison, target, self._works_behind)
                ):
                    options.append(claim.option)
        return _unique(options)

    def _works_behind(self, name: str | PersonOfTwoDeeds, role: tuple[Relation, ...]) -> list[str | PersonOfTwoDeeds]:
        return [base for (base, path), values in self._facts.items() if name in values and path == role]

    def _stated_comparisons(self, target: ComparisonQuestion) -> list[str]:
        goals = [self._shorten(phrase) for phrase in target.phrases()]
        options = []
        for claim in self.claims:
            if not isinstance(claim, ComparisonClaim):
                continue
            pair = [self._shorten(claim.first), self._shorten(claim.second)]
            if pair in (goals, goals[::-1]) and goals[0] != goals[1]:
                # The pair may be stated in either order.
                first = pair == goals
                options.append(target.options[0 if (claim.less == target.least) == first else 1])
        return _unique(options)

    def _shorten(self, phrase: RelationPhrase) -> RelationPhrase:
        """Return the phrase from its last stated name on: "the mother of the director of X" starts at the director."""
        names = self.find_values(RelationPhrase(phrase.base, phrase.path[:-1]))
        return (
            RelationPhrase(names[0], phrase.path[-1:])
            if len(names) == 1
            else RelationPhrase(self._base(phrase), phrase.path)
        )

    def _find_abstention(self, phrase: RelationPhrase) -> list[str]:
        """Return an abstention where the trace says so of the value or of a fact on the path to it."""
        prefixes = [RelationPhrase(phrase.base, phrase.path[:cut]) for cut in range(1, len(phrase.path) + 1)]
        if isinstance(phrase.base, PersonOfTwoDeeds):
            prefixes += [RelationPhrase(name, (relation,)) for relation, name in phrase.base.deeds]
        goals = [self._shorten(prefix) for prefix in prefixes]
        missing = [self._shorten(claim.phrase) for claim in self.claims if isinstance(claim, MissingFactClaim)]
        return [ABSTENTION_ANSWER] if any(phrase in goals for phrase in missing) else []


def compares_outside_options(
    claim: ComparisonClaim,
    target: ComparisonQuestion,
    works_behind: Callable[[str | PersonOfTwoDeeds, tuple[Relation, ...]], list[str | PersonOfTwoDeeds]],
) -> bool:
    """Return whether a side of a comparison belongs to something that is not among the options."""
    for phrase in (claim.first, claim.second):
        # Bridge comparisons name the people; their works decide.
        direct = not target.path or len(phrase.path) > 1
        works = [phrase.base] if direct else works_behind(phrase.base, target.path)
        if works and not any(work in target.options for work in works):
            return True
    return False


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def find_extreme_option(options: list[tuple[str, str]], *, least: bool) -> str | None:
    """Return the name with the smallest or largest value; None for a tie, fewer than two, or a value without order."""
    if not all(is_comparable(value) for _, value in options):
        return None
    ranked = sorted(options, key=lambda pair: value_sort_key(pair[1]), reverse=not least)
    if len(ranked) < 2 or value_sort_key(ranked[0][1]) == value_sort_key(ranked[1][1]):
        return None
    return ranked[0][0]
