"""The conditions of appendix B, decided from words: a function per checking role, a label per judgment.

Labels are named as in the replies (``protocol.acceptance``). A label is None where the grammar cannot read a text it
rests on. :func:`find_family_defects` checks a family against all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.values.answers import contains_token_span, normalize_answer
from eclose.values.family_rules import MIN_SUPPORTING_PASSAGES
from eclose.values.instance import Instance
from eclose.values.response import Response, Trace
from eclose.values.three_valued import Label, three_valued_and
from eclose_train.construction.questions import (
    ACCEPTANCE_CONDITIONS,
    SOUNDNESS_JUDGEMENT,
    ConstructionRole,
    SourceQuestionDefect,
)
from eclose_world.language.phrases import PRONOUNS, PersonOfTwoDeeds, RelationPhrase
from eclose_world.language.questions import NO, YES, ComparisonQuestion, LookupQuestion, Target, parse_question
from eclose_world.language.values import parse_answer_value
from eclose_world.oracle import edit_validity
from eclose_world.oracle.answer_equality import is_same_answer
from eclose_world.oracle.evidence import parse_evidence_facts
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.oracle.soundness import judge_step_soundness

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.values.family import EvidenceEdit, Family, View
    from eclose.values.instance import Passage
    from eclose_world.oracle.evidence import ValueDerivation

Passages = tuple["Passage", ...]
# Answers of the world are shorter; bad sources of the kind long_answer are far longer.
MAX_ANSWER_WORDS = 10
"""Longest short answer, in words."""


@dataclass(frozen=True, slots=True)
class ReasonedResponse:
    """A response: reasoning and answer."""

    trace: Trace
    answer: str


@dataclass(frozen=True, slots=True)
class CandidateLabels:
    """Labels of a candidate, judgment by judgment."""

    labels: Mapping[str, Label]
    steps: tuple[Label, ...] | None = None
    """Whether each step is sound; None where no steps are judged."""

    @property
    def readable(self) -> bool:
        """Whether every label was decided."""
        return None not in self.labels.values() and None not in (self.steps or ())

    def objections(self, role: ConstructionRole) -> Iterator[str]:
        """Yield the labels that differ from those required, undecided ones included."""
        for number, sound in enumerate(self.steps or (), start=1):
            if not sound:
                yield f"{'cannot read' if sound is None else SOUNDNESS_JUDGEMENT}: step {number}"
        for name, required in ACCEPTANCE_CONDITIONS[role].items():
            if (label := self.labels[name]) is not required:
                yield f"cannot read: {name}" if label is None else name


# Warrant.


def _find_answer_derivations(question: str, passages: Passages) -> list[ValueDerivation] | None:
    target = parse_question(question)
    return None if target is None else parse_evidence_facts(passages).find_answers(target)


def is_answer_warranted(question: str, passages: Passages, answer: str) -> Label:
    """Return W: whether the passages warrant the answer, under any name they give it."""
    derivations = _find_answer_derivations(question, passages)
    if derivations is None:
        return None
    if any(_leads_to_answer(answer, derivation, passages) for derivation in derivations):
        return True
    return None if parse_evidence_facts(passages).unread else False


def is_only_warranted_answer(question: str, passages: Passages, answer: str) -> Label:
    """Return whether the passages warrant no answer that excludes this one."""
    derivations = _find_answer_derivations(question, passages)
    if derivations is None:
        return None
    if not all(_leads_to_answer(answer, derivation, passages) for derivation in derivations):
        return False
    # An unread sentence could state a second answer.
    return None if parse_evidence_facts(passages).unread else True


def _leads_to_answer(answer: str, derivation: ValueDerivation, passages: Passages) -> bool:
    return is_same_answer(answer, derivation.value) or parse_evidence_facts(passages).same_entity(
        parse_answer_value(answer), derivation.value
    )


def label_warranted_steps(question: str, passages: Passages, trace: Trace) -> tuple[Label, ...]:
    """Return J: whether each step is warranted by the passages; a step without a claim is."""
    target = parse_question(question)
    steps, _, _ = judge_step_soundness(
        passages, trace, target.options if isinstance(target, ComparisonQuestion) else ()
    )
    return tuple(True if step.substantive is False else step.sound for step in steps)


def _is_trace_aligned(question: str, trace: Trace) -> Label:
    """Return A: whether the trace pursues what the question asks, from these two alone."""
    # Empty evidence and no answer: the label cannot depend on them.
    return judge_by_oracle(Instance("", question, ()), Response("", "", trace, None)).aligned


def _is_trace_closed(question: str, trace: Trace, answer: str) -> Label:
    """Return C: whether the trace establishes the answer; for a misaligned trace, that of its own target."""
    # No evidence and no reference: the label cannot depend on them.
    return judge_by_oracle(Instance("", question, ()), Response("", "", trace, answer)).closed


# One function for each role.


@dataclass(frozen=True, slots=True)
class SourceScreening:
    """The outcome of the screening of a source."""

    support: tuple[int, ...]
    conditions: CandidateLabels
    defect: SourceQuestionDefect | None


def screen_source(question: str, passages: Passages, accepted: Sequence[str]) -> SourceScreening:
    """Screen a source (B.2): find the support of the reference, and whether only it warrants the reference."""
    derivations = _find_answer_derivations(question, passages) or []
    matching = [
        derivation
        for derivation in derivations
        if any(_leads_to_answer(answer, derivation, passages) for answer in accepted)
    ]
    # The support of the reference where it is derived, else of the first answer.
    support = tuple(sorted((matching or derivations)[0].support)) if derivations else ()
    others = tuple(passage for index, passage in enumerate(passages) if index not in support)
    supporting = tuple(passages[index] for index in support)
    labels = {
        "warranted": _any_warranted(question, supporting, accepted),
        "unique": three_valued_and((bool(matching), _any_only_answer(question, passages, accepted))),
        "elsewhere": _any_warranted(question, others, accepted),
    }
    defect = _find_source_defect(question, passages, accepted, derivations, matching)
    # A malformed question is rejected, not undecided: the defect says why.
    if parse_question(question) is None:
        labels = dict.fromkeys(labels, False)
    return SourceScreening(support, CandidateLabels(labels), defect)


def _any_warranted(question: str, passages: Passages, accepted: Sequence[str]) -> Label:
    labels = [is_answer_warranted(question, passages, answer) for answer in accepted]
    return True if True in labels else None if None in labels else False


def _any_only_answer(question: str, passages: Passages, accepted: Sequence[str]) -> Label:
    labels = [is_only_warranted_answer(question, passages, answer) for answer in accepted]
    return True if True in labels else None if None in labels else False


def _find_source_defect(
    question: str,
    passages: Passages,
    accepted: Sequence[str],
    derivations: list[ValueDerivation],
    matching: list[ValueDerivation],
) -> SourceQuestionDefect | None:
    target = parse_question(question)
    if target is None:
        return SourceQuestionDefect.MALFORMED
    # The order decides which defect is reported where a source has several.
    if len(accepted[0].split()) > MAX_ANSWER_WORDS:
        return SourceQuestionDefect.LONG_ANSWER
    if len(derivations) > 1:
        return SourceQuestionDefect.UNDERDETERMINED
    if derivations:
        return None if matching else SourceQuestionDefect.UNSUPPORTED_REFERENCE
    return (
        SourceQuestionDefect.BROKEN_LINK
        if _states_unlinked_value(target, passages, accepted)
        else SourceQuestionDefect.UNDERDETERMINED
    )


def _states_unlinked_value(target: Target, passages: Passages, accepted: Sequence[str]) -> bool:
    if not isinstance(target, LookupQuestion) or not target.phrase.path:
        return False
    stated = (statement for reading in parse_evidence_facts(passages).readings for statement in reading.statements)
    values = [statement.value for statement in stated if statement.relation is target.phrase.path[-1]]
    return any(is_same_answer(answer, value) for answer in accepted for value in values)


def check_target_response(
    question: str, passages: Passages, support: Sequence[int], response: ReasonedResponse
) -> tuple[CandidateLabels, list[int]]:
    """Check the original response (B.3): L, A, C and R_E; also return the steps that only other passages support.

    Every step with a claim counts as needed.
    """
    steps = label_warranted_steps(question, passages, response.trace)
    # Grounding R_E: a step must hold on the support alone.
    inside = label_warranted_steps(question, tuple(passages[index] for index in support), response.trace)
    pairs = enumerate(zip(steps, inside, strict=True), start=1)
    outside = [number for number, (label, inside_label) in pairs if label and inside_label is False]
    labels = {
        "alignment.aligned": _is_trace_aligned(question, response.trace),
        "closure.closed": _is_trace_closed(question, response.trace, response.answer),
        "grounding.grounded": not outside,
    }
    return CandidateLabels(labels, steps), outside


def screen_evidence_edit(
    question: str, before: Passages, index: int, edited: Passage, answer: str, new: str
) -> CandidateLabels:
    """Screen an edit of the evidence (B.4) without traces: one claim changed, and the answer with it."""
    after, target = replace_passage(before, index, edited), parse_question(question)
    return CandidateLabels(
        {
            "localized": edit_validity.is_localized_edit(before[index], edited),
            "coherent": edit_validity.is_coherent_edit(before, after, index),
            "edited_after": is_answer_warranted(question, after, new),
            "unique_after": is_only_warranted_answer(question, after, new),
            "original_after": is_answer_warranted(question, after, answer),
            "edited_before": is_answer_warranted(question, before, new),
            "same_kind": None if target is None else edit_validity.is_same_answer_kind(target, answer, new),
        }
    )


def replace_passage(passages: Passages, index: int, edited: Passage) -> Passages:
    """Return the passages with one of them replaced."""
    return (*passages[:index], edited, *passages[index + 1 :])


def check_evidence_switch(
    question: str, before: Passages, after: Passages, gold: ReasonedResponse, new: ReasonedResponse, first: int
) -> CandidateLabels:
    """Check an edit of the evidence (B.4) with traces; ``first`` is the index of the first affected step.

    Steps and closure must switch there: each trace holds on its own passages and not on the other's.
    """
    gold_before, new_after = (
        label_warranted_steps(question, before, gold.trace),
        label_warranted_steps(question, after, new.trace),
    )
    gold_after, new_before = (
        label_warranted_steps(question, after, gold.trace),
        label_warranted_steps(question, before, new.trace),
    )
    # gold/new: which trace; before/after: which passages it is judged on.
    labels = {
        "prefix.before": three_valued_and(gold_before[:first]),
        "prefix.after": three_valued_and(gold_after[:first]),
        "switching.original_before": _label_at(gold_before, first),
        "switching.original_after": _label_at(gold_after, first),
        "switching.edited_before": _label_at(new_before, first),
        "switching.edited_after": _label_at(new_after, first),
        "alignment.aligned": _is_trace_aligned(question, new.trace),
        "closure.original": _is_trace_closed(question, gold.trace, gold.answer),
        "closure.edited": _is_trace_closed(question, new.trace, new.answer),
        "closure.original_to_edited": _is_trace_closed(question, gold.trace, new.answer),
        "closure.edited_to_original": _is_trace_closed(question, new.trace, gold.answer),
    }
    return CandidateLabels(labels, new_after)


def _label_at(labels: Sequence[Label], index: int) -> Label:
    return labels[index] if 0 <= index < len(labels) else None


def screen_question_edit(question: str, edited: str, passages: Passages, answer: str, new: str) -> CandidateLabels:
    """Screen an edit of the question (B.5) without traces: another target, each question with its own answer."""
    old_target, target = parse_question(question), parse_question(edited)
    derivations = _find_answer_derivations(edited, passages)
    # The shortest derivation decides whether several steps are needed.
    facts = min((len(derivation.hops) for derivation in derivations), default=0) if derivations is not None else 0
    return CandidateLabels(
        {
            "changed": None
            if old_target is None or target is None
            else _normalise_target(old_target) != _normalise_target(target),
            "edited_warranted": is_answer_warranted(edited, passages, new),
            "edited_unique": is_only_warranted_answer(edited, passages, new),
            "original_fits_edited": is_answer_warranted(edited, passages, answer),
            "edited_fits_original": is_answer_warranted(question, passages, new),
            "natural": None if target is None else _is_unambiguous(target, passages),
            "several_steps": None if target is None else facts > 1,
            "degenerate": None if target is None else _is_degenerate(target, edited, new),
        }
    )


def _normalise_target(target: Target) -> object:
    """Return the target apart from wording and from the order of its two sides."""
    if isinstance(target, LookupQuestion):
        return _normalise_phrase(target.phrase)
    sides = frozenset(_normalise_phrase(phrase) for phrase in target.phrases())
    return type(target), sides, target.least if isinstance(target, ComparisonQuestion) else None


def _normalise_phrase(phrase: RelationPhrase) -> RelationPhrase:
    base = (
        PersonOfTwoDeeds(tuple(sorted(phrase.base.deeds, key=str)))
        if isinstance(phrase.base, PersonOfTwoDeeds)
        else phrase.base
    )
    return RelationPhrase(base, phrase.path)


def _is_unambiguous(target: Target, passages: Passages) -> bool:
    """Return whether the question has no pronoun and no name shared by two entities of a kind."""
    phrases = (target.phrase,) if isinstance(target, LookupQuestion) else target.phrases()
    evidence = parse_evidence_facts(passages)
    for phrase in phrases:
        # Two deeds identify the person.
        if isinstance(phrase.base, PersonOfTwoDeeds):
            continue
        if phrase.base in PRONOUNS or len(evidence.find_referents(phrase.base, phrase.start_type or "")) > 1:
            return False
    return True


def _is_degenerate(target: Target, question: str, answer: str) -> bool:
    """Return whether the question contains its answer without offering it, or compares a thing with itself."""
    if not isinstance(target, LookupQuestion):
        first, second = target.phrases()
        return _normalise_phrase(first) == _normalise_phrase(second)
    # Yes and no may occur in any question.
    words = normalize_answer(answer)
    return words not in {(YES,), (NO,)} and contains_token_span(normalize_answer(question), words)


def check_question_switch(
    question: str, edited: str, passages: Passages, gold: ReasonedResponse, new: ReasonedResponse
) -> CandidateLabels:
    """Check an edit of the question (B.5) with traces.

    Each trace must be aligned with its own question alone, and the new one must establish its answer.
    """
    labels = {
        "alignment.original": _is_trace_aligned(question, gold.trace),
        "alignment.edited": _is_trace_aligned(edited, new.trace),
        "alignment.edited_to_original": _is_trace_aligned(question, new.trace),
        "alignment.original_to_edited": _is_trace_aligned(edited, gold.trace),
        "closure.closed": _is_trace_closed(edited, new.trace, new.answer),
    }
    return CandidateLabels(labels, label_warranted_steps(edited, passages, new.trace))


# Whole families.


def find_family_defects(family: Family) -> tuple[str, ...]:
    """Return the defects of a family, found from its words alone; empty for a correct one."""
    return tuple(_iterate_defects(family))


def _iterate_defects(family: Family) -> Iterator[str]:
    source, gold = family.source, family.gold
    yield from (f"source: {defect}" for defect in find_source_defects(source))
    yield from (f"gold: {defect}" for defect in find_gold_response_defects(source, gold))
    if not family.evidence_edits:
        yield "there is no evidence edit"
    for number, edit in enumerate(family.evidence_edits, start=1):
        yield from (f"evidence edit {number}: {defect}" for defect in find_evidence_edit_defects(gold, edit))
    yield from (f"question edit: {defect}" for defect in find_question_edit_defects(gold, family.question_edit.view))


def find_source_defects(source: Instance) -> Iterator[str]:
    """Yield the defects of a source (B.2)."""
    if source.reference_answer is None:
        yield "there is no reference"
        return
    screened = screen_source(source.question, source.evidence, source.accepted_answers)
    yield from screened.conditions.objections(ConstructionRole.SCREEN_SEED)
    if screened.defect is not None:
        yield str(screened.defect)
    if len(screened.support) < MIN_SUPPORTING_PASSAGES:
        yield "support"


def find_gold_response_defects(source: Instance, gold: View) -> Iterator[str]:
    """Yield the defects of the original response (B.3)."""
    if (gold.question, gold.evidence) != (source.question, source.evidence):
        yield "another question or other passages than the source's"
    if (right := is_answer_warranted(gold.question, gold.evidence, gold.answer)) is not True:
        yield "cannot read: answer" if right is None else "answer"
    labels, _ = check_target_response(gold.question, gold.evidence, _support_indices(gold), _reasoned_answer(gold))
    yield from labels.objections(ConstructionRole.VERIFY_TARGET)


def find_evidence_edit_defects(gold: View, edit: EvidenceEdit) -> Iterator[str]:
    """Yield the defects of an edit of the evidence (B.4)."""
    view, before, after = edit.view, gold.evidence, edit.view.evidence
    if view.question != gold.question:
        yield "another question"
    changed = [index for index, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]]
    # Without exactly one changed passage the other conditions are undefined.
    if len(changed) != 1 or len(before) != len(after) or after[changed[0]].title != before[changed[0]].title:
        yield "not one changed passage"
        return
    index = changed[0]
    if index not in _support_indices(gold):
        yield "an edit outside the support"
    yield from screen_evidence_edit(gold.question, before, index, after[index], gold.answer, view.answer).objections(
        ConstructionRole.SCREEN_EVIDENCE
    )
    if gold.trace.steps[: edit.first_affected_step] != view.trace.steps[: edit.first_affected_step]:
        yield "no shared beginning"
    yield from check_evidence_switch(
        gold.question, before, after, _reasoned_answer(gold), _reasoned_answer(view), edit.first_affected_step
    ).objections(ConstructionRole.VERIFY_EVIDENCE)


def find_question_edit_defects(gold: View, view: View) -> Iterator[str]:
    """Yield the defects of an edit of the question (B.5)."""
    if view.evidence != gold.evidence:
        yield "other passages"
    screened = screen_question_edit(gold.question, view.question, gold.evidence, gold.answer, view.answer)
    yield from screened.objections(ConstructionRole.SCREEN_QUESTION)
    checked = check_question_switch(
        gold.question, view.question, gold.evidence, _reasoned_answer(gold), _reasoned_answer(view)
    )
    yield from checked.objections(ConstructionRole.VERIFY_QUESTION)


def _reasoned_answer(view: View) -> ReasonedResponse:
    return ReasonedResponse(view.trace, view.answer)


def _support_indices(view: View) -> tuple[int, ...]:
    return tuple(index for index, passage in enumerate(view.evidence) if passage.id in view.support_ids)
