"""Counterfactual families: a source question, its three supported views, and the edits between them.

The module holds values only; the relations that must hold between the views are checked in ``family_gates``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError
from eclose.values.identity import canonical_json, hash_sort_key
from eclose.values.instance import Instance, Passage
from eclose.values.response import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator


class ViewKind(StrEnum):
    """The three kinds of view in a family.

    Examples:
        >>> [kind.value for kind in ViewKind]
        ['Gold', 'Evidence-CF', 'Question-CF']
    """

    GOLD = "Gold"
    EVIDENCE_CF = "Evidence-CF"
    QUESTION_CF = "Question-CF"


@dataclass(frozen=True, slots=True)
class ProofStep:
    """The premises of one step: a node of the proof graph with its incoming edges."""

    passage_ids: tuple[str, ...] = ()
    premises: tuple[int, ...] = ()
    """Indices of earlier steps, counted from zero."""


@dataclass(frozen=True, slots=True)
class View:
    """A question and evidence together with a response that they support.

    Examples:
        >>> from eclose import Passage, Trace
        >>> passage = Passage("p1", "Moonstruck", "Norman Jewison directed Moonstruck.")
        >>> trace = Trace.of("Norman Jewison directed Moonstruck.")
        >>> View(ViewKind.GOLD, "Who directed Moonstruck?", (passage,), trace, "Norman Jewison", ("p1",)).answer
        'Norman Jewison'
    """

    kind: ViewKind
    question: str
    evidence: tuple[Passage, ...]
    trace: Trace
    answer: str
    support_ids: tuple[str, ...]
    """E: ids of the passages that warrant the answer."""
    proof: tuple[ProofStep, ...] = ()
    """One node per step; empty where there is no proof graph."""


@dataclass(frozen=True, slots=True)
class TextReplacement:
    """Words as they are written in a passage, and the words that replace them."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class PassageIntervention:
    """The replacement of words by which a passage was edited."""

    claim: str
    """The original sentence that was changed."""
    replacements: tuple[TextReplacement, ...]
    keep: tuple[str, ...] = ()
    """Texts that contain the same words in another sense and are not edited."""


@dataclass(frozen=True, slots=True)
class FamilyFinding:
    """The reply of one screen or verifier about one part of a family."""

    role: str
    judge: str
    said: Mapping[str, Any]
    """The reply, unchanged."""
    objections: tuple[str, ...] = ()
    """Names of the judgements that failed an acceptance condition; empty where the part was accepted."""
    again: bool = False
    """Whether the finished family was checked a second time, rather than a candidate during construction."""
    edit: int | None = None
    """Index of the evidence edit that was checked, counted from zero; None for other parts."""

    @property
    def accepted(self) -> bool:
        """Whether there is no objection."""
        return not self.objections


@dataclass(frozen=True, slots=True)
class EvidenceEdit:
    """An edit of one claim in one passage, with the response that the edited evidence supports.

    Examples:
        >>> from eclose import Passage, Trace
        >>> passages = (Passage("p1", "Lund", "Lund is in Sweden."), Passage("p2", "Ada", "Ada was born in Oslo."))
        >>> trace = Trace.of("Ada was born in Oslo.")
        >>> view = View(ViewKind.EVIDENCE_CF, "Where was Ada born?", passages, trace, "Oslo", ("p2",))
        >>> EvidenceEdit(view, "p2", first_affected_step=0).passage_index
        1
    """

    view: View
    passage_id: str
    """Id of the edited passage e."""
    first_affected_step: int
    """t(e): index of the first step whose warrant depends on the edit, counted from zero."""
    intervention: PassageIntervention | None = None
    """None for families from other tools that do not record it."""

    @property
    def passage_index(self) -> int:
        """Index of the edited passage, counted from zero."""
        return [passage.id for passage in self.view.evidence].index(self.passage_id)


@dataclass(frozen=True, slots=True)
class QuestionEdit:
    """An edited question on the same evidence, with the response that answers it.

    Examples:
        >>> from eclose import Passage, Trace
        >>> passage = Passage("p1", "Moonstruck", "Norman Jewison directed Moonstruck in 1987.")
        >>> trace = Trace.of("Moonstruck was directed in 1987.")
        >>> view = View(ViewKind.QUESTION_CF, "When was Moonstruck directed?", (passage,), trace, "1987", ("p1",))
        >>> QuestionEdit(view, component="director to year").view.answer
        '1987'
    """

    view: View
    component: str | None = None
    """Description of the change in a few words."""


@dataclass(frozen=True, slots=True)
class FamilyProvenance:
    """The models that built and checked a family."""

    constructor: str
    verifier: str
    guidelines: str
    """Hash of all prompt texts used in construction."""
    attempts: Mapping[str, int]
    """Number of attempts by part; more than one means selection among candidates."""
    reverifier: str | None = None
    """Model that checked the finished family a second time; None where it was checked once."""
    setbacks: tuple[str, ...] = ()
    """Objections to rejected candidates: earlier attempts, and evidence edits that were dropped."""


@dataclass(frozen=True, slots=True)
class Family:
    """A source with its verified response, at least one evidence edit and exactly one question edit.

    Values are not checked on construction; ``check_family`` lists every rule that a family breaks.

    Examples:
        >>> from eclose import Instance, Passage, Trace
        >>> from eclose.values.family_rules import check_family
        >>> passage = Passage("p1", "Moonstruck", "Norman Jewison directed Moonstruck in 1987.")
        >>> source = Instance("q1", "Who directed Moonstruck?", (passage,), "Norman Jewison")
        >>> trace = Trace.of("Norman Jewison directed Moonstruck.")
        >>> gold = View(ViewKind.GOLD, source.question, source.evidence, trace, "Norman Jewison", ("p1",))
        >>> family = Family("f1", source, gold, (), QuestionEdit(gold))
        >>> [failure.detail for failure in check_family(family)][:2]
        ['fewer than two supporting passages', 'there is no evidence edit']
    """

    id: str
    source: Instance
    gold: View
    evidence_edits: tuple[EvidenceEdit, ...]
    question_edit: QuestionEdit
    findings: tuple[FamilyFinding, ...] = ()
    """Replies of screens and verifiers; empty for families from other tools."""
    provenance: FamilyProvenance | None = None
    """None for families from other tools."""

    @property
    def views(self) -> Iterator[View]:
        """The gold view, the view of every evidence edit, and the view of the question edit, in this order."""
        yield self.gold
        yield from (edit.view for edit in self.evidence_edits)
        yield self.question_edit.view


# Selection of one evidence edit of a family: a fixed one for tests, a drawn one for training.
#
# Both depend on the family alone, not on the order of a file or on earlier draws. Every checkpoint is therefore tested
# on the same edit, and resumed training draws what an uninterrupted run would have drawn.


def select_fixed_edit(family: Family) -> EvidenceEdit:
    """Return the first edit by passage identifier and serialised content (appendix D.7.1)."""
    return _sort_edits(family)[0]


def draw_edit(family: Family, seed: int, epoch: int) -> EvidenceEdit:
    """Return an edit drawn uniformly, as a pure function of seed, epoch and family id."""
    edits = _sort_edits(family)
    # The first part is a salt: without it the draw would correlate with a data order ranked by the same parts.
    return edits[int(hash_sort_key("evidence edit", seed, epoch, family.id), 16) % len(edits)]


def _sort_edits(family: Family) -> list[EvidenceEdit]:
    if not family.evidence_edits:
        raise UserError(f"family {family.id!r} has no evidence edit, so none can be selected. Leave the family out.")
    return sorted(family.evidence_edits, key=lambda edit: (edit.passage_id, canonical_json(asdict(edit))))
