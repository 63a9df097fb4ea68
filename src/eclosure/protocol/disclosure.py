"""What each judge is shown. A prompt is rendered from one of these values and from nothing else.

A judge of alignment cannot see the answer because there is no answer in what it is given: a leak would be a type error.
What may *justify* a judgement can be narrower still; the guideline says so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from eclosure.core.instance import Instance, Passage
    from eclosure.core.response import Response, Trace


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage by its place. Its id is ours and might say more than it should."""

    index: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step by its number."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Sufficiency:
    """Question and evidence alone (q, D)."""

    question: str
    evidence: tuple[ShownPassage, ...]


@dataclass(frozen=True, slots=True)
class Soundness:
    """Question, evidence and trace (q, D, r): no answer, no reference."""

    question: str
    evidence: tuple[ShownPassage, ...]
    steps: tuple[ShownStep, ...]


@dataclass(frozen=True, slots=True)
class Alignment:
    """Question and trace (q, r): no evidence, no answer, no reference."""

    question: str
    steps: tuple[ShownStep, ...]


@dataclass(frozen=True, slots=True)
class Closure:
    """Question, trace and submitted answer (q, r, a): no evidence, no reference. Rests on trace and answer alone."""

    question: str
    steps: tuple[ShownStep, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Completeness:
    """Question, trace and reference (q, r, a*): no evidence, no submitted answer."""

    question: str
    steps: tuple[ShownStep, ...]
    reference: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Correctness:
    """Question, submitted answer and reference (q, a, a*): no evidence, no trace."""

    question: str
    answer: str
    reference: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Question, evidence and reference (q, D, a*), before any response is seen."""

    question: str
    evidence: tuple[ShownPassage, ...]
    reference: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything at once (q, D, r, a, a*), for a judge who decides all criteria in one call."""

    question: str
    evidence: tuple[ShownPassage, ...]
    steps: tuple[ShownStep, ...]
    answer: str | None = None
    reference: str | None = None
    aliases: tuple[str, ...] = ()


Disclosure: TypeAlias = Sufficiency | Soundness | Alignment | Closure | Completeness | Correctness | Eligibility | Whole


def shown_passages(evidence: tuple[Passage, ...]) -> tuple[ShownPassage, ...]:
    """Passages in their given order, by their index."""
    return tuple(ShownPassage(index, passage.title, passage.text) for index, passage in enumerate(evidence))


def shown_steps(trace: Trace) -> tuple[ShownStep, ...]:
    """Steps in order, numbered from 1."""
    return tuple(ShownStep(number, step.text) for number, step in enumerate(trace.steps, start=1))


def sufficiency(instance: Instance) -> Sufficiency:
    """Whether the evidence is enough."""
    return Sufficiency(instance.question, shown_passages(instance.evidence))


def eligibility(instance: Instance) -> Eligibility | None:
    """Whether the question is fit for use; None without a reference."""
    if instance.reference_answer is None:
        return None
    return Eligibility(
        instance.question, shown_passages(instance.evidence), instance.reference_answer, instance.aliases
    )


def soundness(instance: Instance, response: Response) -> Soundness:
    """Local soundness."""
    return Soundness(instance.question, shown_passages(instance.evidence), shown_steps(response.trace))


def alignment(instance: Instance, response: Response) -> Alignment:
    """Question to trace."""
    return Alignment(instance.question, shown_steps(response.trace))


def closure(instance: Instance, response: Response) -> Closure | None:
    """Trace to answer; None where nothing was submitted."""
    if response.answer is None:
        return None
    return Closure(instance.question, shown_steps(response.trace), response.answer)


def completeness(instance: Instance, response: Response) -> Completeness | None:
    """Trace to reference; None without a reference."""
    if instance.reference_answer is None:
        return None
    return Completeness(instance.question, shown_steps(response.trace), instance.reference_answer, instance.aliases)


def correctness(instance: Instance, response: Response) -> Correctness | None:
    """Answer to reference; None where one of them is missing."""
    if response.answer is None or instance.reference_answer is None:
        return None
    return Correctness(instance.question, response.answer, instance.reference_answer, instance.aliases)


def whole(instance: Instance, response: Response, *, reference_free: bool) -> Whole:
    """All there is; the reference only where it may be seen."""
    reference = None if reference_free else instance.reference_answer
    return Whole(
        instance.question,
        shown_passages(instance.evidence),
        shown_steps(response.trace),
        response.answer,
        reference,
        () if reference is None else instance.aliases,
    )


def disclosed_json(shown: Disclosure) -> str:
    """The material as one JSON object, a line for each part. Whatever a text says, it stays a string value in it."""
    parts = (f"{json.dumps(one.name)}: {_lines(getattr(shown, one.name))}" for one in fields(shown))
    return "{\n " + ",\n ".join(parts) + "\n}"


def _lines(value: object) -> str:
    """Text as it is; passages, steps and aliases one a line."""
    if not isinstance(value, tuple) or not value:
        return _json(value)
    return "[\n  " + ",\n  ".join(map(_json, value)) + "\n ]"


def _json(value: object) -> str:
    if isinstance(value, ShownPassage | ShownStep):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    return json.dumps(value, ensure_ascii=False)


def read_disclosed(kind: type[Any], content: str) -> Any:
    """The value back out of what was rendered from it; ValueError where it is not one of this kind."""
    try:
        told = json.loads(content)
        made = dict(told)
        if "evidence" in made:
            made["evidence"] = tuple(ShownPassage(**passage) for passage in made["evidence"])
        if "steps" in made:
            made["steps"] = tuple(ShownStep(**step) for step in made["steps"])
        if "aliases" in made:
            made["aliases"] = tuple(made["aliases"])
        return kind(**made)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"this is not the material of {kind.__name__.lower()}: {error}") from None
