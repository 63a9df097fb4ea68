"""One source to its family, part by part: each is built, held against the gates, screened and verified.

A part takes a draft and returns it with one thing more, or rejects the source with everything that was said against
its candidates. ``B = V and Q and H``: the checks by models, the constructor's own word that it is done, and the gates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from eclosure.construct.checks import check_evidence, check_question, check_source, check_target, places
from eclosure.construct.draft import Draft, GivenUp, Setback
from eclosure.construct.settings import Part, guidelines
from eclosure.construct.views import Refused, evidence_edit, gold_view, question_edit, supported
from eclosure.core.family import Provenance
from eclosure.core.gates import check_evidence_edit, check_family, check_gold, check_question_edit
from eclosure.core.identity import content_hash
from eclosure.core.judgment import NO_REFERENCE
from eclosure.protocol import construction as shown
from eclosure.protocol.material import shown_passages, shown_steps
from eclosure.store.runner import Rejected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from eclosure.construct.checks import Checked
    from eclosure.construct.length import Length
    from eclosure.construct.team import Team
    from eclosure.core.family import EvidenceEdit, Family, Finding, View
    from eclosure.core.gates import GateFailure
    from eclosure.core.instance import Instance

GATES, CODE, LENGTH = "gates", "code", "length"

Built: TypeAlias = "Draft | tuple[Setback, ...]"
"""A draft with one thing more, or why each candidate was not accepted."""


async def screen(source: Instance, team: Team, length: Length) -> Draft | Rejected:
    """Whether a source can be built on, and on which passages."""
    if source.reference_answer is None:
        return Rejected(NO_REFERENCE)
    if setback := _too_long(length.of_prompt(source.question, source.evidence), team):
        return _given_up(source, (setback,))  # before anybody is paid for it
    found = await check_source(source, source.reference_answer, team)
    if isinstance(found, Setback):
        return _given_up(source, (found,))
    return Draft(source, supported(source, found[0].said["support"]), findings=found)


async def build_target(draft: Draft, team: Team) -> Draft | Rejected:
    """The original response, verified without the reference."""
    source, reference = draft.source, draft.source.reference_answer
    assert reference is not None
    support = places(source.evidence, draft.support_ids)

    async def attempt(number: int, objection: str | None) -> Built:
        brief = shown.TargetBrief(source.question, shown_passages(source.evidence), support, reference, objection)
        made = await team.construct(brief, lambda told: gold_view(source, draft.support_ids, told), number)
        if isinstance(made, Setback):
            return (made,)
        if setback := _gated(check_gold(source, made)):
            return (setback,)
        found = await check_target(made, team)
        return (found,) if isinstance(found, Setback) else _with(draft, found, gold=made)

    return await _tried(draft, team, Part.TARGET, attempt)


async def build_evidence(draft: Draft, team: Team) -> Draft | Rejected:
    """Edits of the evidence, each with the response that follows from it; one is enough."""
    gold = _gold(draft)

    async def attempt(number: int, objection: str | None) -> Built:
        brief = shown.EvidenceBrief(**_given(gold), wanted=team.settings.edits, objection=objection)
        made = await team.construct(
            brief, lambda told: [evidence_edit(gold, one) for one in told["variations"]], number
        )
        if isinstance(made, Setback):
            return (made,)
        if not made:
            return (Setback(CODE, "no variation", "the constructor says it is done, and made none."),)
        accepted: list[tuple[EvidenceEdit, tuple[Finding, ...]]] = []
        setbacks: list[Setback] = []
        for one in made[: team.settings.edits]:
            checked = await _checked_edit(draft, gold, one, team, [edit for edit, _ in accepted])
            if isinstance(checked, Setback):
                setbacks.append(checked)
            else:
                accepted.append((one, checked))
        if not accepted:
            return tuple(setbacks)
        findings = tuple(finding for _, found in accepted for finding in found)
        return _with(draft, findings, evidence_edits=tuple(edit for edit, _ in accepted))

    return await _tried(draft, team, Part.EVIDENCE, attempt)


async def _checked_edit(
    draft: Draft, gold: View, edit: EvidenceEdit | Refused, team: Team, before: list[EvidenceEdit]
) -> Checked:
    """One candidate through code, gates, screen and verifier."""
    if isinstance(edit, Refused):
        return Setback(CODE, edit.reason, edit.detail)
    if any(edit.view.evidence == other.view.evidence for other in before):
        return Setback(CODE, "same edit twice", "an earlier variation changed the passage in the same way.")
    return _gated(check_evidence_edit(draft.source, gold, edit)) or await check_evidence(gold, edit, team)


async def build_question(draft: Draft, team: Team) -> Draft | Rejected:
    """Another question to the same evidence, with its response."""
    gold = _gold(draft)

    async def attempt(number: int, objection: str | None) -> Built:
        brief = shown.QuestionBrief(**_given(gold), objection=objection)
        made = await team.construct(brief, lambda told: question_edit(gold, told), number)
        if isinstance(made, Setback):
            return (made,)
        if setback := _gated(check_question_edit(draft.source, gold, made)):
            return (setback,)
        found = await check_question(gold, made, team)
        return (found,) if isinstance(found, Setback) else _with(draft, found, question_edit=made)

    return await _tried(draft, team, Part.QUESTION, attempt)


def pack(draft: Draft, team: Team, length: Length) -> Family | Rejected:
    """The family, held against every gate once more, now that its parts are together."""
    told = content_hash(guidelines())
    family = draft.family(Provenance(team.constructor.name, team.verifier.name, told, draft.attempts))
    setback = _gated(check_family(family)) or _too_long(length.of_family(family), team)
    return _given_up(draft.source, (setback,)) if setback else family


async def reverify(family: Family, team: Team) -> Family | Rejected:
    """The finished family before every screen and verifier once more. What they object to now is left out.

    One edit of the evidence that holds is enough; everything else must hold.
    """
    source, gold, second = family.source, family.gold, team.second
    assert source.reference_answer is not None
    findings: list[Finding] = []
    edits: list[EvidenceEdit] = []
    setbacks: list[Setback] = []
    for checked in (await check_source(source, source.reference_answer, second), await check_target(gold, second)):
        if isinstance(checked, Setback):
            return _given_up(source, (checked,))
        findings += checked
    for edit in family.evidence_edits:
        checked = await check_evidence(gold, edit, second)
        if isinstance(checked, Setback):
            setbacks.append(checked)
        else:
            edits.append(edit)
            findings += checked
    if not edits:
        return _given_up(source, tuple(setbacks))
    checked = await check_question(gold, family.question_edit, second)
    if isinstance(checked, Setback):
        return _given_up(source, (*setbacks, checked))
    assert family.provenance is not None
    return replace(
        family,
        evidence_edits=tuple(edits),
        findings=(*family.findings, *findings, *checked),
        provenance=replace(family.provenance, reverifier=second.verifier.name),
    )


async def _tried(
    draft: Draft, team: Team, part: Part, attempt: Callable[[int, str | None], Awaitable[Built]]
) -> Draft | Rejected:
    """As often as allowed, each time with what was said against the time before."""
    objection: str | None = None
    setbacks: list[Setback] = []
    for number in range(team.settings.attempts):
        built = await attempt(number, objection)
        if isinstance(built, Draft):
            return built.tried(part, number + 1)
        setbacks += built
        objection = " ".join(f"{one.reason}: {one.detail}" for one in built)
    return _given_up(draft.source, tuple(setbacks))


def _given_up(source: Instance, setbacks: tuple[Setback, ...]) -> Rejected:
    """Counted by what stood against the last candidate; all of them are kept."""
    return Rejected(str(setbacks[-1]), GivenUp(source.id, setbacks))


def _gated(failures: Iterable[GateFailure]) -> Setback | None:
    found = list(failures)
    return Setback(GATES, found[0].gate.value, "; ".join(map(str, found))) if found else None


def _too_long(tokens: int, team: Team) -> Setback | None:
    limit = team.settings.max_length
    return Setback(LENGTH, "too long", f"{tokens:,} tokens are more than {limit:,}.") if tokens > limit else None


def _with(draft: Draft, findings: tuple[Finding, ...], **more: Any) -> Draft:
    return replace(draft, findings=(*draft.findings, *findings), **more)


def _gold(draft: Draft) -> View:
    assert draft.gold is not None
    return draft.gold


def _given(gold: View) -> dict[str, Any]:
    """What both who edit are shown."""
    return {
        "question": gold.question,
        "evidence": shown_passages(gold.evidence),
        "support": places(gold.evidence, gold.support_ids),
        "steps": shown_steps(gold.trace),
        "answer": gold.answer,
    }
