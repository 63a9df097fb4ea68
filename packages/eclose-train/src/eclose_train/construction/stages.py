"""Stages of construction from a source to its family: each part is built, checked by the gates, screened and verified.

A stage takes a draft and returns it with another part, or rejects the source with the setbacks of all its candidates.
``B = V and Q and H`` (appendix B): the checks by models, the constructor's report that it is done, and the gates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.calls.record_loop import RecordRejection
from eclose.prompts.material_json import disclose_passages, disclose_steps
from eclose.prompts.structured import InconsistentReplyError
from eclose.values.answers import normalize_answer
from eclose.values.family import FamilyProvenance
from eclose.values.family_rules import check_evidence_edit, check_family, check_original_response, check_question_edit
from eclose.values.identity import content_hash
from eclose.values.judgment import NO_REFERENCE_REASON
from eclose_train.construction import questions as material
from eclose_train.construction.candidates import (
    CODE,
    CandidateRejection,
    FailedSource,
    FamilyDraft,
    find_support_passage_ids,
    parse_evidence_edit,
    parse_gold_view,
    parse_question_edit,
)
from eclose_train.construction.checks import (
    find_passage_indices,
    verify_evidence_edit,
    verify_question_edit,
    verify_source,
    verify_target_response,
)
from eclose_train.construction.settings import ConstructionStage, hash_role_guidelines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from eclose.values.family import EvidenceEdit, Family, FamilyFinding, View
    from eclose.values.family_rules import FamilyGateFailure
    from eclose.values.instance import Instance
    from eclose_train.construction.checks import CheckResult
    from eclose_train.construction.lengths import PathTokenCounter
    from eclose_train.construction.roles import ConstructionTeam

GATES, LENGTH = "gates", "length"
INCOMPARABLE = "no letter of the reference answer can be compared"
"""Rejection reason: answers are compared by Latin letters and digits, as in the paper, and this one has none."""

AttemptResult: TypeAlias = "FamilyDraft | tuple[CandidateRejection, ...]"
"""A draft with another part, or the setback of every candidate."""

# Reasons and details of setbacks reach the constructor as objections and are counted in the ledger: their wording is
# part of prompts and records.


async def screen_source(
    source: Instance, team: ConstructionTeam, length: PathTokenCounter
) -> FamilyDraft | RecordRejection:
    """Screen a source, and return a draft with its supporting passages."""
    if source.reference_answer is None:
        return RecordRejection(NO_REFERENCE_REASON)
    if not normalize_answer(source.reference_answer):
        return RecordRejection(INCOMPARABLE)
    if setback := _too_long(length.count_prompt(source.question, source.evidence), team):
        return _reject(source, (setback,))  # before any call is paid for
    # The support E is chosen here once, before any trace exists (appendix B.2).
    checked = await verify_source(source, source.reference_answer, team)
    if isinstance(checked, CandidateRejection):
        return _reject(source, (checked,))
    return FamilyDraft(source, find_support_passage_ids(source, checked[0].said["support"]), findings=checked)


async def build_target_response(draft: FamilyDraft, team: ConstructionTeam) -> FamilyDraft | RecordRejection:
    """Add the original response, verified without the reference."""
    source, reference = draft.source, draft.source.reference_answer
    assert reference is not None
    support = find_passage_indices(source.evidence, draft.support_ids)

    async def attempt(number: int, objection: str | None) -> AttemptResult:
        brief = material.TargetWritingMaterial(
            source.question, disclose_passages(source.evidence), support, reference, objection
        )
        gold = await team.construct(brief, lambda reply: parse_gold_view(source, draft.support_ids, reply), number)
        if isinstance(gold, CandidateRejection):
            return (gold,)
        # Gates before models: they cost nothing.
        if setback := _first_failure(check_original_response(source, gold)):
            return (setback,)
        checked = await verify_target_response(gold, team)
        return (checked,) if isinstance(checked, CandidateRejection) else _extend(draft, checked, gold=gold)

    return await _repeat(draft, team, ConstructionStage.TARGET, attempt)


async def build_evidence_edits(draft: FamilyDraft, team: ConstructionTeam) -> FamilyDraft | RecordRejection:
    """Add evidence edits, each with the response that follows from it; one accepted edit is enough."""
    gold = _gold(draft)

    async def attempt(number: int, objection: str | None) -> AttemptResult:
        brief = material.EvidenceEditWritingMaterial(**_brief(gold), wanted=team.settings.edits, objection=objection)
        candidates = await team.construct(
            brief, lambda reply: [_parse_edit(gold, variation) for variation in reply["variations"]], number
        )
        if isinstance(candidates, CandidateRejection):
            return (candidates,)
        if not candidates:
            return (CandidateRejection(CODE, "no variation", "the constructor says it is done, and made none."),)
        edits: list[EvidenceEdit] = []
        findings: list[FamilyFinding] = []
        setbacks: list[CandidateRejection] = []
        # A constructor may write more variations than requested; only as many as requested are paid for.
        for candidate in candidates[: team.settings.edits]:
            checked = await _check_edit(draft, gold, candidate, team, edits)
            if isinstance(checked, CandidateRejection):
                setbacks.append(checked)
            else:
                findings += _number_edit(checked, len(edits))
                edits.append(candidate)
        if not edits:
            return tuple(setbacks)
        # Recorded although the stage succeeds: the provenance lists every candidate that was dropped.
        setbacks = [*draft.setbacks, *setbacks]
        return _extend(draft, tuple(findings), evidence_edits=tuple(edits), setbacks=tuple(setbacks))

    return await _repeat(draft, team, ConstructionStage.EVIDENCE, attempt)


def _parse_edit(gold: View, variation: Mapping[str, Any]) -> EvidenceEdit | CandidateRejection:
    """Parse a variation; an unreadable one does not affect the others of the reply."""
    try:
        return parse_evidence_edit(gold, variation)
    except InconsistentReplyError as error:
        return CandidateRejection(CODE, error.kind, str(error))


def _number_edit(findings: Iterable[FamilyFinding], index: int) -> list[FamilyFinding]:
    return [replace(finding, edit=index) for finding in findings]


async def _check_edit(
    draft: FamilyDraft,
    gold: View,
    edit: EvidenceEdit | CandidateRejection,
    team: ConstructionTeam,
    before: list[EvidenceEdit],
) -> CheckResult:
    """Check a candidate by code, gates, screen and verifier, in the order of their cost."""
    if isinstance(edit, CandidateRejection):
        return edit
    # Two variations with the same effect would count as two edits of the family.
    if any(edit.view.evidence == other.view.evidence for other in before):
        return CandidateRejection(CODE, "same edit twice", "an earlier variation changed the passage in the same way.")
    return _first_failure(check_evidence_edit(draft.source, gold, edit)) or await verify_evidence_edit(gold, edit, team)


async def build_question_edit(draft: FamilyDraft, team: ConstructionTeam) -> FamilyDraft | RecordRejection:
    """Add another question to the same evidence, with its response."""
    gold = _gold(draft)

    async def attempt(number: int, objection: str | None) -> AttemptResult:
        brief = material.QuestionEditMaterial(**_brief(gold), objection=objection)
        edit = await team.construct(brief, lambda reply: parse_question_edit(gold, reply), number)
        if isinstance(edit, CandidateRejection):
            return (edit,)
        if setback := _first_failure(check_question_edit(draft.source, gold, edit)):
            return (setback,)
        checked = await verify_question_edit(gold, edit, team)
        return (checked,) if isinstance(checked, CandidateRejection) else _extend(draft, checked, question_edit=edit)

    return await _repeat(draft, team, ConstructionStage.QUESTION, attempt)


def assemble_family(draft: FamilyDraft, team: ConstructionTeam, length: PathTokenCounter) -> Family | RecordRejection:
    """Assemble the family, and check all gates again on the complete family."""
    guideline = content_hash(dict(hash_role_guidelines()))
    setbacks = tuple(setback.text for setback in draft.setbacks)
    models = team.constructor.name, team.verifier.name
    family = draft.family(FamilyProvenance(*models, guideline, draft.attempts, setbacks=setbacks))
    # Each part passed its gates when it was built; some gates compare parts and need the whole family (appendix B.6).
    setback = _first_failure(check_family(family)) or _too_long(length.count_family(family), team)
    return _reject(draft.source, (setback,)) if setback else family


async def reverify_family(family: Family, team: ConstructionTeam) -> Family | RecordRejection:
    """Repeat every check by models on the finished family, and drop evidence edits that now meet an objection.

    One evidence edit that holds is enough; all other parts must hold.
    """
    # In the paper the second check left 2,852 of 3,756 families (appendix B.6).
    source, gold, second = family.source, family.gold, team.for_second_check
    assert source.reference_answer is not None
    findings: list[FamilyFinding] = []
    for checked in (
        await verify_source(source, source.reference_answer, second),
        await verify_target_response(gold, second),
    ):
        if isinstance(checked, CandidateRejection):
            return _reject(source, (checked,))
        findings += checked
    accepted: dict[int, tuple[FamilyFinding, ...]] = {}
    setbacks: list[CandidateRejection] = []
    for index, edit in enumerate(family.evidence_edits):
        checked = await verify_evidence_edit(gold, edit, second)
        if isinstance(checked, CandidateRejection):
            setbacks.append(checked)
        else:
            accepted[index] = checked
    if not accepted:
        return _reject(source, tuple(setbacks))
    checked = await verify_question_edit(gold, family.question_edit, second)
    if isinstance(checked, CandidateRejection):
        return _reject(source, (*setbacks, checked))
    # Edits are numbered again without the dropped ones.
    for number, edit_findings in enumerate(accepted.values()):
        findings += _number_edit(edit_findings, number)
    return _add_second_check(family, second, list(accepted), [*findings, *checked], setbacks)


def _add_second_check(
    family: Family,
    second: ConstructionTeam,
    indices: list[int],
    findings: list[FamilyFinding],
    setbacks: list[CandidateRejection],
) -> Family:
    """Return the family with the evidence edits of the indices, and only the findings that concern them."""
    first_findings = [
        finding if finding.edit is None else replace(finding, edit=indices.index(finding.edit))
        for finding in family.findings
        if finding.edit is None or finding.edit in indices
    ]
    provenance = family.provenance
    assert provenance is not None
    return replace(
        family,
        evidence_edits=tuple(family.evidence_edits[index] for index in indices),
        findings=(*first_findings, *findings),
        provenance=replace(
            provenance,
            reverifier=second.verifier.name,
            setbacks=(*provenance.setbacks, *(setback.text for setback in setbacks)),
        ),
    )


async def _repeat(
    draft: FamilyDraft,
    team: ConstructionTeam,
    stage: ConstructionStage,
    attempt: Callable[[int, str | None], Awaitable[AttemptResult]],
) -> FamilyDraft | RecordRejection:
    """Attempt a stage as often as the settings allow, each time with the objections to the attempt before."""
    objection: str | None = None
    setbacks: list[CandidateRejection] = []
    for number in range(team.settings.attempts):
        result = await attempt(number, objection)
        if isinstance(result, FamilyDraft):
            attempts = {**result.attempts, stage: number + 1}
            return replace(result, attempts=attempts, setbacks=(*result.setbacks, *setbacks))
        setbacks += result
        # Objections to this attempt only: the next candidate answers these, and earlier ones were about other
        # candidates.
        objection = " ".join(f"{setback.reason}: {setback.detail}" for setback in result)
    return _reject(draft.source, tuple(setbacks))


def _reject(source: Instance, setbacks: tuple[CandidateRejection, ...]) -> RecordRejection:
    """Reject a source, counted under its last setback and recorded with all of them."""
    return RecordRejection(str(setbacks[-1]), FailedSource(source.id, setbacks))


def _first_failure(failures: Iterable[FamilyGateFailure]) -> CandidateRejection | None:
    """Return a setback under the first failed gate, with all failures as its detail."""
    failed = list(failures)
    return CandidateRejection(GATES, failed[0].gate.value, "; ".join(map(str, failed))) if failed else None


def _too_long(tokens: int, team: ConstructionTeam) -> CandidateRejection | None:
    limit = team.settings.max_length
    return (
        CandidateRejection(LENGTH, "too long", f"{tokens:,} tokens are more than {limit:,}.")
        if tokens > limit
        else None
    )


def _extend(draft: FamilyDraft, findings: tuple[FamilyFinding, ...], **parts: Any) -> FamilyDraft:
    return replace(draft, findings=(*draft.findings, *findings), **parts)


def _gold(draft: FamilyDraft) -> View:
    assert draft.gold is not None
    return draft.gold


def _brief(gold: View) -> dict[str, Any]:
    return {
        "question": gold.question,
        "evidence": disclose_passages(gold.evidence),
        "support": find_passage_indices(gold.evidence, gold.support_ids),
        "steps": disclose_steps(gold.trace),
        "answer": gold.answer,
    }
