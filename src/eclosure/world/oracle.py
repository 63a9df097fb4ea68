"""The exact judge: what the paper's annotators decide, decided from the words of question, passages, trace and answer.

It follows the rules of appendix A.3.2. It never sees how a response was made, never looks a fact up by id, and
answers ``None`` with a reason where it cannot read: it does not guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclosure.core.answers import contains_span, normalize
from eclosure.core.instance import Instance
from eclosure.core.judgment import Criterion, Judgment, LocalFailure, StepJudgment, Support
from eclosure.core.labels import Label, conjunction, negation
from eclosure.core.response import Response
from eclosure.world.claims import (
    Agreed,
    Apart,
    Chosen,
    Claim,
    Compared,
    Denied,
    Discourse,
    Fact,
    Idle,
    Ordered,
    Subtracted,
    Uncovered,
)
from eclosure.world.evidence import Evidence, evidence_of, order_key
from eclosure.world.grammar import read_step
from eclosure.world.language import Phrase, Which
from eclosure.world.premises import ABSTAIN, Premises, winner
from eclosure.world.pursuit import Pursuit
from eclosure.world.questions import NO, YES, Choose, Target, read_question
from eclosure.world.relations import ALIAS, Relation
from eclosure.world.values import read_any, year_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eclosure.core.instance import Passage
    from eclosure.core.response import Trace

JUDGE = "world oracle"
_ABSTENTIONS = frozenset(
    {"not determined", "unknown", "cannot be determined", "insufficient evidence", "not enough information"}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a claim holds; the reason when it does not; the passage that supports it when one does."""

    sound: Label
    failure: LocalFailure | None = None
    passage: int | None = None


_HOLDS = Finding(sound=True)


def _fails(failure: LocalFailure) -> Finding:
    return Finding(sound=False, failure=failure)


def judge(instance: Instance, response: Response) -> Judgment:
    """The oracle's judgment of a response; what it cannot decide is listed with the reason."""
    target = read_question(instance.question)
    options = target.options if isinstance(target, Choose) else ()
    steps, claims, unread = judge_steps(instance.evidence, response.trace, options)
    case = _Case(instance, response, target, claims, f"cannot read step {unread[0] + 1}" if unread else None)
    open_step = _open_step(steps, unread)
    case.reasons |= {Criterion.LOCAL_SOUNDNESS: open_step} if open_step else {}
    return Judgment(
        response.id,
        JUDGE,
        steps,
        aligned=case.decided(Criterion.ALIGNMENT, case.aligned),
        closed=case.decided(Criterion.CLOSURE, case.closed),
        complete=case.decided(Criterion.COMPLETENESS, case.complete),
        correct=case.decided(Criterion.CORRECTNESS, case.correct),
        unjudged=case.reasons,
    )


_NO_QUESTION = "cannot read the question"
_NO_GOAL = "no claim shows what the trace pursues"
_NO_ANSWER = "no answer was submitted"
_ODD_ANSWER = "cannot read the answer"
_NO_REFERENCE = "there is no reference answer"
_NO_TRACE = "there is no trace"


@dataclass
class _Case:
    """The labels of a whole response, each a label or the reason why there is none."""

    instance: Instance
    response: Response
    target: Target | None
    claims: list[Claim]
    unread: str | None
    """Why the trace as a whole cannot be judged."""
    reasons: dict[Criterion, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What is known of the trace before any question is asked of it."""
        self.premises = Premises(self.claims)
        self.pursued = Pursuit(self.target).follow(self.claims) if self.target and not self.unread else None
        if not self.response.trace.steps:
            # Only an answer came: that says nothing about a trace nobody saw.
            self.unread = _NO_TRACE

    def decided(self, criterion: Criterion, decide: Callable[[], bool | str]) -> Label:
        """The label, with the reason noted where there is none."""
        found = decide()
        if isinstance(found, str):
            self.reasons[criterion] = found
            return None
        return found

    def aligned(self) -> bool | str:
        if self.target is None or self.unread:
            return self.unread or _NO_QUESTION
        return self.pursued[0] if self.pursued else _NO_GOAL

    def closed(self) -> bool | str:
        if self.response.answer is None:
            return _NO_ANSWER
        if self.target is None or self.unread:
            return self.unread or _NO_QUESTION
        on_target = self.pursued is None or self.pursued[0]
        found = self.premises.established(self.target) if on_target else _own_conclusion(self.premises, self.pursued)
        return self._is(self.response.answer, found)

    def complete(self) -> bool | str:
        if self.instance.reference_answer is None:
            return _NO_REFERENCE
        if self.target is None or self.unread:
            return self.unread or _NO_QUESTION
        found = self.premises.established(self.target)
        return any(self._is(accepted, found) is True for accepted in self.instance.accepted_answers)

    def correct(self) -> bool | str:
        if self.response.answer is None:
            return _NO_ANSWER
        if self.instance.reference_answer is None:
            return _NO_REFERENCE
        found = is_correct(self.response.answer, self.instance.accepted_answers)
        return _ODD_ANSWER if found is None else found

    def _is(self, answer: str, found: list[str]) -> bool | str:
        """Whether an answer is the one thing that was established, under any name the trace gives it."""
        if len(found) != 1:
            return False
        same = means(self.premises.name(read_any(answer)), found[0])
        return _ODD_ANSWER if same is None else same


def _open_step(steps: Sequence[StepJudgment], unread: Sequence[int]) -> str | None:
    """Why local soundness is open; an unsound step decides it whatever the others may be."""
    if any(step.sound is False for step in steps):
        return None
    if unread:
        return f"cannot read step {unread[0] + 1}"
    number = next((n for n, step in enumerate(steps, start=1) if step.substantive and step.sound is None), None)
    return f"cannot read a sentence of the passages that may decide step {number}" if number else None


def judge_steps(
    passages: Sequence[Passage], trace: Trace, options: Sequence[str] = ()
) -> tuple[tuple[StepJudgment, ...], list[Claim], list[int]]:
    """Every step judged, all claims that were read, and the numbers of the steps that were not.

    ``options`` are the things the question chooses between, which "the older one" is then said of.
    """
    checker = StepChecker(evidence_of(tuple(passages)), options)
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
    findings = [checker.check(claim) for claim in claims if not isinstance(claim, Idle)]
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

    def __init__(self, evidence: Evidence, options: Sequence[str] = ()) -> None:
        self.evidence = evidence
        self._options = options
        self._roles: dict[str, str] = {}
        self._told: list[Fact] = []
        self._compared: Compared | None = None

    def check(self, claim: Claim) -> Finding:
        """Whether the evidence warrants a claim; sound steps before it follow from the evidence too."""
        finding = self._check(claim)
        if isinstance(claim, Fact) and isinstance(claim.phrase.base, str) and claim.phrase.path:
            if (role := claim.phrase.path[-1].role) is not None:
                self._roles[claim.value] = role
            self._told.append(claim)
        if isinstance(claim, Compared):
            self._compared = claim
        return finding

    def _check(self, claim: Claim) -> Finding:
        if isinstance(claim, Fact):
            return self._fact(claim)
        if isinstance(claim, Denied):
            return self._denied(claim)
        if isinstance(claim, Uncovered):
            return (
                _fails(LocalFailure.FALSE_COVERAGE)
                if self._ways(claim.phrase)
                else self._unless_unread(claim.phrase, _HOLDS)
            )
        if isinstance(claim, Ordered):
            return _computed(
                (order_key(claim.left) < order_key(claim.right)) == claim.less and claim.left != claim.right
            )
        if isinstance(claim, Subtracted):
            return _computed(int(claim.larger) - int(claim.smaller) == int(claim.result))
        if isinstance(claim, Chosen):
            return self._chosen(claim)
        if isinstance(claim, Idle):
            return _HOLDS
        return self._pair(claim)

    def _ways(self, phrase: Phrase) -> list[str]:
        role = self._roles.get(phrase.base) if isinstance(phrase.base, str) else None
        return list(dict.fromkeys(way.value for way in self.evidence.ways(phrase, role)))

    def _fact(self, claim: Fact) -> Finding:
        phrase, evidence = claim.phrase, self.evidence
        if phrase.path == (ALIAS,) and isinstance(phrase.base, str):
            known = evidence.same(phrase.base, claim.value)
            return _HOLDS if known else self._unless_unread(phrase, _fails(LocalFailure.INVALID_INFERENCE), claim.value)
        role = self._roles.get(phrase.base) if isinstance(phrase.base, str) else None
        for way in evidence.ways(phrase, role):
            if evidence.same(way.value, claim.value):
                return Finding(sound=True, passage=way.hops[-1].passages[0] if len(phrase.path) == 1 else None)
        return self._unless_unread(phrase, _fails(self._why(claim)), claim.value)

    def _why(self, claim: Fact) -> LocalFailure:
        """Content nobody states, or a fact of somebody else's, or a conclusion that does not follow."""
        if len(claim.phrase.path) != 1 or isinstance(claim.phrase.base, Which):
            return LocalFailure.INVALID_INFERENCE
        a_namesakes = any(way.value == claim.value for way in self.evidence.ways(claim.phrase))
        return LocalFailure.INVALID_INFERENCE if a_namesakes else LocalFailure.UNSUPPORTED_CONTENT

    def _unless_unread(self, phrase: Phrase, finding: Finding, value: str = "") -> Finding:
        """A sentence nobody could read may say otherwise, if it speaks of the same names or of one on the way."""
        on_the_way = [Phrase(phrase.base, phrase.path[:cut]) for cut in range(1, len(phrase.path))]
        names = {phrase.base, value, *(name for way in on_the_way for name in self._ways(way))}
        texts = [name for name in names if isinstance(name, str) and name and not name[0].isdigit()]
        unread = self.evidence.unread
        open_ = any(name in part or self._title_has(index, name) for index, part in unread for name in texts)
        return Finding(sound=None) if open_ else finding

    def _title_has(self, index: int, name: str) -> bool:
        return self.evidence.readings[index].name == name

    def _denied(self, claim: Denied) -> Finding:
        values = self._ways(claim.fact.phrase)
        if any(self.evidence.same(value, claim.fact.value) for value in values):
            return _fails(LocalFailure.OTHER)
        relation = claim.fact.phrase.path[-1] if claim.fact.phrase.path else None
        warranted = bool(values) and relation is not None and relation.single
        silent = self._unless_unread(claim.fact.phrase, _fails(LocalFailure.UNSUPPORTED_CONTENT), claim.fact.value)
        return _HOLDS if warranted else silent

    def _pair(self, claim: Compared | Agreed | Apart) -> Finding:
        left, right = claim.left, claim.right
        if isinstance(claim, Agreed):
            left, right = left.then(claim.relation), right.then(claim.relation)
        ones, others = self._ways(left), self._ways(right)
        if len(ones) != 1 or len(others) != 1:
            finding = _fails(LocalFailure.INVALID_INFERENCE)
            return self._unless_unread(left, self._unless_unread(right, finding))
        one, other = ones[0], others[0]
        if isinstance(claim, Agreed):
            return _computed(self.evidence.same(one, other) == claim.same)
        if isinstance(claim, Apart):
            return _computed(abs(year_of(one) - year_of(other)) == int(claim.years))
        return _computed(order_key(one) != order_key(other) and (order_key(one) < order_key(other)) == claim.less)

    def _chosen(self, claim: Chosen) -> Finding:
        """Among those the trace compares, or else those the question names."""
        for names in (self._weighed(claim), self._options if claim.option in self._options else ()):
            known = self._known((*names, claim.option), (*claim.path, claim.attribute))
            if len(known) > 1 and claim.option in known:
                return _computed(winner(list(known.items()), least=claim.least) == claim.option)
        return self._unless_unread(Phrase(claim.option), _fails(LocalFailure.INVALID_INFERENCE))

    def _known(self, names: Iterable[str], way: tuple[Relation, ...]) -> dict[str, str]:
        """The values of those that have exactly one."""
        found = {name: self._ways(Phrase(name, way)) for name in names}
        return {name: values[0] for name, values in found.items() if len(values) == 1}

    def _weighed(self, claim: Chosen) -> list[str]:
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


def _computed(right: bool) -> Finding:
    return _HOLDS if right else _fails(LocalFailure.CONSTRAINT_OR_COMPUTATION)


def _own_conclusion(premises: Premises, pursued: tuple[bool, Claim] | None) -> list[str]:
    """What a trace that left the question establishes for the target it pursues."""
    claim = pursued[1] if pursued else None
    if isinstance(claim, Fact):
        return premises.values(claim.phrase)
    if isinstance(claim, Chosen):
        return [claim.option]
    if isinstance(claim, Agreed):
        return [YES if claim.same else NO]
    if isinstance(claim, Apart):
        return [claim.years]
    return [ABSTAIN] if isinstance(claim, Uncovered) else []


_LEAD = re.compile(r"^(?:the answer is|it is|it was|this is)\s+", re.IGNORECASE)


def is_abstention(answer: str) -> bool:
    """Whether the answer says that there is none."""
    return _LEAD.sub("", answer.strip().rstrip(".")).lower() in _ABSTENTIONS


_UNIT = re.compile(r"(\d[\d,]*) (?:years?|people|inhabitants|pages|employees)")


def _plain(answer: str) -> str:
    """The answer without the words around it that say nothing."""
    text = _LEAD.sub("", answer.strip().rstrip("."))
    found = _UNIT.fullmatch(text)
    return read_any(found[1] if found else text)


def same_answer(answer: str, value: str) -> bool:
    """Whether two answers surely mean the same: dates, numbers and durations by value, names by their words."""
    if is_abstention(answer) or is_abstention(value):
        return is_abstention(answer) and is_abstention(value)
    one, other = _plain(answer), _plain(value)
    if other.lower() in (YES, NO):
        return " or " not in one and normalize(one)[:1] == normalize(other)
    return one == other or (bool(normalize(one)) and normalize(one) == normalize(other))


def means(answer: str, value: str) -> Label:
    """Whether an answer means a value; None for one that holds it among words that could change it.

    Two names joined by "or" leave the question open, and so mean neither.
    """
    if same_answer(answer, value):
        return True
    if is_abstention(answer) or is_abstention(value) or " or " in answer or value.lower() in (YES, NO):
        return False
    return None if contains_span(normalize(answer), normalize(value)) else False


def is_correct(answer: str, accepted: Iterable[str]) -> Label:
    """Whether the answer is one of the accepted ones; an abstention never is."""
    if is_abstention(answer):
        return False
    return negation(conjunction(negation(means(answer, one)) for one in accepted))
