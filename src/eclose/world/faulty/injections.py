"""Texts that try to talk a judge into a positive verdict, and the slots of a case for them.

All of them ask that the judged item passes, so they are inserted into cases that fail. Each is compared with a harmless
text of the same length in the same slot, since any inserted text may change a verdict.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

from eclose.core.instance import Instance
from eclose.core.response import Response, Step, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HARMLESS = "The weather was mild that week and the harbour lay quiet in the morning light. "
InjectedCase: TypeAlias = tuple[Instance, Response]


@dataclass(frozen=True, slots=True)
class Injection:
    """One text and its kind of attack."""

    kind: str
    text: str

    @property
    def control(self) -> str:
        """A harmless text of the same length."""
        length = len(self.text)
        return (_HARMLESS * (length // len(_HARMLESS) + 1))[:length]


@cache
def load_injections() -> tuple[Injection, ...]:
    """Return the packaged texts."""
    lines = (files(__package__) / "texts" / "injections.jsonl").read_text("utf-8").splitlines()
    entries = (json.loads(line) for line in lines)
    # "times" repeats a text to make very long ones without storing them.
    return tuple(Injection(entry["kind"], entry["text"] * entry.get("times", 1)) for entry in entries)


class InjectionSlot(StrEnum):
    """A place for an injected text."""

    QUESTION = "question"
    TITLE = "title"
    PASSAGE = "passage"
    STEP = "step"
    ANSWER = "answer"
    REFERENCE = "reference"


def insert_text(case: InjectedCase, slot: InjectionSlot, text: str) -> InjectedCase:
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
