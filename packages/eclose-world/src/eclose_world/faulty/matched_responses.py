"""Reliable and failing responses that number of steps and conclusion words do not tell apart.

All responses to an item have the same shape: as many steps, a conclusion word at the start of the last step or nowhere,
an idle first step or none. Shorter arguments are filled up with sound facts beside the argument. Failures lie in the
meaning: the trace pursues a relation close to the asked one, concludes a fact on the way, or the answer is a value of a
near relation, the other option or a parent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from eclose.values.judgment import LocalFailure
from eclose.values.verdict import FailureClass
from eclose_world.faulty.broken_responses import (
    BrokenResponse,
    FailureImpact,
    FailurePlan,
    ResponseBreaker,
    ResponseDraft,
)
from eclose_world.language.claims import ClaimlessStep, FactClaim, SameValueClaim, SuperlativeClaim
from eclose_world.language.phrases import RelationPhrase
from eclose_world.language.questions import ComparisonQuestion, LookupQuestion, SameValueQuestion, Target
from eclose_world.language.relations import ALIAS, Relation
from eclose_world.language.steps import CONCLUSION_OPENERS, TraceStepWriter
from eclose_world.make.instances import WorldItem, make_world_items
from eclose_world.make.solve import Solution, SolutionMove, WrittenStep, solve_question

if TYPE_CHECKING:
    from collections.abc import Iterator

GAP_PLANS = tuple(
    FailurePlan(None, failure)
    for failure in (FailureClass.PATH_DEVIATION, FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING)
)
"""The three ways to be sound and yet insufficient."""
UNSOUND_PLANS = (
    FailurePlan(LocalFailure.UNSUPPORTED_CONTENT, None, FailureImpact.FATAL),
    FailurePlan(LocalFailure.CONSTRAINT_OR_COMPUTATION, None, FailureImpact.FATAL),
    FailurePlan(LocalFailure.INVALID_INFERENCE, None, FailureImpact.FATAL),
    FailurePlan(LocalFailure.UNSUPPORTED_CONTENT),
)
"""Ways to be unsound whose wrong step is worded like a right one."""


@dataclass(frozen=True, slots=True)
class TraceShape:
    """What all traces for an item have in common."""

    steps: int
    concluded: bool
    """Whether the last step opens with a conclusion word. No other step does."""
    idle: bool
    """Whether the first step claims nothing."""


@dataclass(frozen=True, slots=True)
class MatchedGroup:
    """An item with a reliable response, one of each failure of the gap, and an unsound one, all of one shape."""

    item: WorldItem
    shape: TraceShape
    responses: tuple[BrokenResponse, ...]


@dataclass
class MatchedFunnel:
    """Counts of items, of groups, and of items that do not admit every failure."""

    items: int = 0
    groups: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def make_matched_responses(
    profile: str, seed: int, groups: int, funnel: MatchedFunnel | None = None, start: int = 0
) -> Iterator[MatchedGroup]:
    """Yield so many groups; items that do not admit every failure are skipped and counted."""
    funnel = funnel if funnel is not None else MatchedFunnel()
    remaining = groups
    for item in make_world_items(profile, seed, start):
        if not remaining:
            return
        group = break_matched_responses(item, str(seed))
        funnel.items += 1
        if isinstance(group, MatchedGroup):
            funnel.groups += 1
            remaining -= 1
            yield group
        else:
            funnel.dropped[group] += 1


def break_matched_responses(item: WorldItem, seed: str) -> MatchedGroup | str:
    """Return responses of every kind to an item in one shape, or the failure that it does not admit."""
    drafter = _MatchedDrafter(item, seed)
    unsound_plans = Random(f"{drafter.seed}/unsound").sample(UNSOUND_PLANS, len(UNSOUND_PLANS))
    responses = []
    for plans in ((FailurePlan(),), *((plan,) for plan in GAP_PLANS), unsound_plans):
        candidates = (drafter.break_response(plan) for plan in plans)
        response = next((response for response in candidates if response is not None), None)
        if response is None:
            return "locally_unsound" if plans is unsound_plans else str(plans[0].broken)
        responses.append(response)
    return MatchedGroup(item, drafter.shape, tuple(responses))


def break_matched_response(item: WorldItem, plan: FailurePlan, seed: str) -> BrokenResponse | None:
    """Break the response to an item in the shape of all its responses; None where the item does not admit it."""
    return _MatchedDrafter(item, seed).break_response(plan)


class _MatchedDrafter:
    """Drafts and writes the responses to one item."""

    def __init__(self, item: WorldItem, seed: str) -> None:
        self.item = item
        self.seed = f"{seed}/{item.seed}"
        self.facts = [move for move in item.solution.moves if move.passages]
        self.conclusions = [move for move in item.solution.moves if move.premises]
        self.shape = self._draw_shape()

    def _draw_shape(self) -> TraceShape:
        """Draw the shape of all responses, whatever their failure."""
        rng = Random(f"{self.seed}/shape")
        for concluded in rng.sample((True, False), 2):
            drafts = [self.draft(plan, concluded=concluded) for plan in (FailurePlan(), *GAP_PLANS)]
            # A reversed choice needs its conclusion, so an item may not admit every failure without one.
            if all(drafts):
                break
        idle = rng.random() < 0.3
        # At random longer than the longest argument, so that every kind is filled up at times.
        steps = max(len(draft.moves) for draft in drafts if draft) + idle + rng.choice((0, 0, 1, 2))
        return TraceShape(steps, concluded, idle)

    def break_response(self, plan: FailurePlan) -> BrokenResponse | None:
        """Return the response that fails as planned in the shape of all; None where the item does not admit it."""
        draft = self.draft(plan, concluded=self.shape.concluded)
        if draft is None or len(draft.moves) + self.shape.idle > self.shape.steps:
            return None
        return self._write(draft, plan)

    def _make_breaker(self, plan: FailurePlan, purpose: str) -> ResponseBreaker:
        # A stream of its own for every plan: a draft does not depend on which others are made.
        return ResponseBreaker(self.item, Random(f"{self.seed}/{plan.local}/{plan.broken}/{plan.impact}/{purpose}"))

    def draft(self, plan: FailurePlan, *, concluded: bool) -> ResponseDraft | None:
        """Return the argument without filling; its last move concludes exactly where ``concluded`` is set."""
        if plan.broken is not None and plan.local is not None:
            return None
        breaker = self._make_breaker(plan, f"draft {concluded}")
        if plan.broken is FailureClass.PATH_DEVIATION:
            return self._deviate(breaker, concluded=concluded)
        if plan.broken is FailureClass.INCOMPLETE_REASONING:
            return self._stop_short(breaker, concluded=concluded)
        if plan.local is not None:
            return self._fail_locally(breaker, plan, concluded=concluded)
        draft = ResponseDraft(
            [*self.facts, *(_pick_conclusions(self.facts, self.conclusions, breaker.rng) if concluded else ())],
            self.item.solution.answer,
            {},
            self.item.target,
        )
        if plan.broken is None:
            return draft
        wrong = self._pick_near_answer(breaker)
        return replace(draft, answer=wrong, closed=False, correct=False) if wrong else None

    def _list_near_solutions(self, breaker: ResponseBreaker) -> list[tuple[Target, Solution]]:
        """Return questions easily taken for the asked one, with their solutions, where these have another answer."""
        near = self.item.plot.near if self.item.plot else ()
        solutions = [(target, solve_question(target, breaker.evidence)) for target in near]
        return [
            (target, solution)
            for target, solution in solutions
            if solution and not breaker.evidence.same_entity(solution.answer, self.item.solution.answer)
        ]

    def _pick_near_answer(self, breaker: ResponseBreaker) -> str | None:
        """Draw a wrong answer: the value of a near relation or of a step on the way, else any other."""
        target, answer = self.item.target, self.item.solution.answer
        if not isinstance(target, LookupQuestion):
            return breaker.others.pick_wrong_answer()
        values = [solution.answer for _, solution in self._list_near_solutions(breaker)]
        last = target.phrase.path[-1]
        # A parent for a grandparent: a value on the way, where it is of the asked type.
        values += [
            move.claim.value
            for move in self.facts[:-1]
            if isinstance(move.claim, FactClaim) and last.object and move.claim.phrase.path[-1].object == last.object
        ]
        values = [value for value in values if not breaker.evidence.same_entity(value, answer)]
        return breaker.rng.choice(values) if values else breaker.others.pick_wrong_answer()

    def _deviate(self, breaker: ResponseBreaker, *, concluded: bool) -> ResponseDraft | None:
        """Answer a question that is easily taken for the asked one, soundly."""
        options = self._list_near_solutions(breaker)
        original = self.item.target
        # Without its conclusion, the reversed choice is an argument for the asked one.
        options = [option for option in options if concluded or not _is_reversed(option[0], original)]
        if not options:
            return None
        target, solution = breaker.rng.choice(options)
        facts = [move for move in solution.moves if move.passages]
        conclusions = [move for move in solution.moves if move.premises]
        reverse = _is_reversed(target, original)
        if concluded:
            facts += conclusions[-1:] if reverse else _pick_conclusions(facts, conclusions, breaker.rng)
        # A trace off the path closes on the target that its own end shows (appendix A.3.2).
        closed = isinstance(target, LookupQuestion) or isinstance(facts[-1].claim, SuperlativeClaim | SameValueClaim)
        draft = ResponseDraft(
            facts, solution.answer, {}, target, aligned=False, closed=closed, complete=reverse, correct=False
        )
        if breaker.rng.random() < 0.15:
            answer = self.item.solution.answer
            return replace(draft, answer=answer, answered=original, closed=False, correct=True)
        return draft

    def _stop_short(self, breaker: ResponseBreaker, *, concluded: bool) -> ResponseDraft | None:
        """Leave out a needed fact; conclude a fact on the way, and guess the answer, sometimes rightly."""
        options = self._list_beginnings(breaker)
        if not options:
            return None
        facts, conclusion = breaker.rng.choice(options)
        if concluded:
            restated = replace(facts[-1], passages=(), premises=(0,))
            facts = [*facts, conclusion if conclusion and breaker.rng.random() < 0.6 else restated]
        guess = self._pick_near_answer(breaker) if breaker.rng.random() < 0.6 else None
        return ResponseDraft(
            list(facts),
            guess or self.item.solution.answer,
            {},
            self.item.target,
            closed=False,
            complete=False,
            correct=guess is None,
        )

    def _list_beginnings(self, breaker: ResponseBreaker) -> list[tuple[list[SolutionMove], SolutionMove | None]]:
        """Return arguments without a fact that the answer needs, each with a conclusion of several relations if any."""
        target = self.item.target
        if isinstance(target, LookupQuestion):
            phrase = target.phrase
            beginnings = []
            for length in range(1, len(self.facts)):
                last = self.facts[length - 1].claim
                assert isinstance(last, FactClaim)
                prefix = replace(phrase, path=phrase.path[:length])
                conclusion = SolutionMove(FactClaim(prefix, last.value), premises=(0,)) if length > 1 else None
                beginnings.append((self.facts[:length], conclusion))
            # Twice: most traces miss only the last fact.
            return [*beginnings, *beginnings[-1:]]
        sides = [breaker.evidence.derive(phrase)[0] for phrase in target.phrases()]
        beginnings = []
        for phrase, side, other in zip(target.phrases(), sides, sides[::-1], strict=True):
            missing = other.hops[-1]
            facts = [move for move in self.facts if _states(move) != (missing.subject, missing.relation)]
            # A fact that both sides share cannot be left out of one.
            if missing not in side.hops and facts:
                conclusion = (
                    SolutionMove(FactClaim(phrase, side.value), premises=(0,)) if len(phrase.path) > 1 else None
                )
                beginnings.append((facts, conclusion))
        return beginnings

    def _fail_locally(self, breaker: ResponseBreaker, plan: FailurePlan, *, concluded: bool) -> ResponseDraft | None:
        draft = breaker.draft(plan)
        if draft is None:
            return None
        steps = [(move, draft.wrong.get(index)) for index, move in enumerate(draft.moves)]
        body = [step for step in steps if not step[0].premises]
        ends = [step for step in steps if step[0].premises]
        if len(body) > 1 and body[-1][1] and not body[-1][0].passages:
            # A fact beside the argument is not its last step.
            body[-2:] = body[:-3:-1]
        if ends and not any(failure for _, failure in ends):
            # The argument itself is right, so it ends as a reliable one does.
            ends = [(move, None) for move in _pick_conclusions(self.facts, self.conclusions, breaker.rng)]
        else:
            ends = ends[-1:]
        chosen = [*body, *(ends if concluded else ())]
        # At least one right fact: it is what filling may restate.
        right = any(move.passages and not failure for move, failure in body)
        if (concluded and not ends) or not right or not any(failure for _, failure in chosen):
            return None
        wrong = {index: failure for index, (_, failure) in enumerate(chosen) if failure}
        return replace(draft, moves=[move for move, _ in chosen], wrong=wrong)

    # Filling and writing.

    def _write(self, draft: ResponseDraft, plan: FailurePlan) -> BrokenResponse:
        shape = self.shape
        breaker = self._make_breaker(plan, "write")
        steps = [(move, draft.wrong.get(index)) for index, move in enumerate(draft.moves)]
        fillers = self._list_side_facts(draft, breaker)
        while len(steps) + shape.idle < shape.steps:
            sound = [move for move, failure in steps if move.passages and not failure]
            repeated = [move for move in sound if sound.count(move) == 1] or sound
            # Four of five are other facts of the passages while there are any, the rest restate a step.
            use_other = fillers and (not repeated or breaker.rng.random() < 0.8)
            move = fillers.pop(0) if use_other else breaker.rng.choice(repeated)
            # Never at the end: the last step shows what the trace pursues.
            steps.insert(breaker.rng.randrange(len(steps)), (move, None))
        moves = [move for move, _ in steps]
        filled = replace(
            draft, moves=moves, wrong={index: failure for index, (_, failure) in enumerate(steps) if failure}
        )
        return breaker.finish(filled, plan, self._write_steps(moves, breaker))

    def _list_side_facts(self, draft: ResponseDraft, breaker: ResponseBreaker) -> list[SolutionMove]:
        """Return facts of the passages that neither the asked question nor the answered one needs, in random order.

        Facts about the entities of the argument come first.
        """
        evidence = breaker.evidence
        needed = {*_list_relations(self.item.target), *_list_relations(draft.answered), ALIAS}
        for move in draft.moves:
            if isinstance(move.claim, FactClaim):
                needed.update(move.claim.phrase.path)
        named = {name for move in draft.moves if isinstance(move.claim, FactClaim)
                 for name in (move.claim.phrase.base, move.claim.value)}  # fmt: skip
        pairs = dict.fromkeys(
            (reading.name, statement.relation)
            for reading in evidence.readings
            for statement in reading.statements
            if statement.subject is None and statement.relation not in needed
        )
        facts = [
            SolutionMove(FactClaim(RelationPhrase(name, (relation,)), values[0].value), values[0].passages[:1])
            for name, relation in pairs
            if len(values := list(evidence.find_facts(name, relation))) == 1
        ]
        breaker.rng.shuffle(facts)
        return sorted(facts, key=lambda move: _states(move)[0] not in named)

    def _write_steps(self, moves: list[SolutionMove], breaker: ResponseBreaker) -> list[WrittenStep]:
        rng = breaker.rng
        writer = TraceStepWriter(rng)
        steps: list[WrittenStep] = []
        if self.shape.idle:
            target = self.item.target
            phrase = target.phrase if isinstance(target, LookupQuestion) else rng.choice(target.phrases())
            kind = rng.choice((ClaimlessStep.PLAN, ClaimlessStep.RESTATEMENT))
            steps.append(WrittenStep(writer.write_idle_step(kind, phrase), ()))
        for index, move in enumerate(moves):
            last = index == len(moves) - 1
            opener = rng.choice(CONCLUSION_OPENERS) if last and self.shape.concluded else None
            passage = move.passages[0] if move.passages else None
            steps.append(WrittenStep(writer.write_step(move.claim, passage, opener=opener), (index,)))
        return steps


def _pick_conclusions(facts: list[SolutionMove], conclusions: list[SolutionMove], rng: Random) -> list[SolutionMove]:
    """Draw the end of a trace: its conclusion, or the last fact once more, which establishes as much."""
    if not conclusions or rng.random() < 0.35:
        return [replace(facts[-1], passages=(), premises=(0,))]
    # The order of two bare values is no conclusion of its own.
    return conclusions[-1:] if rng.random() < 0.6 else conclusions[-2:] if len(conclusions) > 1 else conclusions


def _is_reversed(target: Target, original: Target) -> bool:
    """Return whether a choice differs from the asked one in its direction alone."""
    return isinstance(target, ComparisonQuestion) and replace(target, least=not target.least) == original


def _states(move: SolutionMove) -> tuple[str, Relation | None]:
    claim = move.claim
    assert isinstance(claim, FactClaim)
    return str(claim.phrase.base), claim.phrase.path[-1] if claim.phrase.path else None


def _list_relations(target: Target) -> tuple[Relation, ...]:
    if isinstance(target, LookupQuestion):
        return target.phrase.path
    if isinstance(target, ComparisonQuestion):
        return (*target.path, target.attribute)
    if isinstance(target, SameValueQuestion):
        return (*target.first.path, *target.second.path, target.relation)
    return (*target.first.path, *target.second.path)
