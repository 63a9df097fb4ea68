"""What a trace establishes if its claims are taken as true: the basis of closure and completeness.

Nothing of the evidence is seen here. A name stands for another only if the trace says so, and a chain with a
missing link leads nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from eclose.world.language.claims import (
    AgreementClaim,
    ChoiceClaim,
    Claim,
    ComparisonClaim,
    FactClaim,
    MissingFactClaim,
    YearsApartClaim,
)
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
from eclose.world.oracle.evidence import settle_comparison, sort_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

UNRESOLVED = "unresolved alternative"
"""Stands beside the values of a claim that has a rival without one."""

ABSTAIN = "not determined"
"""What is established when the trace says that the passages do not tell."""


class TracePremises:
    """The claims of a trace, as premises."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self.claims = list(claims)
        self._names: dict[str, str] = {}
        for claim in self.claims:
            if isinstance(claim, FactClaim) and claim.phrase.path == (ALIAS,) and isinstance(claim.phrase.base, str):
                self._names[self.name(claim.value)] = self.name(claim.phrase.base)
        self._facts: defaultdict[tuple[str | CommonDoer, tuple[Relation, ...]], list[str]] = defaultdict(list)
        for claim in self.claims:
            if isinstance(claim, FactClaim):
                known = self._facts[self._base(claim.phrase), claim.phrase.path]
                if self.name(claim.value) not in known:
                    known.append(self.name(claim.value))

    def name(self, name: str) -> str:
        """The one name of everyone the trace says is the same."""
        while name in self._names and self._names[name] != name:
            name = self._names[name]
        return name

    def _base(self, phrase: Phrase) -> str | CommonDoer:
        return self.name(phrase.base) if isinstance(phrase.base, str) else phrase.base

    def values(self, phrase: Phrase) -> list[str]:
        """Where the phrase leads: what is said outright counts before what can be put together."""
        base, path = self._base(phrase), phrase.path
        if not path:
            return [base] if isinstance(base, str) else self._facts[base, ()] or self._doers(base)
        for cut in range(len(path), 0, -1):
            if said := self._facts.get((base, path[:cut])):
                found = [self.values(Phrase(one, path[cut:])) for one in said]
                # Of two alternatives, one that leads nowhere leaves the matter open all the same.
                unresolved = [UNRESOLVED] if len(said) > 1 and not all(found) else []
                return _unique([*(value for values in found for value in values), *unresolved])
        if isinstance(base, CommonDoer):
            doers = self.values(Phrase(base))
            return _unique(value for one in doers for value in self.values(Phrase(one, path)))
        return []

    def _doers(self, which: CommonDoer) -> list[str]:
        (first, a), (second, b) = which.deeds
        others = self.values(Phrase(b, (second,)))
        return [one for one in self.values(Phrase(a, (first,))) if one in others]

    def established(self, target: Target) -> list[str]:
        """The answers to a question that follow from the claims; one is what closure needs."""
        if isinstance(target, LookupQuestion):
            return self.values(target.phrase) or self._abstention(target.phrase)
        outright = self._outright(target)
        if outright:
            return outright
        left, right = (self.values(phrase) for phrase in target.phrases())
        if len(left) == 1 and len(right) == 1:
            if isinstance(target, AgreementQuestion):
                return [YES if left == right else NO]
            answer = settle_comparison(target, left[0], right[0])
            return [answer] if answer is not None else []
        first, second = target.phrases()
        return self._abstention(first) or self._abstention(second)

    def _outright(self, target: ChoiceQuestion | AgreementQuestion | YearSpanQuestion) -> list[str]:
        """What the trace concludes in so many words."""
        if isinstance(target, ChoiceQuestion):
            return self._chosen(target) or self._compared(target)
        wanted = [self._resolved(phrase) for phrase in target.phrases()]
        found = []
        for claim in self.claims:
            if (
                isinstance(target, AgreementQuestion)
                and isinstance(claim, AgreementClaim)
                and claim.relation is target.relation
            ):
                pair = [
                    self._resolved(claim.left.then(claim.relation)),
                    self._resolved(claim.right.then(claim.relation)),
                ]
                if pair in (wanted, wanted[::-1]):
                    found.append(YES if claim.same else NO)
            if isinstance(target, YearSpanQuestion) and isinstance(claim, YearsApartClaim):
                pair = [self._resolved(claim.left), self._resolved(claim.right)]
                if pair in (wanted, wanted[::-1]):
                    found.append(claim.years)
        return _unique(found)

    def _chosen(self, target: ChoiceQuestion) -> list[str]:
        """Choices among the question's own options; one made among other things settles nothing here."""
        found = []
        among: ComparisonClaim | None = None
        for claim in self.claims:
            if isinstance(claim, ComparisonClaim):
                among = claim
            if isinstance(claim, ChoiceClaim) and claim.option in target.options:
                same = (claim.path, claim.attribute, claim.least) == (target.path, target.attribute, target.least)
                if same and not (among and compares_outside_options(among, target, self._works_behind)):
                    found.append(claim.option)
        return _unique(found)

    def _works_behind(self, name: str | CommonDoer, role: tuple[Relation, ...]) -> list[str | CommonDoer]:
        return [base for (base, path), values in self._facts.items() if name in values and path == role]

    def _compared(self, target: ChoiceQuestion) -> list[str]:
        wanted = [self._resolved(phrase) for phrase in target.phrases()]
        found = []
        for claim in self.claims:
            if not isinstance(claim, ComparisonClaim):
                continue
            pair = [self._resolved(claim.left), self._resolved(claim.right)]
            if pair in (wanted, wanted[::-1]) and wanted[0] != wanted[1]:
                first = pair == wanted
                found.append(target.options[0 if (claim.less == target.least) == first else 1])
        return _unique(found)

    def _resolved(self, phrase: Phrase) -> Phrase:
        """The phrase from the last name on it that the trace knows: "the director of X" is who directed X."""
        whom = self.values(Phrase(phrase.base, phrase.path[:-1]))
        return Phrase(whom[0], phrase.path[-1:]) if len(whom) == 1 else Phrase(self._base(phrase), phrase.path)

    def _abstention(self, phrase: Phrase) -> list[str]:
        """Not to be found, if the trace says so of the value or of something on the way to it."""
        on_the_way = [Phrase(phrase.base, phrase.path[:cut]) for cut in range(1, len(phrase.path) + 1)]
        if isinstance(phrase.base, CommonDoer):
            on_the_way += [Phrase(name, (relation,)) for relation, name in phrase.base.deeds]
        wanted = [self._resolved(way) for way in on_the_way]
        missing = [self._resolved(claim.phrase) for claim in self.claims if isinstance(claim, MissingFactClaim)]
        return [ABSTAIN] if any(phrase in wanted for phrase in missing) else []


def compares_outside_options(
    claim: ComparisonClaim,
    target: ChoiceQuestion,
    works_behind: Callable[[str | CommonDoer, tuple[Relation, ...]], list[str | CommonDoer]],
) -> bool:
    """Whether a side of a comparison is known to belong to something that is not among the options."""
    for phrase in (claim.left, claim.right):
        direct = not target.path or len(phrase.path) > 1
        works = [phrase.base] if direct else works_behind(phrase.base, target.path)
        if works and not any(work in target.options for work in works):
            return True
    return False


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def find_extreme(options: list[tuple[str, str]], *, least: bool) -> str | None:
    """Of several (name, value), the one with the smallest or largest value; None for a tie or fewer than two."""
    ranked = sorted(options, key=lambda pair: sort_key(pair[1]), reverse=not least)
    if len(ranked) < 2 or sort_key(ranked[0][1]) == sort_key(ranked[1][1]):
        return None
    return ranked[0][0]
