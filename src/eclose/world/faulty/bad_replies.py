"""Defects on purpose: what the world's constructor made, spoilt in one named way, for checks to be held against.

Each is a small function of what was built right; None where a case does not admit it. A defect of an edit of the
evidence is planted in every variation of a reply, or a good one beside it would hide it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eclose.core.answers import match_answer
from eclose.protocol.construction import ConstructionRole
from eclose.world.faulty.bad_edits import EDIT_DEFECTS, ReplyBreaker
from eclose.world.language import relations as rel
from eclose.world.language.claims import FactClaim
from eclose.world.language.phrases import Phrase
from eclose.world.language.questions import (
    AgreementQuestion,
    LookupQuestion,
    Target,
    YearSpanQuestion,
    read_question,
    write_question,
)
from eclose.world.language.values import read_answer_value
from eclose.world.make.drafts import (
    ConstructionCase,
    DraftAnswer,
    ReplyFields,
    change_ending,
    draft_solution,
    insert_move,
    list_statements,
    pick_wrong_answer,
    write_question_reply,
    write_target_reply,
)
from eclose.world.make.families import draw_new_values, find_near_targets
from eclose.world.make.solve import Move, solve, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eclose.world.oracle.evidence import EvidenceFact


def make_bad_reply(role: ConstructionRole, kind: str, case: ConstructionCase, made: Any) -> ReplyFields | None:
    """What was made, with a defect; None where it cannot be planted here."""
    return REPLY_DEFECTS[role][kind](case, made)


# In the original response.


def _other(case: ConstructionCase, target: Target, answer: str) -> str | None:
    """A wrong answer to a question."""
    values: list[str] = []
    ways = case.evidence.answers(target)
    if isinstance(target, LookupQuestion) and ways:
        values = draw_new_values(case.passages, ways[0].hops[-1], case.rng("other answer"))
    canonical = ways[0].value if ways else read_answer_value(answer)
    return pick_wrong_answer(target, canonical, values)


def _wrong_answer(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    other = _other(case, draft.target, draft.answer)
    return write_target_reply(case, replace(draft, answer=other)) if other else None


def _decoupled_answer(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    """The steps come to something else than the answer."""
    other = _other(case, draft.target, draft.answer)
    return write_target_reply(case, replace(draft, moves=change_ending(draft.moves, other))) if other else None


def _bystanders(case: ConstructionCase) -> Iterator[EvidenceFact]:
    """Facts that only passages outside the support tell."""
    inside = {one.relation: one for place in case.support for _, one in list_statements(case, place)}
    for place in range(len(case.passages)):
        if place in case.support:
            continue
        for hop, one in list_statements(case, place):
            about = case.evidence.readings[place].name
            elsewhere = any(case.evidence.readings[other].name == about for other in case.support)
            if not elsewhere and inside.get(one.relation) != one:
                yield hop


def _unsound_step(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    for hop in _bystanders(case):
        for value in draw_new_values(case.passages, hop, case.rng("unsound")):
            if not any(fact.value == value for fact in case.evidence.facts(hop.subject, hop.relation)):
                moves = insert_move(draft.moves, 0, _stating(hop, value))
                return write_target_reply(case, replace(draft, moves=_within(moves, case.support)))
    return None


def _stating(hop: EvidenceFact, value: str) -> Move:
    return Move(FactClaim(Phrase(hop.subject, (hop.relation,)), value), hop.passages)


def _skipped_step(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    """The last fact and everything concluded from it are not said."""
    facts = [move for move in draft.moves if not move.premises]
    return write_target_reply(case, replace(draft, moves=tuple(facts[:-1]))) if len(facts) > 1 else None


def _outside_step(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    hop = next(_bystanders(case), None)
    if hop is None:
        return None
    moves = insert_move(draft.moves, 0, _stating(hop, hop.value))
    return write_target_reply(case, replace(draft, moves=_within(moves, case.support)))


def _other_target(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    """The steps answer a question nobody asked; the answer is the right one."""
    for target in find_near_targets(case.target, case.passages):
        solution = solve(target, case.evidence)
        if solution is not None and case.way is not None and solution.answer != case.way.value:
            return write_target_reply(case, replace(draft, moves=_within(solution.moves, case.support)))
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


def _same_question(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    """The old question in other words, with another answer."""
    for draw in range(12):
        question = write_question(case.target, case.rng("same", draw))
        if question != case.question and read_question(question) is not None:
            return write_question_reply(case, replace(draft, question=question))
    return None


def _answer_named(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    if not isinstance(draft.target, LookupQuestion):
        return None
    hint = f"{draft.question.removesuffix('?')}, {draft.answer}?"
    return write_question_reply(case, replace(draft, question=hint))


def _same_answer(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    """Another question that has the old answer; or the old answer to one that has another."""
    for target in find_near_targets(case.target, case.passages):
        solution = solve(target, case.evidence)
        if solution is not None and case.way is not None and solution.answer == case.way.value:
            found = draft_solution(case, target, write_question(target, case.rng("question")))
            if found is not None:
                return write_question_reply(case, replace(found, answer=case.told.answer))
    return write_question_reply(case, replace(draft, answer=case.told.answer))


def _old_trace(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    solution = solve(case.target, case.evidence)
    if solution is None:
        return None
    said = write_question_reply(case, replace(draft, moves=_within(solution.moves, draft.support)))
    texts = case.told.trace.texts
    if len(said["steps"]) == len(texts):
        said["steps"] = [step | {"text": text} for step, text in zip(said["steps"], texts, strict=True)]
    return said


def _single_step(case: ConstructionCase, _: DraftAnswer) -> ReplyFields | None:
    """A question that one statement of a passage answers."""
    for place in (*case.support, *range(len(case.passages))):
        for hop, _one in list_statements(case, place):
            target = LookupQuestion(Phrase(hop.subject, (hop.relation,), case.evidence.readings[place].kind))
            question = write_question(target, case.rng("single"))
            found = draft_solution(case, target, question) if read_question(question) is not None else None
            if found is not None and len(found.support) == 1 and not match_answer(found.answer, case.told.answer):
                return write_question_reply(case, replace(found, support=_padded(case, found.support)))
    return None


def _unwarranted(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    other = _other(case, draft.target, draft.answer)
    if other is None or match_answer(other, case.told.answer):
        return None
    return write_question_reply(case, replace(draft, moves=change_ending(draft.moves, other), answer=other))


def _ambiguous(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields | None:
    """A question with two answers; or one that does not say whom it means."""
    for target in _open_targets(case):
        ways = [way for way in case.evidence.answers(target) if not match_answer(way.value, case.told.answer)]
        question = write_question(target, case.rng("open"))
        if len(ways) > 1 and read_question(question) is not None:
            facts = [_stating(hop, hop.value) for hop in ways[0].hops]
            answer = write_answer(target, ways[0].value, case.rng("open answer"))
            draft = DraftAnswer(target, question, tuple(facts), answer, _padded(case, ways[0].support))
            return write_question_reply(case, draft)
    target = draft.target
    if isinstance(target, LookupQuestion) and isinstance(target.phrase.base, str) and target.phrase.path:
        vague: Target = LookupQuestion(replace(target.phrase, base=_pronoun(target.phrase), kind=None))
    elif isinstance(target, AgreementQuestion | YearSpanQuestion) and isinstance(target.left.base, str):
        vague = replace(target, left=replace(target.left, base=_pronoun(target.left), kind=None))
    else:
        return None
    return write_question_reply(case, replace(draft, question=write_question(vague, case.rng("open"))))


def _open_targets(case: ConstructionCase) -> Iterator[Target]:
    """Questions that may have several answers: about namesakes, and for one of several."""
    yield from find_near_targets(case.target, case.passages)
    for reading in case.evidence.readings:
        relations = dict.fromkeys(one.relation for one in reading.statements if one.subject is None)
        yield from (
            LookupQuestion(Phrase(reading.name, (one,), reading.kind)) for one in relations if one is not rel.ALIAS
        )


def _padded(case: ConstructionCase, support: Iterable[int]) -> tuple[int, ...]:
    """The support with a passage more that nobody needs, where a gate would ask for two."""
    needed = sorted(support)
    others = (place for place in range(len(case.passages)) if place not in needed)
    return tuple(needed) if len(needed) > 1 else (*needed, next(others))


def _pronoun(phrase: Phrase) -> str:
    return "he" if phrase.start_type == rel.PERSON else "it"


REPLY_DEFECTS: Mapping[ConstructionRole, Mapping[str, ReplyBreaker]] = {
    ConstructionRole.CONSTRUCT_TARGET: {
        "wrong_answer": _wrong_answer,
        "decoupled_answer": _decoupled_answer,
        "unsound_step": _unsound_step,
        "skipped_step": _skipped_step,
        "outside_step": _outside_step,
        "other_target": _other_target,
    },
    ConstructionRole.CONSTRUCT_EVIDENCE: EDIT_DEFECTS,
    ConstructionRole.CONSTRUCT_QUESTION: {
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
