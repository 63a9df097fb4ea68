"""Checks of each part by models: the material that screens and verifiers see, and their findings.

Candidates under construction and finished families are checked by the same functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.construction.family_draft import CandidateRejection
from eclose.protocol import construction as material
from eclose.protocol.construction import ConstructionRole
from eclose.protocol.material_json import disclose_passages, disclose_steps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from eclose.construction.roles import ConstructionTeam
    from eclose.core.family import EvidenceEdit, FamilyFinding, QuestionEdit, View
    from eclose.core.instance import Instance, Passage

    CheckResult: TypeAlias = "tuple[FamilyFinding, ...] | CandidateRejection"
    """Findings on an accepted part, or the first objection."""


async def verify_source(source: Instance, reference: str, team: ConstructionTeam) -> CheckResult:
    """Check whether a family can be built from a source (seed screen)."""
    # Retained if |E| >= 2, E warrants the reference, D warrants it uniquely, and D without E does not (appendix B.2).
    seed = material.SourceScreenMaterial(source.question, disclose_passages(source.evidence), reference, source.aliases)
    finding = await team.judge(ConstructionRole.SCREEN_SEED, seed)
    return finding if isinstance(finding, CandidateRejection) else (finding,)


async def verify_target_response(gold: View, team: ConstructionTeam) -> CheckResult:
    """Check whether the original response is sound, aligned, closed and grounded; the reference is withheld."""
    # V* = L and A and C and R_E (appendix B.3).
    check = material.TargetCheckMaterial(
        gold.question,
        disclose_passages(gold.evidence),
        find_passage_indices(gold.evidence, gold.support_ids),
        disclose_steps(gold.trace),
        gold.answer,
    )
    finding = await team.judge(ConstructionRole.VERIFY_TARGET, check, steps=len(gold.trace))
    return finding if isinstance(finding, CandidateRejection) else (finding,)


async def verify_evidence_edit(gold: View, edit: EvidenceEdit, team: ConstructionTeam) -> CheckResult:
    """Check whether an evidence edit switches one step and the answer, and nothing else."""
    view, edited = edit.view, disclose_passages(edit.view.evidence)[edit.passage_index]
    question, evidence = gold.question, disclose_passages(gold.evidence)
    # The screen sees no trace, so it is the cheaper call and comes first.
    screen = material.EvidenceScreenMaterial(question, evidence, edited, gold.answer, view.answer)
    screened = await team.judge(ConstructionRole.SCREEN_EVIDENCE, screen)
    if isinstance(screened, CandidateRejection):
        return screened
    # Steps before the first affected one must hold in both contexts, that step only in its own, and closure must fail
    # for the crossed pairs of trace and answer (appendix B.4).
    check = material.EvidenceCheckMaterial(
        question,
        evidence,
        edited,
        disclose_steps(gold.trace),
        gold.answer,
        disclose_steps(view.trace),
        view.answer,
        edit.first_affected_step + 1,
    )
    verified = await team.judge(ConstructionRole.VERIFY_EVIDENCE, check, steps=len(view.trace))
    return verified if isinstance(verified, CandidateRejection) else (screened, verified)


async def verify_question_edit(gold: View, edit: QuestionEdit, team: ConstructionTeam) -> CheckResult:
    """Check whether another question to the same evidence switches the trace."""
    evidence, view = disclose_passages(gold.evidence), edit.view
    # Neither answer may satisfy the other question (appendix B.5).
    screen = material.QuestionScreenMaterial(gold.question, view.question, evidence, gold.answer, view.answer)
    screened = await team.judge(ConstructionRole.SCREEN_QUESTION, screen)
    if isinstance(screened, CandidateRejection):
        return screened
    # Both traces must align with their own question and with no other (appendix B.5). No pair tests closure here,
    # because question and trace change together.
    check = material.QuestionCheckMaterial(
        gold.question,
        view.question,
        evidence,
        disclose_steps(gold.trace),
        gold.answer,
        disclose_steps(view.trace),
        view.answer,
    )
    verified = await team.judge(ConstructionRole.VERIFY_QUESTION, check, steps=len(view.trace))
    return verified if isinstance(verified, CandidateRejection) else (screened, verified)


def find_passage_indices(evidence: tuple[Passage, ...], ids: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indices of passages in the evidence, by their ids."""
    index_of: Mapping[str, int] = {passage.id: index for index, passage in enumerate(evidence)}
    return tuple(index_of[passage_id] for passage_id in ids)
