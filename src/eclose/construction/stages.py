"""One source to its family, part by part: each is built, held against the gates, screened and verified.

A part takes a draft and returns it with one thing more, or rejects the source with everything that was said against
its candidates. ``B = V and Q and H``: the checks by models, the constructor's own word that it is done, and the gates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.construction.draft import Draft, GivenUp, Setback
from eclose.construction.model_checks import check_evidence, check_question, check_source, check_target, places
from eclose.construction.parse_candidates import Refused, evidence_edit, gold_view, question_edit, supported
from eclose.construction.settings import Part, guidelines
from eclose.core.answers import normalize
from eclose.core.family import Provenance
from eclose.core.gates import check_evidence_edit, check_family, check_gold, check_question_edit
from eclose.core.identity import content_hash
from eclose.core.judgment import NO_REFERENCE
from eclose.protocol import construction as shown
from eclose.protocol.material_json import shown_passages, shown_steps
from eclose.protocol.structured import UnreadableReplyError
from eclose.store.runs.runner import Rejected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from eclose.construction.model_checks import Checked
    from eclose.construction.roles import Team
    from eclose.construction.token_lengths import Length
    from eclose.core.family import EvidenceEdit, Family, Finding, View
    from eclose.core.gates import GateFailure
    from eclose.core.instance import Instance

GATES, CODE, LENGTH = "gates", "code", "length"
INCOMPARABLE = "no letter of the reference answer can be compared"
"""Answers are compared as the paper does it, by Latin letters and digits; a target for this one could never match."""

Built: TypeAlias = "Draft | tuple[Setback, ...]"
"""A draft with one thing more, or why each candidate was not accepted."""


async def screen(source: Instance, team: Team, length: Length) -> Draft | Rejected:
    """Whether a source can be built on, and on which passages."""
    if source.reference_answer is None:
        return Rejected(NO_REFERENCE)
    if not normalize(source.reference_answer):
        return Rejected(INCOMPARABLE)
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
        made = await team.construct(brief, lambda told: [_edit(gold, one) for one in told["variations"]], number)
        if isinstance(made, Setback):
            return (made,)
        if not made:
            return (Setback(CODE, "no variation", "the constructor says it is done, and made none."),)
        edits: list[EvidenceEdit] = []
        findings: list[Finding] = []
        setbacks: list[Setback] = []
        for one in made[: team.settings.edits]:
            checked = await _checked_edit(draft, gold, one, team, edits)
            if isinstance(checked, Setback):
                setbacks.append(checked)
            else:
                findings += _of_edit(checked, len(edits))
                edits.append(one)
        if not edits:
            return tuple(setbacks)
        kept = (*draft.setbacks, *setbacks)
        return _with(draft, tuple(findings), evidence_edits=tuple(edits), setbacks=kept)

    return await _tried(draft, team, Part.EVIDENCE, attempt)


def _edit(gold: View, told: Mapping[str, Any]) -> EvidenceEdit | Refused:
    """One variation; what cannot be read of it spoils none of the others."""
    try:
        return evidence_edit(gold, told)
    except UnreadableReplyError as error:
        return Refused(error.kind, str(error))


def _of_edit(findings: Iterable[Finding], place: int) -> list[Finding]:
    return [replace(finding, edit=place) for finding in findings]


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
    told = content_hash(dict(guidelines()))
    setbacks = tuple(one.told for one in draft.setbacks)
    made = Provenance(team.constructor.name, team.verifier.name, told, draft.attempts, setbacks=setbacks)
    family = draft.family(made)
    setback = _gated(check_family(family)) or _too_long(length.of_family(family), team)
    return _given_up(draft.source, (setback,)) if setback else family


async def reverify(family: Family, team: Team) -> Family | Rejected:
    """The finished family before every screen and verifier once more. What they object to now is left out.

    One edit of the evidence that holds is enough; everything else must hold.
    """
    source, gold, second = family.source, family.gold, team.second
    assert source.reference_answer is not None
    findings: list[Finding] = []
    for checked in (await check_source(source, source.reference_answer, second), await check_target(gold, second)):
        if isinstance(checked, Setback):
            return _given_up(source, (checked,))
        findings += checked
    kept: dict[int, tuple[Finding, ...]] = {}
    setbacks: list[Setback] = []
    for place, edit in enumerate(family.evidence_edits):
        checked = await check_evidence(gold, edit, second)
        if isinstance(checked, Setback):
            setbacks.append(checked)
        else:
            kept[place] = checked
    if not kept:
        return _given_up(source, tuple(setbacks))
    checked = await check_question(gold, family.question_edit, second)
    if isinstance(checked, Setback):
        return _given_up(source, (*setbacks, checked))
    for number, found in enumerate(kept.values()):
        findings += _of_edit(found, number)
    return _with_second_check(family, second, list(kept), [*findings, *checked], setbacks)


def _with_second_check(
    family: Family, second: Team, kept: list[int], findings: list[Finding], setbacks: list[Setback]
) -> Family:
    """The family with the edits that held, and with what was said of them and of nothing else."""
    before = [
        one if one.edit is None else replace(one, edit=kept.index(one.edit))
        for one in family.findings
        if one.edit is None or one.edit in kept
    ]
    made = family.provenance
    assert made is not None
    return replace(
        family,
        evidence_edits=tuple(family.evidence_edits[place] for place in kept),
        findings=(*before, *findings),
        provenance=replace(
            made, reverifier=second.verifier.name, setbacks=(*made.setbacks, *(one.told for one in setbacks))
        ),
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
            return built.tried(part, number + 1, tuple(setbacks))
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
