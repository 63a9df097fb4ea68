"""One source question with its three supported views and the edits between them.

The values only. Which relations must hold between the views is in ``gates``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eclose.core.edits import Replacement
from eclose.core.instance import Instance, Passage
from eclose.core.response import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator


class ViewKind(StrEnum):
    """The three views of a family."""

    GOLD = "Gold"
    EVIDENCE_CF = "Evidence-CF"
    QUESTION_CF = "Question-CF"


@dataclass(frozen=True, slots=True)
class ProofStep:
    """What one step of a trace rests on: one node of the proof graph with its incoming edges."""

    passage_ids: tuple[str, ...] = ()
    premises: tuple[int, ...] = ()
    """Earlier steps, counted from zero."""


@dataclass(frozen=True, slots=True)
class View:
    """A supported question, evidence and response: an input together with what it warrants."""

    kind: ViewKind
    question: str
    evidence: tuple[Passage, ...]
    trace: Trace
    answer: str
    support_ids: tuple[str, ...]
    """E: the passages that warrant the answer."""
    proof: tuple[ProofStep, ...] = ()
    """One node per step; empty where no proof graph is known."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """How a passage was changed: words for words."""

    claim: str
    """The sentence that was changed, as it stood."""
    replacements: tuple[Replacement, ...]
    keep: tuple[str, ...] = ()
    """Where the same words mean something else, and stayed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one screen or verifier said of one part of a family."""

    role: str
    judge: str
    said: Mapping[str, Any]
    """The reply, as it came."""
    objections: tuple[str, ...] = ()
    """The judgements that did not come out as wanted; none where the part was accepted."""
    again: bool = False
    """Whether it was said of the finished family, once more, and not on the way to it."""
    edit: int | None = None
    """Which edit of the evidence it was said of, counted from zero; None for what concerns no single one."""

    @property
    def accepted(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.objections


@dataclass(frozen=True, slots=True)
class EvidenceEdit:
    """One claim of one passage changed, and the response that follows from it."""

    view: View
    passage_id: str
    """The edited passage e."""
    first_affected_step: int
    """t(e), counted from zero: the first step whose warrant depends on the edit."""
    intervention: Intervention | None = None
    """None where the family was made elsewhere and nobody says."""

    @property
    def place(self) -> int:
        """Where the edited passage stands."""
        return [passage.id for passage in self.view.evidence].index(self.passage_id)


@dataclass(frozen=True, slots=True)
class QuestionEdit:
    """Another target asked of the same evidence, and the response that follows."""

    view: View
    component: str | None = None
    """What was changed in the question, in a few words."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who built a family and who checked it."""

    constructor: str
    verifier: str
    guidelines: str
    """The hash of everything that they were told."""
    attempts: Mapping[str, int]
    """How often each part was tried; a part that took several was chosen among them."""
    reverifier: str | None = None
    """Who checked the finished family once more; None where nobody did."""
    setbacks: tuple[str, ...] = ()
    """What was said against candidates that were left out: of earlier attempts, and edits that did not hold."""


@dataclass(frozen=True, slots=True)
class Family:
    """A source with its verified response, at least one evidence edit and exactly one question edit."""

    id: str
    source: Instance
    gold: View
    evidence_edits: tuple[EvidenceEdit, ...]
    question_edit: QuestionEdit
    findings: tuple[Finding, ...] = ()
    """What screens and verifiers said; empty for families made elsewhere."""
    provenance: Provenance | None = None
    """None for families made elsewhere."""

    @property
    def views(self) -> Iterator[View]:
        """Gold first, then every evidence edit, then the question edit."""
        yield self.gold
        yield from (edit.view for edit in self.evidence_edits)
        yield self.question_edit.view
