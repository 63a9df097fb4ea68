"""Defects on purpose: what the world's constructor made, spoilt in one named way, for checks to be held against.

Each is a small function of what was built right; None where a case does not admit it. A defect of an edit of the
evidence is planted in every variation of a reply, or a good one beside it would hide it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eclose.core.answers import match
from eclose.protocol.construction import Role
from eclose.world.faulty.bad_edits import EDIT_DEFECTS, Planter
from eclose.world.language import relations as rel
from eclose.world.language.claims import Fact
from eclose.world.language.phrases import Phrase
from eclose.world.language.questions import Agree, Lookup, Span, Target, read_question, write_question
from eclose.world.language.values import read_any
from eclose.world.make.drafts import (
    Case,
    Draft,
    Said,
    ended_otherwise,
    inserted,
    other_answer,
    question_reply,
    solved,
    statements,
    target_reply,
)
from eclose.world.make.families import near_targets, new_values
from eclose.world.make.solve import Move, solve, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eclose.world.oracle.evidence import Hop


def plant(role: Role, kind: str, case: Case, made: Any) -> Said | None:
    """What was made, with a defect; None where it cannot be planted here."""
    return DEFECTS[role][kind](case, made)


# In the original response.


def _other(case: Case, target: Target, answer: str) -> str | None:
    """A wrong answer to a question."""
    values: list[str] = []
    ways = case.evidence.answers(target)
    if isinstance(target, Lookup) and ways:
        values = new_values(case.passages, ways[0].hops[-1], case.rng("other answer"))
    canonical = ways[0].value if ways else read_any(answer)
    return other_answer(target, canonical, values)


def _wrong_answer(case: Case, draft: Draft) -> Said | None:
    other = _other(case, draft.target, draft.answer)
    return target_reply(case, replace(draft, answer=other)) if other else None


def _decoupled_answer(case: Case, draft: Draft) -> Said | None:
    """The steps come to something else than the answer."""
    other = _other(case, draft.target, draft.answer)
    return target_reply(case, replace(draft, moves=ended_otherwise(draft.moves, other))) if other else None


def _bystanders(case: Case) -> Iterator[Hop]:
    """Facts that only passages outside the support tell."""
    inside = {one.relation: one for place in case.support for _, one in statements(case, place)}
    for place in range(len(case.passages)):
        if place in case.support:
            continue
        for hop, one in statements(case, place):
            about = case.evidence.readings[place].name
            elsewhere = any(case.evidence.readings[other].name == about for other in case.support)
            if not elsewhere and inside.get(one.relation) != one:
                yield hop


def _unsound_step(case: Case, draft: Draft) -> Said | None:
    for hop in _bystanders(case):
        for value in new_values(case.passages, hop, case.rng("unsound")):
            if not any(fact.value == value for fact in case.evidence.facts(hop.subject, hop.relation)):
                moves = inserted(draft.moves, 0, _stating(hop, value))
                return target_reply(case, replace(draft, moves=_within(moves, case.support)))
    return None


def _stating(hop: Hop, value: str) -> Move:
    return Move(Fact(Phrase(hop.subject, (hop.relation,)), value), hop.passages)


def _skipped_step(case: Case, draft: Draft) -> Said | None:
    """The last fact and everything concluded from it are not said."""
    facts = [move for move in draft.moves if not move.premises]
    return target_reply(case, replace(draft, moves=tuple(facts[:-1]))) if len(facts) > 1 else None


def _outside_step(case: Case, draft: Draft) -> Said | None:
    hop = next(_bystanders(case), None)
    if hop is None:
        return None
    moves = inserted(draft.moves, 0, _stating(hop, hop.value))
    return target_reply(case, replace(draft, moves=_within(moves, case.support)))


def _other_target(case: Case, draft: Draft) -> Said | None:
    """The steps answer a question nobody asked; the answer is the right one."""
    for target in near_targets(case.target, case.passages):
        solution = solve(target, case.evidence)
        if solution is not None and case.way is not None and solution.answer != case.way.value:
            return target_reply(case, replace(draft, moves=_within(solution.moves, case.support)))
    return None


def _within(moves: Sequence[Move], support: tuple[int, ...]) -> tuple[Move, ...]:
    """Map every move to the support, as a constructor does that hides what it took from elsewhere."""
    return tuple(
        replace(move, passages=tuple(place for place in move.passages if place in support) or support[:1])
        if move.passages
        else move
        for move in moves
    )


# In the edit of the question.


def _same_question(case: Case, draft: Draft) -> Said | None:
    """The old question in other words, with another answer."""
    for draw in range(12):
        question = write_question(case.target, case.rng("same", draw))
        if question != case.question and read_question(question) is not None:
            return question_reply(case, replace(draft, question=question))
    return None


def _answer_named(case: Case, draft: Draft) -> Said | None:
    if not isinstance(draft.target, Lookup):
        return None
    hint = f"{draft.question.removesuffix('?')}, {draft.answer}?"
    return question_reply(case, replace(draft, question=hint))


def _same_answer(case: Case, draft: Draft) -> Said | None:
    """Another question that has the old answer; or the old answer to one that has another."""
    for target in near_targets(case.target, case.passages):
        solution = solve(target, case.evidence)
        if solution is not None and case.way is not None and solution.answer == case.way.value:
            found = solved(case, target, write_question(target, case.rng("question")))
            if found is not None:
                return question_reply(case, replace(found, answer=case.told.answer))
    return question_reply(case, replace(draft, answer=case.told.answer))


def _old_trace(case: Case, draft: Draft) -> Said | None:
    solution = solve(case.target, case.evidence)
    if solution is None:
        return None
    said = question_reply(case, replace(draft, moves=_within(solution.moves, draft.support)))
    texts = case.told.trace.texts
    if len(said["steps"]) == len(texts):
        said["steps"] = [step | {"text": text} for step, text in zip(said["steps"], texts, strict=True)]
    return said


def _single_step(case: Case, _: Draft) -> Said | None:
    """A question that one statement of a passage answers."""
    for place in (*case.support, *range(len(case.passages))):
        for hop, _one in statements(case, place):
            target = Lookup(Phrase(hop.subject, (hop.relation,), case.evidence.readings[place].kind))
            question = write_question(target, case.rng("single"))
            found = solved(case, target, question) if read_question(question) is not None else None
            if found is not None and len(found.support) == 1 and not match(found.answer, case.told.answer):
                return question_reply(case, replace(found, support=_padded(case, found.support)))
    return None


def _unwarranted(case: Case, draft: Draft) -> Said | None:
    other = _other(case, draft.target, draft.answer)
    if other is None or match(other, case.told.answer):
        return None
    return question_reply(case, replace(draft, moves=ended_otherwise(draft.moves, other), answer=other))


def _ambiguous(case: Case, draft: Draft) -> Said | None:
    """A question with two answers; or one that does not say whom it means."""
    for target in _open_targets(case):
        ways = [way for way in case.evidence.answers(target) if not match(way.value, case.told.answer)]
        question = write_question(target, case.rng("open"))
        if len(ways) > 1 and read_question(question) is not None:
            facts = [_stating(hop, hop.value) for hop in ways[0].hops]
            answer = write_answer(target, ways[0].value, case.rng("open answer"))
            draft = Draft(target, question, tuple(facts), answer, _padded(case, ways[0].support))
            return question_reply(case, draft)
    target = draft.target
    if isinstance(target, Lookup) and isinstance(target.phrase.base, str) and target.phrase.path:
        vague: Target = Lookup(replace(target.phrase, base=_pronoun(target.phrase), kind=None))
    elif isinstance(target, Agree | Span) and isinstance(target.left.base, str):
        vague = replace(target, left=replace(target.left, base=_pronoun(target.left), kind=None))
    else:
        return None
    return question_reply(case, replace(draft, question=write_question(vague, case.rng("open"))))


def _open_targets(case: Case) -> Iterator[Target]:
    """Questions that may have several answers: about namesakes, and for one of several."""
    yield from near_targets(case.target, case.passages)
    for reading in case.evidence.readings:
        relations = dict.fromkeys(one.relation for one in reading.statements if one.subject is None)
        yield from (Lookup(Phrase(reading.name, (one,), reading.kind)) for one in relations if one is not rel.ALIAS)


def _padded(case: Case, support: Iterable[int]) -> tuple[int, ...]:
    """The support with a passage more that nobody needs, where a gate would ask for two."""
    needed = sorted(support)
    others = (place for place in range(len(case.passages)) if place not in needed)
    return tuple(needed) if len(needed) > 1 else (*needed, next(others))


def _pronoun(phrase: Phrase) -> str:
    return "he" if phrase.start_type == rel.PERSON else "it"


DEFECTS: Mapping[Role, Mapping[str, Planter]] = {
    Role.CONSTRUCT_TARGET: {
        "wrong_answer": _wrong_answer,
        "decoupled_answer": _decoupled_answer,
        "unsound_step": _unsound_step,
        "skipped_step": _skipped_step,
        "outside_step": _outside_step,
        "other_target": _other_target,
    },
    Role.CONSTRUCT_EVIDENCE: EDIT_DEFECTS,
    Role.CONSTRUCT_QUESTION: {
        "same_question": _same_question,
        "answer_named": _answer_named,
        "same_answer": _same_answer,
        "old_trace": _old_trace,
        "single_step": _single_step,
        "unwarranted": _unwarranted,
        "ambiguous": _ambiguous,
    },
}
"""By the role whose reply they spoil."""
