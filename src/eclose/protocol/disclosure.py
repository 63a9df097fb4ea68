"""What each judge is shown. A prompt is rendered from one of these values and from nothing else.

A judge of alignment cannot see the answer because there is no answer in what it is given: a leak would be a type error.
What may *justify* a judgement can be narrower still; the guideline says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eclose.protocol.material_json import ShownPassage, ShownStep, shown_passages, shown_steps

if TYPE_CHECKING:
    from eclose.core.instance import Instance
    from eclose.core.response import Response


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
