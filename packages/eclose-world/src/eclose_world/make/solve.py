"""Reliable responses: a question answered from the words of the passages, every link stated."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from eclose.values.response import Trace
from eclose_world.language.claims import (
    Claim,
    ClaimlessStep,
    ComparisonClaim,
    FactClaim,
    SameValueClaim,
    SubtractionClaim,
    SuperlativeClaim,
    ValueOrderClaim,
    YearsApartClaim,
)
from eclose_world.language.names import is_person_name
from eclose_world.language.phrases import RelationPhrase
from eclose_world.language.questions import YES, ComparisonQuestion, LookupQuestion, SameValueQuestion, Target
from eclose_world.language.steps import TraceStepWriter
from eclose_world.language.values import ValueKind, draw_surface_form, extract_year
from eclose_world.oracle.evidence import EvidenceFacts, ValueDerivation, value_sort_key

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class SolutionMove:
    """One step to be written: a claim, the passages and the earlier moves it rests on."""

    claim: Claim
    passages: tuple[int, ...] = ()
    premises: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Solution:
    """The moves that lead to an answer, and the answer in canonical form."""

    moves: tuple[SolutionMove, ...]
    answer: str
    support: frozenset[int]


def solve_question(target: Target, evidence: EvidenceFacts) -> Solution | None:
    """Return the solution of a question, None unless it has exactly one answer."""
    answers = evidence.find_answers(target)
    if len(answers) != 1:
        return None
    (derivation,) = answers
    support = derivation.support
    moves = [
        SolutionMove(
            FactClaim(RelationPhrase(hop.subject, (hop.relation,)), hop.value),
            # One passage of the minimal support is cited per fact.
            tuple(index for index in hop.passages if index in support)[:1],
        )
        for hop in derivation.hops
    ]
    # Both sides of a comparison may share a fact.
    moves = list(dict.fromkeys(moves))
    all_moves = tuple(range(len(moves)))
    for claim in _conclusions(target, derivation, evidence):
        # A conclusion rests on all facts: the writer recognises it by its premises.
        moves.append(SolutionMove(claim, premises=all_moves))
    return Solution(tuple(moves), derivation.value, support)


def _conclusions(target: Target, derivation: ValueDerivation, evidence: EvidenceFacts) -> list[Claim]:
    if isinstance(target, LookupQuestion):
        # A conclusion from a single fact would repeat it.
        return [FactClaim(target.phrase, derivation.value)] if len(derivation.hops) > 1 else []
    first, second = target.phrases()
    first_value, second_value = evidence.derive(first)[0].value, evidence.derive(second)[0].value
    if isinstance(target, ComparisonQuestion):
        return _conclude_choice(target, derivation, first_value, second_value)
    if isinstance(target, SameValueQuestion):
        return [SameValueClaim(target.first, target.second, target.relation, same=derivation.value == YES)]
    years = sorted((str(extract_year(first_value)), str(extract_year(second_value))))
    return [SubtractionClaim(years[1], years[0], derivation.value), YearsApartClaim(first, second, derivation.value)]


def _conclude_choice(
    target: ComparisonQuestion, derivation: ValueDerivation, first_value: str, second_value: str
) -> list[Claim]:
    less = value_sort_key(first_value) < value_sort_key(second_value)
    first, second = target.phrases()
    if target.path:
        # The dates were stated of the people, so these are compared and not their works.
        owners = [hop.subject for hop in derivation.hops if hop.relation is target.attribute]
        if len(owners) == 2:
            first, second = (RelationPhrase(owner, (target.attribute,)) for owner in owners)
    return [
        ValueOrderClaim(first_value, second_value, less),
        ComparisonClaim(first, second, less),
        SuperlativeClaim(derivation.value, target.kind, target.path, target.attribute, target.least),
    ]


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step and the indices of the moves it states; no moves for a step without a claim."""

    text: str
    moves: tuple[int, ...]


def write_moves_as_steps(
    moves: Sequence[SolutionMove], seed: str, *, idle: RelationPhrase | None = None
) -> list[WrittenStep]:
    """Write the moves as steps; equal seeds give equal words around changed values.

    Now and then two facts share a line; ``idle`` is a phrase for a first line that plans or restates.
    """
    rng = Random(seed)
    writer = TraceStepWriter(rng)
    steps = (
        [WrittenStep(writer.write_idle_step(rng.choice((ClaimlessStep.PLAN, ClaimlessStep.RESTATEMENT)), idle), ())]
        if idle
        else []
    )
    for index, move in enumerate(moves):
        passage = move.passages[0] if move.passages else None
        text = writer.write_step(move.claim, passage, conclusion=bool(move.premises))
        # Drawn for every step, needed or not, so the stream stays aligned between views.
        joins = rng.random() < 0.08
        if joins and steps and steps[-1].moves and move.passages and moves[index - 1].passages:
            previous = steps.pop()
            steps.append(WrittenStep(writer.join_steps((previous.text, text)), (*previous.moves, index)))
        else:
            steps.append(WrittenStep(text, (index,)))
    return steps


def write_solution_trace(moves: Sequence[SolutionMove], seed: str) -> Trace:
    """Return the trace that states the moves."""
    return Trace.of(*(step.text for step in write_moves_as_steps(moves, seed)))


def verbalize_answer(target: Target, answer: str, rng: Random) -> str:
    """Return the answer in a surface form; text that is no value of the asked kind (an abstention) is unchanged."""
    kind = target.phrase.path[-1].kind if isinstance(target, LookupQuestion) and target.phrase.path else ValueKind.NAME
    return draw_surface_form(kind, answer, rng) if answer[:1].isdigit() else answer


def vary_answer_wording(target: Target, answer: str, rng: Random) -> str:
    """Return the answer as a model may put it: surname first, with a full stop, with a capital, or unchanged."""
    written, roll = verbalize_answer(target, answer, rng), rng.random()
    # Only people are inverted; titles and places keep their form.
    if roll < 0.4 and is_person_name(written):
        first_names, surname = written.rsplit(maxsplit=1)
        return f"{surname}, {first_names}"
    if roll < 0.6:
        return f"{written}."
    return written[:1].upper() + written[1:] if roll < 0.8 else written
