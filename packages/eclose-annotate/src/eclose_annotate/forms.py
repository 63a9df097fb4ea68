"""The forms of each pass: their fields, the conditions under which a field is asked, validation and judgments.

Independent of web and database: an entry is a mapping of field names to choices. Filled forms become the judgments and
screenings that all judges share. Derived labels (L, G, the gap, the failure class) are computed elsewhere and never
asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from eclose.values.judgment import (
    INELIGIBILITY_PRECEDENCE,
    NO_ANSWER_REASON,
    NO_REFERENCE_REASON,
    NO_TRACE_REASON,
    WHOLE_TRACE_REASON,
    Criterion,
    Ineligibility,
    Judgment,
    LocalFailure,
    QuestionScreening,
    StepJudgment,
)
from eclose_annotate.family_audit.material import AUDIT_MARKS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from eclose.values.three_valued import Label

FormEntry: TypeAlias = Mapping[str, str]
"""Choices by field name."""

YES, NO = "yes", "no"


class AnnotationTaskKind(StrEnum):
    """What a task annotates, and with which passes."""

    SCREENING = "screening"
    """A question: whether it is eligible."""
    RESPONSE = "response"
    """A response in four passes."""
    SHORT = "short"
    """A response in three passes, without single steps; used by ``eclose label``."""
    FAMILY = "family"
    """A counterfactual family in one pass."""


@dataclass(frozen=True, slots=True)
class FormField:
    """A decision with its choices."""

    name: str
    choices: tuple[str, ...]
    when: tuple[str, str] | None = None
    """Field and value on which this field depends; empty in all other cases. None where it is always asked."""


@dataclass(frozen=True, slots=True)
class AnnotationPass:
    """The decisions made at one stage of disclosure."""

    name: str
    fields: tuple[FormField, ...]
    guideline: str
    """File name of the guideline."""
    each_step: bool = False
    """Whether each step has an entry of its own."""


# Conditional fields: soundness of substantive steps, failure code of unsound ones, code of ineligible questions.
_SUBSTANTIVE = FormField("substantive", (YES, NO))
_SOUND = FormField("sound", (YES, NO), when=("substantive", YES))
_FAILURE = FormField("failure", tuple(LocalFailure), when=("sound", NO))
_ELIGIBLE = FormField("eligible", (YES, NO))
_CODE = FormField("code", tuple(INELIGIBILITY_PRECEDENCE), when=("eligible", NO))
_ALIGNED, _CLOSED = FormField("aligned", (YES, NO)), FormField("closed", (YES, NO))
_CORRECT, _COMPLETE = FormField("correct", (YES, NO)), FormField("complete", (YES, NO))

# The passes of appendix A.3.2: the answer is hidden up to pass B, the reference up to pass C.
PASSES_BY_TASK_KIND: Mapping[AnnotationTaskKind, tuple[AnnotationPass, ...]] = {
    AnnotationTaskKind.SCREENING: (AnnotationPass("S", (_ELIGIBLE, _CODE), "annotate_eligibility.md"),),
    AnnotationTaskKind.RESPONSE: (
        AnnotationPass("A", (_SUBSTANTIVE, _SOUND, _FAILURE), "annotate_soundness.md", each_step=True),
        AnnotationPass("B", (_ALIGNED,), "annotate_alignment.md"),
        AnnotationPass("C", (_CLOSED,), "annotate_closure.md"),
        AnnotationPass("D", (_CORRECT, _COMPLETE), "annotate_correctness.md"),
    ),
    AnnotationTaskKind.SHORT: (
        AnnotationPass("B", (FormField("locally_sound", (YES, NO)), _ALIGNED), "annotate_alignment.md"),
        AnnotationPass("C", (_CLOSED,), "annotate_closure.md"),
        AnnotationPass("D", (_CORRECT, _COMPLETE), "annotate_correctness.md"),
    ),
    AnnotationTaskKind.FAMILY: (
        AnnotationPass(
            "F",
            tuple(FormField(name, (YES, NO)) for names in AUDIT_MARKS.values() for name in names),
            "annotate_family.md",
        ),
    ),
}
"""Passes in their order. A pass opens when the one before it is submitted."""


def applicable_annotation_passes(
    kind: AnnotationTaskKind, *, steps: int = 1, answered: bool = True, referenced: bool = True
) -> tuple[AnnotationPass, ...]:
    """Return the passes of a task, without those that a missing step, answer or reference makes impossible."""
    without = inapplicable_form_fields(answered=answered, referenced=referenced)
    forms = trim_form_passes(kind, [form.name for form in PASSES_BY_TASK_KIND[kind]], without)
    return tuple(form for form in forms if form.fields and (steps or not form.each_step))


def inapplicable_form_fields(*, answered: bool, referenced: bool) -> frozenset[str]:
    """Return the fields that cannot be asked without an answer, or without a reference."""
    # Completeness compares the trace with the reference, so it is asked of a response without an answer too.
    without_answer = () if answered else ("closed", "correct")
    return frozenset(without_answer + (() if referenced else ("correct", "complete")))


def trim_form_passes(
    kind: AnnotationTaskKind, names: Sequence[str], without: Collection[str]
) -> tuple[AnnotationPass, ...]:
    """Return the named passes of a kind, without some of their fields."""
    return tuple(
        replace(form, fields=tuple(field for field in form.fields if field.name not in without))
        for form in PASSES_BY_TASK_KIND[kind]
        if form.name in names
    )


def next_open_pass(passes: Sequence[AnnotationPass], submitted: Sequence[str]) -> AnnotationPass | None:
    """Return the first pass that is not submitted; None where all are. Raise where their order was not kept."""
    names = [form.name for form in passes]
    if list(submitted) != names[: len(submitted)]:
        raise ValueError(f"passes {list(submitted)} were submitted, but their order is {names}")
    return passes[len(submitted)] if len(submitted) < len(passes) else None


@dataclass(frozen=True, slots=True)
class FormProblem:
    """A missing, forbidden or invalid value in a form."""

    field: str
    problem: str
    step: int | None = None
    """Number of the step, from 1; None in forms without steps."""

    def __str__(self) -> str:
        where = "" if self.step is None else f"step {self.step}: "
        return f"{where}{self.field}: {self.problem}"


def find_form_problems(
    form: AnnotationPass, entries: Sequence[FormEntry], steps: int | None = None
) -> tuple[FormProblem, ...]:
    """Return all problems of a form, which has one entry or one for each step; empty where it may be submitted."""
    expected = steps if form.each_step else 1
    if len(entries) != expected:
        return (FormProblem("form", f"{len(entries)} entries instead of {expected}."),)
    return tuple(
        FormProblem(field, message, number if form.each_step else None)
        for number, entry in enumerate(entries, start=1)
        for field, message in _entry_problems(form, entry)
    )


def _entry_problems(form: AnnotationPass, entry: FormEntry) -> Iterator[tuple[str, str]]:
    names = {field.name for field in form.fields}
    yield from ((name, "is not asked here.") for name in sorted(set(entry) - names))
    for field in form.fields:
        value = entry.get(field.name)
        # A field depends on a value that must itself be valid, so chains need no recursion.
        required = field.when is None or entry.get(field.when[0]) == field.when[1]
        if value is None and required:
            yield field.name, "is not decided."
        elif value is not None and not required:
            assert field.when is not None
            yield field.name, f"is asked only where {field.when[0]} is {field.when[1]}."
        elif value is not None and value not in field.choices:
            yield field.name, f"has no choice {value!r}. Choose from: {', '.join(field.choices)}."


def screening_from_form(question_id: str, judge: str, entry: FormEntry) -> QuestionScreening:
    """Return the screening of a question from the entry of pass S."""
    code = entry.get("code")
    return QuestionScreening(
        question_id, judge, _label(entry, "eligible"), None if code is None else Ineligibility(code)
    )


def judgment_from_form(
    response_id: str, judge: str, kind: AnnotationTaskKind, entries: Mapping[str, Sequence[FormEntry]]
) -> Judgment:
    """Return the judgment of a response from the entries of each pass; criteria that were not asked get a reason."""
    # Passes about the whole trace have one entry. So has pass A of a one-step trace; its field names are different.
    trace = {name: value for forms in entries.values() if len(forms) == 1 for name, value in forms[0].items()}
    steps = (
        tuple(_step(entry) for entry in entries.get("A", ()))
        if kind is AnnotationTaskKind.RESPONSE
        else _single_step(trace)
    )
    return Judgment(
        response_id,
        judge,
        steps,
        aligned=_label(trace, "aligned"),
        closed=_label(trace, "closed"),
        complete=_label(trace, "complete"),
        correct=_label(trace, "correct"),
        unjudged=dict(_unjudged(steps, trace)),
    )


def _step(entry: FormEntry) -> StepJudgment:
    code = entry.get("failure")
    return StepJudgment(
        _label(entry, "substantive"), _label(entry, "sound"), None if code is None else LocalFailure(code)
    )


def _single_step(trace: FormEntry) -> tuple[StepJudgment, ...]:
    # L is 1 where every substantive step is sound, so one substantive step with the label gives the same L.
    sound = _label(trace, "locally_sound")
    return () if sound is None else (StepJudgment(True, sound, reason=WHOLE_TRACE_REASON),)


def _unjudged(steps: Sequence[StepJudgment], trace: FormEntry) -> list[tuple[Criterion, str]]:
    """Return the criteria without a label, each with the reason why its field was not asked."""
    reasons = [] if steps else [(Criterion.LOCAL_SOUNDNESS, NO_TRACE_REASON)]
    if "closed" not in trace:
        reasons.append((Criterion.CLOSURE, NO_ANSWER_REASON))
    if "complete" not in trace:
        reasons.append((Criterion.COMPLETENESS, NO_REFERENCE_REASON))
    if "correct" not in trace:
        reasons.append((Criterion.CORRECTNESS, NO_REFERENCE_REASON if "complete" not in trace else NO_ANSWER_REASON))
    return reasons


def _label(entry: FormEntry, name: str) -> Label:
    value = entry.get(name)
    return None if value is None else {YES: True, NO: False}[value]
