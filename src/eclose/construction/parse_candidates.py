"""What a constructor wrote -> the view it stands for, or why it stands for none.

The constructor names things; code puts them together. Unedited passages and the shared beginning of two traces are the
same because they are taken over, not because somebody copied them faithfully.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.core.edits import EditRefused, Replacement, edit_passage
from eclose.core.family import EvidenceEdit, Intervention, ProofStep, QuestionEdit, View, ViewKind
from eclose.core.response import Step, Trace
from eclose.protocol.structured import UnreadableReplyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eclose.core.instance import Instance, Passage


@dataclass(frozen=True, slots=True)
class Refused:
    """A candidate that stands for no view."""

    reason: str
    """Counted, so one of a few."""
    detail: str


def supported(source: Instance, indices: Iterable[int]) -> tuple[str, ...]:
    """The ids of passages by their indices, each once, in the order of the evidence."""
    return _ids(source.evidence, sorted(set(indices)))


def gold_view(source: Instance, support_ids: tuple[str, ...], told: Mapping[str, Any]) -> View:
    """The original response."""
    trace, proof = _written(told["steps"], source.evidence)
    return View(ViewKind.GOLD, source.question, source.evidence, trace, told["answer"].strip(), support_ids, proof)


def evidence_edit(gold: View, told: Mapping[str, Any]) -> EvidenceEdit | Refused:
    """One variation: the passage is edited here, and the steps before the first affected one are taken over."""
    (passage_id,) = _ids(gold.evidence, [told["passage"]])
    place = next(number for number, one in enumerate(gold.evidence) if one.id == passage_id)
    passage, first = gold.evidence[place], told["first"] - 1
    if told["claim"] not in passage.text:
        return Refused("claim_not_found", f"{told['claim']!r} does not stand in passage {place}.")
    if not 0 <= first < len(gold.trace):
        return Refused("no_such_step", f"step {first + 1} is said to be the first affected, of {len(gold.trace)}.")
    intervention = Intervention(
        told["claim"],
        tuple(Replacement(one["old"], one["new"]) for one in told["replacements"]),
        tuple(told["keep"]),
    )
    edited = edit_passage(passage, intervention.replacements, intervention.keep)
    if isinstance(edited, EditRefused):
        return Refused(edited.failures[0].problem.value, "; ".join(map(str, edited.failures)))
    evidence = (*gold.evidence[:place], edited.passage, *gold.evidence[place + 1 :])
    rest, proof = _written(told["steps"], evidence, before=first)
    proof = (*gold.proof[:first], *proof)
    view = View(
        ViewKind.EVIDENCE_CF,
        gold.question,
        evidence,
        Trace((*gold.trace.steps[:first], *rest.steps)),
        told["answer"].strip(),
        _support(gold, proof),
        proof,
    )
    return EvidenceEdit(view, passage_id, first, intervention)


def _support(gold: View, proof: tuple[ProofStep, ...]) -> tuple[str, ...]:
    """Return what the steps rest on: a changed claim may lead to other passages.

    Where they name fewer than two, the original's support is taken along.
    """
    named = {id_ for node in proof for id_ in node.passage_ids}
    support = named if len(named) > 1 else named.union(gold.support_ids)
    return tuple(passage.id for passage in gold.evidence if passage.id in support)


def question_edit(gold: View, told: Mapping[str, Any]) -> QuestionEdit:
    """Another question to the same evidence."""
    trace, proof = _written(told["steps"], gold.evidence)
    support_ids = _ids(gold.evidence, sorted(set(told["support"])))
    question, answer = told["question"].strip(), told["answer"].strip()
    view = View(ViewKind.QUESTION_CF, question, gold.evidence, trace, answer, support_ids, proof)
    return QuestionEdit(view, told["component"].strip() or None)


def _written(
    steps: Sequence[Mapping[str, Any]], evidence: tuple[Passage, ...], before: int = 0
) -> tuple[Trace, tuple[ProofStep, ...]]:
    """Steps and what each rests on; ``before`` steps of the trace are there already."""
    proof = []
    for place, step in enumerate(steps, start=before):
        premises = tuple(sorted({number - 1 for number in step["premises"]}))
        if any(not 0 <= premise < place for premise in premises):
            told = f"step {place + 1} rests on {step['premises']}, which do not all stand before it."
            raise UnreadableReplyError("wrong premises", told)
        proof.append(ProofStep(_ids(evidence, sorted(set(step["passages"]))), premises))
    return Trace(tuple(Step(step["text"].strip()) for step in steps)), tuple(proof)


def _ids(evidence: tuple[Passage, ...], indices: Sequence[int]) -> tuple[str, ...]:
    if wrong := [index for index in indices if not 0 <= index < len(evidence)]:
        raise UnreadableReplyError("no such passage", f"there are no passages {wrong} among {len(evidence)}.")
    return tuple(evidence[index].id for index in indices)
