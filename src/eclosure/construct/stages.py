"""One source to its family, part by part: each is built, held against the gates, screened and verified.

A part takes a draft and returns it with one thing more, or rejects the source with everything that was said against
its candidates. ``B = V and Q and H``: the checks by models, the constructor's own word that it is done, and the gates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from eclosure.construct.draft import Draft, GivenUp, Setback
from eclosure.construct.settings import Part
from eclosure.construct.views import Refused, evidence_edit, gold_view, question_edit, supported
from eclosure.core.gates import check_evidence_edit, check_family, check_gold, check_question_edit
from eclosure.protocol import construction as shown
from eclosure.protocol.construction import Role
from eclosure.protocol.material import ShownPassage, shown_passages, shown_steps
from eclosure.store.runner import Rejected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from eclosure.construct.team import Team
    from eclosure.core.family import EvidenceEdit, Family, Finding, QuestionEdit, View
    from eclosure.core.gates import GateFailure
    from eclosure.core.instance import Instance

NO_REFERENCE = "there is no reference answer"
GATES, CODE = "gates", "code"

Built: TypeAlias = "Draft | tuple[Setback, ...]"
"""A draft with one thing more, or why each candidate was not accepted."""


async def screen(source: Instance, team: Team) -> Draft | Rejected:
    """Whether a source can be built on, and on which passages. Nobody has reasoned about it yet."""
    if source.reference_answer is None:
        return Rejected(NO_REFERENCE)
    evidence = shown_passages(source.evidence)
    seed = shown.Seed(source.question, evidence, source.reference_answer, source.aliases)
    found = await team.judge(Role.SCREEN_SEED, seed)
    if isinstance(found, Setback):
        return _given_up(source, (found,))
    return Draft(source, supported(source, found.said["support"]), findings=(found,))


async def build_target(draft: Draft, team: Team) -> Draft | Rejected:
    """The original response, verified without the reference."""

    async def attempt(number: int, objection: str | None) -> Built:
        source, reference = draft.source, draft.source.reference_answer
        assert reference is not None
        brief = shown.TargetBrief(
            source.question, shown_passages(source.evidence), _support(draft), reference, objection
        )
        made = await team.construct(brief, lambda told: gold_view(source, draft.support_ids, told), number)
        if isinstance(made, Setback):
            return (made,)
        if setback := _gated(check_gold(source, made)):
            return (setback,)
        check = shown.TargetCheck(**_given(draft, made))
        found = await team.judge(Role.VERIFY_TARGET, check, steps=len(made.trace))
        return (found,) if isinstance(found, Setback) else _with(draft, [found], gold=made)

    return await _tried(draft, team, Part.TARGET, attempt)


async def build_evidence(draft: Draft, team: Team) -> Draft | Rejected:
    """Edits of the evidence, each with the response that follows from it; one is enough."""
    gold = _gold(draft)

    async def attempt(number: int, objection: str | None) -> Built:
        brief = shown.EvidenceBrief(**_given(draft, gold), wanted=team.settings.edits, objection=objection)
        made = await team.construct(
            brief, lambda told: [evidence_edit(gold, one) for one in told["variations"]], number
        )
        if isinstance(made, Setback):
            return (made,)
        if not made:
            return (Setback(CODE, "no variation", "the constructor says it is done, and made none."),)
        accepted: list[tuple[EvidenceEdit, list[Finding]]] = []
        setbacks: list[Setback] = []
        for one in made[: team.settings.edits]:
            checked = await _checked_edit(draft, gold, one, team, [edit for edit, _ in accepted])
            if isinstance(checked, Setback):
                setbacks.append(checked)
            else:
                accepted.append((one, checked))
        if not accepted:
            return tuple(setbacks)
        findings = [finding for _, found in accepted for finding in found]
        return _with(draft, findings, evidence_edits=tuple(edit for edit, _ in accepted))

    return await _tried(draft, team, Part.EVIDENCE, attempt)


async def _checked_edit(
    draft: Draft, gold: View, edit: EvidenceEdit | Refused, team: Team, before: list[EvidenceEdit]
) -> list[Finding] | Setback:
    """One candidate through code, gates, screen and verifier."""
    if isinstance(edit, Refused):
        return Setback(CODE, edit.reason, edit.detail)
    if any(edit.view.evidence == other.view.evidence for other in before):
        return Setback(CODE, "same edit twice", "an earlier variation changed the passage in the same way.")
    if setback := _gated(check_evidence_edit(draft.source, gold, edit)):
        return setback
    edited = _edited_passage(edit)
    question, evidence = gold.question, shown_passages(gold.evidence)
    seen = shown.EvidenceScreen(question, evidence, edited, gold.answer, edit.view.answer)
    screened = await team.judge(Role.SCREEN_EVIDENCE, seen)
    if isinstance(screened, Setback):
        return screened
    check = shown.EvidenceCheck(
        question,
        evidence,
        edited,
        shown_steps(gold.trace),
        gold.answer,
        shown_steps(edit.view.trace),
        edit.view.answer,
        edit.first_affected_step + 1,
    )
    verified = await team.judge(Role.VERIFY_EVIDENCE, check, steps=len(edit.view.trace))
    return verified if isinstance(verified, Setback) else [screened, verified]


async def build_question(draft: Draft, team: Team) -> Draft | Rejected:
    """Another question to the same evidence, with its response."""
    gold = _gold(draft)

    async def attempt(number: int, objection: str | None) -> Built:
        brief = shown.QuestionBrief(**_given(draft, gold), objection=objection)
        made = await team.construct(brief, lambda told: question_edit(gold, told), number)
        if isinstance(made, Setback):
            return (made,)
        if setback := _gated(check_question_edit(draft.source, gold, made)):
            return (setback,)
        checked = await _checked_question(gold, made, team)
        return (checked,) if isinstance(checked, Setback) else _with(draft, checked, question_edit=made)

    return await _tried(draft, team, Part.QUESTION, attempt)


async def _checked_question(gold: View, edit: QuestionEdit, team: Team) -> list[Finding] | Setback:
    evidence, view = shown_passages(gold.evidence), edit.view
    seen = shown.QuestionScreen(gold.question, view.question, evidence, gold.answer, view.answer)
    screened = await team.judge(Role.SCREEN_QUESTION, seen)
    if isinstance(screened, Setback):
        return screened
    check = shown.QuestionCheck(
        gold.question,
        view.question,
        evidence,
        shown_steps(gold.trace),
        gold.answer,
        shown_steps(view.trace),
        view.answer,
    )
    verified = await team.judge(Role.VERIFY_QUESTION, check, steps=len(view.trace))
    return verified if isinstance(verified, Setback) else [screened, verified]


def pack(draft: Draft) -> Family | Rejected:
    """The family, held against every gate once more, now that its parts are together."""
    family = draft.family()
    if setback := _gated(check_family(family)):
        return _given_up(draft.source, (setback,))
    return family


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


def _with(draft: Draft, findings: list[Finding], **more: Any) -> Draft:
    return replace(draft, findings=(*draft.findings, *findings), **more)


def _gold(draft: Draft) -> View:
    assert draft.gold is not None
    return draft.gold


def _support(draft: Draft) -> tuple[int, ...]:
    places: Mapping[str, int] = {passage.id: index for index, passage in enumerate(draft.source.evidence)}
    return tuple(places[one] for one in draft.support_ids)


def _given(draft: Draft, gold: View) -> dict[str, Any]:
    """What several of them are shown."""
    return {
        "question": gold.question,
        "evidence": shown_passages(gold.evidence),
        "support": _support(draft),
        "steps": shown_steps(gold.trace),
        "answer": gold.answer,
    }


def _edited_passage(edit: EvidenceEdit) -> ShownPassage:
    passages = shown_passages(edit.view.evidence)
    return next(one for one, passage in zip(passages, edit.view.evidence, strict=True) if passage.id == edit.passage_id)
