"""The world's model as a verifier of families: six roles, answered from the oracle, exactly.

It judges from the material it is shown and nothing else, every field for itself. What the oracle cannot read it says it
cannot, as a judge does. On request it errs at a known rate, and then on the verdict as a whole, so that what slips
through a pipeline can be counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.core.gates import MINIMUM_SUPPORT
from eclose.core.instance import Passage
from eclose.core.response import Trace
from eclose.errors import SettingError
from eclose.protocol.acceptance import SOUNDNESS, ACCEPTANCE_CONDITIONS, find_objections
from eclose.protocol.construction import MATERIAL_TYPES, ConstructionRole
from eclose.protocol.material_json import DisclosedPassage, DisclosedStep, render_material, parse_material
from eclose.world.oracle.family_conditions import (
    ConditionLabels,
    ReasonedAnswer,
    check_edit,
    check_question,
    check_target,
    replace_passage,
    screen_edit,
    screen_question,
    screen_source,
)
from eclose.world.oracle.soundness import judge_steps
from eclose.world.roles.judge import CANNOT_READ
from eclose.world.server.chat_requests import BadRequest, ChatRequest, HandlerRegistry, ScriptedReply
from eclose.world.server.faults import hash_to_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose.protocol import construction as shown

ReplyFields: TypeAlias = dict[str, Any]


def register_verifier(registry: HandlerRegistry, *, noise: float = 0.0, seed: int = 0) -> None:
    """Let the world's model check candidates, and err on so many of them."""
    if not 0 <= noise <= 1:
        raise SettingError("the rate at which a verifier errs lies between 0 and 1.")
    for role in _HANDLERS:
        registry.register(role, partial(_answer, role, noise, seed))


def _answer(role: ConstructionRole, noise: float, seed: int, request: ChatRequest) -> ScriptedReply:
    material = read_request_material(role, request)
    said = _HANDLERS[role](material)
    if said is None:
        return ScriptedReply({"unreadable": CANNOT_READ})
    # By the material alone: whoever errs on a candidate errs on it every time, unless told to draw anew.
    draw = request.draw(seed)
    told = render_material(material)
    if hash_to_unit("noise", *draw, role, told) < noise:
        said = _turned(role, said, hash_to_unit("field", *draw, role, told), material)
    return ScriptedReply(said)


def read_request_material(role: ConstructionRole, request: ChatRequest) -> Any:
    """What the request shows."""
    try:
        material = parse_material(MATERIAL_TYPES[role], request.messages[-1]["content"])
    except ValueError as error:
        raise BadRequest(str(error)) from None
    size = len(material.evidence)
    named = [*getattr(material, "support", ()), *([material.edited.index] if hasattr(material, "edited") else ())]
    if wrong := [index for index in named if not 0 <= index < size]:
        raise BadRequest(f"there are no passages {wrong} among {size}")
    return material


def convert_passages(evidence: tuple[DisclosedPassage, ...]) -> tuple[Passage, ...]:
    """Passages as the oracle reads them; their ids are their places."""
    return tuple(_passage(passage) for passage in evidence)


def _passage(one: DisclosedPassage) -> Passage:
    return Passage(str(one.index), one.title, one.text)


def convert_answer(steps: tuple[DisclosedStep, ...], answer: str) -> ReasonedAnswer:
    """A response as it is shown."""
    return ReasonedAnswer(Trace.of(*(step.text for step in steps)), answer)


# An answer for each role, or None for what cannot be read.


def _seed(material: shown.SeedScreen) -> ReplyFields | None:
    accepted = (material.reference, *material.aliases)
    found = screen_source(material.question, convert_passages(material.evidence), accepted)
    if not found.judged.readable:
        return None
    return {**_nested(found.judged), "support": list(found.support), "defect": found.defect}


def _target(material: shown.TargetCheck) -> ReplyFields | None:
    passages, told = convert_passages(material.evidence), convert_answer(material.steps, material.answer)
    judged, outside = check_target(material.question, passages, material.support, told)
    if not judged.readable:
        return None
    said = _nested(judged)
    inside, _, _ = judge_steps(tuple(passages[place] for place in material.support), told.trace)
    anywhere, _, _ = judge_steps(passages, told.trace)
    for entry, within, step in zip(said[SOUNDNESS]["steps"], inside, anywhere, strict=True):
        number = entry["id"]
        if number in outside:
            others = [place for place in range(len(passages)) if place not in material.support]
            entry |= {"passages": others if step.support is None else [step.support.passage_index], "premises": []}
        elif within.support is not None:
            entry |= {"passages": [material.support[within.support.passage_index]], "premises": []}
        else:
            # A conclusion rests on the steps before it; a first step can only rest on the passages.
            entry |= {"passages": [] if number > 1 else list(material.support), "premises": list(range(1, number))}
    said["grounding"]["outside"] = outside
    return said


def _edit_screen(material: shown.EvidenceScreen) -> ReplyFields | None:
    before, edited = convert_passages(material.evidence), _passage(material.edited)
    answers = material.answer, material.edited_answer
    return _if_read(screen_edit(material.question, before, material.edited.index, edited, *answers))


def _edit_check(material: shown.EvidenceCheck) -> ReplyFields | None:
    before = convert_passages(material.evidence)
    after = replace_passage(before, material.edited.index, _passage(material.edited))
    gold = convert_answer(material.steps, material.answer)
    new = convert_answer(material.edited_steps, material.edited_answer)
    return _if_read(check_edit(material.question, before, after, gold, new, material.first - 1))


def _question_screen(material: shown.QuestionScreen) -> ReplyFields | None:
    asked = material.question, material.edited_question
    answers = material.answer, material.edited_answer
    return _if_read(screen_question(*asked, convert_passages(material.evidence), *answers))


def _question_check(material: shown.QuestionCheck) -> ReplyFields | None:
    gold = convert_answer(material.steps, material.answer)
    new = convert_answer(material.edited_steps, material.edited_answer)
    passages = convert_passages(material.evidence)
    return _if_read(check_question(material.question, material.edited_question, passages, gold, new))


_HANDLERS: Mapping[ConstructionRole, Callable[[Any], ReplyFields | None]] = {
    ConstructionRole.SCREEN_SEED: _seed,
    ConstructionRole.VERIFY_TARGET: _target,
    ConstructionRole.SCREEN_EVIDENCE: _edit_screen,
    ConstructionRole.VERIFY_EVIDENCE: _edit_check,
    ConstructionRole.SCREEN_QUESTION: _question_screen,
    ConstructionRole.VERIFY_QUESTION: _question_check,
}


def _if_read(judged: ConditionLabels) -> ReplyFields | None:
    return _nested(judged) if judged.readable else None


def _nested(judged: ConditionLabels) -> ReplyFields:
    """Labels in the shape of a reply."""
    said: ReplyFields = {}
    if judged.steps is not None:
        entries = enumerate(judged.steps, start=1)
        said[SOUNDNESS] = {"steps": [{"id": number, "reason": "", "sound": sound} for number, sound in entries]}
    for name, label in judged.labels.items():
        *part, field = name.split(".")
        where = said.setdefault(part[0], {"reason": ""}) if part else said
        where[field] = label
    return said if judged.steps is not None else {"reason": "", **said}


# To err.


def _turned(role: ConstructionRole, said: ReplyFields, pick: float, material: Any) -> ReplyFields:
    """The opposite verdict: one judgement against what would be accepted, none against what would not."""
    names = [*ACCEPTANCE_CONDITIONS[role], *([SOUNDNESS] if SOUNDNESS in said else [])]
    if _accepted(role, said):
        name = names[int(pick * len(names))]
        _set(said, name, wanted=False, role=role)
        return said
    for name in names:
        _set(said, name, wanted=True, role=role)
    if role is ConstructionRole.SCREEN_SEED:
        said["defect"] = None
        said["support"] = list(dict.fromkeys([*said["support"], *range(min(MINIMUM_SUPPORT, len(material.evidence)))]))
    if role is ConstructionRole.VERIFY_TARGET:
        for entry in said[SOUNDNESS]["steps"]:
            if entry["id"] in said["grounding"]["outside"]:
                entry["passages"] = list(material.support)
        said["grounding"]["outside"] = []
    return said


def _accepted(role: ConstructionRole, said: ReplyFields) -> bool:
    if SOUNDNESS in said and not all(entry["sound"] for entry in said[SOUNDNESS]["steps"]):
        return False
    if role is ConstructionRole.SCREEN_SEED and (said["defect"] is not None or len(set(said["support"])) < MINIMUM_SUPPORT):
        return False
    return not any(find_objections(role, said))


def _set(said: ReplyFields, name: str, *, wanted: bool, role: ConstructionRole) -> None:
    if name == SOUNDNESS:
        steps = said[SOUNDNESS]["steps"]
        for entry in steps if wanted else steps[-1:]:
            entry["sound"] = wanted
        return
    *part, field = name.split(".")
    where = said[part[0]] if part else said
    where[field] = ACCEPTANCE_CONDITIONS[role][name] is wanted
