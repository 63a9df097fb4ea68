"""Every field, pass and role in words for people, with the key of each choice, and the part of a guideline it rests on.

Knows no page. A name that is not in here cannot be shown; a test holds this against the forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.annotation.accounts.people import Pool, Role
from eclose.annotation.forms import NO, YES, Kind
from eclose.protocol.auditing import GUIDELINE
from eclose.protocol.prompts import Reader, load_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.annotation.forms import Pass, Problem


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer to a question."""

    value: str
    key: str
    words: str
    short: str
    """For a list of what was decided."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The part of a guideline that one decision rests on."""

    text: str
    start: str = ""
    """How its first line begins; the text's first below its title, unless told."""
    end: str = ""
    """How the first line behind it begins; the text's end, unless told."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A field as people are asked for it."""

    question: str
    choices: tuple[Choice, ...]
    excerpt: Excerpt

    def choice(self, value: str) -> Choice:
        """One of the choices."""
        return next(one for one in self.choices if one.value == value)


def _yes_no(yes: str, no: str, short: str, not_short: str) -> tuple[Choice, ...]:
    return Choice(YES, "y", f"Yes: {yes}", short), Choice(NO, "n", f"No: {no}", not_short)


def _coded(words: Mapping[str, str]) -> tuple[Choice, ...]:
    """A code has its own digit as its key."""
    return tuple(Choice(code, code[-1], told, code) for code, told in words.items())


FAILURES: Mapping[str, str] = {
    "L1": "fact no passage warrants",
    "L2": "does not follow",
    "L3": "applied or computed wrongly",
    "L4": "misjudges the passages",
    "L5": "another failure (rare)",
}
INELIGIBILITIES: Mapping[str, str] = {
    "N4": "the question cannot be understood reliably",
    "N1": "a fact that is needed is in no passage",
    "N2": "the facts are there, a link between them is not",
    "N3": "several answers, or a contradiction that stays open",
    "N5": "one answer, and the reference is another",
}
"""In the order in which they are to be tried."""

_SOUNDNESS = "judge_soundness.md"
FIELDS: Mapping[str, Asked] = {
    "substantive": Asked(
        "Is the step substantive?",
        _yes_no("makes a claim", "plan, repetition", "substantive", "not substantive"),
        Excerpt(_SOUNDNESS, "## Is the step substantive", "## Is the step sound"),
    ),
    "sound": Asked(
        "Is it sound?",
        _yes_no("all warranted", "part is not", "sound", "not sound"),
        Excerpt(_SOUNDNESS, "## Is the step sound", "## The code"),
    ),
    "failure": Asked("Why is it not sound?", _coded(FAILURES), Excerpt(_SOUNDNESS, "## The code", "## Examples")),
    "locally_sound": Asked(
        "Does every step hold?",
        _yes_no("every claim in it is warranted", "some claim is not", "every step holds", "a step does not hold"),
        Excerpt(_SOUNDNESS, "## Is the step sound", "## The code"),
    ),
    "eligible": Asked(
        "Can this question be used?",
        _yes_no("well posed, one answer, the reference is it", "one of these fails", "eligible", "not eligible"),
        Excerpt("screen_eligibility.md", end="If it is not fit"),
    ),
    "code": Asked(
        "Why not? The first that applies, from the top.",
        _coded(INELIGIBILITIES),
        Excerpt("screen_eligibility.md", "If it is not fit", "Examples"),
    ),
    "aligned": Asked(
        "Does the reasoning pursue the question?",
        _yes_no("it goes after what is asked", "its main line goes elsewhere", "pursues the question", "does not"),
        Excerpt("judge_alignment.md"),
    ),
    "closed": Asked(
        "Does the reasoning establish the submitted answer?",
        _yes_no("the steps settle it", "something is missing, or they settle another", "establishes it", "does not"),
        Excerpt("judge_closure.md"),
    ),
    "correct": Asked(
        "Is the submitted answer the reference answer?",
        _yes_no("the two say the same", "it says something else, less, or nothing", "correct", "not correct"),
        Excerpt("judge_correctness.md"),
    ),
    "complete": Asked(
        "Would the reasoning establish the reference answer?",
        _yes_no("its claims are enough", "a premise is missing, or it leads elsewhere", "complete", "not complete"),
        Excerpt("judge_completeness.md"),
    ),
    "gold.correct": Asked(
        "Is the answer the reference?",
        _yes_no("it says the same", "it says something else or less", "correct", "not correct"),
        Excerpt(GUIDELINE, "**gold.correct**", "**gold.supported**"),
    ),
    "gold.supported": Asked(
        "Is every step supported?",
        _yes_no("by a passage or by steps before it", "some claim is not", "supported", "not supported"),
        Excerpt(GUIDELINE, "**gold.supported**", "**gold.aligned**"),
    ),
    "gold.aligned": Asked(
        "Does the reasoning pursue the question?",
        _yes_no("it goes after what is asked", "it goes elsewhere", "aligned", "not aligned"),
        Excerpt(GUIDELINE, "**gold.aligned**", "**gold.closed**"),
    ),
    "gold.closed": Asked(
        "Do the steps alone settle the answer?",
        _yes_no("this one and no other", "something is missing", "closed", "not closed"),
        Excerpt(GUIDELINE, "**gold.closed**", "## With one passage"),
    ),
    "evidence.isolated": Asked(
        "Was one thing changed, everywhere, and nothing else?",
        _yes_no("and nothing contradicts it", "old value left, or more was changed", "isolated", "not isolated"),
        Excerpt(GUIDELINE, "**evidence.isolated**", "**evidence.trace_switches**"),
    ),
    "evidence.trace_switches": Asked(
        "Does the reasoning switch with the passage?",
        _yes_no("the first new step holds only with its own passage", "it does not", "switches", "does not switch"),
        Excerpt(GUIDELINE, "**evidence.trace_switches**", "**evidence.answer_switches**"),
    ),
    "evidence.answer_switches": Asked(
        "Does the answer switch with the reasoning?",
        _yes_no("each reasoning settles its own answer only", "it does not", "switches", "does not switch"),
        Excerpt(GUIDELINE, "**evidence.answer_switches**", "## With the question"),
    ),
    "question.valid": Asked(
        "Is the new question a good one?",
        _yes_no("asks for something else, settled by the passages", "it is not", "valid", "not valid"),
        Excerpt(GUIDELINE, "**question.valid**", "**question.trace_switches**"),
    ),
    "question.trace_switches": Asked(
        "Does the reasoning switch with the question?",
        _yes_no("each goes after its own question only", "it does not", "switches", "does not switch"),
        Excerpt(GUIDELINE, "**question.trace_switches**"),
    ),
}


@dataclass(frozen=True, slots=True)
class PassWords:
    """A pass in words."""

    title: str
    shows: str
    """What comes into sight with it; never the thing itself."""
    counts: str
    """What may justify a decision."""


_WHOLE = PassWords("The question", "the whole reasoning", "Question and reasoning count. Passages fill no gap.")
_ANSWER = PassWords(
    "The answer", "the answer", "Reasoning and answer count. Take every claim as true. Passages fill no gap."
)
_REFERENCE = PassWords(
    "The reference",
    "the reference",
    "Answer against reference; then reasoning against reference. Passages fill no gap.",
)
PASSES: Mapping[tuple[Kind, str], PassWords] = {
    (Kind.SCREENING, "S"): PassWords(
        "The question", "question, passages and reference", "Only what stands here counts, not what you know."
    ),
    (Kind.RESPONSE, "A"): PassWords(
        "Each step", "steps and passages", "Passages and sound steps before it count. Citation marks do not."
    ),
    (Kind.RESPONSE, "B"): _WHOLE,
    (Kind.RESPONSE, "C"): _ANSWER,
    (Kind.RESPONSE, "D"): _REFERENCE,
    (Kind.SHORT, "B"): PassWords(
        "The reasoning",
        "reasoning and passages",
        "Holds: the passages count. Pursues: question and reasoning count alone.",
    ),
    (Kind.SHORT, "C"): _ANSWER,
    (Kind.SHORT, "D"): _REFERENCE,
    (Kind.FAMILY, "F"): PassWords(
        "The family", "question, passages and both changes", "Only what stands here counts, not what you know."
    ),
}

KINDS: Mapping[Kind, str] = {
    Kind.SCREENING: "screening of questions",
    Kind.RESPONSE: "annotation of responses",
    Kind.SHORT: "short annotation of responses",
    Kind.FAMILY: "audit of families",
}
ROLES: Mapping[Role, str] = {
    Role.LEAD: "lead",
    Role.SCREENER: "screener",
    Role.ANNOTATOR: "annotator",
    Role.ADJUDICATOR: "adjudicator",
}
POOLS: Mapping[Pool, str] = {
    Pool.NONE: "no tasks",
    Pool.QUESTIONS: "questions",
    Pool.RESPONSES: "responses",
    Pool.FAMILIES: "families",
}
_SPEAKERS = ("One", "Another", "A third")


def excerpt(field: str) -> str:
    """Return the part of the guideline for people that a decision rests on, as Markdown and without its title."""
    part = FIELDS[field].excerpt
    lines = load_text(part.text).addressed_to(Reader.PEOPLE).splitlines()
    start = next(at for at, line in enumerate(lines) if at and line.startswith(part.start))
    end = next((at for at, line in enumerate(lines) if at > start and part.end and line.startswith(part.end)), None)
    return "\n".join(lines[start:end]).strip() + "\n"


def guidelines(form: Pass) -> tuple[str, ...]:
    """Return the texts for people that the decisions of a pass rest on, as Markdown, the one it names first."""
    names = dict.fromkeys((form.guideline, *(FIELDS[field.name].excerpt.text for field in form.fields)))
    return tuple(load_text(name).addressed_to(Reader.PEOPLE) for name in names)


def speaker(number: int) -> str:
    """Somebody without a name, by their place from 0."""
    return _SPEAKERS[min(number, len(_SPEAKERS) - 1)]


def told(problem: Problem) -> str:
    """A problem with the question instead of the field's name."""
    asked = FIELDS.get(problem.field)
    where = "" if problem.step is None else f"Step {problem.step}: "
    asked_for = problem.field if asked is None else f"“{asked.question}”"
    return f"{where}{asked_for} {problem.problem}"
