"""The texts of fields, choices, passes and roles, the keys of choices, and the guideline for people.

A test checks that every field and pass of ``forms`` has its texts here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from eclose.prompts.locked_texts import load_prompt_text
from eclose_annotate.forms import NO, YES, AnnotationTaskKind
from eclose_annotate.people.people import AnnotatorPool, PersonRole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose_annotate.forms import AnnotationPass, FormEntry, FormProblem


@dataclass(frozen=True, slots=True)
class FormFieldChoice:
    """A choice of a field."""

    value: str
    key: str
    words: str
    """Label beside the key."""
    short: str
    """Label in summaries of decisions."""


@dataclass(frozen=True, slots=True)
class FormFieldText:
    """Question and choices of a field."""

    question: str
    choices: tuple[FormFieldChoice, ...]

    def choice(self, value: str) -> FormFieldChoice:
        """Return the choice of a value."""
        return next(choice for choice in self.choices if choice.value == value)


def _yes_no(yes: str, no: str, short: str, not_short: str) -> tuple[FormFieldChoice, ...]:
    return FormFieldChoice(YES, "y", f"Yes: {yes}", short), FormFieldChoice(NO, "n", f"No: {no}", not_short)


def _coded(words: Mapping[str, str]) -> tuple[FormFieldChoice, ...]:
    """Return choices of codes; the digit of a code is its key."""
    return tuple(FormFieldChoice(code, code[-1], label, code) for code, label in words.items())


FAILURE_CODE_TEXTS: Mapping[str, str] = {
    "L1": "fact no passage warrants",
    "L2": "does not follow",
    "L3": "applied or computed wrongly",
    "L4": "misjudges the passages",
    "L5": "another failure (rare)",
}
INELIGIBILITY_TEXTS: Mapping[str, str] = {
    "N4": "the question cannot be understood reliably",
    "N1": "a fact that is needed is in no passage",
    "N2": "the facts are there, a link between them is not",
    "N3": "several answers, or a contradiction that stays open",
    "N5": "one answer, and the reference is another",
}
"""In the order of precedence."""

FIELD_TEXTS: Mapping[str, FormFieldText] = {
    "substantive": FormFieldText(
        "Is the step substantive?",
        _yes_no("makes a claim", "plan, repetition", "substantive", "not substantive"),
    ),
    "sound": FormFieldText(
        "Is it sound?",
        _yes_no("all warranted", "part is not", "sound", "not sound"),
    ),
    "failure": FormFieldText("Why is it not sound?", _coded(FAILURE_CODE_TEXTS)),
    "locally_sound": FormFieldText(
        "Does every step hold?",
        _yes_no("every claim in it is warranted", "some claim is not", "every step holds", "a step does not hold"),
    ),
    "eligible": FormFieldText(
        "Can this question be used?",
        _yes_no("well posed, one answer, the reference is it", "one of these fails", "eligible", "not eligible"),
    ),
    "code": FormFieldText(
        "Why not? The first that applies, from the top.",
        _coded(INELIGIBILITY_TEXTS),
    ),
    "aligned": FormFieldText(
        "Does the reasoning pursue the question?",
        _yes_no("it goes after what is asked", "its main line goes elsewhere", "aligned", "not aligned"),
    ),
    "closed": FormFieldText(
        "Does the reasoning establish the submitted answer?",
        _yes_no("the steps settle it", "something is missing, or they settle another", "closed", "not closed"),
    ),
    "correct": FormFieldText(
        "Is the submitted answer the reference answer?",
        _yes_no("the two say the same", "it says something else, or nothing", "correct", "not correct"),
    ),
    "complete": FormFieldText(
        "Would the reasoning establish the reference answer?",
        _yes_no("its claims are enough", "a premise is missing, or it leads elsewhere", "complete", "not complete"),
    ),
    "gold.correct": FormFieldText(
        "Is the answer the reference?",
        _yes_no("it says the same", "it says something else or less", "correct", "not correct"),
    ),
    "gold.supported": FormFieldText(
        "Is every step supported?",
        _yes_no("by a passage or by steps before it", "some claim is not", "supported", "not supported"),
    ),
    "gold.aligned": FormFieldText(
        "Does the reasoning pursue the question?",
        _yes_no("it goes after what is asked", "it goes elsewhere", "aligned", "not aligned"),
    ),
    "gold.closed": FormFieldText(
        "Do the steps alone settle the answer?",
        _yes_no("this one and no other", "something is missing", "closed", "not closed"),
    ),
    "evidence.isolated": FormFieldText(
        "Was one thing changed, everywhere, and nothing else?",
        _yes_no("and nothing contradicts it", "old value left, or more was changed", "isolated", "not isolated"),
    ),
    "evidence.trace_switches": FormFieldText(
        "Does the reasoning switch with the passage?",
        _yes_no("the first new step holds only with its own passage", "it does not", "switches", "does not switch"),
    ),
    "evidence.answer_switches": FormFieldText(
        "Does the answer switch with the reasoning?",
        _yes_no("each reasoning settles its own answer only", "it does not", "switches", "does not switch"),
    ),
    "question.valid": FormFieldText(
        "Is the new question a good one?",
        _yes_no("asks for something else, settled by the passages", "it is not", "valid", "not valid"),
    ),
    "question.trace_switches": FormFieldText(
        "Does the reasoning switch with the question?",
        _yes_no("each goes after its own question only", "it does not", "switches", "does not switch"),
    ),
}


@dataclass(frozen=True, slots=True)
class AnnotationPassText:
    """Texts of a pass."""

    title: str
    shows: str
    """What the pass newly shows, named but not quoted."""
    counts: str
    """What decisions may be based on."""


_CLOSURE = AnnotationPassText(
    "Closure", "the answer", "Reasoning and answer count. Take every claim as true. The passages fill no gap."
)
_CORRECTNESS = AnnotationPassText(
    "Correctness and completeness",
    "the reference",
    "Answer against reference, then reasoning against reference. The passages fill no gap.",
)
PASS_TEXTS: Mapping[tuple[AnnotationTaskKind, str], AnnotationPassText] = {
    (AnnotationTaskKind.SCREENING, "S"): AnnotationPassText(
        "Eligibility", "question, passages and reference", "Only what stands here counts, not what you know."
    ),
    (AnnotationTaskKind.RESPONSE, "A"): AnnotationPassText(
        "Local soundness", "steps and passages", "Passages and sound steps before it count. Citation marks do not."
    ),
    (AnnotationTaskKind.RESPONSE, "B"): AnnotationPassText(
        "Alignment", "the whole reasoning", "Question and reasoning count. The passages fill no gap."
    ),
    (AnnotationTaskKind.RESPONSE, "C"): _CLOSURE,
    (AnnotationTaskKind.RESPONSE, "D"): _CORRECTNESS,
    (AnnotationTaskKind.SHORT, "B"): AnnotationPassText(
        "Soundness and alignment",
        "reasoning and passages",
        "For soundness the passages count; for alignment question and reasoning alone.",
    ),
    (AnnotationTaskKind.SHORT, "C"): _CLOSURE,
    (AnnotationTaskKind.SHORT, "D"): _CORRECTNESS,
    (AnnotationTaskKind.FAMILY, "F"): AnnotationPassText(
        "Family", "question, passages and both changes", "Only what stands here counts, not what you know."
    ),
}
"""The name of a pass is the same on its chip, its page and in the guideline."""

TASK_KIND_TEXTS: Mapping[AnnotationTaskKind, str] = {
    AnnotationTaskKind.SCREENING: "screening of questions",
    AnnotationTaskKind.RESPONSE: "annotation of responses",
    AnnotationTaskKind.SHORT: "short annotation of responses",
    AnnotationTaskKind.FAMILY: "audit of families",
}
ROLE_TEXTS: Mapping[PersonRole, str] = {
    PersonRole.LEAD: "lead",
    PersonRole.SCREENER: "screener",
    PersonRole.ANNOTATOR: "annotator",
    PersonRole.ADJUDICATOR: "adjudicator",
}
CREW_ROLE_TEXTS: Mapping[str, str] = {
    "adjudicator": "adjudicator",
    "screening-adjudicator": "adjudicator of screening",
    "lead": "lead",
}
"""Roles in which people join a running project without tasks."""
CHANGE_TEXTS: Mapping[str, str] = {
    "deactivate": "Deactivate",
    "end": "Log out",
    "renew": "Create a new link",
    "reassign": "Hand over the tasks",
}
"""Changes of a person that the lead confirms, as on the button."""
POOL_TEXTS: Mapping[AnnotatorPool, str] = {
    AnnotatorPool.NONE: "no tasks",
    AnnotatorPool.QUESTIONS: "questions",
    AnnotatorPool.RESPONSES: "responses",
    AnnotatorPool.FAMILIES: "families",
}
_SPEAKERS = ("First", "Second", "Third")


class GuidelineSection(NamedTuple):
    """The rules and worked examples of one decision, as Markdown."""

    field: str
    title: str
    rules: str
    examples: str


class PassGuideline(NamedTuple):
    """The guideline of a pass; its title is that of the pass."""

    introduction: str
    """What is visible in the pass and what counts, as Markdown."""
    sections: tuple[GuidelineSection, ...]
    """One for each decision of the pass, in the order of the form."""


@cache
def _read_guideline_file(name: str) -> tuple[str, Mapping[str, GuidelineSection]]:
    """Return introduction and sections of a guideline; ``## field: title`` begins a section."""
    head, *parts = re.split(r"^## ", load_prompt_text(name).text, flags=re.MULTILINE)
    # The first line is the title of the pass.
    _, _, introduction = head.partition("\n")
    sections = {}
    for part in parts:
        line, _, body = part.partition("\n")
        field, _, heading = line.partition(": ")
        rules, _, examples = body.partition("### Examples\n")
        sections[field] = GuidelineSection(field, heading, rules.strip(), examples.strip())
    return introduction.strip(), sections


def read_pass_guideline(form: AnnotationPass) -> PassGuideline:
    """Return the guideline of a pass with the sections of its own fields."""
    introduction, sections = _read_guideline_file(form.guideline)
    return PassGuideline(introduction, tuple(sections[field.name] for field in form.fields))


def anonymous_annotator_name(number: int) -> str:
    """Return an anonymous name for the annotator at a position from 0."""
    return _SPEAKERS[min(number, len(_SPEAKERS) - 1)]


def describe_entry(entry: FormEntry) -> str:
    """Return the decisions of an entry in words; a decision that implies the one before stands alone.

    >>> describe_entry({"substantive": "yes", "sound": "no", "failure": "L2"})
    'L2'
    """
    # The fields of a step, and of a question, depend on one another: the last one says it all.
    names = [name for name in ("failure", "sound", "substantive", "code", "eligible") if name in entry][:1] or list(
        entry
    )
    return ", ".join(FIELD_TEXTS[name].choice(entry[name]).short for name in names)


def describe_form_problem(problem: FormProblem) -> str:
    """Return the message of a problem, with the question instead of the field's name."""
    field = FIELD_TEXTS.get(problem.field)
    where = "" if problem.step is None else f"Step {problem.step}: "
    subject = problem.field if field is None else f"“{field.question}”"
    return f"{where}{subject} {problem.problem}"
