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
from eclose.protocol.judging import Question, asked
from eclose.protocol.material_json import read_material
from eclose.world.faulty.injections import Slot, load_injections

if TYPE_CHECKING:
    from eclose.protocol.disclosure import Disclosure

SHOWN: Mapping[Question, frozenset[Slot]] = {
    Question.SUFFICIENCY: frozenset({Slot.QUESTION, Slot.TITLE, Slot.PASSAGE}),
    Question.SOUNDNESS: frozenset({Slot.QUESTION, Slot.TITLE, Slot.PASSAGE, Slot.STEP}),
    Question.ALIGNMENT: frozenset({Slot.QUESTION, Slot.STEP}),
    Question.CLOSURE: frozenset({Slot.QUESTION, Slot.STEP, Slot.ANSWER}),
    Question.COMPLETENESS: frozenset({Slot.QUESTION, Slot.STEP, Slot.REFERENCE}),
    Question.CORRECTNESS: frozenset({Slot.QUESTION, Slot.ANSWER, Slot.REFERENCE}),
    Question.ELIGIBILITY: frozenset({Slot.QUESTION, Slot.TITLE, Slot.PASSAGE, Slot.REFERENCE}),
    Question.JOINT: frozenset(Slot),
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


def hostile_cases(seed: int) -> Iterator[HostileCase]:
    """Cases whose texts are packaged attacks, pieces of them, and signs that mean something to some reader."""
    number = 0
    while True:
        yield _hostile(Random(f"{seed}/{number}"))
        number += 1


def _hostile(rng: Random) -> HostileCase:
    canaries = {name: f"{name}-{rng.getrandbits(48):012x}" for name in (*Slot, *_HIDDEN)}

    def text(slot: Slot) -> str:
        return f"{_attack(rng)}{canaries[slot]}{_attack(rng)}"

    evidence = tuple(
        Passage(f"{canaries['passage-id']}-{place}", text(Slot.TITLE), text(Slot.PASSAGE))
        for place in range(rng.randint(1, 3))
    )
    instance = Instance(
        canaries["instance-id"],
        text(Slot.QUESTION),
        evidence,
        text(Slot.REFERENCE),
        (text(Slot.REFERENCE),),
        benchmark=canaries["benchmark"],
    )
    steps = (text(Slot.STEP) for _ in range(rng.randint(1, 3)))
    response = Response(
        canaries["response-id"],
        instance.id,
        Trace.of(*steps),
        text(Slot.ANSWER),
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


def disclosures(instance: Instance, response: Response) -> dict[Question, Disclosure]:
    """What each judge is shown of a case that has everything."""
    made: dict[Question, Disclosure | None] = {
        Question.SUFFICIENCY: disclosure.sufficiency(instance),
        Question.SOUNDNESS: disclosure.soundness(instance, response),
        Question.ALIGNMENT: disclosure.alignment(instance, response),
        Question.CLOSURE: disclosure.closure(instance, response),
        Question.COMPLETENESS: disclosure.completeness(instance, response),
        Question.CORRECTNESS: disclosure.correctness(instance, response),
        Question.ELIGIBILITY: disclosure.eligibility(instance),
        Question.JOINT: disclosure.whole(instance, response, reference_free=False),
    }
    return {question: shown for question, shown in made.items() if shown is not None}


def breaches(case: HostileCase) -> list[str]:
    """Whatever of the case's prompts is not as it must be; nothing, one hopes."""
    found = []
    for question, shown in disclosures(case.instance, case.response).items():
        found += [f"{question}: {problem}" for problem in _problems(question, shown, case.canaries)]
    return found


def _problems(question: Question, shown: Disclosure, canaries: Mapping[str, str]) -> Iterator[str]:
    messages = asked(shown).messages
    if json.loads(json.dumps(messages)) != list(messages):
        yield "does not come over the wire as it was sent"
    if [message["role"] for message in messages] != ["system", "user"]:
        yield "is not a system message and a user message"
    if messages[0]["content"] != _system(question):
        yield "another system message"
    content = messages[-1]["content"]
    try:
        json.loads(content, object_pairs_hook=_once)
        if read_material(type(shown), content) != shown:
            yield "reads back as something else"
    except ValueError as error:
        yield f"is not one JSON object of its kind: {error}"
    everything = "\n".join(message["content"] for message in messages)
    for name, canary in canaries.items():
        if (canary in everything) != (name in SHOWN[question]):
            yield f"{'shows' if canary in everything else 'lacks'} the {name}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key that comes twice has two readings."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key comes twice")
    return made


@cache
def _system(question: Question) -> str:
    """The system message over harmless material."""
    instance = Instance("i", "Who?", (Passage("0", "A title", "A text."),), "Ana", ())
    shown = disclosures(instance, Response("r", "i", Trace.of("A step."), "Ana"))[question]
    return asked(shown).messages[0]["content"]
