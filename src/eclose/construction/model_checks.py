"""What screens and verifiers are shown of each part, and what they say of it.

The same for a candidate on its way and for the finished family: nothing here knows which of the two it looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.construction.draft import Setback
from eclose.protocol import construction as shown
from eclose.protocol.construction import Role
from eclose.protocol.material_json import shown_passages, shown_steps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from eclose.construction.roles import Team
    from eclose.core.family import EvidenceEdit, Finding, QuestionEdit, View
    from eclose.core.instance import Instance, Passage

    Checked: TypeAlias = "tuple[Finding, ...] | Setback"
    """What was said of a part that nobody objects to, or the first objection."""


async def check_source(source: Instance, reference: str, team: Team) -> Checked:
    """Whether a source can be built on. Nobody has reasoned about it yet."""
    seed = shown.Seed(source.question, shown_passages(source.evidence), reference, source.aliases)
    found = await team.judge(Role.SCREEN_SEED, seed)
    return found if isinstance(found, Setback) else (found,)


async def check_target(gold: View, team: Team) -> Checked:
    """Whether the original response is sound, aligned, closed and grounded, without the reference."""
    check = shown.TargetCheck(
        gold.question,
        shown_passages(gold.evidence),
        places(gold.evidence, gold.support_ids),
        shown_steps(gold.trace),
        gold.answer,
    )
    found = await team.judge(Role.VERIFY_TARGET, check, steps=len(gold.trace))
    return found if isinstance(found, Setback) else (found,)


async def check_evidence(gold: View, edit: EvidenceEdit, team: Team) -> Checked:
    """Whether an edit of the evidence switches one step and the answer, and nothing else."""
    view, edited = edit.view, shown_passages(edit.view.evidence)[edit.place]
    question, evidence = gold.question, shown_passages(gold.evidence)
    seen = shown.EvidenceScreen(question, evidence, edited, gold.answer, view.answer)
    screened = await team.judge(Role.SCREEN_EVIDENCE, seen)
    if isinstance(screened, Setback):
        return screened
    check = shown.EvidenceCheck(
        question,
        evidence,
        edited,
        shown_steps(gold.trace),
        gold.answer,
        shown_steps(view.trace),
        view.answer,
        edit.first_affected_step + 1,
    )
    verified = await team.judge(Role.VERIFY_EVIDENCE, check, steps=len(view.trace))
    return verified if isinstance(verified, Setback) else (screened, verified)


async def check_question(gold: View, edit: QuestionEdit, team: Team) -> Checked:
    """Whether another question switches the trace."""
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
    return verified if isinstance(verified, Setback) else (screened, verified)


def places(evidence: tuple[Passage, ...], ids: tuple[str, ...]) -> tuple[int, ...]:
    """Where passages stand, by their ids."""
    place: Mapping[str, int] = {passage.id: index for index, passage in enumerate(evidence)}
    return tuple(place[one] for one in ids)
