"""Defective constructor replies, made on purpose to measure the checks of a pipeline.

Each function plants one named defect in a correct candidate and returns None where the case does not admit it. A defect
of an evidence edit is planted in every variation of a reply, since a good one beside it would hide it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eclose.values.answers import match_answer
from eclose_train.construction.questions import ConstructionRole
from eclose_world.faulty.bad_edits import EDIT_DEFECTS, ReplyBreaker
from eclose_world.language import relations as rel
from eclose_world.language.claims import FactClaim
from eclose_world.language.phrases import RelationPhrase
from eclose_world.language.questions import (
    LookupQuestion,
    SameValueQuestion,
    Target,
    YearSpanQuestion,
    parse_question,
    verbalize_question,
)
from eclose_world.language.values import parse_answer_value
from eclose_world.make import drafts
from eclose_world.make.families import draw_replacement_values, find_near_questions
from eclose_world.make.solve import SolutionMove, solve_question, verbalize_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eclose_world.oracle.evidence import EvidenceFact


def make_bad_reply(
    role: ConstructionRole, kind: str, case: drafts.ParsedConstructorInput, candidate: Any
) -> drafts.ReplyFields | None:
    """Return the reply for a candidate with a defect, None where it cannot be planted."""
    return REPLY_DEFECTS[role][kind](case, candidate)


# Defects of the original response.


def _wrong_value(case: drafts.ParsedConstructorInput, target: Target, answer: str) -> str | None:
    values: list[str] = []
    derivations = case.evidence.find_answers(target)
    if isinstance(target, LookupQuestion) and derivations:
        values = draw_replacement_values(case.passages, derivations[0].hops[-1], case.make_rng("other answer"))
    canonical = derivations[0].value if derivations else parse_answer_value(answer)
    return drafts.pick_wrong_answer(target, canonical, values)


def _wrong_answer(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    other = _wrong_value(case, draft.target, draft.answer)
    return drafts.write_target_response_reply(case, replace(draft, answer=other)) if other else None


def _decoupled_answer(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    other = _wrong_value(case, draft.target, draft.answer)
    return (
        drafts.write_target_response_reply(case, replace(draft, moves=drafts.change_conclusion(draft.moves, other)))
        if other
        else None
    )


def _bystanders(case: drafts.ParsedConstructorInput) -> Iterator[EvidenceFact]:
    """Yield facts that only passages outside the support state."""
    inside = {
        statement.relation: statement
        for index in case.support
        for _, statement in drafts.list_fact_statements(case, index)
    }
    for index in range(len(case.passages)):
        if index in case.support:
            continue
        for hop, statement in drafts.list_fact_statements(case, index):
            subject = case.evidence.readings[index].name
            # A namesake in the support could state the same fact.
            in_support = any(case.evidence.readings[other].name == subject for other in case.support)
            if not in_support and inside.get(statement.relation) != statement:
                yield hop


def _unsound_step(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    for hop in _bystanders(case):
        for value in draw_replacement_values(case.passages, hop, case.make_rng("unsound")):
            if not any(fact.value == value for fact in case.evidence.find_facts(hop.subject, hop.relation)):
                moves = drafts.insert_solution_move(draft.moves, 0, _stating(hop, value))
                return drafts.write_target_response_reply(case, replace(draft, moves=_within(moves, case.support)))
    return None


def _stating(hop: EvidenceFact, value: str) -> SolutionMove:
    return SolutionMove(FactClaim(RelationPhrase(hop.subject, (hop.relation,)), value), hop.passages)


def _skipped_step(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    facts = [move for move in draft.moves if not move.premises]
    return drafts.write_target_response_reply(case, replace(draft, moves=tuple(facts[:-1]))) if len(facts) > 1 else None


def _outside_step(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    hop = next(_bystanders(case), None)
    if hop is None:
        return None
    moves = drafts.insert_solution_move(draft.moves, 0, _stating(hop, hop.value))
    return drafts.write_target_response_reply(case, replace(draft, moves=_within(moves, case.support)))


def _other_target(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    """Let the steps answer another question, with the correct answer submitted."""
    for target in find_near_questions(case.target, case.passages):
        solution = solve_question(target, case.evidence)
        if solution is not None and case.derivation is not None and solution.answer != case.derivation.value:
            return drafts.write_target_response_reply(case, replace(draft, moves=_within(solution.moves, case.support)))
    return None


def _within(moves: Sequence[SolutionMove], support: tuple[int, ...]) -> tuple[SolutionMove, ...]:
    """Attribute every move to the support, as a constructor does that hides its other sources."""
    return tuple(
        replace(move, passages=tuple(index for index in move.passages if index in support) or support[:1])
        if move.passages
        else move
        for move in moves
    )


# Defects of the question edit.


def _same_question(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    """Ask the old question in other words, with another answer."""
    # Some draws repeat the wording.
    for draw in range(12):
        question = verbalize_question(case.target, case.make_rng("same", draw))
        if question != case.question and parse_question(question) is not None:
            return drafts.write_question_edit_reply(case, replace(draft, question=question))
    return None


def _answer_named(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    if not isinstance(draft.target, LookupQuestion):
        return None
    hint = f"{draft.question.removesuffix('?')}, {draft.answer}?"
    return drafts.write_question_edit_reply(case, replace(draft, question=hint))


def _same_answer(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    """Ask another question with the old answer, or submit the old answer to a question with another."""
    for target in find_near_questions(case.target, case.passages):
        solution = solve_question(target, case.evidence)
        if solution is not None and case.derivation is not None and solution.answer == case.derivation.value:
            same_answer_draft = drafts.draft_response(
                case, target, verbalize_question(target, case.make_rng("question"))
            )
            if same_answer_draft is not None:
                return drafts.write_question_edit_reply(case, replace(same_answer_draft, answer=case.response.answer))
    return drafts.write_question_edit_reply(case, replace(draft, answer=case.response.answer))


def _old_trace(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    solution = solve_question(case.target, case.evidence)
    if solution is None:
        return None
    fields = drafts.write_question_edit_reply(case, replace(draft, moves=_within(solution.moves, draft.support)))
    texts = case.response.trace.texts
    if len(fields["steps"]) == len(texts):
        fields["steps"] = [step | {"text": text} for step, text in zip(fields["steps"], texts, strict=True)]
    return fields


def _single_step(case: drafts.ParsedConstructorInput, _: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    for index in (*case.support, *range(len(case.passages))):
        for hop, _statement in drafts.list_fact_statements(case, index):
            target = LookupQuestion(RelationPhrase(hop.subject, (hop.relation,), case.evidence.readings[index].kind))
            question = verbalize_question(target, case.make_rng("single"))
            single = drafts.draft_response(case, target, question) if parse_question(question) is not None else None
            if (
                single is not None
                and len(single.support) == 1
                and not match_answer(single.answer, case.response.answer)
            ):
                return drafts.write_question_edit_reply(case, replace(single, support=_padded(case, single.support)))
    return None


def _unwarranted(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    other = _wrong_value(case, draft.target, draft.answer)
    if other is None or match_answer(other, case.response.answer):
        return None
    return drafts.write_question_edit_reply(
        case, replace(draft, moves=drafts.change_conclusion(draft.moves, other), answer=other)
    )


def _ambiguous(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> drafts.ReplyFields | None:
    """Ask a question with two answers, or one with a pronoun for its subject."""
    for target in _open_targets(case):
        derivations = [
            derivation
            for derivation in case.evidence.find_answers(target)
            if not match_answer(derivation.value, case.response.answer)
        ]
        question = verbalize_question(target, case.make_rng("open"))
        if len(derivations) > 1 and parse_question(question) is not None:
            facts = [_stating(hop, hop.value) for hop in derivations[0].hops]
            answer = verbalize_answer(target, derivations[0].value, case.make_rng("open answer"))
            draft = drafts.DraftedResponse(
                target, question, tuple(facts), answer, _padded(case, derivations[0].support)
            )
            return drafts.write_question_edit_reply(case, draft)
    target = draft.target
    if isinstance(target, LookupQuestion) and isinstance(target.phrase.base, str) and target.phrase.path:
        # Fallback: a pronoun without a referent.
        vague: Target = LookupQuestion(replace(target.phrase, base=_pronoun(target.phrase), kind=None))
    elif isinstance(target, SameValueQuestion | YearSpanQuestion) and isinstance(target.first.base, str):
        vague = replace(target, first=replace(target.first, base=_pronoun(target.first), kind=None))
    else:
        return None
    return drafts.write_question_edit_reply(
        case, replace(draft, question=verbalize_question(vague, case.make_rng("open")))
    )


def _open_targets(case: drafts.ParsedConstructorInput) -> Iterator[Target]:
    """Yield questions that may have several answers: about namesakes, or for one of several values."""
    yield from find_near_questions(case.target, case.passages)
    for reading in case.evidence.readings:
        relations = dict.fromkeys(stated.relation for stated in reading.statements if stated.subject is None)
        yield from (
            LookupQuestion(RelationPhrase(reading.name, (relation,), reading.kind))
            for relation in relations
            if relation is not rel.ALIAS
        )


def _padded(case: drafts.ParsedConstructorInput, support: Iterable[int]) -> tuple[int, ...]:
    """Return the support with one unneeded passage added where it has only one, since a gate requires two."""
    indices = sorted(support)
    # Indices of passages that are not needed.
    others = (index for index in range(len(case.passages)) if index not in indices)
    return tuple(indices) if len(indices) > 1 else (*indices, next(others))


def _pronoun(phrase: RelationPhrase) -> str:
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
"""Makers of bad replies, by role and kind of defect."""
