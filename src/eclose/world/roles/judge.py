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
from eclose.protocol.judging import JOINT_PARTS, MATERIAL, NOT_SUBSTANTIVE, SOUND, Question, part_of, tell_step
from eclose.protocol.material_json import material_json, read_material
from eclose.world.oracle.answer_equality import is_correct
from eclose.world.oracle.judge import judge
from eclose.world.oracle.view_relations import answers
from eclose.world.server.chat_requests import BadRequest, ChatRequest, Registry, Reply
from eclose.world.server.faults import chance

Judged: TypeAlias = Mapping[str, Any]

CANNOT_READ = "cannot read this"
_ID = "material"


def register_judge(registry: Registry, *, noise: float = 0.0, seed: int = 0) -> None:
    """Let the world's model judge, and err so often."""
    if not 0 <= noise <= 1:
        raise SettingError("the rate at which a judge errs lies between 0 and 1.")
    for question in Question:
        registry.register(question, partial(_answer, question, noise, seed))


def _answer(question: Question, noise: float, seed: int, request: ChatRequest) -> Reply:
    content = request.messages[-1]["content"]
    try:
        material = read_material(MATERIAL[question], content)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    parts = [question] if question is not Question.JOINT else _parts(request)
    said = {part: _judged(part, material, noise, request.draw(seed)) for part in parts}
    told = {part.part: one for part, one in said.items() if one is not None}
    if len(told) < len(parts):
        return Reply({"unreadable": CANNOT_READ})
    return Reply(told if question is Question.JOINT else told[question.part])


def _parts(request: ChatRequest) -> list[Question]:
    """What a joint judge is asked: the parts that the shape of its reply has."""
    wanted = (request.schema or {}).get("properties", {})
    return [part for part in JOINT_PARTS if part.part in wanted]


def _judged(question: Question, material: Any, noise: float, draw: tuple[int, ...]) -> dict[str, Any] | None:
    """What is said of one question, from what it may rest on alone; now and then the contrary."""
    if isinstance(material, shown.Whole):
        material = part_of(material, question)
    judged = _HANDLERS[question](material)
    if judged is None:
        return None
    # By the material alone: a judge who errs on a case errs on it every time it is asked, unless told to draw anew.
    turned = chance("noise", *draw, question, material_json(material)) < noise
    return _turned(judged) if turned else dict(judged)


def _turned(judged: Judged) -> dict[str, Any]:
    """The opposite judgement of the whole."""
    if "steps" in judged:
        return {"steps": _turned_steps(judged["steps"])}
    labels = {name: not value for name, value in judged.items() if isinstance(value, bool)}
    turned = {**judged, **labels}
    if "code" in judged:
        turned["code"] = None if turned["eligible"] else Ineligibility.MISSING_LINK
    return turned


def _turned_steps(steps: Mapping[str, Judged]) -> dict[str, Judged]:
    """Sound throughout if some step was not; else the last one that counts is found unsound."""
    sound = all_sound(steps)
    if sound != steps:
        return sound
    return last_unsound(steps, [number for number, step in steps.items() if step["verdict"] == SOUND])


def all_sound(steps: Mapping[str, Judged]) -> dict[str, Judged]:
    """Every step that counts, found sound."""
    return {
        number: step if step["verdict"] == NOT_SUBSTANTIVE else {**step, "verdict": SOUND}
        for number, step in steps.items()
    }


def last_unsound(steps: Mapping[str, Judged], among: Iterable[str]) -> dict[str, Judged]:
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


def _soundness(material: shown.Soundness) -> Judged | None:
    found = judge(_instance(material), _response(material)).steps
    if any(step.substantive is None or (step.substantive and step.sound is None) for step in found):
        return None
    return {"steps": {str(one.id): tell_step(step) for one, step in zip(material.steps, found, strict=True)}}


def _alignment(material: shown.Alignment) -> Judged | None:
    label = judge(_instance(material), _response(material)).aligned
    return None if label is None else {"reason": "", "pursued": "", "aligned": label}


def _closure(material: shown.Closure) -> Judged | None:
    label = judge(_instance(material), _response(material)).closed
    return None if label is None else {"reason": "", "established": None, "closed": label}


def _completeness(material: shown.Completeness) -> Judged | None:
    label = judge(_instance(material), _response(material)).complete
    return None if label is None else {"reason": "", "missing": None, "complete": label}


def _correctness(material: shown.Correctness) -> Judged | None:
    label = is_correct(material.answer, (material.reference, *material.aliases))
    return None if label is None else {"reason": "", "correct": label}


def _sufficiency(material: shown.Sufficiency) -> Judged | None:
    found = answers(material.question, _instance(material).evidence)
    if found is None:
        return None
    settled = found[0] if len(found) == 1 else None
    return {"reason": "", "missing": None, "sufficient": settled is not None, "answer": settled}


def _eligibility(material: shown.Eligibility) -> Judged:
    found = answers(material.question, _instance(material).evidence)
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


_HANDLERS: Mapping[Question, Callable[[Any], Judged | None]] = {
    Question.SUFFICIENCY: _sufficiency,
    Question.SOUNDNESS: _soundness,
    Question.ALIGNMENT: _alignment,
    Question.CLOSURE: _closure,
    Question.COMPLETENESS: _completeness,
    Question.CORRECTNESS: _correctness,
    Question.ELIGIBILITY: _eligibility,
}
