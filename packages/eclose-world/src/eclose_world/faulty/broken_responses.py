"""Responses that fail in a requested way, made from reliable ones, with the labels they must get.

The failure is put into the moves of a solution, using the facts as the passages state them. Labels follow from how a
response was broken and not from the oracle's judgments, so the oracle can be tested against them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

from eclose.prompts.response_prompt import format_completion
from eclose.reading.recorded import is_abstention
from eclose.values.identity import hash_sort_key
from eclose.values.judgment import LocalFailure, StepJudgment
from eclose.values.response import Response, ResponseSource, Trace
from eclose.values.verdict import FailureClass, Verdict
from eclose_world.language.claims import (
    ComparisonClaim,
    FactClaim,
    MissingFactClaim,
    NegatedFactClaim,
    SameValueClaim,
    SubtractionClaim,
    SuperlativeClaim,
    ValueOrderClaim,
    YearsApartClaim,
)
from eclose_world.language.phrases import RelationPhrase
from eclose_world.language.questions import LookupQuestion, Target
from eclose_world.language.relations import ALIAS, PERSON, Relation
from eclose_world.make.solve import SolutionMove, WrittenStep, solve_question, vary_answer_wording, write_moves_as_steps
from eclose_world.make.wrong_alternatives import ItemAlternatives
from eclose_world.oracle.evidence import EvidenceFacts, parse_evidence_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose_world.make.instances import WorldItem


class FailureImpact(StrEnum):
    """The effect of a local failure on the rest of the response."""

    HARMLESS = "harmless"
    """A wrong step beside the argument: right answer, broken trace."""
    FATAL = "fatal"
    """A wrong step that the argument runs through: wrong answer, closed on a false premise."""


@dataclass(frozen=True, slots=True)
class FailurePlan:
    """The failure of a response; both None for a reliable one."""

    local: LocalFailure | None = None
    broken: FailureClass | None = None
    impact: FailureImpact = FailureImpact.HARMLESS
    """Of a local failure alone; together with a broken link it is harmless in itself."""


@dataclass(frozen=True, slots=True)
class BrokenResponse:
    """A response and the labels it must get."""

    response: Response
    plan: FailurePlan
    steps: tuple[StepJudgment, ...]
    """Substantive status, soundness and code of every step."""
    verdict: Verdict
    requested: str | None = None
    """The failure requested by name; the plan may differ where the item does not admit it."""


# The first three classes of the paper; the other two stand for labels that a judge did not give.
FAILURE_PLANS: tuple[FailurePlan, ...] = (
    *(FailurePlan(local, None, impact) for local in LocalFailure for impact in FailureImpact),
    *(FailurePlan(None, broken) for broken in list(FailureClass)[:3]),
    *(FailurePlan(local, broken) for local in LocalFailure for broken in list(FailureClass)[:3]),
)
"""Every way to fail: five codes with two impacts each, three broken links, and all pairs."""


@dataclass
class ResponseDraft:
    """A response in the making."""

    moves: list[SolutionMove]
    answer: str
    wrong: dict[int, LocalFailure]
    """Failures of unsound moves, by index."""
    answered: Target
    """The question that the moves answer: the asked one, or another."""
    aligned: bool = True
    closed: bool = True
    complete: bool = True
    correct: bool = True

    def insert(self, index: int, move: SolutionMove, failure: LocalFailure) -> None:
        """Insert an unsound move."""
        self.moves.insert(index, move)
        self.wrong = {other + (other >= index): code for other, code in self.wrong.items()} | {index: failure}


def break_response(item: WorldItem, plan: FailurePlan, seed: str) -> BrokenResponse | None:
    """Break the item's reliable response as planned; None where the item does not admit it."""
    breaker = ResponseBreaker(item, Random(f"{seed}/{item.seed}"))
    draft = breaker.draft(plan)
    if draft is None:
        return None
    return breaker.finish(draft, plan, breaker.write_steps(draft, f"{seed}/{item.seed}/words"))


class ResponseBreaker:
    """Breaks one response."""

    def __init__(self, item: WorldItem, rng: Random) -> None:
        self.item = item
        self.rng = rng
        self.target: Target = item.target
        self.evidence: EvidenceFacts = parse_evidence_facts(item.instance.evidence)
        self.others = ItemAlternatives(item, self.evidence, rng)
        self.moves = list(item.solution.moves)
        # Indices of moves that state a fact of a passage; the others conclude.
        self.facts = [index for index, move in enumerate(self.moves) if move.passages]

    def draft(self, plan: FailurePlan) -> ResponseDraft | None:
        """Return the broken moves and the labels that follow."""
        reliable = ResponseDraft(list(self.moves), self.item.solution.answer, {}, self.target)
        if plan.broken is not None:
            broken = self._break_link(plan.broken, reliable)
            return self._insert_wrong_step(broken, plan.local) if broken and plan.local else broken
        if plan.local is None:
            return reliable
        return (
            self._insert_wrong_step(reliable, plan.local)
            if plan.impact is FailureImpact.HARMLESS
            else self._corrupt_argument(reliable, plan.local)
        )

    # Broken links.

    def _break_link(self, failure: FailureClass, draft: ResponseDraft) -> ResponseDraft | None:
        if failure is FailureClass.ANSWER_DECOUPLING:
            other = self.others.pick_wrong_answer()
            return (
                replace(draft, answer=self.others.mix_with_correct(other), closed=False, correct=False)
                if other
                else None
            )
        if failure is FailureClass.INCOMPLETE_REASONING:
            return self._stop_short(draft)
        return self._deviate()

    def _stop_short(self, draft: ResponseDraft) -> ResponseDraft | None:
        """Keep a beginning that does not establish the answer; guess the answer, sometimes rightly."""
        if len(self.facts) < 2:
            return None
        length = self.rng.randint(1, len(self.facts) - 1)
        if _is_link(self.moves[length - 1]):
            # An alias shows no goal, which would leave alignment open: stop one step earlier or later.
            length = length - 1 or length + 1
            if length >= len(self.facts):
                return None
        # At least 40 % keep the correct answer: correct, but neither closed nor complete.
        guess = self._guess(self.moves[length - 1]) if self.rng.random() < 0.6 else None
        return replace(
            draft,
            moves=self.moves[:length],
            answer=guess or draft.answer,
            closed=False,
            complete=False,
            correct=guess is None,
        )

    def _guess(self, last: SolutionMove) -> str | None:
        """Draw a wrong answer after an unfinished trace: any, or the value reached last."""
        reached = (
            last.claim.value if isinstance(last.claim, FactClaim) and isinstance(self.target, LookupQuestion) else None
        )
        if reached and not self.evidence.same_entity(reached, self.item.solution.answer) and self.rng.random() < 0.6:
            return reached
        other = self.others.pick_wrong_answer()
        return self.others.mix_with_correct(other) if other else None

    def _deviate(self) -> ResponseDraft | None:
        """Answer another question from the same passages, soundly."""
        targets = self.others.find_targets()
        self.rng.shuffle(targets)
        for target, complete in targets:
            solution = solve_question(target, self.evidence)
            if solution is None or solution.answer == self.item.solution.answer:
                continue
            draft = ResponseDraft(
                list(solution.moves), solution.answer, {}, target, aligned=False, complete=complete, correct=False
            )
            if self.rng.random() < 0.2:
                # The correct answer after an argument for another question: not closed, but correct.
                return replace(
                    draft, answer=self.item.solution.answer, answered=self.target, closed=False, correct=True
                )
            return draft
        return None

    # Wrong steps.

    def _insert_wrong_step(self, draft: ResponseDraft, failure: LocalFailure) -> ResponseDraft | None:
        """Insert a wrong step that the argument does not need, never as the last one."""
        move = self._wrong_move(failure, draft)
        if move is None:
            return None
        # After a conclusion any step may follow. Without one, or where the wrong step is itself a conclusion, the last
        # step would become the goal of the trace and change its alignment.
        concluded = bool(draft.moves[-1].premises) and failure is not LocalFailure.INVALID_INFERENCE
        last = max(index for index, other in enumerate(draft.moves) if not _is_link(other))
        draft.insert(self.rng.randint(0, len(draft.moves) if concluded else last), move, failure)
        return draft

    def _wrong_move(self, failure: LocalFailure, draft: ResponseDraft) -> SolutionMove | None:
        rng = self.rng
        stated = [move.claim for move in draft.moves if isinstance(move.claim, FactClaim) and move.passages]
        facts = [fact for fact in stated if fact.phrase.path != (ALIAS,)]
        if failure is LocalFailure.UNSUPPORTED_CONTENT:
            return self._invent_fact(draft)
        if failure is LocalFailure.INVALID_INFERENCE:
            return self._link_strangers(draft) or self._infer_wrongly(draft)
        if failure is LocalFailure.CONSTRAINT_OR_COMPUTATION:
            # A false order of two years that no passage mentions.
            year = rng.randint(1900, 1980)
            return SolutionMove(ValueOrderClaim(str(year), str(year + rng.randint(1, 30)), less=False))
        if failure is LocalFailure.FALSE_COVERAGE:
            return SolutionMove(MissingFactClaim(rng.choice(facts).phrase)) if facts else None
        return SolutionMove(NegatedFactClaim(rng.choice(facts))) if facts else None

    def _invent_fact(self, draft: ResponseDraft) -> SolutionMove | None:
        mentioned = self._named_in(draft)
        readings = [
            reading for reading in self.evidence.readings if reading.kind is not None and reading.name not in mentioned
        ]
        self.rng.shuffle(readings)
        for reading in readings:
            relations = [
                relation
                for relation in self.evidence.list_relations()
                if relation.subject == reading.kind and relation is not ALIAS and not relation.role
            ]
            self.rng.shuffle(relations)
            for relation in relations:
                # The passages must be silent about it, or it would be a contradiction.
                if any(True for _ in self.evidence.find_facts(reading.name, relation)):
                    continue
                example = self._example(relation)
                if example is not None:
                    return SolutionMove(FactClaim(RelationPhrase(reading.name, (relation,)), example))
        return None

    def _named_in(self, draft: ResponseDraft) -> str:
        """Return the question and both arguments as one text, to look names up in."""
        return self.item.instance.question + " ".join(str(move.claim) for move in (*self.moves, *draft.moves))

    def _example(self, relation: Relation) -> str | None:
        values = [s.value for reading in self.evidence.readings for s in reading.statements if s.relation is relation]
        return self.rng.choice(values) if values else None

    def _link_strangers(self, draft: ResponseDraft) -> SolutionMove | None:
        """Return a false alias between two people that neither question nor argument names."""
        names = [reading.name for reading in self.evidence.readings if reading.kind == PERSON]
        mentioned = self._named_in(draft)
        unused = [name for name in dict.fromkeys(names) if name not in mentioned and names.count(name) == 1]
        if len(unused) < 2:
            return None
        first, second = self.rng.sample(unused, 2)
        return (
            None
            if self.evidence.same_entity(first, second)
            else SolutionMove(FactClaim(RelationPhrase(first, (ALIAS,)), second))
        )

    def _infer_wrongly(self, draft: ResponseDraft) -> SolutionMove | None:
        mentioned = self._named_in(draft)
        readings = [
            reading for reading in self.evidence.readings if reading.kind is not None and reading.name not in mentioned
        ]
        self.rng.shuffle(readings)
        for reading in readings:
            for first in (s for s in reading.statements if s.subject is None and s.relation.object is not None):
                for second in self.evidence.list_relations():
                    phrase = RelationPhrase(reading.name, (first.relation, second))
                    if second.subject != first.relation.object or len(self.evidence.derive(phrase)) != 1:
                        continue
                    value = self.others.pick_other_value(second, self.evidence.derive(phrase)[0].value)
                    if value is not None:
                        return SolutionMove(FactClaim(phrase, value), premises=(0,))
        return None

    def _corrupt_argument(self, draft: ResponseDraft, failure: LocalFailure) -> ResponseDraft | None:
        """Let the argument run through the wrong step to a wrong answer."""
        if failure is LocalFailure.UNSUPPORTED_CONTENT:
            return self._change_premise(draft)
        if failure is LocalFailure.INVALID_INFERENCE:
            return self._change_conclusion(draft)
        if failure is LocalFailure.CONSTRAINT_OR_COMPUTATION:
            return self._change_computation(draft)
        if failure is LocalFailure.FALSE_COVERAGE:
            return self._abstain(draft)
        return self._deny_and_stop(draft)

    def _change_premise(self, draft: ResponseDraft) -> ResponseDraft | None:
        """Give the last fact of a chain another value, and with it conclusion and answer."""
        if not isinstance(self.target, LookupQuestion) or not self.target.phrase.path:
            return None
        last = self.facts[-1]
        fact = draft.moves[last].claim
        assert isinstance(fact, FactClaim)
        value = self.others.pick_other_value(fact.phrase.path[-1], fact.value)
        if value is None or self._namesake_has(fact, value):
            return None
        draft.moves[last] = replace(draft.moves[last], claim=replace(fact, value=value))
        wrong = {last: LocalFailure.UNSUPPORTED_CONTENT}
        for index in range(last + 1, len(draft.moves)):
            claim = draft.moves[index].claim
            assert isinstance(claim, FactClaim)
            draft.moves[index] = replace(draft.moves[index], claim=replace(claim, value=value))
            # The conclusion is now invalid by the passages, though it follows from the false premise.
            wrong[index] = LocalFailure.INVALID_INFERENCE
        return replace(draft, answer=value, wrong=wrong, complete=False, correct=False)

    def _namesake_has(self, fact: FactClaim, value: str) -> bool:
        """Return whether a namesake's passage states the value: a wrong link, not invented content."""
        return any(derivation.value == value for derivation in self.evidence.derive(fact.phrase))

    def _change_conclusion(self, draft: ResponseDraft) -> ResponseDraft | None:
        """Draw a conclusion that does not follow from the right facts."""
        if not isinstance(self.target, LookupQuestion) or len(self.moves) == len(self.facts):
            return None
        value = self.others.pick_wrong_answer()
        claim = draft.moves[-1].claim
        if value is None or not isinstance(claim, FactClaim):
            return None
        draft.moves[-1] = replace(draft.moves[-1], claim=replace(claim, value=value))
        last = len(draft.moves) - 1
        return replace(draft, answer=value, wrong={last: LocalFailure.INVALID_INFERENCE}, complete=False, correct=False)

    def _change_computation(self, draft: ResponseDraft) -> ResponseDraft | None:
        """Reverse a comparison or change a difference, and carry it to the answer."""
        other = self.others.pick_wrong_answer()
        if isinstance(self.target, LookupQuestion) or other is None:
            return None
        wrong = {}
        # Moves after the facts are conclusions, all of which turn with the answer.
        for index in range(len(self.facts), len(draft.moves)):
            claim = draft.moves[index].claim
            if isinstance(claim, ValueOrderClaim | ComparisonClaim):
                claim = replace(claim, less=not claim.less)
            elif isinstance(claim, SuperlativeClaim):
                claim = replace(claim, option=other)
            elif isinstance(claim, SameValueClaim):
                claim = replace(claim, same=not claim.same)
            elif isinstance(claim, SubtractionClaim):
                claim = replace(claim, result=other)
            elif isinstance(claim, YearsApartClaim):
                claim = replace(claim, years=other)
            draft.moves[index] = replace(draft.moves[index], claim=claim)
            wrong[index] = LocalFailure.CONSTRAINT_OR_COMPUTATION
        return replace(draft, answer=other, wrong=wrong, complete=False, correct=False)

    def _abstain(self, draft: ResponseDraft) -> ResponseDraft | None:
        """Stop with the claim that the passages do not state a fact that they state, and submit that."""
        length = self.rng.randint(1, len(self.facts)) - 1
        fact = draft.moves[self.facts[length]].claim
        assert isinstance(fact, FactClaim)
        if fact.phrase.path == (ALIAS,):
            return None
        # premises=(0,) marks a conclusion for the writer.
        moves = [*draft.moves[:length], SolutionMove(MissingFactClaim(fact.phrase), premises=(0,))]
        wrong = {length: LocalFailure.FALSE_COVERAGE}
        return replace(draft, moves=moves, answer="not determined", wrong=wrong, complete=False, correct=False)

    def _deny_and_stop(self, draft: ResponseDraft) -> ResponseDraft | None:
        """Deny the fact that the answer rests on, stop there, and submit another answer."""
        fact = draft.moves[self.facts[-1]].claim
        other = self.others.pick_wrong_answer()
        assert isinstance(fact, FactClaim)
        if other is None or len(self.facts) < 2 or fact.phrase.path == (ALIAS,):
            return None
        length = self.facts[-1]
        moves = [*draft.moves[:length], SolutionMove(NegatedFactClaim(fact), premises=(0,))]
        return replace(
            draft,
            moves=moves,
            answer=other,
            wrong={length: LocalFailure.OTHER},
            closed=False,
            complete=False,
            correct=False,
        )

    # Writing.

    def write_steps(self, draft: ResponseDraft, seed: str) -> list[WrittenStep]:
        """Write the moves of the draft as steps."""
        # 30 % of lookups start with a step that claims nothing.
        idle = self.target.phrase if isinstance(self.target, LookupQuestion) and self.rng.random() < 0.3 else None
        return write_moves_as_steps(draft.moves, seed, idle=idle)

    def finish(self, draft: ResponseDraft, plan: FailurePlan, steps: Sequence[WrittenStep]) -> BrokenResponse:
        """Return the response of the written draft with the labels it must get."""
        judgments = []
        for step in steps:
            failure = next((draft.wrong[index] for index in step.moves if index in draft.wrong), None)
            # A step without a claim is not substantive, and its soundness is not asked (A.3.2).
            sound = (failure is None) if step.moves else None
            judgments.append(StepJudgment(bool(step.moves), sound, failure))
        answer = vary_answer_wording(draft.answered, draft.answer, self.rng)
        text = format_completion(Trace.of(*(step.text for step in steps)), answer)
        # The id must not reveal the failure to a judge, so it is a hash of the text.
        name = f"{self.item.instance.id}/{hash_sort_key(text)[:8]}"
        response = Response.from_completion(name, self.item.instance.id, text, ResponseSource("world saboteur"))
        labels = (not draft.wrong, draft.aligned, draft.closed, draft.complete, draft.correct)
        return BrokenResponse(response, plan, tuple(judgments), Verdict(*labels, abstained=is_abstention(response)))


def _is_link(move: SolutionMove) -> bool:
    """Return whether a move only states an alias."""
    return isinstance(move.claim, FactClaim) and move.claim.phrase.path == (ALIAS,)
