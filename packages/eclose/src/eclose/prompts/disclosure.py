"""The material that a judging model sees for each question; prompts are rendered from these values only.

A judge of alignment cannot see the answer, because its material has no such field: a leak would be a type error. The
guideline may restrict further what a judgement can rest on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from eclose.prompts.material_json import DisclosedPassage, DisclosedStep, disclose_passages, disclose_steps

if TYPE_CHECKING:
    from eclose.values.instance import Instance
    from eclose.values.response import Response


# Field names are keys of the JSON in the prompt, and guidelines refer to them: renaming one changes a locked prompt.


@dataclass(frozen=True, slots=True)
class SufficiencyMaterial:
    """Question and evidence alone (q, D)."""

    question: str
    evidence: tuple[DisclosedPassage, ...]


@dataclass(frozen=True, slots=True)
class SoundnessMaterial:
    """Question, evidence and trace (q, D, r): no answer, no reference."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    steps: tuple[DisclosedStep, ...]


@dataclass(frozen=True, slots=True)
class SoundnessWindowMaterial:
    """Question, evidence, some consecutive steps and all steps before them: no answer, no reference."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    earlier_steps: tuple[DisclosedStep, ...]
    """Steps that are judged in other calls."""
    steps: tuple[DisclosedStep, ...]
    """The steps to judge."""


@dataclass(frozen=True, slots=True)
class AlignmentMaterial:
    """Question and trace (q, r): no evidence, no answer, no reference."""

    question: str
    steps: tuple[DisclosedStep, ...]


@dataclass(frozen=True, slots=True)
class LocatingMaterial(AlignmentMaterial):
    """Question and all sentences of a reply (q, r) in which nothing marks the answer, for the judge to find it."""


@dataclass(frozen=True, slots=True)
class ClosureMaterial:
    """Question, trace and submitted answer (q, r, a): no evidence, no reference."""

    # The paper's basis is (r, a) alone (appendix D.1). The question is shown because a bare "yes" cannot be understood
    # without it; the guideline says that it adds no premise (decision 0034).
    question: str
    steps: tuple[DisclosedStep, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class CompletenessMaterial:
    """Question, trace and reference (q, r, a*): no evidence, no submitted answer."""

    question: str
    steps: tuple[DisclosedStep, ...]
    reference: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CorrectnessMaterial:
    """Question, submitted answer and reference (q, a, a*): no evidence, no trace."""

    question: str
    answer: str
    reference: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EligibilityMaterial:
    """Question, evidence and reference (q, D, a*): no response."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    reference: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JointJudgeMaterial:
    """Everything (q, D, r, a, a*), for a judge that decides all criteria in one call."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    steps: tuple[DisclosedStep, ...]
    answer: str | None = None
    reference: str | None = None
    aliases: tuple[str, ...] = ()


JudgeMaterial: TypeAlias = (
    SufficiencyMaterial
    | SoundnessMaterial
    | SoundnessWindowMaterial
    | AlignmentMaterial
    | LocatingMaterial
    | ClosureMaterial
    | CompletenessMaterial
    | CorrectnessMaterial
    | EligibilityMaterial
    | JointJudgeMaterial
)


def disclose_for_sufficiency(instance: Instance) -> SufficiencyMaterial:
    """Return the material for judging whether the evidence settles the question."""
    return SufficiencyMaterial(instance.question, disclose_passages(instance.evidence))


def disclose_for_eligibility(instance: Instance) -> EligibilityMaterial | None:
    """Return the material for screening a question; None without a reference."""
    if instance.reference_answer is None:
        return None
    return EligibilityMaterial(
        instance.question, disclose_passages(instance.evidence), instance.reference_answer, instance.aliases
    )


def disclose_for_soundness(instance: Instance, response: Response) -> SoundnessMaterial:
    """Return the material for judging the local soundness of every step."""
    return SoundnessMaterial(instance.question, disclose_passages(instance.evidence), disclose_steps(response.trace))


def disclose_soundness_windows(
    instance: Instance, response: Response, size: int
) -> tuple[SoundnessMaterial | SoundnessWindowMaterial, ...]:
    """Return the material for judging the steps of a trace, at most ``size`` of them at a time.

    No later step is shown. A trace that fits into one window gives the material of ``disclose_for_soundness``.
    """
    whole = disclose_for_soundness(instance, response)
    steps = whole.steps
    later = (
        SoundnessWindowMaterial(whole.question, whole.evidence, steps[:start], steps[start : start + size])
        for start in range(size, len(steps), size)
    )
    return (replace(whole, steps=steps[:size]), *later)


def disclose_for_alignment(instance: Instance, response: Response) -> AlignmentMaterial:
    """Return the material for judging whether the trace pursues the question."""
    return AlignmentMaterial(instance.question, disclose_steps(response.trace))


def disclose_for_locating(instance: Instance, response: Response) -> LocatingMaterial:
    """Return the material for judging alignment and finding the answer among the sentences of a reply."""
    return LocatingMaterial(instance.question, disclose_steps(response.trace))


def disclose_for_closure(instance: Instance, response: Response) -> ClosureMaterial | None:
    """Return the material for judging whether the trace establishes the answer; None without an answer."""
    if response.answer is None:
        return None
    return ClosureMaterial(instance.question, disclose_steps(response.trace), response.answer)


def disclose_for_completeness(instance: Instance, response: Response) -> CompletenessMaterial | None:
    """Return the material for judging whether the trace reaches the reference; None without a reference."""
    if instance.reference_answer is None:
        return None
    return CompletenessMaterial(
        instance.question, disclose_steps(response.trace), instance.reference_answer, instance.aliases
    )


def disclose_for_correctness(instance: Instance, response: Response) -> CorrectnessMaterial | None:
    """Return the material for comparing answer and reference; None where either is missing."""
    if response.answer is None or instance.reference_answer is None:
        return None
    return CorrectnessMaterial(instance.question, response.answer, instance.reference_answer, instance.aliases)


def disclose_for_joint_judging(instance: Instance, response: Response, *, reference_free: bool) -> JointJudgeMaterial:
    """Return the material for judging all criteria in one call; without the reference where ``reference_free``."""
    # Aliases would reveal the reference, so they are withheld with it.
    reference = None if reference_free else instance.reference_answer
    return JointJudgeMaterial(
        question=instance.question,
        evidence=disclose_passages(instance.evidence),
        steps=disclose_steps(response.trace),
        answer=response.answer,
        reference=reference,
        aliases=() if reference is None else instance.aliases,
    )
