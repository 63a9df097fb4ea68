"""Pieces of families in the making, as the world's constructor puts them together: told steps, reworded passages.

Everything here is read out of what a constructor is shown. Passages are named by their places and steps by their ids,
counted from 1, as replies name them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.core.edits import EditedPassage, Replacement, edit_passage
from eclose.core.instance import Passage
from eclose.core.text_match import find_verbatim, is_whole
from eclose.world.language.claims import (
    AgreementClaim,
    ChoiceClaim,
    Claim,
    ComparisonClaim,
    FactClaim,
    OrderClaim,
    SubtractionClaim,
    YearsApartClaim,
)
from eclose.world.language.passages import read_passage
from eclose.world.language.phrases import Phrase, capitalise
from eclose.world.language.questions import (
    NO,
    YES,
    AgreementQuestion,
    ChoiceQuestion,
    LookupQuestion,
    Target,
    YearSpanQuestion,
)
from eclose.world.language.relations import ALIAS
from eclose.world.language.steps import StepWriter
from eclose.world.make.solve import Move, Solution, solve, write_answer
from eclose.world.oracle.edit_effects import list_surface_forms
from eclose.world.oracle.evidence import Derivation, EvidenceFact, EvidenceFacts, read_evidence
from eclose.world.oracle.family_conditions import ReasonedAnswer, label_steps, replace_passage
from eclose.world.oracle.view_relations import read_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.world.language.facts import Statement

ReplyFields: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class ConstructionCase:
    """What a constructor was given, as it reads it."""

    question: str
    target: Target
    passages: tuple[Passage, ...]
    support: tuple[int, ...]
    gold: ReasonedAnswer | None
    """The response so far; None before there is one."""
    seed: str
    """For every choice of words and values."""

    @cached_property
    def evidence(self) -> EvidenceFacts:
        """What the passages say."""
        return read_evidence(self.passages)

    @cached_property
    def way(self) -> Derivation | None:
        """The facts that lead to the one answer; None where there is not one."""
        found = self.evidence.answers(self.target)
        return found[0] if len(found) == 1 else None

    @property
    def told(self) -> ReasonedAnswer:
        """The response so far."""
        assert self.gold is not None
        return self.gold

    def rng(self, *parts: object) -> Random:
        """A source of choices of its own."""
        return Random("/".join([self.seed, *map(str, parts)]))


@dataclass(frozen=True, slots=True)
class DraftAnswer:
    """A response in the making, with the question it answers."""

    target: Target
    question: str
    moves: tuple[Move, ...]
    answer: str
    support: tuple[int, ...]


# Steps.


def write_reply_steps(
    moves: Sequence[Move], seed: str, known: Mapping[int, int] | None = None, first: int = 1
) -> list[ReplyFields]:
    """The moves as steps from an id on. ``find_earlier_steps`` are moves that earlier steps told, with the ids of those."""
    writer = StepWriter(Random(seed))
    ids = dict(known or {})
    steps: list[ReplyFields] = []
    for place, move in enumerate(moves):
        if place in ids:
            continue
        ids[place] = first + len(steps)
        premises = sorted({ids[one] for one in move.premises if one in ids and one != place})
        steps.append({"text": _words(writer, move), "passages": list(move.passages), "premises": premises})
    return steps


def _words(writer: StepWriter, move: Move) -> str:
    """One claim in a sentence that does not speak of passages."""
    return capitalise(writer.step(move.claim, conclusion=bool(move.premises)).removeprefix("The passages say that "))


def insert_move(moves: Sequence[Move], place: int, move: Move) -> tuple[Move, ...]:
    """The moves with one more among them."""
    moved = [replace(one, premises=tuple(p + (p >= place) for p in one.premises)) for one in moves]
    return (*moved[:place], move, *moved[place:])


def change_ending(moves: Sequence[Move], answer: str) -> tuple[Move, ...]:
    """The moves with another end: what is concluded, or the last fact where nothing is."""
    if not any(move.premises for move in moves):
        return (*moves[:-1], replace(moves[-1], claim=_otherwise(moves[-1].claim, answer)))
    return tuple(replace(move, claim=_otherwise(move.claim, answer)) if move.premises else move for move in moves)


def _otherwise(claim: Claim, answer: str) -> Claim:
    if isinstance(claim, FactClaim):
        return replace(claim, value=answer)
    if isinstance(claim, OrderClaim | ComparisonClaim):
        return replace(claim, less=not claim.less)
    if isinstance(claim, ChoiceClaim):
        return replace(claim, option=answer)
    if isinstance(claim, AgreementClaim):
        return replace(claim, same=not claim.same)
    if isinstance(claim, SubtractionClaim):
        return replace(claim, result=answer)
    return replace(claim, years=answer) if isinstance(claim, YearsApartClaim) else claim


def pick_wrong_answer(target: Target, answer: str, values: Sequence[str]) -> str | None:
    """A wrong answer of the right sort; ``values`` are for questions that ask for one."""
    if isinstance(target, ChoiceQuestion):
        return next(option for option in target.options if option != answer)
    if isinstance(target, AgreementQuestion):
        return NO if answer == YES else YES
    if isinstance(target, YearSpanQuestion):
        return str(int(answer) + 3)
    return next((value for value in values if value != answer), None)


def draft_solution(case: ConstructionCase, target: Target, question: str) -> DraftAnswer | None:
    """The response to a question with one answer."""
    solution = solve(target, case.evidence)
    if solution is None:
        return None
    answer = write_answer(target, solution.answer, case.rng("answer", question))
    return DraftAnswer(target, question, solution.moves, answer, tuple(sorted(solution.support)))


# Words of a passage for others.


@dataclass(frozen=True, slots=True)
class Rewording:
    """Words of a passage that are exchanged, and the passage as it then is."""

    place: int
    claim: str
    pairs: tuple[tuple[str, str], ...]
    keep: tuple[str, ...]
    passage: Passage


def split_sentences(text: str) -> list[str]:
    """The sentences of a passage, as it is read."""
    return re.split(r"(?<=\.)\s+", text.strip())


def reword_statement(passage: Passage, place: int, statement: Statement, value: str) -> Rewording | None:
    """Give a statement another value wherever the passage tells it; None where words alone cannot do that."""
    kind = statement.relation.kind
    forms = zip(list_surface_forms(kind, statement.value), list_surface_forms(kind, value), strict=True)
    pairs = tuple({old: new for old, new in forms if _stands(passage.text, old)}.items())
    told, keep = [], []
    for sentence in split_sentences(passage.text):
        for part in sentence.removesuffix(".").split(", and "):
            if not any(old in part for old, _ in pairs):
                continue
            if statement in read_passage(passage.title, f"{part}.").statements:
                told.append(sentence)
            else:
                keep.append(part)
    return apply_rewording(passage, place, told[0], pairs, tuple(keep)) if told and pairs else None


def _stands(text: str, part: str) -> bool:
    return any(is_whole(text, place) for place in find_verbatim(text, part))


def apply_rewording(
    passage: Passage, place: int, claim: str, pairs: tuple[tuple[str, str], ...], keep: tuple[str, ...] = ()
) -> Rewording | None:
    """The exchange as code will make it; None where it would be refused."""
    edited = edit_passage(passage, [Replacement(*pair) for pair in pairs], keep)
    return Rewording(place, claim, pairs, keep, edited.passage) if isinstance(edited, EditedPassage) else None


def list_statements(case: ConstructionCase, place: int) -> Iterator[tuple[EvidenceFact, Statement]]:
    """What a passage says now that could be said otherwise, as facts of somebody."""
    reading = case.evidence.readings[place]
    for one in reading.statements:
        if one.era is None and one.relation is not ALIAS and one.relation.single:
            yield EvidenceFact(one.subject or reading.name, one.relation, one.value, (place,)), one


def find_statement(case: ConstructionCase, hop: EvidenceFact) -> Statement | None:
    """The statement of a fact, in the first passage that makes it."""
    found = (one for fact, one in list_statements(case, hop.passages[0]))
    whose = {hop.subject, None}
    return next((s for s in found if s.relation is hop.relation and s.value == hop.value and s.subject in whose), None)


# Edits of the evidence.


@dataclass(frozen=True, slots=True)
class EvidenceVariation:
    """A fact with another value, and the response that follows."""

    hop: EvidenceFact
    value: str
    rewording: Rewording
    moves: tuple[Move, ...]
    known: Mapping[int, int]
    """Moves that the kept steps tell, with their ids."""
    first: int
    """The id of the first affected step."""
    answer: str

    def reply(self, seed: str, **other: Any) -> ReplyFields:
        """As a constructor says it."""
        rewording = self.rewording
        said: ReplyFields = {
            "plan": f"Change the {self.hop.relation} of {self.hop.subject}.",
            "passage": rewording.place,
            "claim": rewording.claim,
            "replacements": [{"old": old, "new": new} for old, new in rewording.pairs],
            "keep": list(rewording.keep),
            "first": self.first,
            "steps": write_reply_steps(self.moves, seed, self.known, self.first),
            "answer": self.answer,
        }
        return said | other


def make_variation(case: ConstructionCase, hop: EvidenceFact, value: str) -> EvidenceVariation | None:
    """The fact with another value, and what follows from it; None where no single other answer does."""
    place = hop.passages[0]
    statement = find_statement(case, hop)
    rewording = reword_statement(case.passages[place], place, statement, value) if statement else None
    if rewording is None:
        return None
    after = replace_passage(case.passages, place, rewording.passage)
    solution = solve(case.target, read_evidence(after))
    if solution is None or case.way is None or solution.answer == case.way.value:
        return None
    held = label_steps(case.question, after, case.told.trace)
    first = next((number for number, sound in enumerate(held, start=1) if sound is False), None)
    if first is None:
        return None
    answer = write_answer(case.target, solution.answer, case.rng("answer"))
    return EvidenceVariation(
        hop, value, rewording, solution.moves, find_earlier_steps(case, solution, first), first, answer
    )


def find_earlier_steps(case: ConstructionCase, solution: Solution, first: int) -> dict[int, int]:
    """The moves that the steps before the first affected one tell already, and the ids of those steps."""
    told: dict[Claim, int] = {}
    for number in range(1, first):
        before = case.told.trace.texts[:number]
        for claim in read_trace(type(case.told.trace).of(*before)) or ():
            told.setdefault(drop_name_type(claim), number)
    found = ((place, told.get(drop_name_type(move.claim))) for place, move in enumerate(solution.moves))
    return {place: number for place, number in found if number is not None}


def drop_name_type(claim: Claim) -> Claim:
    """The claim without the type that may be said of a name."""
    if isinstance(claim, FactClaim):
        return replace(claim, phrase=Phrase(claim.phrase.base, claim.phrase.path))
    return claim


# Replies.


def write_draft_steps(case: ConstructionCase, draft: DraftAnswer) -> list[ReplyFields]:
    """The steps of a response."""
    return write_reply_steps(draft.moves, f"{case.seed}/steps")


def write_target_reply(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields:
    """The original response."""
    plan = "State the facts that lead to the answer, one by one, and conclude."
    return {"plan": plan, "steps": write_draft_steps(case, draft), "answer": draft.answer, "complete": True}


def write_variations_reply(case: ConstructionCase, made: Sequence[EvidenceVariation]) -> ReplyFields:
    """Edits of the evidence."""
    plan = "Change one fact that the answer rests on, and follow it to its end."
    return {"plan": plan, "variations": [one.reply(f"{case.seed}/steps") for one in made], "complete": True}


def write_question_reply(case: ConstructionCase, draft: DraftAnswer) -> ReplyFields:
    """The edit of the question."""
    return {
        "plan": "Ask for something else that the same passages tell.",
        "component": _component(case.target, draft.target),
        "question": draft.question,
        "support": list(draft.support),
        "steps": write_draft_steps(case, draft),
        "answer": draft.answer,
        "complete": True,
    }


def _component(old: Target, new: Target) -> str:
    """What was changed, in a few words."""
    if isinstance(old, ChoiceQuestion) and isinstance(new, ChoiceQuestion):
        return "one of the two candidates" if old.options != new.options else "the direction of the comparison"
    sides = [(one.phrase,) if isinstance(one, LookupQuestion) else one.phrases() for one in (old, new)]
    same = all(one.base == other.base for one, other in zip(*sides, strict=False))
    return "the relation asked for" if same else "the thing asked about"
