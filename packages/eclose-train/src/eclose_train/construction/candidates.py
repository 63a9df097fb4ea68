"""Drafts of families, and parsing of a constructor's replies into views and edits, or into the reason why not.

The constructor names passages, claims and steps; views are assembled here. Unedited passages and the shared beginning
of two traces are equal because they are the same objects, and do not depend on a model copying them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eclose.prompts.structured import InconsistentReplyError
from eclose.values.family import (
    EvidenceEdit,
    Family,
    FamilyFinding,
    FamilyProvenance,
    PassageIntervention,
    ProofStep,
    QuestionEdit,
    TextReplacement,
    View,
    ViewKind,
)
from eclose.values.instance import Instance
from eclose.values.response import Step, Trace
from eclose_train.families.edits import RefusedEdit, edit_passage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose.values.instance import Passage

# All classes are stored in the ledger of a run: field names are part of its format.

CODE = "code"
"""Origin of a refusal of what a constructor wrote by the code that reads it."""


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

    def family(self, provenance: FamilyProvenance) -> Family:
        """Return the complete family."""
        assert self.gold is not None
        assert self.question_edit is not None
        return Family(
            id=f"family-{self.source.id}",
            source=self.source,
            gold=self.gold,
            evidence_edits=self.evidence_edits,
            question_edit=self.question_edit,
            findings=self.findings,
            provenance=provenance,
        )


@dataclass(frozen=True, slots=True)
class FailedSource:
    """A source without a family: every candidate of the failed stage, with the reason why it was not accepted."""

    source_id: str
    setbacks: tuple[CandidateRejection, ...]


def find_support_passage_ids(source: Instance, indices: Iterable[int]) -> tuple[str, ...]:
    """Return the ids of passages by their indices, each once, in the order of the evidence."""
    return _passage_ids(source.evidence, sorted(set(indices)))


def parse_gold_view(source: Instance, support_ids: tuple[str, ...], reply: Mapping[str, Any]) -> View:
    """Return the original view of a source with the response of a reply."""
    trace, proof = _parse_steps(reply["steps"], source.evidence)
    return View(
        kind=ViewKind.GOLD,
        question=source.question,
        evidence=source.evidence,
        trace=trace,
        answer=reply["answer"].strip(),
        support_ids=support_ids,
        proof=proof,
    )


def parse_evidence_edit(gold: View, reply: Mapping[str, Any]) -> EvidenceEdit | CandidateRejection:
    """Return the evidence edit of one variation in a reply.

    The passage is edited here, and the steps before the first affected one are those of the gold trace.
    """
    # The reply names a passage by its index; ``_passage_ids`` refuses an index outside the evidence.
    (passage_id,) = _passage_ids(gold.evidence, [reply["passage"]])
    index = next(number for number, passage in enumerate(gold.evidence) if passage.id == passage_id)
    # Replies count steps from one, views from zero.
    passage, first = gold.evidence[index], reply["first"] - 1
    # Details of unusable candidates reach the constructor as objections, so their wording is part of the prompts.
    if reply["claim"] not in passage.text:
        return CandidateRejection(CODE, "claim_not_found", f"{reply['claim']!r} does not stand in passage {index}.")
    if not 0 <= first < len(gold.trace):
        detail = f"step {first + 1} is said to be the first affected, of {len(gold.trace)}."
        return CandidateRejection(CODE, "no_such_step", detail)
    intervention = PassageIntervention(
        reply["claim"],
        tuple(TextReplacement(replacement["old"], replacement["new"]) for replacement in reply["replacements"]),
        tuple(reply["keep"]),
    )
    edited = edit_passage(passage, intervention.replacements, intervention.keep)
    if isinstance(edited, RefusedEdit):
        return CandidateRejection(CODE, edited.failures[0].problem.value, "; ".join(map(str, edited.failures)))
    # Exactly one passage differs, and the others are the same objects (gate H^e, appendix B.4).
    evidence = (*gold.evidence[:index], edited.passage, *gold.evidence[index + 1 :])
    continuation, proof = _parse_steps(reply["steps"], evidence, before=first)
    proof = (*gold.proof[:first], *proof)
    # A changed claim may lead to other passages. Where the steps name fewer than two, the original's support is added.
    named = {id_ for node in proof for id_ in node.passage_ids}
    support = named if len(named) > 1 else named.union(gold.support_ids)
    view = View(
        kind=ViewKind.EVIDENCE_CF,
        question=gold.question,
        evidence=evidence,
        trace=Trace((*gold.trace.steps[:first], *continuation.steps)),
        answer=reply["answer"].strip(),
        support_ids=tuple(passage.id for passage in gold.evidence if passage.id in support),
        proof=proof,
    )
    return EvidenceEdit(view, passage_id, first, intervention)


def parse_question_edit(gold: View, reply: Mapping[str, Any]) -> QuestionEdit:
    """Return the question edit of a reply: another question to the same evidence."""
    trace, proof = _parse_steps(reply["steps"], gold.evidence)
    support_ids = _passage_ids(gold.evidence, sorted(set(reply["support"])))
    question, answer = reply["question"].strip(), reply["answer"].strip()
    view = View(
        kind=ViewKind.QUESTION_CF,
        question=question,
        evidence=gold.evidence,
        trace=trace,
        answer=answer,
        support_ids=support_ids,
        proof=proof,
    )
    return QuestionEdit(view, reply["component"].strip() or None)


def _parse_steps(
    steps: Sequence[Mapping[str, Any]], evidence: tuple[Passage, ...], before: int = 0
) -> tuple[Trace, tuple[ProofStep, ...]]:
    """Return steps with their premises; ``before`` is the number of earlier steps of the trace."""
    proof = []
    for number, step in enumerate(steps, start=before):
        # Premises are earlier steps, so a proof is acyclic by construction.
        premises = tuple(sorted({premise - 1 for premise in step["premises"]}))
        if any(not 0 <= premise < number for premise in premises):
            problem = f"step {number + 1} rests on {step['premises']}, which do not all stand before it."
            raise InconsistentReplyError("wrong premises", problem)
        proof.append(ProofStep(_passage_ids(evidence, sorted(set(step["passages"]))), premises))
    return Trace(tuple(Step(step["text"].strip()) for step in steps)), tuple(proof)


def _passage_ids(evidence: tuple[Passage, ...], indices: Sequence[int]) -> tuple[str, ...]:
    if wrong := [index for index in indices if not 0 <= index < len(evidence)]:
        raise InconsistentReplyError("no such passage", f"there are no passages {wrong} among {len(evidence)}.")
    return tuple(evidence[index].id for index in indices)
