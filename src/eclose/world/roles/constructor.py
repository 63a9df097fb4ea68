"""The world's model as a constructor of families: it reads what any constructor is shown, solves it, and writes.

Every candidate is held against the oracle and the gates before it is offered; where nothing can be built it says so. On
request it plants defects at a known rate, one in a call, so that a pipeline's checks can be held against the truth.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.core.answers import contains_span, match, normalize
from eclose.core.identity import hash_rank
from eclose.core.response import Trace
from eclose.errors import SettingError
from eclose.protocol.construction import Role
from eclose.protocol.material_json import material_json
from eclose.world.faulty.bad_replies import DEFECTS, plant
from eclose.world.language import relations as rel
from eclose.world.language.phrases import Which
from eclose.world.language.questions import Choose, Lookup, Target, read_question, write_question
from eclose.world.make.drafts import (
    Case,
    Draft,
    Said,
    Variation,
    question_reply,
    solved,
    target_reply,
    tell,
    told_steps,
    variations_reply,
    vary,
)
from eclose.world.make.families import near_targets, new_values
from eclose.world.make.solve import solve
from eclose.world.oracle.evidence import evidence_of
from eclose.world.oracle.family_conditions import (
    Told,
    check_edit,
    check_question,
    check_target,
    replaced,
    screen_edit,
    screen_question,
    warranted,
)
from eclose.world.roles.verifier import material_of, passages_of, told_of
from eclose.world.server.chat_requests import Reply
from eclose.world.server.faults import chance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose.world.oracle.evidence import Hop
    from eclose.world.server.chat_requests import ChatRequest, Registry

__all__ = ["DEFECTS", "register_constructor"]


def register_constructor(registry: Registry, *, noise: float = 0.0, seed: int = 0, defect: str | None = None) -> None:
    """Let the world's model build families, with a defect in so many replies, or with one kind wherever possible."""
    if not 0 <= noise <= 1:
        raise SettingError("the rate at which a constructor errs lies between 0 and 1.")
    known = sorted(name for kinds in DEFECTS.values() for name in kinds)
    if defect is not None and defect not in known:
        raise SettingError(f"there is no defect {defect!r}. Choose from: {', '.join(known)}.")
    for role in _BUILD:
        registry.register(role, partial(_answer, role, noise, seed, defect))


def _answer(role: Role, noise: float, seed: int, defect: str | None, request: ChatRequest) -> Reply:
    material = material_of(role, request)
    # The objection is part of the material, so whoever is told of one draws anew.
    draw = request.draw(seed)
    told = material_json(material)
    target = read_question(material.question)
    if target is None:
        return Reply(_incomplete(role, "The question cannot be read."))
    passages = passages_of(material.evidence)
    gold = told_of(material.steps, material.answer) if hasattr(material, "steps") else None
    case = Case(material.question, target, passages, material.support, gold, hash_rank(*draw, role, told))
    made = _BUILD[role](case, material)
    if isinstance(made, str):
        return Reply(_incomplete(role, made))
    kinds = [defect] if defect is not None and defect in DEFECTS[role] else []
    if defect is None and chance("noise", *draw, role, told) < noise:
        kinds = list(DEFECTS[role])
        case.rng("defect").shuffle(kinds)
    for kind in kinds:
        if (broken := plant(role, kind, case, made)) is not None:
            return Reply(broken)
    return Reply(_REPLY[role](case, made))


def _incomplete(role: Role, why: str) -> Said:
    """The constructor says that it cannot be done."""
    if role is Role.CONSTRUCT_EVIDENCE:
        return {"plan": why, "variations": [], "complete": False}
    nothing: Said = {"plan": why, "steps": [], "answer": "", "complete": False}
    return nothing if role is Role.CONSTRUCT_TARGET else nothing | {"component": "", "question": "", "support": []}


# The original response.


def _target(case: Case, material: Any) -> Draft | str:
    if not warranted(case.question, case.passages, material.reference):
        return "The passages do not lead to the reference."
    needed = tuple(case.passages[place] for place in case.support)
    solution = solve(case.target, evidence_of(needed))
    if solution is None:
        return "The passages in the support lead to no single answer."
    moves = tuple(replace(move, passages=tuple(case.support[one] for one in move.passages)) for move in solution.moves)
    draft = Draft(case.target, case.question, moves, material.reference, case.support)
    judged, _ = check_target(case.question, case.passages, case.support, _told(case, draft))
    against = next(judged.objections(Role.VERIFY_TARGET), None)
    return draft if against is None else f"What can be written does not hold: {against}."


def _told(case: Case, draft: Draft) -> Told:
    return Told(Trace.of(*(step["text"] for step in told_steps(case, draft))), draft.answer)


# Edits of the evidence.


def _variations(case: Case, material: Any) -> list[Variation] | str:
    if case.way is None:
        return "The passages do not lead to a single answer."
    found: list[Variation] = []
    for hop in _from_both_ends(list(dict.fromkeys(case.way.hops))):
        if len(hop.passages) != 1 or hop.passages[0] not in case.support or hop.relation is rel.ALIAS:
            continue
        if (made := _varied(case, hop)) is not None:
            found.append(made)
        if len(found) >= material.wanted:
            break
    return found or "No fact can be given another value that leads to one other answer."


def _from_both_ends(hops: list[Hop]) -> list[Hop]:
    """The first, the last, the second, and so on: variations shall differ in where they begin."""
    order: list[Hop] = []
    while hops:
        order.append(hops.pop(-(len(order) % 2)))
    return order


def _varied(case: Case, hop: Hop) -> Variation | None:
    rng = case.rng("values", hop.subject, hop.relation)
    for value in new_values(case.passages, hop, rng):
        made = vary(case, hop, value)
        if made is not None and _holds(case, made):
            return made
    return None


def _holds(case: Case, made: Variation) -> bool:
    """Whether all of appendix B.4 holds, and what code checks of it."""
    gold, rewording = case.told, made.rewording
    if match(made.answer, gold.answer):
        return False
    screened = screen_edit(case.question, case.passages, rewording.place, rewording.passage, gold.answer, made.answer)
    if any(screened.objections(Role.SCREEN_EVIDENCE)):
        return False
    texts = (step["text"] for step in tell(made.moves, f"{case.seed}/steps", made.known, made.first))
    new = Told(Trace.of(*gold.trace.texts[: made.first - 1], *texts), made.answer)
    after = replaced(case.passages, rewording.place, rewording.passage)
    checked = check_edit(case.question, case.passages, after, gold, new, made.first - 1)
    return not any(checked.objections(Role.VERIFY_EVIDENCE))


# The edit of the question.


def _question(case: Case, _: Any) -> Draft | str:
    targets = [*near_targets(case.target, case.passages), *_further_targets(case)]
    case.rng("targets").shuffle(targets)
    for target in targets:
        draft = solved(case, target, write_question(target, case.rng("question")))
        if draft is not None and len(draft.moves) > 1 and _retargets(case, draft):
            return draft
    return "No other question to these passages has a single other answer."


def _further_targets(case: Case) -> list[Target]:
    """What near targets leave out: something about whoever did two things, and another rival in a choice."""
    target = case.target
    if isinstance(target, Lookup) and isinstance(target.phrase.base, Which) and not target.phrase.path:
        people = [one for one in rel.RELATIONS if one.subject == rel.PERSON and one.single and one is not rel.ALIAS]
        return [Lookup(target.phrase.then(one)) for one in people]
    if isinstance(target, Choose):
        rivals = [one.name for one in case.evidence.readings if one.kind == target.kind]
        kept = target.options[0]
        return [replace(target, options=(kept, name)) for name in rivals if name not in target.options]
    return []


def _retargets(case: Case, draft: Draft) -> bool:
    """Whether all of appendix B.5 holds, and what code checks of it."""
    gold, question = case.told, draft.question
    if match(draft.answer, gold.answer) or _leaks(draft, case.question):
        return False
    screened = screen_question(case.question, question, case.passages, gold.answer, draft.answer)
    if any(screened.objections(Role.SCREEN_QUESTION)):
        return False
    checked = check_question(case.question, question, case.passages, gold, _told(case, draft))
    return not any(checked.objections(Role.VERIFY_QUESTION))


def _leaks(draft: Draft, before: str) -> bool:
    """Whether the question names its answer, and the old one did not offer it."""
    words = normalize(draft.answer)
    return contains_span(normalize(draft.question), words) and not contains_span(normalize(before), words)


_BUILD: Mapping[Role, Callable[[Case, Any], Any]] = {
    Role.CONSTRUCT_TARGET: _target,
    Role.CONSTRUCT_EVIDENCE: _variations,
    Role.CONSTRUCT_QUESTION: _question,
}
_REPLY: Mapping[Role, Callable[[Case, Any], Said]] = {
    Role.CONSTRUCT_TARGET: target_reply,
    Role.CONSTRUCT_EVIDENCE: variations_reply,
    Role.CONSTRUCT_QUESTION: question_reply,
}
