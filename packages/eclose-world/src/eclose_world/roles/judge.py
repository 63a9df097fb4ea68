"""The world's model as a judge: it reads the material from the request and answers exactly, from the oracle.

It sees the same material as any judge, so its decisions show whether a disclosure is sufficient. Where the oracle
cannot read a text, it refuses and says what it cannot read, so that the criterion is unjudged with that reason. With
``noise`` it errs at a known rate, by response and criterion, so that a validation can be compared with the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from eclose.errors import SettingError
from eclose.prompts import disclosure
from eclose.prompts.judge_questions import (
    JOINT_JUDGE_QUESTIONS,
    JUDGE_MATERIAL_TYPES,
    NOT_SUBSTANTIVE_VERDICT,
    SOUND_VERDICT,
    JudgeQuestion,
    cut_material_to_question,
    encode_step_judgment,
)
from eclose.prompts.material_json import parse_material, render_material
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Criterion, Ineligibility, Judgment, LocalFailure
from eclose.values.response import Response, Trace
from eclose_world.oracle.answer_equality import is_correct_answer
from eclose_world.oracle.evidence import find_warranted_answers
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.server.chat_requests import BadRequest, ChatRequest, HandlerRegistry, ScriptedReply
from eclose_world.server.faults import hash_to_unit_interval

JudgedFields: TypeAlias = Mapping[str, Any]

CANNOT_READ = "cannot read this"
_ID = "material"


def register_judge_handlers(registry: HandlerRegistry, *, noise: float = 0.0, seed: int = 0) -> None:
    """Register the judge's handlers; ``noise`` is the rate at which it errs."""
    if not 0 <= noise <= 1:
        raise SettingError("the judge's error rate must be between 0 and 1 (judge_noise).")
    for question in JudgeQuestion:
        registry.register(question, partial(_answer, question, noise, seed))


def _answer(question: JudgeQuestion, noise: float, seed: int, request: ChatRequest) -> ScriptedReply:
    content = request.messages[-1]["content"]
    try:
        material = parse_material(JUDGE_MATERIAL_TYPES[question], content)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    parts = [question] if question is not JudgeQuestion.JOINT else _parts(request)
    fields: dict[str, Any] = {}
    for part in parts:
        labels = _judge_part(part, material, noise, request.draw(seed))
        # One unreadable part makes the joint reply unreadable.
        if isinstance(labels, str):
            return ScriptedReply("", refusal=labels)
        fields[part.part] = labels
    return ScriptedReply(fields if question is JudgeQuestion.JOINT else fields[question.part])


def _parts(request: ChatRequest) -> list[JudgeQuestion]:
    """Return the questions of a joint request: the parts of its reply schema."""
    properties = (request.schema or {}).get("properties", {})
    return [part for part in JOINT_JUDGE_QUESTIONS if part.part in properties]


def _judge_part(question: JudgeQuestion, material: Any, noise: float, draw: tuple[int, ...]) -> dict[str, Any] | str:
    """Judge one question from its own material; with noise, sometimes return the opposite.

    Returns:
        The fields of the reply, or what cannot be read.
    """
    if isinstance(material, disclosure.JointJudgeMaterial):
        material = cut_material_to_question(material, question)
    labels = _HANDLERS[question](material)
    if isinstance(labels, str):
        return labels
    # Drawn from the material alone: an error on a case recurs on every request, unless the request's seed changes.
    errs = hash_to_unit_interval("noise", *draw, question, render_material(material)) < noise
    return _invert(labels) if errs else dict(labels)


def _invert(labels: JudgedFields) -> dict[str, Any]:
    if "steps" in labels:
        return {"steps": _invert_steps(labels["steps"])}
    inverted_labels = {name: not value for name, value in labels.items() if isinstance(value, bool)}
    inverted = {**labels, **inverted_labels}
    # A code is given exactly where a question is not eligible, or the reply would not match its schema.
    if "code" in labels:
        inverted["code"] = None if inverted["eligible"] else Ineligibility.MISSING_LINK
    return inverted


def _invert_steps(steps: Mapping[str, JudgedFields]) -> dict[str, JudgedFields]:
    """Return all steps as sound if one was not, else the last sound one as unsound."""
    all_sound = mark_all_sound(steps)
    if all_sound != steps:
        return all_sound
    return mark_last_unsound(steps, [number for number, step in steps.items() if step["verdict"] == SOUND_VERDICT])


def mark_all_sound(steps: Mapping[str, JudgedFields]) -> dict[str, JudgedFields]:
    """Return every substantive step as sound."""
    return {
        number: step if step["verdict"] == NOT_SUBSTANTIVE_VERDICT else {**step, "verdict": SOUND_VERDICT}
        for number, step in steps.items()
    }


def mark_last_unsound(steps: Mapping[str, JudgedFields], among: Iterable[str]) -> dict[str, JudgedFields]:
    """Return the steps with the last of ``among`` as unsound."""
    broken = {"verdict": LocalFailure.OTHER, "support": None}
    return {**steps, **{number: {**steps[number], **broken} for number in list(among)[-1:]}}


def _instance(material: Any) -> Instance:
    evidence = getattr(material, "evidence", ())
    passages = tuple(Passage(str(passage.index), passage.title, passage.text) for passage in evidence)
    return Instance(
        _ID, material.question, passages, getattr(material, "reference", None), getattr(material, "aliases", ())
    )


def _judge(material: Any) -> Judgment:
    # Steps before a window are read as well: the window may refer to them.
    shown = (*getattr(material, "earlier_steps", ()), *getattr(material, "steps", ()))
    trace = Trace.of(*(step.text for step in shown))
    return judge_by_oracle(_instance(material), Response(_ID, _ID, trace, getattr(material, "answer", None)))


def _soundness(material: disclosure.SoundnessMaterial | disclosure.SoundnessWindowMaterial) -> JudgedFields | str:
    judged = _judge(material).steps[-len(material.steps) :]
    steps = {}
    for shown_step, step in zip(material.steps, judged, strict=True):
        if step.substantive is None:
            return f"cannot read step {shown_step.id}"
        if step.substantive and step.sound is None:
            return f"cannot read a sentence of the passages that may decide step {shown_step.id}"
        steps[str(shown_step.id)] = encode_step_judgment(step)
    return {"steps": steps}


def _alignment(material: disclosure.AlignmentMaterial) -> JudgedFields | str:
    judgment = _judge(material)
    if judgment.aligned is None:
        return judgment.unjudged[Criterion.ALIGNMENT]
    return {"reason": "", "pursued": "", "aligned": judgment.aligned}


def _locating(material: disclosure.LocatingMaterial) -> JudgedFields | str:
    # The sentences of this world do not tell an answer from a claim.
    reply = _alignment(material)
    return reply if isinstance(reply, str) else {"answer_step": None, **reply}


def _closure(material: disclosure.ClosureMaterial) -> JudgedFields | str:
    judgment = _judge(material)
    if judgment.closed is None:
        return judgment.unjudged[Criterion.CLOSURE]
    return {"reason": "", "established": None, "closed": judgment.closed}


def _completeness(material: disclosure.CompletenessMaterial) -> JudgedFields | str:
    judgment = _judge(material)
    if judgment.complete is None:
        return judgment.unjudged[Criterion.COMPLETENESS]
    return {"reason": "", "missing": None, "complete": judgment.complete}


def _correctness(material: disclosure.CorrectnessMaterial) -> JudgedFields | str:
    label = is_correct_answer(material.answer, (material.reference, *material.aliases))
    return "cannot read the answer" if label is None else {"reason": "", "correct": label}


def _sufficiency(material: disclosure.SufficiencyMaterial) -> JudgedFields | str:
    values = find_warranted_answers(material.question, _instance(material).evidence)
    if values is None:
        return "cannot read the question"
    answer = values[0] if len(values) == 1 else None
    return {"reason": "", "missing": None, "sufficient": answer is not None, "answer": answer}


def _eligibility(material: disclosure.EligibilityMaterial) -> JudgedFields:
    values = find_warranted_answers(material.question, _instance(material).evidence)
    code: Ineligibility | None = None
    if values is None:
        code = Ineligibility.ILL_POSED
    elif not values:
        code = Ineligibility.MISSING_EVIDENCE
    elif len(values) > 1:
        code = Ineligibility.UNDERDETERMINED
    elif is_correct_answer(values[0], (material.reference, *material.aliases)) is False:
        code = Ineligibility.INCOMPATIBLE_REFERENCE
    return {"reason": "", "eligible": code is None, "code": code}


_HANDLERS: Mapping[JudgeQuestion, Callable[[Any], JudgedFields | str]] = {
    JudgeQuestion.SUFFICIENCY: _sufficiency,
    JudgeQuestion.SOUNDNESS: _soundness,
    JudgeQuestion.SOUNDNESS_WINDOW: _soundness,
    JudgeQuestion.ALIGNMENT: _alignment,
    JudgeQuestion.ALIGNMENT_LOCATING: _locating,
    JudgeQuestion.CLOSURE: _closure,
    JudgeQuestion.COMPLETENESS: _completeness,
    JudgeQuestion.CORRECTNESS: _correctness,
    JudgeQuestion.ELIGIBILITY: _eligibility,
}
