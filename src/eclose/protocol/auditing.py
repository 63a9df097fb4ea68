"""What a person is shown of a counterfactual family and asked of it (appendix B.6).

A form is made from ``ShownFamily`` and from nothing else, so it cannot tell whose family it is, where that comes from
or what models said of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from eclose.core.family import EvidenceEdit, Family, ViewKind
from eclose.core.three_valued import Label
from eclose.protocol.material_json import ShownPassage, ShownStep, shown_passages, shown_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

GUIDELINE = "audit_family.md"
"""The locked text by which people decide."""


@dataclass(frozen=True, slots=True)
class ShownFamily:
    """All that a person sees of a family."""

    question: str
    reference: str | None
    aliases: tuple[str, ...]
    passages: tuple[ShownPassage, ...]
    steps: tuple[ShownStep, ...]
    answer: str
    edited_passage: ShownPassage
    evidence_steps: tuple[ShownStep, ...]
    evidence_answer: str
    edited_question: str
    question_steps: tuple[ShownStep, ...]
    question_answer: str

    @classmethod
    def of(cls, family: Family, edit: EvidenceEdit) -> ShownFamily:
        """A family with one of its evidence edits."""
        source, gold, asked = family.source, family.gold, family.question_edit.view
        return cls(
            gold.question,
            source.reference_answer,
            source.aliases,
            shown_passages(gold.evidence),
            shown_steps(gold.trace),
            gold.answer,
            shown_passages(edit.view.evidence)[edit.place],
            shown_steps(edit.view.trace),
            edit.view.answer,
            asked.question,
            shown_steps(asked.trace),
            asked.answer,
        )


@dataclass(frozen=True, slots=True)
class GoldMarks:
    """What is asked of the response as it is."""

    correct: Label = None
    supported: Label = None
    aligned: Label = None
    closed: Label = None


@dataclass(frozen=True, slots=True)
class EvidenceMarks:
    """What is asked of the edit of the evidence."""

    isolated: Label = None
    trace_switches: Label = None
    answer_switches: Label = None


@dataclass(frozen=True, slots=True)
class QuestionMarks:
    """What is asked of the edit of the question."""

    valid: Label = None
    trace_switches: Label = None


@dataclass(frozen=True, slots=True)
class Form:
    """One family for one person; blank until somebody answers."""

    id: str
    shown: ShownFamily
    gold: GoldMarks = field(default_factory=GoldMarks)
    evidence: EvidenceMarks = field(default_factory=EvidenceMarks)
    question: QuestionMarks = field(default_factory=QuestionMarks)
    note: str = ""


PARTS: Mapping[ViewKind, tuple[str, type[Any]]] = {
    ViewKind.GOLD: ("gold", GoldMarks),
    ViewKind.EVIDENCE_CF: ("evidence", EvidenceMarks),
    ViewKind.QUESTION_CF: ("question", QuestionMarks),
}
"""Where a form keeps what is asked of each view."""
MARKS: Mapping[ViewKind, tuple[str, ...]] = {
    kind: tuple(f"{part}.{mark.name}" for mark in fields(marks)) for kind, (part, marks) in PARTS.items()
}
"""What is asked of each view, as the guideline and the columns of a table name it."""
