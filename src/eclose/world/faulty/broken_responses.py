"""Responses that fail in a requested way, made from reliable ones, with the labels they must get.

Works on the moves of a solution and on the facts as the passages state them. It shares that reading with the oracle,
but none of its judgements: what it plants is decided by how it breaks a response, and the oracle is held against it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

from eclose.core.identity import hash_rank
from eclose.core.judgment import LocalFailure, StepJudgment
from eclose.core.response import Response, Source, Trace
from eclose.core.verdict import FailureClass, Verdict
from eclose.protocol.response_prompt import format_completion
from eclose.world.language.claims import (
    AgreementClaim,
    ChoiceClaim,
    ComparisonClaim,
    DenialClaim,
    FactClaim,
    MissingFactClaim,
    OrderClaim,
    SubtractionClaim,
    YearsApartClaim,
)
from eclose.world.language.phrases import Phrase
from eclose.world.language.questions import LookupQuestion, Target
from eclose.world.language.relations import ALIAS, PERSON, RELATIONS, Relation
from eclose.world.make.alternatives import Alternatives
from eclose.world.make.solve import Move, solve, write_steps, write_submitted_answer
from eclose.world.oracle.evidence import EvidenceFacts, read_evidence

if TYPE_CHECKING:
    from eclose.world.make.instances import WorldItem


class FailureImpact(StrEnum):
    """What a local failure does to the rest of the response."""

    HARMLESS = "harmless"
    """A wrong step beside the argument: right answer, broken trace."""
    FATAL = "fatal"
    """A wrong step the argument runs through: wrong answer, closed on a false premise."""


@dataclass(frozen=True, slots=True)
class FailurePlan:
    """How a response is to fail; both None for a reliable one."""

    local: LocalFailure | None = None
    broken: FailureClass | None = None
    blow: FailureImpact = FailureImpact.HARMLESS
    """For a local failure alone; one that comes with a broken link is harmless in itself."""


@dataclass(frozen=True, slots=True)
class BrokenResponse:
    """A response and what a judge must say of it."""

    response: Response
    plan: FailurePlan
    steps: tuple[StepJudgment, ...]
    """Substantive status, soundness and code of every step."""
    verdict: Verdict
    asked: str | None = None
    """The failure that was asked for by name; the plan may differ where the item does not admit it."""


FAILURE_PLANS: tuple[FailurePlan, ...] = (
    *(FailurePlan(local, None, blow) for local in LocalFailure for blow in FailureImpact),
    *(FailurePlan(None, broken) for broken in list(FailureClass)[:3]),
    *(FailurePlan(local, broken) for local in LocalFailure for broken in list(FailureClass)[:3]),
)
"""Every way to fail: five codes, two blows each; three broken links; and all pairs."""


@dataclass
class _Draft:
    """A response in the making."""

    moves: list[Move]
    answer: str
    wrong: dict[int, LocalFailure]
    """Moves that do not hold, by their place."""
    asked: Target
    """The question the moves answer: the one asked, or another."""
    aligned: bool = True
    closed: bool = True
    complete: bool = True
    correct: bool = True

    def insert(self, place: int, move: Move, failure: LocalFailure) -> None:
        """Put a wrong move in between."""
        self.moves.insert(place, move)
        self.wrong = {index + (index >= place): code for index, code in self.wrong.items()} | {place: failure}


def break_response(item: WorldItem, plan: FailurePlan, seed: str) -> BrokenResponse | None:
    """The item's reliable response, broken as planned; None when this item cannot fail that way."""
    smith = _Smith(item, Random(f"{seed}/{item.seed}"))
    draft = smith.draft(plan)
    if draft is None:
        return None
    return smith.finish(draft, plan, f"{seed}/{item.seed}/words")


class _Smith:
    """Breaks one response."""

    def __init__(self, item: WorldItem, rng: Random) -> None:
        self.item = item
        self.rng = rng
        self.target: Target = item.target
        self.evidence: EvidenceFacts = read_evidence(item.instance.evidence)
        self.others = Alternatives(item, self.evidence, rng)
        self.moves = list(item.solution.moves)
        self.facts = [index for index, move in enumerate(self.moves) if move.passages]

    def draft(self, plan: FailurePlan) -> _Draft | None:
        """The broken moves and what follows for the labels."""
        whole = _Draft(list(self.moves), self.item.solution.answer, {}, self.target)
        if plan.broken is not None:
            made = self._break(plan.broken, whole)
            return self._hurt(made, plan.local) if made and plan.local else made
        if plan.local is None:
            return whole
        return self._hurt(whole, plan.local) if plan.blow is FailureImpact.HARMLESS else self._poison(whole, plan.local)

    # Broken links.

    def _break(self, failure: FailureClass, draft: _Draft) -> _Draft | None:
        if failure is FailureClass.ANSWER_DECOUPLING:
            other = self.others.answer()
            return replace(draft, answer=self.others.torn(other), closed=False, correct=False) if other else None
        if failure is FailureClass.INCOMPLETE_REASONING:
            return self._stop_short(draft)
        return self._deviate()

    def _stop_short(self, draft: _Draft) -> _Draft | None:
        """Keep a beginning from which the answer does not follow; guess the answer, sometimes rightly."""
        if len(self.facts) < 2:
            return None
        kept = self.rng.randint(1, len(self.facts) - 1)
        if _is_link(self.moves[kept - 1]):
            # A link shows no goal; stop one step earlier or later, where one does.
            kept = kept - 1 or kept + 1
            if kept >= len(self.facts):
                return None
        guess = self._guess(self.moves[kept - 1]) if self.rng.random() < 0.6 else None
        return replace(
            draft,
            moves=self.moves[:kept],
            answer=guess or draft.answer,
            closed=False,
            complete=False,
            correct=guess is None,
        )

    def _guess(self, last: Move) -> str | None:
        """A wrong answer after an unfinished trace: any, or what was reached last, as if that had been asked for."""
        reached = (
            last.claim.value if isinstance(last.claim, FactClaim) and isinstance(self.target, LookupQuestion) else None
        )
        if reached and not self.evidence.same(reached, self.item.solution.answer) and self.rng.random() < 0.6:
            return reached
        other = self.others.answer()
        return self.others.torn(other) if other else None

    def _deviate(self) -> _Draft | None:
        """Answer another question from the same passages, soundly."""
        others = self.others.targets()
        self.rng.shuffle(others)
        for other, complete in others:
            solution = solve(other, self.evidence)
            if solution is None or solution.answer == self.item.solution.answer:
                continue
            draft = _Draft(
                list(solution.moves), solution.answer, {}, other, aligned=False, complete=complete, correct=False
            )
            if self.rng.random() < 0.2:
                # The right answer after the wrong argument.
                return replace(draft, answer=self.item.solution.answer, asked=self.target, closed=False, correct=True)
            return draft
        return None

    # Wrong steps.

    def _hurt(self, draft: _Draft, failure: LocalFailure) -> _Draft | None:
        """Insert a wrong step that the argument does not need, never as the last one."""
        move = self._wrong_move(failure, draft)
        if move is None:
            return None
        # Behind a conclusion anything may be added. Without one, and for a wrong conclusion, what is said last would be
        # what the trace is after.
        concluded = bool(draft.moves[-1].premises) and failure is not LocalFailure.INVALID_INFERENCE
        last = max(index for index, kept in enumerate(draft.moves) if not _is_link(kept))
        draft.insert(self.rng.randint(0, len(draft.moves) if concluded else last), move, failure)
        return draft

    def _wrong_move(self, failure: LocalFailure, draft: _Draft) -> Move | None:
        rng = self.rng
        stated = [move.claim for move in draft.moves if isinstance(move.claim, FactClaim) and move.passages]
        known = [fact for fact in stated if fact.phrase.path != (ALIAS,)]
        if failure is LocalFailure.UNSUPPORTED_CONTENT:
            return self._invented(draft)
        if failure is LocalFailure.INVALID_INFERENCE:
            return self._false_link(draft) or self._false_inference(draft)
        if failure is LocalFailure.CONSTRAINT_OR_COMPUTATION:
            one = rng.randint(1900, 1980)
            return Move(OrderClaim(str(one), str(one + rng.randint(1, 30)), less=False))
        if failure is LocalFailure.FALSE_COVERAGE:
            return Move(MissingFactClaim(rng.choice(known).phrase)) if known else None
        return Move(DenialClaim(rng.choice(known))) if known else None

    def _invented(self, draft: _Draft) -> Move | None:
        """A fact about somebody beside the argument that no passage states."""
        named = self._named_in(draft)
        people = [r for r in self.evidence.readings if r.kind is not None and r.name not in named]
        self.rng.shuffle(people)
        for reading in people:
            relations = [r for r in RELATIONS if r.subject == reading.kind and r is not ALIAS and not r.role]
            self.rng.shuffle(relations)
            for relation in relations:
                if any(True for _ in self.evidence.facts(reading.name, relation)):
                    continue
                example = self._example(relation)
                if example is not None:
                    return Move(FactClaim(Phrase(reading.name, (relation,)), example))
        return None

    def _named_in(self, draft: _Draft) -> str:
        """Everything the question and both arguments name, as one text to look names up in."""
        return self.item.instance.question + " ".join(str(move.claim) for move in (*self.moves, *draft.moves))

    def _example(self, relation: Relation) -> str | None:
        values = [s.value for reading in self.evidence.readings for s in reading.statements if s.relation is relation]
        return self.rng.choice(values) if values else None

    def _false_link(self, draft: _Draft) -> Move | None:
        """Two people who are not one, and whom neither the question nor the argument names."""
        names = [reading.name for reading in self.evidence.readings if reading.kind == PERSON]
        named = self._named_in(draft)
        free = [name for name in dict.fromkeys(names) if name not in named and names.count(name) == 1]
        if len(free) < 2:
            return None
        one, other = self.rng.sample(free, 2)
        return None if self.evidence.same(one, other) else Move(FactClaim(Phrase(one, (ALIAS,)), other))

    def _false_inference(self, draft: _Draft) -> Move | None:
        """Two facts about something else, put together wrongly."""
        named = self._named_in(draft)
        free = [r for r in self.evidence.readings if r.kind is not None and r.name not in named]
        self.rng.shuffle(free)
        for reading in free:
            for first in (s for s in reading.statements if s.subject is None and s.relation.object is not None):
                for second in RELATIONS:
                    phrase = Phrase(reading.name, (first.relation, second))
                    if second.subject != first.relation.object or len(self.evidence.ways(phrase)) != 1:
                        continue
                    value = self.others.value(second, self.evidence.ways(phrase)[0].value)
                    if value is not None:
                        return Move(FactClaim(phrase, value), premises=(0,))
        return None

    def _poison(self, draft: _Draft, failure: LocalFailure) -> _Draft | None:
        """Let the argument run through the wrong step to a wrong answer."""
        if failure is LocalFailure.UNSUPPORTED_CONTENT:
            return self._false_premise(draft)
        if failure is LocalFailure.INVALID_INFERENCE:
            return self._wrong_conclusion(draft)
        if failure is LocalFailure.CONSTRAINT_OR_COMPUTATION:
            return self._wrong_computation(draft)
        if failure is LocalFailure.FALSE_COVERAGE:
            return self._false_abstention(draft)
        return self._denied_then_dropped(draft)

    def _false_premise(self, draft: _Draft) -> _Draft | None:
        """The last fact of a chain gets another value, and so do the conclusion and the answer."""
        if not isinstance(self.target, LookupQuestion) or not self.target.phrase.path:
            return None
        last = self.facts[-1]
        fact = draft.moves[last].claim
        assert isinstance(fact, FactClaim)
        value = self.others.value(fact.phrase.path[-1], fact.value)
        if value is None or self._namesake_has(fact, value):
            return None
        draft.moves[last] = replace(draft.moves[last], claim=replace(fact, value=value))
        wrong = {last: LocalFailure.UNSUPPORTED_CONTENT}
        for index in range(last + 1, len(draft.moves)):
            claim = draft.moves[index].claim
            assert isinstance(claim, FactClaim)
            draft.moves[index] = replace(draft.moves[index], claim=replace(claim, value=value))
            wrong[index] = LocalFailure.INVALID_INFERENCE
        return replace(draft, answer=value, wrong=wrong, complete=False, correct=False)

    def _namesake_has(self, fact: FactClaim, value: str) -> bool:
        """Whether a namesake's passage states just that: then it would be a wrong link, not invented content."""
        return any(way.value == value for way in self.evidence.ways(fact.phrase))

    def _wrong_conclusion(self, draft: _Draft) -> _Draft | None:
        """Right facts, and a conclusion that does not follow from them."""
        if not isinstance(self.target, LookupQuestion) or len(self.moves) == len(self.facts):
            return None
        value = self.others.answer()
        claim = draft.moves[-1].claim
        if value is None or not isinstance(claim, FactClaim):
            return None
        draft.moves[-1] = replace(draft.moves[-1], claim=replace(claim, value=value))
        last = len(draft.moves) - 1
        return replace(draft, answer=value, wrong={last: LocalFailure.INVALID_INFERENCE}, complete=False, correct=False)

    def _wrong_computation(self, draft: _Draft) -> _Draft | None:
        """A comparison the wrong way round, or a wrong difference, carried through to the answer."""
        other = self.others.answer()
        if isinstance(self.target, LookupQuestion) or other is None:
            return None
        wrong = {}
        for index in range(len(self.facts), len(draft.moves)):
            claim = draft.moves[index].claim
            if isinstance(claim, OrderClaim | ComparisonClaim):
                claim = replace(claim, less=not claim.less)
            elif isinstance(claim, ChoiceClaim):
                claim = replace(claim, option=other)
            elif isinstance(claim, AgreementClaim):
                claim = replace(claim, same=not claim.same)
            elif isinstance(claim, SubtractionClaim):
                claim = replace(claim, result=other)
            elif isinstance(claim, YearsApartClaim):
                claim = replace(claim, years=other)
            draft.moves[index] = replace(draft.moves[index], claim=claim)
            wrong[index] = LocalFailure.CONSTRAINT_OR_COMPUTATION
        return replace(draft, answer=other, wrong=wrong, complete=False, correct=False)

    def _false_abstention(self, draft: _Draft) -> _Draft | None:
        """Stop with the claim that the passages do not tell what they do tell, and submit that."""
        kept = self.rng.randint(1, len(self.facts)) - 1
        fact = draft.moves[self.facts[kept]].claim
        assert isinstance(fact, FactClaim)
        if fact.phrase.path == (ALIAS,):
            return None
        moves = [*draft.moves[:kept], Move(MissingFactClaim(fact.phrase), premises=(0,))]
        wrong = {kept: LocalFailure.FALSE_COVERAGE}
        return replace(draft, moves=moves, answer="not determined", wrong=wrong, complete=False, correct=False)

    def _denied_then_dropped(self, draft: _Draft) -> _Draft | None:
        """Deny the fact the answer rests on, stop there, and submit something else."""
        fact = draft.moves[self.facts[-1]].claim
        other = self.others.answer()
        assert isinstance(fact, FactClaim)
        if other is None or len(self.facts) < 2 or fact.phrase.path == (ALIAS,):
            return None
        kept = self.facts[-1]
        moves = [*draft.moves[:kept], Move(DenialClaim(fact), premises=(0,))]
        return replace(
            draft,
            moves=moves,
            answer=other,
            wrong={kept: LocalFailure.OTHER},
            closed=False,
            complete=False,
            correct=False,
        )

    # Into words.

    def finish(self, draft: _Draft, plan: FailurePlan, seed: str) -> BrokenResponse:
        """Write the draft down and state the labels it must get."""
        idle = self.target.phrase if isinstance(self.target, LookupQuestion) and self.rng.random() < 0.3 else None
        steps = write_steps(draft.moves, seed, idle=idle)
        judged = []
        for step in steps:
            failure = next((draft.wrong[index] for index in step.moves if index in draft.wrong), None)
            sound = (failure is None) if step.moves else None
            judged.append(StepJudgment(bool(step.moves), sound, failure))
        answer = write_submitted_answer(draft.asked, draft.answer, self.rng)
        text = format_completion(Trace.of(*(step.text for step in steps)), answer)
        # An id that said how the response was made would tell every judge what to find.
        name = f"{self.item.instance.id}/{hash_rank(text)[:8]}"
        return BrokenResponse(
            Response.from_completion(name, self.item.instance.id, text, Source("world saboteur")),
            plan,
            tuple(judged),
            Verdict(not draft.wrong, draft.aligned, draft.closed, draft.complete, draft.correct),
        )


def _is_link(move: Move) -> bool:
    """Whether a move only says that two names are one person's."""
    return isinstance(move.claim, FactClaim) and move.claim.phrase.path == (ALIAS,)
