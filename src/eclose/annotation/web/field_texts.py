"""The texts of fields, choices, passes and roles, the keys of choices, and the guideline excerpt of each field.

A test checks that every field and pass of ``forms`` has its texts here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.annotation.accounts.people import AnnotatorPool, PersonRole
from eclose.annotation.forms import NO, YES, AnnotationTaskKind
from eclose.protocol.auditing import AUDIT_GUIDELINE_FILE
from eclose.protocol.prompts import GuidelineReader, load_prompt_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.annotation.forms import AnnotationPass, FormProblem


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
class GuidelineExcerpt:
    """The part of a guideline that applies to a field."""

    text: str
    """File name of the guideline."""
    start: str = ""
    """Beginning of the first line; empty for the first line below the title."""
    end: str = ""
    """Beginning of the first line after it; empty for the end of the text."""


@dataclass(frozen=True, slots=True)
class FormFieldText:
    """Question, choices and guideline of a field."""

    question: str
    choices: tuple[FormFieldChoice, ...]
    excerpt: GuidelineExcerpt

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

# The start and end of an excerpt are quoted from the guidelines; a test checks that they exist.
_SOUNDNESS = "judge_soundness.md"
FIELD_TEXTS: Mapping[str, FormFieldText] = {
    "substantive": FormFieldText(
        "Is the step substantive?",
        _yes_no("makes a claim", "plan, repetition", "substantive", "not substantive"),
        GuidelineExcerpt(_SOUNDNESS, "## Is the step substantive", "## Is the step sound"),
    ),
    "sound": FormFieldText(
        "Is it sound?",
        _yes_no("all warranted", "part is not", "sound", "not sound"),
        GuidelineExcerpt(_SOUNDNESS, "## Is the step sound", "## The code"),
    ),
    "failure": FormFieldText(
        "Why is it not sound?", _coded(FAILURE_CODE_TEXTS), GuidelineExcerpt(_SOUNDNESS, "## The code", "## Examples")
    ),
    "locally_sound": FormFieldText(
        "Does every step hold?",
        _yes_no("every claim in it is warranted", "some claim is not", "every step holds", "a step does not hold"),
        GuidelineExcerpt(_SOUNDNESS, "## Is the step sound", "## The code"),
    ),
    "eligible": FormFieldText(
        "Can this question be used?",
        _yes_no("well posed, one answer, the reference is it", "one of these fails", "eligible", "not eligible"),
        GuidelineExcerpt("screen_eligibility.md", end="If it is not fit"),
    ),
    "code": FormFieldText(
        "Why not? The first that applies, from the top.",
        _coded(INELIGIBILITY_TEXTS),
        GuidelineExcerpt("screen_eligibility.md", "If it is not fit", "Examples"),
    ),
    "aligned": FormFieldText(
        "Does the reasoning pursue the question?",
        _yes_no("it goes after what is asked", "its main line goes elsewhere", "pursues the question", "does not"),
        GuidelineExcerpt("judge_alignment.md"),
    ),
    "closed": FormFieldText(
        "Does the reasoning establish the submitted answer?",
        _yes_no("the steps settle it", "something is missing, or they settle another", "establishes it", "does not"),
        GuidelineExcerpt("judge_closure.md"),
    ),
    "correct": FormFieldText(
        "Is the submitted answer the reference answer?",
        _yes_no("the two say the same", "it says something else, less, or nothing", "correct", "not correct"),
        GuidelineExcerpt("judge_correctness.md"),
    ),
    "complete": FormFieldText(
        "Would the reasoning establish the reference answer?",
        _yes_no("its claims are enough", "a premise is missing, or it leads elsewhere", "complete", "not complete"),
        GuidelineExcerpt("judge_completeness.md"),
    ),
    "gold.correct": FormFieldText(
        "Is the answer the reference?",
        _yes_no("it says the same", "it says something else or less", "correct", "not correct"),
        GuidelineExcerpt(AUDIT_GUIDELINE_FILE, "**gold.correct**", "**gold.supported**"),
    ),
    "gold.supported": FormFieldText(
        "Is every step supported?",
        _yes_no("by a passage or by steps before it", "some claim is not", "supported", "not supported"),
        GuidelineExcerpt(AUDIT_GUIDELINE_FILE, "**gold.supported**", "**gold.aligned**"),
    ),
    "gold.aligned": FormFieldText(
        "Does the reasoning pursue the question?",
        _yes_no("it goes after what is asked", "it goes elsewhere", "aligned", "not aligned"),
        GuidelineExcerpt(AUDIT_GUIDELINE_FILE, "**gold.aligned**", "**gold.closed**"),
    ),
    "gold.closed": FormFieldText(
        "Do the steps alone settle the answer?",
        _yes_no("this one and no other", "something is missing", "closed", "not closed"),
        GuidelineExcerpt(AUDIT_GUIDELINE_FILE, "**gold.closed**", "## With one passage"),
    ),
    "evidence.isolated": FormFieldText(
        "Was one thing changed, everywhere, and nothing else?",
        _yes_no("and nothing contradicts it", "old value left, or more was changed", "isolated", "not isolated"),
        GuidelineExcerpt(AUDIT_GUIDELINE_FILE, "**evidence.isolated**", "**evidence.trace_switches**"),
    ),
    "evidence.trace_switches": FormFieldText(
        "Does the reasoning switch with the passage?",
        _yes_no("the first new step holds only with its own passage", "it does not", "switches", "does not switch"),
        GuidelineExcerpt(AUDIT_GUIDELINE_FILE, "**evidence.trace_switches**", "**evidence.answer_switches**"),
    ),
    "evidence.answer_switches": FormFieldText(
        "Does the answer switch with the reasoning?",
        _yes_no("each reasoning settles its own answer only", "it does not", "switches", "does not switch"),
        GuidelineExcerpt(AUDIT_GUIDELINE_FILE, "**evidence.answer_switches**", "## With the question"),
    ),
    "question.valid": FormFieldText(
        "Is the new question a good one?",
        _yes_no("asks for something else, settled by the passages", "it is not", "valid", "not valid"),
        GuidelineExcerpt(AUDIT_GUIDELINE_FILE, "**question.valid**", "**question.trace_switches**"),
    ),
    "question.trace_switches": FormFieldText(
        "Does the reasoning switch with the question?",
        _yes_no("each goes after its own question only", "it does not", "switches", "does not switch"),
        GuidelineExcerpt(AUDIT_GUIDELINE_FILE, "**question.trace_switches**"),
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


_TRACE = AnnotationPassText(
    "The question", "the whole reasoning", "Question and reasoning count. Passages fill no gap."
)
_ANSWER = AnnotationPassText(
    "The answer", "the answer", "Reasoning and answer count. Take every claim as true. Passages fill no gap."
)
_REFERENCE = AnnotationPassText(
    "The reference",
    "the reference",
    "Answer against reference; then reasoning against reference. Passages fill no gap.",
)
PASS_TEXTS: Mapping[tuple[AnnotationTaskKind, str], AnnotationPassText] = {
    (AnnotationTaskKind.SCREENING, "S"): AnnotationPassText(
        "The question", "question, passages and reference", "Only what stands here counts, not what you know."
    ),
    (AnnotationTaskKind.RESPONSE, "A"): AnnotationPassText(
        "Each step", "steps and passages", "Passages and sound steps before it count. Citation marks do not."
    ),
    (AnnotationTaskKind.RESPONSE, "B"): _TRACE,
    (AnnotationTaskKind.RESPONSE, "C"): _ANSWER,
    (AnnotationTaskKind.RESPONSE, "D"): _REFERENCE,
    (AnnotationTaskKind.SHORT, "B"): AnnotationPassText(
        "The reasoning",
        "reasoning and passages",
        "Holds: the passages count. Pursues: question and reasoning count alone.",
    ),
    (AnnotationTaskKind.SHORT, "C"): _ANSWER,
    (AnnotationTaskKind.SHORT, "D"): _REFERENCE,
    (AnnotationTaskKind.FAMILY, "F"): AnnotationPassText(
        "The family", "question, passages and both changes", "Only what stands here counts, not what you know."
    ),
}

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
POOL_TEXTS: Mapping[AnnotatorPool, str] = {
    AnnotatorPool.NONE: "no tasks",
    AnnotatorPool.QUESTIONS: "questions",
    AnnotatorPool.RESPONSES: "responses",
    AnnotatorPool.FAMILIES: "families",
}
_SPEAKERS = ("One", "Another", "A third")


def read_guideline_excerpt(field: str) -> str:
    """Return the guideline excerpt of a field, as Markdown without its title."""
    part = FIELD_TEXTS[field].excerpt
    lines = load_prompt_text(part.text).text_for(GuidelineReader.PEOPLE).splitlines()
    # Line 0 is the title.
    start = next(at for at, line in enumerate(lines) if at and line.startswith(part.start))
    end = next((at for at, line in enumerate(lines) if at > start and part.end and line.startswith(part.end)), None)
    return "\n".join(lines[start:end]).strip() + "\n"


def read_pass_guidelines(form: AnnotationPass) -> tuple[str, ...]:
    """Return the guidelines of a pass and of its fields, as Markdown, that of the pass first."""
    names = dict.fromkeys((form.guideline, *(FIELD_TEXTS[field.name].excerpt.text for field in form.fields)))
    return tuple(load_prompt_text(name).text_for(GuidelineReader.PEOPLE) for name in names)


def anonymous_annotator_name(number: int) -> str:
    """Return an anonymous name for the annotator at a position from 0."""
    return _SPEAKERS[min(number, len(_SPEAKERS) - 1)]


def describe_form_problem(problem: FormProblem) -> str:
    """Return the message of a problem, with the question instead of the field's name."""
    field = FIELD_TEXTS.get(problem.field)
    where = "" if problem.step is None else f"Step {problem.step}: "
    subject = problem.field if field is None else f"“{field.question}”"
    return f"{where}{subject} {problem.problem}"
