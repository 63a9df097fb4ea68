"""The world's model as a judge: it reads the material out of the request and answers from the oracle, exactly.

It is given what any judge is given, so what it can decide shows what a disclosure is enough for. What the oracle cannot
read it says it cannot: the reply then has the wrong shape on purpose, and the client counts an unjudged criterion.
On request it errs at a known rate, by response and criterion, so that a validation can be checked against the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from eclose.core.instance import Instance, Passage
from eclose.core.judgment import Ineligibility, LocalFailure
from eclose.core.response import Response, Trace
from eclose.errors import SettingError
from eclose.protocol import disclosure as shown
from eclose.protocol.judging import JOINT_PARTS, MATERIAL_TYPES, NOT_SUBSTANTIVE, SOUND, JudgeQuestion, restrict_material, encode_step
from eclose.protocol.material_json import render_material, parse_material
from eclose.world.oracle.answer_equality import is_correct
from eclose.world.oracle.judge import judge
from eclose.world.oracle.view_relations import find_answers
from eclose.world.server.chat_requests import BadRequest, ChatRequest, HandlerRegistry, ScriptedReply
from eclose.world.server.faults import hash_to_unit

JudgedFields: TypeAlias = Mapping[str, Any]

CANNOT_READ = "cannot read this"
_ID = "material"


def register_judge(registry: HandlerRegistry, *, noise: float = 0.0, seed: int = 0) -> None:
    """Let the world's model judge, and err so often."""
    if not 0 <= noise <= 1:
        raise SettingError("the rate at which a judge errs lies between 0 and 1.")
    for question in JudgeQuestion:
        registry.register(question, partial(_answer, question, noise, seed))


def _answer(question: JudgeQuestion, noise: float, seed: int, request: ChatRequest) -> ScriptedReply:
    content = request.messages[-1]["content"]
    try:
        material = parse_material(MATERIAL_TYPES[question], content)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    parts = [question] if question is not JudgeQuestion.JOINT else _parts(request)
    said = {part: _judged(part, material, noise, request.draw(seed)) for part in parts}
    told = {part.part: one for part, one in said.items() if one is not None}
    if len(told) < len(parts):
        return ScriptedReply({"unreadable": CANNOT_READ})
    return ScriptedReply(told if question is JudgeQuestion.JOINT else told[question.part])


def _parts(request: ChatRequest) -> list[JudgeQuestion]:
    """What a joint judge is asked: the parts that the shape of its reply has."""
    wanted = (request.schema or {}).get("properties", {})
    return [part for part in JOINT_PARTS if part.part in wanted]


def _judged(question: JudgeQuestion, material: Any, noise: float, draw: tuple[int, ...]) -> dict[str, Any] | None:
    """What is said of one question, from what it may rest on alone; now and then the contrary."""
    if isinstance(material, shown.JointMaterial):
        material = restrict_material(material, question)
    judged = _HANDLERS[question](material)
    if judged is None:
        return None
    # By the material alone: a judge who errs on a case errs on it every time it is asked, unless told to draw anew.
    turned = hash_to_unit("noise", *draw, question, render_material(material)) < noise
    return _turned(judged) if turned else dict(judged)


def _turned(judged: JudgedFields) -> dict[str, Any]:
    """The opposite judgement of the whole."""
    if "steps" in judged:
        return {"steps": _turned_steps(judged["steps"])}
    labels = {name: not value for name, value in judged.items() if isinstance(value, bool)}
    turned = {**judged, **labels}
    if "code" in judged:
        turned["code"] = None if turned["eligible"] else Ineligibility.MISSING_LINK
    return turned


def _turned_steps(steps: Mapping[str, JudgedFields]) -> dict[str, JudgedFields]:
    """Sound throughout if some step was not; else the last one that counts is found unsound."""
    sound = mark_all_sound(steps)
    if sound != steps:
        return sound
    return mark_last_unsound(steps, [number for number, step in steps.items() if step["verdict"] == SOUND])


def mark_all_sound(steps: Mapping[str, JudgedFields]) -> dict[str, JudgedFields]:
    """Every step that counts, found sound."""
    return {
        number: step if step["verdict"] == NOT_SUBSTANTIVE else {**step, "verdict": SOUND}
        for number, step in steps.items()
    }


def mark_last_unsound(steps: Mapping[str, JudgedFields], among: Iterable[str]) -> dict[str, JudgedFields]:
    """The last of some steps found unsound, if there is one."""
    broken = {"verdict": LocalFailure.OTHER, "support": None}
    return {**steps, **{number: {**steps[number], **broken} for number in list(among)[-1:]}}


def _instance(material: Any) -> Instance:
    """As much of an instance as the material discloses."""
    evidence = getattr(material, "evidence", ())
    passages = tuple(Passage(str(passage.index), passage.title, passage.text) for passage in evidence)
    return Instance(
        _ID, material.question, passages, getattr(material, "reference", None), getattr(material, "aliases", ())
    )


def _response(material: Any) -> Response:
    steps = (step.text for step in getattr(material, "steps", ()))
    return Response(_ID, _ID, Trace.of(*steps), getattr(material, "answer", None))


def _soundness(material: shown.SoundnessMaterial) -> JudgedFields | None:
    found = judge(_instance(material), _response(material)).steps
    if any(step.substantive is None or (step.substantive and step.sound is None) for step in found):
        return None
    return {"steps": {str(one.id): encode_step(step) for one, step in zip(material.steps, found, strict=True)}}


def _alignment(material: shown.AlignmentMaterial) -> JudgedFields | None:
    label = judge(_instance(material), _response(material)).aligned
    return None if label is None else {"reason": "", "pursued": "", "aligned": label}


def _closure(material: shown.ClosureMaterial) -> JudgedFields | None:
    label = judge(_instance(material), _response(material)).closed
    return None if label is None else {"reason": "", "established": None, "closed": label}


def _completeness(material: shown.CompletenessMaterial) -> JudgedFields | None:
    label = judge(_instance(material), _response(material)).complete
    return None if label is None else {"reason": "", "missing": None, "complete": label}


def _correctness(material: shown.CorrectnessMaterial) -> JudgedFields | None:
    label = is_correct(material.answer, (material.reference, *material.aliases))
    return None if label is None else {"reason": "", "correct": label}


def _sufficiency(material: shown.SufficiencyMaterial) -> JudgedFields | None:
    found = find_answers(material.question, _instance(material).evidence)
    if found is None:
        return None
    settled = found[0] if len(found) == 1 else None
    return {"reason": "", "missing": None, "sufficient": settled is not None, "answer": settled}


def _eligibility(material: shown.EligibilityMaterial) -> JudgedFields:
    found = find_answers(material.question, _instance(material).evidence)
    code: Ineligibility | None = None
    if found is None:
        code = Ineligibility.ILL_POSED
    elif not found:
        code = Ineligibility.MISSING_EVIDENCE
    elif len(found) > 1:
        code = Ineligibility.UNDERDETERMINED
    elif is_correct(found[0], (material.reference, *material.aliases)) is False:
        code = Ineligibility.INCOMPATIBLE_REFERENCE
    return {"reason": "", "eligible": code is None, "code": code}


_HANDLERS: Mapping[JudgeQuestion, Callable[[Any], JudgedFields | None]] = {
    JudgeQuestion.SUFFICIENCY: _sufficiency,
    JudgeQuestion.SOUNDNESS: _soundness,
    JudgeQuestion.ALIGNMENT: _alignment,
    JudgeQuestion.CLOSURE: _closure,
    JudgeQuestion.COMPLETENESS: _completeness,
    JudgeQuestion.CORRECTNESS: _correctness,
    JudgeQuestion.ELIGIBILITY: _eligibility,
}
