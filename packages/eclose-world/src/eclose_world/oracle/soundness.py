"""Soundness of steps: every claim of a trace checked against the passages, with the code of the failure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eclose.values.judgment import LocalFailure, StepJudgment, StepSupport
from eclose.values.three_valued import Label
from eclose_world.language import relations as rel
from eclose_world.language.claims import (
    Claim,
    ClaimlessStep,
    ComparisonClaim,
    DescriptionClaim,
    FactClaim,
    MissingFactClaim,
    NegatedFactClaim,
    PronounReferents,
    SameValueClaim,
    SubtractionClaim,
    SuperlativeClaim,
    ValueOrderClaim,
    YearsApartClaim,
)
from eclose_world.language.phrases import PersonOfTwoDeeds, RelationPhrase
from eclose_world.language.steps import parse_step_claims
from eclose_world.language.values import extract_year
from eclose_world.oracle.closure import find_extreme_option
from eclose_world.oracle.evidence import EvidenceFacts, parse_evidence_facts, value_sort_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose.values.instance import Passage
    from eclose.values.response import Trace


@dataclass(frozen=True, slots=True)
class ClaimCheckResult:
    """Whether a claim holds, the failure where it does not, and the passage that supports it where one does."""

    sound: Label
    failure: LocalFailure | None = None
    passage: int | None = None


_HOLDS = ClaimCheckResult(sound=True)


def _fails(failure: LocalFailure) -> ClaimCheckResult:
    return ClaimCheckResult(sound=False, failure=failure)


def judge_step_soundness(
    passages: Sequence[Passage], trace: Trace, options: Sequence[str] = ()
) -> tuple[tuple[StepJudgment, ...], list[Claim], list[int]]:
    """Judge every step; return the judgments, all claims read, and the indices of unread steps.

    ``options`` are the things a question chooses between, to which "the older one" may refer.
    """
    checker = StepClaimChecker(parse_evidence_facts(tuple(passages)), options)
    discourse = PronounReferents()
    judgments: list[StepJudgment] = []
    claims_read: list[Claim] = []
    unread: list[int] = []
    for number, text in enumerate(trace.texts):
        claims = parse_step_claims(text, discourse)
        if claims is None:
            # Later steps are read all the same: their labels are still known.
            judgments.append(StepJudgment(None))
            unread.append(number)
            continue
        claims = tuple(_choose_sense(claim, checker.evidence) for claim in claims)
        judgments.append(_judge_step(claims, checker, passages))
        claims_read += claims
    return tuple(judgments), claims_read, unread


# Relations that words may also stand for, by the type of their subject: "was written by" of a film.
_OTHER_SENSES: dict[tuple[rel.Relation, str], tuple[rel.Relation, ...]] = {
    (rel.AUTHOR, rel.FILM): (rel.SCREENWRITER,),
    (rel.AUTHOR, rel.SONG): (rel.SONGWRITER,),
    (rel.SEATED, rel.COMPANY): (rel.HEADQUARTERS,),
    # "X is in Y": the passages say what Y is.
    (rel.SEATED, rel.CITY): (rel.LIES_IN, rel.IN_COUNTY, rel.IN_TOWNSHIP),
}


def _choose_sense(claim: Claim, evidence: EvidenceFacts) -> Claim:
    """Return the claim with the relations that fit the types of their subjects."""
    if not isinstance(claim, FactClaim) or not claim.phrase.path or not isinstance(claim.phrase.base, str):
        return claim
    path: list[rel.Relation] = []
    for relation in claim.phrase.path:
        kinds = {path[-1].object} if path else evidence.find_kinds(claim.phrase.base)
        path.append(_choose_relation(relation, kinds, claim.value, evidence))
    return replace(claim, phrase=replace(claim.phrase, path=tuple(path)))


def _choose_relation(
    relation: rel.Relation, kinds: set[str | None], value: str, evidence: EvidenceFacts
) -> rel.Relation:
    if relation.subject in kinds or None in kinds:
        return relation
    # Namesakes of several types leave the sense open.
    senses = {sense for kind in kinds for sense in _OTHER_SENSES.get((relation, kind or ""), ())}
    if len(senses) > 1:
        senses = {sense for sense in senses if evidence.states_value(sense, value)}
    return senses.pop() if len(senses) == 1 else relation


def _judge_step(claims: tuple[Claim, ...], checker: StepClaimChecker, passages: Sequence[Passage]) -> StepJudgment:
    findings = [checker.check(claim) for claim in claims if not isinstance(claim, ClaimlessStep)]
    if not findings:
        return StepJudgment(substantive=False)
    # One unsound claim makes the step unsound, whatever cannot be read beside it.
    unsound = next((finding for finding in findings if finding.sound is False), None)
    if unsound is not None:
        return StepJudgment(substantive=True, sound=False, failure=unsound.failure)
    if any(finding.sound is None for finding in findings):
        return StepJudgment(substantive=True)
    passage = next((finding.passage for finding in findings if finding.passage is not None), None)
    support = StepSupport(passage, passages[passage].text) if passage is not None else None
    return StepJudgment(substantive=True, sound=True, support=support)


class StepClaimChecker:
    """Checks claims against the evidence, in the order of the trace."""

    def __init__(self, evidence: EvidenceFacts, options: Sequence[str] = ()) -> None:
        self.evidence = evidence
        self._options = options
        # Role by which each name was reached, to tell namesakes apart.
        self._roles: dict[str, str] = {}
        self._facts: list[FactClaim] = []
        self._last_comparison: ComparisonClaim | None = None

    def check(self, claim: Claim) -> ClaimCheckResult:
        """Return whether the evidence warrants a claim; facts of earlier steps identify namesakes."""
        finding = self._check(claim)
        if isinstance(claim, FactClaim) and isinstance(claim.phrase.base, str) and claim.phrase.path:
            if (role := claim.phrase.path[-1].role) is not None:
                self._roles[claim.value] = role
            self._facts.append(claim)
        if isinstance(claim, ComparisonClaim):
            self._last_comparison = claim
        return finding

    def _check(self, claim: Claim) -> ClaimCheckResult:
        if isinstance(claim, FactClaim):
            return self._check_fact(claim)
        if isinstance(claim, NegatedFactClaim):
            return self._check_denial(claim)
        if isinstance(claim, MissingFactClaim):
            return (
                _fails(LocalFailure.FALSE_COVERAGE)
                if self._find_values(claim.phrase)
                else self._unless_unread(claim.phrase, _HOLDS)
            )
        if isinstance(claim, ValueOrderClaim):
            return _check_computation(
                (value_sort_key(claim.first) < value_sort_key(claim.second)) == claim.less
                and claim.first != claim.second
            )
        if isinstance(claim, SubtractionClaim):
            return _check_computation(int(claim.larger) - int(claim.smaller) == int(claim.result))
        if isinstance(claim, SuperlativeClaim):
            return self._check_choice(claim)
        if isinstance(claim, DescriptionClaim):
            described = self.evidence.describes(claim.name, claim.kind, claim.words)
            return _HOLDS if described else _fails(LocalFailure.UNSUPPORTED_CONTENT)
        return _HOLDS if isinstance(claim, ClaimlessStep) else self._check_pair(claim)

    def _find_values(self, phrase: RelationPhrase) -> list[str]:
        role = self._roles.get(phrase.base) if isinstance(phrase.base, str) else None
        return list(dict.fromkeys(derivation.value for derivation in self.evidence.derive(phrase, role)))

    def _check_fact(self, claim: FactClaim) -> ClaimCheckResult:
        phrase, evidence = claim.phrase, self.evidence
        if phrase.path == (rel.ALIAS,) and isinstance(phrase.base, str):
            same = evidence.same_entity(phrase.base, claim.value)
            return _HOLDS if same else self._unless_unread(phrase, _fails(LocalFailure.INVALID_INFERENCE), claim.value)
        role = self._roles.get(phrase.base) if isinstance(phrase.base, str) else None
        for derivation in evidence.derive(phrase, role):
            if evidence.same_entity(derivation.value, claim.value):
                return ClaimCheckResult(
                    sound=True, passage=derivation.hops[-1].passages[0] if len(phrase.path) == 1 else None
                )
        return self._unless_unread(phrase, _fails(self._explain_failure(claim)), claim.value)

    def _explain_failure(self, claim: FactClaim) -> LocalFailure:
        """Return the failure of a fact: invented content, another entity's fact, or an invalid conclusion."""
        # Several relations at once are a conclusion, never the content of a passage.
        if len(claim.phrase.path) != 1 or isinstance(claim.phrase.base, PersonOfTwoDeeds):
            return LocalFailure.INVALID_INFERENCE
        of_namesake = any(derivation.value == claim.value for derivation in self.evidence.derive(claim.phrase))
        return LocalFailure.INVALID_INFERENCE if of_namesake else LocalFailure.UNSUPPORTED_CONTENT

    def _unless_unread(self, phrase: RelationPhrase, finding: ClaimCheckResult, value: str = "") -> ClaimCheckResult:
        """Return the finding, or an open one where an unread sentence mentions a name on the path."""
        prefixes = [RelationPhrase(phrase.base, phrase.path[:cut]) for cut in range(1, len(phrase.path))]
        names = {phrase.base, value, *(name for prefix in prefixes for name in self._find_values(prefix))}
        # Dates and numbers would match unrelated sentences.
        texts = [name for name in names if isinstance(name, str) and name and not name[0].isdigit()]
        unread = self.evidence.unread
        undecided = any(name in part or self._title_has(index, name) for index, part in unread for name in texts)
        return ClaimCheckResult(sound=None) if undecided else finding

    def _title_has(self, index: int, name: str) -> bool:
        return self.evidence.readings[index].name == name

    def _check_denial(self, claim: NegatedFactClaim) -> ClaimCheckResult:
        values = self._find_values(claim.fact.phrase)
        if any(self.evidence.same_entity(value, claim.fact.value) for value in values):
            return _fails(LocalFailure.OTHER)
        relation = claim.fact.phrase.path[-1] if claim.fact.phrase.path else None
        # A denial needs another stated value, which excludes only where there is at most one.
        warranted = bool(values) and relation is not None and relation.single
        silent = self._unless_unread(claim.fact.phrase, _fails(LocalFailure.UNSUPPORTED_CONTENT), claim.fact.value)
        return _HOLDS if warranted else silent

    def _check_pair(self, claim: ComparisonClaim | SameValueClaim | YearsApartClaim) -> ClaimCheckResult:
        first, second = claim.first, claim.second
        if isinstance(claim, SameValueClaim):
            first, second = first.then(claim.relation), second.then(claim.relation)
        first_values, second_values = self._find_values(first), self._find_values(second)
        # An open side makes the comparison an invalid inference.
        if len(first_values) != 1 or len(second_values) != 1:
            finding = _fails(LocalFailure.INVALID_INFERENCE)
            return self._unless_unread(first, self._unless_unread(second, finding))
        first_value, second_value = first_values[0], second_values[0]
        if isinstance(claim, SameValueClaim):
            return _check_computation(self.evidence.same_entity(first_value, second_value) == claim.same)
        if isinstance(claim, YearsApartClaim):
            return _check_computation(abs(extract_year(first_value) - extract_year(second_value)) == int(claim.years))
        return _check_computation(
            value_sort_key(first_value) != value_sort_key(second_value)
            and (value_sort_key(first_value) < value_sort_key(second_value)) == claim.less
        )

    def _check_choice(self, claim: SuperlativeClaim) -> ClaimCheckResult:
        """Check a choice among the names the trace compares, or else the options of the question."""
        for names in (self._compared_names(claim), self._options if claim.option in self._options else ()):
            values = self._single_values((*names, claim.option), (*claim.path, claim.attribute))
            if len(values) > 1 and claim.option in values:
                return _check_computation(find_extreme_option(list(values.items()), least=claim.least) == claim.option)
        return self._unless_unread(RelationPhrase(claim.option), _fails(LocalFailure.INVALID_INFERENCE))

    def _single_values(self, names: Iterable[str], path: tuple[rel.Relation, ...]) -> dict[str, str]:
        values_by_name = {name: self._find_values(RelationPhrase(name, path)) for name in names}
        return {name: values[0] for name, values in values_by_name.items() if len(values) == 1}

    def _compared_names(self, claim: SuperlativeClaim) -> list[str]:
        """Return the names compared last, or all names with the attribute where no comparison was made."""
        if not claim.path:
            stated = [fact.phrase.base for fact in self._facts if fact.phrase.path[0] is claim.attribute]
        else:
            stated = [fact.phrase.base for fact in self._facts if fact.phrase.path == claim.path]
        names = [name for name in stated if isinstance(name, str)]
        if self._last_comparison is None:
            return names
        sides = {self._last_comparison.first.base, self._last_comparison.second.base}
        behind = [fact.phrase.base for fact in self._facts if fact.phrase.path == claim.path and fact.value in sides]
        return [
            name for name in (*names, *sides, *behind) if isinstance(name, str) and (name in sides or name in behind)
        ]


def _check_computation(right: bool) -> ClaimCheckResult:
    return _HOLDS if right else _fails(LocalFailure.CONSTRAINT_OR_COMPUTATION)
