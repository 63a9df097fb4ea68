"""A family under construction, and the record of a source for which construction failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eclose.core.family import EvidenceEdit, Family, FamilyFinding, FamilyProvenance, QuestionEdit, View
from eclose.core.instance import Instance

if TYPE_CHECKING:
    from eclose.construction.settings import ConstructionStage

# All three classes are stored in the ledger of a run: field names are part of its format.


@dataclass(frozen=True, slots=True)
class CandidateRejection:
    """Reason why a candidate was not accepted."""

    stage: str
    """Origin of the refusal: a role, ``code``, ``gates`` or ``length``."""
    reason: str
    """Short reason from a fixed set, by which rejections are counted."""
    detail: str
    finding: FamilyFinding | None = None
    """Judgement behind the refusal, where a model gave one."""

    def __str__(self) -> str:
        """Return stage and reason, as rejections are counted."""
        return f"{self.stage}: {self.reason}"

    @property
    def text(self) -> str:
        """Stage, reason and detail, as written to the provenance of a family."""
        return f"{self}: {self.detail}" if self.detail else str(self)


@dataclass(frozen=True, slots=True)
class FamilyDraft:
    """The accepted parts of a family so far."""

    source: Instance
    support_ids: tuple[str, ...] = ()
    gold: View | None = None
    evidence_edits: tuple[EvidenceEdit, ...] = ()
    question_edit: QuestionEdit | None = None
    findings: tuple[FamilyFinding, ...] = ()
    """Findings on the accepted parts, in order."""
    attempts: Mapping[str, int] = field(default_factory=dict)
    """Number of attempts by stage; a part that took several is a selection among them."""
    setbacks: tuple[CandidateRejection, ...] = ()
    """Setbacks of candidates that were dropped on the way."""

    def add_attempts(
        self, stage: ConstructionStage, attempts: int, setbacks: tuple[CandidateRejection, ...] = ()
    ) -> FamilyDraft:
        """Return the draft with the number of attempts of a stage, and the setbacks of its dropped candidates."""
        return replace(self, attempts={**self.attempts, stage: attempts}, setbacks=(*self.setbacks, *setbacks))

    def family(self, provenance: FamilyProvenance) -> Family:
        """Return the complete family."""
        assert self.gold is not None
        assert self.question_edit is not None
        return Family(
            f"family-{self.source.id}",
            self.source,
            self.gold,
            self.evidence_edits,
            self.question_edit,
            self.findings,
            provenance,
        )


@dataclass(frozen=True, slots=True)
class FailedSource:
    """A source without a family: every candidate of the failed stage, with the reason why it was not accepted."""

    source_id: str
    setbacks: tuple[CandidateRejection, ...]
