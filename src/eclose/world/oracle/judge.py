"""The exact judge: what the paper's annotators decide, decided from the words of question, passages, trace and answer.

It follows the rules of appendix A.3.2. It never sees how a response was made, never looks a fact up by id, and
answers ``None`` with a reason where it cannot read: it does not guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclose.core.instance import Instance
from eclose.core.judgment import NO_ANSWER, NO_REFERENCE, NO_TRACE, Criterion, Judgment, StepJudgment
from eclose.core.response import Response
from eclose.world.language.claims import (
    AgreementClaim,
    ChoiceClaim,
    Claim,
    FactClaim,
    MissingFactClaim,
    YearsApartClaim,
)
from eclose.world.language.questions import NO, YES, ChoiceQuestion, Target, read_question
from eclose.world.language.values import read_answer_value
from eclose.world.oracle.alignment import AlignmentTracer
from eclose.world.oracle.answer_equality import is_correct, matches_value
from eclose.world.oracle.closure import ABSTAIN, TracePremises
from eclose.world.oracle.soundness import judge_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eclose.core.three_valued import Label

JUDGE = "world oracle"


def judge(instance: Instance, response: Response) -> Judgment:
    """The oracle's judgment of a response; what it cannot decide is listed with the reason."""
    target = read_question(instance.question)
    options = target.options if isinstance(target, ChoiceQuestion) else ()
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
_ODD_ANSWER = "cannot read the answer"


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
        self.premises = TracePremises(self.claims)
        self.pursued = AlignmentTracer(self.target).follow(self.claims) if self.target and not self.unread else None
        if not self.response.trace.steps:
            # Only an answer came: that says nothing about a trace nobody saw.
            self.unread = NO_TRACE

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
            return NO_ANSWER
        if self.target is None or self.unread:
            return self.unread or _NO_QUESTION
        on_target = self.pursued is None or self.pursued[0]
        found = self.premises.established(self.target) if on_target else _own_conclusion(self.premises, self.pursued)
        return self._is(self.response.answer, found)

    def complete(self) -> bool | str:
        if self.instance.reference_answer is None:
            return NO_REFERENCE
        if self.target is None or self.unread:
            return self.unread or _NO_QUESTION
        found = self.premises.established(self.target)
        return any(self._is(accepted, found) is True for accepted in self.instance.accepted_answers)

    def correct(self) -> bool | str:
        if self.response.answer is None:
            return NO_ANSWER
        if self.instance.reference_answer is None:
            return NO_REFERENCE
        found = is_correct(self.response.answer, self.instance.accepted_answers)
        return _ODD_ANSWER if found is None else found

    def _is(self, answer: str, found: list[str]) -> bool | str:
        """Whether an answer is the one thing that was established, under any name the trace gives it."""
        if len(found) != 1:
            return False
        same = matches_value(self.premises.name(read_answer_value(answer)), found[0])
        return _ODD_ANSWER if same is None else same


def _open_step(steps: Sequence[StepJudgment], unread: Sequence[int]) -> str | None:
    """Why local soundness is open; an unsound step decides it whatever the others may be."""
    if any(step.sound is False for step in steps):
        return None
    if unread:
        return f"cannot read step {unread[0] + 1}"
    number = next((n for n, step in enumerate(steps, start=1) if step.substantive and step.sound is None), None)
    return f"cannot read a sentence of the passages that may decide step {number}" if number else None


def _own_conclusion(premises: TracePremises, pursued: tuple[bool, Claim] | None) -> list[str]:
    """What a trace that left the question establishes for the target it pursues."""
    claim = pursued[1] if pursued else None
    if isinstance(claim, FactClaim):
        return premises.values(claim.phrase)
    if isinstance(claim, ChoiceClaim):
        return [claim.option]
    if isinstance(claim, AgreementClaim):
        return [YES if claim.same else NO]
    if isinstance(claim, YearsApartClaim):
        return [claim.years]
    return [ABSTAIN] if isinstance(claim, MissingFactClaim) else []
