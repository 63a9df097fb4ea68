"""Short constructors of annotations."""

from __future__ import annotations

from eclose.values.judgment import Ineligibility, Judgment, LocalFailure, QuestionScreening, StepJudgment
from eclose.values.response import ResponseSource
from eclose_annotate.annotations import Annotation, ScreeningAnnotation, group_annotations
from eclose_annotate.forms import AnnotationTaskKind

SOUND, FILLER = StepJudgment(True, True), StepJudgment(False)
L1, L2 = (StepJudgment(True, False, failure) for failure in (LocalFailure("L1"), LocalFailure("L2")))


def judged(response, judge, steps=(SOUND,), labels="1111"):
    """Labels in the order A, C, K, Acc; a dash for none."""
    values = (None if letter == "-" else letter == "1" for letter in labels)
    return Judgment(response, judge, tuple(steps), *values)


def annotation(
    response, judge, steps=(SOUND,), labels="1111", *, question=None, kind=AnnotationTaskKind.RESPONSE, asked=2, **more
):
    return Annotation(
        response, question or f"q of {response}", kind, asked, judge, judged(response, judge, steps, labels),
        benchmark=more.pop("benchmark", "B"), source=more.pop("source", ResponseSource("m", "SFT", 7)), **more,
    )  # fmt: skip


def grouped(*rows):
    """Return the annotations of each response."""
    return group_annotations(rows).responses


def grouped_questions(rows):
    """Return the screenings of each question."""
    return group_annotations((), rows).questions


def screening(question, judge, code=None, *, asked=2, benchmark="B", **more):
    """Return a screening: ineligible with a code, eligible without one."""
    reason = None if code is None else Ineligibility(code)
    return ScreeningAnnotation(
        question, asked, judge, QuestionScreening(question, judge, code is None, reason), benchmark=benchmark, **more
    )
