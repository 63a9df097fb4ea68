"""Is a step warranted? Every claim of a trace, checked against what the passages say, with the code of what fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.core.judgment import LocalFailure, StepJudgment, Support
from eclose.core.three_valued import Label
from eclose.world.language.claims import (
    AgreementClaim,
    ChoiceClaim,
    Claim,
    ComparisonClaim,
    DenialClaim,
    Discourse,
    FactClaim,
    IdleStep,
    MissingFactClaim,
    OrderClaim,
    SubtractionClaim,
    YearsApartClaim,
)
from eclose.world.language.phrases import CommonDoer, Phrase
from eclose.world.language.relations import ALIAS, Relation
from eclose.world.language.steps import read_step
from eclose.world.language.values import read_year
from eclose.world.oracle.closure import find_extreme
from eclose.world.oracle.evidence import EvidenceFacts, read_evidence, sort_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose.core.instance import Passage
    from eclose.core.response import Trace


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """Whether a claim holds; the reason when it does not; the passage that supports it when one does."""

    sound: Label
    failure: LocalFailure | None = None
    passage: int | None = None


_HOLDS = ClaimFinding(sound=True)


def _fails(failure: LocalFailure) -> ClaimFinding:
    return ClaimFinding(sound=False, failure=failure)


def judge_steps(
    passages: Sequence[Passage], trace: Trace, options: Sequence[str] = ()
) -> tuple[tuple[StepJudgment, ...], list[Claim], list[int]]:
    """Every step judged, all claims that were read, and the numbers of the steps that were not.

    ``options`` are the things the question chooses between, which "the older one" is then said of.
    """
    checker = StepChecker(read_evidence(tuple(passages)), options)
    discourse = Discourse()
    judged: list[StepJudgment] = []
    everything: list[Claim] = []
    unread: list[int] = []
    for number, text in enumerate(trace.texts):
        claims = read_step(text, discourse)
        if claims is None:
            judged.append(StepJudgment(None))
            unread.append(number)
            continue
        judged.append(_step(claims, checker, passages))
        everything += claims
    return tuple(judged), everything, unread


def _step(claims: tuple[Claim, ...], checker: StepChecker, passages: Sequence[Passage]) -> StepJudgment:
    findings = [checker.check(claim) for claim in claims if not isinstance(claim, IdleStep)]
    if not findings:
        return StepJudgment(substantive=False)
    broken = next((finding for finding in findings if finding.sound is False), None)
    if broken is not None:
        return StepJudgment(substantive=True, sound=False, failure=broken.failure)
    if any(finding.sound is None for finding in findings):
        return StepJudgment(substantive=True)
    where = next((finding.passage for finding in findings if finding.passage is not None), None)
    support = Support(where, passages[where].text) if where is not None else None
    return StepJudgment(substantive=True, sound=True, support=support)


class StepChecker:
    """Checks claims against the evidence, in the order of the trace."""

    def __init__(self, evidence: EvidenceFacts, options: Sequence[str] = ()) -> None:
        self.evidence = evidence
        self._options = options
        self._roles: dict[str, str] = {}
        self._told: list[FactClaim] = []
        self._compared: ComparisonClaim | None = None

    def check(self, claim: Claim) -> ClaimFinding:
        """Whether the evidence warrants a claim; sound steps before it follow from the evidence too."""
        finding = self._check(claim)
        if isinstance(claim, FactClaim) and isinstance(claim.phrase.base, str) and claim.phrase.path:
            if (role := claim.phrase.path[-1].role) is not None:
                self._roles[claim.value] = role
            self._told.append(claim)
        if isinstance(claim, ComparisonClaim):
            self._compared = claim
        return finding

    def _check(self, claim: Claim) -> ClaimFinding:
        if isinstance(claim, FactClaim):
            return self._fact(claim)
        if isinstance(claim, DenialClaim):
            return self._denied(claim)
        if isinstance(claim, MissingFactClaim):
            return (
                _fails(LocalFailure.FALSE_COVERAGE)
                if self._ways(claim.phrase)
                else self._unless_unread(claim.phrase, _HOLDS)
            )
        if isinstance(claim, OrderClaim):
            return _computed((sort_key(claim.left) < sort_key(claim.right)) == claim.less and claim.left != claim.right)
        if isinstance(claim, SubtractionClaim):
            return _computed(int(claim.larger) - int(claim.smaller) == int(claim.result))
        if isinstance(claim, ChoiceClaim):
            return self._chosen(claim)
        if isinstance(claim, IdleStep):
            return _HOLDS
        return self._pair(claim)

    def _ways(self, phrase: Phrase) -> list[str]:
        role = self._roles.get(phrase.base) if isinstance(phrase.base, str) else None
        return list(dict.fromkeys(way.value for way in self.evidence.ways(phrase, role)))

    def _fact(self, claim: FactClaim) -> ClaimFinding:
        phrase, evidence = claim.phrase, self.evidence
        if phrase.path == (ALIAS,) and isinstance(phrase.base, str):
            known = evidence.same(phrase.base, claim.value)
            return _HOLDS if known else self._unless_unread(phrase, _fails(LocalFailure.INVALID_INFERENCE), claim.value)
        role = self._roles.get(phrase.base) if isinstance(phrase.base, str) else None
        for way in evidence.ways(phrase, role):
            if evidence.same(way.value, claim.value):
                return ClaimFinding(sound=True, passage=way.hops[-1].passages[0] if len(phrase.path) == 1 else None)
        return self._unless_unread(phrase, _fails(self._why(claim)), claim.value)

    def _why(self, claim: FactClaim) -> LocalFailure:
        """Content nobody states, or a fact of somebody else's, or a conclusion that does not follow."""
        if len(claim.phrase.path) != 1 or isinstance(claim.phrase.base, CommonDoer):
            return LocalFailure.INVALID_INFERENCE
        a_namesakes = any(way.value == claim.value for way in self.evidence.ways(claim.phrase))
        return LocalFailure.INVALID_INFERENCE if a_namesakes else LocalFailure.UNSUPPORTED_CONTENT

    def _unless_unread(self, phrase: Phrase, finding: ClaimFinding, value: str = "") -> ClaimFinding:
        """A sentence nobody could read may say otherwise, if it speaks of the same names or of one on the way."""
        on_the_way = [Phrase(phrase.base, phrase.path[:cut]) for cut in range(1, len(phrase.path))]
        names = {phrase.base, value, *(name for way in on_the_way for name in self._ways(way))}
        texts = [name for name in names if isinstance(name, str) and name and not name[0].isdigit()]
        unread = self.evidence.unread
        open_ = any(name in part or self._title_has(index, name) for index, part in unread for name in texts)
        return ClaimFinding(sound=None) if open_ else finding

    def _title_has(self, index: int, name: str) -> bool:
        return self.evidence.readings[index].name == name

    def _denied(self, claim: DenialClaim) -> ClaimFinding:
        values = self._ways(claim.fact.phrase)
        if any(self.evidence.same(value, claim.fact.value) for value in values):
            return _fails(LocalFailure.OTHER)
        relation = claim.fact.phrase.path[-1] if claim.fact.phrase.path else None
        warranted = bool(values) and relation is not None and relation.single
        silent = self._unless_unread(claim.fact.phrase, _fails(LocalFailure.UNSUPPORTED_CONTENT), claim.fact.value)
        return _HOLDS if warranted else silent

    def _pair(self, claim: ComparisonClaim | AgreementClaim | YearsApartClaim) -> ClaimFinding:
        left, right = claim.left, claim.right
        if isinstance(claim, AgreementClaim):
            left, right = left.then(claim.relation), right.then(claim.relation)
        ones, others = self._ways(left), self._ways(right)
        if len(ones) != 1 or len(others) != 1:
            finding = _fails(LocalFailure.INVALID_INFERENCE)
            return self._unless_unread(left, self._unless_unread(right, finding))
        one, other = ones[0], others[0]
        if isinstance(claim, AgreementClaim):
            return _computed(self.evidence.same(one, other) == claim.same)
        if isinstance(claim, YearsApartClaim):
            return _computed(abs(read_year(one) - read_year(other)) == int(claim.years))
        return _computed(sort_key(one) != sort_key(other) and (sort_key(one) < sort_key(other)) == claim.less)

    def _chosen(self, claim: ChoiceClaim) -> ClaimFinding:
        """Among those the trace compares, or else those the question names."""
        for names in (self._weighed(claim), self._options if claim.option in self._options else ()):
            known = self._known((*names, claim.option), (*claim.path, claim.attribute))
            if len(known) > 1 and claim.option in known:
                return _computed(find_extreme(list(known.items()), least=claim.least) == claim.option)
        return self._unless_unread(Phrase(claim.option), _fails(LocalFailure.INVALID_INFERENCE))

    def _known(self, names: Iterable[str], way: tuple[Relation, ...]) -> dict[str, str]:
        """The values of those that have exactly one."""
        found = {name: self._ways(Phrase(name, way)) for name in names}
        return {name: values[0] for name, values in found.items() if len(values) == 1}

    def _weighed(self, claim: ChoiceClaim) -> list[str]:
        """What was compared last, or all that was told of the attribute if nothing was."""
        if not claim.path:
            told = [fact.phrase.base for fact in self._told if fact.phrase.path[0] is claim.attribute]
        else:
            told = [fact.phrase.base for fact in self._told if fact.phrase.path == claim.path]
        names = [name for name in told if isinstance(name, str)]
        if self._compared is None:
            return names
        sides = {self._compared.left.base, self._compared.right.base}
        behind = [fact.phrase.base for fact in self._told if fact.phrase.path == claim.path and fact.value in sides]
        return [
            name for name in (*names, *sides, *behind) if isinstance(name, str) and (name in sides or name in behind)
        ]


def _computed(right: bool) -> ClaimFinding:
    return _HOLDS if right else _fails(LocalFailure.CONSTRAINT_OR_COMPUTATION)
