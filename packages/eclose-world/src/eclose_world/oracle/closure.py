"""Alignment of a trace with its question, and the answers that follow from its claims, taken as true.

Evidence is not used. A name stands for another only where the trace says so, and a chain with a missing link leads
nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from eclose_world.language.claims import (
    Claim,
    ComparisonClaim,
    FactClaim,
    MissingFactClaim,
    NegatedFactClaim,
    SameValueClaim,
    SuperlativeClaim,
    YearsApartClaim,
)
from eclose_world.language.phrases import PersonOfTwoDeeds, RelationPhrase
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
from eclose_world.language.values import is_comparable
from eclose_world.oracle.evidence import answer_comparison, value_sort_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
