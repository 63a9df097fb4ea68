"""What people might have said, in a few letters."""

from __future__ import annotations

from eclose.annotation.forms import Kind
from eclose.annotation.results.annotations import Annotation, ScreeningAnnotation, responses_of
from eclose.core.judgment import Ineligibility, Judgment, LocalFailure, Screening, StepJudgment
from eclose.core.response import Source

SOUND, FILLER = StepJudgment(True, True), StepJudgment(False)
L1, L2 = (StepJudgment(True, False, failure) for failure in (LocalFailure("L1"), LocalFailure("L2")))


def judged(response, judge, steps=(SOUND,), labels="1111"):
    """Labels in the order A, C, K, Acc; a dash for none."""
    given = (None if one == "-" else one == "1" for one in labels)
    return Judgment(response, judge, tuple(steps), *given)


def said(response, judge, steps=(SOUND,), labels="1111", *, question=None, kind=Kind.RESPONSE, asked=2, **more):
    return Annotation(
        response, question or f"q of {response}", kind, asked, judge, judged(response, judge, steps, labels),
        benchmark=more.pop("benchmark", "B"), source=more.pop("source", Source("m", "SFT", 7)), **more,
    )  # fmt: skip


def told(*rows):
    return responses_of(rows)


def screened(question, judge, code=None, *, asked=2, benchmark="B", **more):
    """A code for no, nothing for yes."""
    reason = None if code is None else Ineligibility(code)
    return ScreeningAnnotation(
        question, asked, judge, Screening(question, judge, code is None, reason), benchmark=benchmark, **more
    )
