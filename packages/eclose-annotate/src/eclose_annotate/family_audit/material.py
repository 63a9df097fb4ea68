"""The form by which people audit a counterfactual family (appendix B.6).

A form contains a ``AuditorMaterial`` and no other facts. It reveals neither builder nor source of the family, nor the
judgements of models about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from eclose.prompts.material_json import DisclosedPassage, DisclosedStep, disclose_passages, disclose_steps
from eclose.values.family import EvidenceEdit, Family, ViewKind
from eclose.values.three_valued import Label

if TYPE_CHECKING:
    from collections.abc import Mapping

AUDIT_GUIDELINE_FILE = "audit_family.md"
"""File name of the locked guideline for the audit."""


@dataclass(frozen=True, slots=True)
class AuditorMaterial:
    """The part of a family that an auditor sees."""

    question: str
    reference: str | None
    aliases: tuple[str, ...]
    passages: tuple[DisclosedPassage, ...]
    steps: tuple[DisclosedStep, ...]
    answer: str
    edited_passage: DisclosedPassage
    evidence_steps: tuple[DisclosedStep, ...]
    evidence_answer: str
    edited_question: str
    question_steps: tuple[DisclosedStep, ...]
    question_answer: str

    @classmethod
    def of(cls, family: Family, edit: EvidenceEdit) -> AuditorMaterial:
        """Return what an auditor sees of a family and one of its evidence edits."""
        source, gold, question_view = family.source, family.gold, family.question_edit.view
        return cls(
            gold.question,
            source.reference_answer,
            source.aliases,
            disclose_passages(gold.evidence),
            disclose_steps(gold.trace),
            gold.answer,
            # Only the edited passage is repeated: all others are identical in both views.
            disclose_passages(edit.view.evidence)[edit.passage_index],
            disclose_steps(edit.view.trace),
            edit.view.answer,
            question_view.question,
            disclose_steps(question_view.trace),
            question_view.answer,
        )


@dataclass(frozen=True, slots=True)
class OriginalResponseMarks:
    """The marks of the original response; None where not decided."""

    correct: Label = None
    supported: Label = None
    aligned: Label = None
    closed: Label = None


@dataclass(frozen=True, slots=True)
class EvidenceEditMarks:
    """The marks of the evidence edit; None where not decided."""

    isolated: Label = None
    trace_switches: Label = None
    answer_switches: Label = None


@dataclass(frozen=True, slots=True)
class QuestionEditMarks:
    """The marks of the question edit; None where not decided."""

    valid: Label = None
    trace_switches: Label = None


@dataclass(frozen=True, slots=True)
class FamilyAuditForm:
    """The audit of one family by one person; all marks are None in a blank form."""

    # Field names are keys of the form files, so renaming one breaks forms that people have filled in.
    id: str
    shown: AuditorMaterial
    gold: OriginalResponseMarks = field(default_factory=OriginalResponseMarks)
    evidence: EvidenceEditMarks = field(default_factory=EvidenceEditMarks)
    question: QuestionEditMarks = field(default_factory=QuestionEditMarks)
    note: str = ""


AUDIT_PARTS: Mapping[ViewKind, tuple[str, type[Any]]] = {
    ViewKind.GOLD: ("gold", OriginalResponseMarks),
    ViewKind.EVIDENCE_CF: ("evidence", EvidenceEditMarks),
    ViewKind.QUESTION_CF: ("question", QuestionEditMarks),
}
"""Field of the form and type of its marks, by view."""
AUDIT_MARKS: Mapping[ViewKind, tuple[str, ...]] = {
    kind: tuple(f"{part}.{mark.name}" for mark in fields(marks)) for kind, (part, marks) in AUDIT_PARTS.items()
}
"""Names of the marks of each view, such as ``gold.correct``, as guideline and tables use them."""
