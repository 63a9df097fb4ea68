"""The exact judge: the annotators' decisions, made from the words of question, passages, trace and answer.

It follows the rules of appendix A.3.2. How a response was made is not an input, and no fact is looked up by id. Where
the grammar cannot read a text, the label is None with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclose.reading.recorded import is_abstention
from eclose.values.instance import Instance
from eclose.values.judgment import (
    NO_ANSWER_REASON,
    NO_REFERENCE_REASON,
    NO_TRACE_REASON,
    Criterion,
    Judgment,
    StepJudgment,
)
from eclose.values.response import Response
from eclose_world.language.claims import (
    Claim,
    FactClaim,
    MissingFactClaim,
    SameValueClaim,
    SuperlativeClaim,
    YearsApartClaim,
)
from eclose_world.language.questions import NO, YES, ComparisonQuestion, LookupQuestion, Target, parse_question
from eclose_world.language.values import parse_answer_value
from eclose_world.oracle.answer_equality import answer_matches_value, is_correct_answer
from eclose_world.oracle.closure import ABSTENTION_ANSWER, AlignmentTracer, TracePremises
from eclose_world.oracle.soundness import judge_step_soundness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eclose.values.three_valued import Label

ORACLE_JUDGE_NAME = "world oracle"


def judge_by_oracle(instance: Instance, response: Response) -> Judgment:
    """Judge a response; undecided criteria are listed with their reasons."""
    target = parse_question(instance.question)
    options = target.options if isinstance(target, ComparisonQuestion) else ()
    steps, claims, unread = judge_step_soundness(instance.evidence, response.trace, options)
    unread_step = f"cannot read step {unread[0] + 1}" if unread else None
    last_read = bool(steps) and len(steps) - 1 not in unread
    case = _ResponseCase(instance, response, target, claims, unread_step, last_read=last_read)
    # Local soundness has no label of its own in a Judgment; it follows from the steps.
    open_step = _explain_open_soundness(steps, unread)
    case.reasons |= {Criterion.LOCAL_SOUNDNESS: open_step} if open_step else {}
    return Judgment(
        response.id,
        ORACLE_JUDGE_NAME,
        steps,
        aligned=case.decide(Criterion.ALIGNMENT, case.aligned),
        closed=case.decide(Criterion.CLOSURE, case.closed),
        complete=case.decide(Criterion.COMPLETENESS, case.complete),
        correct=case.decide(Criterion.CORRECTNESS, case.correct),
        unjudged=case.reasons,
        abstained=is_abstention(response),
    )


_NO_QUESTION = "cannot read the question"
_NO_GOAL = "no claim shows what the trace pursues"
_ODD_ANSWER = "cannot read the answer"


@dataclass
class _ResponseCase:
    """Labels of a response, each a label or the reason why there is none."""

    instance: Instance
    response: Response
    target: Target | None
    claims: list[Claim]
    unread: str | None
    """Why the trace as a whole cannot be judged."""
    last_read: bool
    """Whether the last step was read, so that the last claim is that of the trace."""
    reasons: dict[Criterion, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.premises = TracePremises(self.claims)
        self.main_line = (
            AlignmentTracer(self.target).find_main_line(self.claims) if self.target and not self.unread else None
        )
        if not self.response.trace.steps:
            # An answer alone decides nothing about the trace.
            self.unread = NO_TRACE_REASON

    def decide(self, criterion: Criterion, judge_criterion: Callable[[], bool | str]) -> Label:
        """Return the label; record the reason where there is none."""
        label = judge_criterion()
        if isinstance(label, str):
            self.reasons[criterion] = label
            return None
        return label

    def aligned(self) -> bool | str:
        # The last conclusion shows the main line, whatever the steps before it say.
        if self.last_read and self.target and _states_target(self.claims[-1], self.target):
            return True
        if self.target is None or self.unread:
            return self.unread or _NO_QUESTION
        return self.main_line[0] if self.main_line else _NO_GOAL

    def closed(self) -> bool | str:
        if self.response.answer is None:
            return NO_ANSWER_REASON
        if self.target is None or self.unread:
            return self.unread or _NO_QUESTION
        # Closure of a misaligned trace is judged against its own target (appendix A.3.2).
        on_target = self.main_line is None or self.main_line[0]
        answers = (
            self.premises.derive_answers(self.target)
            if on_target
            else _conclude_own_target(self.premises, self.main_line)
        )
        return self._matches(self.response.answer, answers)

    def complete(self) -> bool | str:
        if self.instance.reference_answer is None:
            return NO_REFERENCE_REASON
        if self.target is None or self.unread:
            return self.unread or _NO_QUESTION
        # Completeness asks for the reference of the question, whatever the trace pursues (A.3.2).
        answers = self.premises.derive_answers(self.target)
        return any(self._matches(accepted, answers) is True for accepted in self.instance.accepted_answers)

    def correct(self) -> bool | str:
        if self.response.answer is None:
            return NO_ANSWER_REASON
        if self.instance.reference_answer is None:
            return NO_REFERENCE_REASON
        label = is_correct_answer(self.response.answer, self.instance.accepted_answers)
        return _ODD_ANSWER if label is None else label

    def _matches(self, answer: str, answers: list[str]) -> bool | str:
        """Return whether an answer is the one established, under any name that the trace gives it."""
        if len(answers) != 1:
            return False
        same = answer_matches_value(self.premises.resolve_name(parse_answer_value(answer)), answers[0])
        return _ODD_ANSWER if same is None else same


def _states_target(claim: Claim, target: Target) -> bool:
    """Return whether a claim gives a value to the whole phrase that a question asks for."""
    if not isinstance(claim, FactClaim) or not isinstance(target, LookupQuestion) or len(target.phrase.path) < 2:
        return False
    return (claim.phrase.base, claim.phrase.path) == (target.phrase.base, target.phrase.path)


def _explain_open_soundness(steps: Sequence[StepJudgment], unread: Sequence[int]) -> str | None:
    """Return why local soundness is open; one unsound step decides it."""
    if any(step.sound is False for step in steps):
        return None
    if unread:
        return f"cannot read step {unread[0] + 1}"
    number = next((n for n, step in enumerate(steps, start=1) if step.substantive and step.sound is None), None)
    return f"cannot read a sentence of the passages that may decide step {number}" if number else None


def _conclude_own_target(premises: TracePremises, main_line: tuple[bool, Claim] | None) -> list[str]:
    claim = main_line[1] if main_line else None
    if isinstance(claim, FactClaim):
        return premises.find_values(claim.phrase)
    if isinstance(claim, SuperlativeClaim):
        return [claim.option]
    if isinstance(claim, SameValueClaim):
        return [YES if claim.same else NO]
    if isinstance(claim, YearsApartClaim):
        return [claim.years]
    return [ABSTENTION_ANSWER] if isinstance(claim, MissingFactClaim) else []
