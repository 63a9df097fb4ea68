"""A family in the making, and where one that was given up got to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eclose.core.family import EvidenceEdit, Family, Finding, Provenance, QuestionEdit, View
from eclose.core.instance import Instance

if TYPE_CHECKING:
    from eclose.construction.settings import Part


@dataclass(frozen=True, slots=True)
class Setback:
    """Why one candidate was not accepted."""

    stage: str
    """Who refused it: a role, ``code`` or ``gates``."""
    reason: str
    """One of a few, counted."""
    detail: str
    finding: Finding | None = None
    """What was said of it, where somebody judged it."""

    def __str__(self) -> str:
        """As it is counted."""
        return f"{self.stage}: {self.reason}"

    @property
    def told(self) -> str:
        """As it is kept with a family."""
        return f"{self}: {self.detail}" if self.detail else str(self)


@dataclass(frozen=True, slots=True)
class Draft:
    """What there is of a family so far. Everything in it was accepted."""

    source: Instance
    support_ids: tuple[str, ...] = ()
    gold: View | None = None
    evidence_edits: tuple[EvidenceEdit, ...] = ()
    question_edit: QuestionEdit | None = None
    findings: tuple[Finding, ...] = ()
    """Of what was accepted, in order."""
    attempts: Mapping[str, int] = field(default_factory=dict)
    """How often each part was tried; a part that took several was chosen among them."""
    setbacks: tuple[Setback, ...] = ()
    """What was said against candidates that were left out on the way."""

    def tried(self, part: Part, attempts: int, setbacks: tuple[Setback, ...] = ()) -> Draft:
        """The same, knowing how often a part was tried, and what was left out."""
        kept = (*self.setbacks, *setbacks)
        return replace(self, attempts={**self.attempts, part: attempts}, setbacks=kept)

    def family(self, provenance: Provenance) -> Family:
        """All of it together."""
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
class GivenUp:
    """A source without a family: every candidate of a part, and why it was not accepted."""

    source_id: str
    setbacks: tuple[Setback, ...]
