"""Defects of edits of the evidence, planted on purpose: see ``planting``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from eclose.core.answers import match_answer
from eclose.core.edits import EditedPassage, Replacement, edit_passage
from eclose.core.response import Trace
from eclose.world.language.names import is_person
from eclose.world.language.passages import read_passage
from eclose.world.language.phrases import FactTriple as Stated
from eclose.world.language.phrases import Phrase, capitalise, write_triple
from eclose.world.language.questions import LookupQuestion
from eclose.world.language.values import ValueKind, read_answer_value
from eclose.world.make.drafts import (
    ConstructionCase,
    EvidenceVariation,
    ReplyFields,
    Rewording,
    apply_rewording,
    list_statements,
    reword_statement,
    split_sentences,
    write_reply_steps,
    write_variations_reply,
)
from eclose.world.make.families import draw_new_values
from eclose.world.make.solve import Move, solve
from eclose.world.oracle.edit_effects import list_surface_forms
from eclose.world.oracle.evidence import read_evidence
from eclose.world.oracle.family_conditions import is_warranted, label_steps, replace_passage
from eclose.world.oracle.view_relations import read_trace

ReplyBreaker: TypeAlias = Callable[[ConstructionCase, Any], ReplyFields | None]


def _everywhere(planter: Callable[[ConstructionCase, EvidenceVariation], ReplyFields | None]) -> ReplyBreaker:
    """The same defect in every variation that admits it."""

    def planted(case: ConstructionCase, made: list[EvidenceVariation]) -> ReplyFields | None:
        broken = [one for one in (planter(case, variation) for variation in made) if one is not None]
        return write_variations_reply(case, []) | {"variations": broken} if broken else None

    return planted


def _with(case: ConstructionCase, made: EvidenceVariation, **other: Any) -> ReplyFields:
    return made.reply(f"{case.seed}/steps", **other)


def _other_edit(case: ConstructionCase, place: int) -> Iterator[Rewording]:
    """Another value for something a passage says that the answer does not rest on."""
    needed = {(hop.subject, hop.relation) for hop in (case.way.hops if case.way else ())}
    for hop, one in list_statements(case, place):
        if (hop.subject, hop.relation) in needed:
            continue
        for value in draw_new_values(case.passages, hop, case.rng("other edit"))[:2]:
            if (found := reword_statement(case.passages[place], place, one, value)) is not None:
                yield found


def _swapped(case: ConstructionCase, made: EvidenceVariation, rewording: Rewording, **other: Any) -> ReplyFields:
    return _with(case, replace(made, rewording=rewording), **other)


def _outside_support(case: ConstructionCase, made: EvidenceVariation) -> ReplyFields | None:
    outside = (place for place in range(len(case.passages)) if place not in case.support)
    found = next((one for place in outside for one in _other_edit(case, place)), None)
    return _swapped(case, made, found) if found else None


def _without_effect(case: ConstructionCase) -> Rewording | None:
    """An edit in the support after which the old answer still follows."""
    for place in case.support:
        for found in _other_edit(case, place):
            after = replace_passage(case.passages, place, found.passage)
            if is_warranted(case.question, after, case.told.answer):
                return found
    return None


def _answer_unchanged(case: ConstructionCase, made: EvidenceVariation) -> ReplyFields | None:
    found = _without_effect(case)
    return _swapped(case, made, found) if found else None


def _second_claim(case: ConstructionCase, made: EvidenceVariation) -> ReplyFields | None:
    first, passage = made.rewording, case.passages[made.rewording.place]
    for found in _other_edit(case, first.place):
        pairs = tuple({**dict(first.pairs), **dict(found.pairs)}.items())
        both = apply_rewording(passage, first.place, first.claim, pairs, first.keep)
        if both is not None and len(pairs) > len(first.pairs):
            return _swapped(case, made, both)
    return None


def _stale_step(case: ConstructionCase, made: EvidenceVariation) -> ReplyFields | None:
    """A step behind the first affected one still has the old value, which no longer holds."""
    old = solve(case.target, case.evidence)
    if old is None or len(old.moves) != len(made.moves):
        return None
    told = [place for place in range(len(made.moves)) if place not in made.known]
    for place in told[1:]:
        claim = old.moves[place].claim
        moves = (*made.moves[:place], replace(made.moves[place], claim=claim), *made.moves[place + 1 :])
        if claim != made.moves[place].claim and not _all_hold(case, said := _with(case, replace(made, moves=moves))):
            return said
    return None


def _all_hold(case: ConstructionCase, said: ReplyFields) -> bool:
    """Whether the steps that were written hold after the edit they go with."""
    passages = case.passages
    pairs = [Replacement(one["old"], one["new"]) for one in said["replacements"]]
    edited = edit_passage(passages[said["passage"]], pairs, said["keep"])
    assert isinstance(edited, EditedPassage)
    texts = [*case.told.trace.texts[: said["first"] - 1], *(step["text"] for step in said["steps"])]
    return all(label_steps(case.question, replace_passage(passages, said["passage"], edited.passage), Trace.of(*texts)))


def _first_too_early(case: ConstructionCase, made: EvidenceVariation) -> ReplyFields | None:
    """A step that need not change is told in other words."""
    if made.first == 1:
        return None
    trace = case.told.trace
    before = read_trace(type(trace).of(*trace.texts[: made.first - 2])) or []
    claims = (read_trace(type(trace).of(*trace.texts[: made.first - 1])) or [])[len(before) :]
    if len(claims) != 1:
        return None
    place = next((place for place, number in made.known.items() if number == made.first - 1), None)
    passages = made.moves[place].passages if place is not None else ()
    for draw in range(8):
        again = write_reply_steps([Move(claims[0], passages)], f"{case.seed}/again/{draw}")[0]
        if again["text"] != trace.texts[made.first - 2]:
            said = _with(case, made)
            return said | {"first": made.first - 1, "steps": [again, *said["steps"]]}
    return None


def _first_too_late(case: ConstructionCase, made: EvidenceVariation) -> ReplyFields | None:
    """The first affected step is kept as it was."""
    said = _with(case, made)
    if made.first == len(case.told.trace.texts) or len(said["steps"]) == 1:
        return None
    return said | {"first": made.first + 1, "steps": said["steps"][1:]}


def _old_answer(case: ConstructionCase, made: EvidenceVariation) -> ReplyFields | None:
    return _with(case, made, answer=case.told.answer)


def _held_before(case: ConstructionCase, made: EvidenceVariation) -> ReplyFields | None:
    """The old answer in another spelling, after an edit that leaves it right."""
    found, spelling = _without_effect(case), _respelled(case)
    return _swapped(case, made, found, answer=spelling) if found and spelling else None


def _respelled(case: ConstructionCase) -> str | None:
    """The old answer as a matcher of words would not know it."""
    answer, target = case.told.answer, case.target
    if is_person(answer):
        given, surname = answer.rsplit(maxsplit=1)
        return f"{surname}, {given}"
    if not isinstance(target, LookupQuestion) or not target.phrase.path:
        return None
    kind = target.phrase.path[-1].kind
    if kind in (ValueKind.NAME, ValueKind.YEAR):
        return None
    forms = list_surface_forms(kind, read_answer_value(answer))
    return next((form for form in forms if not match_answer(form, answer)), None)


def _two_answers(case: ConstructionCase, made: EvidenceVariation) -> ReplyFields | None:
    """A sentence that says nothing becomes one that gives the fact a second value."""
    hop, place = made.hop, made.rewording.place
    passage = case.passages[place]
    stated = Stated(Phrase(hop.subject), hop.relation, made.value)
    new = capitalise(write_triple(stated, case.rng("second"), subject=hop.subject))
    for sentence in split_sentences(passage.text)[1:]:
        if hop.value in sentence:
            continue
        found = apply_rewording(passage, place, sentence, ((sentence.removesuffix("."), new),))
        if found is None or read_passage(passage.title, found.passage.text).unread:
            continue
        after = read_evidence(replace_passage(case.passages, place, found.passage))
        if len(after.answers(case.target)) > 1:
            return _swapped(case, made, found)
    return None


EDIT_DEFECTS: Mapping[str, ReplyBreaker] = {
    "outside_support": _everywhere(_outside_support),
    "answer_unchanged": _everywhere(_answer_unchanged),
    "second_claim": _everywhere(_second_claim),
    "stale_step": _everywhere(_stale_step),
    "first_too_early": _everywhere(_first_too_early),
    "first_too_late": _everywhere(_first_too_late),
    "old_answer": _everywhere(_old_answer),
    "held_before": _everywhere(_held_before),
    "two_answers": _everywhere(_two_answers),
}
