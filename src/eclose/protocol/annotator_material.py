"""The material that an annotator sees in each pass; pages are rendered from these values only.

Each pass discloses more than the one before it (appendix A.3.2): the steps with the evidence (A), the trace as one
block (B), the submitted answer (C), the reference (D). A page of pass B cannot leak the answer, because its material
has no such field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eclose.protocol.auditing import AuditorMaterial
from eclose.protocol.disclosure import EligibilityMaterial, SoundnessMaterial
from eclose.protocol.material_json import DisclosedPassage, disclose_passages

if TYPE_CHECKING:
    from eclose.core.instance import Instance
    from eclose.core.response import Response


@dataclass(frozen=True, slots=True)
class AnnotatorTraceMaterial:
    """Material of pass B: question and trace (q, r), and the evidence D unless hidden; no answer, no reference."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    """Empty where a project hides the evidence after the first pass."""
    trace: str
    """All steps as one block, one per line."""
    steps: tuple[str, ...] = ()
    """The steps of the trace, for short tasks, whose pages number them as reports do."""


@dataclass(frozen=True, slots=True)
class AnnotatorAnswerMaterial:
    """Material of pass C: as in pass B, with the submitted answer; no reference."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    trace: str
    answer: str | None
    """None where no answer was submitted."""
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnnotatorReferenceMaterial:
    """Material of pass D: as in pass C, with the reference."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    trace: str
    answer: str | None
    reference: str
    aliases: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


AnnotatorMaterial: TypeAlias = (
    EligibilityMaterial
    | SoundnessMaterial
    | AnnotatorTraceMaterial
    | AnnotatorAnswerMaterial
    | AnnotatorReferenceMaterial
    | AuditorMaterial
)
"""Material of any annotation task. Screening and pass A use the same values as judging models; see ``disclosure``."""


def disclose_trace_to_annotator(
    instance: Instance, response: Response, *, hide_evidence: bool = False
) -> AnnotatorTraceMaterial:
    """Return the material of pass B."""
    return AnnotatorTraceMaterial(
        instance.question,
        _disclose_evidence(instance, hide=hide_evidence),
        _join_steps(response),
        response.trace.texts,
    )


def disclose_answer_to_annotator(
    instance: Instance, response: Response, *, hide_evidence: bool = False
) -> AnnotatorAnswerMaterial:
    """Return the material of pass C."""
    evidence = _disclose_evidence(instance, hide=hide_evidence)
    return AnnotatorAnswerMaterial(
        instance.question, evidence, _join_steps(response), response.answer, response.trace.texts
    )


def disclose_reference_to_annotator(
    instance: Instance, response: Response, *, hide_evidence: bool = False
) -> AnnotatorReferenceMaterial | None:
    """Return the material of pass D; None for a question without a reference."""
    if instance.reference_answer is None:
        return None
    return AnnotatorReferenceMaterial(
        instance.question,
        _disclose_evidence(instance, hide=hide_evidence),
        _join_steps(response),
        response.answer,
        instance.reference_answer,
        instance.aliases,
        response.trace.texts,
    )


def _disclose_evidence(instance: Instance, *, hide: bool) -> tuple[DisclosedPassage, ...]:
    return () if hide else disclose_passages(instance.evidence)


def _join_steps(response: Response) -> str:
    # Without numbers, because passes B to D label the trace as one. The answer line is not part of the trace.
    return "\n".join(response.trace.texts)
