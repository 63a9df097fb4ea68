"""The world's model as a constructor of families: it reads what any constructor is shown, solves it, and writes.

Every candidate is held against the oracle and the gates before it is offered; where nothing can be built it says so. On
request it plants defects at a known rate, one in a call, so that a pipeline's checks can be held against the truth.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.core.answers import contains_span, match_answer, normalize_answer
from eclose.core.identity import hash_rank
from eclose.core.response import Trace
from eclose.errors import SettingError
from eclose.protocol.construction import ConstructionRole
from eclose.protocol.material_json import render_material
from eclose.world.faulty.bad_replies import REPLY_DEFECTS, make_bad_reply
from eclose.world.language import relations as rel
from eclose.world.language.phrases import CommonDoer
from eclose.world.language.questions import ChoiceQuestion, LookupQuestion, Target, read_question, write_question
from eclose.world.make.drafts import (
    ConstructionCase,
    DraftAnswer,
    EvidenceVariation,
    ReplyFields,
    draft_solution,
    make_variation,
    write_draft_steps,
    write_question_reply,
    write_reply_steps,
    write_target_reply,
    write_variations_reply,
)
from eclose.world.make.families import draw_new_values, find_near_targets
from eclose.world.make.solve import solve
from eclose.world.oracle.evidence import read_evidence
from eclose.world.oracle.family_conditions import (
    ReasonedAnswer,
    check_edit,
    check_question,
    check_target,
    is_warranted,
    replace_passage,
    screen_edit,
    screen_question,
)
from eclose.world.roles.verifier import convert_answer, convert_passages, read_request_material
from eclose.world.server.chat_requests import ScriptedReply
from eclose.world.server.faults import hash_to_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose.world.oracle.evidence import EvidenceFact
    from eclose.world.server.chat_requests import ChatRequest, HandlerRegistry


def register_constructor(
    registry: HandlerRegistry, *, noise: float = 0.0, seed: int = 0, defect: str | None = None
) -> None:
    """Let the world's model build families, with a defect in so many replies, or with one kind wherever possible."""
    if not 0 <= noise <= 1:
        raise SettingError("the rate at which a constructor errs lies between 0 and 1.")
    known = sorted(name for kinds in REPLY_DEFECTS.values() for name in kinds)
    if defect is not None and defect not in known:
        raise SettingError(f"there is no defect {defect!r}. Choose from: {', '.join(known)}.")
    for role in _BUILD:
        registry.register(role, partial(_answer, role, noise, seed, defect))


def _answer(role: ConstructionRole, noise: float, seed: int, defect: str | None, request: ChatRequest) -> ScriptedReply:
    material = read_request_material(role, request)
    # The objection is part of the material, so whoever is told of one draws anew.
    draw = request.draw(seed)
    told = render_material(material)
    target = read_question(material.question)
    if target is None:
        return ScriptedReply(_incomplete(role, "The question cannot be read."))
    passages = convert_passages(material.evidence)
    gold = convert_answer(material.steps, material.answer) if hasattr(material, "steps") else None
    case = ConstructionCase(material.question, target, passages, material.support, gold, hash_rank(*draw, role, told))
    made = _BUILD[role](case, material)
    if isinstance(made, str):
        return ScriptedReply(_incomplete(role, made))
    kinds = [defect] if defect is not None and defect in REPLY_DEFECTS[role] else []
    if defect is None and hash_to_unit("noise", *draw, role, told) < noise:
        kinds = list(REPLY_DEFECTS[role])
        case.rng("defect").shuffle(kinds)
    for kind in kinds:
        if (broken := make_bad_reply(role, kind, case, made)) is not None:
            return ScriptedReply(broken)
    return ScriptedReply(_REPLY[role](case, made))


def _incomplete(role: ConstructionRole, why: str) -> ReplyFields:
    """The constructor says that it cannot be done."""
    if role is ConstructionRole.CONSTRUCT_EVIDENCE:
        return {"plan": why, "variations": [], "complete": False}
    nothing: ReplyFields = {"plan": why, "steps": [], "answer": "", "complete": False}
    return nothing if role is ConstructionRole.CONSTRUCT_TARGET else nothing | {"component": "", "question": "", "support": []}


# The original response.


def _target(case: ConstructionCase, material: Any) -> DraftAnswer | str:
    if not is_warranted(case.question, case.passages, material.reference):
        return "The passages do not lead to the reference."
    needed = tuple(case.passages[place] for place in case.support)
    solution = solve(case.target, read_evidence(needed))
    if solution is None:
        return "The passages in the support lead to no single answer."
    moves = tuple(replace(move, passages=tuple(case.support[one] for one in move.passages)) for move in solution.moves)
    draft = DraftAnswer(case.target, case.question, moves, material.reference, case.support)
    judged, _ = check_target(case.question, case.passages, case.support, _told(case, draft))
    against = next(judged.objections(ConstructionRole.VERIFY_TARGET), None)
    return draft if against is None else f"What can be written does not hold: {against}."


def _told(case: ConstructionCase, draft: DraftAnswer) -> ReasonedAnswer:
    return ReasonedAnswer(Trace.of(*(step["text"] for step in write_draft_steps(case, draft))), draft.answer)


# Edits of the evidence.


def _variations(case: ConstructionCase, material: Any) -> list[EvidenceVariation] | str:
    if case.way is None:
        return "The passages do not lead to a single answer."
    found: list[EvidenceVariation] = []
    for hop in _from_both_ends(list(dict.fromkeys(case.way.hops))):
        if len(hop.passages) != 1 or hop.passages[0] not in case.support or hop.relation is rel.ALIAS:
            continue
        if (made := _varied(case, hop)) is not None:
            found.append(made)
        if len(found) >= material.wanted:
            break
    return found or "No fact can be given another value that leads to one other answer."


def _from_both_ends(hops: list[EvidenceFact]) -> list[EvidenceFact]:
    """The first, the last, the second, and so on: variations shall differ in where they begin."""
    order: list[EvidenceFact] = []
    while hops:
        order.append(hops.pop(-(len(order) % 2)))
    return order


def _varied(case: ConstructionCase, hop: EvidenceFact) -> EvidenceVariation | None:
    rng = case.rng("values", hop.subject, hop.relation)
    for value in draw_new_values(case.passages, hop, rng):
        made = make_variation(case, hop, value)
        if made is not None and _holds(case, made):
            return made
    return None


def _holds(case: ConstructionCase, made: EvidenceVariation) -> bool:
    """Whether all of appendix B.4 holds, and what code checks of it."""
    gold, rewording = case.told, made.rewording
    if match_answer(made.answer, gold.answer):
        return False
    screened = screen_edit(case.question, case.passages, rewording.place, rewording.passage, gold.answer, made.answer)
    if any(screened.objections(ConstructionRole.SCREEN_EVIDENCE)):
        return False
    texts = (step["text"] for step in write_reply_steps(made.moves, f"{case.seed}/steps", made.known, made.first))
    new = ReasonedAnswer(Trace.of(*gold.trace.texts[: made.first - 1], *texts), made.answer)
    after = replace_passage(case.passages, rewording.place, rewording.passage)
    checked = check_edit(case.question, case.passages, after, gold, new, made.first - 1)
    return not any(checked.objections(ConstructionRole.VERIFY_EVIDENCE))


# The edit of the question.


def _question(case: ConstructionCase, _: Any) -> DraftAnswer | str:
    targets = [*find_near_targets(case.target, case.passages), *_further_targets(case)]
    case.rng("targets").shuffle(targets)
    for target in targets:
        draft = draft_solution(case, target, write_question(target, case.rng("question")))
        if draft is not None and len(draft.moves) > 1 and _retargets(case, draft):
            return draft
    return "No other question to these passages has a single other answer."


def _further_targets(case: ConstructionCase) -> list[Target]:
    """What near targets leave out: something about whoever did two things, and another rival in a choice."""
    target = case.target
    if isinstance(target, LookupQuestion) and isinstance(target.phrase.base, CommonDoer) and not target.phrase.path:
        people = [one for one in rel.RELATIONS if one.subject == rel.PERSON and one.single and one is not rel.ALIAS]
        return [LookupQuestion(target.phrase.then(one)) for one in people]
    if isinstance(target, ChoiceQuestion):
        rivals = [one.name for one in case.evidence.readings if one.kind == target.kind]
        kept = target.options[0]
        return [replace(target, options=(kept, name)) for name in rivals if name not in target.options]
    return []


def _retargets(case: ConstructionCase, draft: DraftAnswer) -> bool:
    """Whether all of appendix B.5 holds, and what code checks of it."""
    gold, question = case.told, draft.question
    if match_answer(draft.answer, gold.answer) or _leaks(draft, case.question):
        return False
    screened = screen_question(case.question, question, case.passages, gold.answer, draft.answer)
    if any(screened.objections(ConstructionRole.SCREEN_QUESTION)):
        return False
    checked = check_question(case.question, question, case.passages, gold, _told(case, draft))
    return not any(checked.objections(ConstructionRole.VERIFY_QUESTION))


def _leaks(draft: DraftAnswer, before: str) -> bool:
    """Whether the question names its answer, and the old one did not offer it."""
    words = normalize_answer(draft.answer)
    return contains_span(normalize_answer(draft.question), words) and not contains_span(normalize_answer(before), words)


_BUILD: Mapping[ConstructionRole, Callable[[ConstructionCase, Any], Any]] = {
    ConstructionRole.CONSTRUCT_TARGET: _target,
    ConstructionRole.CONSTRUCT_EVIDENCE: _variations,
    ConstructionRole.CONSTRUCT_QUESTION: _question,
}
_REPLY: Mapping[ConstructionRole, Callable[[ConstructionCase, Any], ReplyFields]] = {
    ConstructionRole.CONSTRUCT_TARGET: write_target_reply,
    ConstructionRole.CONSTRUCT_EVIDENCE: write_variations_reply,
    ConstructionRole.CONSTRUCT_QUESTION: write_question_reply,
}
