"""Parts of families that the world's constructor drafts: written steps, reworded passages, edits and replies.

Everything is read from the material shown to a constructor. As in its replies, passages are named by index from 0 and
steps by number from 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.values.answers import find_exact_spans, is_whole_word_span
from eclose.values.family import TextReplacement
from eclose.values.instance import Passage
from eclose_train.families.edits import EditedPassage, edit_passage
from eclose_world.language.claims import (
    Claim,
    ComparisonClaim,
    FactClaim,
    SameValueClaim,
    SubtractionClaim,
    SuperlativeClaim,
    ValueOrderClaim,
    YearsApartClaim,
)
from eclose_world.language.passages import parse_passage_facts
from eclose_world.language.phrases import RelationPhrase, capitalise_sentence
from eclose_world.language.questions import (
    NO,
    YES,
    ComparisonQuestion,
    LookupQuestion,
    SameValueQuestion,
    Target,
    YearSpanQuestion,
)
from eclose_world.language.relations import ALIAS
from eclose_world.language.steps import TraceStepWriter, parse_trace_claims
from eclose_world.make.solve import Solution, SolutionMove, solve_question, verbalize_answer
from eclose_world.oracle.edit_validity import list_surface_forms
from eclose_world.oracle.evidence import EvidenceFact, EvidenceFacts, ValueDerivation, parse_evidence_facts
from eclose_world.oracle.family_conditions import ReasonedResponse, label_warranted_steps, replace_passage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose_world.language.scene_facts import FactStatement

ReplyFields: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class ParsedConstructorInput:
    """The material shown to a constructor, as read by the grammar."""

    question: str
    target: Target
    passages: tuple[Passage, ...]
    support: tuple[int, ...]
    gold: ReasonedResponse | None
    """The original response; None before there is one."""
    seed: str
    """Seed of every choice of words and values."""

    @cached_property
    def evidence(self) -> EvidenceFacts:
        """The facts of the passages."""
        return parse_evidence_facts(self.passages)

    @cached_property
    def derivation(self) -> ValueDerivation | None:
        """The facts that lead to the answer; None unless there is exactly one answer."""
        answers = self.evidence.find_answers(self.target)
        return answers[0] if len(answers) == 1 else None

    @property
    def response(self) -> ReasonedResponse:
        """The original response, where the case has one."""
        assert self.gold is not None
        return self.gold

    def make_rng(self, *parts: object) -> Random:
        """Return a random stream of its own for these parts, so choices do not affect each other."""
        # A string seed is hashed with SHA-512 by Random, so streams do not depend on PYTHONHASHSEED.
        return Random("/".join([self.seed, *map(str, parts)]))


@dataclass(frozen=True, slots=True)
class DraftedResponse:
    """A drafted response with the question that it answers."""

    target: Target
    question: str
    moves: tuple[SolutionMove, ...]
    answer: str
    support: tuple[int, ...]


# Steps.


def write_numbered_steps(
    moves: Sequence[SolutionMove], seed: str, earlier_steps: Mapping[int, int] | None = None, first: int = 1
) -> list[ReplyFields]:
    """Return the moves as numbered steps, starting at number ``first``.

    ``earlier_steps`` maps moves that earlier steps state to the numbers of these steps; such moves are not written
    again.
    """
    writer = TraceStepWriter(Random(seed))
    ids = dict(earlier_steps or {})
    steps: list[ReplyFields] = []
    for index, move in enumerate(moves):
        if index in ids:
            continue
        ids[index] = first + len(steps)
        premises = sorted({ids[premise] for premise in move.premises if premise in ids and premise != index})
        steps.append({"text": _write_move(writer, move), "passages": list(move.passages), "premises": premises})
    return steps


def _write_move(writer: TraceStepWriter, move: SolutionMove) -> str:
    """Return one claim as a sentence that does not mention passages."""
    return capitalise_sentence(
        writer.write_step(move.claim, conclusion=bool(move.premises)).removeprefix("The passages say that ")
    )


def insert_solution_move(moves: Sequence[SolutionMove], index: int, move: SolutionMove) -> tuple[SolutionMove, ...]:
    """Return the moves with one more at ``index``, premises renumbered."""
    moved = [
        replace(other, premises=tuple(premise + (premise >= index) for premise in other.premises)) for other in moves
    ]
    return (*moved[:index], move, *moved[index:])


def change_conclusion(moves: Sequence[SolutionMove], answer: str) -> tuple[SolutionMove, ...]:
    """Return the moves with another conclusion, or another last fact where there is no conclusion."""
    # Without a conclusion the last fact is the end.
    if not any(move.premises for move in moves):
        return (*moves[:-1], replace(moves[-1], claim=_change_claim(moves[-1].claim, answer)))
    return tuple(replace(move, claim=_change_claim(move.claim, answer)) if move.premises else move for move in moves)


def _change_claim(claim: Claim, answer: str) -> Claim:
    if isinstance(claim, FactClaim):
        return replace(claim, value=answer)
    if isinstance(claim, ValueOrderClaim | ComparisonClaim):
        return replace(claim, less=not claim.less)
    if isinstance(claim, SuperlativeClaim):
        return replace(claim, option=answer)
    if isinstance(claim, SameValueClaim):
        return replace(claim, same=not claim.same)
    if isinstance(claim, SubtractionClaim):
        return replace(claim, result=answer)
    return replace(claim, years=answer) if isinstance(claim, YearsApartClaim) else claim


def pick_wrong_answer(target: Target, answer: str, values: Sequence[str]) -> str | None:
    """Return a wrong answer of the right type; ``values`` are candidates for a lookup question."""
    if isinstance(target, ComparisonQuestion):
        return next(option for option in target.options if option != answer)
    if isinstance(target, SameValueQuestion):
        return NO if answer == YES else YES
    if isinstance(target, YearSpanQuestion):
        # Any other number of years is wrong.
        return str(int(answer) + 3)
    return next((value for value in values if value != answer), None)


def draft_response(case: ParsedConstructorInput, target: Target, question: str) -> DraftedResponse | None:
    """Draft the response to a question, None unless it has exactly one answer."""
    solution = solve_question(target, case.evidence)
    if solution is None:
        return None
    answer = verbalize_answer(target, solution.answer, case.make_rng("answer", question))
    return DraftedResponse(target, question, solution.moves, answer, tuple(sorted(solution.support)))


# Rewording of passages.


@dataclass(frozen=True, slots=True)
class PassageValueChange:
    """Replaced words of a passage, and the passage that results."""

    passage_index: int
    claim: str
    pairs: tuple[tuple[str, str], ...]
    keep: tuple[str, ...]
    passage: Passage


def split_passage_sentences(text: str) -> list[str]:
    """Return the sentences of a passage."""
    return re.split(r"(?<=\.)\s+", text.strip())


def replace_statement_value(
    passage: Passage, index: int, statement: FactStatement, value: str
) -> PassageValueChange | None:
    """Give a statement another value wherever the passage states it; None where replacing words cannot do so."""
    kind = statement.relation.kind
    # Only forms that occur as whole words are replaced.
    form_pairs = zip(list_surface_forms(kind, statement.value), list_surface_forms(kind, value), strict=True)
    pairs = tuple({old: new for old, new in form_pairs if _occurs(passage.text, old)}.items())
    claims, keep = [], []
    for sentence in split_passage_sentences(passage.text):
        for part in sentence.removesuffix(".").split(", and "):
            # A part with the old words that states something else must be kept as it is.
            if not any(old in part for old, _ in pairs):
                continue
            if statement in parse_passage_facts(passage.title, f"{part}.").statements:
                claims.append(sentence)
            else:
                keep.append(part)
    return apply_rewording(passage, index, claims[0], pairs, tuple(keep)) if claims and pairs else None


def _occurs(text: str, part: str) -> bool:
    return any(is_whole_word_span(text, span) for span in find_exact_spans(text, part))


def apply_rewording(
    passage: Passage, index: int, claim: str, pairs: tuple[tuple[str, str], ...], keep: tuple[str, ...] = ()
) -> PassageValueChange | None:
    """Return the rewording with the edited passage, None where ``edit_passage`` refuses it."""
    edited = edit_passage(passage, [TextReplacement(*pair) for pair in pairs], keep)
    return PassageValueChange(index, claim, pairs, keep, edited.passage) if isinstance(edited, EditedPassage) else None


def list_fact_statements(case: ParsedConstructorInput, index: int) -> Iterator[tuple[EvidenceFact, FactStatement]]:
    """Yield the current single-valued facts of a passage, each with its statement."""
    reading = case.evidence.readings[index]
    for statement in reading.statements:
        # Aliases and relations with several values have no single value to change.
        if statement.era is None and statement.relation is not ALIAS and statement.relation.single:
            yield (
                EvidenceFact(statement.subject or reading.name, statement.relation, statement.value, (index,)),
                statement,
            )


def _find_fact_statement(case: ParsedConstructorInput, hop: EvidenceFact) -> FactStatement | None:
    statements = (statement for fact, statement in list_fact_statements(case, hop.passages[0]))
    subjects = {hop.subject, None}
    return next(
        (
            candidate
            for candidate in statements
            if candidate.relation is hop.relation and candidate.value == hop.value and candidate.subject in subjects
        ),
        None,
    )


# Edits of the evidence.


@dataclass(frozen=True, slots=True)
class EvidenceVariation:
    """A fact with another value, and the response that follows from it."""

    hop: EvidenceFact
    value: str
    rewording: PassageValueChange
    moves: tuple[SolutionMove, ...]
    earlier_steps: Mapping[int, int]
    """Moves that the unchanged steps state, with the numbers of these steps."""
    first: int
    """Number of the first affected step."""
    answer: str

    def write_reply(self, seed: str, **other: Any) -> ReplyFields:
        """Return the variation as the constructor's reply has it."""
        rewording = self.rewording
        fields: ReplyFields = {
            "plan": f"Change the {self.hop.relation} of {self.hop.subject}.",
            "passage": rewording.passage_index,
            "claim": rewording.claim,
            "replacements": [{"old": old, "new": new} for old, new in rewording.pairs],
            "keep": list(rewording.keep),
            "first": self.first,
            "steps": write_numbered_steps(self.moves, seed, self.earlier_steps, self.first),
            "answer": self.answer,
        }
        return fields | other


def make_evidence_variation(case: ParsedConstructorInput, hop: EvidenceFact, value: str) -> EvidenceVariation | None:
    """Give a fact another value and solve again; None unless one other answer follows."""
    index = hop.passages[0]
    statement = _find_fact_statement(case, hop)
    rewording = replace_statement_value(case.passages[index], index, statement, value) if statement else None
    if rewording is None:
        return None
    # The edited passage decides: the old solution is not adapted but solved again.
    after = replace_passage(case.passages, index, rewording.passage)
    solution = solve_question(case.target, parse_evidence_facts(after))
    # Another answer must follow, and only one.
    if solution is None or case.derivation is None or solution.answer == case.derivation.value:
        return None
    labels = label_warranted_steps(case.question, after, case.response.trace)
    # Appendix B.4: the trace switches at the first step that the edit makes unsound.
    first = next((number for number, sound in enumerate(labels, start=1) if sound is False), None)
    if first is None:
        return None
    answer = verbalize_answer(case.target, solution.answer, case.make_rng("answer"))
    return EvidenceVariation(
        hop=hop,
        value=value,
        rewording=rewording,
        moves=solution.moves,
        earlier_steps=_find_stated_moves(case, solution, first),
        first=first,
        answer=answer,
    )


def _find_stated_moves(case: ParsedConstructorInput, solution: Solution, first: int) -> dict[int, int]:
    """Map the moves already stated before step ``first`` to the numbers of these steps."""
    numbers: dict[Claim, int] = {}
    for number in range(1, first):
        before = case.response.trace.texts[:number]
        for claim in parse_trace_claims(type(case.response.trace).of(*before)) or ():
            # The first step that states a claim is the one to cite.
            numbers.setdefault(_drop_entity_type(claim), number)
    matched = ((index, numbers.get(_drop_entity_type(move.claim))) for index, move in enumerate(solution.moves))
    return {index: number for index, number in matched if number is not None}


def _drop_entity_type(claim: Claim) -> Claim:
    """Return the claim without the type stated with a name ("the film X" becomes "X")."""
    if isinstance(claim, FactClaim):
        return replace(claim, phrase=RelationPhrase(claim.phrase.base, claim.phrase.path))
    return claim


# Replies.


def write_drafted_steps(case: ParsedConstructorInput, draft: DraftedResponse) -> list[ReplyFields]:
    """Return the steps of a drafted response."""
    return write_numbered_steps(draft.moves, f"{case.seed}/steps")


def write_target_response_reply(case: ParsedConstructorInput, draft: DraftedResponse) -> ReplyFields:
    """Return the reply with the original response."""
    plan = "State the facts that lead to the answer, one by one, and conclude."
    return {"plan": plan, "steps": write_drafted_steps(case, draft), "answer": draft.answer, "complete": True}


def write_evidence_edits_reply(case: ParsedConstructorInput, variations: Sequence[EvidenceVariation]) -> ReplyFields:
    """Return the reply with edits of the evidence."""
    plan = "Change one fact that the answer rests on, and follow it to its end."
    return {
        "plan": plan,
        "variations": [variation.write_reply(f"{case.seed}/steps") for variation in variations],
        "complete": True,
    }


def write_question_edit_reply(case: ParsedConstructorInput, draft: DraftedResponse) -> ReplyFields:
    """Return the reply with the edit of the question."""
    return {
        "plan": "Ask for something else that the same passages tell.",
        "component": _describe_change(case.target, draft.target),
        "question": draft.question,
        "support": list(draft.support),
        "steps": write_drafted_steps(case, draft),
        "answer": draft.answer,
        "complete": True,
    }


def _describe_change(old: Target, new: Target) -> str:
    """Return in a few words which component of the question changed."""
    if isinstance(old, ComparisonQuestion) and isinstance(new, ComparisonQuestion):
        return "one of the two candidates" if old.options != new.options else "the direction of the comparison"
    # Lookups have one side, all other targets two.
    sides = [(target.phrase,) if isinstance(target, LookupQuestion) else target.phrases() for target in (old, new)]
    same = all(target.base == other.base for target, other in zip(*sides, strict=False))
    return "the relation asked for" if same else "the thing asked about"
