"""Defects of evidence edits, planted on purpose in constructor replies (see ``bad_replies``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from eclose.values.answers import match_answer
from eclose.values.family import TextReplacement
from eclose.values.response import Trace
from eclose_train.families.edits import EditedPassage, edit_passage
from eclose_world.language.names import is_person_name
from eclose_world.language.passages import parse_passage_facts
from eclose_world.language.phrases import FactTriple as Stated
from eclose_world.language.phrases import RelationPhrase, capitalise_sentence, verbalize_fact
from eclose_world.language.questions import LookupQuestion
from eclose_world.language.steps import parse_trace_claims
from eclose_world.language.values import ValueKind, parse_answer_value
from eclose_world.make import drafts
from eclose_world.make.families import draw_replacement_values
from eclose_world.make.solve import SolutionMove, solve_question
from eclose_world.oracle.edit_validity import list_surface_forms
from eclose_world.oracle.evidence import parse_evidence_facts
from eclose_world.oracle.family_conditions import is_answer_warranted, label_warranted_steps, replace_passage

ReplyBreaker: TypeAlias = Callable[[drafts.ParsedConstructorInput, Any], drafts.ReplyFields | None]


def _in_every_variation(
    breaker: Callable[[drafts.ParsedConstructorInput, drafts.EvidenceVariation], drafts.ReplyFields | None],
) -> ReplyBreaker:
    """Return a breaker that plants the same defect in every variation that admits it."""

    def break_all(
        case: drafts.ParsedConstructorInput, variations: list[drafts.EvidenceVariation]
    ) -> drafts.ReplyFields | None:
        broken = [fields for fields in (breaker(case, variation) for variation in variations) if fields is not None]
        return drafts.write_evidence_edits_reply(case, []) | {"variations": broken} if broken else None

    return break_all


def _write_variation(
    case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation, **other: Any
) -> drafts.ReplyFields:
    return variation.write_reply(f"{case.seed}/steps", **other)


def _unrelated_edits(case: drafts.ParsedConstructorInput, index: int) -> Iterator[drafts.PassageValueChange]:
    """Yield rewordings of facts in a passage that the answer does not rest on."""
    needed = {(hop.subject, hop.relation) for hop in (case.derivation.hops if case.derivation else ())}
    for hop, statement in drafts.list_fact_statements(case, index):
        if (hop.subject, hop.relation) in needed:
            continue
        for value in draw_replacement_values(case.passages, hop, case.make_rng("other edit"))[:2]:
            if (rewording := drafts.replace_statement_value(case.passages[index], index, statement, value)) is not None:
                yield rewording


def _write_rewording(
    case: drafts.ParsedConstructorInput,
    variation: drafts.EvidenceVariation,
    rewording: drafts.PassageValueChange,
    **other: Any,
) -> drafts.ReplyFields:
    return _write_variation(case, replace(variation, rewording=rewording), **other)


def _outside_support(
    case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation
) -> drafts.ReplyFields | None:
    outside = (index for index in range(len(case.passages)) if index not in case.support)
    rewording = next((edit for index in outside for edit in _unrelated_edits(case, index)), None)
    return _write_rewording(case, variation, rewording) if rewording else None


def _without_effect(case: drafts.ParsedConstructorInput) -> drafts.PassageValueChange | None:
    """Return a rewording in the support after which the old answer still follows."""
    for index in case.support:
        for rewording in _unrelated_edits(case, index):
            after = replace_passage(case.passages, index, rewording.passage)
            if is_answer_warranted(case.question, after, case.response.answer):
                return rewording
    return None


def _answer_unchanged(
    case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation
) -> drafts.ReplyFields | None:
    rewording = _without_effect(case)
    return _write_rewording(case, variation, rewording) if rewording else None


def _second_claim(
    case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation
) -> drafts.ReplyFields | None:
    first, passage = variation.rewording, case.passages[variation.rewording.passage_index]
    for second in _unrelated_edits(case, first.passage_index):
        pairs = tuple({**dict(first.pairs), **dict(second.pairs)}.items())
        both = drafts.apply_rewording(passage, first.passage_index, first.claim, pairs, first.keep)
        # The second edit must add a replacement of its own.
        if both is not None and len(pairs) > len(first.pairs):
            return _write_rewording(case, variation, both)
    return None


def _stale_step(case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation) -> drafts.ReplyFields | None:
    """Keep an old value in a step after the first affected one, where it no longer holds."""
    old = solve_question(case.target, case.evidence)
    if old is None or len(old.moves) != len(variation.moves):
        return None
    # The first written step states the edited fact itself; a stale value can only stand in a later one.
    written = [index for index in range(len(variation.moves)) if index not in variation.earlier_steps]
    for index in written[1:]:
        claim = old.moves[index].claim
        moves = (*variation.moves[:index], replace(variation.moves[index], claim=claim), *variation.moves[index + 1 :])
        if claim != variation.moves[index].claim and not _all_hold(
            case, fields := _write_variation(case, replace(variation, moves=moves))
        ):
            return fields
    return None


def _all_hold(case: drafts.ParsedConstructorInput, fields: drafts.ReplyFields) -> bool:
    """Return whether the written steps are sound after their edit."""
    passages = case.passages
    pairs = [TextReplacement(pair["old"], pair["new"]) for pair in fields["replacements"]]
    edited = edit_passage(passages[fields["passage"]], pairs, fields["keep"])
    assert isinstance(edited, EditedPassage)
    texts = [*case.response.trace.texts[: fields["first"] - 1], *(step["text"] for step in fields["steps"])]
    return all(
        label_warranted_steps(
            case.question, replace_passage(passages, fields["passage"], edited.passage), Trace.of(*texts)
        )
    )


def _first_too_early(
    case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation
) -> drafts.ReplyFields | None:
    if variation.first == 1:
        return None
    trace = case.response.trace
    before = parse_trace_claims(type(trace).of(*trace.texts[: variation.first - 2])) or []
    claims = (parse_trace_claims(type(trace).of(*trace.texts[: variation.first - 1])) or [])[len(before) :]
    if len(claims) != 1:
        return None
    move_index = next(
        (move_index for move_index, number in variation.earlier_steps.items() if number == variation.first - 1), None
    )
    passages = variation.moves[move_index].passages if move_index is not None else ()
    # Some draws repeat the wording of the step.
    for draw in range(8):
        again = drafts.write_numbered_steps([SolutionMove(claims[0], passages)], f"{case.seed}/again/{draw}")[0]
        if again["text"] != trace.texts[variation.first - 2]:
            fields = _write_variation(case, variation)
            return fields | {"first": variation.first - 1, "steps": [again, *fields["steps"]]}
    return None


def _first_too_late(
    case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation
) -> drafts.ReplyFields | None:
    fields = _write_variation(case, variation)
    if variation.first == len(case.response.trace.texts) or len(fields["steps"]) == 1:
        return None
    return fields | {"first": variation.first + 1, "steps": fields["steps"][1:]}


def _old_answer(case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation) -> drafts.ReplyFields | None:
    return _write_variation(case, variation, answer=case.response.answer)


def _held_before(case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation) -> drafts.ReplyFields | None:
    """Submit the old answer in another spelling, after an edit that leaves it correct."""
    rewording, spelling = _without_effect(case), _respelled(case)
    return _write_rewording(case, variation, rewording, answer=spelling) if rewording and spelling else None


def _respelled(case: drafts.ParsedConstructorInput) -> str | None:
    """Return the old answer in a spelling that word matching does not recognise, None where there is none."""
    answer, target = case.response.answer, case.target
    if is_person_name(answer):
        first_names, surname = answer.rsplit(maxsplit=1)
        return f"{surname}, {first_names}"
    if not isinstance(target, LookupQuestion) or not target.phrase.path:
        return None
    kind = target.phrase.path[-1].kind
    if kind in (ValueKind.NAME, ValueKind.YEAR):
        return None
    forms = list_surface_forms(kind, parse_answer_value(answer))
    return next((form for form in forms if not match_answer(form, answer)), None)


def _two_answers(case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation) -> drafts.ReplyFields | None:
    """Replace a filler sentence by one that gives the fact a second value."""
    hop, index = variation.hop, variation.rewording.passage_index
    passage = case.passages[index]
    triple = Stated(RelationPhrase(hop.subject), hop.relation, variation.value)
    new = capitalise_sentence(verbalize_fact(triple, case.make_rng("second"), subject=hop.subject))
    # The opening sentence stays: it tells what kind of entity the passage is about.
    for sentence in drafts.split_passage_sentences(passage.text)[1:]:
        if hop.value in sentence:
            continue
        rewording = drafts.apply_rewording(passage, index, sentence, ((sentence.removesuffix("."), new),))
        if rewording is None or parse_passage_facts(passage.title, rewording.passage.text).unread:
            continue
        after = parse_evidence_facts(replace_passage(case.passages, index, rewording.passage))
        if len(after.find_answers(case.target)) > 1:
            return _write_rewording(case, variation, rewording)
    return None


EDIT_DEFECTS: Mapping[str, ReplyBreaker] = {
    "outside_support": _in_every_variation(_outside_support),
    "answer_unchanged": _in_every_variation(_answer_unchanged),
    "second_claim": _in_every_variation(_second_claim),
    "stale_step": _in_every_variation(_stale_step),
    "first_too_early": _in_every_variation(_first_too_early),
    "first_too_late": _in_every_variation(_first_too_late),
    "old_answer": _in_every_variation(_old_answer),
    "held_before": _in_every_variation(_held_before),
    "two_answers": _in_every_variation(_two_answers),
}
