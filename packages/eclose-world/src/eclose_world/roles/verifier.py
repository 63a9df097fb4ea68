"""The world's model as a verifier of families: six roles, answered exactly, from the oracle.

Each label rests on the shown material alone. Where the oracle cannot read a text, the reply has the wrong shape on
purpose, as for a judge. With ``noise`` it inverts whole verdicts at a known rate, so that the errors that pass a
pipeline can be counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.errors import SettingError
from eclose.prompts.material_json import DisclosedPassage, DisclosedStep, parse_material, render_material
from eclose.values.family_rules import MIN_SUPPORTING_PASSAGES
from eclose.values.instance import Passage
from eclose.values.response import Trace
from eclose_train.construction.questions import (
    ACCEPTANCE_CONDITIONS,
    ROLE_MATERIAL_TYPES,
    SOUNDNESS_JUDGEMENT,
    ConstructionRole,
    find_objections,
)
from eclose_world.oracle import family_conditions as conditions
from eclose_world.oracle.soundness import judge_step_soundness
from eclose_world.roles.judge import CANNOT_READ
from eclose_world.server.chat_requests import BadRequest, ChatRequest, HandlerRegistry, ScriptedReply
from eclose_world.server.faults import hash_to_unit_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose_train.construction import questions as materials

ReplyFields: TypeAlias = dict[str, Any]


def register_verifier_handlers(registry: HandlerRegistry, *, noise: float = 0.0, seed: int = 0) -> None:
    """Register the verifier's handlers; ``noise`` is the rate at which it errs."""
    if not 0 <= noise <= 1:
        raise SettingError("the verifier's error rate must be between 0 and 1 (verifier_noise).")
    for role in _HANDLERS:
        registry.register(role, partial(_answer, role, noise, seed))


def _answer(role: ConstructionRole, noise: float, seed: int, request: ChatRequest) -> ScriptedReply:
    material = parse_request_material(role, request)
    fields = _HANDLERS[role](material)
    if fields is None:
        return ScriptedReply("", refusal=CANNOT_READ)
    # Drawn from the material alone: an error on a candidate recurs, unless the request's seed changes.
    draw = request.draw(seed)
    shown_json = render_material(material)
    if hash_to_unit_interval("noise", *draw, role, shown_json) < noise:
        fields = _invert(role, fields, hash_to_unit_interval("field", *draw, role, shown_json), material)
    return ScriptedReply(fields)


def parse_request_material(role: ConstructionRole, request: ChatRequest) -> Any:
    """Return the material of a request; raise ``BadRequest`` for indices outside the passages."""
    try:
        material = parse_material(ROLE_MATERIAL_TYPES[role], request.messages[-1]["content"])
    except ValueError as error:
        raise BadRequest(str(error)) from None
    size = len(material.evidence)
    indices = [*getattr(material, "support", ()), *([material.edited.index] if hasattr(material, "edited") else ())]
    if unknown := [index for index in indices if not 0 <= index < size]:
        raise BadRequest(f"there are no passages {unknown} among {size}")
    return material


def make_oracle_passages(evidence: tuple[DisclosedPassage, ...]) -> tuple[Passage, ...]:
    """Return passages as the oracle reads them; their ids are their indices."""
    return tuple(_convert_passage(passage) for passage in evidence)


def _convert_passage(shown_passage: DisclosedPassage) -> Passage:
    return Passage(str(shown_passage.index), shown_passage.title, shown_passage.text)


def make_oracle_response(steps: tuple[DisclosedStep, ...], answer: str) -> conditions.ReasonedResponse:
    """Return a response as it is shown."""
    return conditions.ReasonedResponse(Trace.of(*(step.text for step in steps)), answer)


# One reply per role; None where a text cannot be read.


def _seed(material: materials.SourceScreenMaterial) -> ReplyFields | None:
    accepted = (material.reference, *material.aliases)
    screening = conditions.screen_source(material.question, make_oracle_passages(material.evidence), accepted)
    if not screening.conditions.readable:
        return None
    return {**_nest_labels(screening.conditions), "support": list(screening.support), "defect": screening.defect}


def _target(material: materials.TargetCheckMaterial) -> ReplyFields | None:
    passages, response = make_oracle_passages(material.evidence), make_oracle_response(material.steps, material.answer)
    labels, outside = conditions.check_target_response(material.question, passages, material.support, response)
    if not labels.readable:
        return None
    fields = _nest_labels(labels)
    inside, _, _ = judge_step_soundness(tuple(passages[index] for index in material.support), response.trace)
    steps, _, _ = judge_step_soundness(passages, response.trace)
    # Grounding of each step: passages inside the support, outside it, or earlier steps.
    for entry, inside_step, step in zip(fields[SOUNDNESS_JUDGEMENT]["steps"], inside, steps, strict=True):
        number = entry["id"]
        if number in outside:
            outside_passages = [index for index in range(len(passages)) if index not in material.support]
            entry |= {
                "passages": outside_passages if step.support is None else [step.support.passage_index],
                "premises": [],
            }
        elif inside_step.support is not None:
            entry |= {"passages": [material.support[inside_step.support.passage_index]], "premises": []}
        else:
            # A conclusion rests on the steps before it; a first step can only rest on the passages.
            entry |= {"passages": [] if number > 1 else list(material.support), "premises": list(range(1, number))}
    fields["grounding"]["outside"] = outside
    return fields


def _edit_screen(material: materials.EvidenceScreenMaterial) -> ReplyFields | None:
    before, edited = make_oracle_passages(material.evidence), _convert_passage(material.edited)
    answers = material.answer, material.edited_answer
    return _reply_if_readable(
        conditions.screen_evidence_edit(material.question, before, material.edited.index, edited, *answers)
    )


def _edit_check(material: materials.EvidenceCheckMaterial) -> ReplyFields | None:
    before = make_oracle_passages(material.evidence)
    after = conditions.replace_passage(before, material.edited.index, _convert_passage(material.edited))
    gold = make_oracle_response(material.steps, material.answer)
    new = make_oracle_response(material.edited_steps, material.edited_answer)
    return _reply_if_readable(
        conditions.check_evidence_switch(material.question, before, after, gold, new, material.first - 1)
    )


def _question_screen(material: materials.QuestionScreenMaterial) -> ReplyFields | None:
    questions = material.question, material.edited_question
    answers = material.answer, material.edited_answer
    return _reply_if_readable(
        conditions.screen_question_edit(*questions, make_oracle_passages(material.evidence), *answers)
    )


def _question_check(material: materials.QuestionCheckMaterial) -> ReplyFields | None:
    gold = make_oracle_response(material.steps, material.answer)
    new = make_oracle_response(material.edited_steps, material.edited_answer)
    passages = make_oracle_passages(material.evidence)
    return _reply_if_readable(
        conditions.check_question_switch(material.question, material.edited_question, passages, gold, new)
    )


_HANDLERS: Mapping[ConstructionRole, Callable[[Any], ReplyFields | None]] = {
    ConstructionRole.SCREEN_SEED: _seed,
    ConstructionRole.VERIFY_TARGET: _target,
    ConstructionRole.SCREEN_EVIDENCE: _edit_screen,
    ConstructionRole.VERIFY_EVIDENCE: _edit_check,
    ConstructionRole.SCREEN_QUESTION: _question_screen,
    ConstructionRole.VERIFY_QUESTION: _question_check,
}


def _reply_if_readable(labels: conditions.CandidateLabels) -> ReplyFields | None:
    return _nest_labels(labels) if labels.readable else None


def _nest_labels(labels: conditions.CandidateLabels) -> ReplyFields:
    fields: ReplyFields = {}
    if labels.steps is not None:
        entries = enumerate(labels.steps, start=1)
        fields[SOUNDNESS_JUDGEMENT] = {
            "steps": [{"id": number, "reason": "", "sound": sound} for number, sound in entries]
        }
    for name, label in labels.labels.items():
        *prefix, field = name.split(".")
        section = fields.setdefault(prefix[0], {"reason": ""}) if prefix else fields
        section[field] = label
    return fields if labels.steps is not None else {"reason": "", **fields}


# Errors on request.


def _invert(role: ConstructionRole, fields: ReplyFields, draw: float, material: Any) -> ReplyFields:
    """Return the opposite verdict: one rejection of a candidate that would be accepted, none of another."""
    names = [*ACCEPTANCE_CONDITIONS[role], *([SOUNDNESS_JUDGEMENT] if SOUNDNESS_JUDGEMENT in fields else [])]
    if _is_accepted(role, fields):
        # One objection is enough to reject.
        name = names[int(draw * len(names))]
        _set_label(fields, name, required=False, role=role)
        return fields
    # A rejected candidate is accepted only if every label turns.
    for name in names:
        _set_label(fields, name, required=True, role=role)
    if role is ConstructionRole.SCREEN_SEED:
        fields["defect"] = None
        fields["support"] = list(
            dict.fromkeys([*fields["support"], *range(min(MIN_SUPPORTING_PASSAGES, len(material.evidence)))])
        )
    if role is ConstructionRole.VERIFY_TARGET:
        for entry in fields[SOUNDNESS_JUDGEMENT]["steps"]:
            if entry["id"] in fields["grounding"]["outside"]:
                entry["passages"] = list(material.support)
        fields["grounding"]["outside"] = []
    return fields


def _is_accepted(role: ConstructionRole, fields: ReplyFields) -> bool:
    if SOUNDNESS_JUDGEMENT in fields and not all(entry["sound"] for entry in fields[SOUNDNESS_JUDGEMENT]["steps"]):
        return False
    if role is ConstructionRole.SCREEN_SEED and (
        fields["defect"] is not None or len(set(fields["support"])) < MIN_SUPPORTING_PASSAGES
    ):
        return False
    return not any(find_objections(role, fields))


def _set_label(fields: ReplyFields, name: str, *, required: bool, role: ConstructionRole) -> None:
    if name == SOUNDNESS_JUDGEMENT:
        steps = fields[SOUNDNESS_JUDGEMENT]["steps"]
        # One unsound step is enough to reject; all must be sound to accept.
        for entry in steps if required else steps[-1:]:
            entry["sound"] = required
        return
    *prefix, field = name.split(".")
    section = fields[prefix[0]] if prefix else fields
    section[field] = ACCEPTANCE_CONDITIONS[role][name] is required
