"""Hostile cases without end, and what of a case's prompts is not as it must be.

Every case has its own canaries: a word in each place, and in the ids that no judge may see. So whatever gets out of
its place is found wherever it turns up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

from eclose.core.instance import Instance, Passage
from eclose.core.response import Response, Trace
from eclose.protocol import disclosure
from eclose.protocol.judging import JudgeQuestion, build_judge_prompt
from eclose.protocol.material_json import parse_material
from eclose.world.faulty.injections import InjectionSlot, load_injections

if TYPE_CHECKING:
    from eclose.protocol.disclosure import JudgeMaterial

VISIBLE_SLOTS: Mapping[JudgeQuestion, frozenset[InjectionSlot]] = {
    JudgeQuestion.SUFFICIENCY: frozenset({InjectionSlot.QUESTION, InjectionSlot.TITLE, InjectionSlot.PASSAGE}),
    JudgeQuestion.SOUNDNESS: frozenset(
        {InjectionSlot.QUESTION, InjectionSlot.TITLE, InjectionSlot.PASSAGE, InjectionSlot.STEP}
    ),
    JudgeQuestion.ALIGNMENT: frozenset({InjectionSlot.QUESTION, InjectionSlot.STEP}),
    JudgeQuestion.CLOSURE: frozenset({InjectionSlot.QUESTION, InjectionSlot.STEP, InjectionSlot.ANSWER}),
    JudgeQuestion.COMPLETENESS: frozenset({InjectionSlot.QUESTION, InjectionSlot.STEP, InjectionSlot.REFERENCE}),
    JudgeQuestion.CORRECTNESS: frozenset({InjectionSlot.QUESTION, InjectionSlot.ANSWER, InjectionSlot.REFERENCE}),
    JudgeQuestion.ELIGIBILITY: frozenset(
        {InjectionSlot.QUESTION, InjectionSlot.TITLE, InjectionSlot.PASSAGE, InjectionSlot.REFERENCE}
    ),
    JudgeQuestion.JOINT: frozenset(InjectionSlot),
}
"""What each judge sees, said once more apart from the types that are to make it so."""
_HIDDEN = ("instance-id", "passage-id", "response-id", "benchmark", "completion")
# One half of a surrogate pair alone: two halves side by side are one sign to whoever reads them next.
_SIGNS = '"\\{}[]:,/\n\r\t\x00\x1b\x7f\u2028\u2029\u200b\u200d\u202e\u2066\ufeff\udfff\U0001f4a9\u0301aé中'


@dataclass(frozen=True, slots=True)
class HostileCase:
    """A question and a response full of attacks, and the canaries in them."""

    instance: Instance
    response: Response
    canaries: Mapping[str, str]
    """By slot, or by what no judge may see."""


def make_hostile_cases(seed: int) -> Iterator[HostileCase]:
    """Cases whose texts are packaged attacks, pieces of them, and signs that mean something to some reader."""
    number = 0
    while True:
        yield _hostile(Random(f"{seed}/{number}"))
        number += 1


def _hostile(rng: Random) -> HostileCase:
    canaries = {name: f"{name}-{rng.getrandbits(48):012x}" for name in (*InjectionSlot, *_HIDDEN)}

    def text(slot: InjectionSlot) -> str:
        return f"{_attack(rng)}{canaries[slot]}{_attack(rng)}"

    evidence = tuple(
        Passage(f"{canaries['passage-id']}-{place}", text(InjectionSlot.TITLE), text(InjectionSlot.PASSAGE))
        for place in range(rng.randint(1, 3))
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
    """A packaged text, a part of one, or a few signs. The very long ones are taken now and then."""
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(rng.choices(_SIGNS, k=rng.randint(0, 12)))
    text = rng.choice(load_injections()).text
    if len(text) > 1_000 and rng.random() < 0.95:
        text = text[: rng.randint(0, 200)]
    return text if kind == 1 else text[rng.randint(0, len(text)) :] + rng.choice(_SIGNS)


def disclose_to_judges(instance: Instance, response: Response) -> dict[JudgeQuestion, JudgeMaterial]:
    """What each judge is shown of a case that has everything."""
    made: dict[JudgeQuestion, JudgeMaterial | None] = {
        JudgeQuestion.SUFFICIENCY: disclosure.disclose_for_sufficiency(instance),
        JudgeQuestion.SOUNDNESS: disclosure.disclose_for_soundness(instance, response),
        JudgeQuestion.ALIGNMENT: disclosure.disclose_for_alignment(instance, response),
        JudgeQuestion.CLOSURE: disclosure.disclose_for_closure(instance, response),
        JudgeQuestion.COMPLETENESS: disclosure.disclose_for_completeness(instance, response),
        JudgeQuestion.CORRECTNESS: disclosure.disclose_for_correctness(instance, response),
        JudgeQuestion.ELIGIBILITY: disclosure.disclose_for_eligibility(instance),
        JudgeQuestion.JOINT: disclosure.disclose_jointly(instance, response, reference_free=False),
    }
    return {question: shown for question, shown in made.items() if shown is not None}


def find_breaches(case: HostileCase) -> list[str]:
    """Whatever of the case's prompts is not as it must be; nothing, one hopes."""
    found = []
    for question, shown in disclose_to_judges(case.instance, case.response).items():
        found += [f"{question}: {problem}" for problem in _problems(question, shown, case.canaries)]
    return found


def _problems(question: JudgeQuestion, shown: JudgeMaterial, canaries: Mapping[str, str]) -> Iterator[str]:
    messages = build_judge_prompt(shown).messages
    if json.loads(json.dumps(messages)) != list(messages):
        yield "does not come over the wire as it was sent"
    if [message["role"] for message in messages] != ["system", "user"]:
        yield "is not a system message and a user message"
    if messages[0]["content"] != _system(question):
        yield "another system message"
    content = messages[-1]["content"]
    try:
        json.loads(content, object_pairs_hook=_once)
        if parse_material(type(shown), content) != shown:
            yield "reads back as something else"
    except ValueError as error:
        yield f"is not one JSON object of its kind: {error}"
    everything = "\n".join(message["content"] for message in messages)
    for name, canary in canaries.items():
        if (canary in everything) != (name in VISIBLE_SLOTS[question]):
            yield f"{'shows' if canary in everything else 'lacks'} the {name}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key that comes twice has two readings."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key comes twice")
    return made


@cache
def _system(question: JudgeQuestion) -> str:
    """The system message over harmless material."""
    instance = Instance("i", "Who?", (Passage("0", "A title", "A text."),), "Ana", ())
    shown = disclose_to_judges(instance, Response("r", "i", Trace.of("A step."), "Ana"))[question]
    return build_judge_prompt(shown).messages[0]["content"]
