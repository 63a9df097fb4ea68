"""The deterministic gates H of appendix B: checks of a family's structure that need no language model.

Semantic properties (soundness, alignment, closure, uniqueness) are left to judges. Every failed gate gives a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING

from eclose.values.answers import contains_token_span, match_any_answer, normalize_answer
from eclose.values.family import ViewKind
from eclose.values.response import parse_completion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.values.family import EvidenceEdit, Family, QuestionEdit, View
    from eclose.values.instance import Instance


class FamilyGate(StrEnum):
    """The names of the checks, by which a funnel counts failures."""

    WELL_FORMED = "well_formed"
    IDENTIFIER_MEMBERSHIP = "identifier_membership"
    GOLD_INPUT = "gold_input"
    GOLD_ANSWER = "gold_answer"
    ANSWER_CHANGED = "answer_changed"
    SAME_QUESTION = "same_question"
    SINGLE_EDITED_PASSAGE = "single_edited_passage"
    UNEDITED_IDENTICAL = "unedited_identical"
    EDIT_IN_SUPPORT = "edit_in_support"
    SHARED_PREFIX = "shared_prefix"
    FIRST_DIVERGENCE = "first_divergence"
    SAME_EVIDENCE = "same_evidence"
    QUESTION_CHANGED = "question_changed"
    NO_ANSWER_LEAK = "no_answer_leak"


@dataclass(frozen=True, slots=True)
class FamilyGateFailure:
    """A gate that a family failed, with the reason."""

    gate: FamilyGate
    where: str
    """Part of the family: ``family``, ``gold``, ``evidence edit 1``, ``question edit``."""
    detail: str

    def __str__(self) -> str:
        """Return part, gate and reason as one line."""
        return f"{self.where}: {self.gate.value}: {self.detail}"


def check_family(family: Family) -> tuple[FamilyGateFailure, ...]:
    """Return every gate that the family fails.

    Args:
        family: A family from any source; nothing about it is assumed.

    Returns:
        The failures of the gold view, then of each evidence edit, then of the question edit; empty where all pass.

    Examples:
        >>> from eclose import Family, Instance, Trace
        >>> from eclose.values.family import QuestionEdit, View, ViewKind
        >>> source = Instance("q1", "Who directed Moonstruck?", (), "Norman Jewison")
        >>> gold = View(ViewKind.GOLD, source.question, (), Trace.of("Jewison did."), "Norman Jewison", ())
        >>> print(check_family(Family("f1", source, gold, (), QuestionEdit(gold)))[0])
        gold: well_formed: there is no supporting passage
    """
    return tuple(_find_failures(family))


MIN_SUPPORTING_PASSAGES = 2
"""Smallest number of supporting passages of a source and its gold view (appendix B.2); edited views need one."""


def _find_failures(family: Family) -> Iterator[FamilyGateFailure]:
    source, gold = family.source, family.gold
    yield from check_original_response(source, gold)
    if not family.evidence_edits:
        yield FamilyGateFailure(FamilyGate.WELL_FORMED, "family", "there is no evidence edit")
    for number, edit in enumerate(family.evidence_edits, start=1):
        yield from check_evidence_edit(source, gold, edit, f"evidence edit {number}")
    yield from check_question_edit(source, gold, family.question_edit)


def check_original_response(source: Instance, gold: View, where: str = "gold") -> Iterator[FamilyGateFailure]:
    """Yield the gates that the original response fails."""
    yield from _check_view(gold, ViewKind.GOLD, where)
    if len(set(gold.support_ids)) < MIN_SUPPORTING_PASSAGES:
        yield FamilyGateFailure(FamilyGate.WELL_FORMED, where, "fewer than two supporting passages")
    for number, node in enumerate(gold.proof, start=1):
        if not node.passage_ids and not node.premises:
            yield FamilyGateFailure(
                FamilyGate.WELL_FORMED, where, f"step {number} rests on no passage and no earlier step"
            )
    if gold.question != source.question or gold.evidence != source.evidence:
        yield FamilyGateFailure(FamilyGate.GOLD_INPUT, where, "question or evidence differs from the source")
    if not match_any_answer(gold.answer, source.accepted_answers):
        yield FamilyGateFailure(
            FamilyGate.GOLD_ANSWER,
            where,
            f"{gold.answer!r} does not match the reference {source.reference_answer!r}",
        )


def check_evidence_edit(
    source: Instance, gold: View, edit: EvidenceEdit, where: str = "evidence edit"
) -> Iterator[FamilyGateFailure]:
    """Yield the gates that an evidence edit fails."""
    view = edit.view
    yield from _check_view(view, ViewKind.EVIDENCE_CF, where)
    if view.question != gold.question:
        yield FamilyGateFailure(FamilyGate.SAME_QUESTION, where, "the question changed too")
    yield from _check_edited_passage(gold, edit, where)
    yield from _check_divergence(gold, edit, where)
    yield from _check_changed_answer(source, gold, view, where)


def check_question_edit(
    source: Instance, gold: View, edit: QuestionEdit, where: str = "question edit"
) -> Iterator[FamilyGateFailure]:
    """Yield the gates that the question edit fails."""
    view = edit.view
    yield from _check_view(view, ViewKind.QUESTION_CF, where)
    # Traces need not share a prefix here: a new target may change the first step already (appendix B.5).
    if view.evidence != gold.evidence:
        yield FamilyGateFailure(FamilyGate.SAME_EVIDENCE, where, "the evidence changed too")
    if normalize_answer(view.question) == normalize_answer(gold.question):
        yield FamilyGateFailure(FamilyGate.QUESTION_CHANGED, where, "the question asks the same in the same words")
    if _leaks_answer(view, gold):
        yield FamilyGateFailure(
            FamilyGate.NO_ANSWER_LEAK, where, f"the edited question names its answer {view.answer!r}"
        )
    yield from _check_changed_answer(source, gold, view, where)


def _leaks_answer(view: View, gold: View) -> bool:
    # A choice question names its candidates from the start ("…, Please Give or Moonstruck?"), and "no" occurs in many
    # questions: neither gives the answer away.
    answer = normalize_answer(view.answer)
    return (
        answer not in {("yes",), ("no",)}
        and contains_token_span(normalize_answer(view.question), answer)
        and not contains_token_span(normalize_answer(gold.question), answer)
    )


def _check_view(view: View, kind: ViewKind, where: str) -> Iterator[FamilyGateFailure]:
    """Yield the structural errors of one view: kind, texts, steps, identifiers, proof graph."""

    def broken(detail: str) -> FamilyGateFailure:
        return FamilyGateFailure(FamilyGate.WELL_FORMED, where, detail)

    if view.kind is not kind:
        yield broken(f"the kind of the view is {view.kind.value} and should be {kind.value}")
    if not view.question.strip():
        yield broken("the question is empty")
    if not normalize_answer(view.answer):
        yield broken(f"the answer {view.answer!r} has no token after normalisation")
    if not view.trace.steps:
        yield broken("the trace has no step")
    # Training writes views as completions, so a view must survive being parsed: no line break or answer line in a step.
    completion = f"{view.trace.numbered}Final answer: {view.answer}"
    parsed = parse_completion(completion)
    if view.trace.steps and (parsed.trace, parsed.answer) != (view.trace, view.answer):
        yield broken("trace and answer do not survive being written and read back as a completion")
    ids = [passage.id for passage in view.evidence]
    if len(set(ids)) != len(ids):
        yield broken("two passages share an id")
    if not view.support_ids:
        yield broken("there is no supporting passage")
    if view.proof and len(view.proof) != len(view.trace):
        yield broken(f"{len(view.proof)} proof nodes for {len(view.trace)} steps")
    for number, node in enumerate(view.proof):
        # Premises point backwards only, so the proof graph has no cycle.
        if any(not 0 <= premise < number for premise in node.premises):
            yield broken(f"step {number + 1} rests on a step that does not precede it")
    yield from _check_identifiers(view, where)


def _check_identifiers(view: View, where: str) -> Iterator[FamilyGateFailure]:
    """Yield unknown passage ids, and steps that rest on passages outside the support of the view.

    The support of the original response is E (appendix B.3). An edit may lead to other passages, so each edited view
    lists a separate support.
    """

    def broken(detail: str) -> FamilyGateFailure:
        return FamilyGateFailure(FamilyGate.IDENTIFIER_MEMBERSHIP, where, detail)

    ids = {passage.id for passage in view.evidence}
    cited = {*view.support_ids, *(id_ for node in view.proof for id_ in node.passage_ids)}
    if unknown := sorted(cited - ids):
        yield broken(f"no such passage: {', '.join(unknown)}")
    for number, node in enumerate(view.proof, start=1):
        for id_ in node.passage_ids:
            if id_ in ids and id_ not in view.support_ids:
                yield broken(f"step {number} rests on passage {id_}, which is not a supporting passage")


def _check_edited_passage(gold: View, edit: EvidenceEdit, where: str) -> Iterator[FamilyGateFailure]:
    """Yield a failure unless exactly one passage differs, in its text alone, and is the one that the edit names."""
    # zip_longest pairs a missing passage with None, so an added or removed passage counts as a difference.
    pairs = list(zip_longest(gold.evidence, edit.view.evidence))
    changed = [(before, after) for before, after in pairs if before != after]
    if len(changed) != 1:
        yield FamilyGateFailure(FamilyGate.SINGLE_EDITED_PASSAGE, where, f"{len(changed)} passages differ")
    for before, after in changed:
        if before is None or after is None or (before.id, before.title) != (after.id, after.title):
            yield FamilyGateFailure(
                FamilyGate.UNEDITED_IDENTICAL, where, "an id, a title or the number of passages changed"
            )
        elif before.id != edit.passage_id:
            yield FamilyGateFailure(
                FamilyGate.UNEDITED_IDENTICAL,
                where,
                f"passage {before.id} differs, but {edit.passage_id} was edited",
            )
    if edit.passage_id not in gold.support_ids:
        yield FamilyGateFailure(
            FamilyGate.EDIT_IN_SUPPORT, where, f"passage {edit.passage_id} is not a supporting passage"
        )


def _check_divergence(gold: View, edit: EvidenceEdit, where: str) -> Iterator[FamilyGateFailure]:
    """Yield a failure unless the traces agree before the first affected step and differ at it."""
    original, edited, first = gold.trace.steps, edit.view.trace.steps, edit.first_affected_step
    if not 0 <= first < min(len(original), len(edited)):
        yield FamilyGateFailure(FamilyGate.FIRST_DIVERGENCE, where, f"step {first + 1} does not exist in both traces")
        return
    if original[:first] != edited[:first]:
        yield FamilyGateFailure(FamilyGate.SHARED_PREFIX, where, f"the traces differ before step {first + 1}")
    if original[first] == edited[first]:
        yield FamilyGateFailure(FamilyGate.FIRST_DIVERGENCE, where, f"step {first + 1} is the same in both traces")


def _check_changed_answer(source: Instance, gold: View, view: View, where: str) -> Iterator[FamilyGateFailure]:
    """Yield a failure where the edited answer matches the original answer or an alias."""
    # Aliases count as the original answer: an edit that leads to one of them has not changed the answer.
    if match_any_answer(view.answer, (gold.answer, *source.accepted_answers)):
        yield FamilyGateFailure(
            FamilyGate.ANSWER_CHANGED, where, f"{view.answer!r} still matches {gold.answer!r} or an alias"
        )
