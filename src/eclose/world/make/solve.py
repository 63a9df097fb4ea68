"""A reliable response: the question answered from the passages' words, every link stated.

What the world's own model says before anybody sabotages it. Uses the grammar to write and the evidence to reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from eclose.core.response import Trace
from eclose.world.language.claims import (
    AgreementClaim,
    ChoiceClaim,
    Claim,
    ComparisonClaim,
    FactClaim,
    IdleStep,
    OrderClaim,
    SubtractionClaim,
    YearsApartClaim,
)
from eclose.world.language.names import is_person
from eclose.world.language.phrases import Phrase
from eclose.world.language.questions import YES, AgreementQuestion, ChoiceQuestion, LookupQuestion, Target
from eclose.world.language.steps import StepWriter
from eclose.world.language.values import ValueKind, read_year, write_value
from eclose.world.oracle.evidence import Derivation, EvidenceFacts, sort_key

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Move:
    """One step to be written: a claim, the passages it rests on, the earlier moves it rests on."""

    claim: Claim
    passages: tuple[int, ...] = ()
    premises: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Solution:
    """The moves that lead to an answer, and the answer in canonical form."""

    moves: tuple[Move, ...]
    answer: str
    support: frozenset[int]


def solve(target: Target, evidence: EvidenceFacts) -> Solution | None:
    """The solution of a question with exactly one answer; None otherwise."""
    answers = evidence.answers(target)
    if len(answers) != 1:
        return None
    (way,) = answers
    support = way.support
    moves = [
        Move(
            FactClaim(Phrase(hop.subject, (hop.relation,)), hop.value),
            tuple(place for place in hop.passages if place in support)[:1],
        )
        for hop in way.hops
    ]
    moves = list(dict.fromkeys(moves))
    everything = tuple(range(len(moves)))
    for claim in _conclusions(target, way, evidence):
        moves.append(Move(claim, premises=everything))
    return Solution(tuple(moves), way.value, support)


def _conclusions(target: Target, way: Derivation, evidence: EvidenceFacts) -> list[Claim]:
    """What is to be said once the facts are on the table."""
    if isinstance(target, LookupQuestion):
        # One hop needs no conclusion: it would only be said twice.
        return [FactClaim(target.phrase, way.value)] if len(way.hops) > 1 else []
    left, right = target.phrases()
    one, two = evidence.ways(left)[0].value, evidence.ways(right)[0].value
    if isinstance(target, ChoiceQuestion):
        return _choice(target, way, one, two)
    if isinstance(target, AgreementQuestion):
        return [AgreementClaim(target.left, target.right, target.relation, same=way.value == YES)]
    years = sorted((str(read_year(one)), str(read_year(two))))
    return [SubtractionClaim(years[1], years[0], way.value), YearsApartClaim(left, right, way.value)]


def _choice(target: ChoiceQuestion, way: Derivation, one: str, two: str) -> list[Claim]:
    less = sort_key(one) < sort_key(two)
    first, second = target.phrases()
    if target.path:
        # Compare the people, whose dates were stated, rather than the works.
        owners = [hop.subject for hop in way.hops if hop.relation is target.attribute]
        if len(owners) == 2:
            first, second = (Phrase(owner, (target.attribute,)) for owner in owners)
    return [
        OrderClaim(one, two, less),
        ComparisonClaim(first, second, less),
        ChoiceClaim(way.value, target.kind, target.path, target.attribute, target.least),
    ]


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step and the moves it tells; none for a step that asserts nothing."""

    text: str
    moves: tuple[int, ...]


def write_steps(moves: Sequence[Move], seed: str, *, idle: Phrase | None = None) -> list[WrittenStep]:
    """The moves in words; equal seeds give equal words around changed values.

    Now and then two facts share a line; ``idle`` adds a line that plans or restates to begin with.
    """
    rng = Random(seed)
    writer = StepWriter(rng)
    steps = [WrittenStep(writer.idle(rng.choice((IdleStep.PLAN, IdleStep.RESTATEMENT)), idle), ())] if idle else []
    for index, move in enumerate(moves):
        passage = move.passages[0] if move.passages else None
        text = writer.step(move.claim, passage, conclusion=bool(move.premises))
        joins = rng.random() < 0.08
        if joins and steps and steps[-1].moves and move.passages and moves[index - 1].passages:
            before = steps.pop()
            steps.append(WrittenStep(writer.joined((before.text, text)), (*before.moves, index)))
        else:
            steps.append(WrittenStep(text, (index,)))
    return steps


def write_trace(moves: Sequence[Move], seed: str) -> Trace:
    """The trace that tells the moves."""
    return Trace.of(*(step.text for step in write_steps(moves, seed)))


def write_answer(target: Target, answer: str, rng: Random) -> str:
    """The answer as it is submitted; what is no value of the asked kind (an abstention) stays as it is."""
    kind = target.phrase.path[-1].kind if isinstance(target, LookupQuestion) and target.phrase.path else ValueKind.NAME
    return write_value(kind, answer, rng) if answer[:1].isdigit() else answer


def write_submitted_answer(target: Target, answer: str, rng: Random) -> str:
    """The answer as a model may put it: a person surname first, a closing full stop, a capital, or just as it is."""
    written, roll = write_answer(target, answer, rng), rng.random()
    if roll < 0.4 and is_person(written):
        given, surname = written.rsplit(maxsplit=1)
        return f"{surname}, {given}"
    if roll < 0.6:
        return f"{written}."
    return written[:1].upper() + written[1:] if roll < 0.8 else written
