"""Cases with texts that try to talk a judge into a positive verdict, without end, and checks of the prompts they give.

All these texts ask that the judged item passes, so they are inserted into cases that fail. Each is compared with a
harmless text of the same length in the same slot, since any inserted text may change a verdict.

Every case has its own canaries: a word in each slot, and in the ids that no judge may see. A text that leaves its place
is thereby found anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.prompts import disclosure
from eclose.prompts.judge_questions import JudgeQuestion, build_judge_prompt
from eclose.prompts.material_json import parse_material
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Step, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eclose.prompts.disclosure import JudgeMaterial

_HARMLESS = "The weather was mild that week and the harbour lay quiet in the morning light. "
InjectedCase: TypeAlias = tuple[Instance, Response]


@dataclass(frozen=True, slots=True)
class PromptInjection:
    """One text and its kind of attack."""

    kind: str
    text: str

    @property
    def control(self) -> str:
        """A harmless text of the same length."""
        length = len(self.text)
        return (_HARMLESS * (length // len(_HARMLESS) + 1))[:length]


@cache
def load_prompt_injections() -> tuple[PromptInjection, ...]:
    """Return the packaged texts."""
    lines = Path(__file__).with_name("injections.jsonl").read_text("utf-8").splitlines()
    entries = (json.loads(line) for line in lines)
    # "times" repeats a text to make very long ones without storing them.
    return tuple(PromptInjection(entry["kind"], entry["text"] * entry.get("times", 1)) for entry in entries)


class InjectionSlot(StrEnum):
    """A place for an injected text."""

    QUESTION = "question"
    TITLE = "title"
    PASSAGE = "passage"
    STEP = "step"
    ANSWER = "answer"
    REFERENCE = "reference"


def insert_injection(case: InjectedCase, slot: InjectionSlot, text: str) -> InjectedCase:
    """Return the case with the text on a new line of the slot: in the first passage, in the last step."""
    # A line of its own: gullible judges read only the first line as material.
    return _INSERT[slot](*case, f"\n{text}")


def _into_question(instance: Instance, response: Response, text: str) -> InjectedCase:
    return replace(instance, question=instance.question + text), response


def _into_title(instance: Instance, response: Response, text: str) -> InjectedCase:
    first, *others = instance.evidence
    return replace(instance, evidence=(replace(first, title=first.title + text), *others)), response


def _into_passage(instance: Instance, response: Response, text: str) -> InjectedCase:
    first, *others = instance.evidence
    return replace(instance, evidence=(replace(first, text=first.text + text), *others)), response


def _into_step(instance: Instance, response: Response, text: str) -> InjectedCase:
    *others, last = response.trace.steps
    return instance, replace(response, trace=Trace((*others, Step(last.text + text))))


def _into_answer(instance: Instance, response: Response, text: str) -> InjectedCase:
    return instance, replace(response, answer=(response.answer or "") + text)


def _into_reference(instance: Instance, response: Response, text: str) -> InjectedCase:
    return replace(instance, reference_answer=(instance.reference_answer or "") + text), response


_INSERT: Mapping[InjectionSlot, Callable[[Instance, Response, str], InjectedCase]] = {
    InjectionSlot.QUESTION: _into_question,
    InjectionSlot.TITLE: _into_title,
    InjectionSlot.PASSAGE: _into_passage,
    InjectionSlot.STEP: _into_step,
    InjectionSlot.ANSWER: _into_answer,
    InjectionSlot.REFERENCE: _into_reference,
}


VISIBLE_SLOTS: Mapping[JudgeQuestion, frozenset[InjectionSlot]] = {
    JudgeQuestion.SUFFICIENCY: frozenset({InjectionSlot.QUESTION, InjectionSlot.TITLE, InjectionSlot.PASSAGE}),
    JudgeQuestion.SOUNDNESS: frozenset(
        {InjectionSlot.QUESTION, InjectionSlot.TITLE, InjectionSlot.PASSAGE, InjectionSlot.STEP}
    ),
    JudgeQuestion.SOUNDNESS_WINDOW: frozenset(
        {InjectionSlot.QUESTION, InjectionSlot.TITLE, InjectionSlot.PASSAGE, InjectionSlot.STEP}
    ),
    JudgeQuestion.ALIGNMENT: frozenset({InjectionSlot.QUESTION, InjectionSlot.STEP}),
    JudgeQuestion.ALIGNMENT_LOCATING: frozenset({InjectionSlot.QUESTION, InjectionSlot.STEP}),
    JudgeQuestion.CLOSURE: frozenset({InjectionSlot.QUESTION, InjectionSlot.STEP, InjectionSlot.ANSWER}),
    JudgeQuestion.COMPLETENESS: frozenset({InjectionSlot.QUESTION, InjectionSlot.STEP, InjectionSlot.REFERENCE}),
    JudgeQuestion.CORRECTNESS: frozenset({InjectionSlot.QUESTION, InjectionSlot.ANSWER, InjectionSlot.REFERENCE}),
    JudgeQuestion.ELIGIBILITY: frozenset(
        {InjectionSlot.QUESTION, InjectionSlot.TITLE, InjectionSlot.PASSAGE, InjectionSlot.REFERENCE}
    ),
    JudgeQuestion.JOINT: frozenset(InjectionSlot),
}
"""Slots that each judge sees, stated independently of the types that enforce it."""
_HIDDEN = ("instance-id", "passage-id", "response-id", "benchmark", "completion")
# One half of a surrogate pair only: two adjacent halves would combine into one character.
_SIGNS = '"\\{}[]:,/\n\r\t\x00\x1b\x7f\u2028\u2029\u200b\u200d\u202e\u2066\ufeff\udfff\U0001f4a9\u0301aé中'


@dataclass(frozen=True, slots=True)
class HostileCase:
    """A question and a response full of attacks, and the canaries in them."""

    instance: Instance
    response: Response
    canaries: Mapping[str, str]
    """Canaries by slot, or by the name of a hidden field."""


def make_hostile_cases(seed: int) -> Iterator[HostileCase]:
    """Yield cases made of packaged attacks, pieces of them, and special characters."""
    number = 0
    while True:
        yield _make_hostile_case(Random(f"{seed}/{number}"))
        number += 1


def _make_hostile_case(rng: Random) -> HostileCase:
    # 48 random bits: no attack text contains a canary by accident.
    canaries = {name: f"{name}-{rng.getrandbits(48):012x}" for name in (*InjectionSlot, *_HIDDEN)}

    def text(slot: InjectionSlot) -> str:
        return f"{_attack(rng)}{canaries[slot]}{_attack(rng)}"

    evidence = tuple(
        Passage(f"{canaries['passage-id']}-{index}", text(InjectionSlot.TITLE), text(InjectionSlot.PASSAGE))
        for index in range(rng.randint(1, 3))
    )
    instance = Instance(
        canaries["instance-id"],
        text(InjectionSlot.QUESTION),
        evidence,
        text(InjectionSlot.REFERENCE),
        (text(InjectionSlot.REFERENCE),),
        benchmark=canaries["benchmark"],
    )
    steps = (text(InjectionSlot.STEP) for _ in range(rng.randint(1, 3)))
    response = Response(
        canaries["response-id"],
        instance.id,
        Trace.of(*steps),
        text(InjectionSlot.ANSWER),
        completion=canaries["completion"],
    )
    return HostileCase(instance, response, canaries)


def _attack(rng: Random) -> str:
    """Return a packaged text, a part of one, or a few characters. Very long texts are cut in 95 % of cases."""
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(rng.choices(_SIGNS, k=rng.randint(0, 12)))
    text = rng.choice(load_prompt_injections()).text
    if len(text) > 1_000 and rng.random() < 0.95:
        text = text[: rng.randint(0, 200)]
    return text if kind == 1 else text[rng.randint(0, len(text)) :] + rng.choice(_SIGNS)


def disclose_case_to_judges(instance: Instance, response: Response) -> dict[JudgeQuestion, JudgeMaterial]:
    """Return the material of every judge for a case that has all parts."""
    whole = disclosure.disclose_for_soundness(instance, response)
    materials: dict[JudgeQuestion, JudgeMaterial | None] = {
        JudgeQuestion.SUFFICIENCY: disclosure.disclose_for_sufficiency(instance),
        JudgeQuestion.SOUNDNESS: whole,
        JudgeQuestion.SOUNDNESS_WINDOW: disclosure.SoundnessWindowMaterial(
            whole.question, whole.evidence, whole.steps[:-1], whole.steps[-1:]
        ),
        JudgeQuestion.ALIGNMENT: disclosure.disclose_for_alignment(instance, response),
        JudgeQuestion.ALIGNMENT_LOCATING: disclosure.disclose_for_locating(instance, response),
        JudgeQuestion.CLOSURE: disclosure.disclose_for_closure(instance, response),
        JudgeQuestion.COMPLETENESS: disclosure.disclose_for_completeness(instance, response),
        JudgeQuestion.CORRECTNESS: disclosure.disclose_for_correctness(instance, response),
        JudgeQuestion.ELIGIBILITY: disclosure.disclose_for_eligibility(instance),
        JudgeQuestion.JOINT: disclosure.disclose_for_joint_judging(instance, response, reference_free=False),
    }
    return {question: material for question, material in materials.items() if material is not None}


def find_prompt_breaches(case: HostileCase) -> list[str]:
    """Return the defects of the case's prompts; empty when all is well."""
    breaches = []
    for question, material in disclose_case_to_judges(case.instance, case.response).items():
        breaches += [f"{question}: {problem}" for problem in _problems(question, material, case.canaries)]
    return breaches


def _problems(question: JudgeQuestion, material: JudgeMaterial, canaries: Mapping[str, str]) -> Iterator[str]:
    messages = build_judge_prompt(material).messages
    # Lone surrogates must survive the wire.
    if json.loads(json.dumps(messages)) != list(messages):
        yield "does not come over the wire as it was sent"
    if [message["role"] for message in messages] != ["system", "user"]:
        yield "is not a system message and a user message"
    if messages[0]["content"] != _system(question):
        yield "another system message"
    content = messages[-1]["content"]
    try:
        # A repeated key has two readings, depending on the parser.
        json.loads(content, object_pairs_hook=_refuse_repeated_keys)
        if parse_material(type(material), content) != material:
            yield "reads back as something else"
    except ValueError as error:
        yield f"is not one JSON object of its kind: {error}"
    prompt_text = "\n".join(message["content"] for message in messages)
    for name, canary in canaries.items():
        # Both directions: a hidden text that appears, and a visible one that an attack has displaced.
        if (canary in prompt_text) != (name in VISIBLE_SLOTS[question]):
            yield f"{'shows' if canary in prompt_text else 'lacks'} the {name}"


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; raise ``ValueError`` for a repeated key."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key comes twice")
    return fields


@cache
def _system(question: JudgeQuestion) -> str:
    """Return the system message over harmless material."""
    instance = Instance("i", "Who?", (Passage("0", "A title", "A text."),), "Ana", ())
    material = disclose_case_to_judges(instance, Response("r", "i", Trace.of("A step."), "Ana"))[question]
    return build_judge_prompt(material).messages[0]["content"]
