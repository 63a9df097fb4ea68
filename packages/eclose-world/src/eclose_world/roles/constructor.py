"""The world's model as a constructor of families: it reads the material of any constructor, solves it, and writes.

Every candidate is checked by the oracle and the gates before it is offered; where nothing can be built, the reply says
so. With ``noise`` it plants defects at a known rate, one per call, so that the checks of a pipeline can be measured.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError
from eclose.prompts.material_json import render_material
from eclose.values.answers import contains_token_span, match_answer, normalize_answer
from eclose.values.identity import hash_sort_key
from eclose.values.response import Trace
from eclose_train.construction.questions import ConstructionRole
from eclose_world.faulty.bad_constructor_replies import REPLY_DEFECTS, make_bad_reply
from eclose_world.language import questions
from eclose_world.language import relations as rel
from eclose_world.language.phrases import PersonOfTwoDeeds
from eclose_world.make import drafts
from eclose_world.make.families import draw_replacement_values, find_near_questions
from eclose_world.make.solve import solve_question
from eclose_world.oracle import family_conditions as conditions
from eclose_world.oracle.evidence import parse_evidence_facts
from eclose_world.roles.verifier import make_oracle_passages, make_oracle_response, parse_request_material
from eclose_world.server.chat_requests import ScriptedReply
from eclose_world.server.faults import hash_to_unit_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose_world.oracle.evidence import EvidenceFact
    from eclose_world.server.chat_requests import ChatRequest, HandlerRegistry


def register_constructor_handlers(
    registry: HandlerRegistry, *, noise: float = 0.0, seed: int = 0, defect: str | None = None
) -> None:
    """Register the constructor's handlers.

    ``noise`` is the rate of replies with a defect; ``defect`` names one kind to plant wherever possible.
    """
    if not 0 <= noise <= 1:
        raise SettingError("the constructor's error rate must be between 0 and 1 (constructor_noise).")
    kinds = sorted(name for kinds in REPLY_DEFECTS.values() for name in kinds)
    if defect is not None and defect not in kinds:
        raise SettingError(f"unknown defect {defect!r}. Choose from: {', '.join(kinds)}.")
    for role in _BUILDERS:
        registry.register(role, partial(_answer, role, noise, seed, defect))


def _answer(role: ConstructionRole, noise: float, seed: int, defect: str | None, request: ChatRequest) -> ScriptedReply:
    material = parse_request_material(role, request)
    # An objection is part of the material, so a repeated attempt draws anew.
    draw = request.draw(seed)
    shown_json = render_material(material)
    target = questions.parse_question(material.question)
    if target is None:
        return ScriptedReply(_write_incomplete_reply(role, "The question cannot be read."))
    passages = make_oracle_passages(material.evidence)
    gold = make_oracle_response(material.steps, material.answer) if hasattr(material, "steps") else None
    case = drafts.ParsedConstructorInput(
        material.question, target, passages, material.support, gold, hash_sort_key(*draw, role, shown_json)
    )
    candidate = _BUILDERS[role](case, material)
    if isinstance(candidate, str):
        return ScriptedReply(_write_incomplete_reply(role, candidate))
    kinds = [defect] if defect is not None and defect in REPLY_DEFECTS[role] else []
    if defect is None and hash_to_unit_interval("noise", *draw, role, shown_json) < noise:
        # One defect per reply: the first kind that the candidate admits.
        kinds = list(REPLY_DEFECTS[role])
        case.make_rng("defect").shuffle(kinds)
    for kind in kinds:
        if (bad_reply := make_bad_reply(role, kind, case, candidate)) is not None:
            return ScriptedReply(bad_reply)
    return ScriptedReply(_WRITERS[role](case, candidate))


def _write_incomplete_reply(role: ConstructionRole, reason: str) -> drafts.ReplyFields:
    if role is ConstructionRole.CONSTRUCT_EVIDENCE:
        return {"plan": reason, "variations": [], "complete": False}
    fields: drafts.ReplyFields = {"plan": reason, "steps": [], "answer": "", "complete": False}
    return (
        fields
        if role is ConstructionRole.CONSTRUCT_TARGET
        else fields | {"component": "", "question": "", "support": []}
    )


# The original response.


def _build_target(case: drafts.ParsedConstructorInput, material: Any) -> drafts.DraftedResponse | str:
    if not conditions.is_answer_warranted(case.question, case.passages, material.reference):
        return "The passages do not lead to the reference."
    # Solved on the support alone, so that every step is grounded in it (R_E of B.3).
    needed = tuple(case.passages[index] for index in case.support)
    solution = solve_question(case.target, parse_evidence_facts(needed))
    if solution is None:
        return "The passages in the support lead to no single answer."
    moves = tuple(
        replace(move, passages=tuple(case.support[index] for index in move.passages)) for move in solution.moves
    )
    draft = drafts.DraftedResponse(case.target, case.question, moves, material.reference, case.support)
    labels, _ = conditions.check_target_response(case.question, case.passages, case.support, _reason_draft(case, draft))
    objection = next(labels.objections(ConstructionRole.VERIFY_TARGET), None)
    return draft if objection is None else f"What can be written does not hold: {objection}."


def _reason_draft(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> conditions.ReasonedResponse:
    return conditions.ReasonedResponse(
        Trace.of(*(step["text"] for step in drafts.write_drafted_steps(case, draft))), draft.answer
    )


# Edits of the evidence.


def _build_variations(case: drafts.ParsedConstructorInput, material: Any) -> list[drafts.EvidenceVariation] | str:
    if case.derivation is None:
        return "The passages do not lead to a single answer."
    variations: list[drafts.EvidenceVariation] = []
    for hop in _from_both_ends(list(dict.fromkeys(case.derivation.hops))):
        if len(hop.passages) != 1 or hop.passages[0] not in case.support or hop.relation is rel.ALIAS:
            # Facts in two passages, outside the support, or aliases cannot be edited alone.
            continue
        if (variation := _find_variation(case, hop)) is not None:
            variations.append(variation)
        if len(variations) >= material.wanted:
            break
    return variations or "No fact can be given another value that leads to one other answer."


def _from_both_ends(hops: list[EvidenceFact]) -> list[EvidenceFact]:
    """Return the first, the last, the second and so on, so that variations begin at different steps."""
    order: list[EvidenceFact] = []
    while hops:
        order.append(hops.pop(-(len(order) % 2)))
    return order


def _find_variation(case: drafts.ParsedConstructorInput, hop: EvidenceFact) -> drafts.EvidenceVariation | None:
    rng = case.make_rng("values", hop.subject, hop.relation)
    for value in draw_replacement_values(case.passages, hop, rng):
        variation = drafts.make_evidence_variation(case, hop, value)
        if variation is not None and _passes_evidence_checks(case, variation):
            return variation
    return None


def _passes_evidence_checks(case: drafts.ParsedConstructorInput, variation: drafts.EvidenceVariation) -> bool:
    """Return whether all of appendix B.4 holds, the checks in code included."""
    gold, rewording = case.response, variation.rewording
    # Code refuses answers that its matcher cannot tell apart.
    if match_answer(variation.answer, gold.answer):
        return False
    screened = conditions.screen_evidence_edit(
        case.question, case.passages, rewording.passage_index, rewording.passage, gold.answer, variation.answer
    )
    if any(screened.objections(ConstructionRole.SCREEN_EVIDENCE)):
        return False
    texts = (
        step["text"]
        for step in drafts.write_numbered_steps(
            variation.moves, f"{case.seed}/steps", variation.earlier_steps, variation.first
        )
    )
    new = conditions.ReasonedResponse(Trace.of(*gold.trace.texts[: variation.first - 1], *texts), variation.answer)
    after = conditions.replace_passage(case.passages, rewording.passage_index, rewording.passage)
    checked = conditions.check_evidence_switch(case.question, case.passages, after, gold, new, variation.first - 1)
    return not any(checked.objections(ConstructionRole.VERIFY_EVIDENCE))


# The edit of the question.


def _build_question(case: drafts.ParsedConstructorInput, _: Any) -> drafts.DraftedResponse | str:
    targets = [*find_near_questions(case.target, case.passages), *_further_targets(case)]
    case.make_rng("targets").shuffle(targets)
    for target in targets:
        draft = drafts.draft_response(case, target, questions.verbalize_question(target, case.make_rng("question")))
        # A single move would be a single-hop question.
        if draft is not None and len(draft.moves) > 1 and _passes_question_checks(case, draft):
            return draft
    return "No other question to these passages has a single other answer."


def _further_targets(case: drafts.ParsedConstructorInput) -> list[questions.Target]:
    """Return targets beyond the near ones: facts about the person who did two things, another rival in a choice."""
    target = case.target
    if (
        isinstance(target, questions.LookupQuestion)
        and isinstance(target.phrase.base, PersonOfTwoDeeds)
        and not target.phrase.path
    ):
        people = [
            relation
            for relation in case.evidence.list_relations()
            if relation.subject == rel.PERSON and relation.single and relation is not rel.ALIAS
        ]
        return [questions.LookupQuestion(target.phrase.then(relation)) for relation in people]
    if isinstance(target, questions.ComparisonQuestion):
        rivals = [reading.name for reading in case.evidence.readings if reading.kind == target.kind]
        first_option = target.options[0]
        return [replace(target, options=(first_option, name)) for name in rivals if name not in target.options]
    return []


def _passes_question_checks(case: drafts.ParsedConstructorInput, draft: drafts.DraftedResponse) -> bool:
    """Return whether all of appendix B.5 holds, the checks in code included."""
    gold, question = case.response, draft.question
    if match_answer(draft.answer, gold.answer) or _names_answer(draft, case.question):
        return False
    screened = conditions.screen_question_edit(case.question, question, case.passages, gold.answer, draft.answer)
    if any(screened.objections(ConstructionRole.SCREEN_QUESTION)):
        return False
    checked = conditions.check_question_switch(case.question, question, case.passages, gold, _reason_draft(case, draft))
    return not any(checked.objections(ConstructionRole.VERIFY_QUESTION))


def _names_answer(draft: drafts.DraftedResponse, before: str) -> bool:
    """Return whether the question contains its answer and the old question did not."""
    words = normalize_answer(draft.answer)
    return contains_token_span(normalize_answer(draft.question), words) and not contains_token_span(
        normalize_answer(before), words
    )


_BUILDERS: Mapping[ConstructionRole, Callable[[drafts.ParsedConstructorInput, Any], Any]] = {
    ConstructionRole.CONSTRUCT_TARGET: _build_target,
    ConstructionRole.CONSTRUCT_EVIDENCE: _build_variations,
    ConstructionRole.CONSTRUCT_QUESTION: _build_question,
}
_WRITERS: Mapping[ConstructionRole, Callable[[drafts.ParsedConstructorInput, Any], drafts.ReplyFields]] = {
    ConstructionRole.CONSTRUCT_TARGET: drafts.write_target_response_reply,
    ConstructionRole.CONSTRUCT_EVIDENCE: drafts.write_evidence_edits_reply,
    ConstructionRole.CONSTRUCT_QUESTION: drafts.write_question_edit_reply,
}
